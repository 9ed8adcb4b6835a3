//! Why a checkpoint cannot be padded, or a padded one not be checked.
//!
//! It must not hold logic. Layer 8.

use crate::checkpoint::CheckpointError;
use crate::model::ModelError;
use crate::plan::PlanError;
use std::io;
use std::path::Path;

/// Why nothing was written. Every message is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PadError {
    /// A file does not hold.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The config says no model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No plan can be made.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
    /// What was asked cannot be represented, or is refused by the rule.
    #[error("{0}")]
    Refused(String),
    /// A tensor cannot be padded.
    #[error("tensor `{tensor}`: {why}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong, with the value.
        why: String,
    },
    /// A tensor is stored in another format than the config's.
    #[error("tensor `{tensor}`: {why}")]
    Format {
        /// Its name.
        tensor: String,
        /// What is otherwise, with the value.
        why: String,
    },
    /// A file cannot be read, written or renamed.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file of the input is not what it was when the run began.
    #[error("{file} changed while it was read; run the command again, which starts anew")]
    Changed {
        /// The file.
        file: String,
    },
    /// Something stands where the output goes.
    #[error("{0} is there already; nothing was written")]
    Exists(String),
    /// The output would not fit.
    #[error("{out} needs {needs} bytes more, and {free} are free there; nothing was written")]
    NoSpace {
        /// The output.
        out: String,
        /// Bytes that are to be written.
        needs: u64,
        /// Bytes that the file system has.
        free: u64,
    },
    /// A file would be larger than the process may write.
    #[error(
        "{file} would take {needs} bytes, and this process may write files of {most} at most (ulimit -f); raise that and run the command again"
    )]
    FileLimit {
        /// The file, or that it is one of the output's.
        file: String,
        /// Bytes that it is to have.
        needs: u64,
        /// Bytes that the system lets it have.
        most: u64,
    },
    /// Another run writes the same output.
    #[error("{0} is being written by another run")]
    Busy(String),
    /// A certificate that can be read, and is none that padding writes.
    #[error("{file}: no padding wrote it so: {why}")]
    NotWritten {
        /// The file.
        file: String,
        /// What is wrong, with the value.
        why: String,
    },
    /// A file of the output does not say what it must.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What is wrong, with the value.
        why: String,
    },
}

/// An error of the system, with the file.
pub(super) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> PadError {
    let file = path.display().to_string();
    move |source| PadError::Io { file, source }
}

/// A tensor's name as a sentence may repeat it.
pub(super) fn tensor(name: &str, why: impl Into<String>) -> PadError {
    PadError::Tensor {
        tensor: name.chars().take(200).collect(),
        why: why.into(),
    }
}

/// The same where what is wrong says that the tensor is stored in another format.
pub(super) fn format(name: &str, why: impl Into<String>) -> PadError {
    as_format(tensor(name, why))
}

/// What is wrong with a tensor, if that is its format.
pub(super) fn as_format(error: PadError) -> PadError {
    match error {
        PadError::Tensor { tensor, why } => PadError::Format { tensor, why },
        other => other,
    }
}

/// A file that ends where it did not when it was opened has changed.
pub(super) fn cut_short(error: CheckpointError) -> PadError {
    match error {
        CheckpointError::Io { file, source } if source.kind() == io::ErrorKind::UnexpectedEof => {
            PadError::Changed { file }
        }
        other => PadError::Checkpoint(other),
    }
}
