//! Wrong layouts: bytes packed as a kernel does not read them.

use crate::plan::Plan;
use crate::terms::{Nibble, Order, Place, Split};

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
        Order::Int1 => Order::Int1Up,
        Order::Int1Up => Order::Int1,
        Order::Int8 | Order::Int16 | Order::Int64 => return None,
    };
    gated(plan).then(|| Plan {
        order,
        ..plan.clone()
    })
}

/// M5: rows in turn for a kernel that reads halves.
pub(super) fn interleaved_for_halves(plan: &Plan) -> Option<Plan> {
    let halves = plan.order.interleave() == 0;
    halves.then(|| in_order(plan, Order::Int1)).flatten()
}

/// M5, facts/reports.md B43: halves where the kernel reads rows in turn.
pub(super) fn halves_for_interleaved(plan: &Plan) -> Option<Plan> {
    let halves = plan.order.interleave() == 0;
    (!halves).then(|| in_order(plan, Order::GateUp)).flatten()
}

/// M5: rows in turn, in groups of another size.
pub(super) fn interleaved_in_other_groups(plan: &Plan) -> Option<Plan> {
    let order = match plan.order {
        Order::GateUp | Order::UpGate => return None,
        Order::Int1 | Order::Int1Up | Order::Int16 => Order::Int8,
        Order::Int8 => Order::Int1,
        Order::Int64 => Order::Int16,
    };
    in_order(plan, order)
}

/// The same plan with the rows of its first projection in another order, where its sizes allow that.
pub fn in_order(plan: &Plan, order: Order) -> Option<Plan> {
    let group = order.interleave().max(1);
    let fits = plan.width_padded > group && plan.width_padded.is_multiple_of(group);
    let row_blocks = plan.w13_scale.is_some_and(|s| s.row_block > 1);
    (gated(plan) && fits && !row_blocks).then(|| Plan {
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

/// facts/reports.md B66: a rank's scale tiles counted by ranks, where several ranks share one: rank 1 has the
/// second tile in place of the one that its channels lie in, and the last ranks have none.
pub(super) fn scale_tiles_by_rank(plan: &Plan) -> Option<Plan> {
    let shards = plan.parallel.tp / plan.parallel.ep;
    let block = plan.w2_scale.map_or(0, |s| s.col_block_source);
    let width = plan.dims.i / shards;
    if !plan.dims.i.is_multiple_of(shards) || width == 0 || width.is_multiple_of(block.max(1)) {
        return None;
    }
    let tiles = width.div_ceil(block);
    let mut wrong = plan.clone();
    for rank in &mut wrong.ranks {
        let start = (rank.rank % shards).saturating_mul(tiles * block);
        rank.start = start.min(plan.dims.i);
        rank.len = (tiles * block).min(plan.dims.i - rank.start);
    }
    Some(wrong)
}

/// facts/reports.md B57, B77: equal shares of elements where the plan gives ranks whole scale blocks.
pub(super) fn shares_inside_blocks(plan: &Plan) -> Option<Plan> {
    let shards = plan.parallel.tp / plan.parallel.ep;
    let block = plan.w2_scale.map_or(0, |s| s.col_block_source);
    let width = plan.dims.i / shards;
    let equal = plan.dims.i.is_multiple_of(shards) && width <= plan.width_padded;
    if block < 2 || !equal || width.is_multiple_of(block) {
        return None;
    }
    let mut wrong = plan.clone();
    for rank in &mut wrong.ranks {
        (rank.start, rank.len) = (rank.rank % shards * width, width);
    }
    let same = wrong.ranks.iter().zip(&plan.ranks);
    let same = same
        .into_iter()
        .all(|(w, r)| (w.start, w.len) == (r.start, r.len));
    (!same).then_some(wrong)
}
