//! Wrong loaders of scales that a whole tensor shares: of the second level, or the only one.
//!
//! Each writes one number where another belongs; codes and block scales stay. Facts:
//! facts/upstream-padding.md 1.1 S4 and 3.1 V-10, facts/peers.md 5.

use crate::layout::PackedInputs;
use crate::plan::{Plan, Role, ScalePlan};

/// What a fault writes in place `n` of one rank's numbers of a tensor, so many of each expert: gate's and
/// up's, or one.
pub type Form = fn(numbers: &[f32], of_each: usize, n: usize) -> f32;

const GATE_FOR_UP: Form = |all, each, n| all[n - n % each];
const UP_FOR_GATE: Form = |all, each, n| all[n - n % each + each - 1];
const LARGER: Form = |all, each, n| largest(all[n - n % each..].iter().take(each));
const SWAPPED: Form = |all, each, n| all[n - n % each + (each - 1 - n % each)];
const FIRST: Form = |all, each, n| all[n % each];
const LARGEST: Form = |all, _, _| largest(all.iter());
const LARGEST_OF_HALF: Form = |all, each, n| largest(all[n % each..].iter().step_by(each));
const INVERTED: Form = |all, _, n| all[n].recip();

/// By name of the mutant, which two forms may share.
pub const FORMS: &[(&str, Form)] = &[
    ("gate-global-for-up", GATE_FOR_UP),
    ("up-global-for-gate", UP_FOR_GATE),
    ("larger-global-for-both", LARGER),
    ("globals-swapped", SWAPPED),
    ("first-experts-global", FIRST),
    ("largest-global-for-all", LARGEST),
    ("largest-global-for-all", LARGEST_OF_HALF),
    ("global-not-inverted", INVERTED),
];

fn largest<'a>(values: impl Iterator<Item = &'a f32>) -> f32 {
    values.copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Whether a role holds one number a projection and expert under a plan.
pub fn is_of_whole_tensors(plan: &Plan, role: Role) -> bool {
    let whole = |s: Option<ScalePlan>| s.is_some_and(|s| s.row_block == 0 && s.col_block == 0);
    match role {
        Role::W13Global | Role::W2Global => true,
        Role::W13Scale => whole(plan.w13_scale),
        Role::W2Scale => whole(plan.w2_scale),
        _ => false,
    }
}

/// Writes what a form makes of the scales of each tensor of every rank; whether a byte changed.
fn each(plan: &Plan, packed: &mut PackedInputs, form: Form) -> bool {
    let mut changed = false;
    let roles = || {
        Role::ALL
            .into_iter()
            .filter(|&role| is_of_whole_tensors(plan, role))
    };
    for rank in &mut packed.ranks {
        for role in roles() {
            let Some(tensor) = rank.get_mut(role).filter(|t| t.bits() == 32) else {
                continue;
            };
            let of_each: usize = tensor.shape()[1..].iter().product();
            let before = tensor.f32s().to_vec();
            for (n, value) in tensor.f32s_mut().iter_mut().enumerate() {
                *value = form(&before, of_each, n);
                changed |= value.to_bits() != before[n].to_bits();
            }
        }
    }
    changed
}

/// A scale of one projection used for both: gate's for up.
pub(super) fn gate_global_for_up(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, GATE_FOR_UP)
}

/// The same the other way round.
pub(super) fn up_global_for_gate(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, UP_FOR_GATE)
}

/// The larger of both for both, and codes as they were: half of what a loader does that quantises anew.
pub(super) fn larger_global_for_both(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, LARGER)
}

/// Gate's where up's belongs, and up's where gate's does.
pub(super) fn globals_swapped(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, SWAPPED)
}

/// One expert's scale used for all.
pub(super) fn first_experts_global(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, FIRST)
}

/// The largest of all experts used for all.
pub(super) fn largest_global_for_all(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, LARGEST)
}

/// The number that divides where the one that multiplies belongs.
pub(super) fn global_not_inverted(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, INVERTED)
}
