//! Chooses how small and how sparse the exact fill must be, so that no sum ever rounds.
//!
//! It must not draw values. Layer 4.

use crate::case::Case;
use crate::rng;
use crate::terms::{ActQuant, Activation, Bias, Fill, Route};

/// Significant bits of f32: integers below 2^24 in units of a common quantum add exactly.
const SIGNIFICAND: f64 = 16_777_216.0;

/// Largest magnitude of a bias, in units of its quantum.
pub(super) const BIAS_MAX: f64 = 2.0;

/// Given routing weights are 1, 1/2 or 1/4: up to four quanta of 1/4.
pub(super) const WEIGHTS: [f32; 3] = [1.0, 0.5, 0.25];

/// How the exact fill draws. Magnitudes count quanta; every value is an integer times a power
/// of two that is the same for its whole tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    /// Largest magnitude of an input.
    pub(super) x_max: u32,
    /// Largest magnitude of an unscaled weight.
    pub(super) code_max: u32,
    /// Scales are 2^s times 1, or times 1 or 2.
    pub(super) band: u32,
    /// One weight in so many of a w13 row may differ from zero.
    pub(super) stride13: u64,
    /// The same for w2.
    pub(super) stride2: u64,
    /// Quantum of w13, as an exponent of two.
    pub(super) shift13: i32,
    /// Quantum of w2, as an exponent of two.
    pub(super) shift2: i32,
}

impl Exact {
    /// The least sparse choice under which every partial sum fits, or the sparsest there is.
    pub(super) fn choose(case: &Case) -> Exact {
        let word = rng::value(case.seed, super::layer::stream::EXACT, 0);
        let mut exact = Exact {
            x_max: 2,
            code_max: 2,
            band: 2,
            stride13: 1,
            stride2: 1,
            shift13: -((word % 3) as i32),
            shift2: -((word / 3 % 3) as i32),
        };
        while !exact.fits(case) && exact.shrink(case) {}
        exact
    }

    /// Whether |sum| < 2^24 quanta for every partial sum of either product, in any order, on any
    /// share of the intermediate axis, and after the weighted sum over experts and ranks:
    /// each is a sum of some of the terms whose magnitudes are added up here.
    fn fits(&self, case: &Case) -> bool {
        let weight = f64::from(self.code_max) * self.scale_max(case);
        let bias = if case.bias == Bias::Both {
            BIAS_MAX
        } else {
            0.0
        };
        let terms13 = case.h.div_ceil(self.stride13) as f64;
        let mid = f64::from(self.x_max) * weight * terms13 + bias;
        let activated = if case.act == Activation::Relu2 {
            mid * mid
        } else {
            mid
        };
        let terms2 = case.i.div_ceil(self.stride2) as f64;
        let expert = activated * weight * terms2 + bias;
        let output = expert * 4.0 * factor_quanta(case) * case.k as f64;
        mid < SIGNIFICAND && activated < SIGNIFICAND && output < SIGNIFICAND
    }

    /// Largest product of a block scale and a second-level scale, in quanta.
    fn scale_max(&self, case: &Case) -> f64 {
        let band = f64::from(self.band);
        match (case.w.scale(), case.w.has_global_scale()) {
            (None, _) => 1.0,
            (Some(_), false) => band,
            (Some(_), true) => band * band,
        }
    }

    /// One step sparser or smaller; false when there is none left.
    fn shrink(&mut self, case: &Case) -> bool {
        let terms13 = case.h.div_ceil(self.stride13);
        let terms2 = case.i.div_ceil(self.stride2);
        if self.x_max > 1 {
            self.x_max = 1;
        } else if terms13 > 32 && terms13 >= terms2 / 4 {
            self.stride13 *= 2;
        } else if terms2 > 32 {
            self.stride2 *= 2;
        } else if self.band > 1 {
            self.band = 1;
        } else if self.code_max > 1 {
            self.code_max = 1;
        } else if terms13 > 1 && terms13 >= terms2 {
            self.stride13 *= 2;
        } else if terms2 > 1 {
            self.stride2 *= 2;
        } else {
            return false;
        }
        true
    }
}

/// routed_scaling_factor as an odd multiple of a power of two: eighths hold every factor that is
/// a multiple of 0.125, and quanta grow with the factor's trailing zeros.
fn factor_quanta(case: &Case) -> f64 {
    let eighths = (case.factor / 125).max(1);
    (eighths >> eighths.trailing_zeros().min(3)) as f64
}

/// Whether the fill makes every operation of the layer exact, up to what quantisation or
/// rounding of the intermediate does (the reference checks those on the values).
///
/// Needs an exact fill whose sums fit, a piecewise polynomial activation, given dyadic routing
/// weights, no identity experts (quanta of inputs are not those of outputs), a dyadic factor, and inputs
/// that E4M3 holds where they are quantised.
pub fn is_exact(case: &Case) -> bool {
    case.fill == Fill::Exact
        && case.act.exact()
        && case.route == Route::Given
        && case.zero == 0
        && case.factor.is_multiple_of(125)
        && matches!(case.qx, ActQuant::None | ActQuant::Static)
        && Exact::choose(case).fits(case)
}
