//! Sentences beside an audit: what its plan takes for granted, and what was there and not taken.
//!
//! It must not judge bytes. Layer 7.

use super::types::{Audit, Fault, Region};
use crate::checkpoint::{Checkpoint, Dump, LayerId};
use crate::model::Model;
use crate::plan::{Plan, Role};
use crate::rule::Unread;

/// A sentence on what the rule's source leaves open: what differs there may be no fault.
pub fn not_told(plan: &Plan) -> Option<String> {
    let open = plan.unread.iter().map(|one| match one {
        Unread::Order => format!("{} ({})", one.meaning(), plan.order),
        Unread::Weights => format!("{} ({})", one.meaning(), plan.weight_storage),
        Unread::Scales => format!("{} ({})", one.meaning(), plan.storage),
    });
    let open: Vec<String> = open.collect();
    (!open.is_empty()).then(|| {
        format!(
            "not in the rule's source, so taken for granted: {}; what lies otherwise may be right: --layout says how it lies",
            open.join(", ")
        )
    })
}

/// A sentence on layers that the config counts among those with experts, and the checkpoint has none of.
pub fn layers_missing(model: &Model, checkpoint: &Checkpoint) -> Option<String> {
    let number = |id| match id {
        // A draft's may go on with the model's numbers.
        LayerId::Model(number) if number < model.layers => Some(number),
        _ => None,
    };
    let there: Vec<u64> = checkpoint
        .expert_layers()
        .into_iter()
        .filter_map(number)
        .collect();
    let found = u64::try_from(there.len()).unwrap_or(u64::MAX);
    // Names without numbers are of one layer, whichever that is.
    let (first, last) = (there.first()?, there.last()?);
    let which = match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    (found < model.moe_layers).then(|| {
        format!(
            "the config counts {} layers with experts, and {} has those of {found} ({which}): the others are missing",
            model.moe_layers,
            checkpoint.place(),
        )
    })
}

/// Sentences on tensors that are missing where one of a like name is there.
pub fn not_taken(dump: &Dump<'_>, found: &Audit) -> Vec<String> {
    let missing = found.regions.iter().filter(|r| r.fault == Fault::Missing);
    let role = |name: &str| Role::ALL.into_iter().find(|role| role.name() == name);
    let told = |region: &Region| {
        let near = dump.near(role(region.tensor)?);
        let (name, tensor) = (near.first()?, region.tensor);
        let why = match name.contains("global_scale") {
            true => "it divides, and engines make of it the one that multiplies: dump that",
            false => "docs/audit.md lists the names that are",
        };
        Some(format!(
            "{tensor} is missing; `{name}` is there, a name that is not taken as it: {why}"
        ))
    };
    missing.filter_map(told).collect()
}
