//! Describes summation orders as trees: builds, prunes and evaluates them, and decides whether
//! an order is pad-stable.
//!
//! It must not know MoE. Layer 4.

mod order;
mod tree;

pub use order::Schedule;
pub use tree::Tree;
