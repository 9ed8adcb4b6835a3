//! The eight split rules: how the intermediate axis is cut over the ranks
//! (facts/upstream-padding.md 1.0), one function each.

use super::PlanError;
use super::arith::{lcm, padded, product};
use crate::terms::Split;

/// The outcome of a split, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Largest logical width a rank may hold before padding.
    pub width: u64,
    /// Width of every rank's buffers.
    pub width_padded: u64,
    /// (start, len) of the logical channels of each rank, in rank order.
    pub ranges: Vec<(u64, u64)>,
    /// The rule wants `i` divisible by the ranks and it is not.
    pub indivisible: bool,
}

/// Cuts `i` channels over `ranks` with buffers aligned to `align`; `block` is the scale block along
/// the axis (1 if none). All at least 1.
///
/// # Errors
/// [`PlanError::Overflow`] when a padded size leaves 64 bits.
pub fn cut(split: Split, i: u64, ranks: u64, align: u64, block: u64) -> Result<Cut, PlanError> {
    match split {
        Split::Floor => floor(i, ranks, align),
        Split::Stride => stride(i, ranks, align),
        Split::CeilBlock => ceil_block(i, ranks, align, block),
        Split::Ceil => ceil(i, ranks, align),
        Split::Prepad => prepad(i, ranks, align, block),
        Split::RankChunk => rank_chunk(i, ranks, align),
        Split::Config => config(i, ranks, align),
        Split::Error => error(i, ranks),
    }
}

/// Ranges [r step, (r+1) step) clipped to `i`.
pub(super) fn strided(i: u64, ranks: u64, step: u64) -> Vec<(u64, u64)> {
    (0..ranks)
        .map(|r| {
            let start = r.saturating_mul(step).min(i);
            (start, step.min(i - start))
        })
        .collect()
}

/// R-floor: equal exact shares, each padded at its tail.
pub(super) fn floor(i: u64, ranks: u64, align: u64) -> Result<Cut, PlanError> {
    let width = i.div_ceil(ranks);
    Ok(Cut {
        width,
        width_padded: padded("width", width, align)?,
        ranges: strided(i, ranks, width),
        indivisible: !i.is_multiple_of(ranks),
    })
}

/// R-stride: the padded width is the stride, so the last ranks may be short or empty.
pub(super) fn stride(i: u64, ranks: u64, align: u64) -> Result<Cut, PlanError> {
    let width = i.div_ceil(ranks);
    let width_padded = padded("width", width, align)?;
    Ok(Cut {
        width,
        width_padded,
        ranges: strided(i, ranks, width_padded),
        indivisible: false,
    })
}

/// R-ceilblock: whole scale blocks per rank, the last rank short.
pub(super) fn ceil_block(i: u64, ranks: u64, align: u64, block: u64) -> Result<Cut, PlanError> {
    let step = product("width", &[i.div_ceil(block).div_ceil(ranks), block])?;
    let ranges = strided(i, ranks, step);
    let width = ranges[0].1;
    Ok(Cut {
        width,
        width_padded: padded("width", step, align)?,
        ranges,
        indivisible: false,
    })
}

/// R-ceil: ceil(i / ranks) each, the last rank short.
fn ceil(i: u64, ranks: u64, align: u64) -> Result<Cut, PlanError> {
    Ok(Cut {
        indivisible: false,
        ..floor(i, ranks, align)?
    })
}

/// R-prepad: the global axis is padded so that every rank's share is aligned, then cut equally.
pub(super) fn prepad(i: u64, ranks: u64, align: u64, block: u64) -> Result<Cut, PlanError> {
    let overflow = || PlanError::Overflow {
        what: "width",
        terms: format!("lcm({align}, {block})"),
    };
    let unit = product("width", &[lcm(align, block).ok_or_else(overflow)?, ranks])?;
    let width_padded = padded("width", i, unit)? / ranks;
    let width = i.div_ceil(ranks);
    Ok(Cut {
        width,
        width_padded,
        ranges: strided(i, ranks, width_padded),
        indivisible: false,
    })
}

/// R-rankchunk: as R-floor; what differs is that padding happens before loading.
fn rank_chunk(i: u64, ranks: u64, align: u64) -> Result<Cut, PlanError> {
    floor(i, ranks, align)
}

/// R-config: the model's size becomes a multiple of ranks * align before any layer exists.
fn config(i: u64, ranks: u64, align: u64) -> Result<Cut, PlanError> {
    let unit = product("width", &[align, ranks])?;
    let width_padded = padded("intermediate", i, unit)? / ranks;
    let width = i.div_ceil(ranks);
    Ok(Cut {
        width,
        width_padded,
        ranges: strided(i, ranks, width_padded),
        indivisible: false,
    })
}

/// R-error: nothing is padded; what does not divide is refused.
fn error(i: u64, ranks: u64) -> Result<Cut, PlanError> {
    floor(i, ranks, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn widths(split: Split, i: u64, ranks: u64, align: u64, block: u64) -> (Vec<u64>, u64) {
        let cut = cut(split, i, ranks, align, block).unwrap();
        (cut.ranges.iter().map(|r| r.1).collect(), cut.width_padded)
    }

    fn shares(pairs: &[(u64, usize)]) -> Vec<u64> {
        pairs
            .iter()
            .flat_map(|&(w, n)| std::iter::repeat_n(w, n))
            .collect()
    }

    /// facts/upstream-padding.md 1.10, row by row.
    #[test]
    fn worked_splits_of_the_survey_are_reproduced() {
        type Row = (Split, u64, u64, u64, u64, &'static [(u64, usize)], u64);
        let rows: &[Row] = &[
            (Split::Floor, 7688, 8, 16, 1, &[(961, 8)], 976),
            (Split::Stride, 7688, 8, 128, 1, &[(1024, 7), (520, 1)], 1024),
            (Split::Stride, 1536, 8, 128, 1, &[(256, 6), (0, 2)], 256),
            (
                Split::Stride,
                1408,
                8,
                128,
                1,
                &[(256, 5), (128, 1), (0, 2)],
                256,
            ),
            (Split::Stride, 1280, 8, 128, 1, &[(256, 5), (0, 3)], 256),
            (Split::Stride, 3072, 16, 128, 1, &[(256, 12), (0, 4)], 256),
            (Split::Stride, 2688, 8, 128, 1, &[(384, 7), (0, 1)], 384),
            (Split::Stride, 1856, 8, 128, 1, &[(256, 7), (64, 1)], 256),
            (Split::Stride, 704, 2, 64, 1, &[(384, 1), (320, 1)], 384),
            (Split::CeilBlock, 2880, 4, 1, 32, &[(736, 3), (672, 1)], 736),
            (Split::CeilBlock, 2880, 8, 1, 32, &[(384, 7), (192, 1)], 384),
            (Split::Floor, 2880, 4, 1, 32, &[(720, 4)], 720),
            // facts/reports.md B16: pad-then-split of 640 over 4 with granule 64.
            (Split::Prepad, 640, 4, 64, 16, &[(192, 3), (64, 1)], 192),
        ];
        for &(split, i, ranks, align, block, want, padded) in rows {
            assert_eq!(
                widths(split, i, ranks, align, block),
                (shares(want), padded),
                "{split} {i} over {ranks}"
            );
        }
    }

    proptest! {
        /// V-1: over the ranks, the ranges tile [0, i) exactly once; V-18: the padded width is aligned.
        #[test]
        fn every_split_partitions_the_axis(
            which in 0..Split::ALL.len(), i in 1u64..100_000, ranks in 1u64..65,
            align_log in 0u32..9, block_log in 0u32..8,
        ) {
            let (align, block) = (1 << align_log, 1 << block_log);
            let split = Split::ALL[which];
            let cut = cut(split, i, ranks, align, block).unwrap();
            let mut next = 0;
            for &(start, len) in &cut.ranges {
                prop_assert_eq!(start, next);
                prop_assert!(len <= cut.width_padded);
                next += len;
            }
            prop_assert_eq!(next, i);
            if split != Split::Error {
                prop_assert_eq!(cut.width_padded % align, 0);
            }
            prop_assert!(cut.width <= cut.width_padded);
        }
    }
}
