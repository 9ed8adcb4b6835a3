//! How a padded grid becomes bytes: strides, nibbles, tiles.

use crate::terms::{Nibble, Storage};

/// Rows of a tile of the 128x4 layout (facts/upstream-padding.md 1.0, L-128x4).
pub(super) const TILE_ROWS: usize = 128;
/// Columns of a tile of the 128x4 layout.
pub(super) const TILE_COLS: usize = 4;

/// Where an element is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// First byte of the element.
    pub byte: usize,
    /// Bits to shift the byte right by: 4 for the high nibble, else 0.
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
    /// Row-major or tiled.
    pub storage: Storage,
}

impl Grid {
    /// Elements stored before the element at (e, r, c), in storage order.
    ///
    /// For 128x4 tiles: (r/128, c/4, r%32, (r/32)%4, c%4), in the closed form of
    /// facts/peers.md 2.2.
    pub fn index(&self, e: usize, r: usize, c: usize) -> usize {
        match self.storage {
            Storage::Linear => (e * self.rows + r) * self.cols + c,
            Storage::Tiled128x4 => e * self.rows * self.cols + self.tile_row(r) + tile_col(c),
        }
    }

    /// The part of a tiled index that depends on the row.
    pub(super) fn tile_row(&self, r: usize) -> usize {
        (r / TILE_ROWS) * (self.cols / TILE_COLS) * (TILE_ROWS * TILE_COLS)
            + (r % 32) * 16
            + ((r % TILE_ROWS) / 32) * TILE_COLS
    }

    /// The place of the element with a storage index.
    pub fn address(&self, index: usize) -> Address {
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

    /// The code stored at a place.
    pub fn read(&self, bytes: &[u8], at: Address) -> u32 {
        let b = |n: usize| u32::from(bytes[at.byte + n]);
        match self.bits {
            4 => (b(0) >> at.shift) & 0xf,
            8 => b(0),
            16 => b(0) | b(1) << 8,
            _ => b(0) | b(1) << 8 | b(2) << 16 | b(3) << 24,
        }
    }

    /// Stores a code at a place.
    pub fn write(&self, bytes: &mut [u8], at: Address, code: u32) {
        let le = code.to_le_bytes();
        match self.bits {
            4 => {
                let byte = &mut bytes[at.byte];
                *byte = (*byte & !(0xf << at.shift)) | (le[0] & 0xf) << at.shift;
            }
            bits => bytes[at.byte..at.byte + bits / 8].copy_from_slice(&le[..bits / 8]),
        }
    }
}

/// The part of a tiled index that depends on the column.
pub(super) fn tile_col(c: usize) -> usize {
    (c / TILE_COLS) * (TILE_ROWS * TILE_COLS) + c % TILE_COLS
}
