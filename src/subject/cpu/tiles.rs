//! Where scales and weight rows stand in storage that is not row-major.
//!
//! It must not share a formula with `layout`: places are walked digit by digit, from the shapes
//! that the stacks write down (sources at `layout::Grid`). Layer 5.

use crate::num::Dtype;
use crate::terms::Storage;

/// Bytes of a weight row that the 16x16 shuffle keeps together.
pub(super) const PIECE: usize = 16;

/// The layout of scales of `dtype`: tiles hold bytes, and all but two of them E8M0 alone.
pub(super) fn of_scales(storage: Storage, dtype: Dtype) -> Storage {
    match (storage, dtype) {
        (Storage::Tiled128x4 | Storage::Tiled8x4, Dtype::E4m3 | Dtype::E8m0) => storage,
        (
            Storage::TritonBlackwell
            | Storage::TritonHopper
            | Storage::TritonCdna4
            | Storage::Aiter256x8
            | Storage::AiterN32k4
            | Storage::DeepGemm,
            Dtype::E8m0,
        ) => storage,
        _ => Storage::Linear,
    }
}

/// Rows and columns of scales that a layout stores in whole numbers of.
pub(super) fn scale_granules(storage: Storage) -> (usize, usize) {
    match storage {
        Storage::Tiled128x4 => (128, 4),
        Storage::Tiled8x4 => (8, 4),
        Storage::TritonBlackwell => (128, 8),
        Storage::TritonHopper => (256, 2),
        Storage::TritonCdna4 => (32, 8),
        Storage::Aiter256x8 => (256, 8),
        Storage::AiterN32k4 => (32, 4),
        Storage::DeepGemm => (4, 4),
        _ => (1, 1),
    }
}

/// The byte of scale (row, col) within an expert of `rows` x `cols` scales.
pub(super) fn scale_byte(
    storage: Storage,
    (rows, cols): (usize, usize),
    row: usize,
    col: usize,
) -> usize {
    match storage {
        Storage::Tiled128x4 | Storage::TritonBlackwell => walk([
            (row / 128, rows / 128),
            (col / 4, cols / 4),
            (row % 32, 32),
            (row / 32 % 4, 4),
            (col % 4, 4),
        ]),
        Storage::Tiled8x4 => walk([
            (row / 8, rows / 8),
            (col / 4, cols / 4),
            (row % 8, 8),
            (col % 4, 4),
        ]),
        // Rows are (slab, 2, warp of 8, 2, 8) and columns (pair, 2) before they are permuted.
        Storage::TritonHopper => walk([
            (row / 256, rows / 256),
            (row / 16 % 8, 8),
            (col / 2, cols / 2),
            (row / 128 % 2, 2),
            (row % 8, 8),
            (col % 2, 2),
            (row / 8 % 2, 2),
        ]),
        Storage::TritonCdna4 | Storage::Aiter256x8 => walk([
            (row / 32, rows / 32),
            (col / 8, cols / 8),
            (col % 4, 4),
            (row % 16, 16),
            (col / 4 % 2, 2),
            (row / 16 % 2, 2),
        ]),
        Storage::AiterN32k4 => walk([
            (row / 32, rows / 32),
            (col / 4, cols / 4),
            (row % 32, 32),
            (col % 4, 4),
        ]),
        Storage::DeepGemm => walk([(col / 4, cols / 4), (row, rows), (col % 4, 4)]),
        _ => walk([(row, rows), (col, cols)]),
    }
}

/// Position in a shape: (digit, how many there are), largest first.
fn walk<const N: usize>(digits: [(usize, usize); N]) -> usize {
    digits
        .iter()
        .fold(0, |at, (digit, count)| at * count + digit)
}

/// The layout of weights of `dtype`.
pub(super) fn of_weights(storage: Storage, dtype: Dtype) -> Storage {
    match storage {
        Storage::Shuffle16x16 if dtype != Dtype::Int4 => storage,
        Storage::Rows16 | Storage::Rows32 => storage,
        _ => Storage::Linear,
    }
}

/// Rows, and bytes of a row, that a layout of weights stores in whole numbers of.
pub(super) fn weight_granules(storage: Storage) -> (usize, usize) {
    match storage {
        Storage::Shuffle16x16 => (16, PIECE),
        Storage::Rows16 => (16, 1),
        Storage::Rows32 => (32, 1),
        _ => (1, 1),
    }
}

/// The first byte of piece `n` of a row, within an expert whose rows have `row_bytes` bytes: piece
/// by piece, sixteen rows take turns.
pub(super) fn piece(row_bytes: usize, row: usize, n: usize) -> usize {
    let band = row / 16;
    walk([
        (band, band + 1),
        (n, row_bytes / PIECE),
        (row % 16, 16),
        (0, PIECE),
    ])
}

/// Where a row stands among the rows.
pub(super) fn row_place(storage: Storage, row: usize) -> usize {
    // Source to target, block by block (facts/upstream-padding.md 1.4 F5).
    const OF_16: [usize; 16] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];
    match storage {
        Storage::Rows16 => row - row % 16 + OF_16[row % 16],
        // Every fourth row goes to the first eight, the next ones to the second eight, and so on.
        Storage::Rows32 => row - row % 32 + row % 4 * 8 + row % 32 / 4,
        _ => row,
    }
}

/// A bias in the order of the rows, from its stored order.
pub(super) fn in_order(storage: Storage, stored: &[f32], rows: usize) -> Vec<f32> {
    stored
        .chunks(rows.max(1))
        .flat_map(|expert| (0..expert.len()).map(|row| expert[row_place(storage, row)]))
        .collect()
}
