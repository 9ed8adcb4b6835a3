//! States claims about a case: plan, fill, run both sides, compare.
//!
//! It must not print, panic, or loop over cases. Layer 8.

mod against;
mod bytes;
mod invariants;
mod list;
mod outputs;
mod paths;
mod plans;
mod poison;
mod silence;
mod sizes;
mod stages;
mod trial;
mod verdict;

pub use invariants::invariants;
pub use list::{ALL, Needs, Property, find};
pub use trial::{Memory, Trial, is_padded};
pub use verdict::{Finding, Tier, Vacuous, Verdict};
