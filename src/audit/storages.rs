//! Names scales or weights that are stored in another layout than the kernel reads, whichever that is.
//!
//! It must not pack. Layer 7.

use crate::mutant::{self, Mutant};
use crate::plan::{Plan, ScalePlan};
use crate::terms::Storage;

/// The mutants that store scales or weights so; what the layouts are, a detail says.
const NAMES: [&str; 7] = [
    "scales-not-swizzled",
    "scales-swizzled",
    "scales-in-other-tiles",
    "weights-not-shuffled",
    "weights-shuffled",
    "rows-shuffled-in-sixteens",
    "weights-in-another-shuffle",
];

/// Whether a mutant is looked for here, with every layout.
pub(super) fn is_one(mutant: &Mutant) -> bool {
    NAMES.contains(&mutant.name)
}

/// The plan with scales in every other layout, then with weights in every other one, each with its mutant, what
/// is stored and what is read. Scales may have buffers of the plan's size or of their own layout's.
pub(super) fn others(
    plan: &Plan,
) -> impl Iterator<Item = (&'static Mutant, Plan, Storage, Storage)> {
    let scale = plan.w13_scale.map(|s| s.dtype);
    let weight = plan.weight.element();
    let scales = scale.into_iter().flat_map(move |dtype| {
        let read = plan.storage.of(dtype);
        let stored = Storage::ALL.iter().copied();
        stored
            .filter(move |s| !s.of_weights() && *s != read && s.takes(dtype))
            .flat_map(move |stored| sized(plan, stored).map(move |plan| (plan, stored, read)))
    });
    let read = plan.weight_storage.of(weight);
    let weights = Storage::ALL.iter().copied().filter(move |stored| {
        let any = stored.of_weights() || *stored == Storage::Linear;
        any && *stored != read && stored.takes(weight)
    });
    let weights = weights.map(move |weight_storage| {
        let wrong = Plan {
            weight_storage,
            ..plan.clone()
        };
        (wrong, weight_storage, read)
    });
    let named = |(wrong, stored, read): (Plan, Storage, Storage), name: &str| {
        let mutant = mutant::ALL.iter().find(|m| m.name == name)?;
        Some((mutant, wrong, stored, read))
    };
    let scales = scales.filter_map(move |one| {
        let name = of_scales(one.1, one.2);
        named(one, name)
    });
    scales.chain(weights.filter_map(move |one| {
        let name = of_weights(one.1, one.2);
        named(one, name)
    }))
}

/// The mutant that stores scales so where they are read otherwise.
fn of_scales(stored: Storage, read: Storage) -> &'static str {
    match (stored, read) {
        (Storage::Linear, _) => "scales-not-swizzled",
        (_, Storage::Linear) => "scales-swizzled",
        _ => "scales-in-other-tiles",
    }
}

/// The same of weights.
fn of_weights(stored: Storage, read: Storage) -> &'static str {
    match (stored, read) {
        (Storage::Linear, _) => "weights-not-shuffled",
        (_, Storage::Linear) => "weights-shuffled",
        (Storage::Rows16, Storage::Rows32) => "rows-shuffled-in-sixteens",
        _ => "weights-in-another-shuffle",
    }
}

/// The plan with scales in that layout: in buffers of the plan's size, and of the layout's own where that is
/// another.
fn sized(plan: &Plan, storage: Storage) -> impl Iterator<Item = Plan> {
    let (rows, cols) = storage.tile();
    let same = Plan {
        storage,
        ..plan.clone()
    };
    let mut own = same.clone();
    let round = |s: &mut ScalePlan| {
        s.rows_stored = s.rows_padded.next_multiple_of(rows);
        s.cols_stored = s.cols_padded.next_multiple_of(cols);
    };
    own.w13_scale.iter_mut().for_each(round);
    own.w2_scale.iter_mut().for_each(round);
    let another = own != same;
    std::iter::once(same).chain(another.then_some(own))
}

/// The layouts in words.
pub(super) fn phrase(stored: Storage, read: Storage) -> String {
    format!("stored: {stored}; read: {read}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A name that no mutant has would leave its layouts unnamed, without a word.
    #[test]
    fn every_name_is_a_mutants_and_that_of_some_layouts() {
        let mutants: BTreeSet<&str> = mutant::ALL.iter().map(|m| m.name).collect();
        let pairs = Storage::ALL.iter();
        let pairs = pairs.flat_map(|a| Storage::ALL.iter().map(move |b| (*a, *b)));
        let given: BTreeSet<&str> = pairs
            .filter(|(stored, read)| stored != read)
            .flat_map(|(stored, read)| [of_scales(stored, read), of_weights(stored, read)])
            .collect();
        assert_eq!(given, BTreeSet::from(NAMES));
        assert!(given.is_subset(&mutants), "{given:?}");
    }
}
