//! The element types a tensor can be stored in.

use std::fmt;

/// A stored element type (facts/upstream-padding.md 0.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// FP8 E4M3FN: largest 448, NaN 0x7F and 0xFF, no infinity.
    E4m3,
    /// FP8 E4M3FNUZ (AMD MI300): largest 240, NaN 0x80, no negative zero.
    E4m3Fnuz,
    /// FP8 E5M2: IEEE-like, with infinities.
    E5m2,
    /// FP4 E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 with a sign; two per byte.
    E2m1,
    /// Power-of-two scale 2^(code-127); code 255 is NaN; no zero.
    E8m0,
    /// Unsigned nibble with offset 8: value = code - 8; two per byte.
    Int4,
    /// Two's complement byte.
    Int8,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Dtype; 10] = [
        Dtype::F32,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::E4m3,
        Dtype::E4m3Fnuz,
        Dtype::E5m2,
        Dtype::E2m1,
        Dtype::E8m0,
        Dtype::Int4,
        Dtype::Int8,
    ];

    /// Bits of one element in storage.
    pub const fn bits(self) -> u64 {
        match self {
            Dtype::F32 => 32,
            Dtype::F16 | Dtype::Bf16 => 16,
            Dtype::E4m3 | Dtype::E4m3Fnuz | Dtype::E5m2 | Dtype::E8m0 | Dtype::Int8 => 8,
            Dtype::E2m1 | Dtype::Int4 => 4,
        }
    }

    /// The name used in tables, files and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::E4m3 => "e4m3",
            Dtype::E4m3Fnuz => "e4m3fnuz",
            Dtype::E5m2 => "e5m2",
            Dtype::E2m1 => "e2m1",
            Dtype::E8m0 => "e8m0",
            Dtype::Int4 => "int4",
            Dtype::Int8 => "int8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
