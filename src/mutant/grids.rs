//! Wrong loaders that move or change codes of the padded grid, whatever layout stores it.

use super::bytes::{dirty, loud};
use crate::layout::{PackedInputs, map};
use crate::num::Dtype;
use crate::plan::{Plan, Role};
use crate::terms::{Activation, Order, Place};

/// The codes of a tensor's padded grid on a rank, row by row: what a loader sees before storage.
struct Codes {
    experts: usize,
    rows: usize,
    cols: usize,
    codes: Vec<u32>,
}

impl Codes {
    /// The codes of one expert.
    fn expert(&mut self, e: usize) -> &mut [u32] {
        let len = self.rows * self.cols;
        &mut self.codes[e * len..(e + 1) * len]
    }

    /// Every row of every expert.
    fn rows(&mut self) -> impl Iterator<Item = &mut [u32]> {
        self.codes.chunks_exact_mut(self.cols.max(1))
    }
}

/// Applies `change` to the grid of `role` on every rank; whether a byte changed.
fn each(
    plan: &Plan,
    packed: &mut PackedInputs,
    role: Role,
    mut change: impl FnMut(usize, &mut Codes),
) -> bool {
    all(plan, packed, role, |grids| {
        for (n, grid) in grids.iter_mut() {
            change(*n, grid);
        }
    })
}

/// The same with the grids of all ranks at once.
fn all(
    plan: &Plan,
    packed: &mut PackedInputs,
    role: Role,
    change: impl FnOnce(&mut [(usize, Codes)]),
) -> bool {
    let mut places = Vec::new();
    let mut grids = Vec::new();
    for (n, rank) in packed.ranks.iter().enumerate() {
        let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get(role)) else {
            continue;
        };
        if tensor.bytes().len() != map.bytes() {
            continue;
        }
        let [experts, rows, cols] = map.shape();
        let here = (0..experts).flat_map(|e| (0..rows).map(move |r| (e, r)));
        let here = here.flat_map(|(e, r)| (0..cols).map(move |c| (e, r, c)));
        let here: Vec<_> = here.map(|(e, r, c)| map.address(e, r, c)).collect();
        let codes = here.iter().map(|at| map.grid.read(tensor.bytes(), *at));
        grids.push((
            n,
            Codes {
                experts,
                rows,
                cols,
                codes: codes.collect(),
            },
        ));
        places.push((map, here));
    }
    change(&mut grids);
    let mut changed = false;
    for ((n, grid), (map, places)) in grids.iter().zip(&places) {
        let Some(tensor) = packed.ranks[*n].get_mut(role) else {
            continue;
        };
        for (at, new) in places.iter().zip(&grid.codes) {
            if map.grid.read(tensor.bytes(), *at) != *new {
                map.grid.write(tensor.bytes_mut(), *at, *new);
                changed = true;
            }
        }
    }
    changed
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// M21: zero up rows alone in the padding, garbage gate rows, swigluoai's up + 1, and w2's tail dirty.
pub(super) fn only_up_rows_zero(plan: &Plan, packed: &mut PackedInputs) -> bool {
    if plan.activation != Activation::SwigluOai || plan.order != Order::GateUp {
        return false;
    }
    let gate = size(plan.width)..size(plan.width_padded);
    let code = loud(plan.weight.element());
    let changed = each(plan, packed, Role::W13, |_, t| {
        let cols = t.cols;
        for e in 0..t.experts {
            let rows = gate.start.min(t.rows) * cols..gate.end.min(t.rows) * cols;
            t.expert(e)[rows].fill(code);
        }
    });
    changed && dirty(plan, packed, &[Role::W2, Role::W2Scale], |d| Some(loud(d)))
}

/// M10: scale rows padded where weight rows are not: later experts read from a shifted offset.
pub(super) fn scale_rows_shifted(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, Role::W2Scale, |_, t| {
        let cols = t.cols;
        for e in 1..t.experts {
            t.expert(e).rotate_right(cols);
        }
    })
}

/// facts/reports.md B66: the scale tile index is the rank instead of the element's block: scale
/// columns moved by one.
pub(super) fn scale_columns_shifted(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, Role::W2Scale, |n, t| {
        if n > 0 && t.cols > 1 {
            t.rows().for_each(|row| row.rotate_left(1));
        }
    })
}

/// M28: the rows of the second half beyond the unpadded half length miss their rescale.
pub(super) fn second_half_not_rescaled(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let (width, padded) = (size(plan.width), size(plan.width_padded));
    let applies = plan.dims.halves == 2 && width != padded && plan.weight.element() == Dtype::E4m3;
    applies
        && each(plan, packed, Role::W13, |_, t| {
            let from = (2 * width).max(padded).min(t.rows) * t.cols;
            for e in 0..t.experts {
                for code in &mut t.expert(e)[from..] {
                    // One binade up, as after a missing division of the scale by 2.
                    if (0x08..0x70).contains(&(*code & 0x7f)) {
                        *code += 0x08;
                    }
                }
            }
        })
}

/// The last real column of w2 is lost.
pub(super) fn last_column_lost(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let lens: Vec<usize> = plan.ranks.iter().map(|r| size(r.len)).collect();
    let pad = plan.weight_pad;
    each(plan, packed, Role::W2, |n, t| {
        if let Some(last) = lens[n].checked_sub(1) {
            t.rows().for_each(|row| row[last] = pad);
        }
    })
}

/// F6 of facts/peers.md: the last, short scale group is lost.
pub(super) fn last_scale_group_lost(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let Some(s) = plan.w2_scale.filter(|s| s.col_block > 0) else {
        return false;
    };
    let lens: Vec<u64> = plan.ranks.iter().map(|r| r.len).collect();
    each(plan, packed, Role::W2Scale, |n, t| {
        let last = size(lens[n].div_ceil(s.col_block)).checked_sub(1);
        if let Some(last) = last.filter(|&last| last < t.cols) {
            t.rows().for_each(|row| row[last] = 0);
        }
    })
}

/// M8: w2 shifted along its hidden axis by the padding.
pub(super) fn w2_padded_on_hidden(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let pad = size(plan.width_padded - plan.width.min(plan.width_padded));
    pad > 0
        && each(plan, packed, Role::W2, |_, t| {
            let by = pad.min(t.rows.saturating_sub(1)) * t.cols;
            for e in 0..t.experts {
                t.expert(e).rotate_right(by);
            }
        })
}

/// Rows of w2 one after the other at their real width, the padding at the end of the expert's.
pub(super) fn rows_at_the_real_width(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let lens: Vec<usize> = plan.ranks.iter().map(|r| size(r.len)).collect();
    at_the_real_width(plan, packed, Role::W2, &lens)
}

/// M9 and M26: weights are padded, the rows of w2's scales keep their real width.
pub(super) fn scales_at_the_real_width(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let Some(block) = plan.w2_scale.map(|s| s.col_block).filter(|b| *b > 0) else {
        return false;
    };
    let ranks = plan.ranks.iter();
    let lens: Vec<usize> = ranks.map(|r| size(r.len.div_ceil(block))).collect();
    at_the_real_width(plan, packed, Role::W2Scale, &lens)
}

fn at_the_real_width(plan: &Plan, packed: &mut PackedInputs, role: Role, lens: &[usize]) -> bool {
    each(plan, packed, role, |n, t| {
        let (real, cols) = (lens[n].min(t.cols), t.cols.max(1));
        for e in 0..t.experts {
            let rows = t.expert(e);
            let elements = rows.chunks_exact(cols).flat_map(|row| &row[..real]);
            let pads = rows.chunks_exact(cols).flat_map(|row| &row[real..]);
            let moved: Vec<u32> = elements.chain(pads).copied().collect();
            rows.copy_from_slice(&moved);
        }
    })
}

/// M3: halves swapped at the unpadded length.
pub(super) fn swapped_at_the_wrong_length(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let (width, padded) = (size(plan.width), size(plan.width_padded));
    let applies = plan.dims.halves == 2 && width != padded && plan.order == Order::UpGate;
    applies
        && each(plan, packed, Role::W13, |_, t| {
            let cols = t.cols;
            for e in 0..t.experts {
                t.expert(e).rotate_left(padded * cols);
                t.expert(e).rotate_right(width * cols);
            }
        })
}

/// facts/reports.md B45: the fused rows of gate and up cut as one axis, so that the first ranks hold
/// gate alone.
pub(super) fn fused_cut_whole(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let shards = size(plan.parallel.tp / plan.parallel.ep);
    let share = size(plan.dims.i) / shards;
    let equal = |(n, rank): (usize, &crate::plan::RankPlan)| {
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
    let up_first = plan.order.up_first();
    let scales = plan.w13_scale.is_some_and(|s| s.row_block == 1);
    let roles = [Role::W13, Role::W13Bias].into_iter();
    let mut changed = false;
    for role in roles.chain(scales.then_some(Role::W13Scale)) {
        changed |= all(plan, packed, role, |grids| {
            let right: Vec<Vec<u32>> = grids.iter().map(|(_, t)| t.codes.clone()).collect();
            for (n, t) in grids {
                let (slot, cols, len) = (t.rows / 2, t.cols, t.rows * t.cols);
                // Where a channel of a half begins in an expert of a rank.
                let place = |half: usize, channel: usize| {
                    let half = if up_first { 1 - half } else { half };
                    (half * slot + channel) * cols
                };
                for (e, j) in (0..t.experts).flat_map(|e| (0..2 * share).map(move |j| (e, j))) {
                    let fused = *n % shards * 2 * share + j;
                    let (half, channel) = (fused / (share * shards), fused % (share * shards));
                    let from = *n / shards * shards + channel / share;
                    let source = e * len + place(half, channel % share);
                    let target = e * len + place(j / share, j % share);
                    let row = &right[from][source..source + cols];
                    t.codes[target..target + cols].copy_from_slice(row);
                }
            }
        });
    }
    changed
}

/// M6: a non-gated w13 keeps its real rows, one expert after the other, where the kernel steps by padded
/// ones.
pub(super) fn nongated_rows_at_the_real_stride(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let lens: Vec<usize> = plan.ranks.iter().map(|r| size(r.len)).collect();
    let applies = plan.dims.halves == 1 && plan.width != plan.width_padded;
    applies
        && each(plan, packed, Role::W13, |n, t| {
            let real = lens[n].min(t.rows) * t.cols;
            let each = (t.rows * t.cols).max(1);
            let elements = t.codes.chunks_exact(each).flat_map(|e| &e[..real]);
            let pads = t.codes.chunks_exact(each).flat_map(|e| &e[real..]);
            t.codes = elements.chain(pads).copied().collect();
        })
}

/// M7: a non-gated w13 has the rows of a gated one, so that the kernel finds an expert where the one before
/// it ends in nothing.
pub(super) fn nongated_rows_at_the_double_stride(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let pad = plan.weight_pad;
    plan.dims.halves == 1
        && each(plan, packed, Role::W13, |_, t| {
            let each = t.rows * t.cols;
            for e in (1..t.experts).rev() {
                let from = e / 2 * each;
                match e % 2 {
                    0 => t.codes.copy_within(from..from + each, e * each),
                    _ => t.expert(e).fill(pad),
                }
            }
        })
}

/// M13: scale rows counted over both halves at once, so that the second half's begin a block early.
pub(super) fn second_half_scales_early(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let short = |block: u64| block > 1 && !plan.width_padded.is_multiple_of(block);
    let applies = plan.dims.halves == 2 && plan.w13_scale.is_some_and(|s| short(s.row_block));
    applies
        && each(plan, packed, Role::W13Scale, |_, t| {
            let (half, cols) = (t.rows / 2, t.cols);
            for e in 0..t.experts {
                let end = (2 * half - 1) * cols;
                t.expert(e).copy_within((half - 1) * cols..end, half * cols);
            }
        })
}

/// M35: where a row's real elements end in the middle of a byte, the pad nibble stands before the last of
/// them.
pub(super) fn pad_nibble_first(plan: &Plan, packed: &mut PackedInputs) -> bool {
    if plan.weight.element().bits() != 4 {
        return false;
    }
    let lens: Vec<usize> = plan.ranks.iter().map(|r| size(r.len)).collect();
    let swap = |row: &mut [u32], real: usize| {
        if real % 2 == 1 && real < row.len() {
            row.swap(real - 1, real);
        }
    };
    let hidden = size(plan.dims.h);
    let first = each(plan, packed, Role::W13, |_, t| {
        t.rows().for_each(|row| swap(row, hidden));
    });
    let second = each(plan, packed, Role::W2, |n, t| {
        t.rows().for_each(|row| swap(row, lens[n]));
    });
    first || second
}
