//! What else could be done with a model on so many ranks: degrees without padding, and ways
//! around a plan that pads, each with what it costs.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::candidates::on_arch;
use super::degrees::{blocked, limits, unchecked, usable};
use super::{Query, Surveyed};
use crate::model::Model;
use crate::plan::{Fit, LayerSpec, Parallel, Plan, REFINE_MIN, layers, plan_layer};
use crate::rule::{Rule, Rules, Status, Unread, same_arch};
use crate::terms::{Extent, LayerKind, Split, WeightFormat};
use serde::Serialize;
use std::borrow::Cow;

/// Widths that kernels ask multiples of (facts/upstream-padding.md 1.1 to 1.7).
const GRANULES: [u64; 6] = [16, 32, 64, 128, 256, 512];

/// A kind of way around a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Another number of ranks.
    Tp,
    /// Whole experts on each rank, or on fewer ranks each.
    Ep,
    /// Another rule on the same ranks.
    Backend,
    /// Scales repeated on a finer grid, without loss.
    FinerScales,
    /// Quantised again after the split, so that blocks begin where the rank does.
    Requantise,
    /// Zero channels added to the checkpoint, once, before it is served.
    PadOffline,
}

impl Way {
    /// The word used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Tp => "tp",
            Way::Ep => "ep",
            Way::Backend => "backend",
            Way::FinerScales => "finer-scales",
            Way::Requantise => "requantise",
            Way::PadOffline => "pad-offline",
        }
    }
}

/// One way around a plan, and what it costs against unpadded weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instead {
    /// What is done.
    pub way: Way,
    /// The rule.
    pub rule: String,
    /// Ranks.
    pub tp: u64,
    /// Expert-parallel groups.
    pub ep: u64,
    /// The verdict then.
    pub verdict: Fit,
    /// Largest logical width of a rank.
    pub width: u64,
    /// Width of every rank's buffers.
    pub width_padded: u64,
    /// The size that the way is about: the scale block, or the checkpoint's new width.
    pub size: Option<u64>,
    /// Bytes that all ranks hold of the experts of all layers of this format beyond those of their
    /// own shares: weights, scales, zero points, biases and storage padding.
    pub extra_bytes: u64,
    /// Multiplications beyond the unpadded ones, in millionths.
    #[serde(skip)]
    pub extra_arithmetic: u64,
    /// Whether the kernel is told at run time what is padding, and does not multiply it.
    pub told: bool,
    /// Whether every weight keeps its value.
    pub lossless: bool,
    /// Whether the model has parts that experts' parallelism leaves as they are.
    pub beside: bool,
    /// What of how bytes lie the source of another rule leaves open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
}

/// Advice about one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAdvice {
    /// The rule.
    pub rule: String,
    /// The format of the experts that it is about: layers may be stored in several.
    pub format: WeightFormat,
    /// How many layers are stored so.
    pub layers: u64,
    /// The worst verdict on the ranks asked about of the parts it is for.
    pub verdict: Fit,
    /// Bytes that its plan adds, as [`Instead::extra_bytes`].
    pub extra_bytes: u64,
    /// Usable degrees that need no padding.
    pub aligned: Vec<u64>,
    /// The usable degree above 1 that pads least, if it pads less than the one asked about.
    pub cheapest: Option<Instead>,
    /// Ways around, when the plan does not fit as it is.
    pub instead: Vec<Instead>,
}

/// Advice about a model's routed experts, in each format that its layers are stored in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// Degrees up to 64 that the rest of the model takes.
    pub usable: Vec<u64>,
    /// What bounds them, a clause each.
    pub limits: Vec<String>,
    /// What does not take the degree asked about, a noun each.
    pub blocked: Vec<String>,
    /// What is not known and so not held against them, a clause each.
    pub unchecked: Vec<String>,
    /// By rule, as in the survey.
    pub rules: Vec<RuleAdvice>,
}

impl Advice {
    /// None, and why.
    pub(super) fn none(why: String) -> Self {
        Advice {
            unchecked: vec![why],
            ..Advice::default()
        }
    }

    /// About every current rule of the routed layers among `plans`.
    pub(super) fn of<'p>(
        model: &Model,
        plans: &'p [Surveyed],
        rules: &'p Rules,
        query: &Query<'p>,
    ) -> Self {
        let parts = layers(model, 1);
        let mut advice = Advice {
            usable: usable(model),
            limits: limits(model),
            blocked: blocked(model, query.parallel.tp),
            unchecked: unchecked(model),
            rules: Vec::new(),
        };
        let with_rule = |one: &'p Surveyed| -> Option<Other<'p>> {
            let rule = rules.get(&one.plan.rule).ok()?;
            Some((one, on_arch(rule, query.arch)))
        };
        let routed = parts.iter().enumerate();
        for (at, part) in routed.filter(|(_, p)| p.kind == LayerKind::Routed) {
            let mut rest = parts.clone();
            rest.remove(at);
            let current = |one: &&'p Surveyed| {
                (one.plan.layer, one.plan.weight) == (LayerKind::Routed, part.weight)
                    && one.status == Status::Current
            };
            let others: Vec<Other<'p>> =
                plans.iter().filter(current).filter_map(with_rule).collect();
            for (one, rule) in &others {
                let about = About {
                    model,
                    part,
                    layers: layers_of(model, at),
                    rest: &rest,
                    rule,
                    parallel: query.parallel,
                    blocked: !advice.blocked.is_empty(),
                    env: query.env,
                };
                advice
                    .rules
                    .push(about.advice(&one.plan, &advice.usable, &others));
            }
        }
        advice
    }
}

/// Another rule's plan on the same ranks, and the rule as it is asked about.
type Other<'a> = (&'a Surveyed, Cow<'a, Rule>);

/// How many layers the routed part at a place among them has: others than the first say it.
fn layers_of(model: &Model, at: usize) -> u64 {
    let others = &model.quant.others;
    let counted = at.checked_sub(1).and_then(|at| others.get(at));
    counted.map_or_else(
        || {
            let others = others.iter();
            let others = others.fold(0u64, |all, other| all.saturating_add(other.layers));
            model.moe_layers.saturating_sub(others).max(1)
        },
        |share| share.layers,
    )
}

/// What one rule is asked about.
struct About<'a> {
    model: &'a Model,
    part: &'a LayerSpec,
    /// Layers of this format.
    layers: u64,
    /// The other parts: other formats of experts, and those that stay cut by all ranks.
    rest: &'a [LayerSpec],
    rule: &'a Rule,
    parallel: Parallel,
    /// Whether the rest of the model does not take the degree asked about.
    blocked: bool,
    env: &'a [&'a str],
}

impl About<'_> {
    fn plan(&self, parallel: Parallel) -> Option<Plan> {
        plan_layer(self.part, parallel, self.rule, self.env).ok()
    }

    /// The worst verdict of the parts beside the routed experts that a rule is for.
    fn rest(&self, rule: &Rule, parallel: Parallel) -> Fit {
        let concerned = |part: &&LayerSpec| {
            rule.layers.contains(&part.kind.follows()) && rule.formats.contains(&part.weight)
        };
        let fit = |part: &LayerSpec| {
            plan_layer(part, parallel, rule, self.env).map_or(Fit::Refused, |plan| plan.fit)
        };
        let fits = self.rest.iter().filter(concerned).map(fit);
        fits.max().unwrap_or(Fit::Fits)
    }

    /// Whether those parts run on these ranks.
    fn rest_runs(&self, rule: &Rule, parallel: Parallel) -> bool {
        self.rest(rule, parallel) < Fit::Refused
    }

    fn advice(&self, plan: &Plan, usable: &[u64], others: &[Other<'_>]) -> RuleAdvice {
        let tried = usable.iter().map(|&tp| self.ranks(tp));
        let plans: Vec<Plan> = tried.filter_map(|ranks| self.plan(ranks)).collect();
        let rest = self.rest(self.rule, self.parallel);
        let rest_fails = rest >= Fit::Refused;
        let fits = |plan: &&Plan| plan.fit == Fit::Fits && self.rest_runs(self.rule, plan.parallel);
        let aligned: Vec<u64> = plans.iter().filter(fits).map(|p| p.parallel.tp).collect();
        let padded = |other: &&Plan| {
            other.fit == Fit::Padded
                && other.parallel.tp > 1
                && (better(other, plan) || rest_fails)
                && self.rest_runs(self.rule, other.parallel)
        };
        let cheapest = plans
            .iter()
            .filter(padded)
            .min_by_key(|p| (p.overhead_millionths, std::cmp::Reverse(p.parallel.tp)))
            .map(|plan| self.instead(Way::Tp, plan));
        let instead = match plan.fit {
            // Nothing but other ranks changes what the other parts get.
            _ if rest_fails && plan.fit == Fit::Fits || self.blocked => self.degrees(&aligned),
            Fit::Fits => Vec::new(),
            _ => self.ways(plan, &aligned, others),
        };
        RuleAdvice {
            rule: self.rule.id.clone(),
            format: self.part.weight,
            layers: self.layers,
            extra_bytes: self.extra_bytes(plan, plan),
            verdict: if rest_fails {
                plan.fit.max(rest)
            } else {
                plan.fit
            },
            aligned,
            cheapest,
            instead,
        }
    }

    /// As many ranks in as many groups of experts as were asked for, or as divide them.
    fn ranks(&self, tp: u64) -> Parallel {
        let mut ep = self.parallel.ep.clamp(1, tp.max(1));
        while !tp.is_multiple_of(ep) || !self.part.experts.is_multiple_of(ep) {
            ep -= 1;
        }
        Parallel { tp, ep }
    }

    fn instead(&self, way: Way, plan: &Plan) -> Instead {
        Instead {
            way,
            rule: plan.rule.clone(),
            tp: plan.parallel.tp,
            ep: plan.parallel.ep,
            verdict: plan.fit,
            width: plan.width,
            width_padded: plan.width_padded,
            size: None,
            extra_bytes: self.extra_bytes(plan, plan),
            extra_arithmetic: plan.arithmetic_millionths(),
            told: plan.is_told(),
            lossless: true,
            beside: self.model.shared.is_some() || self.model.dense.is_some(),
            unread: match way {
                Way::Backend => plan.unread.clone(),
                _ => Vec::new(),
            },
        }
    }

    /// What the ranks of a plan hold beyond the shares of another's, in all layers of this format.
    fn extra_bytes(&self, plan: &Plan, shares: &Plan) -> u64 {
        let held = plan.memory().map_or(0, |memory| memory.held);
        let needed = shares.memory().map_or(held, |memory| memory.needed);
        held.saturating_sub(needed).saturating_mul(self.layers)
    }

    fn ways(&self, plan: &Plan, aligned: &[u64], others: &[Other<'_>]) -> Vec<Instead> {
        let mut all = self.degrees(aligned);
        all.extend(self.expert_parallel(plan));
        all.extend(self.backends(plan, others));
        all.extend(self.finer_scales(plan));
        let offline = self.pad_offline(plan);
        let straddles = plan
            .violations
            .iter()
            .any(|v| v.code == "PP103" || v.code == "PP104");
        if let (Some(way), true) = (&offline, straddles) {
            all.push(Instead {
                way: Way::Requantise,
                size: None,
                lossless: false,
                ..way.clone()
            });
        }
        all.extend(offline);
        all
    }

    /// The next degrees below and above that need no padding.
    fn degrees(&self, aligned: &[u64]) -> Vec<Instead> {
        let asked = self.parallel.tp;
        let below = aligned.iter().rev().find(|tp| **tp < asked);
        let above = aligned.iter().find(|tp| **tp > asked);
        let plans = below.into_iter().chain(above);
        let plans = plans.filter_map(|tp| self.plan(self.ranks(*tp)));
        plans.map(|plan| self.instead(Way::Tp, &plan)).collect()
    }

    /// The fewest groups of experts that need no padding, else those that pad least.
    fn expert_parallel(&self, plan: &Plan) -> Option<Instead> {
        let Parallel { tp, ep } = self.parallel;
        let more = (ep.saturating_add(1)..=tp.min(1 << 10))
            .filter(|ep| tp.is_multiple_of(*ep) && self.part.experts.is_multiple_of(*ep));
        let plans = more.filter_map(|ep| self.plan(Parallel { tp, ep }));
        plans
            .filter(|other| better(other, plan))
            .min_by_key(|other| (other.fit, other.overhead_millionths, other.parallel.ep))
            .map(|other| self.instead(Way::Ep, &other))
    }

    /// The best other rule of the stack on the same ranks and a device that both are for; and of
    /// the other stacks, where that is better still. Rules whose source leaves open how bytes lie
    /// come after all others.
    fn backends(&self, plan: &Plan, others: &[Other<'_>]) -> Vec<Instead> {
        let key = |plan: &Plan| {
            let open = !plan.unread.is_empty();
            (open, plan.fit, plan.overhead_millionths)
        };
        let device = |rule: &Rule| {
            let (ours, theirs) = (&self.rule.arch, &rule.arch);
            let shared = ours.iter().any(|a| theirs.iter().any(|b| same_arch(a, b)));
            ours.is_empty() || theirs.is_empty() || shared
        };
        let best = |own: bool| {
            others
                .iter()
                .filter(|(one, rule)| {
                    (rule.stack == self.rule.stack) == own
                        && one.plan.rule != plan.rule
                        && better(&one.plan, plan)
                        && device(rule)
                        && self.rest_runs(rule, self.parallel)
                })
                .map(|(one, _)| &one.plan)
                .min_by_key(|other| key(other))
        };
        let (own, other) = (best(true), best(false));
        let other = other.filter(|o| own.is_none_or(|own| key(o) < key(own)));
        let instead = |plan| self.instead(Way::Backend, plan);
        own.into_iter().chain(other).map(instead).collect()
    }

    /// The checkpoint's scales repeated on the finest grid that a shard's start asks for.
    fn finer_scales(&self, plan: &Plan) -> Option<Instead> {
        let straddles = plan.violations.iter().any(|v| v.code == "PP103");
        if !straddles || self.part.weight.grid_is_fixed() {
            return None;
        }
        let mut finer = self.rule.clone();
        finer.scale.refine = true;
        // What asks for whole blocks is about the grid; the rest stays.
        let block = match self.part.weight.scale().map(|grid| grid.cols) {
            Some(Extent::Block(block)) => Some(block),
            Some(Extent::All) | None => None,
        };
        finer
            .refuse
            .retain(|one| block.is_none() || one.when.width_not_multiple != block);
        if finer.split == Split::Error {
            finer.split = Split::Floor;
        }
        let refined = plan_layer(self.part, self.parallel, &finer, self.env).ok()?;
        let block = refined.w2_scale.map(|scale| scale.col_block)?;
        if refined.fit > Fit::Padded || block < REFINE_MIN {
            return None;
        }
        Some(Instead {
            size: Some(block),
            ..self.instead(Way::FinerScales, &refined)
        })
    }

    /// The narrowest checkpoint that the rule takes on these ranks without padding.
    fn pad_offline(&self, plan: &Plan) -> Option<Instead> {
        let ranks = self.parallel.tp.checked_div(self.parallel.ep)?;
        let share = self.part.intermediate.div_ceil(ranks.max(1));
        let block = match self.part.weight.scale().map(|grid| grid.cols) {
            Some(Extent::Block(block)) => block,
            Some(Extent::All) | None => 1,
        };
        let mut widths: Vec<u64> = GRANULES
            .iter()
            .map(|granule| {
                share
                    .div_ceil((*granule).max(block))
                    .saturating_mul((*granule).max(block))
            })
            .collect();
        widths.sort_unstable();
        widths.dedup();
        for width in widths {
            let intermediate = width.checked_mul(ranks)?;
            let spec = LayerSpec {
                intermediate,
                ..self.part.clone()
            };
            let padded = plan_layer(&spec, self.parallel, self.rule, self.env).ok()?;
            if padded.fit != Fit::Fits || intermediate <= self.part.intermediate {
                continue;
            }
            let whole = u128::from(self.part.intermediate);
            let extra = u128::from(intermediate - self.part.intermediate) * 1_000_000;
            let extra = u64::try_from((extra + whole / 2) / whole).unwrap_or(u64::MAX);
            if plan.fit == Fit::Padded && extra >= plan.overhead_millionths {
                // The loader pads as little, without a new checkpoint.
                return None;
            }
            let way = self.instead(Way::PadOffline, &padded);
            return Some(Instead {
                width: plan.width,
                size: Some(intermediate),
                extra_bytes: self.extra_bytes(&padded, plan),
                extra_arithmetic: extra,
                ..way
            });
        }
        None
    }
}

/// Whether a plan is worth naming instead of another: it runs, and pads less or at all.
fn better(other: &Plan, plan: &Plan) -> bool {
    let key = |plan: &Plan| (plan.fit, plan.overhead_millionths);
    other.fit <= Fit::Padded && key(other) < key(plan)
}
