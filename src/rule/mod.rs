//! Holds the backends' padding rules, read from `src/rule/data/*.toml` or a user's file.
//!
//! It must not decide anything for a model: that is `plan`. Layer 2.

mod record;
mod set;

pub use record::{
    Auto, Condition, Fills, Grade, Granule, GranuleUnit, PadValue, Refusal, Rule, ScaleRule, Sizes,
    Status, Stride, Timing, Verdict,
};
pub use set::{RuleError, Rules};
