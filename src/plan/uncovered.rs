//! The plan of a part that no rule is for: its sizes, and no word on what becomes of them.
//!
//! It must not guess at padding. Layer 3.

use super::derive::plan_sizes;
use super::entry::spelled_rule;
use super::{Effect, Fit, LayerSpec, Parallel, Plan, PlanError, Unit, Violation};
use crate::case::PadSpec;
use crate::rule::Rule;
use crate::terms::Split;

/// The part as equal shares would cut it, `unknown` for the reason given; under the name of the
/// stack that was asked, and without tensors.
///
/// # Errors
/// As [`super::plan_layer`].
pub fn uncovered(
    layer: &LayerSpec,
    parallel: Parallel,
    stack: &str,
    why: String,
) -> Result<Plan, PlanError> {
    let equal = PadSpec {
        split: Split::Ceil,
        ..PadSpec::default()
    };
    let rule = Rule {
        id: stack.to_owned(),
        stack: stack.to_owned(),
        layers: vec![layer.kind.follows()],
        intermediate: Vec::new(),
        hidden: Vec::new(),
        tokens: Vec::new(),
        ..spelled_rule(&equal, layer.weight)?
    };
    let mut plan = plan_sizes(layer, parallel, &rule, &[])?;
    plan.violations = vec![Violation {
        code: "PP134",
        axis: "rule",
        value: 0,
        unit: Unit::Elements,
        granule: 0,
        message: why,
        effect: Effect::Unknown,
    }];
    plan.fit = Fit::Unknown;
    Ok(plan)
}
