//! Decodes one stored code to the f32 it stands for; every element type fits f32 exactly.
//!
//! It must not read bytes or nibbles; `bulk` and `nibble` do. Layer 0.

use super::Dtype;
use super::spec::{self, Spec, Special};

const F32_NAN: u32 = 0x7FC0_0000;
const F32_INFINITY: u32 = 0x7F80_0000;

/// How a reader takes the extreme codes of E8M0 (facts/upstream-padding.md 0.3, facts/peers.md 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum E8m0Nan {
    /// Code 255 is NaN: the specification, ml_dtypes, torch, aiter.
    #[default]
    Nan,
    /// Code 255 is infinity: transformers, mlx, flashinfer's fallback.
    Infinity,
    /// The code is put in the exponent field as it is: code 255 is infinity and code 0 is zero.
    ExponentShift,
}

/// Readers that take single codes otherwise than the specification (facts/peers.md 3.2). A reference of
/// flashinfer or vLLM that is given NaN for E2M1 keeps it NaN, which no code is: there is no encoder of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reader {
    /// As [`Dtype::decode`]: the specifications, ml_dtypes, torch.
    #[default]
    Ocp,
    /// gguf: E4M3 code 0x7F is 0, not NaN. What it makes of E8M0 code 255, about 3.4e38, was not
    /// measured to the bit.
    Gguf,
    /// flashinfer: E2M1 code 8 is +0, not -0; E8M0 code 255 is infinity.
    Flashinfer,
}

impl Dtype {
    /// The value that a reader takes a code for.
    pub fn decode_as(self, code: u32, reader: Reader) -> f32 {
        match (self, code, reader) {
            (Dtype::E4m3, 0x7f, Reader::Gguf) | (Dtype::E2m1, 8, Reader::Flashinfer) => 0.0,
            (Dtype::E8m0, _, Reader::Flashinfer) => self.decode_with(code, E8m0Nan::Infinity),
            _ => self.decode(code),
        }
    }

    /// The value of a code, exactly. Bits of `code` above the type's width are ignored.
    ///
    /// E8M0 code 255 is NaN and code 0 is 2^-127, a subnormal f32. NaN payloads of F32, F16,
    /// Bf16 and E5M2 are kept.
    #[inline]
    pub fn decode(self, code: u32) -> f32 {
        match self {
            Dtype::F32 => f32::from_bits(code),
            Dtype::F16 => float_value(spec::F16, code & 0xffff),
            Dtype::Bf16 => f32::from_bits(code << 16),
            Dtype::E4m3 => E4M3[code as usize & 255],
            Dtype::E4m3Fnuz => E4M3_FNUZ[code as usize & 255],
            Dtype::E5m2 => E5M2[code as usize & 255],
            Dtype::E2m1 => E2M1[code as usize & 255],
            Dtype::E8m0 => E8M0[code as usize & 255],
            Dtype::Int4 => INT4[code as usize & 255],
            Dtype::Int8 => INT8[code as usize & 255],
        }
    }

    /// As [`Dtype::decode`], reading the extreme codes of E8M0 as `policy` says. Other types do
    /// not depend on it.
    pub fn decode_with(self, code: u32, policy: E8m0Nan) -> f32 {
        match (self, code & 255, policy) {
            (Dtype::E8m0, 255, E8m0Nan::Infinity | E8m0Nan::ExponentShift) => f32::INFINITY,
            (Dtype::E8m0, 0, E8m0Nan::ExponentShift) => 0.0,
            _ => self.decode(code),
        }
    }

    /// The value of each byte, for the types of at most 8 bits.
    ///
    /// For the 4-bit types the sixteen values repeat, so a byte's low nibble decides.
    pub fn table(self) -> Option<&'static [f32; 256]> {
        match self {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => None,
            Dtype::E4m3 => Some(&E4M3),
            Dtype::E4m3Fnuz => Some(&E4M3_FNUZ),
            Dtype::E5m2 => Some(&E5M2),
            Dtype::E2m1 => Some(&E2M1),
            Dtype::E8m0 => Some(&E8M0),
            Dtype::Int4 => Some(&INT4),
            Dtype::Int8 => Some(&INT8),
        }
    }
}

static E4M3: [f32; 256] = build(Dtype::E4m3);
static E4M3_FNUZ: [f32; 256] = build(Dtype::E4m3Fnuz);
static E5M2: [f32; 256] = build(Dtype::E5m2);
static E2M1: [f32; 256] = build(Dtype::E2m1);
static E8M0: [f32; 256] = build(Dtype::E8m0);
static INT4: [f32; 256] = build(Dtype::Int4);
static INT8: [f32; 256] = build(Dtype::Int8);

const fn build(dtype: Dtype) -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code as usize] = narrow_value(dtype, code);
        code += 1;
    }
    table
}

/// The value of a code of a type of at most 8 bits.
pub(super) const fn narrow_value(dtype: Dtype, code: u32) -> f32 {
    match (dtype, dtype.spec()) {
        (_, Some(spec)) => f32::from_bits(float_bits(spec, code)),
        (Dtype::E8m0, _) => e8m0_value(code),
        (Dtype::Int4, _) => ((code & 15) as i32 - 8) as f32,
        _ => code as u8 as i8 as f32,
    }
}

/// The f32 bits of a code whose subnormals are normal in f32, that is of all but Bf16.
const fn float_bits(spec: Spec, code: u32) -> u32 {
    let negative = code & spec.sign_bit() != 0;
    let magnitude = code & (spec.sign_bit() - 1);
    let sign = if negative { 1 << 31 } else { 0 };
    let exponent = magnitude >> spec.mantissa_bits;
    let mantissa = magnitude & ((1 << spec.mantissa_bits) - 1);
    let shift = 23 - spec.mantissa_bits;
    match spec.special {
        Special::Ieee if exponent == (1 << spec.exponent_bits) - 1 => {
            return sign | F32_INFINITY | (mantissa << shift);
        }
        Special::AllOnesNan if magnitude == spec.sign_bit() - 1 => return sign | F32_NAN,
        Special::MinusZeroNan if negative && magnitude == 0 => return F32_NAN,
        _ => {}
    }
    if magnitude == 0 {
        return sign;
    }
    if exponent > 0 {
        let exponent = (exponent as i32 - spec.bias + 127) as u32;
        return sign | (exponent << 23) | (mantissa << shift);
    }
    let top = 31 - mantissa.leading_zeros();
    let exponent = (top as i32 + spec.exponent_min() - spec.mantissa_bits as i32 + 127) as u32;
    sign | (exponent << 23) | ((mantissa << (23 - top)) & 0x007F_FFFF)
}

/// The value of a float code, without branches so that runs of codes vectorise.
///
/// The fields are moved into place and the exponent is rebiased; subnormals get a leading one that is then
/// subtracted, exactly. No operand is a subnormal f32: each costs x86 a hundred cycles.
#[inline(always)]
pub(super) fn float_value(spec: Spec, code: u32) -> f32 {
    let magnitude = code & (spec.sign_bit() - 1);
    let minus = code & spec.sign_bit();
    let fields = magnitude << (23 - spec.mantissa_bits);
    let one = ((128 - spec.bias) as u32) << 23;
    let small = (f32::from_bits(fields + one) - f32::from_bits(one)).to_bits();
    let finite = if magnitude >> spec.mantissa_bits == 0 {
        small
    } else {
        fields + one - (1 << 23)
    };
    let infinite = ((1 << spec.exponent_bits) - 1) << spec.mantissa_bits;
    let bits = match spec.special {
        Special::Ieee if magnitude >= infinite => fields | F32_INFINITY,
        Special::AllOnesNan if magnitude == spec.sign_bit() - 1 => F32_NAN,
        Special::MinusZeroNan if minus != 0 && magnitude == 0 => return f32::from_bits(F32_NAN),
        _ => finite,
    };
    f32::from_bits(minus << (31 - spec.exponent_bits - spec.mantissa_bits) | bits)
}

/// The value of an E8M0 code.
#[inline(always)]
pub(super) const fn e8m0_value(code: u32) -> f32 {
    f32::from_bits(match code & 255 {
        0 => 0x0040_0000,
        255 => F32_NAN,
        exponent => exponent << 23,
    })
}
