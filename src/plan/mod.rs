//! Derives every integer of a padded layer from a model or case, a rule and the parallelism,
//! or says everything that is wrong.
//!
//! It must not allocate tensors or touch floats. Layer 3.

mod types;

pub use types::{
    Dims, Effect, Fit, LayerSpec, Parallel, Plan, PlanError, RankPlan, Role, ScalePlan, TensorPlan,
    Unit, Violation,
};
