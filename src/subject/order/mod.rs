//! A subject's order of summation, found from its outputs.

mod black_box;
mod carrier;
mod orders;
mod revealed;

pub use black_box::{BlackBox, BoxError};
pub use carrier::{Axis, Setup};
pub use orders::{Orders, orders};
pub use revealed::{Known, Revealed};
