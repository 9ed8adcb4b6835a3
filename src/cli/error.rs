//! Sums up what can keep the command from running.
//!
//! It must not print. Layer 11.

use crate::audit::AuditError;
use crate::case::ParseError;
use crate::checkpoint::CheckpointError;
use crate::model::ModelError;
use crate::pad::PadError;
use crate::plan::PlanError;
use crate::rule::RuleError;
use crate::run::{SurveyError, TableError};
use crate::schedule::RevealError;
use crate::subject::BoxError;
use crate::suite::SuiteError;
use std::io;

/// Why a command could not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Pad(#[from] PadError),
    #[error(transparent)]
    Reveal(#[from] RevealError<BoxError>),
    #[error("case: {0}")]
    Plan(#[from] PlanError),
    #[error("case: {0}")]
    Case(#[from] ParseError),
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// The user's: there is nothing left to say.
    #[error("interrupted")]
    Interrupted,
    /// A subject that does not start, with the last it wrote.
    #[error("subject: {source}{said}")]
    Subject {
        source: crate::subject::SubjectError,
        said: String,
    },
    /// Writing standard output; a closed pipe is no error.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    #[error("{file}: {source}")]
    File { file: String, source: io::Error },
    #[error("{0}")]
    Usage(String),
}
