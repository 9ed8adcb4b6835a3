//! What can be wrong with a file of tensors.

use std::io;

/// Longest name from a file that a sentence repeats.
const NAME_MAX: usize = 200;

/// Why a checkpoint cannot be read. Every message is one sentence, whatever the file holds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file cannot be opened or read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file as a whole is no safetensors file, or no index.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What is wrong, with the value.
        why: String,
    },
    /// One tensor's header entry, type or shape is wrong.
    #[error("{file}: tensor `{tensor}`: {why}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong, with the value.
        why: String,
    },
    /// A tensor that must be there is not.
    #[error("{place}: no tensor `{tensor}`")]
    NoTensor {
        /// The file or directory.
        place: String,
        /// The name looked for.
        tensor: String,
    },
    /// The layer asked for, or any layer of experts, cannot be found.
    #[error("{place}: {why}")]
    NoLayer {
        /// The file or directory.
        place: String,
        /// What was looked for, and what is there.
        why: String,
    },
}

impl CheckpointError {
    /// What is wrong, for whom knows the file already.
    pub fn what(&self) -> String {
        match self {
            CheckpointError::Io { source, .. } => source.to_string(),
            CheckpointError::File { why, .. } | CheckpointError::NoLayer { why, .. } => why.clone(),
            CheckpointError::Tensor { tensor, why, .. } => format!("tensor `{tensor}`: {why}"),
            CheckpointError::NoTensor { tensor, .. } => format!("no tensor `{tensor}`"),
        }
    }
}

/// Text from a file on one line, of bounded length.
pub(super) fn shown(text: &str) -> String {
    let escaped = text.escape_debug().to_string();
    match escaped.char_indices().nth(NAME_MAX) {
        Some((at, _)) => format!("{}…", &escaped[..at]),
        None => escaped,
    }
}

pub(super) fn file_error(file: &str, why: impl Into<String>) -> CheckpointError {
    CheckpointError::File {
        file: file.to_owned(),
        why: why.into(),
    }
}

pub(super) fn tensor_error(file: &str, tensor: &str, why: impl Into<String>) -> CheckpointError {
    CheckpointError::Tensor {
        file: file.to_owned(),
        tensor: shown(tensor),
        why: why.into(),
    }
}
