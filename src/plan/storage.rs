//! What storage layouts ask of the padded sizes, where a stack refuses instead of padding.
//!
//! It must not place elements. Layer 3.

use super::arith::lcm;
use super::violations::group_needed;
use super::{Effect, Plan, Unit, Violation};
use crate::num::Dtype;
use crate::terms::{Storage, Stores, WeightFormat};

/// Rows and columns (in elements of K) that the weights of a format must be multiples of.
struct Granules {
    scale_rows: u64,
    scale_cols: u64,
    weight_rows: u64,
    weight_cols: u64,
}

fn granules(weight: WeightFormat, stores: Stores) -> Granules {
    let scale_dtype = weight.scale().map_or(Dtype::F32, |grid| grid.dtype);
    let scales = stores.scales.of(scale_dtype);
    let weights = stores.weights.of(weight.element());
    let (scale_rows, scale_cols) = scales.needs();
    let (mut weight_rows, weight_cols) = weights.needs();
    // Tiles of 128 rows follow the permuted rows (facts/upstream-padding.md 1.4 F5, `shuffle_matrix_sf_a`).
    if weights.row_block() > 1 && scales == Storage::Tiled128x4 {
        weight_rows = 128;
    }
    let stored = if weight.element().bits() == 4 { 2 } else { 1 };
    Granules {
        scale_rows,
        scale_cols: scale_cols * group_needed(weight),
        weight_rows,
        weight_cols: weight_cols * stored,
    }
}

/// The granule of the hidden and per-rank intermediate axes, in elements, that the storage of a
/// layer asks for: each is rows of one projection and K of the other.
pub fn storage_granule(weight: WeightFormat, stores: Stores) -> u64 {
    let g = granules(weight, stores);
    [g.scale_cols, g.weight_rows, g.weight_cols]
        .into_iter()
        .fold(g.scale_rows, |all, one| {
            lcm(all, one).expect("every granule is a small power of two")
        })
}

/// Sizes that the storage layouts of a plan cannot hold.
pub(super) fn storage_violations(plan: &Plan, found: &mut Vec<Violation>) {
    let stores = Stores {
        scales: plan.storage,
        weights: plan.weight_storage,
    };
    let g = granules(plan.weight, stores);
    let mut claim = |axis, value: u64, granule: u64, storage: Storage| {
        if !value.is_multiple_of(granule) {
            found.push(Violation {
                code: "PP123",
                axis,
                value,
                unit: Unit::Elements,
                granule,
                message: format!("{storage} moves whole tiles of {granule} and pads nothing"),
                effect: Effect::Refused,
            });
        }
    };
    let (width, hidden, rows) = (plan.width_padded, plan.hidden_padded, plan.w13_rows);
    let (scales, weights) = (stores.scales, stores.weights);
    claim("w13 rows", rows, g.weight_rows, weights);
    claim("w2 rows", hidden, g.weight_rows, weights);
    claim("hidden", hidden, g.weight_cols, weights);
    claim("intermediate", width, g.weight_cols, weights);
    if g.scale_rows > 1 || g.scale_cols > group_needed(plan.weight) {
        claim("w13 scale rows", rows, g.scale_rows, scales);
        claim("w2 scale rows", hidden, g.scale_rows, scales);
        claim("hidden", hidden, g.scale_cols, scales);
        claim("intermediate", width, g.scale_cols, scales);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(line: &str) -> Plan {
        crate::plan::plan(&line.parse().unwrap()).unwrap()
    }

    #[test]
    fn storage_padding_is_part_of_a_tensors_bytes() {
        let line = "e=1,k=1,h=2880,i=720,act=relu2,w=mxfp4,store=triton-hopper-scale";
        let bare = planned(line);
        let plan = planned(&format!("{line}+triton-hopper-value"));
        // 720 rows to 768 and 1440 bytes to 1472; 90 scales are even.
        assert_eq!(plan.tensors[0].shape, [1, 768, 2944]);
        assert_eq!(plan.tensors[0].bytes, 768 * 1472);
        assert_eq!(bare.tensors[0].bytes, 736 * 1440);
        assert_eq!(plan.tensors[2].shape, [1, 768, 90]);
        assert_eq!(plan.fit, bare.fit);
    }

    #[test]
    fn a_size_between_tiles_is_refused() {
        let plan = planned("h=64,i=176,act=relu2,w=fp8,split=error,store=shuffle-16x16");
        let found: Vec<_> = plan
            .violations
            .iter()
            .map(|v| (v.code, v.axis, v.value))
            .collect();
        assert_eq!(found, [("PP123", "intermediate", 176)]);
        assert_eq!(plan.fit, crate::plan::Fit::Refused);
    }

    #[test]
    fn each_layout_asks_for_what_its_stack_asserts() {
        for (stores, weight, granule) in [
            ("linear", WeightFormat::F32, 1),
            ("linear", WeightFormat::Mxfp4, 32),
            // Thirty-two as stored: bytes of FP4, so 64 elements, and 32 elements of FP8 or bf16
            // (facts/upstream-padding.md A9).
            ("shuffle-16x16", WeightFormat::Mxfp4, 64),
            ("shuffle-16x16", WeightFormat::Fp8, 32),
            ("shuffle-16x16", WeightFormat::Bf16, 32),
            ("shuffle-16x16", WeightFormat::Int4G32, 32),
            // Four scales of 32 elements, on MX formats alone.
            ("aiter-n32k4", WeightFormat::Mxfp8, 128),
            ("aiter-n32k4", WeightFormat::Nvfp4, 16),
            ("triton-cdna4-scale", WeightFormat::Mxfp4, 256),
            // Padded by the layout itself.
            ("aiter-256x8", WeightFormat::Mxfp4, 32),
            ("shuffle-rows-32", WeightFormat::Bf16, 32),
            ("128x4+shuffle-rows-32", WeightFormat::Nvfp4, 128),
        ] {
            let actual = storage_granule(weight, stores.parse().unwrap());
            assert_eq!(actual, granule, "{stores} {weight}");
        }
    }
}
