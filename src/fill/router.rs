//! Draws what the router gets: ids and weights, or logits and a correction bias.
//!
//! It must not choose experts from logits. Layer 4.

use super::exact::WEIGHTS;
use super::layer::stream;
use crate::case::Case;
use crate::rng;
use crate::tensor::RouterInput;
use crate::terms::{Fill, Route};

/// Draws the router's input for a case whose sizes have been checked.
pub(super) fn router(case: &Case) -> RouterInput {
    match case.route {
        Route::Given => given(case),
        _ => logits(case),
    }
}

/// Experts that get tokens easily: all of them in half of the cases, else some, so that empty
/// experts are common.
struct Favoured {
    first: u64,
    count: u64,
}

impl Favoured {
    fn draw(case: &Case) -> Favoured {
        let word = rng::value(case.seed, stream::FAVOURED, 0);
        let count = if word & 1 == 0 {
            case.choices()
        } else {
            case.k.max(1 + (word >> 1) % case.choices())
        };
        Favoured {
            first: (word >> 32) % case.choices(),
            count,
        }
    }

    fn contains(&self, expert: u64, experts: u64) -> bool {
        (expert + experts - self.first) % experts < self.count
    }
}

/// Distinct experts by a shuffle of the favoured ones, undone after each token so that a token's
/// experts depend on its own index alone.
fn given(case: &Case) -> RouterInput {
    let favoured = Favoured::draw(case);
    let mut order: Vec<u32> = (0..favoured.count)
        .map(|n| ((favoured.first + n) % case.choices()) as u32)
        .collect();
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    let mut swaps = Vec::with_capacity(case.k as usize);
    for token in 0..case.t {
        for slot in 0..case.k {
            let word = rng::value(case.seed, stream::ROUTER, token * case.k + slot);
            let other = slot + (word >> 8) % (favoured.count - slot);
            order.swap(slot as usize, other as usize);
            swaps.push((slot as usize, other as usize));
            ids.push(order[slot as usize]);
            weights.push(WEIGHTS[(word & 255) as usize % WEIGHTS.len()]);
        }
        while let Some((a, b)) = swaps.pop() {
            order.swap(a, b);
        }
    }
    RouterInput::Given { ids, weights }
}

/// Logits within ±4, six lower for experts out of favour. A quarter of the tokens has logits on
/// a grid of halves, and biases are on a grid of eighths: exact ties then happen now and then. Under the sparse mixer
/// half of the tokens has its logits within 6 % of one number, so that several survive its band of 2 %. Under the edge
/// fill some tokens' are all [`far`] from zero.
fn logits(case: &Case) -> RouterInput {
    let favoured = Favoured::draw(case);
    let experts = case.choices();
    let mut logits = Vec::with_capacity((case.t * experts) as usize);
    for token in 0..case.t {
        let kind = rng::value(case.seed, stream::TIES, token);
        let coarse = kind.is_multiple_of(4);
        let close = case.route == Route::SparseMixer && kind % 4 > 1;
        let far = far(case, kind);
        for expert in 0..experts {
            let unit = unit(rng::value(
                case.seed,
                stream::ROUTER,
                token * experts + expert,
            ));
            let mut logit = match close {
                true => (8.0 * self::unit(kind) - 4.0) * (1.0 + 0.06 * unit),
                false => 8.0 * unit - 4.0,
            };
            if coarse {
                logit = (logit * 2.0).round() / 2.0;
            }
            if !favoured.contains(expert, experts) {
                logit -= 6.0;
            }
            logits.push((logit + far) as f32);
        }
    }
    let mut bias = Vec::new();
    if case.route.has_bias() {
        bias.extend((0..experts).map(|expert| {
            let unit = unit(rng::value(case.seed, stream::ROUTER_BIAS, expert));
            ((unit * 8.0).round() / 8.0 - 0.5) as f32
        }));
    }
    RouterInput::Logits { logits, bias }
}

/// What the edge fill adds to all logits of a token, by its word: [`FAR`] for an eighth of the tokens, -[`FAR`] for
/// another. A softmax takes the largest logit off first and has the same weights, and a softplus is its
/// argument there. Far below, f32 loses every score of a softplus, and on both sides a sigmoid's: nothing would be left
/// to compare.
fn far(case: &Case, word: u64) -> f64 {
    let (above, below) = match case.route {
        Route::Softmax
        | Route::SoftmaxRenorm
        | Route::TopkSoftmax
        | Route::SoftmaxBias
        | Route::SoftmaxBiasRenorm
        | Route::GroupedSoftmax => (FAR, -FAR),
        Route::SqrtSoftplusBias => (FAR, 0.0),
        Route::Given
        | Route::Sigmoid
        | Route::SigmoidRenorm
        | Route::SigmoidBias
        | Route::GroupedSigmoidBias
        | Route::Llama4
        | Route::TanhCapped
        | Route::SparseMixer => (0.0, 0.0),
    };
    match word >> 8 & 7 {
        0 if case.fill == Fill::Edge => above,
        1 if case.fill == Fill::Edge => below,
        _ => 0.0,
    }
}

/// So far that every logit of the token, from [`FAR`] - 10 on, has an exponential above f32 (from 88.8 on); as far below
/// zero, one that is subnormal (from -87.4 down).
const FAR: f64 = 100.0;

/// A number in 0..1 with 24 bits.
fn unit(word: u64) -> f64 {
    (word >> 40) as f64 / 16_777_216.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of `line` with every logit's exponential above f32, with every one's below its normal range, and others.
    fn counted(line: &str) -> [usize; 3] {
        let case: Case = line.parse().unwrap();
        let RouterInput::Logits { logits, .. } = router(&case) else {
            panic!("{line} has logits");
        };
        let mut counts = [0; 3];
        for token in logits.chunks_exact(case.choices() as usize) {
            let powers = || token.iter().map(|l| l.exp());
            let place = match (
                powers().all(f32::is_infinite),
                powers().all(|p| p < f32::MIN_POSITIVE),
            ) {
                (true, _) => 0,
                (_, true) => 1,
                _ => 2,
            };
            counts[place] += 1;
        }
        counts
    }

    #[test]
    fn the_edge_fill_leaves_the_range_of_exponentials() {
        let of = |route, fill| counted(&format!("t=800,e=8,k=2,route={route},fill={fill}"));
        for route in ["softmax", "softmax-renorm", "topk-softmax", "softmax-bias"] {
            let [above, below, _] = of(route, "edge");
            assert!(above > 50 && below > 50, "{route}: {above}, {below}");
            assert_eq!(of(route, "wild"), [0, 0, 800], "{route}");
        }
        let [above, below, _] = of("sqrtsoftplus-bias", "edge");
        assert!(above > 50 && below == 0, "{above}, {below}");
        assert_eq!(of("sigmoid", "edge"), [0, 0, 800]);
    }
}
