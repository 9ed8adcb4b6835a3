//! Makes palettes: 256 codes from which a tensor's elements are picked by one byte each.
//!
//! It must not know shapes. Layer 4.

use crate::num::{Dtype, Encode};
use crate::rng;
use crate::terms::Fill;

/// 256 codes of one element type.
pub(super) type Palette = [u32; 256];

/// Prime period of the paint fill: no power-of-two stride maps a value onto itself.
pub(super) const PERIOD: u64 = 251;

/// A magnitude 2^e (1 + m) with random sign, exponent in `low..low + binades` and 23 random
/// mantissa bits.
fn float(word: u64, low: i32, binades: u32) -> f64 {
    let exponent = low + ((word >> 32) as u32 % binades) as i32;
    let mantissa = f64::from((word & 0x7f_ffff) as u32) / 8_388_608.0;
    let sign = if word >> 63 == 0 { 1.0 } else { -1.0 };
    sign * (1.0 + mantissa) * pow2(exponent)
}

/// 2^e, for exponents inside f64's range.
pub(super) fn pow2(e: i32) -> f64 {
    f64::from_bits(((1023 + i64::from(e)) as u64) << 52)
}

/// Values a palette of `dtype` draws from before it is scaled to size, for one byte.
fn value(fill: Fill, dtype: Dtype, seed: u64, stream: u64, byte: u64) -> f64 {
    match fill {
        // The exact fill has its own palette; see `exact`.
        Fill::Exact => 0.0,
        Fill::Wild => float(rng::value(seed, stream, byte), -5, 7),
        Fill::Paint => (byte as f64 - 125.0) / 128.0,
        Fill::Edge => edge(dtype, byte),
    }
}

/// Five eighths +0, an eighth -0, and then extremes of the format and ones, with both signs.
///
/// Wide formats stop at 2^12 so that the layer's output stays finite; their smallest values
/// stay above 2^-126 so that a device which flushes subnormals reads them unchanged.
fn edge(dtype: Dtype, byte: u64) -> f64 {
    let sign = if byte.is_multiple_of(2) { 1.0 } else { -1.0 };
    let (largest, smallest) = match dtype {
        Dtype::F32 | Dtype::Bf16 => (4096.0, pow2(-120)),
        _ => (
            f64::from(dtype.max_finite()),
            f64::from(dtype.min_subnormal()),
        ),
    };
    match byte {
        0..160 => 0.0,
        160..192 => -0.0,
        192..208 => sign * largest,
        208..224 => sign * smallest,
        _ => sign,
    }
}

/// Codes of weights. Formats of at most 8 bits use all their finite codes in the wild fill.
pub(super) fn weights(fill: Fill, dtype: Dtype, seed: u64, stream: u64) -> Palette {
    std::array::from_fn(|n| {
        let byte = n as u32;
        match (fill, dtype) {
            (Fill::Wild | Fill::Paint, Dtype::E2m1 | Dtype::Int4) => byte & 15,
            (Fill::Wild, Dtype::Int8) => byte,
            (Fill::Paint, Dtype::Int8) => byte.wrapping_sub(125) & 255,
            // 0x7f and 0xff are E4M3's NaNs.
            (Fill::Wild, Dtype::E4m3) => byte - u32::from(byte & 127 == 127),
            (Fill::Paint, Dtype::E4m3) => match byte {
                0..127 => byte,
                _ => (byte + 2).min(254),
            },
            _ => dtype.encode(value(fill, dtype, seed, stream, byte.into()), Encode::OCP),
        }
    })
}

/// Codes of floats without a scale (inputs, unscaled weights, biases), times 2^`shift`.
pub(super) fn floats(fill: Fill, dtype: Dtype, seed: u64, stream: u64, shift: i32) -> Palette {
    std::array::from_fn(|n| {
        let value = value(fill, dtype, seed, stream, n as u64);
        // The extremes of the edge fill are extremes of the format: not to be scaled.
        let size = if fill == Fill::Edge { 1.0 } else { pow2(shift) };
        dtype.encode(value * size, Encode::OCP)
    })
}

/// Codes of positive scales around `target`: over four binades, three octaves apart for the edge
/// fill, powers of two for the paint fill.
pub(super) fn scales(fill: Fill, dtype: Dtype, seed: u64, stream: u64, target: f64) -> Palette {
    let centre = pow2(target.log2().floor() as i32);
    std::array::from_fn(|n| {
        let size = match fill {
            Fill::Exact => 1.0,
            Fill::Wild => float(rng::value(seed, stream, n as u64 + 256), -2, 4).abs(),
            Fill::Paint => pow2(n as i32 % 4 - 2),
            Fill::Edge => pow2(n as i32 % 3 * 6 - 6),
        };
        dtype.encode(centre * size, Encode::OCP)
    })
}

/// Integers of at most `largest` in magnitude, a quarter of them zero, times 2^`shift`.
pub(super) fn integers(dtype: Dtype, largest: u32, shift: i32) -> Palette {
    let picks: [f64; 8] = match largest {
        1 => [1.0, -1.0, 1.0, -1.0, 0.0, 1.0, -1.0, 0.0],
        _ => [1.0, -1.0, 2.0, -2.0, 0.0, 1.0, -1.0, 0.0],
    };
    let codes = picks.map(|p| dtype.encode(p * pow2(shift), Encode::OCP));
    std::array::from_fn(|n| codes[n % 8])
}

/// Scales 2^`shift`, and with a `band` of two also twice that.
pub(super) fn powers(dtype: Dtype, band: u32, shift: i32) -> Palette {
    let codes = [0, i32::from(band > 1)].map(|s| dtype.encode(pow2(shift + s), Encode::OCP));
    std::array::from_fn(|n| codes[n % 2])
}

/// Root mean square of a palette's values.
pub(super) fn rms(dtype: Dtype, palette: &Palette) -> f64 {
    let sum: f64 = palette
        .iter()
        .map(|&code| f64::from(dtype.decode(code)).powi(2))
        .sum();
    (sum / 256.0).sqrt()
}
