//! Executes cases and plans within a budget and emits events.
//!
//! It must not format text or print. Layer 9.

mod advice;
#[cfg(test)]
mod advice_tests;
mod best;
mod candidates;
mod check;
mod cost;
mod counts;
mod coverage;
mod degrees;
mod diff;
mod event;
mod execute;
mod exit;
mod expect;
mod files;
mod filter;
mod job;
mod matrix;
mod mended;
mod mutants;
mod parts;
#[cfg(test)]
mod parts_tests;
mod survey;
#[cfg(test)]
mod survey_tests;
mod table;
mod ways;
#[cfg(test)]
mod ways_tests;

pub use advice::{Advice, Beside, Changed, Instead, PadAs, RuleAdvice, Way};
pub use best::{Best, Other};
pub use candidates::on_arch;
pub use check::{Worker, arguments_of, check, shrink, subject_of};
pub use cost::Cost;
pub use counts::{Counts, Group, Kind};
pub use coverage::{COVERAGE, Coverage};
pub use degrees::usable;
pub use diff::{Change, Diff, Figure, TABLE_SCHEMA, TableError};
pub use event::{Ended, Environment, Event, Finished, Reporter};
pub use execute::{Budget, Outcome, Settings, execute};
pub use exit::ExitCode;
pub use expect::{PLAN_ENTRY, hold};
pub use files::{FILE_ENTRY, hold_file};
pub use filter::Filter;
pub use job::{Job, Origin, jobs};
pub use matrix::{Cell, Row, idle, matrix_cases, row, unknown_claims};
pub use mutants::{Matrix, matrix, runs_any};
pub use survey::{
    NotJudged, Query, StackVersion, Survey, SurveyError, Surveyed, survey, survey_replicas,
};
pub use table::{Line, RANKS, Table, lengths};
