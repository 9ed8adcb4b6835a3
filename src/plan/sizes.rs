//! The size formulas: rows of w13 and columns of w2 as each version of a stack computes them
//! (facts/upstream-padding.md 1.9).

use super::PlanError;
use super::arith::{lcm, padded, product, round_up};
use crate::rule::Sizes;

/// Rows of w13 and width of w2, both in elements.
pub(super) struct Formula {
    pub(super) w13_rows: u64,
    pub(super) width_padded: u64,
}

/// Alignment of AITER's `get_moe_weight_sizes`, in stored units (facts/upstream-padding.md 1.2 A1).
const AITER_ALIGN: u64 = 128;

/// What `sizes` computes for a per-rank `width`; `consistent` is the split's padded width.
pub(super) fn formula(
    sizes: Sizes,
    width: u64,
    consistent: u64,
    halves: u64,
    packed: bool,
) -> Result<Formula, PlanError> {
    let (published, fp4_dtype) = match sizes {
        Sizes::Consistent => {
            let w13_rows = product("w13 rows", &[halves, consistent])?;
            return Ok(Formula {
                w13_rows,
                width_padded: consistent,
            });
        }
        Sizes::FirstOnly => {
            let w13_rows = product("w13 rows", &[halves, consistent])?;
            return Ok(Formula {
                w13_rows,
                width_padded: width,
            });
        }
        Sizes::AiterPublished => (true, true),
        Sizes::AiterPublishedNoFp4 => (true, false),
        Sizes::AiterShipped | Sizes::AiterConcat => (false, true),
        Sizes::AiterShippedNoFp4 => (false, false),
    };
    // Floor division of the packed width: an odd element is dropped (facts/peers.md F4).
    let stored = if packed { width / 2 } else { width };
    let stored_padded = padded("w2 width", stored, AITER_ALIGN)?;
    let factor = if packed { 2 } else { 1 };
    let mut w13_rows = product("w13 rows", &[halves, width])?;
    // Published: both corrections only where padding happened. Shipped: always.
    if !published || stored != stored_padded {
        if halves == 2 || sizes == Sizes::AiterConcat {
            w13_rows = product("w13 rows", &[2, stored_padded])?;
        }
        if packed && fp4_dtype {
            w13_rows = product("w13 rows", &[w13_rows, 2])?;
        }
    }
    Ok(Formula {
        w13_rows,
        width_padded: product("w2 width", &[stored_padded, factor])?,
    })
}

/// The alignment that TRT-LLM's trtllm-gen method for NVFP4 begins with; it is raised to 128 where no rank's
/// width is a multiple of that then (facts/upstream-padding.md 1.6 T4).
const TRTLLM_GEN_ALIGN: u64 = 32;

/// Columns of w2's scales that a rank gets where the method pads their number as if they were channels: to
/// the least common multiple of alignment, group and ranks, or, where a rank's share of that is no multiple of
/// the alignment, to that share rounded up on every rank. None where a size leaves its type.
pub(super) fn trtllm_gen_scales(i: u64, ranks: u64, align: u64, group: u64) -> Option<u64> {
    let least = round_up(i.div_ceil(ranks), TRTLLM_GEN_ALIGN)?;
    let align = match (group, align) {
        // NVFP4's alone: MXFP4's is 128 from the start.
        (16, 128) if least.is_multiple_of(128) => TRTLLM_GEN_ALIGN,
        _ => align,
    };
    let scales = i.div_ceil(group);
    let common = lcm(lcm(align, group)?, ranks)?;
    let share = round_up(scales, common)?.checked_div(ranks)?;
    let multiple = match share.is_multiple_of(align) {
        true => common,
        false => round_up(share, align)?.checked_mul(ranks)?,
    };
    let padded = round_up(scales, multiple.checked_div(group)?.max(1))?;
    Some(padded.div_ceil(ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// facts/upstream-padding.md 1.6 T4: 4096 channels of a rank have 256 scales. Nemotron-3-Ultra on 4 ranks and
    /// Nemotron-3-Super on 2: 1280 have 80, 1408 have 88; gpt-oss on 8: 384 of MXFP4 have 12.
    #[test]
    fn scales_padded_as_channels_are_others_than_the_weights_need() {
        assert_eq!(trtllm_gen_scales(32_000, 8, 128, 16), Some(250));
        assert_eq!(trtllm_gen_scales(5120, 4, 128, 16), Some(84));
        assert_eq!(trtllm_gen_scales(2688, 2, 128, 16), Some(84));
        assert_eq!(trtllm_gen_scales(2880, 8, 128, 32), Some(12));
        assert_eq!(trtllm_gen_scales(2048, 8, 128, 16), Some(16));
        for width in 1..=4096_u64 {
            let alone = trtllm_gen_scales(width, 1, 128, 32);
            assert_eq!(alone, Some(width.next_multiple_of(128) / 32), "{width}");
        }
    }

    fn sizes(s: Sizes, width: u64, gated: bool, packed: bool) -> (u64, u64) {
        let f = formula(s, width, width, if gated { 2 } else { 1 }, packed).unwrap();
        (
            f.w13_rows,
            if packed {
                f.width_padded / 2
            } else {
                f.width_padded
            },
        )
    }

    /// facts/upstream-padding.md 1.9, row by row; w2 in stored units as there.
    #[test]
    fn the_truth_table_of_the_survey_is_reproduced() {
        use Sizes::*;
        let rows = [
            (
                true,
                false,
                192,
                AiterPublished,
                (512, 256),
                AiterShipped,
                (512, 256),
            ),
            (
                true,
                true,
                192,
                AiterPublished,
                (512, 128),
                AiterShipped,
                (512, 128),
            ),
            (
                true,
                true,
                256,
                AiterPublished,
                (512, 128),
                AiterShipped,
                (512, 128),
            ),
            (
                true,
                true,
                192,
                AiterPublishedNoFp4,
                (256, 128),
                AiterShippedNoFp4,
                (256, 128),
            ),
            (
                true,
                true,
                256,
                AiterPublishedNoFp4,
                (512, 128),
                AiterShippedNoFp4,
                (256, 128),
            ),
            (
                false,
                false,
                192,
                AiterPublished,
                (192, 256),
                AiterShipped,
                (192, 256),
            ),
            (
                false,
                false,
                256,
                AiterPublished,
                (256, 256),
                AiterShipped,
                (256, 256),
            ),
            (
                false,
                true,
                192,
                AiterPublished,
                (384, 128),
                AiterShipped,
                (384, 128),
            ),
            (
                false,
                true,
                256,
                AiterPublished,
                (256, 128),
                AiterShipped,
                (512, 128),
            ),
        ];
        for (gated, packed, width, a, want_a, b, want_b) in rows {
            assert_eq!(sizes(a, width, gated, packed), want_a, "{a:?} {width}");
            assert_eq!(sizes(b, width, gated, packed), want_b, "{b:?} {width}");
        }
    }

    /// facts/peers.md F1 to F4: how many of the widths 1..=4096 each form gets wrong.
    #[test]
    fn published_forms_are_wrong_at_as_many_widths_as_the_survey_found() {
        let wrong = |s, gated, packed| {
            (1..=4096u64)
                .filter(|&w| {
                    let (rows, stored) = sizes(s, w, gated, packed);
                    let elements = if packed { stored * 2 } else { stored };
                    rows != elements * if gated { 2 } else { 1 } || elements < w
                })
                .count()
        };
        assert_eq!(wrong(Sizes::AiterShipped, false, false), 4064, "F1");
        assert_eq!(wrong(Sizes::AiterShipped, false, true), 4095, "F2");
        assert_eq!(wrong(Sizes::AiterShippedNoFp4, true, true), 4096, "F3");
        assert_eq!(
            wrong(Sizes::AiterShipped, true, true),
            16,
            "F4: one past a multiple of 256"
        );
        assert_eq!(wrong(Sizes::AiterShipped, true, false), 0);
        // Callers that always say "concatenated" give weights without a gate twice the rows.
        assert_eq!(wrong(Sizes::AiterConcat, true, false), 0);
        assert_eq!(wrong(Sizes::AiterConcat, false, false), 4096);
        assert_eq!(sizes(Sizes::AiterShipped, 961, false, false), (961, 1024));
    }
}
