//! Chooses experts and weighs them, in f64, as facts/upstream-padding.md 2.3 describes.
//!
//! Ties go to the lower id, experts of dropped groups are out (-inf, never 0: facts/peers.md
//! F13). It must not see experts' outputs. Layer 5.

use super::bound::U;
use super::error::ReferenceError;
use super::score::{Score, scores, sigmoid, softmax};
use crate::case::Case;
use crate::tensor::RouterInput;
use crate::terms::{ROUTE_MIXER_BAND, Route};
use std::cmp::Ordering;

/// Chosen experts, [t, k].
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// Ids, in the order of choice.
    pub(super) ids: Vec<u32>,
    /// Weights, scaling factor included.
    pub(super) weights: Vec<f64>,
    /// Bounds on what f32 makes of the weights.
    pub(super) errors: Vec<f64>,
    /// Per token, how far the choice is from another one, or the sparse mixer from another set of survivors, in units
    /// of the scores' f32 error.
    pub(super) gaps: Vec<f64>,
}

/// Routes every token of the case.
pub(super) fn route(case: &Case, input: &RouterInput) -> Result<Routing, ReferenceError> {
    let (t, k, choices) = (case.t as usize, case.k as usize, case.choices() as usize);
    let mut routing = match (input, case.route) {
        (RouterInput::Given { ids, weights }, Route::Given) => given(case, ids, weights)?,
        (RouterInput::Logits { logits, bias }, route) if route != Route::Given => {
            length("logits", logits.len(), t * choices)?;
            let wanted = if route.has_bias() { choices } else { 0 };
            length("router bias", bias.len(), wanted)?;
            finite("logit", logits, choices)?;
            finite("bias", bias, choices)?;
            let mut routing = Routing::default();
            for logits in logits.chunks_exact(choices) {
                token(case, logits, bias, &mut routing);
            }
            routing
        }
        _ => return Err(ReferenceError::Missing { tensor: "router" }),
    };
    debug_assert_eq!(routing.ids.len(), t * k);
    let factor = case.factor as f64 / 1000.0;
    for (weight, error) in routing.weights.iter_mut().zip(&mut routing.errors) {
        // Thousandths are rounded to f32, their thousandth part is, and then the product is.
        *error = (*error * (1.0 + 4.0 * U) + 4.0 * U * weight.abs()) * factor;
        *weight *= factor;
    }
    Ok(routing)
}

fn length(tensor: &'static str, actual: usize, wanted: usize) -> Result<(), ReferenceError> {
    if actual == wanted {
        return Ok(());
    }
    let (wanted, actual) = (vec![wanted], vec![actual]);
    Err(ReferenceError::Shape {
        tensor,
        wanted,
        actual,
    })
}

fn finite(what: &'static str, values: &[f32], e: usize) -> Result<(), ReferenceError> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(n) => Err(ReferenceError::NotFinite {
            what,
            value: values[n].to_string(),
            expert: n % e,
        }),
    }
}

fn given(case: &Case, ids: &[u32], weights: &[f32]) -> Result<Routing, ReferenceError> {
    let (t, k) = (case.t as usize, case.k as usize);
    length("router ids", ids.len(), t * k)?;
    length("router weights", weights.len(), t * k)?;
    for (token, ids) in ids.chunks_exact(k).enumerate() {
        for (slot, &id) in ids.iter().enumerate() {
            let why = if u64::from(id) >= case.choices() {
                "does not exist"
            } else if ids[..slot].contains(&id) {
                "it already has"
            } else {
                continue;
            };
            return Err(ReferenceError::Expert { token, id, why });
        }
    }
    Ok(Routing {
        ids: ids.to_vec(),
        weights: weights.iter().map(|&w| f64::from(w)).collect(),
        errors: vec![0.0; t * k],
        gaps: vec![f64::INFINITY; t],
    })
}

/// What decides between two candidates: equal inputs give equal f32 scores too, so such ties are
/// decided by the lower id on both sides.
type Inputs = Vec<(u32, u32)>;

struct Candidate {
    id: usize,
    value: f64,
    error: f64,
    inputs: Inputs,
}

/// The `n` best candidates by value, ties to the lower id, and the gap to another choice.
fn best(mut candidates: Vec<Candidate>, n: usize) -> (Vec<usize>, f64) {
    candidates.sort_by(|a, b| {
        let by_value = b.value.partial_cmp(&a.value).unwrap_or(Ordering::Equal);
        by_value.then(a.id.cmp(&b.id))
    });
    let (chosen, left) = candidates.split_at(n);
    let mut gap = f64::INFINITY;
    for c in chosen {
        for l in left {
            let error = c.error + l.error;
            // Scores without error and scores of equal inputs compare alike on both sides.
            if error > 0.0 && c.inputs != l.inputs {
                gap = gap.min((c.value - l.value) / error);
            }
        }
    }
    (chosen.iter().map(|c| c.id).collect(), gap)
}

fn token(case: &Case, logits: &[f32], bias: &[f32], routing: &mut Routing) {
    let scores = scores(case.route, logits, bias);
    let inputs = |n: usize| (logits[n].to_bits(), bias.get(n).map_or(0, |b| b.to_bits()));
    let (allowed, group_gap) = kept_experts(case, &scores, &inputs);
    let candidates = allowed
        .into_iter()
        .map(|id| Candidate {
            id,
            value: scores[id].choice,
            error: scores[id].choice_error,
            inputs: vec![inputs(id)],
        })
        .collect();
    let (ids, gap) = best(candidates, case.k as usize);
    let (weights, band_gap) = match case.route {
        Route::SparseMixer => mix(&ids, &scores),
        route => (weigh(route, &ids, &scores), f64::INFINITY),
    };
    for (weight, error) in weights {
        routing.weights.push(weight);
        routing.errors.push(error);
    }
    routing.ids.extend(ids.iter().map(|&id| id as u32));
    routing.gaps.push(gap.min(group_gap).min(band_gap));
}

/// Experts of the groups that a grouped router keeps; all experts for the others.
fn kept_experts(
    case: &Case,
    scores: &[Score],
    inputs: &impl Fn(usize) -> (u32, u32),
) -> (Vec<usize>, f64) {
    if !case.route.grouped() {
        return ((0..scores.len()).collect(), f64::INFINITY);
    }
    let size = scores.len() / case.groups as usize;
    // A group's score is its best member's, or the sum of its two best.
    let members = if case.route == Route::GroupedSoftmax {
        1
    } else {
        2
    };
    let groups = (0..case.groups as usize)
        .map(|group| {
            let mut ids: Vec<usize> = (group * size..(group + 1) * size).collect();
            ids.sort_by(|&a, &b| {
                let by_value = scores[b].choice.partial_cmp(&scores[a].choice);
                by_value.unwrap_or(Ordering::Equal).then(a.cmp(&b))
            });
            ids.truncate(members);
            let value: f64 = ids.iter().map(|&n| scores[n].choice).sum();
            let errors: f64 = ids.iter().map(|&n| scores[n].choice_error).sum();
            // The best members by f32 may be others, but their values are as near as the errors
            // of all: the largest error in the group counts for each.
            let spread = (group * size..(group + 1) * size)
                .map(|n| scores[n].choice_error)
                .fold(0.0, f64::max);
            Candidate {
                id: group,
                value,
                error: errors.max(members as f64 * spread) + 2.0 * U * value.abs(),
                inputs: ids.iter().map(|&n| inputs(n)).collect(),
            }
        })
        .collect();
    let (mut kept, gap) = best(groups, case.keep as usize);
    kept.sort_unstable();
    let ids = kept.iter().flat_map(|g| g * size..(g + 1) * size).collect();
    (ids, gap)
}

/// Weights of the chosen experts before the scaling factor, with their errors.
fn weigh(route: Route, ids: &[usize], scores: &[Score]) -> Vec<(f64, f64)> {
    let chosen = ids.iter().map(|&n| (scores[n].base, scores[n].base_error));
    match route {
        Route::TopkSoftmax => {
            let logits: Vec<f64> = chosen.map(|(l, _)| l).collect();
            softmax(&logits, 0.0)
        }
        Route::Llama4 => chosen.map(|(l, _)| sigmoid(l)).collect(),
        Route::SoftmaxRenorm
        | Route::SigmoidRenorm
        | Route::SigmoidBias
        | Route::SqrtSoftplusBias
        | Route::SoftmaxBiasRenorm
        | Route::GroupedSigmoidBias => renormalise(chosen.collect()),
        Route::Given
        | Route::Softmax
        | Route::Sigmoid
        | Route::SoftmaxBias
        | Route::GroupedSoftmax
        | Route::TanhCapped
        | Route::SparseMixer => chosen.collect(),
    }
}

/// The sparse mixer's weights: each choice is the largest logit m of those not chosen before it, weighed by softmax
/// over the ones among them that survive, x with (m - x) / max(|x|, m) <= [`ROUTE_MIXER_BAND`]. The maximum and its
/// equals survive, 0 / 0 of a maximum of 0 included, which stacks find to be no larger than the band.
///
/// Beside a survivor the weight jumps, so a logit whose ratio rounding may carry over the band is a gap: f32 rounds
/// the difference and the quotient (or the band's product), and the band itself or not: 3u of the ratio, and what is
/// of second order. Where flushing loses the difference or the divisor, either may come out.
fn mix(ids: &[usize], scores: &[Score]) -> (Vec<(f64, f64)>, f64) {
    let (band, least) = (f64::from(ROUTE_MIXER_BAND), f64::from(f32::MIN_POSITIVE));
    let mut gap = f64::INFINITY;
    let mut weights = Vec::with_capacity(ids.len());
    for (slot, &id) in ids.iter().enumerate() {
        let largest = scores[id].base;
        let mut survivors = vec![largest];
        let others = (0..scores.len()).filter(|n| !ids[..=slot].contains(n));
        for logit in others.map(|n| scores[n].base) {
            let (difference, divisor) = (largest - logit, logit.abs().max(largest));
            if difference == 0.0 {
                survivors.push(logit);
                continue;
            }
            let ratio = difference / divisor;
            if ratio <= band {
                survivors.push(logit);
            }
            gap = gap.min(match difference.min(divisor) < least {
                true => 0.0,
                false => (ratio - band).abs() / (4.0 * U * ratio),
            });
        }
        weights.push(softmax(&survivors, 0.0)[0]);
    }
    (weights, gap)
}

/// Divides by the sum s: |b'/s' - b/s| <= (eb + (b/s) es) / (s - es), where es sums the errors
/// and the k roundings of the sum, and the quotient is rounded once more. SGLang's 1e-20 beside
/// the sum is far below u of any sum that f32 does not lose.
fn renormalise(chosen: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let sum: f64 = chosen.iter().map(|(b, _)| b).sum();
    let lost: f64 = chosen.iter().map(|(_, e)| e).sum();
    let error = lost + (chosen.len() as f64 + 1.0) * U * (sum + lost) + 2e-20;
    let divisor = (sum - error).max(0.0);
    chosen
        .into_iter()
        .map(|(b, e)| {
            let weight = b / sum;
            (weight, (e + weight * error) / divisor + 2.0 * U * weight)
        })
        .collect()
}
