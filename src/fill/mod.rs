//! Decides the value of each logical element of a layer, from the case's fill and seed.
//!
//! It must not see a padded size: a value depends on seed, tensor and logical index alone.
//! Layer 4.

mod error;
mod exact;
mod layer;
mod palette;
mod pick;
mod router;
mod size;

pub use error::FillError;
pub use exact::is_exact;
pub use layer::{fill, fill_in};
pub use size::BYTES_MAX;
