//! Turns a token's logits into the scores that routers choose by, each with its f32 error.
//!
//! It must not choose. Layer 5.

use super::bound::U;
use crate::terms::{ROUTE_TANH_CAP, Route};

/// A score in f64 and a bound on what f32 makes of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Score {
    /// What weights are made of.
    pub(super) base: f64,
    /// Bound on the error of `base`.
    pub(super) base_error: f64,
    /// What experts are chosen by.
    pub(super) choice: f64,
    /// Bound on the error of `choice`.
    pub(super) choice_error: f64,
}

/// What an f32 below its range may lose: 2^-125, flushed or subnormal.
const FLUSH: f64 = f64::from_bits((1023 - 125) << 52);
/// The same under a square root: 2^-62.
const FLUSH_ROOT: f64 = f64::from_bits((1023 - 62) << 52);

/// A largest logit up to which the few roundings of a softmax, 16 u, hold those of scaled logits, 8 u, too.
const NEAR: f64 = 4.0;

/// Scores of one token.
///
/// Errors, in u: exp(a) is off by |a| (its rounded argument) and a few more; a softmax by that,
/// its sum of e terms and a division, and by what its largest logit has above [`NEAR`], twice, as kernels may scale
/// logits for a power of two before they take the largest off; a sigmoid and a softplus (by log1p) by |logit| and a few
/// more; a capped logit by 16 |logit| before its exp. Routers that compare logits are exact.
pub(super) fn scores(route: Route, logits: &[f32], bias: &[f32]) -> Vec<Score> {
    let logits: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    let bases: Vec<(f64, f64)> = match route {
        Route::Given | Route::TopkSoftmax | Route::Llama4 | Route::SparseMixer => {
            logits.iter().map(|&l| (l, 0.0)).collect()
        }
        Route::Softmax
        | Route::SoftmaxRenorm
        | Route::SoftmaxBias
        | Route::SoftmaxBiasRenorm
        | Route::GroupedSoftmax => softmax(&logits, 0.0),
        Route::TanhCapped => {
            let cap = f64::from(ROUTE_TANH_CAP);
            let capped: Vec<f64> = logits.iter().map(|&l| cap * libm::tanh(l / cap)).collect();
            let largest = capped.iter().fold(0.0, |m, l| f64::max(m, l.abs()));
            softmax(&capped, 32.0 * largest)
        }
        Route::Sigmoid | Route::SigmoidRenorm | Route::SigmoidBias | Route::GroupedSigmoidBias => {
            logits.iter().map(|&l| sigmoid(l)).collect()
        }
        Route::SqrtSoftplusBias => logits.iter().map(|&l| sqrt_softplus(l)).collect(),
    };
    bases
        .into_iter()
        .enumerate()
        .map(|(n, (base, base_error))| match bias.get(n) {
            None => Score {
                base,
                base_error,
                choice: base,
                choice_error: base_error,
            },
            Some(&b) => {
                let choice = base + f64::from(b);
                let choice_error = base_error + U * (choice.abs() + base_error);
                Score {
                    base,
                    base_error,
                    choice,
                    choice_error,
                }
            }
        })
        .collect()
}

/// Softmax with its errors; `extra` is in u, for logits that are not exact.
pub(super) fn softmax(logits: &[f64], extra: f64) -> Vec<(f64, f64)> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = logits.iter().map(|l| libm::exp(l - largest)).collect();
    let sum: f64 = powers.iter().sum();
    let scaled = 2.0 * (largest.abs() - NEAR).max(0.0);
    let terms = 2.0 * logits.len() as f64 + 16.0 + scaled + extra;
    logits
        .iter()
        .zip(powers)
        .map(|(l, p)| {
            let value = p / sum;
            (value, value * (2.0 * (largest - l) + terms) * U + FLUSH)
        })
        .collect()
}

/// Sigmoid with its error.
pub(super) fn sigmoid(l: f64) -> (f64, f64) {
    let value = 1.0 / (1.0 + libm::exp(-l));
    (value, value * (2.0 * l.abs() + 16.0) * U + FLUSH)
}

/// sqrt(softplus) with its error.
fn sqrt_softplus(l: f64) -> (f64, f64) {
    let value = (l.max(0.0) + libm::log1p(libm::exp(-l.abs()))).sqrt();
    (value, value * (2.0 * l.abs() + 16.0) * U + FLUSH_ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::LOG2_E;

    /// The largest error over its bound of a softmax in f32 that scales logits for a power of two before it takes
    /// their largest off, over tokens of four logits within ±4 of `center`.
    fn scaled(center: f32) -> f64 {
        let mut worst = 0.0;
        for token in 0..2000u32 {
            let logits: [f32; 4] = std::array::from_fn(|n| {
                let step = (token * 4 + n as u32).wrapping_mul(2_654_435_761) >> 8;
                center + step as f32 / 2_097_152.0 - 4.0
            });
            let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers = logits.map(|l| (l * LOG2_E - top * LOG2_E).exp2());
            let sum: f32 = powers.iter().sum();
            let wanted = softmax(&logits.map(f64::from), 0.0);
            for (power, (value, error)) in powers.iter().zip(wanted) {
                worst = f64::max(worst, (f64::from(power / sum) - value).abs() / error);
            }
        }
        worst
    }

    #[test]
    fn logits_may_be_scaled_before_their_largest_is_taken_off() {
        for center in [0.0, 20.0, 100.0, -100.0] {
            let worst = scaled(center);
            assert!(worst < 1.0, "{center}: {worst}");
            // What the largest adds is needed: without it a bound of some 40 u would be left.
            assert!(center.abs() < 100.0 || worst > 0.2, "{center}: {worst}");
        }
    }
}
