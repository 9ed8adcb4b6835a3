//! Bounds how far an f32 subject may be from the reference.
//!
//! It must not know how the subject orders its sums. Layer 5.
//!
//! # Derivation
//!
//! u = 2^-24, g(n) = n u / (1 - n u): a product of n factors (1 + d), |d| <= u, differs from 1 by
//! at most g(n). A sum of n terms in *any* order, with or without fused multiply-add, puts at
//! most n roundings on a term; adding a zero is exact, so padding does not count. |.| is the
//! 2-norm, and sum |a b| <= |a| |b| (Cauchy-Schwarz).
//!
//! 1. Input. The subject sees x + dx, x quantised as declared: |dx| from codes that rounding may move
//!    (see `quantise`) and, where the router weighs the input, from the weight's own error.
//! 2. First projection, row r, n1 = h + 8 (h additions; decoding a weight, block and second
//!    scale, product, bias, and scales applied late take the 8):
//!    `|y' - y| <= e = g(n1) (|x + dx| |w_r| + |b_r|) + |dx| |w_r|`.
//! 3. Activation A(g) B(u): A changes by at most dA = L e (`activation::gate_change`) plus its
//!    evaluation, 32 u times `gate_scale` (libraries evaluate exp, tanh, erf, pow to a few ulp of
//!    the value, or a few u |argument|, which the factors x s(1-s), x sech^2, x e^-x^2 keep below
//!    the gate itself); B by dB alike, with slope 1. Together
//!    `eh = dA (|B| + dB) + |A| dB + 4 u (|A| + dA)(|B| + dB)`.
//!    An intermediate that the case holds in bf16 is rounded as in step 6, quantising is as in `quantise`.
//! 4. Second projection and sums, n2 = i + k + tp + 8 (i and k additions, one for each rank, the
//!    8 as above with the routing weight), with routing weight v and its error dv:
//!    `|z' - z| <= |eh| |w_r| + g(n2) (|h + eh| |w_r| + |b_r|)`,
//!    `|v' z' - v z| <= (|v| + dv) |z' - z| + dv |z|`, summed over the experts of the token.
//! 5. A device may flush what is below 2^-126 to zero: 2^-126 for each operation, times what it
//!    is multiplied with afterwards; taken as 2^-117 (a code is at most 448 < 2^9) a term.
//! 6. Where the input, the first projection or the intermediate is declared to be rounded to bf16
//!    (u' = 2^-8), the reference rounds too, and the error becomes what the ends of its interval round
//!    to (`quantise::round_bf16`); the gate's rounding adds u' of it. After the second projection n roundings add g'(n) = n u' / (1 - n u') of
//!    the sizes that are added: |v (z + b)|, or |v| (|h + eh| |w_r| + |b_r|) where each rank rounds
//!    its share.
//! 7. The reference's own rounding, n 2^-53 relative, is below the slack of 8 u in n1 and n2 for
//!    all lengths below 2^29; 2^-20 of the bound covers the bound's own arithmetic.
//! 8. Tensor cores do not round each addition. Of a group of 16 columns they multiply exactly, cut every addend
//!    to a multiple of 2^-F of the largest exponent, at most 2^-F of the largest addend, add exactly, and round
//!    toward zero, 2 u; F = 24 and 8 products at a time on sm_80 to sm_89, F = 25 and all 16 from sm_90 on
//!    (Fasi et al., PeerJ CS 7:e330; Xie et al., arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004).
//!    A group of m <= 8 products thus loses (m + 2) u sum |a b|, one of m <= 16 (m + 5) u: 8 and m - 8
//!    products, an accumulator, two roundings. Over n columns that is `tensor_core(n)` u with the ceil(n / 16)
//!    roundings between groups, the scale's and the bias's, which is never more than n + 8, nor with the routing
//!    weight's and the k - 1 and tp - 1 sums after it more than n2. So steps 2 and 4 hold as they are: the tests
//!    show it, and that F = 23 (before sm_80, which no kernel here runs on) would leave the bound.

use crate::terms::{Rounded, Roundings};

/// Unit roundoff of f32.
pub(super) const U: f64 = 1.0 / 16_777_216.0;
/// Unit roundoff of bf16: eight significant bits.
pub(super) const U_BF16: f64 = 1.0 / 256.0;
/// What flushing to zero may cost a term, 2^-117 (step 5).
pub(super) const FLUSH: f64 = f64::from_bits((1023 - 117) << 52);
/// Roundings of a term besides its additions (steps 2 and 4).
const EXTRA: f64 = 8.0;
/// Relative cost of evaluating an activation in f32, in u (step 3).
const EVALUATION: f64 = 32.0;

/// g(n) = n u / (1 - n u); infinite where n u reaches 1.
pub(super) fn gamma(n: f64) -> f64 {
    if n * U < 1.0 {
        n * U / (1.0 - n * U)
    } else {
        f64::INFINITY
    }
}

/// g(n1) for a hidden size.
pub(super) fn gamma_first(h: usize) -> f64 {
    gamma(h as f64 + EXTRA)
}

/// g(n2) for an intermediate size, experts a token and ranks.
pub(super) fn gamma_second(i: usize, k: usize, tp: u64) -> f64 {
    gamma(i as f64 + k as f64 + tp as f64 + EXTRA)
}

/// Roundings, in u, of a term of a first projection of `n` columns on a tensor core of sm_80 or later (step 8).
#[cfg(test)]
fn tensor_core(n: usize) -> usize {
    let group = match n.min(16) {
        0 => 0,
        m @ ..=8 => m + 2,
        m => m + 5,
    };
    group + n.div_ceil(16) + 2
}

/// How often a result of the second projection is rounded to bf16 at the most (step 6): as one of
/// `top_k` of a token up to the rank's output, or alone before it is weighted.
pub(super) fn roundings_after(rounds: Roundings, top_k: Option<u64>) -> u64 {
    let times = |place, n| if rounds.has(place) { n } else { 0 };
    let alone = times(Rounded::Fc2, 1);
    match top_k {
        None => alone,
        Some(k) => {
            alone + times(Rounded::Weighted, 1) + times(Rounded::Sum, k) + times(Rounded::Y, 1)
        }
    }
}

/// 2-norm.
pub(super) fn norm(values: &[f64]) -> f64 {
    sum_squares(values).sqrt()
}

/// Sum of squares, in eight lanes so that it vectorises.
pub(super) fn sum_squares(values: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v * v;
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|v| v * v).sum::<f64>()
}

/// Step 2 for one token: `e = slope |w_r| + gamma |b_r| + flush`.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    /// Factor of the row's norm.
    pub(super) slope: f64,
    /// Factor of the bias.
    pub(super) gamma: f64,
    /// Constant part.
    pub(super) flush: f64,
}

impl First {
    /// From the norms of the token's input and of its error, and the hidden size.
    pub(super) fn new(x: f64, dx: f64, h: usize) -> First {
        let gamma = gamma_first(h);
        let h = h as f64;
        First {
            slope: gamma * (x + dx) + dx,
            gamma,
            flush: FLUSH * (h + h.sqrt() * x),
        }
    }

    /// The bound for a row with this norm and bias.
    #[inline]
    pub(super) fn row(&self, norm: f64, bias: f64) -> f64 {
        self.slope * norm + self.gamma * bias.abs() + self.flush
    }
}

/// Step 3: the bound on `a b` from values, bounds on the changes of both, and the magnitude on
/// which evaluating `a` is relative; `rounded` when `a` is rounded to bf16 first.
#[inline]
pub(super) fn product(a: f64, da: f64, scale: f64, b: f64, db: f64, rounded: bool) -> f64 {
    let mut da = da + EVALUATION * U * (scale + da);
    if rounded {
        da += U_BF16 * (a.abs() + da);
    }
    let (a, b) = (a.abs(), b.abs());
    da * (b + db) + a * db + 4.0 * U * (a + da) * (b + db) + FLUSH * (1.0 + a + b)
}

/// The change of the up factor: slope 1, and its evaluation.
#[inline]
pub(super) fn up_change(value: f64, e: f64) -> f64 {
    e + EVALUATION * U * (value.abs() + e)
}

/// Step 4 for one token and expert: `slope |w_r| + bias |b_r| + flush`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Second {
    /// Factor of the row's norm.
    pub(super) slope: f64,
    /// Factor of the bias.
    pub(super) bias: f64,
    /// Constant part.
    pub(super) flush: f64,
    /// What roundings to bf16 after the second projection add, relative.
    rounding: f64,
    /// Whether ranks hold shares of the sum, and each rounds its own.
    parted: bool,
    /// (|v| + dv) and that times |h + eh|.
    weight: f64,
    reach: f64,
}

impl Second {
    /// From the norms of the intermediate and of its error, the routing weight and its error,
    /// g(n2) and the intermediate size.
    pub(super) fn new(h: f64, eh: f64, v: f64, dv: f64, gamma: f64, i: usize) -> Second {
        let weight = v.abs() + dv;
        let i = i as f64;
        Second {
            slope: weight * (eh + gamma * (h + eh)) + dv * h,
            bias: weight * gamma + dv,
            flush: FLUSH * (1.0 + weight) * (i + i.sqrt() * (h + eh)),
            rounding: 0.0,
            parted: false,
            weight,
            reach: weight * (h + eh),
        }
    }

    /// The same for a subject that rounds to bf16 after this projection: of a result that is one of
    /// `top_k` of its token's, or that is looked at alone, before it is weighted.
    pub(super) fn rounded(self, rounds: Roundings, top_k: Option<u64>, shared: bool) -> Second {
        let n = roundings_after(rounds, top_k) as f64 * U_BF16;
        Second {
            rounding: if n < 1.0 {
                n / (1.0 - n)
            } else {
                f64::INFINITY
            },
            parted: shared,
            ..self
        }
    }

    /// The bound for a row with this norm and bias, and `z` without bias (steps 4 and 6).
    #[inline]
    pub(super) fn row(&self, norm: f64, bias: f64, z: f64) -> f64 {
        let limit = self.slope * norm + self.bias * bias.abs() + self.flush;
        if self.rounding == 0.0 {
            return limit;
        }
        let size = match self.parted {
            true => self.reach * norm + self.weight * bias.abs(),
            false => self.weight * (z + bias).abs(),
        };
        limit + self.rounding * (size + limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    #[test]
    fn a_tensor_core_rounds_a_term_no_more_often_than_a_chain_may() {
        for n in 1..5000 {
            assert!(tensor_core(n) as f64 <= n as f64 + EXTRA, "{n}");
            for (k, tp) in [(1, 1), (8, 1), (1, 8), (8, 8)] {
                // The routing weight, and sums that begin at zero.
                let second = tensor_core(n) + 1 + (k - 1) + (tp - 1);
                assert!(second as f64 <= (n + k + tp) as f64 + EXTRA, "{n} {k} {tp}");
            }
        }
    }

    /// The sum of products as tensor cores add them, `terms` at a time with `fraction` bits below the largest
    /// exponent; products here are normalised, which cuts no less.
    fn aligned(products: &[f64], fraction: i32, terms: usize) -> f64 {
        let exponent = |x: f64| match x {
            0.0 => -149,
            x => x.abs().log2().floor() as i32,
        };
        products.chunks(terms).fold(0.0, |sum, part| {
            let addends: Vec<f64> = part.iter().copied().chain([sum]).collect();
            let most = addends.iter().map(|x| exponent(*x)).max().unwrap_or(0);
            let unit = 2f64.powi(most - fraction);
            let total: f64 = addends.iter().map(|x| (x / unit).trunc() * unit).sum();
            let ulp = 2f64.powi(exponent(total) - 23);
            (total / ulp).trunc() * ulp
        })
    }

    /// Error over bound of one group; the magnitudes' sum stands for the norms' product, which is no smaller.
    fn share(products: &[f64], fraction: i32, terms: usize) -> f64 {
        let exact: f64 = products.iter().sum();
        let magnitudes: f64 = products.iter().map(|p| p.abs()).sum();
        (aligned(products, fraction, terms) - exact).abs()
            / (gamma_first(products.len()) * magnitudes)
    }

    /// One, and others each just below what is kept beside it.
    fn worst(n: usize, fraction: i32) -> Vec<f64> {
        let just_below = 2f64.powi(-fraction) * (1.0 - 1.0 / 256.0);
        let mut all = vec![just_below; n];
        all[0] = 1.0;
        all
    }

    #[test]
    fn what_tensor_cores_cut_lies_just_inside_the_bound_and_with_a_bit_less_just_outside() {
        // sm_80 to sm_89, and sm_90 on.
        let ampere = share(&worst(16, 24), 24, 8);
        let hopper = share(&worst(16, 25), 25, 16);
        assert!(ampere > 0.5 && ampere < 1.0, "{ampere}");
        assert!(hopper > 0.25 && hopper < 1.0, "{hopper}");
        let less = share(&worst(16, 23), 23, 4);
        assert!(less > 1.0 && less < 2.0, "{less}");
    }

    #[test]
    fn drawn_groups_of_every_length_stay_inside_on_every_tensor_core_there_is() {
        for n in 1..=16 {
            for draw in 0..400 {
                let products: Vec<f64> = (0..n as u64)
                    .map(|k| {
                        let bits = rng::value(n as u64, draw, k);
                        // Products of bfloat16: sixteen bits, of magnitudes up to 2^-28 apart.
                        let significand = 1.0 + (bits & 0x7fff) as f64 / 32768.0;
                        let sign = if bits >> 15 & 1 == 0 { 1.0 } else { -1.0 };
                        sign * significand * 2f64.powi(-((bits >> 16 & 31) as i32).min(28))
                    })
                    .collect();
                for (fraction, terms) in [(24, 8), (25, 16)] {
                    let share = share(&products, fraction, terms);
                    assert!(share <= 1.0, "{n} {fraction}: {share} of {products:?}");
                }
            }
        }
    }
}
