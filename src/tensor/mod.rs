//! Owns bytes with a logical shape, guards around them and poison inside; gives ndarray views.
//!
//! It must not interpret formats. Layer 3.

mod buffer;
mod pool;
mod stages;

pub use buffer::{Logical, Output, RouterInput, Tensor};
pub use pool::Pool;
pub use stages::{StageOutputs, StageShare};
