//! Wrong layouts: bytes packed as a kernel does not read them.

use crate::plan::Plan;
use crate::terms::{Nibble, Order, Place, Split, Storage};

fn gated(plan: &Plan) -> bool {
    plan.dims.halves == 2
}

/// M1: one pad after both halves.
pub(super) fn tail_pad(plan: &Plan) -> Option<Plan> {
    let halves = plan.order.interleave() == 0 && plan.place == Place::PerHalf;
    (gated(plan) && halves && plan.width != plan.width_padded).then(|| Plan {
        place: Place::Tail,
        ..plan.clone()
    })
}

/// M4: gate where the kernel expects up.
pub(super) fn halves_swapped(plan: &Plan) -> Option<Plan> {
    let order = match plan.order {
        Order::GateUp => Order::UpGate,
        Order::UpGate => Order::GateUp,
        _ => return None,
    };
    gated(plan).then(|| Plan {
        order,
        ..plan.clone()
    })
}

/// M5: interleaved in groups of another size, or interleaved rows for a kernel that wants halves.
pub(super) fn interleave_mixed_up(plan: &Plan) -> Option<Plan> {
    let order = match plan.order {
        Order::Int8 => Order::Int1,
        Order::Int16 => Order::Int8,
        Order::Int1 | Order::Int64 => Order::GateUp,
        Order::GateUp | Order::UpGate => Order::Int1,
    };
    let row_blocks = plan.w13_scale.is_some_and(|s| s.row_block > 1);
    (gated(plan) && plan.width_padded > 1 && !row_blocks).then(|| Plan {
        order,
        ..plan.clone()
    })
}

/// M35: the other nibble first.
pub(super) fn nibbles_swapped(plan: &Plan) -> Option<Plan> {
    let nibble = match plan.nibble {
        Nibble::Low => Nibble::High,
        Nibble::High => Nibble::Low,
    };
    (plan.weight.element().bits() == 4).then(|| Plan {
        nibble,
        ..plan.clone()
    })
}

/// M27: scales left row-major for a kernel that reads 128x4 tiles.
pub(super) fn scales_not_swizzled(plan: &Plan) -> Option<Plan> {
    let scale = plan.w13_scale.filter(|s| s.dtype.bits() == 8)?;
    let mut wrong = Plan {
        storage: Storage::Linear,
        ..plan.clone()
    };
    // Same buffers: the grid is as large as its storage.
    let widen = |s: &mut crate::plan::ScalePlan| {
        s.rows_stored = s.rows_padded;
        s.cols_stored = s.cols_padded;
    };
    let same_size =
        scale.rows_stored == scale.rows_padded && scale.cols_stored == scale.cols_padded;
    let w2 = plan.w2_scale?;
    let same_size2 = w2.rows_stored == w2.rows_padded && w2.cols_stored == w2.cols_padded;
    if plan.storage != Storage::Tiled128x4 || !same_size || !same_size2 {
        return None;
    }
    wrong
        .w13_scale
        .iter_mut()
        .chain(&mut wrong.w2_scale)
        .for_each(widen);
    Some(wrong)
}

/// Every rank gets the channels of rank 0.
pub(super) fn ranks_all_first(plan: &Plan) -> Option<Plan> {
    let mut wrong = plan.clone();
    let first = plan.ranks[0];
    for rank in &mut wrong.ranks {
        (rank.start, rank.len) = (first.start, first.len);
    }
    (plan.parallel.tp > plan.parallel.ep).then_some(wrong)
}

/// Channels shifted by one scale block: the rank offset off by one block.
pub(super) fn rank_offset(plan: &Plan) -> Option<Plan> {
    let block = plan.w2_scale.map_or(1, |s| s.col_block.max(1));
    let mut wrong = plan.clone();
    let mut changed = false;
    for rank in wrong
        .ranks
        .iter_mut()
        .filter(|r| r.start >= block && r.len > 0)
    {
        rank.start -= block;
        changed = true;
    }
    changed.then_some(wrong)
}

/// M43: w2 packed with the ranges of the equal split where w13 follows padded strides.
pub(super) fn prepad_as_floor(plan: &Plan) -> Option<Plan> {
    let shards = plan.parallel.tp / plan.parallel.ep;
    let even = plan.dims.i.is_multiple_of(shards) && plan.split == Split::Prepad;
    let block = plan.w2_scale.map_or(1, |s| s.col_block_source.max(1));
    let width = plan.dims.i / shards;
    if !even || !width.is_multiple_of(block) || width == plan.width_padded {
        return None;
    }
    let mut wrong = plan.clone();
    for rank in &mut wrong.ranks {
        (rank.start, rank.len) = (rank.rank % shards * width, width);
    }
    Some(wrong)
}
