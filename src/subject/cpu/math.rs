//! Elementary functions in plain f32 arithmetic: the same bits on every machine.
//!
//! Everything is branch-free over lanes, so that loops over it vectorise; `mul_add` is a fused
//! instruction inside `pulp`'s dispatch and a correctly rounded call elsewhere.

/// Largest error of [`exp`] in units in the last place, and of the sigmoid and silu built on it
/// (exp, one addition, one division) where the argument itself is exact. Tested over a dense
/// sweep of arguments; [`exp`] alone stays below 1.
pub const SIGMOID_ERROR_ULP: f32 = 3.0;

/// 1/k! for k = 7 down to 0: the Taylor tail beyond is below 6e-9 relative on |r| <= ln(2)/2.
const FACTORIALS: [f32; 8] = [
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];
/// ln 2 cut to 15 bits, so that n times it is exact for |n| < 512.
const LN2_HIGH: f32 = 22713.0 / 32768.0;
/// What is left of ln 2.
const LN2_LOW: f32 = (std::f64::consts::LN_2 - 22713.0 / 32768.0) as f32;
/// Adding and subtracting it rounds to an integer, which then sits in the low mantissa bits.
const ROUNDER: f32 = 12_582_912.0;

/// e^x with an error below 1 ulp for normal results; overflow gives infinity, NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinity. Comparisons, so that NaN passes.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 90.0 { 90.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let mut p = FACTORIALS[0];
    let mut k = 1;
    while k < FACTORIALS.len() {
        p = p.mul_add(r, FACTORIALS[k]);
        k += 1;
    }
    // 2^n in two factors: n reaches from -152 to 130, beyond one normal exponent.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x * sigmoid(x).
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Rounds to bfloat16, ties to even; NaN stays NaN.
#[inline(always)]
pub(super) fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    if x.is_nan() {
        x
    } else {
        f32::from_bits(rounded)
    }
}

/// Largest finite E4M3FN value (facts/upstream-padding.md 0.3).
pub(super) const E4M3_MAX: f32 = 448.0;

/// Rounds to the nearest E4M3FN value, ties to even; beyond the largest it saturates; NaN stays.
#[inline(always)]
pub(super) fn round_e4m3(x: f32) -> f32 {
    let bits = x.to_bits();
    // Three mantissa bits are kept of 23.
    let normal = f32::from_bits(bits.wrapping_add(0x7_ffff + ((bits >> 20) & 1)) & 0xfff0_0000);
    // Below 2^-6 the step is 2^-9 throughout.
    let step = ROUNDER / 512.0;
    let small = f32::from_bits(((x.abs() + step) - step).to_bits() | (bits & 0x8000_0000));
    let near = if x.abs() < 0.015_625 { small } else { normal };
    let near = if near > E4M3_MAX { E4M3_MAX } else { near };
    let near = if near < -E4M3_MAX { -E4M3_MAX } else { near };
    if x.is_nan() { x } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(actual: f32, wanted: f64) -> f64 {
        let near = wanted as f32;
        let ulp = f64::from(near.next_up()) - f64::from(near);
        ((f64::from(actual) - wanted) / ulp).abs()
    }

    #[test]
    fn exp_is_within_one_ulp_wherever_its_result_is_normal() {
        let (mut worst, mut at) = (0.0f64, 0.0);
        for step in 0..2_000_000 {
            let x = -87.3 + step as f32 * 8.8e-5;
            if x < 88.7 {
                let error = ulps(exp(x), libm::exp(f64::from(x)));
                if error > worst {
                    (worst, at) = (error, x);
                }
            }
        }
        assert!(worst < 1.0, "{worst} ulp at {at}");
    }

    #[test]
    fn sigmoid_and_silu_keep_their_stated_error() {
        let mut worst = 0.0f64;
        for step in 0..400_000 {
            let x = -80.0 + step as f32 * 4e-4;
            let wide = f64::from(x);
            let wanted = 1.0 / (1.0 + libm::exp(-wide));
            worst = worst.max(ulps(sigmoid(x), wanted));
            if x != 0.0 {
                worst = worst.max(ulps(silu(x), wide * wanted));
            }
        }
        assert!(worst < f64::from(SIGMOID_ERROR_ULP), "{worst} ulp");
    }

    #[test]
    fn exp_at_the_extremes_is_zero_infinity_or_nan() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::MIN), 0.0);
        assert_eq!(exp(-104.0), 0.0);
        assert!(exp(-103.0) > 0.0, "the smallest subnormal is reached");
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::MAX), f32::INFINITY);
        assert_eq!(exp(88.73), f32::INFINITY);
        assert!(exp(88.72).is_finite());
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(silu(-1e30), 0.0);
        assert_eq!(silu(1e30), 1e30);
        assert!(
            silu(f32::NEG_INFINITY).is_nan(),
            "inf * 0 is NaN, as in a kernel"
        );
        assert!(silu(f32::NAN).is_nan());
    }

    #[test]
    fn bf16_rounding_is_half_crates() {
        for x in [
            0.0,
            -0.0,
            1.0,
            1.003_906_2,
            1.011_718_8,
            3.4e38,
            f32::INFINITY,
            1e-40,
            -7.3,
        ] {
            assert_eq!(
                round_bf16(x).to_bits(),
                half::bf16::from_f32(x).to_f32().to_bits(),
                "{x}"
            );
        }
        assert!(round_bf16(f32::NAN).is_nan());
        assert!(round_bf16(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn e4m3_rounding_takes_the_nearest_value_and_ties_go_to_even() {
        let all: Vec<f32> = (0..127u8).map(super::super::unpack::e4m3).collect();
        for pair in all.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            let middle = (low + high) / 2.0;
            assert_eq!(round_e4m3(low), low);
            assert_eq!(round_e4m3(middle.next_down()), low);
            assert_eq!(round_e4m3(-middle.next_up()), -high);
            let even = if all.iter().position(|&v| v == low).unwrap() % 2 == 0 {
                low
            } else {
                high
            };
            assert_eq!(round_e4m3(middle), even, "tie at {middle}");
        }
        assert_eq!(round_e4m3(464.0), 448.0);
        assert_eq!(round_e4m3(f32::NEG_INFINITY), -448.0);
        assert!(round_e4m3(f32::NAN).is_nan());
    }
}
