//! Sentences beside an audit: what its plan takes for granted, and what was there and not taken.
//!
//! It must not judge bytes. Layer 7.

use super::types::{Audit, Fault, Region};
use crate::checkpoint::{Checkpoint, Dump, LayerId};
use crate::model::Model;
use crate::plan::{Plan, Role};
use crate::rule::Unread;

/// Runs of numbers that a sentence lists.
const RUNS_MAX: usize = 8;

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
    let which = runs(&there)?;
    (found < model.moe_layers).then(|| {
        format!(
            "the config counts {} layers with experts, and {} has those of {found} ({which}): the others are missing",
            model.moe_layers,
            checkpoint.place(),
        )
    })
}

/// Numbers in rising order as the first and the last of each run of them without a gap, or, where runs are many, as
/// those of all; none of no numbers.
fn runs(numbers: &[u64]) -> Option<String> {
    let runs = numbers.chunk_by(|a, b| b.checked_sub(*a) == Some(1));
    let words = runs.filter_map(|run| match run {
        [one] => Some(one.to_string()),
        [first, .., last] => Some(format!("{first} to {last}")),
        [] => None,
    });
    let words: Vec<String> = words.collect();
    match numbers {
        [first, .., last] if words.len() > RUNS_MAX => {
            Some(format!("{first} to {last}, with gaps"))
        }
        _ => (!words.is_empty()).then(|| words.join(", ")),
    }
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

#[cfg(test)]
mod tests {
    use super::{RUNS_MAX, runs};

    /// A missing layer between others was within what was said to be there.
    #[test]
    fn a_gap_between_layers_is_told() {
        let told = |numbers: &[u64]| runs(numbers);
        assert_eq!(told(&[0, 1, 2, 4, 5]).as_deref(), Some("0 to 2, 4 to 5"));
        assert_eq!(told(&[1, 3, 5]).as_deref(), Some("1, 3, 5"));
        let odd: Vec<u64> = (0..=RUNS_MAX as u64).map(|n| 2 * n + 1).collect();
        assert_eq!(told(&odd).as_deref(), Some("1 to 17, with gaps"));
        assert!(told(&odd[1..]).unwrap().ends_with("13, 15, 17"));
        assert_eq!(told(&[7]).as_deref(), Some("7"));
        assert_eq!(told(&[]), None);
    }
}
