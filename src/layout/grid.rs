//! How a padded grid becomes bytes: strides, nibbles, tiles.

use super::axis::Axis;
use super::error::LayoutError;
use super::interleaved;
use crate::terms::{Nibble, Storage};
use std::ops::Range;

/// Rows of a tile of the 128x4 layout (facts/upstream-padding.md 1.0, L-128x4).
const TILE_ROWS: usize = 128;
/// Columns of a tile of the 128x4 layout.
const TILE_COLS: usize = 4;
/// Warps of the Hopper scale layout: SGLang's and vLLM's choice, and triton_kernels' own benchmark's.
const HOPPER_WARPS: usize = 8;
/// Bits that the 16x16 shuffle moves as one: sixteen bytes of a row.
const SHUFFLE_BITS: usize = 128;

/// Where an element is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// First byte of the element.
    pub byte: usize,
    /// Bits to shift the byte right by: 4 for the high nibble, else 0. Where the bits of four codes
    /// share two bytes, which of the four.
    pub shift: u32,
}

/// How a padded grid of rows and columns becomes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Rows stored per expert.
    pub rows: usize,
    /// Elements stored per row; for nibbles an even number, the last one possibly unused.
    pub cols: usize,
    /// Bits of an element.
    pub bits: usize,
    /// Which element of a byte comes first.
    pub nibble: Nibble,
    /// Row-major, tiled or shuffled.
    pub storage: Storage,
}

impl Grid {
    /// Both axes as they are, rows in whole bytes.
    pub(super) fn row_major(bits: usize, nibble: Nibble, rows: &Axis, cols: &Axis) -> Grid {
        Grid {
            rows: rows.physical_len(),
            cols: cols.physical_len().next_multiple_of(8usize.div_ceil(bits)),
            bits,
            nibble,
            storage: Storage::Linear,
        }
    }

    /// Refuses a grid that does not fill the tiles of its layout.
    pub(super) fn whole_tiles(&self, tensor: &'static str) -> Result<(), LayoutError> {
        let (rows, cols) = self.tile();
        for (axis, value, granule) in [("rows", self.rows, rows), ("columns", self.cols, cols)] {
            if !value.is_multiple_of(granule) {
                return Err(LayoutError::Group {
                    tensor,
                    axis,
                    value,
                    granule,
                });
            }
        }
        Ok(())
    }

    /// Elements stored before the element at (e, r, c), in storage order.
    ///
    /// Every layout is a part of the row plus a part of the column.
    #[inline]
    pub fn index(&self, e: usize, r: usize, c: usize) -> usize {
        match self.storage {
            Storage::Linear => (e * self.rows + r) * self.cols + c,
            _ => e * self.rows * self.cols + self.row_part(r) + self.col_part(c),
        }
    }

    /// The part of an index that depends on the row, as digits from the largest to the smallest.
    ///
    /// - 128x4 and triton-blackwell-scale: (r/128, c/4, r%32, (r/32)%4, c%4), in the closed form
    ///   of facts/peers.md 2.2.
    /// - 8x4: (r/8, c/4, r%8, c%4) (flashinfer's quantiser, offset of a scale in its 8x4 layout).
    /// - triton-hopper-scale, w warps: (r/32w, (r/16)%w, c/2, (r/16w)%2, r%8, c%2, (r/8)%2)
    ///   (triton_kernels hopper_scale.py at 14dd7a19).
    /// - aiter-256x8 and triton-cdna4-scale: (r/32, c/8, c%4, r%16, (c/4)%2, (r/16)%2)
    ///   (aiter ops/shuffle.py, `shuffle_scale`; triton_kernels cdna4_scale.py at 02cca62a).
    /// - aiter-n32k4: (r/32, c/4, r%32, c%4) (aiter op_tests, test_grouped_b_scale_layout.py).
    /// - deepgemm-mn-major: (c/4, r, c%4) (facts/upstream-padding.md 1.0, L-deepgemm).
    /// - triton-hopper-value, in bytes b = c/2 of a row, mma version 3:
    ///   (r/16, (r/2)%4, b/32, r%2, b%4, (b/8)%4, (b/4)%2, (r/8)%2) and the nibble
    ///   (triton_kernels hopper_value.py at 000df03e).
    /// - shuffle-16x16, in chunks of sixteen bytes: (r/16, chunk, r%16, byte)
    ///   (facts/peers.md 2.2, `shuffle_weight`).
    pub(super) fn row_part(&self, r: usize) -> usize {
        match self.storage {
            Storage::Tiled128x4 | Storage::TritonBlackwell => self.tile_row(r),
            Storage::Tiled8x4 => r / 8 * 8 * self.cols + r % 8 * 4,
            Storage::TritonHopper => {
                let w = HOPPER_WARPS;
                let slab = r / (32 * w) * w + r / 16 % w;
                slab * 32 * self.cols + r / (16 * w) % 2 * 32 + r % 8 * 4 + r / 8 % 2
            }
            Storage::Aiter256x8 | Storage::TritonCdna4 => {
                r / 32 * 32 * self.cols + r % 16 * 4 + r / 16 % 2
            }
            Storage::AiterN32k4 => r / 32 * 32 * self.cols + r % 32 * 4,
            Storage::DeepGemm => r * 4,
            Storage::TritonHopperValue => {
                (r / 16 * 16 + r / 2 % 4 * 4) * self.cols + r % 2 * 128 + r / 8 % 2 * 2
            }
            Storage::Shuffle16x16 => r / 16 * 16 * self.cols + r % 16 * (SHUFFLE_BITS / self.bits),
            Storage::Linear | Storage::Rows16 | Storage::Rows32 => r * self.cols,
        }
    }

    /// The part of an index that depends on the column.
    pub(super) fn col_part(&self, c: usize) -> usize {
        match self.storage {
            Storage::Tiled128x4 | Storage::TritonBlackwell => tile_col(c),
            Storage::Tiled8x4 => c / 4 * 32 + c % 4,
            Storage::TritonHopper => c / 2 * 64 + c % 2 * 2,
            Storage::Aiter256x8 | Storage::TritonCdna4 => c / 8 * 256 + c % 4 * 64 + c / 4 % 2 * 2,
            Storage::AiterN32k4 => c / 4 * 128 + c % 4,
            Storage::DeepGemm => c / 4 * 4 * self.rows + c % 4,
            Storage::TritonHopperValue => {
                let b = c / 2;
                b / 32 * 256 + b % 4 * 32 + b / 8 % 4 * 8 + b / 4 % 2 * 4 + c % 2
            }
            Storage::Shuffle16x16 => {
                let chunk = SHUFFLE_BITS / self.bits;
                c / chunk * 16 * chunk + c % chunk
            }
            Storage::Linear | Storage::Rows16 | Storage::Rows32 => c,
        }
    }

    /// Columns whose elements follow each other in storage, from each multiple of it on.
    pub fn run(&self) -> usize {
        match self.storage {
            Storage::Linear | Storage::Rows16 | Storage::Rows32 => self.cols.max(1),
            Storage::Tiled128x4
            | Storage::TritonBlackwell
            | Storage::Tiled8x4
            | Storage::AiterN32k4
            | Storage::DeepGemm => 4,
            Storage::Shuffle16x16 => SHUFFLE_BITS / self.bits,
            _ => 1,
        }
    }

    /// From the beginning of a run to that of the next one of the row, where it is the same all along.
    fn stride(&self) -> Option<usize> {
        Some(match self.storage {
            Storage::Linear | Storage::Rows16 | Storage::Rows32 => self.cols.max(1),
            Storage::Tiled128x4 | Storage::TritonBlackwell => TILE_ROWS * TILE_COLS,
            Storage::Tiled8x4 => 32,
            Storage::AiterN32k4 => 128,
            Storage::DeepGemm => 4 * self.rows,
            Storage::Shuffle16x16 => 16 * (SHUFFLE_BITS / self.bits),
            _ => return None,
        })
    }

    /// Parts of a row's columns that follow each other in storage: the index at which each begins, and how
    /// many there are.
    #[inline]
    pub fn stretches(
        &self,
        (e, r): (usize, usize),
        cols: Range<usize>,
    ) -> impl Iterator<Item = (usize, usize)> {
        let (grid, run, stride) = (*self, self.run(), self.stride());
        let (mut c, mut within) = (cols.start, cols.start % run);
        let mut begins = self.index(e, r, c) - within;
        let row = self.index(e, r, 0);
        std::iter::from_fn(move || {
            let len = (run - within).min(cols.end.saturating_sub(c));
            let start = begins + within;
            (c, within) = (c + len, 0);
            begins = match stride {
                Some(stride) => begins + stride,
                None => row + grid.col_part(c),
            };
            (len > 0).then_some((start, len))
        })
    }

    /// What rows and columns must be multiples of for the layout to fill whole tiles.
    pub fn tile(&self) -> (usize, usize) {
        match self.storage {
            // Thirty-two stored units, that is bytes where two elements share one.
            Storage::Shuffle16x16 => (16, if self.bits == 4 { 64 } else { 32 }),
            Storage::TritonHopperValue => (256, 128),
            storage => {
                let size = |n| usize::try_from(n).expect("a tile has at most 256 rows");
                let (rows, cols) = storage.tile();
                (size(rows), size(cols))
            }
        }
    }

    /// The part of a 128x4 index that depends on the row.
    pub(super) fn tile_row(&self, r: usize) -> usize {
        (r / TILE_ROWS) * (self.cols / TILE_COLS) * (TILE_ROWS * TILE_COLS)
            + (r % 32) * 16
            + ((r % TILE_ROWS) / 32) * TILE_COLS
    }

    /// The place of the element with a storage index.
    #[inline]
    pub fn address(&self, index: usize) -> Address {
        if self.storage == Storage::TritonHopperValue {
            return interleaved::address(index, self.nibble);
        }
        let shift = match (self.bits, self.nibble) {
            (4, Nibble::Low) => 4 * (index % 2),
            (4, Nibble::High) => 4 * (1 - index % 2),
            _ => 0,
        };
        Address {
            byte: index * self.bits / 8,
            shift: if shift == 0 { 0 } else { 4 },
        }
    }

    /// Bytes that an element has a part of, from its address on.
    pub fn span(&self) -> usize {
        match self.storage {
            Storage::TritonHopperValue => 2,
            _ => self.bits.div_ceil(8),
        }
    }

    /// The code stored at a place.
    #[inline]
    pub fn read(&self, bytes: &[u8], at: Address) -> u32 {
        let b = |n: usize| u32::from(bytes[at.byte + n]);
        if self.storage == Storage::TritonHopperValue {
            return interleaved::get(b(0) | b(1) << 8, at.shift);
        }
        match self.bits {
            4 => (b(0) >> at.shift) & 0xf,
            8 => b(0),
            16 => b(0) | b(1) << 8,
            _ => b(0) | b(1) << 8 | b(2) << 16 | b(3) << 24,
        }
    }

    /// Stores a code at a place.
    #[inline]
    pub fn write(&self, bytes: &mut [u8], at: Address, code: u32) {
        let le = code.to_le_bytes();
        if self.storage == Storage::TritonHopperValue {
            let word = &mut bytes[at.byte..at.byte + 2];
            let old = u32::from(word[0]) | u32::from(word[1]) << 8;
            let new = interleaved::put(old, at.shift, code).to_le_bytes();
            word.copy_from_slice(&new[..2]);
            return;
        }
        match self.bits {
            4 => {
                let byte = &mut bytes[at.byte];
                *byte = (*byte & !(0xf << at.shift)) | (le[0] & 0xf) << at.shift;
            }
            bits => bytes[at.byte..at.byte + bits / 8].copy_from_slice(&le[..bits / 8]),
        }
    }
}

/// Whole rows.
impl Grid {
    /// Reads the first codes of a row of an expert, as many as `row` has.
    pub fn read_row(&self, bytes: &[u8], at: (usize, usize), row: &mut [u32]) {
        let mut done = 0;
        for (start, len) in self.stretches(at, 0..row.len()) {
            let part = &mut row[done..done + len];
            done += len;
            let whole = start * self.bits / 8..(start + len) * self.bits / 8;
            match self.bits {
                8 => {
                    for (code, byte) in part.iter_mut().zip(&bytes[whole]) {
                        *code = u32::from(*byte);
                    }
                }
                16 => {
                    for (code, two) in part.iter_mut().zip(bytes[whole].as_chunks::<2>().0) {
                        *code = u32::from(u16::from_le_bytes(*two));
                    }
                }
                32 => {
                    for (code, four) in part.iter_mut().zip(bytes[whole].as_chunks::<4>().0) {
                        *code = u32::from_le_bytes(*four);
                    }
                }
                _ => {
                    for (n, code) in part.iter_mut().enumerate() {
                        *code = self.read(bytes, self.address(start + n));
                    }
                }
            }
        }
    }

    /// Writes codes to the beginning of a row of an expert.
    pub fn write_row(&self, bytes: &mut [u8], at: (usize, usize), row: &[u32]) {
        let mut done = 0;
        for (start, len) in self.stretches(at, 0..row.len()) {
            for (n, code) in row[done..done + len].iter().enumerate() {
                self.write(bytes, self.address(start + n), *code);
            }
            done += len;
        }
    }
}

/// The part of a 128x4 index that depends on the column.
pub(super) fn tile_col(c: usize) -> usize {
    (c / TILE_COLS) * (TILE_ROWS * TILE_COLS) + c % TILE_COLS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a stretch begins and ends with, it is the elements one by one.
    #[test]
    fn stretches_of_a_row_are_its_elements_in_storage_order() {
        let all = Storage::ALL.iter().flat_map(|&storage| match storage {
            Storage::TritonHopperValue => vec![(storage, 4)],
            storage => [4, 8, 16, 32].map(|bits| (storage, bits)).to_vec(),
        });
        for (storage, bits) in all {
            let grid = Grid {
                rows: 512,
                cols: 256,
                bits,
                nibble: Nibble::Low,
                storage,
            };
            for (r, cols) in [
                (0, 0..256),
                (129, 3..201),
                (300, 8..8),
                (511, 255..256),
                (37, 5..6),
            ] {
                let found: Vec<usize> = grid
                    .stretches((1, r), cols.clone())
                    .flat_map(|(start, len)| start..start + len)
                    .collect();
                let wanted: Vec<usize> = cols.clone().map(|c| grid.index(1, r, c)).collect();
                assert_eq!(found, wanted, "{storage} {r} {cols:?}");
                // A row is its codes, read or written at once.
                let mut bytes = vec![0; 2 * 512 * 256 * bits / 8];
                // The upper bits of a product that passes 2^32 with every step.
                let code = |c: u32| c.wrapping_mul(0x9e37_79b9) >> (32 - bits);
                let row: Vec<u32> = (1..=250).map(code).collect();
                grid.write_row(&mut bytes, (1, r), &row);
                let one = |c| grid.read(&bytes, grid.address(grid.index(1, r, c)));
                assert_eq!((0..250).map(one).collect::<Vec<_>>(), row, "{storage} {r}");
                let mut again = vec![0; 250];
                grid.read_row(&bytes, (1, r), &mut again);
                assert_eq!(again, row, "{storage} {r}");
            }
        }
    }
}
