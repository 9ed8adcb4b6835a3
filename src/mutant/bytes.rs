//! Wrong loaders: bytes changed after a right packing.

use crate::layout::{PackedInputs, Pads, map, set_pads};
use crate::num::Dtype;
use crate::plan::{Plan, Role};
use crate::tensor::RouterInput;

/// A loud finite code: 1.5 or so in every format, never zero.
pub(super) fn loud(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 1.5f32.to_bits(),
        Dtype::F16 => 0x3e00,
        Dtype::Bf16 => 0x3fc0,
        Dtype::E4m3 | Dtype::E4m3Fnuz => 0x3c,
        Dtype::E5m2 => 0x3e,
        Dtype::E2m1 => 3,
        Dtype::E8m0 => 0x80,
        Dtype::Int4 => 0xb,
        Dtype::Int8 => 3,
    }
}

/// Ids of identity experts are handed on as expert 0's, which stacks do with a weight of 0, and keep their weights.
pub(super) fn identity_as_an_expert(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let RouterInput::Given { ids, .. } = &mut packed.router else {
        return false;
    };
    let mut changed = false;
    for id in ids.iter_mut().filter(|id| u64::from(**id) >= plan.dims.e) {
        *id = 0;
        changed = true;
    }
    changed
}

fn dtype_of(plan: &Plan, role: Role) -> Dtype {
    match role {
        Role::W13 | Role::W2 => plan.weight.element(),
        Role::W13Scale | Role::W2Scale => plan.w13_scale.map_or(Dtype::F32, |s| s.dtype),
        _ => Dtype::F32,
    }
}

/// Writes `code` into the logical pads of `roles` on every rank; whether a byte changed.
pub(super) fn dirty(
    plan: &Plan,
    packed: &mut PackedInputs,
    roles: &[Role],
    code: impl Fn(Dtype) -> Option<u32>,
) -> bool {
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        for &role in roles {
            let Some(code) = code(dtype_of(plan, role)) else {
                continue;
            };
            let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get_mut(role)) else {
                continue;
            };
            let before = tensor.clone();
            set_pads(&map, tensor, Pads::Logical, code);
            changed |= *tensor != before;
        }
    }
    changed
}

/// Applies `change` to every rank's tensor of `role`; whether a byte changed.
fn each(
    packed: &mut PackedInputs,
    role: Role,
    mut change: impl FnMut(usize, &mut crate::tensor::Tensor),
) -> bool {
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        if let Some(tensor) = rank.get_mut(role) {
            let before = tensor.clone();
            change(n, tensor);
            changed |= *tensor != before;
        }
    }
    changed
}

/// One-sided dirt in w13's tail: invisible to outputs while w2's tail is zero.
pub(super) fn w13_tail_dirty(plan: &Plan, packed: &mut PackedInputs) -> bool {
    dirty(plan, packed, &[Role::W13], |d| Some(loud(d)))
}

/// One-sided dirt in w2's tail: invisible to outputs while the intermediate's tail is zero.
pub(super) fn w2_tail_dirty(plan: &Plan, packed: &mut PackedInputs) -> bool {
    dirty(plan, packed, &[Role::W2], |d| Some(loud(d)))
}

/// M16: both tails, and their scales, as memory happened to be.
pub(super) fn tails_uninitialised(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let roles = [Role::W13, Role::W2, Role::W13Scale, Role::W2Scale];
    dirty(plan, packed, &roles, |d| Some(loud(d)))
}

/// M15: padding scales hold a NaN code.
pub(super) fn scale_pad_nan(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let has_scales = plan.w2_scale.is_some();
    has_scales
        && dirty(plan, packed, &[Role::W13Scale, Role::W2Scale], |d| {
            d.nan_code()
        })
}

/// Padding weights hold a NaN, where the element type has one.
pub(super) fn pads_nan(plan: &Plan, packed: &mut PackedInputs) -> bool {
    dirty(plan, packed, &[Role::W13, Role::W2], |d| d.nan_code())
}

/// M16, aiter's `shuffle_scale`: what only the storage layout adds is as memory happened to be.
pub(super) fn storage_pads_dirty(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        for role in Role::ALL {
            let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get_mut(role)) else {
                continue;
            };
            if map.grid.storage.pad_code().is_some() {
                let before = tensor.clone();
                set_pads(&map, tensor, Pads::Storage, loud(map.dtype));
                changed |= *tensor != before;
            }
        }
    }
    changed
}

/// M42: E4M3 bytes are rewritten for FNUZ hardware, and then padded with 0x80, which was minus zero and is
/// NaN there. The subject reads E4M3FN: what is planted is its code for that NaN.
pub(super) fn fnuz_pad_nan(plan: &Plan, packed: &mut PackedInputs) -> bool {
    plan.weight.element() == Dtype::E4m3
        && dirty(plan, packed, &[Role::W13, Role::W2], |d| d.nan_code())
}

/// M17: INT4 padding of nibble 0, which decodes to -8, under scales that are not zero.
pub(super) fn int4_pad_is_minus_eight(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let int4 = plan.weight.element() == Dtype::Int4;
    int4 && {
        let weights = dirty(plan, packed, &[Role::W13, Role::W2], |_| Some(0));
        dirty(plan, packed, &[Role::W13Scale, Role::W2Scale], |d| {
            Some(loud(d))
        });
        weights
    }
}

/// M44: E8M0 pads of byte 0, which is 2^-127, taken for zero while the weight pads are not.
pub(super) fn e8m0_zero_taken_for_zero(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let e8m0 = plan.w2_scale.is_some_and(|s| s.dtype == Dtype::E8m0);
    e8m0 && {
        dirty(plan, packed, &[Role::W13Scale, Role::W2Scale], |_| Some(0));
        dirty(plan, packed, &[Role::W13, Role::W2], |d| Some(loud(d)))
    }
}

/// M31: E8M0 bytes stored with bias 125.
pub(super) fn e8m0_bias_125(plan: &Plan, packed: &mut PackedInputs) -> bool {
    if plan.w13_scale.is_none_or(|s| s.dtype != Dtype::E8m0) {
        return false;
    }
    let shift = |_: usize, t: &mut crate::tensor::Tensor| {
        for b in t.bytes_mut() {
            *b = b.saturating_sub(2);
        }
    };
    let first = each(packed, Role::W13Scale, shift);
    each(packed, Role::W2Scale, shift) || first
}

/// M19: the pad of w13's bias is not zero.
pub(super) fn bias_pad_dirty(plan: &Plan, packed: &mut PackedInputs) -> bool {
    dirty(plan, packed, &[Role::W13Bias], |d| Some(loud(d)))
}

/// M19, both sides: a bias pad that is not zero, and w2 columns that are not either.
pub(super) fn bias_and_w2_pad_dirty(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let bias = dirty(plan, packed, &[Role::W13Bias], |d| Some(loud(d)));
    bias && dirty(plan, packed, &[Role::W2, Role::W2Scale], |d| Some(loud(d)))
}

/// M20: w2's bias on every rank, so that it is added tp times.
pub(super) fn w2_bias_on_every_rank(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let shards = usize::try_from(plan.parallel.tp / plan.parallel.ep).unwrap_or(1);
    let mut changed = false;
    for group in packed.ranks.chunks_mut(shards) {
        let Some(first) = group[0].get(Role::W2Bias).cloned() else {
            return false;
        };
        for rank in &mut group[1..] {
            changed |= first.f32s().iter().any(|&v| v != 0.0);
            rank.set(Role::W2Bias, first.clone());
        }
    }
    changed
}

/// facts/reports.md B64: weights are cut over the ranks, their scales are not: every rank has those
/// of its group's first.
pub(super) fn scales_not_cut(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let shards = usize::try_from(plan.parallel.tp / plan.parallel.ep).unwrap_or(1);
    let mut changed = false;
    for group in packed.ranks.chunks_mut(shards) {
        let (first, rest) = group.split_at_mut(1);
        for rank in rest {
            for role in [Role::W13Scale, Role::W2Scale] {
                if let Some(scale) = first[0].get(role) {
                    changed |= rank.get(role) != Some(scale);
                    rank.set(role, scale.clone());
                }
            }
        }
    }
    changed
}

/// M22: stale workspace in the hidden tail of the input alone: w13's is zero.
pub(super) fn input_tail_stale(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let (h, padded) = (plan.dims.h as usize, plan.hidden_padded as usize);
    if h == padded || plan.dims.t == 0 {
        return false;
    }
    for row in packed.x.f32s_mut().chunks_exact_mut(padded) {
        row[h..].fill(1.5);
    }
    true
}

/// A rank, here the last one, never loads: its buffers stay zero.
pub(super) fn rank_missing(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let last = packed.ranks.len() - 1;
    let mut changed = false;
    if plan.parallel.tp > 1
        && let Some(t) = packed.ranks[last].get_mut(Role::W13)
    {
        let zero = vec![0u8; t.bytes().len()];
        changed = t.bytes() != zero;
        t.bytes_mut().copy_from_slice(&zero);
        if let Some(t) = packed.ranks[last].get_mut(Role::W2) {
            t.bytes_mut().fill(0);
        }
    }
    changed
}
