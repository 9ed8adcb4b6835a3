//! Turns numbers into bits and back for each stored element type, and measures distance in ULP.
//!
//! It must not know shapes. Layer 0.

mod dtype;

pub use dtype::Dtype;
