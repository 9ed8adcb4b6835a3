//! Describes each binary floating-point element type by its field widths and special codes.
//!
//! It must not convert values; `decode` and `encode` do. Layer 0.

use super::Dtype;

/// Which codes of a float type are not finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// All-ones exponent: infinities and NaNs.
    Ieee,
    /// All-ones magnitude is NaN, no infinity (E4M3FN).
    AllOnesNan,
    /// The code of minus zero is the only NaN (FNUZ).
    MinusZeroNan,
    /// Every code is a finite number (E2M1).
    None,
}

/// The fields of a binary float of at most 16 bits: sign, exponent, mantissa from the top.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) exponent_bits: u32,
    pub(super) mantissa_bits: u32,
    pub(super) bias: i32,
    pub(super) special: Special,
}

impl Spec {
    /// The exponent of the smallest normal number.
    pub(super) const fn exponent_min(self) -> i32 {
        1 - self.bias
    }

    /// The sign bit, which is also one more than the largest magnitude code.
    pub(super) const fn sign_bit(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The code of positive infinity, where the type has one.
    pub(super) const fn infinity(self) -> Option<u32> {
        match self.special {
            Special::Ieee => Some(((1 << self.exponent_bits) - 1) << self.mantissa_bits),
            _ => None,
        }
    }

    /// The code of the (quiet, positive) NaN, where the type has one.
    pub(super) const fn nan(self) -> Option<u32> {
        match self.special {
            Special::Ieee => {
                Some(((1 << (self.exponent_bits + 1)) - 1) << (self.mantissa_bits - 1))
            }
            Special::AllOnesNan => Some(self.sign_bit() - 1),
            Special::MinusZeroNan => Some(self.sign_bit()),
            Special::None => None,
        }
    }

    /// The code of the largest finite number.
    pub(super) const fn largest(self) -> u32 {
        match self.special {
            Special::Ieee => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            Special::AllOnesNan => self.sign_bit() - 2,
            Special::MinusZeroNan | Special::None => self.sign_bit() - 1,
        }
    }
}

const fn spec(exponent_bits: u32, mantissa_bits: u32, bias: i32, special: Special) -> Spec {
    Spec {
        exponent_bits,
        mantissa_bits,
        bias,
        special,
    }
}

pub(super) const F16: Spec = spec(5, 10, 15, Special::Ieee);
pub(super) const BF16: Spec = spec(8, 7, 127, Special::Ieee);
pub(super) const E4M3: Spec = spec(4, 3, 7, Special::AllOnesNan);
pub(super) const E4M3_FNUZ: Spec = spec(4, 3, 8, Special::MinusZeroNan);
pub(super) const E5M2: Spec = spec(5, 2, 15, Special::Ieee);
pub(super) const E2M1: Spec = spec(2, 1, 1, Special::None);

impl Dtype {
    /// The float fields; none for `F32` (native), `E8M0` (no sign, no mantissa) and integers.
    pub(super) const fn spec(self) -> Option<Spec> {
        match self {
            Dtype::F16 => Some(F16),
            Dtype::Bf16 => Some(BF16),
            Dtype::E4m3 => Some(E4M3),
            Dtype::E4m3Fnuz => Some(E4M3_FNUZ),
            Dtype::E5m2 => Some(E5M2),
            Dtype::E2m1 => Some(E2M1),
            Dtype::F32 | Dtype::E8m0 | Dtype::Int4 | Dtype::Int8 => None,
        }
    }

    /// The largest finite value (facts/upstream-padding.md 0.3: E4M3 448, E4M3FNUZ 240, E2M1 6).
    pub const fn max_finite(self) -> f32 {
        match self {
            Dtype::F32 => f32::MAX,
            Dtype::F16 => 65504.0,
            Dtype::Bf16 => f32::from_bits(0x7F7F_0000),
            Dtype::E4m3 => 448.0,
            Dtype::E4m3Fnuz => 240.0,
            Dtype::E5m2 => 57344.0,
            Dtype::E2m1 => 6.0,
            Dtype::E8m0 => f32::from_bits(254 << 23),
            Dtype::Int4 => 7.0,
            Dtype::Int8 => 127.0,
        }
    }

    /// The unit roundoff 2^-p for p bits of significand: the largest relative error of rounding
    /// a number in the normal range to nearest.
    ///
    /// For the integers it is the largest *absolute* error instead, half a step. For E8M0 it
    /// bounds rounding to nearest; `Floor` and `Ceil` lose up to a factor of two.
    pub const fn epsilon(self) -> f64 {
        match self {
            Dtype::F32 => 1.0 / 16_777_216.0,
            Dtype::F16 => 1.0 / 2048.0,
            Dtype::Bf16 => 1.0 / 256.0,
            Dtype::E4m3 | Dtype::E4m3Fnuz => 1.0 / 16.0,
            Dtype::E5m2 => 1.0 / 8.0,
            Dtype::E2m1 => 1.0 / 4.0,
            Dtype::E8m0 | Dtype::Int4 | Dtype::Int8 => 1.0 / 2.0,
        }
    }

    /// The smallest positive value: the first subnormal, 2^-127 for E8M0, 1 for the integers.
    pub const fn min_subnormal(self) -> f32 {
        match self {
            Dtype::F32 => f32::from_bits(1),
            Dtype::F16 => f32::from_bits((127 - 24) << 23),
            Dtype::Bf16 => f32::from_bits(0x0001_0000),
            Dtype::E4m3 => 1.0 / 512.0,
            Dtype::E4m3Fnuz => 1.0 / 1024.0,
            Dtype::E5m2 => 1.0 / 65536.0,
            Dtype::E2m1 => 0.5,
            Dtype::E8m0 => f32::from_bits(0x0040_0000),
            Dtype::Int4 | Dtype::Int8 => 1.0,
        }
    }

    /// The code of +0: none for E8M0, which has no zero, and 8 for INT4 with offset 8.
    pub const fn zero_code(self) -> Option<u32> {
        match self {
            Dtype::E8m0 => None,
            Dtype::Int4 => Some(8),
            _ => Some(0),
        }
    }

    /// The code of the (quiet, positive) NaN, where the type has one.
    ///
    /// Other codes may be NaN too: every type but E8M0 and E4M3FNUZ has at least a negative one.
    pub const fn nan_code(self) -> Option<u32> {
        match self {
            Dtype::F32 => Some(0x7FC0_0000),
            Dtype::E8m0 => Some(255),
            _ => match self.spec() {
                Some(spec) => spec.nan(),
                None => None,
            },
        }
    }

    /// The code of 1.
    pub const fn one_code(self) -> u32 {
        match self {
            Dtype::F32 => 0x3F80_0000,
            Dtype::F16 => 0x3C00,
            Dtype::Bf16 => 0x3F80,
            Dtype::E4m3 => 0x38,
            Dtype::E4m3Fnuz => 0x40,
            Dtype::E5m2 => 0x3C,
            Dtype::E2m1 => 2,
            Dtype::E8m0 => 127,
            Dtype::Int4 => 9,
            Dtype::Int8 => 1,
        }
    }
}
