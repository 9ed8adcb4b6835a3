//! Encodes a value as a code, by the rules of a named camp (facts/peers.md 3.2).
//!
//! It must not choose scales: the caller divides by the scale first. Layer 0.

use super::Dtype;
use super::spec::{Spec, Special};

/// The choices that encoders differ in. Each constant is a camp seen in the field.
///
/// F32, F16 and Bf16 follow IEEE 754 in every camp: to nearest even, overflow to infinity, signs
/// of zero kept. The integers round to nearest even and saturate. NaN becomes the quiet NaN of
/// the same sign where the type has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Encode {
    /// What a tie rounds to.
    pub ties: Ties,
    /// What a value above the largest finite one, or an infinity, becomes.
    pub overflow: Overflow,
    /// What becomes of zero.
    pub zero: Zero,
    /// What NaN becomes in a type without NaN.
    pub nan: NanInto,
    /// How a scale becomes E8M0.
    pub scale: ScaleEncode,
}

/// What a value halfway between two codes rounds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ties {
    /// The even code.
    Even,
    /// The smaller magnitude, in E2M1 only: no camp does so in another type.
    TowardZero,
}

/// What a value that rounds above the largest finite one becomes, in types of at most 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The largest finite value, also for infinity.
    Saturate,
    /// Infinity where the type has one (E5M2), else NaN where it has one, else the largest.
    Nan,
}

/// What becomes of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zero {
    /// +0 and -0 keep their sign where the type has both; so does a value that rounds to zero.
    KeepSign,
    /// Every zero result becomes +0.
    Positive,
    /// In E2M1 an input of exactly +0 or -0 becomes code 8, which is -0; else as `KeepSign`.
    Fp4Negative,
}

/// What NaN becomes in a type without NaN: E2M1 and the integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NanInto {
    /// Zero of the opposite sign: NaN gives E2M1 code 8 and -NaN code 0 (ml_dtypes).
    OppositeZero,
    /// 1.5 (aiter, torchao); the integers round it to 2.
    OneAndHalf,
    /// The largest value.
    Largest,
    /// +0.
    Zero,
}

/// How a scale becomes E8M0. A positive power of two in range is exact in every camp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScaleEncode {
    /// Which of the two neighbouring powers of two is taken.
    pub rounding: ScaleRounding,
    /// What a scale that rounds above 2^127 becomes: code 254 or the NaN code 255.
    pub overflow: Overflow,
    /// What a scale that is not positive becomes.
    pub nonpositive: Nonpositive,
}

/// Which neighbouring power of two a scale becomes. All clamp at 2^-127.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleRounding {
    /// The lower one.
    Floor,
    /// The nearer one; 1.5 times a power of two goes to the even code.
    NearestEven,
    /// The nearer one; 1.5 times a power of two goes up. Between 2^-127 and 2^-126, where f32 is
    /// subnormal, everything goes up (both as ml_dtypes 0.6 does, tests/data/ml_dtypes).
    NearestUp,
    /// The upper one.
    Ceil,
}

/// What a scale that is zero (as f32: at most 2^-150) or negative becomes in E8M0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Nonpositive {
    /// The NaN code 255.
    Nan,
    /// The sign is dropped, and zero becomes code 0.
    Magnitude,
    /// Code 0, which is 2^-127.
    Smallest,
}

impl Encode {
    /// The OCP specifications with saturation: the project's own encoder.
    ///
    /// Scales are rounded down as OCP MX 6.3 does; NaN into E2M1, which it leaves open, becomes
    /// the largest value, and a scale of zero the smallest.
    pub const OCP: Encode = Encode {
        ties: Ties::Even,
        overflow: Overflow::Saturate,
        zero: Zero::KeepSign,
        nan: NanInto::Largest,
        scale: ScaleEncode {
            rounding: ScaleRounding::Floor,
            overflow: Overflow::Saturate,
            nonpositive: Nonpositive::Smallest,
        },
    };

    /// ml_dtypes 0.6 (measured; facts/peers.md 3.2 and tests/data/ml_dtypes): E4M3 above 464 is
    /// NaN, NaN into E2M1 is a zero, scales that are not positive are 255.
    pub const ML_DTYPES: Encode = Encode {
        overflow: Overflow::Nan,
        nan: NanInto::OppositeZero,
        scale: ScaleEncode {
            rounding: ScaleRounding::NearestUp,
            overflow: Overflow::Nan,
            nonpositive: Nonpositive::Nan,
        },
        ..Encode::OCP
    };

    /// torch 2.13 and 2.15 (facts/peers.md 3.2): E4M3 above 464 and infinity saturate to 448; a
    /// scale of 0 becomes code 0 and one of -1 code 127.
    ///
    /// Not measured there: E5M2 overflow, E8M0 rounding and overflow. torch has no E2M1 encoder;
    /// for NaN into E2M1 this has torchao's answer, 1.5.
    pub const TORCH: Encode = Encode {
        nan: NanInto::OneAndHalf,
        scale: ScaleEncode {
            rounding: ScaleRounding::NearestUp,
            overflow: Overflow::Nan,
            nonpositive: Nonpositive::Magnitude,
        },
        ..Encode::OCP
    };

    /// ModelOpt's MXFP4 and sglang's copy (facts/peers.md 3.2): E2M1 ties go toward zero, and
    /// +0 becomes code 8, so that a zero pad is bytes 0x88.
    ///
    /// Not measured there: NaN, and scales, which are rounded up here.
    pub const MODELOPT: Encode = Encode {
        ties: Ties::TowardZero,
        zero: Zero::Fp4Negative,
        nan: NanInto::Zero,
        scale: ScaleEncode {
            rounding: ScaleRounding::Ceil,
            ..Encode::OCP.scale
        },
        ..Encode::OCP
    };

    /// aiter's E2M1 (facts/peers.md 3.2): ties to even, NaN becomes 1.5. Its scale encoder was
    /// not measured; scales are as in [`Encode::OCP`].
    pub const AITER: Encode = Encode {
        nan: NanInto::OneAndHalf,
        ..Encode::OCP
    };
}

impl Default for Encode {
    fn default() -> Self {
        Encode::OCP
    }
}

impl Dtype {
    /// The code nearest to `value`, by the rules of `policy`, in one rounding from f64.
    ///
    /// For many values use [`encode_into`](super::encode_into) or
    /// [`encode_nibbles_into`](super::encode_nibbles_into), which choose the type once.
    #[inline(always)] // so that a caller with a constant type gets the code of that type alone
    pub fn encode(self, value: f64, policy: Encode) -> u32 {
        match (self, self.spec()) {
            (_, Some(spec)) if value.is_nan() => self.nan_float(spec, value, policy.nan),
            (_, Some(spec)) => self.encode_float(spec, value, policy),
            (Dtype::F32, _) if value.is_nan() => sign_of(value, 1 << 31) | 0x7FC0_0000,
            (Dtype::F32, _) => (value as f32).to_bits(),
            (Dtype::E8m0, _) => encode_scale(value, policy.scale),
            (Dtype::Int4, _) => (encode_integer(value, -8.0, 7.0, policy.nan) + 8) as u32,
            _ => encode_integer(value, -128.0, 127.0, policy.nan) as u8 as u32,
        }
    }

    #[cold]
    fn nan_float(self, spec: Spec, value: f64, nan: NanInto) -> u32 {
        match (spec.nan(), nan) {
            (Some(code), _) if spec.special == Special::MinusZeroNan => code,
            (Some(code), _) => sign_of(value, spec.sign_bit()) | code,
            (None, NanInto::OppositeZero) => sign_of(-value, spec.sign_bit()),
            (None, NanInto::OneAndHalf) => self.one_code() + 1,
            (None, NanInto::Largest) => spec.largest(),
            (None, NanInto::Zero) => 0,
        }
    }

    #[inline(always)]
    fn encode_float(self, spec: Spec, value: f64, policy: Encode) -> u32 {
        let fp4 = self == Dtype::E2m1;
        if fp4 && value == 0.0 && policy.zero == Zero::Fp4Negative {
            return spec.sign_bit();
        }
        let sign = sign_of(value, spec.sign_bit());
        let code = magnitude(spec, value, fp4 && policy.ties == Ties::TowardZero);
        if code > u64::from(spec.largest()) {
            return sign | self.overflow(spec, policy.overflow);
        }
        let unsigned_zero = spec.special == Special::MinusZeroNan
            || policy.zero == Zero::Positive && self.bits() <= 8;
        if code == 0 && unsigned_zero {
            0
        } else {
            sign | code as u32
        }
    }

    /// The code of an overflow but for its sign, which the FNUZ NaN already holds.
    #[cold]
    fn overflow(self, spec: Spec, overflow: Overflow) -> u32 {
        let special = spec.infinity().or(spec.nan()).unwrap_or(spec.largest());
        match overflow {
            Overflow::Saturate if self.bits() <= 8 => spec.largest(),
            _ if spec.special == Special::MinusZeroNan => spec.sign_bit(),
            _ => special,
        }
    }
}

/// The magnitude code of a value that is not NaN, as if the exponent field had no upper end.
#[inline(always)]
fn magnitude(spec: Spec, value: f64, ties_toward_zero: bool) -> u64 {
    // Infinity overflows like any huge value, and must not meet a factor of zero.
    let size = value.abs().min(f64::MAX);
    let exponent = exponent_of(size).max(spec.exponent_min());
    // Scale so that one step of the type is 1; both factors are powers of two, so this is exact
    // but for values far below half a step, which stay far below it.
    let steps = size * power_of_two(spec.mantissa_bits as i32 - exponent);
    // Adding 2^52 leaves no bits below 1: the addition itself rounds to nearest even, and the
    // integer stands in the low bits.
    const INTEGERS: f64 = 4_503_599_627_370_496.0;
    let sum = steps + INTEGERS;
    let mut rounded = sum.to_bits() - INTEGERS.to_bits();
    if ties_toward_zero && (sum - INTEGERS) - steps == 0.5 {
        rounded -= 1;
    }
    // The significand's leading one adds itself to the exponent field, and so does a carry.
    (((exponent - spec.exponent_min()) as u64) << spec.mantissa_bits) + rounded
}

#[inline]
fn encode_scale(value: f64, policy: ScaleEncode) -> u32 {
    let overflow = match policy.overflow {
        Overflow::Saturate => 254,
        Overflow::Nan => 255,
    };
    let single = value as f32;
    match policy.nonpositive {
        _ if value.is_nan() => return 255,
        _ if single > 0.0 => {}
        Nonpositive::Nan => return 255,
        Nonpositive::Magnitude if single < 0.0 => {}
        Nonpositive::Magnitude | Nonpositive::Smallest => return 0,
    }
    if value.is_infinite() {
        return overflow;
    }
    // At least 2^-150 from here on, so a normal f64.
    let floor = exponent_of(value) + 127;
    let fraction = value.to_bits() & ((1 << 52) - 1);
    let half = 1 << 51;
    let up = match policy.rounding {
        ScaleRounding::Floor => false,
        ScaleRounding::NearestEven => fraction > half || fraction == half && floor & 1 == 1,
        ScaleRounding::NearestUp => fraction >= half || floor == 0 && fraction > 0,
        ScaleRounding::Ceil => fraction > 0,
    };
    let code = (floor + i32::from(up)).max(0) as u32;
    if code > 254 { overflow } else { code }
}

#[inline]
fn encode_integer(value: f64, least: f64, most: f64, nan: NanInto) -> i32 {
    let value = match nan {
        _ if !value.is_nan() => value,
        NanInto::OppositeZero | NanInto::Zero => 0.0,
        NanInto::OneAndHalf => 1.5,
        NanInto::Largest => most,
    };
    // As in `magnitude`: 1.5 times 2^52 leaves no bits below 1 for either sign.
    const INTEGERS: f64 = 1.5 * 4_503_599_627_370_496.0;
    ((value.clamp(least, most) + INTEGERS).to_bits() as i64 - INTEGERS.to_bits() as i64) as i32
}

/// The sign bit `bit` if `value` is negative, NaN and zero included.
#[inline]
fn sign_of(value: f64, bit: u32) -> u32 {
    if value.is_sign_negative() { bit } else { 0 }
}

/// The exponent field of an f64, unbiased: 1024 for infinity, -1023 for subnormals and zero.
#[inline]
fn exponent_of(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7FF) as i32 - 1023
}

/// 2^exponent for exponents of normal f64.
#[inline]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
