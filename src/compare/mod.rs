//! Says whether two outputs agree under a bound, with evidence.
//!
//! It must not know properties. Layer 6.

mod check;
mod types;

pub use check::{compare, compare_outputs, same_bits};
pub use types::{Bound, Comparison, Difference, Shape};
