//! The whole layer: routing, every rank's experts, the sum over ranks.

use super::activation::EVALUATION;
use super::experts::{Layer, Routed, Scratch};
use super::input::{Prepare, Quantiser};
use super::matrix::{expect_bytes, size_error};
use super::rank::Rank;
use super::route::{Routing, route};
use super::sizes::{Sizes, axis, within_memory};
use super::unpack;
use crate::layout::PackedInputs;
use crate::plan::{Plan, RankPlan};
use crate::schedule::Schedule;
use crate::subject::api::Subject;
use crate::subject::error::{SkipReason, SubjectError};
use crate::tensor::Output;
use crate::terms::{ActQuant, Arithmetic};
use pulp::Arch;
use std::borrow::Cow;

/// The CPU subject, `cpu`: f32 accumulators, every rank computed and reduced in rank order.
///
/// Its bits do not depend on padding, on the number of tokens, experts or threads, nor on the
/// machine: sums run in the order [`Schedule::Lanes`] of 16 with fused multiply-adds, elementary
/// functions are plain arithmetic or the `libm` crate. [`Cpu::under`] takes any other order.
#[derive(Debug)]
pub struct Cpu {
    arch: Arch,
    threads: usize,
    /// The summation order, where it is not the fast one.
    schedule: Option<Schedule>,
    scratch: Scratch,
    /// One rank's contribution, [t, h].
    partial: Vec<f32>,
    input: Vec<f32>,
    /// (expert, choice) of every routed row, sorted.
    order: Vec<(u32, usize)>,
    routed: Vec<Routed>,
}

/// The order that is computed fast.
const OWN: Schedule = Schedule::Lanes(super::dot::LANES);

impl Default for Cpu {
    fn default() -> Self {
        Cpu::new()
    }
}

impl Cpu {
    /// The subject; large projections use the current rayon pool.
    pub fn new() -> Cpu {
        Cpu::with_threads(0)
    }

    /// The subject with at most one thread (1), or the current rayon pool (any other number).
    pub fn with_threads(threads: usize) -> Cpu {
        Cpu {
            arch: Arch::new(),
            threads,
            schedule: None,
            scratch: Scratch::default(),
            partial: Vec::new(),
            input: Vec::new(),
            order: Vec::new(),
            routed: Vec::new(),
        }
    }

    /// The subject with another summation order: slow, to see what an order promises.
    pub fn under(order: Schedule) -> Cpu {
        Cpu {
            schedule: Some(order).filter(|&order| order != OWN),
            ..Cpu::new()
        }
    }

    /// One subject for each vector unit of this machine, the first without any: all the same bits.
    #[cfg(test)]
    pub(super) fn all_units() -> Vec<Cpu> {
        let mut units = vec![Arch::Scalar, Arch::new()];
        #[cfg(target_arch = "x86_64")]
        units.extend(pulp::x86::V3::try_new().map(Arch::V3));
        let of = |arch| Cpu {
            arch,
            ..Cpu::with_threads(1)
        };
        units.into_iter().map(of).collect()
    }
}

impl Subject for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        let unsupported = |what: String| Err(SkipReason::Unsupported(what));
        for dtype in [
            Some(plan.weight.element()),
            plan.w13_scale.map(|s| s.dtype),
            plan.w2_scale.map(|s| s.dtype),
        ]
        .into_iter()
        .flatten()
        {
            if !unpack::known(dtype) {
                return unsupported(format!("element type {dtype}"));
            }
        }
        if plan.weight.scale().is_some() != (plan.w13_scale.is_some() && plan.w2_scale.is_some()) {
            return unsupported(format!("{} with other scales than its own", plan.weight));
        }
        if plan.dims.halves == 2 && plan.order.interleave() > 0 {
            let group = plan.order.interleave();
            if !plan.width_padded.is_multiple_of(group) {
                return unsupported(format!(
                    "width_padded={} is no multiple of the interleave {group}",
                    plan.width_padded
                ));
            }
            if plan.w13_scale.is_some_and(|s| s.row_block > 1) {
                return unsupported("interleaved rows with scales of several rows".to_owned());
            }
        }
        within_memory(plan)
    }

    fn schedule(&self) -> Option<Schedule> {
        Some(self.schedule.unwrap_or(OWN))
    }

    fn promises(&self) -> Arithmetic {
        Arithmetic {
            lanes: self.schedule.is_none(),
            evaluation: Some(EVALUATION),
            ..Arithmetic::default()
        }
    }

    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        self.supports(plan)?;
        let sizes = Sizes::new(plan)?;
        let tokens_padded = axis("tokens_padded", plan.tokens_padded)?;
        expect_bytes("x", inputs.x.bytes(), &[tokens_padded, sizes.hidden, 4])?;
        if plan.ranks.len() != inputs.ranks.len() {
            return Err(size_error(
                "ranks",
                "ranks",
                plan.ranks.len(),
                inputs.ranks.len(),
            ));
        }
        let ranks = plan.ranks.iter().zip(&inputs.ranks).enumerate();
        let ranks: Vec<(&RankPlan, Rank<'_>)> = ranks
            .map(|(n, (share, tensors))| Ok((share, Rank::new(plan, &sizes, share, n, tensors)?)))
            .collect::<Result<_, SubjectError>>()?;
        let routing = route(plan, &sizes, &inputs.router)?;

        let rows = &inputs.x.f32s()[..sizes.t * sizes.hidden];
        let x = prepare(
            self.arch,
            plan,
            &sizes,
            rows,
            &routing,
            inputs.x_scale,
            &mut self.input,
        );
        self.order.clear();
        self.order
            .extend(routing.ids.iter().enumerate().map(|(n, &id)| (id, n)));
        self.order.sort_unstable();
        let threads = match self.threads {
            1 => 1,
            _ => rayon::current_num_threads(),
        };
        let layer = Layer {
            arch: self.arch,
            threads,
            plan,
            sizes,
            x: &x,
            h_scale: inputs.h_scale,
            order: self.schedule,
        };

        let mut values = vec![0.0; sizes.t * sizes.h];
        for (share, rank) in &ranks {
            let held = share.expert_start..share.expert_start + share.expert_len;
            self.partial.clear();
            self.partial.resize(values.len(), 0.0);
            for chosen in self.order.chunk_by(|a, b| a.0 == b.0) {
                let id = u64::from(chosen[0].0);
                if !held.contains(&id) {
                    continue;
                }
                self.routed.clear();
                self.routed.extend(chosen.iter().map(|&(_, n)| Routed {
                    token: n / sizes.k,
                    weight: if plan.numerics.route.weights_input() {
                        1.0
                    } else {
                        routing.weights[n]
                    },
                }));
                let expert = axis("expert", id - rank.expert_start)?;
                layer.expert(
                    rank,
                    expert,
                    &self.routed,
                    &mut self.scratch,
                    &mut self.partial,
                );
            }
            for (v, p) in values.iter_mut().zip(&self.partial) {
                *v += p;
            }
        }
        identity(plan, &sizes, rows, &routing, &mut values);
        Ok(Output {
            tokens: sizes.t,
            hidden: sizes.h,
            values,
            ids: routing.ids,
            weights: routing.weights,
        })
    }
}

/// Adds what identity experts give, once for all ranks: the routing weight times the input as it came.
fn identity(plan: &Plan, sizes: &Sizes, rows: &[f32], routing: &Routing, values: &mut [f32]) {
    let slots = routing.ids.iter().zip(&routing.weights).enumerate();
    for (n, (_, weight)) in slots.filter(|(_, (id, _))| u64::from(**id) >= plan.dims.e) {
        let token = n / sizes.k;
        let x = &rows[token * sizes.hidden..][..sizes.h];
        let to = &mut values[token * sizes.h..][..sizes.h];
        to.iter_mut().zip(x).for_each(|(y, x)| *y += weight * x);
    }
}

/// The input as the experts see it: weighted where the router says so, then quantised.
fn prepare<'a>(
    arch: Arch,
    plan: &Plan,
    sizes: &Sizes,
    rows: &'a [f32],
    routing: &Routing,
    x_scale: f32,
    store: &'a mut Vec<f32>,
) -> Cow<'a, [f32]> {
    let mode = plan.numerics.qx;
    // The router that weighs the input takes one expert a token: weights are one a row.
    let factors = plan
        .numerics
        .route
        .weights_input()
        .then_some(&routing.weights[..]);
    if mode == ActQuant::None && factors.is_none() {
        return Cow::Borrowed(rows);
    }
    store.clear();
    store.extend_from_slice(rows);
    arch.dispatch(Prepare {
        cols: sizes.hidden,
        rows: store,
        factors,
        quantiser: Quantiser {
            mode,
            scale: x_scale,
        },
    });
    Cow::Borrowed(store)
}
