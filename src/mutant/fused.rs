//! Wrong loaders that cut the fused rows of gate and up as one axis, so that the first ranks hold gate alone.
//!
//! It must not know storage. Layer 6.

use super::grids::{Codes, all, size};
use crate::layout::PackedInputs;
use crate::plan::{Plan, RankPlan, Role};
use crate::terms::Place;

/// facts/reports.md B45: each half of a rank's rows is padded to its slot.
pub(super) fn fused_cut_whole(plan: &Plan, packed: &mut PackedInputs) -> bool {
    cut_whole(plan, packed, Place::PerHalf)
}

/// facts/reports.md B45, M1: one pad after all of a rank's rows.
pub(super) fn fused_cut_and_padded_whole(plan: &Plan, packed: &mut PackedInputs) -> bool {
    plan.width < plan.width_padded && cut_whole(plan, packed, Place::Tail)
}

/// M1 and M2 where shares differ: the second half begins right after the rank's own share of the first.
pub(super) fn tail_pad_of_short_shares(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let short = |rank: &RankPlan| 0 < rank.len && rank.len < plan.width;
    let applies = plan.dims.halves == 2
        && plan.order.interleave() == 0
        && plan.place == Place::PerHalf
        && plan.width < plan.width_padded
        && plan.ranks.iter().any(short);
    if !applies {
        return false;
    }
    // Rows that share a scale are one row of the scales; of one scale a half nothing moves.
    let block = plan.w13_scale.map_or(0, |s| size(s.row_block));
    let roles = [(Role::W13, 1), (Role::W13Bias, 1)].into_iter();
    let mut changed = false;
    for (role, block) in roles.chain((block > 0).then_some((Role::W13Scale, block))) {
        changed |= all(plan, packed, role, |grids| {
            for (n, t) in grids {
                let (slot, len) = (t.rows / 2, t.rows * t.cols);
                let share = size(plan.ranks[*n].len).div_ceil(block);
                for expert in t.codes.chunks_exact_mut(len.max(1)) {
                    // Padding is all of one code: that of the last row.
                    let pad = expert[len - t.cols..].to_vec();
                    expert.copy_within(slot * t.cols..(slot + share) * t.cols, share * t.cols);
                    for row in expert[2 * share * t.cols..].chunks_exact_mut(t.cols) {
                        row.copy_from_slice(&pad);
                    }
                }
            }
        });
    }
    changed
}

fn cut_whole(plan: &Plan, packed: &mut PackedInputs, place: Place) -> bool {
    let shards = size(plan.parallel.tp / plan.parallel.ep);
    let share = size(plan.dims.i) / shards;
    let equal = |(n, rank): (usize, &RankPlan)| {
        (size(rank.start), size(rank.len)) == (n % shards * share, share)
    };
    let applies = plan.dims.halves == 2
        && plan.order.interleave() == 0
        && plan.place == Place::PerHalf
        && shards > 1
        && share > 0
        && plan.ranks.iter().enumerate().all(equal);
    if !applies {
        return false;
    }
    // Rows that share a scale are one row of the scales.
    let block = plan.w13_scale.map_or(0, |s| size(s.row_block));
    let whole = block > 0 && share.is_multiple_of(block);
    let roles = [(Role::W13, 1), (Role::W13Bias, 1)].into_iter();
    let mut changed = false;
    for (role, block) in roles.chain(whole.then_some((Role::W13Scale, block))) {
        changed |= all(plan, packed, role, |grids| {
            let cut = Cut {
                shards,
                share: share / block,
                up_first: plan.order.up_first(),
                place,
            };
            // Rows come of every rank; with none left out, a grid's place is its rank.
            if grids.len() == plan.ranks.len() {
                cut.apply(grids);
            }
        });
    }
    changed
}

/// How fused rows are cut, and where they go.
struct Cut {
    shards: usize,
    /// Rows of a half on a rank.
    share: usize,
    up_first: bool,
    place: Place,
}

impl Cut {
    /// Cuts grids of all ranks, in their order.
    fn apply(&self, grids: &mut [(usize, Codes)]) {
        let (shards, share) = (self.shards, self.share);
        let right: Vec<Vec<u32>> = grids.iter().map(|(_, t)| t.codes.clone()).collect();
        for (n, t) in grids {
            let (slot, cols, len) = (t.rows / 2, t.cols, t.rows * t.cols);
            // Where a channel of a half begins in an expert of a rank, if halves are so far apart.
            let at = |half: usize, channel: usize, apart: usize| {
                let half = if self.up_first { 1 - half } else { half };
                (half * apart + channel) * cols
            };
            let apart = match self.place {
                Place::PerHalf => slot,
                Place::Tail => share,
            };
            for e in 0..t.experts {
                // Padding is all of one code: that of the last row.
                let pad = &right[*n][(e + 1) * len - cols..(e + 1) * len];
                if self.place == Place::Tail {
                    for row in 2 * share..t.rows {
                        let target = e * len + row * cols;
                        t.codes[target..target + cols].copy_from_slice(pad);
                    }
                }
                for j in 0..2 * share {
                    let fused = *n % shards * 2 * share + j;
                    let (half, channel) = (fused / (share * shards), fused % (share * shards));
                    let from = *n / shards * shards + channel / share;
                    let source = e * len + at(half, channel % share, slot);
                    let target = e * len + at(j / share, j % share, apart);
                    let row = &right[from][source..source + cols];
                    t.codes[target..target + cols].copy_from_slice(row);
                }
            }
        }
    }
}
