//! Bounds how far an f32 subject may be from the reference.
//!
//! It must not know how the subject orders its sums. Layer 5.
//!
//! # Derivation
//!
//! u = 2^-24, g(n) = n u / (1 - n u): a product of n factors (1 + d), |d| <= u, differs from 1 by
//! at most g(n). A sum of n terms in *any* order, with or without fused multiply-add, puts at
//! most n roundings on a term; adding a zero is exact, so padding does not count. A subject that promises
//! its order puts fewer on it: c(n) <= n ([`Schedule::additions`](crate::schedule::Schedule::additions)); where none is
//! promised, c(n) = n + n/4 + 2, for step 8.
//!
//! 1. Input. The subject sees x + dx, x quantised as declared: |dx| from codes that rounding may move
//!    (see `quantise`) and, where the router weighs the input, from the weight's own error.
//! 2. First projection, row r, n1 = c(h) + extra (decoding a weight, block and second scale, product, bias, and
//!    scales applied late take 8, of plain f32 under a promised order 4: the product, the bias, one to spare and
//!    the reference's own): `|y' - y| <= e = sum_k |w_rk| (g(n1) (|x_k| + |dx_k|) + |dx_k|) + g(n1) |b_r|`.
//! 3. Activation A(g) B(u): A changes by at most dA (`activation::gate_and_change`) plus its
//!    evaluation, 32 u times `gate_scale` (libraries evaluate exp, tanh, erf, pow to a few ulp of
//!    the value, or a few u |argument|, which the factors x s(1-s), x sech^2, x e^-x^2 keep below
//!    the gate itself); B by dB, with slope 1, plus its evaluation (`up_change`). Together
//!    `eh = dA (|B| + dB) + |A| dB + 4 u (|A| + dA)(|B| + dB)`.
//!    An intermediate that the case holds in bf16 is rounded as in step 6, quantising is as in `quantise`.
//! 4. Second projection and sums, n2 = c(i) + k + tp + extra (c(i) and k additions, one for each rank, the
//!    rest as above with the routing weight), with routing weight v and its error dv:
//!    `|z' - z| <= sum_j |w_rj| (eh_j + g(n2) (|h_j| + eh_j)) + g(n2) |b_r|`,
//!    `|v' z' - v z| <= (|v| + dv) |z' - z| + dv |z|`, summed over the experts of the token.
//!    An identity expert is such a projection of one weight, 1, of the input, which is off by u' |x| where it is rounded
//!    to bf16, and has neither z nor a sum of its own, n3 = k + tp + extra:
//!    `|v' x' - v x| <= (|v| + dv) (dx + g(n3) (|x| + dx)) + dv |x|`.
//! 5. A device may flush what is below 2^-126 to zero: 2^-126 for each operation, times what it
//!    is multiplied with afterwards; taken as 2^-117 (a code is at most 448 < 2^9) a term.
//! 6. Where the input, the first projection, the gate (of `swiglu-rounded` always) or the intermediate is declared to
//!    be rounded to bf16 (u' = 2^-8), the reference rounds too, and the error becomes what the ends of its interval
//!    round to (`quantise::round_bf16`). After the second projection n roundings add
//!    r = n u' / (1 - n u') of the sizes that are added: |v (z + b)|, or |v| (sum_j |w_rj| (|h_j| + eh_j) + |b_r|)
//!    where each rank rounds its share.
//! 7. The reference's own rounding, n 2^-53 relative, is below u, of which the extra roundings hold one more than
//!    there are, for all lengths below 2^29; 2^-20 of the bound covers the bound's own arithmetic.
//! 8. Tensor cores do not round each addition. Of a group of 16 columns they multiply exactly, cut every addend
//!    to a multiple of 2^-F of the largest exponent, at most 2^-F of the largest addend, add exactly, and round
//!    toward zero, 2 u; F = 24 and 8 products at a time on sm_80 to sm_89, F = 25 and all 16 from sm_90 on
//!    (Fasi et al., PeerJ CS 7:e330; Xie et al., arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004).
//!    A group of m <= 8 products thus loses (m + 2) u sum |a b|, one of m <= 16 (m + 5) u: 8 and m - 8
//!    products, an accumulator, two roundings. The kernels here begin each group of 16 at zero and promise these
//!    blocks: over n columns that is `tensor_core(n)` u with the ceil(n / 16) roundings between groups, the scale's and
//!    the bias's, which is never more than c(n) + 8, nor with the routing weight's and the k - 1 and tp - 1 sums after
//!    it more than n2. Where nothing is promised the accumulator may run through all groups: 8 cuts and 2 u for each 8
//!    products on sm_80 to sm_89, so 10 u for 8, which c(n) = n + n/4 + 2 covers. The tests show both, and that F = 23
//!    (before sm_80) would leave the bound. Cores that keep fewer bits, as those for FP8 are said to, are not covered.
//! 9. Of f32 weights and a subject that says which partial sums it rounds ([`Arithmetic::lanes`]), bounds come from these
//!    sums. An f32 nearest to t is off by at most u p(t), p(t) the largest power of two in |t|. Let s be a partial sum of
//!    exact factors, and a and b what it is the sum of, off by at most e_a and e_b: the subject rounds a t within
//!    e_a + e_b of s, so that its own is off by at most `e_s = e_a + e_b + u p(|s| + e_a + e_b)`, where e of a product is
//!    |w| |dx|, by fused multiply-add. A sum with nothing (padding, a lane without products) is exact and adds nothing.
//!    Followed through the whole order (`product::follow`), e of the last sum is in place of the reach and of g(n1) in
//!    step 2, and where no ranks share the intermediate axis of that and g(n2) in step 4, with eh for dx; its bias, its
//!    routing weight and the k - 1 sums after it round it g(1 + k) more: `(|v| + dv) (1 + g) e + (dv + g (|v| + dv))
//!    |z + b|`. Where ranks share the axis, step 4 holds: their sums begin at channels that the reference does not know.
//!    In step 3 the product of gate and up is one rounding, and evaluating costs what the subject promises
//!    ([`Arithmetic::evaluation`]), of the gate's own value where that is gate times sigmoid of the gate.
//!    In f64, u is taken 2^-20 larger (as dx and each further factor), |s| 2^-30: a sum of n terms is off by n 2^-53
//!    of sum |s|, which is at most 2 sum p(t), and so is e of its own value; both are covered for n below 2^29, the
//!    reference's own rounding with them.

use super::activation::{gate_scale, known_scale};
use crate::case::Case;
use crate::terms::{Activation, Arithmetic, Bias, Rounded, Roundings, WeightFormat};

/// Unit roundoff of f32.
pub(super) const U: f64 = 1.0 / 16_777_216.0;
/// Unit roundoff of bf16: eight significant bits.
pub(super) const U_BF16: f64 = 1.0 / 256.0;
/// What the bound's own arithmetic and the reference's roundings are covered by (steps 7 and 9).
pub(super) const SLACK: f64 = 1.0 + 16.0 * U;
/// What flushing to zero may cost a term, 2^-117 (step 5).
pub(super) const FLUSH: f64 = f64::from_bits((1023 - 117) << 52);
/// Roundings of a term besides its additions (steps 2 and 4).
const EXTRA: u64 = 8;
/// The same of plain f32 weights under a promised order.
const EXTRA_PLAIN: u64 = 4;
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

/// What the bound of a case counts on of a subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    /// g(n1) and g(n2).
    gammas: (f64, f64),
    /// g(n3), of identity experts.
    identity: f64,
    rounds: Roundings,
    top_k: u64,
    /// Whether ranks hold shares of the second projection's sums, and each rounds its own.
    parted: bool,
    /// Whether partial sums of the first and of the second projection are known (step 9).
    followed: [bool; 2],
    /// 1 with biases, else 0.
    bias: u64,
    /// What evaluating an activation costs, where that is known (step 9).
    evaluation: Option<f64>,
}

impl Costs {
    pub(super) fn new(case: &Case, arithmetic: Arithmetic) -> Costs {
        let plain = case.w == WeightFormat::F32;
        let extra = match arithmetic.additions {
            Some(_) if plain => EXTRA_PLAIN,
            _ => EXTRA,
        };
        let any = || (any_order(case.h), any_order(case.i));
        let (h, i) = arithmetic.additions.unwrap_or_else(any);
        let gamma = |n: u64| gamma(n as f64);
        let parted = case.tp > case.ep;
        let known = arithmetic.lanes && plain && arithmetic.rounds == Roundings::NONE;
        let evaluation = arithmetic.evaluation.filter(|_| known);
        Costs {
            gammas: (gamma(h + extra), gamma(i + case.k + case.tp + extra)),
            identity: gamma(case.k + case.tp + extra),
            rounds: arithmetic.rounds,
            top_k: case.k,
            parted,
            followed: [known, known && !parted],
            bias: u64::from(case.bias == Bias::Both),
            evaluation: evaluation.map(f64::from),
        }
    }

    /// Step 2 or 9 for one token: appends what a weight of magnitude 1 adds.
    pub(super) fn first(&self, x: &[f64], dx: &[f64], reach: &mut Vec<f64>) -> Row {
        match self.followed[0] {
            true => followed((x, dx), (1.0, 0.0), self.bias, reach),
            false => first(self.gammas.0, x, dx, reach),
        }
    }

    /// Steps 4, 6 and 9 for one token and expert, with the routing weight and its error, or alone before it is weighted:
    /// appends what a weight of magnitude 1 adds.
    pub(super) fn second(
        &self,
        h: &[f64],
        eh: &[f64],
        weight: Option<(f64, f64)>,
        reach: &mut Vec<f64>,
    ) -> Row {
        let top_k = weight.map(|_| self.top_k);
        let weight = weight.unwrap_or((1.0, 0.0));
        if self.followed[1] {
            return followed((h, eh), weight, self.bias + top_k.unwrap_or(0), reach);
        }
        let second = Second {
            gamma: self.gammas.1,
            rounding: rounding(self.rounds, top_k),
            parted: self.parted,
        };
        second.row(h, eh, weight, reach)
    }

    /// Steps 4 and 6 for one element of a token's input, the weight of its identity expert and that weight's error.
    pub(super) fn identity(&self, x: f64, (v, dv): (f64, f64)) -> f64 {
        let rounding = rounding(self.rounds, Some(self.top_k));
        let weight = v.abs() + dv;
        let dx = match self.rounds.has(Rounded::X) {
            true => x.abs() * U_BF16,
            false => 0.0,
        };
        let size = x.abs() + dx;
        (1.0 + rounding)
            * (weight * (dx + self.identity * size + FLUSH * (2.0 + size)) + dv * x.abs())
            + rounding * weight * size
            + FLUSH
    }

    /// Step 3: the bound on a gate, from that on its change, for one within `e` of g.
    #[inline]
    pub(super) fn evaluated(&self, act: Activation, (g, e): (f64, f64), a: f64, da: f64) -> f64 {
        match self.evaluation {
            Some(cost) => known_evaluation(act, (g, e), a, da, cost),
            None => evaluated(da, gate_scale(act, g, a)),
        }
    }

    /// The change of the up factor: slope 1, and its evaluation, of a tanh as of a gate, of `u + 1` one rounding; a clamp
    /// and `u` itself are exact.
    #[inline]
    pub(super) fn up_change(&self, act: Activation, value: f64, e: f64) -> f64 {
        let evaluation = match act {
            Activation::Situ => self.evaluation.unwrap_or(EVALUATION),
            Activation::SwigluOai => 1.0,
            _ => 0.0,
        };
        e + evaluation * U * (value.abs() + e)
    }

    /// Step 3: the bound on `a b` from values, and bounds on the errors of both.
    #[inline]
    pub(super) fn product(&self, a: f64, da: f64, b: f64, db: f64) -> f64 {
        let (a, b) = (a.abs(), b.abs());
        let (roundings, slack) = match self.evaluation {
            Some(_) => (1.0, SLACK),
            None => (4.0, 1.0),
        };
        slack
            * (da * (b + db) + a * db + roundings * U * (a + da) * (b + db) + FLUSH * (1.0 + a + b))
    }
}

/// c(n) where nothing is promised: n additions, or what a tensor core makes of as many (step 8).
fn any_order(n: u64) -> u64 {
    n + n.div_ceil(4) + 2
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

/// A bound without a number bounds nothing: a weight of zero meets an infinite error.
pub(super) fn anything(bound: f64) -> f64 {
    if bound.is_nan() { f64::INFINITY } else { bound }
}

/// What a row's bound adds to its reach, the sum of its weights' magnitudes times what each adds (steps 2 and 4).
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Factor of the bias.
    bias: f64,
    /// Constant part.
    flush: f64,
    /// Factor of the row's own result (steps 4, 6 and 9).
    result: f64,
    /// Factor of the sum's error, where its partial sums are known (step 9).
    pub(super) followed: Option<f64>,
}

impl Row {
    /// The bound for a row with this reach and bias, and `z` without bias.
    #[inline]
    pub(super) fn limit(&self, reach: f64, bias: f64, z: f64) -> f64 {
        let limit = reach + self.bias * bias.abs() + self.flush;
        match self.result {
            0.0 => limit,
            result => limit + result * (z + bias).abs(),
        }
    }
}

/// Step 2 for one token: appends what a weight of magnitude 1 adds.
fn first(gamma: f64, x: &[f64], dx: &[f64], reach: &mut Vec<f64>) -> Row {
    let pairs = x.iter().zip(dx);
    reach.extend(pairs.map(|(x, dx)| gamma * (x.abs() + dx) + dx));
    Row {
        bias: gamma,
        flush: FLUSH * (x.len() as f64 + x.iter().map(|x| x.abs()).sum::<f64>()),
        result: 0.0,
        followed: None,
    }
}

/// Step 9: from factors and their errors, the weight of the sum and its error, and how often the weighted sum is
/// rounded: appends the errors.
fn followed(
    (x, dx): (&[f64], &[f64]),
    (v, dv): (f64, f64),
    times: u64,
    reach: &mut Vec<f64>,
) -> Row {
    let (weight, after) = (v.abs() + dv, gamma(times as f64));
    let mut size = 0.0;
    reach.extend(x.iter().zip(dx).map(|(x, dx)| {
        size += x.abs() + dx;
        dx * SLACK
    }));
    Row {
        bias: 0.0,
        flush: FLUSH * (1.0 + weight) * (x.len() as f64 + size),
        result: (dv + after * weight) * SLACK,
        followed: Some(weight * (1.0 + after) * SLACK),
    }
}

/// Step 4 for one token and expert, and step 6 after it.
#[derive(Debug, Clone, Copy)]
struct Second {
    /// g(n2).
    gamma: f64,
    /// r of step 6.
    rounding: f64,
    /// Whether ranks hold shares of the sum, and each rounds its own.
    parted: bool,
}

impl Second {
    /// From an intermediate and its errors, the routing weight and its error: appends what a weight of magnitude 1
    /// adds.
    fn row(&self, h: &[f64], eh: &[f64], (v, dv): (f64, f64), reach: &mut Vec<f64>) -> Row {
        let (weight, more) = (v.abs() + dv, 1.0 + self.rounding);
        let shares = if self.parted {
            self.rounding * weight
        } else {
            0.0
        };
        let mut size = 0.0;
        reach.extend(h.iter().zip(eh).map(|(h, eh)| {
            let all = h.abs() + eh;
            size += all;
            more * weight * (eh + self.gamma * all) + shares * all
        }));
        Row {
            bias: more * weight * self.gamma + shares,
            flush: more * FLUSH * (1.0 + weight) * (h.len() as f64 + size),
            // dv |z|, and what is rounded alone.
            result: more * dv
                + if self.parted {
                    0.0
                } else {
                    self.rounding * weight
                },
            followed: None,
        }
    }
}

/// r of step 6, for results of the second projection that are one of `top_k` of a token's, or looked at alone.
fn rounding(rounds: Roundings, top_k: Option<u64>) -> f64 {
    let n = roundings_after(rounds, top_k) as f64 * U_BF16;
    // So many roundings promise nothing.
    if n < 1.0 { n / (1.0 - n) } else { 1e100 }
}

/// Step 3: the bound on a gate from that on its change and the magnitude on which evaluating it is relative.
#[inline]
fn evaluated(da: f64, scale: f64) -> f64 {
    da + EVALUATION * U * (scale + da)
}

/// The same of a subject whose evaluation costs so many u (step 9).
fn known_evaluation(act: Activation, (g, e): (f64, f64), a: f64, da: f64, cost: f64) -> f64 {
    let scale = known_scale(act, g, a);
    // The square of a tanh is off twice, and rounded once more.
    let cost = match act {
        Activation::Relu2Clamped => 2.0 * cost + 1.0,
        _ => cost,
    };
    (da + cost * U * (scale + da.max(e))) * SLACK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;
    use crate::schedule::Schedule;

    #[test]
    fn a_tensor_core_rounds_a_term_no_more_often_than_a_chain_may() {
        // Groups of 16 are the order that the kernels promise.
        let blocked = Schedule::Blocked(16);
        let extra = EXTRA as usize;
        for n in 1..5000 {
            let additions = blocked.additions(n as u64).expect("fixed blocks") as usize;
            for chain in [n, additions] {
                assert!(tensor_core(n) <= chain + extra, "{n}");
                for (k, tp) in [(1, 1), (8, 1), (1, 8), (8, 8)] {
                    // The routing weight, and sums that begin at zero.
                    let second = tensor_core(n) + 1 + (k - 1) + (tp - 1);
                    assert!(second <= chain + k + tp + extra, "{n} {k} {tp}");
                }
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

    /// Error over bound of one group; in units of the magnitudes' sum.
    fn share(products: &[f64], fraction: i32, terms: usize) -> f64 {
        let exact: f64 = products.iter().sum();
        let magnitudes: f64 = products.iter().map(|p| p.abs()).sum();
        (aligned(products, fraction, terms) - exact).abs()
            / (gamma((products.len() as u64 + EXTRA) as f64) * magnitudes)
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
    fn a_bound_that_is_no_number_allows_anything() {
        // So long a sum that g(n) is infinite, and an input or a bias of zero.
        let mut reach = Vec::new();
        let row = first(gamma(2f64.powi(24)), &[0.0, 1.0], &[0.0, 0.0], &mut reach);
        assert!(reach[0].is_nan());
        assert_eq!(anything(row.limit(reach[0], 0.0, 0.0)), f64::INFINITY);
        assert_eq!(anything(1.5), 1.5);
    }

    #[test]
    fn an_accumulator_that_runs_through_all_groups_needs_more_than_a_rounding_a_product() {
        for n in [64, 256, 1024, 4096] {
            let small = |k: usize| {
                if k % 8 == 7 {
                    127.0 / 128.0
                } else {
                    255.0 / 128.0
                }
            };
            let products: Vec<f64> = (0..n)
                .map(|k| if k == 0 { 1.0 } else { small(k) * U })
                .collect();
            let share = share(&products, 24, 8);
            let allowed = gamma((any_order(n as u64) + EXTRA) as f64);
            let chain = gamma((n as u64 + EXTRA) as f64);
            assert!(share * chain / allowed < 1.0, "{n}: {share} of a chain's");
            assert!(n < 256 || share > 1.0, "{n}: {share}");
        }
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
