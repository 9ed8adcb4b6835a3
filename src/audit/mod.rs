//! Holds bytes against a plan: every stored byte is a logical element in its place, or inert; and
//! names the fault by the mutant that explains it.
//!
//! It must not run a model. Layer 7.

mod apart;
mod bytes;
mod check;
mod diagnose;
mod dirt;
mod error;
mod files;
mod globals;
mod inert;
mod large;
mod moved;
mod notes;
mod orders;
mod others;
mod sample;
mod storages;
mod stored;
mod turned;
mod types;
mod unloaded;
mod values;
mod variants;

#[cfg(test)]
mod tests;

pub use bytes::refined;
pub use check::{audit, audit_bytes};
pub use diagnose::{Diagnosis, Evidence, diagnose};
pub use error::AuditError;
pub use files::{audit_files, audit_files_told, layer_shape};
pub use large::{TooLarge, too_large};
pub use notes::{layers_missing, not_taken, not_told};
pub use sample::Sample;
pub use stored::StoredPart;
pub use types::{Audit, Audited, Difference, Fault, Region};
