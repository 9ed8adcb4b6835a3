//! What can keep an audit of files from an answer.
//!
//! It must not hold logic. Layer 7.

use crate::checkpoint::CheckpointError;
use crate::layout::LayoutError;

/// Why files cannot be audited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// A file does not hold, or lacks a tensor.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The plan describes no layout.
    #[error("plan: {0}")]
    Layout(#[from] LayoutError),
    /// The config says what cannot be audited, or nothing of what is asked for.
    #[error("{0}")]
    Refused(String),
    /// A size of the plan is no index here.
    #[error("plan: {what}={value} does not fit this machine")]
    Size {
        /// Which size.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}
