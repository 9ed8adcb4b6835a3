//! Describes summation orders as trees: builds, prunes and evaluates them, and decides whether
//! an order is pad-stable.
//!
//! It must not know MoE. Layer 4.

mod describe;
mod moved;
mod number;
mod order;
mod reveal;
mod tree;
mod words;

pub use moved::Moved;
pub use order::Schedule;
pub use reveal::{Ask, Probe, RevealError, Revealed, reveal};
pub use tree::Tree;
pub use words::UnknownOrder;
