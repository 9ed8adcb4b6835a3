//! States claims about a case: plan, fill, run both sides, compare.
//!
//! It must not print, panic, or loop over cases. Layer 8.

mod bytes;
mod invariants;
mod list;
mod matrix;
mod outputs;
mod plans;
mod trial;
mod verdict;

pub use invariants::invariants;
pub use list::{ALL, Needs, Property, find};
pub use matrix::{Cell, Row, idle, matrix_cases, row, unknown_claims};
pub use trial::Trial;
pub use verdict::{Finding, Tier, Vacuous, Verdict};
