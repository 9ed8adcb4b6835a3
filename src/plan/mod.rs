//! Derives every integer of a padded layer from a model or case, a rule and the parallelism,
//! or says everything that is wrong.
//!
//! It must not allocate tensors or touch floats. Layer 3.

mod arith;
mod bare;
mod conditions;
mod derive;
#[cfg(test)]
mod derive_tests;
mod entry;
mod fills;
mod hidden;
mod idle;
#[cfg(test)]
pub(crate) mod lemmas;
mod memory;
mod pads;
mod replicas;
mod scales;
mod sizes;
mod split;
mod storage;
mod tensors;
mod types;
mod uncovered;
mod valid;
mod violations;

pub use bare::{unpadded, unpadded_in};
pub use conditions::{concerns, unread_version};
pub use derive::{RANKS_MAX, REFINE_MIN, plan_layer, plan_sizes};
pub use entry::{ADVICE_TP_MAX, aligned_tp, layers, plan, plan_under, plan_with, spelled_rule};
pub use idle::idle_word;
pub use memory::{Memory, is_activation};
pub use pads::Along;
pub use replicas::{replicated, unread_groups, unread_replicas, unread_shares};
pub use split::{Cut, cut};
pub use storage::storage_granule;
pub use tensors::ZERO_POINT;
pub use types::{
    Dims, Effect, Fit, LayerSpec, Parallel, Plan, PlanError, RankPlan, Role, ScalePlan, TensorPlan,
    Unit, Violation,
};
pub use uncovered::uncovered;
