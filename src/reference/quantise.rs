//! Quantises activations to E4M3 as the layer declares it and rounds them to bf16 as the subject does, and
//! bounds what an f32 subject may make of the same; where a rank's share decides, only bounds it.
//!
//! It must not know how the layer is cut over ranks. Layer 5.

use super::bound::{FLUSH, U};
use crate::num::{Dtype, Encode};
use crate::terms::{ACT_QUANT_GROUP, ActQuant};

/// Half an ulp of E4M3, relative: three stored mantissa bits.
const RELATIVE: f64 = 1.0 / 16.0;
/// Half of E4M3's smallest subnormal 2^-9, in units of the scale.
const ABSOLUTE: f64 = 1.0 / 1024.0;
/// E4M3's largest value (facts/upstream-padding.md 0.3).
const LARGEST: f64 = 448.0;
/// Largest floor under an amax that a stack uses: vLLM's least scale is 1 / (448 * 512).
const FLOOR: f64 = 1.0 / 512.0;

/// Least amax that sets a scale: what the smallest floor of a stack is (1e-12).
const FLOOR_LEAST: f64 = 1e-12;
/// What a quotient or a scale may be off after its roundings in f32: division or multiplication by
/// a reciprocal, of a scale that was divided, in u.
const QUOTIENT: f64 = 4.0;

/// Quantises each value, and turns each error into one of the quantised value.
///
/// A value within its error of v, over a scale within its error of s, is a quotient in an interval;
/// rounding to E4M3 is monotone, so that a subject's code lies between those of the interval's ends.
/// The scale of a token or a group is its amax / 448, the amax within the largest error of any of its
/// values; floors under it are between 1e-12 and 2^-9 (facts/upstream-padding.md, vLLM's least
/// scale), which matters below 2^-9 alone. The fixed scale is exact.
pub(super) fn follow(mode: ActQuant, scale: f32, values: &mut [f64], errors: &mut [f64]) {
    let group = match mode {
        ActQuant::None => return,
        ActQuant::Static => {
            let scale = f64::from(scale);
            return quantise_all(values, errors, [scale; 3]);
        }
        ActQuant::Token => values.len().max(1),
        ActQuant::Group => usize::try_from(ACT_QUANT_GROUP).unwrap_or(usize::MAX),
    };
    for (values, errors) in values.chunks_mut(group).zip(errors.chunks_mut(group)) {
        let amax = |of: fn(f64, f64) -> f64| {
            let sizes = values.iter().zip(&*errors);
            sizes.fold(0.0, |m: f64, (v, e)| of(v.abs(), *e).max(m))
        };
        let least = amax(|v, e| v - e).max(FLOOR_LEAST) / LARGEST * (1.0 - 2.0 * U);
        let most = amax(|v, e| v + e).max(FLOOR) / LARGEST * (1.0 + 2.0 * U);
        let own = amax(|v, _| v).max(FLOOR_LEAST) / LARGEST;
        quantise_all(values, errors, [own, least, most]);
    }
}

/// Quantises by a scale of which the least and the most are known.
fn quantise_all(values: &mut [f64], errors: &mut [f64], [own, least, most]: [f64; 3]) {
    for (value, error) in values.iter_mut().zip(errors) {
        let (low, high) = (*value - *error, *value + *error);
        let slack = 1.0 + QUOTIENT * U;
        // Of each end the scale that takes it further out.
        let down = if low < 0.0 {
            low / least * slack
        } else {
            low / most / slack
        };
        let up = if high < 0.0 {
            high / most / slack
        } else {
            high / least * slack
        };
        let (down, up) = (nearest(down), nearest(up));
        let quantised = nearest(*value / own) * own;
        let ends = [down * least, down * most, up * least, up * most];
        let off = ends.iter().map(|end| (end - quantised).abs());
        let widest = off.fold(0.0, f64::max);
        *error = widest + 2.0 * U * (quantised.abs() + widest);
        if !(low.is_finite() && high.is_finite()) {
            *error = f64::INFINITY;
        }
        *value = quantised;
    }
}

/// The nearest E4M3 value, ties to even, saturated; NaN for NaN.
fn nearest(value: f64) -> f64 {
    f64::from(Dtype::E4m3.decode(Dtype::E4m3.encode(value, Encode::OCP)))
}

/// Adds to each error what quantising its value may add.
///
/// Any rounding to nearest errs by at most half an ulp: 2^-4 of the value or 2^-10 of the scale.
/// A fixed scale saturates above 448 scales. A scale from an amax is at most twice the exact
/// amax / 448 (stacks that round it up to a power of two), where the amax of a group or of a
/// rank's share is at most the token's. 8 u cover the rounding of scale and quotient.
pub(super) fn widen(mode: ActQuant, scale: f32, values: &[f64], errors: &mut [f64]) {
    let amax = || {
        let largest = values
            .iter()
            .zip(&*errors)
            .fold(FLOOR, |m, (v, e)| f64::max(m, v.abs() + e));
        2.0 * largest / LARGEST
    };
    let (scale, reach) = match mode {
        ActQuant::None => return,
        ActQuant::Static => (f64::from(scale), LARGEST * f64::from(scale)),
        ActQuant::Token | ActQuant::Group => (amax(), f64::INFINITY),
    };
    for (value, error) in values.iter().zip(errors) {
        let size = value.abs() + *error;
        let lost = (size - reach).max(0.0);
        *error += (RELATIVE + 8.0 * U) * size + (1.0 + 8.0 * U) * ABSOLUTE * scale + lost;
    }
}

/// Whether quantising leaves every value as it is.
pub(super) fn keeps(mode: ActQuant, scale: f32, values: &[f64]) -> bool {
    match mode {
        ActQuant::None => true,
        ActQuant::Static => values.iter().all(|&v| {
            let units = v / f64::from(scale);
            let code = Dtype::E4m3.encode(units, Encode::OCP);
            f64::from(Dtype::E4m3.decode(code)) == units
        }),
        // The scale is a quotient by 448: values come back rounded.
        ActQuant::Token | ActQuant::Group => values.iter().all(|&v| v == 0.0),
    }
}

/// bf16's largest value: beyond it a subject rounds to infinity.
const LARGEST_BF16: f64 = 3.389_531_389_251_535_5e38;

/// Rounds a value to bf16, ties to even, and turns its error into one of the rounded value: rounding
/// is monotone, so that a subject's result lies between those of the interval's ends. It may flush.
pub(super) fn round_bf16(value: f64, error: f64) -> (f64, f64) {
    let nearest = |v: f64| f64::from(Dtype::Bf16.decode(Dtype::Bf16.encode(v, Encode::OCP)));
    let reach = value.abs() + error;
    if reach.is_nan() || reach >= LARGEST_BF16 {
        return (value, f64::INFINITY);
    }
    let rounded = nearest(value);
    let off = |end: f64| (nearest(end) - rounded).abs();
    (rounded, off(value - error).max(off(value + error)) + FLUSH)
}

/// Rounds each value, as [`round_bf16`] does.
pub(super) fn round_all_bf16(values: &mut [f64], errors: &mut [f64]) {
    for (value, error) in values.iter_mut().zip(errors) {
        (*value, *error) = round_bf16(*value, *error);
    }
}

/// Whether rounding to bf16 leaves every value as it is.
pub(super) fn keeps_bf16(values: &[f64]) -> bool {
    values.iter().all(|&v| {
        let single = v as f32;
        f64::from(single) == v && single.to_bits() & 0xffff == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_rounded_to_bf16_moves_only_where_its_error_reaches_a_tie() {
        // 1 + 2^-7 and 1 + 2^-6 are neighbours; their middle goes to the even one.
        let middle = 1.0 + 1.5 / 128.0;
        let even = 1.0 + 2.0 / 128.0;
        assert_eq!(round_bf16(middle, 0.0), (even, FLUSH));
        assert_eq!(round_bf16(middle + 1e-6, 1e-7), (even, FLUSH));
        let (value, error) = round_bf16(middle + 1e-6, 2e-6);
        assert_eq!((value, error), (even, 1.0 / 128.0 + FLUSH));
        // Beyond the largest a subject makes infinity.
        assert_eq!(round_bf16(3.39e38, 0.0).1, f64::INFINITY);
        assert_eq!(round_bf16(f64::NAN, 0.0).1, f64::INFINITY);
        for n in -4000..4000 {
            let value = f64::from(n).powi(3) * 1.7e-5;
            let error = value.abs() * 1e-4;
            let (rounded, limit) = round_bf16(value, error);
            for part in -8..=8 {
                let off = half::bf16::from_f32((value + error * f64::from(part) / 8.0) as f32);
                let off = (off.to_f64() - rounded).abs();
                assert!(off <= limit, "{value}: {off} beyond {limit}");
            }
        }
    }

    #[test]
    fn every_quantised_value_lies_within_what_widening_adds() {
        // Round to E4M3 by hand: three mantissa bits, steps of 2^-9 below 2^-6, at most 448.
        let e4m3 = |v: f64| {
            let exponent = v.abs().max(1.0 / 64.0).log2().floor();
            let step = 2f64.powf(exponent - 3.0);
            ((v / step).round() * step).clamp(-448.0, 448.0)
        };
        let values: Vec<f64> = (-3000..3000)
            .map(|n| f64::from(n) * f64::from(n).abs().sqrt() / 190.0)
            .collect();
        let amax = values.iter().fold(0.0, |m, v| f64::max(m, v.abs()));
        for (mode, scale) in [
            (ActQuant::Static, 0.5),
            (ActQuant::Static, 4.0),
            (ActQuant::Token, amax / 448.0),
            (ActQuant::Group, amax / 448.0),
        ] {
            let mut errors = vec![0.0; values.len()];
            widen(mode, scale as f32, &values, &mut errors);
            let mut largest = 0.0f64;
            for (v, error) in values.iter().zip(&errors) {
                let off = (e4m3(v / scale) * scale - v).abs();
                assert!(
                    off <= *error,
                    "{mode}: {v} is off by {off}, allowed {error}"
                );
                largest = largest.max(off / error);
            }
            assert!(largest > 0.5, "{mode}: the allowance is twice too large");
            assert!(!keeps(mode, scale as f32, &values));
        }
    }

    #[test]
    fn a_code_moves_only_where_the_error_reaches_a_tie() {
        let f32s = |v: f64| f64::from(v as f32);
        let values: Vec<f64> = (0..640)
            .map(|n| f32s((f64::from(n) * 0.7).sin() * 3.0))
            .collect();
        for mode in [ActQuant::Static, ActQuant::Token, ActQuant::Group] {
            let group = match mode {
                ActQuant::Group => 32,
                _ => values.len(),
            };
            for error in [0.0, 1e-6, 1e-3, 0.3] {
                let (mut quantised, mut errors) = (values.clone(), vec![error; values.len()]);
                follow(mode, 0.5, &mut quantised, &mut errors);
                let mut largest = 0.0f64;
                for turn in 0..40u32 {
                    // An f32 subject that is off by up to the error, everywhere another way.
                    let off = |n: usize| (f64::from(turn) * 1.3 + n as f64 * 2.1).sin() * error;
                    let moved: Vec<f32> = values
                        .iter()
                        .enumerate()
                        .map(|(n, v)| (v + off(n)) as f32)
                        .collect();
                    for (at, moved) in moved.chunks(group).enumerate() {
                        let amax = moved.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                        let scale = match mode {
                            ActQuant::Static => 0.5,
                            _ => amax / 448.0,
                        };
                        for (n, v) in moved.iter().enumerate() {
                            let by = if turn % 2 == 0 {
                                v / scale
                            } else {
                                v * (1.0 / scale)
                            };
                            let code = Dtype::E4m3.encode(f64::from(by), Encode::OCP);
                            let got = f64::from(Dtype::E4m3.decode(code) * scale);
                            let n = at * group + n;
                            // The sum of v and its offset was rounded too.
                            let limit = errors[n] + 1e-7 * (got.abs() + 1.0);
                            let off = (got - quantised[n]).abs();
                            assert!(off <= limit, "{mode} {error}: {got} for {}", quantised[n]);
                            largest = largest.max(off / limit);
                        }
                    }
                }
                assert!(largest > 0.05 || error < 1e-3, "{mode} {error}: {largest}");
                let tight = errors.iter().filter(|e| **e < 1e-5).count();
                // Nearly no value lies next to a tie.
                assert!(
                    error > 1e-6 || tight * 100 > values.len() * 99,
                    "{mode}: {tight}"
                );
            }
        }
    }
}
