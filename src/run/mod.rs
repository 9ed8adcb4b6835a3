//! Executes cases and plans within a budget and emits events.
//!
//! It must not format text or print. Layer 9.

mod exit;
mod matrix;
mod survey;

pub use exit::ExitCode;
pub use matrix::{Cell, Row, idle, matrix_cases, row, unknown_claims};
pub use survey::{Query, Survey, SurveyError, Surveyed, survey};
