//! Holds bytes against a plan: every stored byte is a logical element in its place, or inert; and
//! names the fault by the mutant that explains it.
//!
//! It must not run a model. Layer 7.

mod check;
mod diagnose;
mod dirt;
mod error;
mod files;
mod globals;
mod moved;
mod orders;
mod others;
mod sample;
mod types;
mod values;
mod variants;

#[cfg(test)]
mod tests;

pub use check::{audit, audit_bytes};
pub use diagnose::{Diagnosis, Evidence, TooLarge, diagnose, too_large};
pub use dirt::refined;
pub use error::AuditError;
pub use files::{audit_files, audit_files_told, layer_shape};
pub use types::{Audit, Audited, Difference, Fault, Region};
