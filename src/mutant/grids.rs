//! Wrong loaders that move or change codes of the padded grid, whatever layout stores it.

use super::bytes::{dirty, loud};
use crate::layout::{PackedInputs, map};
use crate::num::Dtype;
use crate::plan::{Plan, Role, ScalePlan};
use crate::terms::{Activation, Order, Place};

/// The codes of a tensor's padded grid on a rank, row by row: what a loader sees before storage.
pub(super) struct Codes {
    pub(super) experts: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) codes: Vec<u32>,
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
pub(super) fn all(
    plan: &Plan,
    packed: &mut PackedInputs,
    role: Role,
    change: impl FnOnce(&mut [(usize, Codes)]),
) -> bool {
    let (mut maps, mut grids) = (Vec::new(), Vec::new());
    for (n, rank) in packed.ranks.iter().enumerate() {
        let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get(role)) else {
            continue;
        };
        if tensor.bytes().len() != map.bytes() {
            continue;
        }
        let [experts, rows, cols] = map.shape();
        let mut codes = vec![0; experts * rows * cols];
        for (at, row) in codes.chunks_exact_mut(cols.max(1)).enumerate() {
            map.grid
                .read_row(tensor.bytes(), (at / rows, at % rows), row);
        }
        grids.push((
            n,
            Codes {
                experts,
                rows,
                cols,
                codes,
            },
        ));
        maps.push(map);
    }
    change(&mut grids);
    let mut changed = false;
    for ((n, grid), map) in grids.iter().zip(&maps) {
        let Some(tensor) = packed.ranks[*n].get_mut(role) else {
            continue;
        };
        let mut old = vec![0; grid.cols];
        for (at, new) in grid.codes.chunks_exact(grid.cols.max(1)).enumerate() {
            let (e, r) = (at / grid.rows, at % grid.rows);
            map.grid.read_row(tensor.bytes(), (e, r), &mut old);
            if old != new {
                map.grid.write_row(tensor.bytes_mut(), (e, r), new);
                changed = true;
            }
        }
    }
    changed
}

pub(super) fn size(n: u64) -> usize {
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

/// Columns of w2's scales moved by one on ranks after the first: as where the first of a rank's blocks is
/// counted from one.
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

/// w2 stored column by column.
pub(super) fn w2_transposed(plan: &Plan, packed: &mut PackedInputs) -> bool {
    transposed(plan, packed, Role::W2)
}

/// w13 stored column by column.
pub(super) fn w13_transposed(plan: &Plan, packed: &mut PackedInputs) -> bool {
    transposed(plan, packed, Role::W13)
}

/// Columns as rows; of codes that share a byte, columns of bytes.
fn transposed(plan: &Plan, packed: &mut PackedInputs, role: Role) -> bool {
    let unit = size(8_u64.div_ceil(plan.weight.element().bits()));
    each(plan, packed, role, |_, t| {
        if !t.cols.is_multiple_of(unit) {
            return;
        }
        let (rows, cols) = (t.rows, t.cols);
        for e in 0..t.experts {
            let codes = t.expert(e);
            let mut moved = vec![0; codes.len()];
            for (r, row) in codes.chunks_exact(cols).enumerate() {
                for (c, together) in row.chunks_exact(unit).enumerate() {
                    let at = (c * rows + r) * unit;
                    moved[at..at + unit].copy_from_slice(together);
                }
            }
            codes.copy_from_slice(&moved);
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

/// M8 and M9: the same of w2 and of its scales, as of tensors that grew along their rows.
pub(super) fn second_at_the_real_width(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let weights = rows_at_the_real_width(plan, packed);
    weights && scales_at_the_real_width(plan, packed)
}

/// M8 of the first projection: rows of w13 and of its scales grow along the hidden axis, by as much as the channels
/// should, so that they follow each other at a wider stride.
pub(super) fn w13_padded_on_hidden(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let pad = plan.width_padded.saturating_sub(plan.width);
    let halves = plan.order.interleave() == 0 && plan.place == Place::PerHalf;
    if pad == 0 || !halves {
        return false;
    }
    let scale = plan.w13_scale;
    let grown = |s: &ScalePlan| match s.col_block {
        0 => 0,
        block => (plan.hidden_padded + pad).div_ceil(block) - plan.hidden_padded.div_ceil(block),
    };
    // Tiles may have room for more columns than there are: rows alone move then.
    let stored = |s: &ScalePlan| {
        if s.cols_stored > s.cols_padded {
            0
        } else {
            grown(s)
        }
    };
    let scale = scale.filter(|s| s.row_block > 0);
    let roles = [
        Some((Role::W13, 1, pad)),
        scale.map(|s| (Role::W13Scale, s.row_block, stored(&s))),
    ];
    let mut changed = false;
    for (role, block, pad) in roles.into_iter().flatten() {
        let lens = plan.ranks.iter().map(|r| size(r.len.div_ceil(block)));
        let lens: Vec<usize> = lens.collect();
        changed |= each(plan, packed, role, |n, t| {
            let (cols, half) = (t.cols, t.rows / size(plan.dims.halves));
            for e in 0..t.experts {
                let rows = t.expert(e);
                let is_real = |r: usize| r % half.max(1) < lens[n];
                let all = || rows.chunks_exact(cols).enumerate();
                let mut pads = all().filter(|(r, _)| !is_real(*r)).flat_map(|(_, row)| row);
                let mut moved: Vec<u32> = Vec::with_capacity(rows.len());
                for (_, row) in all().filter(|(r, _)| is_real(*r)) {
                    moved.extend(row);
                    moved.extend(pads.by_ref().take(size(pad)));
                }
                moved.extend(pads);
                rows.copy_from_slice(&moved);
            }
        });
    }
    changed
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

/// M3: gate and up, padded, swapped at the unpadded length: from there on first, then what was before.
pub(super) fn swapped_at_the_wrong_length(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let (width, padded) = (size(plan.width), size(plan.width_padded));
    let applies = plan.dims.halves == 2 && width != padded && plan.order == Order::UpGate;
    applies
        && each(plan, packed, Role::W13, |_, t| {
            let cols = t.cols;
            for e in 0..t.experts {
                t.expert(e).rotate_left(padded * cols);
                t.expert(e).rotate_left(width * cols);
            }
        })
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
