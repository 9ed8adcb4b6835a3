//! Logits to expert ids and weights, in f32 (facts/upstream-padding.md 2.3).

use super::math::{exp, sigmoid};
use super::matrix::size_error;
use super::sizes::{Sizes, axis};
use crate::plan::Plan;
use crate::subject::error::SubjectError;
use crate::tensor::RouterInput;
use crate::terms::{Numerics, ROUTE_MIXER_BAND, ROUTE_TANH_CAP, Route};

/// Chosen experts, [t, k] row-major, in the order of choice.
#[derive(Debug)]
pub(in crate::subject) struct Routing {
    pub(in crate::subject) ids: Vec<u32>,
    /// Scaling factor included.
    pub(in crate::subject) weights: Vec<f32>,
}

/// Routes every token.
pub(in crate::subject) fn route(
    plan: &Plan,
    sizes: &Sizes,
    input: &RouterInput,
) -> Result<Routing, SubjectError> {
    let numerics = &plan.numerics;
    if let Some(wanted) = numerics.route.chooses()
        && plan.dims.k != wanted
    {
        return Err(SubjectError::Plan {
            key: "k",
            value: plan.dims.k,
            why: format!("{} chooses {wanted}", numerics.route),
        });
    }
    let mut routing = match input {
        RouterInput::Given { ids, weights } => {
            let chosen = sizes.t * sizes.k;
            expect("ids", chosen, ids.len())?;
            expect("weights", chosen, weights.len())?;
            Routing {
                ids: ids.clone(),
                weights: weights.clone(),
            }
        }
        RouterInput::Logits { logits, bias } => {
            if numerics.route == Route::Given {
                return Err(size_error("ids", "elements", sizes.t * sizes.k, 0));
            }
            let experts = axis("e", sizes.choices)?;
            let wanted = sizes.t.saturating_mul(experts);
            expect("logits", wanted, logits.len())?;
            let biased = numerics.route.has_bias();
            expect("router bias", if biased { experts } else { 0 }, bias.len())?;
            if numerics.route.grouped() {
                check_groups(numerics, sizes.choices)?;
            }
            let mut routing = Routing {
                ids: Vec::with_capacity(sizes.t * sizes.k),
                weights: Vec::with_capacity(sizes.t * sizes.k),
            };
            let mut row = Row::default();
            for logits in logits.chunks_exact(experts.max(1)) {
                row.choose(numerics, sizes.k, logits, bias, &mut routing);
            }
            routing
        }
    };
    // 1000 thousandths are exactly 1.
    let factor = numerics.factor as f32 / 1000.0;
    for w in &mut routing.weights {
        *w *= factor;
    }
    for (n, &id) in routing.ids.iter().enumerate() {
        if u64::from(id) >= sizes.choices {
            return Err(SubjectError::Expert {
                token: n / sizes.k,
                id,
                experts: sizes.choices,
            });
        }
    }
    Ok(routing)
}

fn expect(tensor: &'static str, wanted: usize, actual: usize) -> Result<(), SubjectError> {
    if wanted == actual {
        return Ok(());
    }
    Err(size_error(tensor, "elements", wanted, actual))
}

fn check_groups(numerics: &Numerics, experts: u64) -> Result<(), SubjectError> {
    let bad = |key, value, why: String| Err(SubjectError::Plan { key, value, why });
    if numerics.groups == 0 || !experts.is_multiple_of(numerics.groups) {
        return bad(
            "groups",
            numerics.groups,
            format!("does not divide e={experts}"),
        );
    }
    if numerics.keep == 0 || numerics.keep > numerics.groups {
        return bad(
            "keep",
            numerics.keep,
            format!("must be 1 to groups={}", numerics.groups),
        );
    }
    Ok(())
}

/// Working memory of one token.
#[derive(Default)]
struct Row {
    /// What weights are made from.
    scores: Vec<f32>,
    /// What experts are chosen by.
    ranking: Vec<f32>,
    /// Scores of the groups, or of the logits that are not masked.
    groups: Vec<f32>,
    chosen: Vec<usize>,
}

impl Row {
    fn choose(
        &mut self,
        numerics: &Numerics,
        k: usize,
        logits: &[f32],
        bias: &[f32],
        out: &mut Routing,
    ) {
        let route = numerics.route;
        self.score(route, logits);
        self.ranking.clear();
        self.ranking.extend_from_slice(&self.scores);
        for (r, b) in self.ranking.iter_mut().zip(bias) {
            *r += b;
        }
        if route.grouped() {
            self.mask_groups(numerics);
        }
        best(&self.ranking, k, &mut self.chosen);
        let start = out.weights.len();
        for &id in &self.chosen {
            out.ids.push(u32::try_from(id).unwrap_or(u32::MAX));
            out.weights.push(self.scores[id]);
        }
        let weights = &mut out.weights[start..];
        match route {
            // Chosen by the raw logit, weighted by its sigmoid.
            Route::Llama4 => weights.iter_mut().for_each(|w| *w = sigmoid(*w)),
            Route::TopkSoftmax => softmax(weights),
            Route::SparseMixer => self.mix(weights),
            Route::SoftmaxRenorm
            | Route::SigmoidRenorm
            | Route::SigmoidBias
            | Route::SqrtSoftplusBias
            | Route::SoftmaxBiasRenorm
            | Route::GroupedSigmoidBias => divide_by_sum(weights),
            Route::Given
            | Route::Softmax
            | Route::Sigmoid
            | Route::SoftmaxBias
            | Route::GroupedSoftmax
            | Route::TanhCapped => {}
        }
    }

    fn score(&mut self, route: Route, logits: &[f32]) {
        self.scores.clear();
        self.scores.extend_from_slice(logits);
        let scores = &mut self.scores[..];
        match route {
            Route::Softmax
            | Route::SoftmaxRenorm
            | Route::SoftmaxBias
            | Route::SoftmaxBiasRenorm
            | Route::GroupedSoftmax => softmax(scores),
            Route::Sigmoid
            | Route::SigmoidRenorm
            | Route::SigmoidBias
            | Route::GroupedSigmoidBias => {
                scores.iter_mut().for_each(|s| *s = sigmoid(*s));
            }
            Route::SqrtSoftplusBias => scores.iter_mut().for_each(|s| *s = softplus(*s).sqrt()),
            Route::TanhCapped => {
                for s in scores.iter_mut() {
                    *s = ROUTE_TANH_CAP * libm::tanhf(*s / ROUTE_TANH_CAP);
                }
                softmax(scores);
            }
            Route::Given | Route::TopkSoftmax | Route::Llama4 | Route::SparseMixer => {}
        }
    }

    /// Each choice's softmax among the logits that it leaves unmasked; one that is chosen is masked for the next.
    fn mix(&mut self, weights: &mut [f32]) {
        for (weight, &id) in weights.iter_mut().zip(&self.chosen) {
            let top = self.ranking[id];
            self.groups.clear();
            self.groups.extend(self.ranking.iter().map(|&x| {
                let floor = if x.abs() > top { x.abs() } else { top };
                // NaN, from 0 / 0, is not larger.
                if (top - x) / floor > ROUTE_MIXER_BAND {
                    f32::NEG_INFINITY
                } else {
                    x
                }
            }));
            softmax(&mut self.groups);
            *weight = self.groups[id];
            self.ranking[id] = f32::NEG_INFINITY;
        }
    }

    /// Experts outside the kept groups can no longer win: minus infinity, never 0 (F13).
    fn mask_groups(&mut self, numerics: &Numerics) {
        let count = usize::try_from(numerics.groups).unwrap_or(1).max(1);
        let keep = usize::try_from(numerics.keep).unwrap_or(1);
        let size = self.ranking.len() / count;
        self.groups.clear();
        for group in self.ranking.chunks_exact(size.max(1)) {
            best(
                group,
                if numerics.route == Route::GroupedSoftmax {
                    1
                } else {
                    2
                },
                &mut self.chosen,
            );
            self.groups
                .push(self.chosen.iter().map(|&n| group[n]).sum());
        }
        best(&self.groups, keep, &mut self.chosen);
        for (g, group) in self.ranking.chunks_exact_mut(size.max(1)).enumerate() {
            if !self.chosen.contains(&g) {
                group.fill(f32::NEG_INFINITY);
            }
        }
    }
}

/// Indices of the k largest values, largest first; ties to the lower index.
fn best(values: &[f32], k: usize, chosen: &mut Vec<usize>) {
    chosen.clear();
    while chosen.len() < k.min(values.len()) {
        let free = (0..values.len()).filter(|n| !chosen.contains(n));
        let next = free.reduce(|a, b| if values[b] > values[a] { b } else { a });
        chosen.extend(next);
    }
}

fn softmax(values: &mut [f32]) {
    let top = values
        .iter()
        .fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
    values.iter_mut().for_each(|v| *v = exp(*v - top));
    divide_by_sum(values);
}

fn divide_by_sum(values: &mut [f32]) {
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
}

/// ln(1 + e^x) without overflow.
fn softplus(x: f32) -> f32 {
    let head = if x > 0.0 { x } else { 0.0 };
    head + libm::log1pf(exp(-x.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(numerics: Numerics, k: usize, logits: &[f32], bias: &[f32]) -> Routing {
        let mut out = Routing {
            ids: vec![],
            weights: vec![],
        };
        Row::default().choose(&numerics, k, logits, bias, &mut out);
        out
    }

    fn of(route: Route) -> Numerics {
        Numerics {
            route,
            ..Numerics::default()
        }
    }

    #[test]
    fn ties_go_to_the_lower_id() {
        for &route in Route::ALL {
            let bias: &[f32] = if route.has_bias() { &[0.0; 4] } else { &[] };
            let k = if route.weights_input() { 1 } else { 2 };
            let grouped = Numerics {
                groups: 2,
                keep: 1,
                ..of(route)
            };
            let numerics = if route.grouped() { grouped } else { of(route) };
            let wanted: &[u32] = &[0, 1][..k];
            assert_eq!(routed(numerics, k, &[0.5; 4], bias).ids, wanted, "{route}");
        }
    }

    #[test]
    fn dropped_groups_never_come_back_through_underflow() {
        // facts/peers.md F13.
        let numerics = Numerics {
            groups: 2,
            keep: 1,
            ..of(Route::GroupedSoftmax)
        };
        assert_eq!(
            routed(numerics, 2, &[200.0, 0.0, 0.0, 0.0], &[]).ids,
            [0, 1]
        );
    }

    #[test]
    fn the_bias_chooses_and_never_weighs() {
        let out = routed(of(Route::SigmoidBias), 1, &[2.0, 0.0], &[0.0, 5.0]);
        assert_eq!((out.ids[0], out.weights[0]), (1, 1.0));
        let out = routed(of(Route::SoftmaxBias), 1, &[1.0, 1.0], &[0.0, 5.0]);
        assert_eq!((out.ids[0], out.weights[0]), (1, 0.5));
    }

    #[test]
    fn groups_of_biased_routers_rank_by_their_two_best() {
        let numerics = Numerics {
            groups: 2,
            keep: 1,
            ..of(Route::GroupedSigmoidBias)
        };
        // One strong expert in the first group, two good ones in the second.
        let out = routed(numerics, 2, &[3.0, -9.0, 1.0, 1.0], &[0.0; 4]);
        assert_eq!(out.ids, [2, 3]);
        assert_eq!(out.weights, [0.5, 0.5]);
    }

    #[test]
    fn softplus_and_softmax_survive_extreme_logits() {
        assert_eq!(softplus(1000.0), 1000.0);
        assert_eq!(softplus(-1000.0), 0.0);
        let mut v = [3e38, 0.0, -3e38];
        softmax(&mut v);
        assert_eq!(v, [1.0, 0.0, 0.0]);
    }

    #[test]
    fn two_spellings_of_softmax_routing_agree_up_to_rounding() {
        let logits = [0.3, -1.0, 2.0, 0.7];
        let a = routed(of(Route::SoftmaxRenorm), 2, &logits, &[]);
        let b = routed(of(Route::TopkSoftmax), 2, &logits, &[]);
        assert_eq!(a.ids, b.ids);
        for (x, y) in a.weights.iter().zip(&b.weights) {
            assert!((x - y).abs() < 1e-6);
        }
    }
}
