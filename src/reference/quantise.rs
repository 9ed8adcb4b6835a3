//! Bounds what quantising activations to E4M3 on the fly may change, and finds values it keeps.
//!
//! It must not quantise the reference's values. Layer 5.

use super::bound::U;
use crate::num::{Dtype, Encode};
use crate::terms::ActQuant;

/// Half an ulp of E4M3, relative: three stored mantissa bits.
const RELATIVE: f64 = 1.0 / 16.0;
/// Half of E4M3's smallest subnormal 2^-9, in units of the scale.
const ABSOLUTE: f64 = 1.0 / 1024.0;
/// E4M3's largest value (facts/upstream-padding.md 0.3).
const LARGEST: f64 = 448.0;
/// Largest floor under an amax that a stack uses: vLLM's least scale is 1 / (448 * 512).
const FLOOR: f64 = 1.0 / 512.0;

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
}
