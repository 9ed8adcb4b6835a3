//! Ways around one rule's plan of the routed experts, each held against every part of the model.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::advice::{Beside, Instead, RuleAdvice, Way};
use super::parts::Parts;
use crate::plan::{Fit, LayerSpec, Parallel, Plan, REFINE_MIN};
use crate::rule::Rule;
use crate::terms::{Extent, LayerKind, Split};

/// Widths that kernels ask multiples of (facts/upstream-padding.md 1.1 to 1.7).
const GRANULES: [u64; 6] = [16, 32, 64, 128, 256, 512];

/// Another rule's plan on the ranks asked about.
pub(super) struct Other<'q> {
    rule: &'q Rule,
    plan: Plan,
}

impl<'q> Parts<'q> {
    /// What could be taken instead: every rule picked for a part, with its plan. An emulation is no
    /// backend to serve with, and a kernel by itself none either.
    pub(super) fn planned(&self, at: usize) -> Vec<Other<'q>> {
        let serves = self
            .picked(at)
            .iter()
            .filter(|(rule, _)| !rule.emulates() && !rule.kernel && !rule.dispatch);
        let planned = serves.filter_map(|(rule, _)| {
            let plan = self.plan(rule, at, self.query.parallel)?.ok()?;
            Some(Other { rule, plan })
        });
        planned.collect()
    }
}

/// What one rule is asked about.
pub(super) struct About<'p, 'q> {
    pub(super) parts: &'p Parts<'q>,
    /// The same parts under every rule that is shipped today.
    pub(super) wide: &'p Parts<'q>,
    /// The part: routed experts of one format.
    pub(super) at: usize,
    /// Layers of this format.
    pub(super) layers: u64,
    pub(super) rule: &'q Rule,
    /// Whether the rest of the model does not take the degree asked about.
    pub(super) blocked: bool,
}

/// The plan on some ranks, and what becomes of the other parts there.
struct Trial {
    asked: Parallel,
    plan: Plan,
    rest: Vec<Beside>,
    open: Vec<LayerKind>,
}

impl Trial {
    /// The worst verdict of the parts beside the routed experts that a rule is for.
    fn worst(&self) -> Fit {
        worst(&self.rest)
    }

    fn aligned(&self) -> bool {
        self.plan.fit.max(self.worst()) == Fit::Fits
    }
}

fn worst(rest: &[Beside]) -> Fit {
    rest.iter()
        .map(|one| one.verdict)
        .max()
        .unwrap_or(Fit::Fits)
}

/// The parts that do not run.
fn failing(rest: &[Beside]) -> Vec<Beside> {
    let fails = |one: &&Beside| one.verdict >= Fit::Refused;
    rest.iter().filter(fails).copied().collect()
}

impl About<'_, '_> {
    fn spec(&self) -> &LayerSpec {
        &self.parts.all[self.at]
    }

    fn asked(&self) -> Parallel {
        self.parts.query.parallel
    }

    /// What becomes of the other parts where the routed experts are under `rule`, and those that no
    /// rule of its stack is for.
    fn rest(
        &self,
        parts: &Parts<'_>,
        rule: &Rule,
        asked: Parallel,
    ) -> (Vec<Beside>, Vec<LayerKind>) {
        let (mut rest, mut open) = (Vec::new(), Vec::new());
        for at in (0..parts.all.len()).filter(|&at| at != self.at) {
            let part = &parts.all[at];
            match parts.judged(rule, at, asked) {
                Some(judged) => rest.push(Beside {
                    layer: part.kind,
                    format: part.weight,
                    verdict: judged.fit,
                    width: judged.width,
                }),
                // Who asks about one part leaves the others open, and so does a kernel.
                None if parts.query.layer.is_none() && !rule.kernel => open.push(part.kind),
                None => {}
            }
        }
        (rest, open)
    }

    fn trial(&self, asked: Parallel) -> Option<Trial> {
        let plan = self.parts.plan(self.rule, self.at, asked)?.ok()?;
        let (rest, open) = self.rest(self.parts, self.rule, asked);
        Some(Trial {
            asked,
            plan,
            rest,
            open,
        })
    }

    pub(super) fn advice(&self, plan: &Plan, usable: &[u64], others: &[Other<'_>]) -> RuleAdvice {
        let (rest, open) = self.rest(self.parts, self.rule, self.asked());
        let now = Trial {
            asked: self.asked(),
            plan: plan.clone(),
            rest,
            open,
        };
        let tried = usable.iter().filter_map(|&tp| self.degree(tp));
        let tried: Vec<Trial> = tried.filter_map(|asked| self.trial(asked)).collect();
        let list = |keep: &dyn Fn(&Trial) -> bool| -> Vec<u64> {
            let kept = tried.iter().filter(|one| one.aligned() && keep(one));
            kept.map(|one| one.asked.tp).collect()
        };
        let aligned_known = list(&|_| true);
        let fails = now.worst() >= Fit::Refused;
        let padded = |other: &&Trial| {
            other.plan.fit == Fit::Padded
                && other.asked.tp > 1
                && (better(&other.plan, plan) || fails)
                && other.worst() < Fit::Refused
        };
        let key = |one: &&Trial| {
            (
                one.plan.overhead_millionths,
                std::cmp::Reverse(one.asked.tp),
            )
        };
        let cheapest = tried.iter().filter(padded).min_by_key(key);
        let cheapest = cheapest.map(|trial| self.instead(Way::Tp, trial));
        let instead = match plan.fit {
            _ if self.blocked => self.degrees(&aligned_known),
            // Nothing but other ranks, or whole copies, changes what the other parts get.
            Fit::Fits if fails => {
                let whole = self.replicate(&now);
                whole
                    .into_iter()
                    .chain(self.degrees(&aligned_known))
                    .collect()
            }
            Fit::Fits => Vec::new(),
            _ => self.ways(&now, &aligned_known, others),
        };
        let unknown = match now.open.is_empty() {
            true => Fit::Fits,
            false => Fit::Unknown,
        };
        RuleAdvice {
            rule: self.rule.id.clone(),
            format: self.spec().weight,
            layers: self.layers,
            extra_bytes: self.extra_bytes(plan, plan),
            rank_bytes: self.rank_bytes(plan),
            fit: plan.fit,
            verdict: plan.fit.max(now.worst()).max(unknown),
            aligned: list(&|one| one.open.is_empty()),
            aligned_known,
            cheapest,
            instead,
            parts: now.rest,
            open: now.open,
        }
    }

    /// All ranks that share the routed experts, of every replica.
    fn all_ranks(&self, tp: u64) -> Option<u64> {
        let ranks = self
            .parts
            .ranks(self.rule, self.at, Parallel { tp, ep: 1 })?;
        Some(ranks.tp)
    }

    /// As many ranks: in one group or one each, as was asked for; else in as many groups, or as divide
    /// them. None where the experts cannot be spread so.
    fn degree(&self, tp: u64) -> Option<Parallel> {
        let (asked, experts) = (self.asked(), self.spec().experts);
        let all = self.all_ranks(tp)?;
        if asked.ep > 1 && self.all_ranks(asked.tp) == Some(asked.ep) {
            return experts
                .is_multiple_of(all)
                .then_some(Parallel { tp, ep: all });
        }
        let mut ep = asked.ep.clamp(1, all.max(1));
        while !all.is_multiple_of(ep) || !experts.is_multiple_of(ep) {
            ep -= 1;
        }
        Some(Parallel { tp, ep })
    }

    fn instead(&self, way: Way, trial: &Trial) -> Instead {
        let (plan, model) = (&trial.plan, self.parts.model);
        Instead {
            way,
            rule: plan.rule.clone(),
            tp: trial.asked.tp,
            ep: trial.asked.ep,
            verdict: plan.fit,
            width: plan.width,
            width_padded: plan.width_padded,
            size: None,
            extra_bytes: self.extra_bytes(plan, plan),
            rank_bytes: self.rank_bytes(plan),
            extra_arithmetic: plan.arithmetic_millionths(),
            told: plan.is_told(),
            lossless: true,
            beside: model.shared.is_some() || model.dense.is_some(),
            still: failing(&trial.rest),
            open: Vec::new(),
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

    fn rank_bytes(&self, plan: &Plan) -> u64 {
        plan.weight_bytes().saturating_mul(self.layers)
    }

    /// On as many ranks, the cheapest first; then on others.
    fn ways(&self, now: &Trial, aligned: &[u64], others: &[Other<'_>]) -> Vec<Instead> {
        let plan = &now.plan;
        let mut all: Vec<Instead> = self.expert_parallel(plan).into_iter().collect();
        all.extend(self.backends(plan, others));
        all.extend(self.finer_scales(now));
        let offline = self.pad_offline(now);
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
        all.extend(self.replicate(now));
        let cost = |way: &Instead| (way.extra_bytes, way.extra_arithmetic);
        if plan.fit == Fit::Padded {
            // What it takes to do nothing.
            let own = (self.extra_bytes(plan, plan), plan.arithmetic_millionths());
            all.retain(|way| {
                cost(way) < own || now.worst() >= Fit::Refused && way.still.is_empty()
            });
        }
        all.sort_by_key(|way| (!way.still.is_empty(), cost(way), !way.lossless));
        all.extend(self.degrees(aligned));
        all
    }

    /// The next degrees below and above that need no padding.
    fn degrees(&self, aligned: &[u64]) -> Vec<Instead> {
        let asked = self.asked().tp;
        let below = aligned.iter().rev().find(|tp| **tp < asked);
        let above = aligned.iter().find(|tp| **tp > asked);
        let ranks = below.into_iter().chain(above);
        let trials = ranks.filter_map(|tp| self.trial(self.degree(*tp)?));
        trials.map(|trial| self.instead(Way::Tp, &trial)).collect()
    }

    /// Whole experts on every rank (facts/reports.md 0). Of groups of several ranks each nothing was
    /// read.
    fn expert_parallel(&self, plan: &Plan) -> Option<Instead> {
        let trial = self.spread()?;
        better(&trial.plan, plan).then(|| self.instead(Way::Ep, &trial))
    }

    /// The ranks asked about with whole experts on each, if that is not what was asked for.
    fn spread(&self) -> Option<Trial> {
        let asked = self.asked();
        let ep = self.all_ranks(asked.tp)?;
        let others = ep != asked.ep && self.spec().experts.is_multiple_of(ep);
        others.then(|| self.trial(Parallel { tp: asked.tp, ep }))?
    }

    /// Shared experts kept whole on every rank, where the stack can and they do not run when cut: with
    /// the routed experts as asked for, else spread whole.
    fn replicate(&self, now: &Trial) -> Option<Instead> {
        let stack = self.parts.rules.stack(&self.rule.stack)?;
        let cut = now.rest.iter().find(|one| one.layer == LayerKind::Shared)?;
        if !stack.shared_whole || cut.verdict < Fit::Refused {
            return None;
        }
        let at = self
            .parts
            .all
            .iter()
            .position(|part| part.kind == LayerKind::Shared)?;
        let whole = Parallel { tp: 1, ep: 1 };
        let judged = self.parts.judged(self.rule, at, whole)?;
        let plan = self.parts.whole(self.rule, at)?;
        if judged.fit >= Fit::Refused {
            return None;
        }
        let runs = |trial: &Trial| {
            let others = |one: &&Beside| one.layer != LayerKind::Shared;
            let mut others = trial.rest.iter().filter(others);
            trial.plan.fit < Fit::Refused && others.all(|one| one.verdict < Fit::Refused)
        };
        let spread = match runs(now) {
            true => None,
            false => Some(self.spread().filter(runs)?),
        };
        let way = self.instead(Way::Replicate, spread.as_ref().unwrap_or(now));
        let bytes = plan
            .weight_bytes()
            .saturating_mul(self.parts.model.moe_layers.max(1));
        let copies = (self.asked().tp - 1).saturating_mul(self.parts.dp);
        Some(Instead {
            size: Some(plan.width),
            extra_bytes: way.extra_bytes.saturating_add(bytes.saturating_mul(copies)),
            rank_bytes: way.rank_bytes.saturating_add(bytes),
            still: Vec::new(),
            ..way
        })
    }

    /// The best other rule of the stack on the same ranks and a device that both are for; and of
    /// the other stacks, where that is better still. Rules whose source leaves open how bytes lie
    /// come after all others.
    fn backends(&self, plan: &Plan, others: &[Other<'_>]) -> Vec<Instead> {
        let key = |plan: &Plan| {
            let open = !plan.unread.is_empty();
            (open, plan.fit, plan.overhead_millionths)
        };
        let beside = |rule: &Rule| self.rest(self.wide, rule, self.asked());
        let runs = |rule: &Rule| worst(&beside(rule).0) < Fit::Refused;
        let (_, ours) = self.rest(self.parts, self.rule, self.asked());
        let best = |own: bool| {
            let apt = others.iter().filter(|other| {
                (other.rule.stack == self.rule.stack) == own
                    && other.rule.id != self.rule.id
                    && better(&other.plan, plan)
                    && other.rule.shares_device(self.rule)
                    && runs(other.rule)
            });
            apt.min_by_key(|other| key(&other.plan))
        };
        let (own, other) = (best(true), best(false));
        let other = other.filter(|o| own.is_none_or(|own| key(&o.plan) < key(&own.plan)));
        let instead = |other: &Other<'_>| {
            let trial = Trial {
                asked: self.asked(),
                plan: other.plan.clone(),
                rest: Vec::new(),
                open: Vec::new(),
            };
            let (_, mut open) = beside(other.rule);
            open.retain(|kind| !ours.contains(kind));
            Instead {
                open,
                ..self.instead(Way::Backend, &trial)
            }
        };
        own.into_iter().chain(other).map(instead).collect()
    }

    /// The checkpoint's scales repeated on the finest grid that a shard's start asks for.
    fn finer_scales(&self, now: &Trial) -> Option<Instead> {
        let straddles = now.plan.violations.iter().any(|v| v.code == "PP103");
        if !straddles || self.spec().weight.grid_is_fixed() {
            return None;
        }
        let mut finer = self.rule.clone();
        finer.scale.refine = true;
        // What asks for whole blocks is about the grid; the rest stays.
        let block = match self.spec().weight.scale().map(|grid| grid.cols) {
            Some(Extent::Block(block)) => Some(block),
            Some(Extent::All) | None => None,
        };
        finer
            .refuse
            .retain(|one| block.is_none() || one.when.width_not_multiple != block);
        if finer.split == Split::Error {
            finer.split = Split::Floor;
        }
        let plan = self.parts.plan(&finer, self.at, self.asked())?.ok()?;
        let block = plan.w2_scale.map(|scale| scale.col_block)?;
        if plan.fit > Fit::Padded || block < REFINE_MIN {
            return None;
        }
        let refined = Trial {
            asked: now.asked,
            plan,
            rest: now.rest.clone(),
            open: Vec::new(),
        };
        Some(Instead {
            size: Some(block),
            ..self.instead(Way::FinerScales, &refined)
        })
    }

    /// The narrowest checkpoint that the rule takes on these ranks without padding.
    fn pad_offline(&self, now: &Trial) -> Option<Instead> {
        let (plan, part) = (&now.plan, self.spec());
        let ranks = self.parts.ranks(self.rule, self.at, now.asked)?;
        let ranks = ranks.tp.checked_div(ranks.ep)?;
        let share = part.intermediate.div_ceil(ranks.max(1));
        let block = match part.weight.scale().map(|grid| grid.cols) {
            Some(Extent::Block(block)) => block,
            Some(Extent::All) | None => 1,
        };
        let rounded = |granule: u64| share.div_ceil(granule).saturating_mul(granule);
        let granules = GRANULES.iter().map(|granule| (*granule).max(block));
        let mut widths: Vec<u64> = granules.map(rounded).collect();
        widths.sort_unstable();
        widths.dedup();
        for width in widths {
            let intermediate = width.checked_mul(ranks)?;
            let spec = LayerSpec {
                intermediate,
                ..part.clone()
            };
            let padded = self
                .parts
                .plan_as(&spec, self.rule, self.at, now.asked)?
                .ok()?;
            if padded.fit != Fit::Fits || intermediate <= part.intermediate {
                continue;
            }
            let whole = u128::from(part.intermediate);
            let extra = u128::from(intermediate - part.intermediate) * 1_000_000;
            let extra = u64::try_from((extra + whole / 2) / whole).unwrap_or(u64::MAX);
            if plan.fit == Fit::Padded && extra >= plan.overhead_millionths {
                // The loader pads as little, without a new checkpoint.
                return None;
            }
            let extra_bytes = self.extra_bytes(&padded, plan);
            let trial = Trial {
                asked: now.asked,
                plan: padded,
                rest: now.rest.clone(),
                open: Vec::new(),
            };
            return Some(Instead {
                width: plan.width,
                size: Some(intermediate),
                extra_bytes,
                extra_arithmetic: extra,
                ..self.instead(Way::PadOffline, &trial)
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
