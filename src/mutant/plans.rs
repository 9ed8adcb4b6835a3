//! Wrong planners.

use crate::plan::{Effect, Fit, Plan};
use crate::terms::{LayerKind, Split};

/// M6: w2 is padded, a non-gated w13 is not.
pub(super) fn nongated_rows_unpadded(plan: &mut Plan) -> bool {
    let applies = plan.dims.halves == 1 && plan.width != plan.width_padded;
    if applies {
        plan.w13_rows = plan.width;
    }
    applies
}

/// M7: a non-gated w13 gets the rows of a gated one.
pub(super) fn nongated_rows_doubled(plan: &mut Plan) -> bool {
    let applies = plan.dims.halves == 1;
    if applies {
        plan.w13_rows = plan.w13_rows.saturating_mul(2);
    }
    applies
}

/// M9: weights are padded, their scales are not.
pub(super) fn scales_unpadded(plan: &mut Plan) -> bool {
    let width = plan.width;
    let Some(s) = plan.w2_scale.as_mut().filter(|s| s.col_block > 0) else {
        return false;
    };
    let bare = width.div_ceil(s.col_block);
    let applies = bare != s.cols_padded;
    s.cols_padded = bare;
    applies
}

/// M12: floor of the scale count where the last block is short.
pub(super) fn scale_count_floored(plan: &mut Plan) -> bool {
    let width = plan.width_padded;
    let Some(s) = plan.w2_scale.as_mut().filter(|s| s.col_block > 0) else {
        return false;
    };
    let applies = !width.is_multiple_of(s.col_block);
    s.cols_padded = width / s.col_block;
    applies
}

/// M13: scale rows counted over both halves at once: ceil(2N/128) instead of 2 ceil(N/128).
pub(super) fn scale_rows_fused(plan: &mut Plan) -> bool {
    let (halves, width) = (plan.dims.halves, plan.width_padded);
    let Some(s) = plan.w13_scale.as_mut().filter(|s| s.row_block > 1) else {
        return false;
    };
    let fused = halves.saturating_mul(width).div_ceil(s.row_block);
    let applies = fused != s.rows_padded;
    s.rows_padded = fused;
    applies
}

/// M14: an alignment in stored bytes read as elements: half the granule for packed weights.
pub(super) fn bytes_read_as_elements(plan: &mut Plan) -> bool {
    let halved = (plan.width_padded / 2).max(plan.width);
    let applies = plan.weight.element().bits() == 4 && halved != plan.width_padded;
    if applies {
        plan.width_padded = halved;
        plan.w13_rows = plan.dims.halves.saturating_mul(halved);
    }
    applies
}

/// M11: slices of an equally cut checkpoint taken at the padded stride.
pub(super) fn padded_stride(plan: &mut Plan) -> bool {
    let stride = plan.width_padded;
    let shards = plan.parallel.tp / plan.parallel.ep;
    let i = plan.dims.i;
    let width = plan.width;
    let mut changed = false;
    for rank in &mut plan.ranks {
        let start = (rank.rank % shards).saturating_mul(stride).min(i);
        let len = width.min(i - start);
        changed |= (rank.start, rank.len) != (start, len);
        (rank.start, rank.len) = (start, len);
    }
    changed && plan.split != Split::Stride
}

/// What is left over when channels, in whole scale blocks, are cut into equal shares is on no rank; where
/// nothing is, the last channel.
pub(super) fn remainder_dropped(plan: &mut Plan) -> bool {
    let shards = (plan.parallel.tp / plan.parallel.ep).max(1);
    let block = plan.w2_scale.map_or(1, |s| s.col_block_source.max(1));
    let blocks = plan.dims.i.div_ceil(block);
    let share = blocks / shards * block;
    if share > 0 && share <= plan.width_padded && !blocks.is_multiple_of(shards) {
        let mut changed = false;
        for rank in &mut plan.ranks {
            let cut = (rank.rank % shards * share, share);
            changed |= (rank.start, rank.len) != cut;
            (rank.start, rank.len) = cut;
        }
        return changed;
    }
    let Some(last) = plan.ranks.last_mut().filter(|r| r.len > 0) else {
        return false;
    };
    last.len -= 1;
    true
}

/// M32: the alignment constant of another kernel: one granule too many.
pub(super) fn over_padded(plan: &mut Plan) -> bool {
    let Some(wide) = plan
        .width_padded
        .checked_mul(2)
        .filter(|_| plan.width_padded != plan.width)
    else {
        return false;
    };
    plan.width_padded = wide;
    plan.w13_rows = plan.dims.halves.saturating_mul(wide);
    true
}

/// M39: the scale block is taken for floor(N / scale columns).
pub(super) fn block_from_floor(plan: &mut Plan) -> bool {
    let width = plan.width_padded;
    let Some(s) = plan.w2_scale.as_mut().filter(|s| s.col_block > 1) else {
        return false;
    };
    let floored = (width / s.cols_padded.max(1)).max(1);
    let applies = floored != s.col_block;
    s.col_block = floored;
    applies
}

/// M40: a count of scales passed where a count of elements is wanted.
pub(super) fn scales_counted_twice(plan: &mut Plan) -> bool {
    let Some(s) = plan.w2_scale.as_mut().filter(|s| s.col_block > 1) else {
        return false;
    };
    let counted = s.cols_padded.div_ceil(s.col_block);
    let applies = counted != s.cols_padded;
    s.cols_padded = counted;
    applies
}

/// M41: a layer that the backend refuses is padded all the same.
pub(super) fn refusal_ignored(plan: &mut Plan) -> bool {
    let applies = plan.fit == Fit::Refused;
    if applies {
        plan.fit = Fit::Padded;
        plan.violations.retain(|v| v.effect < Effect::Refused);
    }
    applies
}

/// Bytes of packed tensors computed as if an element took a byte.
pub(super) fn packed_bytes_doubled(plan: &mut Plan) -> bool {
    let applies = plan.weight.element().bits() == 4;
    if applies {
        plan.tensors[1].bytes = plan.tensors[1].bytes.saturating_mul(2);
    }
    applies
}

/// EP groups given overlapping experts.
pub(super) fn experts_overlap(plan: &mut Plan) -> bool {
    let applies = plan.layer == LayerKind::Routed && plan.parallel.ep > 1;
    if applies {
        for rank in &mut plan.ranks {
            rank.expert_start = 0;
        }
    }
    applies
}

/// M17 in the plan: padding is written with the code of another number than zero.
pub(super) fn pad_code_not_zero(plan: &mut Plan) -> bool {
    let applies = plan.ranks.iter().any(|rank| rank.len < plan.width_padded);
    if applies {
        plan.weight_pad = plan.weight.element().one_code();
    }
    applies
}

/// M27 in the plan: the storage of w2's scales is sized before they are padded.
pub(super) fn stored_before_padding(plan: &mut Plan) -> bool {
    let (width, storage) = (plan.width, plan.storage);
    let Some(s) = plan.w2_scale.as_mut().filter(|s| s.col_block > 0) else {
        return false;
    };
    let (_, tile) = storage.of(s.dtype).tile();
    let stored = width.div_ceil(s.col_block).next_multiple_of(tile);
    let applies = stored < s.cols_padded;
    if applies {
        s.cols_stored = stored;
    }
    applies
}

/// V-19: what is cut off after a round trip is cut at the padded width.
pub(super) fn cut_at_the_padded_width(plan: &mut Plan) -> bool {
    let padded = plan.width_padded;
    let Some(w2) = plan.tensors.iter_mut().find(|t| t.name == "w2") else {
        return false;
    };
    let applies = w2.logical[2] != padded;
    w2.logical[2] = padded;
    applies
}

/// V-10: one global scale for all experts.
pub(super) fn one_global_for_all(plan: &mut Plan) -> bool {
    let global = |t: &&mut crate::plan::TensorPlan| t.name == "w13_scale_2" && t.shape[0] > 1;
    let Some(found) = plan.tensors.iter_mut().find(global) else {
        return false;
    };
    (found.shape[0], found.logical[0]) = (1, 1);
    true
}

/// V-18: a width that is aligned already gets one granule more.
pub(super) fn aligned_is_padded(plan: &mut Plan) -> bool {
    let wide = plan.width_padded.checked_mul(2);
    let Some(wide) = wide.filter(|_| plan.width_padded == plan.width) else {
        return false;
    };
    plan.width_padded = wide;
    plan.w13_rows = plan.dims.halves.saturating_mul(wide);
    true
}

/// M24: the kernel doubles the padding that it is told, and is told the double.
pub(super) fn pad_told_twice(plan: &mut Plan) -> bool {
    let pad = plan.width_padded.saturating_sub(plan.width);
    let told = plan.width_padded.saturating_sub(pad.saturating_mul(2));
    (plan.width_computed, plan.w2_width_computed) = (told, told);
    pad > 0
}

/// M36: the size that the kernel is told is a multiple of 128 below the real one.
pub(super) fn valid_size_floored(plan: &mut Plan) -> bool {
    let told = plan.width / 128 * 128;
    (plan.width_computed, plan.w2_width_computed) = (told, told);
    told < plan.width
}
