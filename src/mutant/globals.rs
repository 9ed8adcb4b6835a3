//! Wrong loaders of scales that a whole tensor shares: of the second level, or the only one.
//!
//! Each writes one number where another belongs; codes and block scales stay. Facts:
//! facts/upstream-padding.md 1.1 S4 and 3.1 V-10, facts/peers.md 5.

use crate::layout::PackedInputs;
use crate::plan::{Plan, Role};

/// The roles whose scales are of whole tensors under a plan.
fn roles(plan: &Plan) -> Vec<Role> {
    let whole =
        |s: Option<crate::plan::ScalePlan>| s.is_some_and(|s| s.row_block == 0 && s.col_block == 0);
    let mut roles = vec![Role::W13Global, Role::W2Global];
    if whole(plan.w13_scale) {
        roles.push(Role::W13Scale);
    }
    if whole(plan.w2_scale) {
        roles.push(Role::W2Scale);
    }
    roles
}

/// Applies `change` to the scales of each tensor of every rank, expert by expert, of so many halves;
/// whether a byte changed.
fn each(plan: &Plan, packed: &mut PackedInputs, mut change: impl FnMut(&mut [f32], usize)) -> bool {
    let mut changed = false;
    for rank in &mut packed.ranks {
        for &role in &roles(plan) {
            let Some(tensor) = rank.get_mut(role).filter(|t| t.bits() == 32) else {
                continue;
            };
            let before = tensor.clone();
            let halves = tensor.shape()[1..].iter().product();
            change(tensor.f32s_mut(), halves);
            changed |= *tensor != before;
        }
    }
    changed
}

/// Applies `change` to gate's and up's scale of each expert.
fn pairs(plan: &Plan, packed: &mut PackedInputs, change: impl Fn(&mut [f32; 2])) -> bool {
    each(plan, packed, |values, halves| {
        if halves == 2 {
            values.as_chunks_mut().0.iter_mut().for_each(&change);
        }
    })
}

/// A scale of one projection used for both: gate's for up.
pub(super) fn gate_global_for_up(plan: &Plan, packed: &mut PackedInputs) -> bool {
    pairs(plan, packed, |pair| pair[1] = pair[0])
}

/// The same the other way round.
pub(super) fn up_global_for_gate(plan: &Plan, packed: &mut PackedInputs) -> bool {
    pairs(plan, packed, |pair| pair[0] = pair[1])
}

/// The larger of both for both, and codes as they were: half of what a loader does that quantises anew.
pub(super) fn larger_global_for_both(plan: &Plan, packed: &mut PackedInputs) -> bool {
    pairs(plan, packed, |pair| *pair = [pair[0].max(pair[1]); 2])
}

/// Gate's where up's belongs, and up's where gate's does.
pub(super) fn globals_swapped(plan: &Plan, packed: &mut PackedInputs) -> bool {
    pairs(plan, packed, |pair| pair.swap(0, 1))
}

/// One expert's scale used for all.
pub(super) fn first_experts_global(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, |values, halves| {
        let first: Vec<f32> = values.iter().take(halves).copied().collect();
        for (n, value) in values.iter_mut().enumerate() {
            *value = first[n % halves];
        }
    })
}

/// The largest of all experts used for all.
pub(super) fn largest_global_for_all(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, |values, _| {
        let largest = values.iter().copied().fold(f32::MIN, f32::max);
        values.fill(largest);
    })
}

/// The number that divides where the one that multiplies belongs.
pub(super) fn global_not_inverted(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, |values, _| {
        values.iter_mut().for_each(|value| *value = value.recip());
    })
}
