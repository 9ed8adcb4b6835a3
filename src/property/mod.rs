//! States claims about a case: plan, fill, run both sides, compare.
//!
//! It must not print, panic, or loop over cases. Layer 8.

mod verdict;

pub use verdict::{Finding, Tier, Vacuous, Verdict};
