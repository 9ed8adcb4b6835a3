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
        Storage::TritonHopperValue if dtype == Dtype::E2m1 => storage,
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

/// Rows, and bytes of a row, as stored.
pub(super) fn stored(storage: Storage, rows: usize, row_bytes: usize) -> (usize, usize) {
    match storage {
        Storage::TritonHopperValue => (rows.next_multiple_of(256), row_bytes.next_multiple_of(64)),
        _ => (rows, row_bytes),
    }
}

/// Bytes of a weight row that Hopper's layout deals out to the threads of a tile.
pub(super) const DEAL: usize = 32;

/// Bytes `n * DEAL` and on of a row, two codes each, from an expert in triton_kernels' Hopper
/// layout with rows of `row_bytes` bytes.
pub(super) fn dealt(expert: &[u8], row_bytes: usize, row: usize, n: usize) -> [u8; DEAL] {
    std::array::from_fn(|byte| {
        let place = walk([
            (row / 16, 1),
            (row / 2 % 4, 4),
            (n, row_bytes / DEAL),
            (row % 2, 2),
            (byte % 4, 4),
            (byte / 8, 4),
            (byte / 4 % 2, 2),
            (row / 8 % 2, 2),
        ]);
        // Of every four bytes, the low nibbles are in the first two, bits interleaved.
        let (group, one) = (place / 4 * 4, place % 4);
        let code = |at: usize| {
            let word = u16::from_le_bytes([expert[at], expert[at + 1]]);
            let bit = |n: u32| (word >> n & 1) as u8;
            let [sign, high, middle, low] = match one {
                0 => [15, 8, 7, 6],
                1 => [12, 5, 4, 3],
                2 => [9, 2, 1, 0],
                _ => [14, 11, 10, 13],
            };
            bit(sign) << 3 | bit(high) << 2 | bit(middle) << 1 | bit(low)
        };
        code(group) | code(group + 2) << 4
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_byte_of_storage_is_one_scale() {
        for &storage in Storage::ALL.iter().filter(|s| !s.of_weights()) {
            let (rows, cols) = (512, 24);
            let places = (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c)));
            let bytes: BTreeSet<usize> = places
                .map(|(r, c)| scale_byte(storage, (rows, cols), r, c))
                .collect();
            assert_eq!(bytes.len(), rows * cols, "{storage}");
            assert_eq!(bytes.last(), Some(&(rows * cols - 1)), "{storage}");
        }
    }

    #[test]
    fn a_permuted_bias_is_read_back_in_order() {
        // Stored place n holds the row that goes there (facts/upstream-padding.md 1.4 F5).
        let goes_to = [0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27];
        let mut stored = vec![0.0; 64];
        for row in 0..64 {
            let (half, place) = (row % 32 / 16, goes_to[row % 16]);
            stored[row / 32 * 32 + place + 4 * half] = row as f32;
        }
        let wanted: Vec<f32> = (0..64).map(|row| row as f32).collect();
        assert_eq!(in_order(Storage::Rows32, &stored, 64), wanted);
        assert_eq!(in_order(Storage::Linear, &wanted, 32), wanted);
    }

    #[test]
    fn a_dealt_row_has_each_code_in_its_nibble() {
        // Two rows of 64 bytes; the first word of row 0: bytes 0 and 4 of rows 0 and 8.
        let mut expert = vec![0u8; 256 * 64];
        // Byte 0's low nibble is -6 (bits 15, 8, 7, 6), byte 4's high nibble 0.5 (bit 0 of 9, 2, 1, 0).
        expert[..4].copy_from_slice(&0x0001_81c0u32.to_le_bytes());
        let row = dealt(&expert, 64, 0, 0);
        assert_eq!((row[0], row[4]), (0x0f, 0x10));
        assert!(dealt(&expert, 64, 1, 0).iter().all(|&b| b == 0));
    }
}
