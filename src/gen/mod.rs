//! Draws and shrinks cases: one table of ranges, read by the random, proptest and libFuzzer ways.
//!
//! It must not run properties, and constructs valid cases instead of filtering. Layer 8.

#[cfg(feature = "arbitrary")]
mod arbitrary;
pub mod domain;
mod draw;
mod shrink;
mod source;
#[cfg(feature = "proptest")]
mod strategy;
mod suit;
#[cfg(test)]
mod tests;

pub use domain::{Axis, Domain};
pub use draw::draw;
pub use shrink::{complexity, minimise, shrink};
#[cfg(feature = "proptest")]
pub use strategy::{CaseStrategy, CaseTree, strategy};
pub use suit::suit;
