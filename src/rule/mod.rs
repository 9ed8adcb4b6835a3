//! Holds the backends' padding rules, read from `src/rule/data/*.toml` or a user's file.
//!
//! It must not decide anything for a model: that is `plan`. Layer 2.

mod check;
mod condition;
mod dispatch;
mod record;
mod set;
mod stack;
mod version;

pub use condition::{
    Condition, Granule, GranuleUnit, Limit, Refusal, Verdict, device_is, family, same_arch,
    share_device,
};
pub use record::{
    BiasShare, Count, Fills, Finer, Grade, Loader, PadValue, Rounding, Rule, ScaleRule, Sizes,
    Status, Stride, Timing, Unread, Valid,
};
pub use set::{RuleError, Rules};
pub use stack::{Auto, Replicas, Spread, Stack};
pub use version::{Bound, Held, Release};
