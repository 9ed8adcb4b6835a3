//! Reads suites: named cases, sweeps of cases, plans and audits of files with what they must say.
//!
//! It must not run them. Layer 8.

mod builtin;
mod entry;
mod error;
mod file_entry;
mod parse;
mod plan_entry;
mod raw;
mod sweep;
mod valid;

pub use builtin::{BUILTIN, builtin};
pub use entry::{CaseEntry, Expect, Suite};
pub use error::{Fault, SuiteError};
pub use file_entry::{FileEntry, FileExpect, Plant};
pub use parse::{CASES_MAX, parse, parse_with};
pub use plan_entry::{ModelSizes, PlanEntry, PlanExpect, PlanModel, PlanRules};
