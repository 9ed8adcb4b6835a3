//! Computes the layer in the plainest way from logical values, in f64, with a bound on how far
//! an f32 subject may be from it.
//!
//! It must not see padding, shards or packing, and shares nothing with `subject` above `num`,
//! `terms` and `case`. Layer 5.

mod activation;
mod bound;
mod error;
#[cfg(test)]
mod followed_tests;
mod layer;
mod product;
mod quantise;
mod route;
mod score;
mod stages;
mod weights;

pub use error::ReferenceError;
pub use layer::{Reference, reference, reference_for, stages};
pub use stages::{Stage, Stages};
