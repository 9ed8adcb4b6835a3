//! Holds bytes against a plan: every stored byte is a logical element in its place, or inert.
//!
//! It must not run a model. Layer 7.

mod check;
mod types;

#[cfg(test)]
mod tests;

pub use check::{audit, audit_bytes};
pub use types::{Audit, Difference, Fault};
