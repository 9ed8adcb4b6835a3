//! Every mutant, with the properties that claim to catch it.

use super::types::Stage::{Bytes, Layout, LayoutOf, Output, Plan, Reload};
use super::{
    Mutant, bytes, fused, globals, grids, layouts, outputs, plans, quantised, reload, storages,
};
use crate::plan::Role;

const IDENTITY: &str = "pad-identity";
const INERT: &str = "pad-is-inert";
const POISON: &str = "poison-isolated";
const GUARD: &str = "guard-intact";
const TP_SUM: &str = "tp-sum";
const COMMUTE: &str = "tp-pad-commute";
const ROUND_TRIP: &str = "pack-round-trip";
const SCALES: &str = "scale-grid";
const HIDDEN: &str = "hidden-pad";
const TOKEN: &str = "token-pad";
const ROUTE: &str = "route-unchanged";
const RELOAD: &str = "reload-idempotent";
const PARTITION: &str = "plan-partition";
const MINIMAL: &str = "plan-minimal";
const UNITS: &str = "plan-units";
const AGREES: &str = "rule-agrees";
const DEVICE: &str = "device-pad-identity";

/// What a loader of w2 alone does not touch.
const SECOND: &[Role] = &[Role::W2, Role::W2Scale, Role::W2Global, Role::W2Bias];
/// Block scales, where weights and biases are right.
const SCALES_ALONE: &[Role] = &[Role::W13Scale, Role::W2Scale];
/// What is cut by elements where scales of w2 are cut by blocks.
const BY_ELEMENTS: &[Role] = &[Role::W13, Role::W13Scale, Role::W13Bias, Role::W2];

macro_rules! mutants {
    ($($name:literal, $stage:expr, [$($by:expr),+], $source:literal, $meaning:literal;)+) => {
        &[$(Mutant { name: $name, meaning: $meaning, source: $source, stage: $stage, caught_by: &[$($by),+] }),+]
    };
}

/// Every mutant. Sources are rows of facts/upstream-padding.md 3.2 unless another file is named.
pub const ALL: &[Mutant] = mutants! {
    "nongated-rows-unpadded", Plan(plans::nongated_rows_unpadded), [AGREES], "M6", "w2 is padded, a non-gated w13 is not";
    "nongated-rows-doubled", Plan(plans::nongated_rows_doubled), [AGREES], "M7", "a non-gated w13 gets the rows of a gated one";
    "scales-unpadded", Plan(plans::scales_unpadded), [AGREES], "M9", "weights are padded, their scales are not";
    "scale-count-floored", Plan(plans::scale_count_floored), [AGREES], "M12", "floor of the scale count where the last block is short";
    "scale-rows-fused", Plan(plans::scale_rows_fused), [AGREES], "M13", "scale rows counted over both halves at once";
    "bytes-read-as-elements", Plan(plans::bytes_read_as_elements), [UNITS], "M14", "an alignment in stored bytes read as elements";
    "padded-stride", Plan(plans::padded_stride), [PARTITION], "M11", "an equally cut checkpoint sliced at the padded stride";
    "remainder-dropped", Plan(plans::remainder_dropped), [PARTITION], "facts/peers.md F4", "what equal shares leave over is on no rank, or the last rank's last channel";
    "experts-overlap", Plan(plans::experts_overlap), [PARTITION], "facts/reports.md B93", "expert groups overlap";
    "over-padded", Plan(plans::over_padded), [MINIMAL], "M32", "padded to another kernel's granule";
    "block-from-floor", Plan(plans::block_from_floor), [AGREES], "M39", "the scale block taken for floor(width / scale columns)";
    "scales-counted-twice", Plan(plans::scales_counted_twice), [AGREES], "M40", "a count of scales where a count of elements is wanted";
    "refusal-ignored", Plan(plans::refusal_ignored), [AGREES], "M41", "a layer that the backend refuses is padded all the same";
    "packed-bytes-doubled", Plan(plans::packed_bytes_doubled), [UNITS], "M14", "two packed elements counted as two bytes";
    "pad-code-not-zero", Plan(plans::pad_code_not_zero), [AGREES, INERT], "V-4, V-5", "padding planned with the code of 1";
    "stored-before-padding", Plan(plans::stored_before_padding), [AGREES], "M27, V-13", "the storage of scales sized before they are padded";
    "cut-at-the-padded-width", Plan(plans::cut_at_the_padded_width), [AGREES], "V-19", "a round trip cuts w2 at its padded width";
    "one-global-for-all", Plan(plans::one_global_for_all), [AGREES], "V-10", "one global scale planned for all experts";
    "pad-told-twice", Plan(plans::pad_told_twice), [AGREES], "M24, V-14", "a kernel that doubles the padding it is told is told the double";
    "valid-size-floored", Plan(plans::valid_size_floored), [AGREES], "M36, V-14", "the size that a kernel is told is rounded down below the real one";
    "aligned-is-padded", Plan(plans::aligned_is_padded), [MINIMAL], "V-18", "a width that is aligned is padded all the same";
    "tail-pad", Layout(layouts::tail_pad), [IDENTITY, INERT], "M1, M2", "one pad after both halves: the second half right after the first";
    "tail-pad-of-short-shares", Bytes(fused::tail_pad_of_short_shares), [IDENTITY, INERT], "M1, M2", "one pad after both halves, on ranks with a shorter share the second half right after that";
    "halves-swapped", Layout(layouts::halves_swapped), [IDENTITY, INERT], "M4", "gate where the kernel expects up";
    "interleaved-for-halves", Layout(layouts::interleaved_for_halves), [IDENTITY, INERT], "M5", "rows of gate and up in turn for a kernel that reads halves";
    "halves-for-interleaved", Layout(layouts::halves_for_interleaved), [IDENTITY, INERT], "M5, facts/reports.md B43", "halves for a kernel that reads rows of gate and up in turn";
    "interleaved-in-other-groups", Layout(layouts::interleaved_in_other_groups), [IDENTITY, INERT], "M5, flashinfer 4874", "rows in turn, in groups of another size than the kernel reads";
    "nibbles-swapped", Layout(layouts::nibbles_swapped), [IDENTITY, INERT, ROUND_TRIP], "M35", "the other nibble first";
    "scales-not-swizzled", Layout(storages::scales_not_swizzled), [INERT, SCALES], "facts/upstream-padding.md 3.1 V-13", "row-major scales for a kernel that reads tiles";
    "scales-swizzled", Layout(storages::scales_swizzled), [INERT, SCALES], "facts/upstream-padding.md 3.1 V-13", "scales in tiles for a kernel that reads them row by row";
    "swizzled-before-padding", Bytes(storages::swizzled_before_padding), [INERT, SCALES], "M27", "scales swizzled at their real size, and padded after that";
    "scales-in-other-tiles", Layout(storages::scales_in_other_tiles), [IDENTITY, INERT, SCALES], "facts/upstream-padding.md 1.0", "scales in the tiles of a sister kernel";
    "scale-tile-transposed", Bytes(storages::scale_tile_transposed), [IDENTITY, INERT, SCALES], "facts/upstream-padding.md 1.0", "rows and columns of each tile of scales swapped";
    "scale-columns-aligned-to-four", Bytes(storages::scale_columns_aligned_to_four), [IDENTITY, INERT, SCALES], "facts/upstream-padding.md 1.4 F1", "scale columns aligned to 4 for a kernel that steps by 8";
    "weights-not-shuffled", Layout(storages::weights_not_shuffled), [IDENTITY, INERT, ROUND_TRIP], "facts/upstream-padding.md 1.2 A9", "row-major weights for a kernel that reads shuffled ones";
    "weights-shuffled", Layout(storages::weights_shuffled), [IDENTITY, INERT, ROUND_TRIP], "facts/upstream-padding.md 1.2 A9", "shuffled weights for a kernel that reads them row by row";
    "weight-tile-transposed", Bytes(storages::weight_tile_transposed), [IDENTITY, INERT, ROUND_TRIP], "facts/peers.md 2.2", "rows and columns of each 16x16 tile of weights swapped";
    "rows-shuffled-in-sixteens", Layout(storages::rows_shuffled_in_sixteens), [IDENTITY, INERT, ROUND_TRIP], "facts/upstream-padding.md 1.4 F5", "rows shuffled for an epilogue tile of another size";
    "weights-in-another-shuffle", Layout(storages::weights_in_another_shuffle), [INERT, ROUND_TRIP], "facts/upstream-padding.md 1.2 A9 and 1.4 F5", "weights in the shuffle of another kernel";
    "ranks-all-first", Layout(layouts::ranks_all_first), [IDENTITY, INERT, TP_SUM, ROUND_TRIP], "facts/reports.md B64", "every rank loads the channels of rank 0";
    "rank-offset", Layout(layouts::rank_offset), [IDENTITY, INERT, TP_SUM], "M12", "a rank's channels begin one block early";
    "shares-inside-blocks", LayoutOf(layouts::shares_inside_blocks, BY_ELEMENTS), [IDENTITY, INERT, TP_SUM], "M12, facts/reports.md B57 and B77", "equal shares that begin inside scale blocks: weights cut by elements, scales by blocks";
    "prepad-as-floor", LayoutOf(layouts::prepad_as_floor, SECOND), [COMMUTE], "M43", "w13 pre-padded and cut, w2 cut and then padded";
    "w13-tail-dirty", Bytes(bytes::w13_tail_dirty), [INERT], "facts/reports.md 0", "finite garbage in w13's tail alone";
    "w2-tail-dirty", Bytes(bytes::w2_tail_dirty), [INERT, POISON], "facts/reports.md 0", "finite garbage in w2's tail alone";
    "tails-uninitialised", Bytes(bytes::tails_uninitialised), [IDENTITY, INERT], "M16", "both tails as memory happened to be";
    "scale-pad-nan", Bytes(bytes::scale_pad_nan), [IDENTITY, INERT], "M15", "padding scales that are not finite";
    "pads-nan", Bytes(bytes::pads_nan), [IDENTITY, INERT], "M16", "padding weights that are not finite: NaN, or infinity";
    "storage-pads-dirty", Bytes(bytes::storage_pads_dirty), [INERT], "M16", "what only the storage layout adds is as memory happened to be";
    "fnuz-pad-nan", Bytes(bytes::fnuz_pad_nan), [IDENTITY, INERT], "M42", "pads of 0x80, minus zero before the cast, are NaN on FNUZ hardware";
    "int4-pad-is-minus-eight", Bytes(bytes::int4_pad_is_minus_eight), [IDENTITY, INERT], "M17", "INT4 padding of nibble 0, which decodes to -8";
    "e8m0-zero-taken-for-zero", Bytes(bytes::e8m0_zero_taken_for_zero), [INERT], "M44", "E8M0 byte 0 taken for zero while the weights are not";
    "scale-range-over-pads", Bytes(quantised::scale_range_over_pads), [IDENTITY, INERT, SCALES], "M18", "padding scales of 1 where a kernel takes its range of exponents from all scales: small real ones are cut off";
    "e8m0-bias-125", Bytes(bytes::e8m0_bias_125), [IDENTITY, INERT, SCALES], "M31", "E8M0 bytes stored with bias 125";
    "bias-pad-dirty", Bytes(bytes::bias_pad_dirty), [INERT], "M19", "the pad of w13's bias is not zero";
    "bias-and-w2-pad-dirty", Bytes(bytes::bias_and_w2_pad_dirty), [INERT], "M19", "a bias pad and w2 columns that are not zero";
    "w2-bias-on-every-rank", Bytes(bytes::w2_bias_on_every_rank), [IDENTITY, TP_SUM], "M20", "w2's bias is added once per rank";
    "scales-not-cut", Bytes(bytes::scales_not_cut), [IDENTITY, INERT, SCALES], "facts/reports.md B64", "weights are cut over the ranks, their scales are not";
    "only-up-rows-zero", Bytes(grids::only_up_rows_zero), [INERT], "M21", "zero up rows do not silence swigluoai, whose up gets + 1";
    "input-tail-stale", Bytes(bytes::input_tail_stale), [INERT], "M22", "stale workspace in the hidden tail of the input";
    "gate-global-for-up", Bytes(globals::gate_global_for_up), [IDENTITY, INERT], "facts/upstream-padding.md 1.1 S4", "gate's scale used for up";
    "up-global-for-gate", Bytes(globals::up_global_for_gate), [IDENTITY, INERT], "facts/upstream-padding.md 1.1 S4", "up's scale used for gate";
    "larger-global-for-both", Bytes(globals::larger_global_for_both), [IDENTITY, INERT], "facts/peers.md 5, ModelOpt FP8", "the larger of gate's and up's scale used for both, and codes not made anew under it";
    "globals-swapped", Bytes(globals::globals_swapped), [IDENTITY, INERT], "M4, facts/upstream-padding.md 1.1 S4", "gate's scale where up's belongs, and up's where gate's does";
    "first-experts-global", Bytes(globals::first_experts_global), [IDENTITY, INERT], "V-10", "one expert's global scale used for all";
    "largest-global-for-all", Bytes(globals::largest_global_for_all), [IDENTITY, INERT], "V-10, facts/peers.md 5", "the largest of all experts' global scales used for all, and codes not made anew under it";
    "global-not-inverted", Bytes(globals::global_not_inverted), [IDENTITY, INERT], "facts/peers.md 5, compressed-tensors", "a global scale that divides where one that multiplies belongs";
    "scale-rows-shifted", Bytes(grids::scale_rows_shifted), [INERT, SCALES], "M10", "later experts read their scales from a shifted offset";
    "scale-columns-shifted", Bytes(grids::scale_columns_shifted), [INERT, SCALES], "facts/upstream-padding.md 3.1 V-6", "columns of w2's scales begin one block late on ranks after the first";
    "scale-tiles-by-rank", LayoutOf(layouts::scale_tiles_by_rank, SCALES_ALONE), [TP_SUM, SCALES], "facts/reports.md B66", "the rank taken for the number of its scale tile, where several ranks share one";
    "second-half-not-rescaled", Bytes(grids::second_half_not_rescaled), [IDENTITY, INERT], "M28", "requantised with the unpadded half length";
    "last-column-lost", Bytes(grids::last_column_lost), [IDENTITY, INERT, ROUND_TRIP], "facts/peers.md F4", "the last real column of w2 is lost";
    "last-scale-group-lost", Bytes(grids::last_scale_group_lost), [IDENTITY, INERT, SCALES], "facts/peers.md F6", "the last scale group is lost";
    "rank-missing", Bytes(bytes::rank_missing), [TP_SUM, INERT], "facts/reports.md B60", "a rank loads nothing, and its buffers stay as they were made";
    "w2-padded-on-hidden", Bytes(grids::w2_padded_on_hidden), [IDENTITY, INERT], "M8", "w2 padded along its hidden axis";
    "w2-transposed", Bytes(grids::w2_transposed), [IDENTITY, INERT], "facts/peers.md 5, fused 3-D in both orientations", "w2 with its columns as rows: a channel after the other";
    "w13-transposed", Bytes(grids::w13_transposed), [IDENTITY, INERT], "facts/peers.md 5, fused 3-D in both orientations", "w13 with its columns as rows: a hidden unit after the other";
    "fused-cut-whole", Bytes(fused::fused_cut_whole), [IDENTITY, INERT, TP_SUM], "facts/reports.md B45", "the fused rows of gate and up cut as one axis: the first ranks hold gate alone";
    "fused-cut-and-padded-whole", Bytes(fused::fused_cut_and_padded_whole), [IDENTITY, INERT, TP_SUM], "facts/reports.md B45, M1", "the fused rows of gate and up cut as one axis, and padded once after all of them";
    "rows-at-the-real-width", Bytes(grids::rows_at_the_real_width), [IDENTITY, INERT], "facts/upstream-padding.md 3.1 V-13", "rows of w2 stored at their real width, padding after the last";
    "scales-at-the-real-width", Bytes(grids::scales_at_the_real_width), [INERT, SCALES], "M9, M26", "weights are padded, rows of scales stored at their real width";
    "w2-and-scales-at-the-real-width", Bytes(grids::second_at_the_real_width), [IDENTITY, INERT], "M8, M9", "rows of w2 and of its scales stored at their real width, padding after the last";
    "w13-padded-on-hidden", Bytes(grids::w13_padded_on_hidden), [IDENTITY, INERT], "M8", "w13 and its scales padded along their hidden axis";
    "nongated-rows-at-the-real-stride", Bytes(grids::nongated_rows_at_the_real_stride), [IDENTITY, INERT, ROUND_TRIP], "M6", "experts of a non-gated w13 stored at their real rows";
    "nongated-rows-at-the-double-stride", Bytes(grids::nongated_rows_at_the_double_stride), [IDENTITY, INERT, ROUND_TRIP], "M7", "experts of a non-gated w13 stored at twice their rows";
    "second-half-scales-early", Bytes(grids::second_half_scales_early), [INERT, SCALES], "M13", "scales of the second half begin inside the first's last block";
    "pad-nibble-first", Bytes(grids::pad_nibble_first), [IDENTITY, INERT, ROUND_TRIP], "M35", "the pad nibble before the last real one where their number is odd";
    "requantised-over-garbage", Bytes(quantised::requantised_over_garbage), [IDENTITY, INERT], "M29", "gate and up made anew under a scale taken over a dirty tail";
    "empty-blocks-quantised", Bytes(quantised::empty_blocks_quantised), [IDENTITY, INERT], "M30", "blocks of padding quantised without a floor under their scale: 0 / 0";
    "swapped-at-the-wrong-length", Bytes(grids::swapped_at_the_wrong_length), [IDENTITY, INERT], "M3", "halves swapped at the unpadded length";
    "tails-kept-on-reload", Reload(reload::tails_kept), [RELOAD], "M16, facts/reports.md B71", "a reload does not clear the tails again";
    "halves-not-swapped-on-reload", Reload(reload::halves_not_swapped), [RELOAD], "facts/reports.md B68", "a reload writes gate where up belongs";
    "real-width-kept-on-reload", Reload(reload::real_width_kept), [RELOAD], "M38", "a reload writes rows of w2 at their real width into padded buffers";
    "sliced-wrong", Output(outputs::sliced_wrong), [IDENTITY, HIDDEN], "M23", "the output is cut at the padded stride";
    "pad-row-reduced", Output(outputs::pad_row_reduced), [TOKEN], "M37", "a pad row is reduced into a real token";
    "identity-on-every-rank", Output(outputs::identity_on_every_rank), [IDENTITY, TP_SUM], "facts/upstream-padding.md 2.3, as M20", "what identity experts give is added once per rank";
    "identity-as-an-expert", Bytes(bytes::identity_as_an_expert), [IDENTITY, TP_SUM], "facts/upstream-padding.md 2.3", "ids of identity experts remapped to expert 0, their weights kept";
    "identity-dropped", Output(outputs::identity_dropped), [IDENTITY, TP_SUM], "facts/upstream-padding.md 2.3", "ids of identity experts left out, as those of experts on other ranks are";
    "batch-decides-order", Output(outputs::batch_decides_order), [TOKEN], "facts/feasibility.md 5.4, 3", "other bits for several tokens, as a tile chosen by the batch size gives";
    "width-decides-order", Output(outputs::width_decides_order), [IDENTITY, DEVICE], "facts/feasibility.md 5.4, 2", "other bits where the width is padded, as split-K chosen from it gives";
    "hidden-decides-order", Output(outputs::hidden_decides_order), [HIDDEN], "facts/feasibility.md 5.4, 2", "other bits where the hidden size is padded, as split-K chosen from it gives";
    "stray-write", Output(outputs::stray_write), [GUARD], "facts/reports.md B87", "a write past the end of a buffer";
    "ties-to-the-higher-id", Output(outputs::ties_to_the_higher_id), [ROUTE], "facts/peers.md F13", "ties between experts go to the higher id";
    "weights-not-renormalised", Output(outputs::weights_not_renormalised), [ROUTE], "facts/upstream-padding.md 2.3", "routing weights are not divided by their sum";
    "largest-logit-kept", Output(outputs::largest_logit_kept), [ROUTE], "facts/upstream-padding.md 2.3", "softmax of logits whose largest is not taken off: infinity over infinity";
    "mixer-not-masked", Output(outputs::mixer_not_masked), [ROUTE], "facts/upstream-padding.md 2.3", "the sparse mixer's weights are taken over all experts, not over the survivors";
    "ranks-averaged", Output(outputs::ranks_averaged), [TP_SUM], "facts/upstream-padding.md 3.1 V-1", "the ranks' outputs are averaged, not summed";
};
