//! The two precisions that a tree is evaluated in, and adders of many terms.

use std::ops::Add;

/// Bits below the largest term that an adder of many terms keeps; what lies below is cut off. A
/// matrix unit aligns its terms so, though with fewer bits; how many differs and is not modelled.
const KEPT: i32 = 70;

/// An accumulator.
pub(super) trait Number: Copy + Add<Output = Self> {
    const ZERO: Self;
    const ONE: Self;

    /// self * by + to, rounded once.
    fn mul_add(self, by: Self, to: Self) -> Self;

    /// The sum of all products, by one adder.
    fn fuse(terms: &[(Self, Self)]) -> Self;
}

impl Number for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;

    fn mul_add(self, by: f32, to: f32) -> f32 {
        f32::mul_add(self, by, to)
    }

    fn fuse(terms: &[(f32, f32)]) -> f32 {
        // A product of two f32 is an f64.
        let exact = |&(a, b): &(f32, f32)| f64::from(a) * f64::from(b);
        match aligned(terms.iter().map(exact)) {
            Aligned::Fixed(sum, unit) => scaled(f64::from(sum as f32), unit) as f32,
            Aligned::Not(sum) => sum as f32,
        }
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;

    fn mul_add(self, by: f64, to: f64) -> f64 {
        f64::mul_add(self, by, to)
    }

    /// Products are rounded to f64 first: no wider number holds them.
    fn fuse(terms: &[(f64, f64)]) -> f64 {
        match aligned(terms.iter().map(|(a, b)| a * b)) {
            Aligned::Fixed(sum, unit) => scaled(sum as f64, unit),
            Aligned::Not(sum) => sum,
        }
    }
}

enum Aligned {
    /// A sum in units of a power of two.
    Fixed(i128, i32),
    /// Zero, infinity or NaN.
    Not(f64),
}

/// The sum of terms cut at [`KEPT`] bits below the largest.
fn aligned(terms: impl Iterator<Item = f64> + Clone) -> Aligned {
    let plain: f64 = terms.clone().sum();
    let largest = terms.clone().fold(0.0, |m: f64, v| m.max(v.abs()));
    if largest == 0.0 || !plain.is_finite() || !largest.is_finite() {
        return Aligned::Not(plain);
    }
    let unit = libm::ilogb(largest) - KEPT;
    // At most 2^71 each, so that fewer than 2^56 terms fit.
    let sum = terms.map(|v| scaled(v, -unit) as i128).sum();
    Aligned::Fixed(sum, unit)
}

/// value * 2^power.
fn scaled(value: f64, power: i32) -> f64 {
    libm::ldexp(value, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adder_rounds_once_and_loses_what_lies_far_below() {
        let big = 2.0f32.powi(100);
        let ones = |terms: &[f32]| f32::fuse(&terms.iter().map(|&t| (t, 1.0)).collect::<Vec<_>>());
        assert_eq!(ones(&[big, 1.0, -big, 1.0]), 0.0);
        assert_eq!(ones(&[1e10, 1.0, -1e10]), 1.0);
        // 1 + 2^-24 + 2^-24: each alone would be rounded away.
        let tiny = 2.0f32.powi(-24);
        assert_eq!(ones(&[1.0, tiny, tiny]), 1.0 + 2.0 * tiny);
        // Products are exact inside.
        let near = 1.0 + 2.0f32.powi(-12);
        let square = f32::fuse(&[(near, near), (-(1.0 + 2.0f32.powi(-11)), 1.0)]);
        assert_eq!(square, 2.0f32.powi(-24));
        assert_eq!(f64::fuse(&[(3.0, 0.5), (1.0, 1.0)]), 2.5);
        assert!(ones(&[f32::INFINITY, -f32::INFINITY]).is_nan());
        assert_eq!(ones(&[0.0, 0.0]), 0.0);
        assert_eq!(ones(&[f32::MAX, f32::MAX]), f32::INFINITY);
    }
}
