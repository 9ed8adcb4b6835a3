//! Scale grids: how many blocks a rank holds, and whether its shard can have them at all.

use super::arith::{gcd, padded, product};
use super::{PlanError, RankPlan, ScalePlan};
use crate::num::Dtype;
use crate::rule::PadValue;
use crate::terms::{Extent, ScaleGrid, Storage};

/// A rank whose shard begins inside a scale block that the rule cannot refine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Straddle {
    pub(super) rank: u64,
    pub(super) start: u64,
    pub(super) block: u64,
    /// The finer block that would represent every rank without loss.
    pub(super) finer: u64,
}

/// The block a rank's grid needs along the cut axis: the checkpoint's, or a finer one.
///
/// Local block b covers [start + b g, start + (b+1) g); it must lie inside one block of the
/// checkpoint. That holds when g divides every start, or when the shard lies inside one block.
pub(super) fn local_block(block: u64, ranks: &[RankPlan]) -> Result<u64, Straddle> {
    let straddles = |r: &&RankPlan| {
        let offset = r.start % block;
        r.len > 0 && offset != 0 && offset.checked_add(r.len).is_none_or(|end| end > block)
    };
    let finer = ranks
        .iter()
        .filter(|r| r.len > 0 && straddles(r))
        .fold(block, |g, r| gcd(g, r.start));
    match ranks.iter().find(straddles) {
        None => Ok(block),
        Some(r) => Err(Straddle {
            rank: r.rank,
            start: r.start,
            block,
            finer,
        }),
    }
}

/// The code that a fill writes into a padding element of `dtype`.
pub(super) fn pad_code(dtype: Dtype, fill: PadValue) -> u32 {
    match fill {
        // What the memory held has no code; plans say so.
        PadValue::Zero | PadValue::Uninitialised => 0,
        // 1.0 stands for a value of the tensor, which is not known before loading.
        PadValue::One | PadValue::Existing => dtype.one_code(),
        PadValue::ByteOne => 1,
        PadValue::DecodeZero => dtype.zero_code().unwrap_or(0),
    }
}

/// One axis of a grid on a rank.
struct AxisBlocks {
    local: u64,
    source: u64,
    logical: u64,
    padded: u64,
}

fn axis(extent: Extent, local: Option<u64>, logical: u64, padded: u64) -> AxisBlocks {
    match extent {
        Extent::All => AxisBlocks {
            local: 0,
            source: 0,
            logical: 1,
            padded: 1,
        },
        Extent::Block(source) => {
            let local = local.unwrap_or(source);
            AxisBlocks {
                local,
                source,
                logical: logical.div_ceil(source),
                padded: padded.div_ceil(local),
            }
        }
    }
}

/// Sizes of one weight tensor that its scale grid follows, in elements: logical and padded rows
/// and columns, and the local block along the cut axis.
pub(super) struct Extents {
    /// 2 for a gated w13, else 1: rows are counted per half.
    pub(super) halves: u64,
    pub(super) rows: (u64, u64),
    pub(super) cols: (u64, u64),
    pub(super) row_local: Option<u64>,
    pub(super) col_local: Option<u64>,
}

/// The grid of one weight tensor.
pub(super) fn grid(
    grid: ScaleGrid,
    extents: &Extents,
    storage: Storage,
    fill: PadValue,
) -> Result<ScalePlan, PlanError> {
    let rows = axis(grid.rows, extents.row_local, extents.rows.0, extents.rows.1);
    let cols = axis(grid.cols, extents.col_local, extents.cols.0, extents.cols.1);
    let rows_padded = product("scale rows", &[extents.halves, rows.padded])?;
    let (tile_rows, tile_cols) = storage.of(grid.dtype).tile();
    Ok(ScalePlan {
        dtype: grid.dtype,
        row_block: rows.local,
        row_block_source: rows.source,
        col_block: cols.local,
        col_block_source: cols.source,
        rows_logical: product("scale rows", &[extents.halves, rows.logical])?,
        cols_logical: cols.logical,
        rows_padded,
        cols_padded: cols.padded,
        rows_stored: padded("scale rows", rows_padded, tile_rows)?,
        cols_stored: padded("scale columns", cols.padded, tile_cols)?,
        pad_code: pad_code(grid.dtype, fill),
    })
}

/// Blocks along an axis of `n` elements.
#[cfg(test)]
pub(super) fn logical_blocks(n: u64, block: u64) -> u64 {
    let blocks = axis(Extent::Block(block), None, n, n);
    assert_eq!(blocks.logical, blocks.padded);
    blocks.logical
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(ranges: &[(u64, u64)]) -> Vec<RankPlan> {
        (0..)
            .zip(ranges)
            .map(|(rank, &(start, len))| RankPlan {
                rank,
                start,
                len,
                expert_start: 0,
                expert_len: 1,
            })
            .collect()
    }

    /// facts/reports.md B06: 1536 over 8 with block 128.
    #[test]
    fn a_shard_of_one_and_a_half_blocks_straddles_and_64_would_do() {
        let all: Vec<_> = (0..8).map(|r| (192 * r, 192)).collect();
        let straddle = local_block(128, &ranks(&all)).unwrap_err();
        assert_eq!(
            (straddle.rank, straddle.start, straddle.finer),
            (1, 192, 64)
        );
    }

    /// facts/reports.md B12: 64-wide shards lie inside one block, so one scale per rank is exact.
    #[test]
    fn a_shard_inside_one_block_needs_no_finer_grid() {
        let all: Vec<_> = (0..8).map(|r| (64 * r, 64)).collect();
        assert_eq!(local_block(128, &ranks(&all)), Ok(128));
    }

    /// facts/reports.md B57: 2880 over 8 cut by elements, block 32.
    #[test]
    fn elements_of_360_straddle_blocks_of_32() {
        let all: Vec<_> = (0..8).map(|r| (360 * r, 360)).collect();
        let straddle = local_block(32, &ranks(&all)).unwrap_err();
        assert_eq!((straddle.rank, straddle.finer), (1, 8));
    }

    #[test]
    fn empty_ranks_never_straddle() {
        assert_eq!(local_block(128, &ranks(&[(0, 100), (100, 0)])), Ok(128));
    }
}
