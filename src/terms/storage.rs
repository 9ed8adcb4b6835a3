//! Storage layouts of scales and of weights: their words, and the sizes each asks for.
//!
//! It must not know where an element lies: `layout` does, and the subject by itself. Layer 1.

use super::word::{UnknownWord, words};
use crate::num::Dtype;
use std::fmt;
use std::str::FromStr;

words! {
    /// How a stored tensor is arranged in memory (facts/upstream-padding.md 1.0, 1.4 F5, 1.2 A9).
    /// Index maps are in `layout::Grid`, with where each was read.
    Storage, "storage layout" {
        /// Row-major.
        Linear = "linear",
        /// Scales; rows to 128, columns to 4, tiles of 128x4 stored as 32x(4x4).
        Tiled128x4 = "128x4",
        /// Scales; rows to 8, columns to 4, row-major tiles of 8x4: the small-M twin of 128x4.
        Tiled8x4 = "8x4",
        /// E8M0 scales; tiles of 128x4, but columns to 8 (triton_kernels, Blackwell).
        TritonBlackwell = "triton-blackwell-scale",
        /// E8M0 scales; rows to 256 = 32 * 8 warps, columns to 2 (triton_kernels, Hopper).
        TritonHopper = "triton-hopper-scale",
        /// E8M0 scales; tiles of 32x8, no padding: rows % 32 and columns % 8 (triton_kernels, CDNA4).
        TritonCdna4 = "triton-cdna4-scale",
        /// E8M0 scales; rows to 256, columns to 8, tiles of 32x8; padding as memory happened to be.
        Aiter256x8 = "aiter-256x8",
        /// E8M0 scales; rows to 32, columns % 4, tiles of 32x4 (AITER, gfx1250).
        AiterN32k4 = "aiter-n32k4",
        /// E8M0 scales, four of a row in an int32, those words column by column; rows to 4.
        DeepGemm = "deepgemm-mn-major",
        /// Weights; rows % 16, columns % 32 stored units; sixteen bytes of each of sixteen rows (AITER).
        Shuffle16x16 = "shuffle-16x16",
        /// E2M1 weights; rows to 256, bytes to 64, bytes of a thread's four tiles together, and the
        /// bits of every four codes interleaved (triton_kernels, Hopper).
        TritonHopperValue = "triton-hopper-value",
        /// Rows of weights, their scales and biases; row r of 16 goes to (r%2)*8 + r/2 (trtllm-gen).
        Rows16 = "shuffle-rows-16",
        /// The same in blocks of 32, for epilogue tiles of 128: row r goes to (r%4)*8 + r/4.
        Rows32 = "shuffle-rows-32",
    }
}

impl Storage {
    /// Whether it arranges weights; all others but `linear` arrange scales.
    pub const fn of_weights(self) -> bool {
        matches!(
            self,
            Storage::Shuffle16x16 | Storage::TritonHopperValue | Storage::Rows16 | Storage::Rows32
        )
    }

    /// Whether elements of `dtype` are stored so; others stay row-major.
    ///
    /// INT4 has a shuffle of its own in AITER, which is not described here.
    pub const fn takes(self, dtype: Dtype) -> bool {
        match self {
            Storage::Linear | Storage::Rows16 | Storage::Rows32 => true,
            Storage::Tiled128x4 | Storage::Tiled8x4 => dtype.bits() == 8,
            Storage::TritonBlackwell
            | Storage::TritonHopper
            | Storage::TritonCdna4
            | Storage::Aiter256x8
            | Storage::AiterN32k4
            | Storage::DeepGemm => matches!(dtype, Dtype::E8m0),
            Storage::Shuffle16x16 => !matches!(dtype, Dtype::Int4),
            Storage::TritonHopperValue => matches!(dtype, Dtype::E2m1),
        }
    }

    /// The layout of elements of `dtype`: itself, or `linear`.
    pub const fn of(self, dtype: Dtype) -> Storage {
        if self.takes(dtype) {
            self
        } else {
            Storage::Linear
        }
    }

    /// Rows and columns that storage is rounded up to, whatever the logical padding: in scales, or
    /// for weights in stored units.
    pub const fn tile(self) -> (u64, u64) {
        match self {
            Storage::Tiled128x4 => (128, 4),
            Storage::Tiled8x4 => (8, 4),
            Storage::TritonBlackwell => (128, 8),
            Storage::TritonHopper => (256, 2),
            Storage::TritonCdna4 => (32, 8),
            Storage::Aiter256x8 => (256, 8),
            Storage::AiterN32k4 => (32, 4),
            // The stride of 16 bytes is four packed words, one a row.
            Storage::DeepGemm => (4, 4),
            Storage::TritonHopperValue => (256, 64),
            Storage::Linear | Storage::Shuffle16x16 | Storage::Rows16 | Storage::Rows32 => (1, 1),
        }
    }

    /// Multiples that rows and columns must already be, since the stack refuses others: in scales,
    /// or for weights in stored units (bytes where two elements share one).
    pub const fn needs(self) -> (u64, u64) {
        match self {
            Storage::TritonCdna4 => (32, 8),
            Storage::AiterN32k4 => (1, 4),
            Storage::Shuffle16x16 => (16, 32),
            Storage::Rows16 => (16, 1),
            Storage::Rows32 => (32, 1),
            _ => (1, 1),
        }
    }

    /// The code that the stack writes where only the layout adds elements; `None` where it leaves
    /// memory as it was.
    pub const fn pad_code(self) -> Option<u32> {
        match self {
            Storage::Aiter256x8 => None,
            // E8M0 for 1.0.
            Storage::AiterN32k4 | Storage::DeepGemm => Some(0x7f),
            _ => Some(0),
        }
    }

    /// Rows that are permuted among each other, 1 if none are.
    pub const fn row_block(self) -> u64 {
        match self {
            Storage::Rows16 => 16,
            Storage::Rows32 => 32,
            _ => 1,
        }
    }
}

/// The storage of a layer: one layout for its scales and one for its weights, spelled `linear`,
/// by the one that is not linear, or as `scales+weights`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stores {
    /// Of the scales.
    pub scales: Storage,
    /// Of the weights.
    pub weights: Storage,
}

impl Stores {
    /// Everything row-major.
    pub const LINEAR: Stores = Stores {
        scales: Storage::Linear,
        weights: Storage::Linear,
    };
}

impl fmt::Display for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scales, self.weights) {
            (scales, Storage::Linear) => fmt::Display::fmt(&scales, f),
            (Storage::Linear, weights) => fmt::Display::fmt(&weights, f),
            (scales, weights) => f.pad(&format!("{scales}+{weights}")),
        }
    }
}

impl FromStr for Stores {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let mut stores = Stores::LINEAR;
        if text == Storage::Linear.name() {
            return Ok(stores);
        }
        for word in text.split('+') {
            let storage: Storage = word.parse()?;
            let slot = if storage.of_weights() {
                &mut stores.weights
            } else {
                &mut stores.scales
            };
            if storage == Storage::Linear || *slot != Storage::Linear {
                return Err(UnknownWord {
                    kind: "pair of a scale and a weight layout",
                    word: text.to_owned(),
                    valid: Storage::ALL.iter().map(|s| s.name().to_owned()).collect(),
                });
            }
            *slot = storage;
        }
        Ok(stores)
    }
}

impl<'de> serde::Deserialize<'de> for Stores {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_one_spelling() {
        for scales in Storage::ALL.iter().copied().filter(|s| !s.of_weights()) {
            for weights in [Storage::Linear, Storage::Shuffle16x16, Storage::Rows32] {
                let stores = Stores { scales, weights };
                assert_eq!(stores.to_string().parse(), Ok(stores));
            }
        }
        for wrong in [
            "",
            "128x4+8x4",
            "linear+128x4",
            "shuffle-16x16+shuffle-rows-16",
            "128x4+",
        ] {
            assert!(wrong.parse::<Stores>().is_err(), "{wrong}");
        }
        let swapped: Stores = "shuffle-16x16+aiter-256x8".parse().unwrap();
        assert_eq!(swapped.to_string(), "aiter-256x8+shuffle-16x16");
    }
}
