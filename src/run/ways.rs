//! Ways around one rule's plan of the routed experts, each held against every part of the model.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::advice::{Beside, Instead, RuleAdvice, Way};
use super::cost::{Cost, layers};
use super::parts::{Judged, Parts};
use crate::plan::{Fit, LayerSpec, Parallel, Plan};
use crate::rule::Rule;
use crate::terms::LayerKind;

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
    pub(super) rule: &'q Rule,
    /// Whether the rest of the model does not take the degree asked about.
    pub(super) blocked: bool,
}

/// The plan on some ranks, what it costs, and what becomes of the other parts there.
pub(super) struct Trial {
    pub(super) asked: Parallel,
    pub(super) plan: Plan,
    pub(super) cost: Cost,
    pub(super) rest: Vec<Beside>,
    pub(super) open: Vec<LayerKind>,
}

impl Trial {
    /// The worst verdict of the parts beside the routed experts that a rule is for.
    pub(super) fn worst(&self) -> Fit {
        worst(&self.rest)
    }

    fn aligned(&self) -> bool {
        self.plan.fit.max(self.worst()) == Fit::Fits
    }

    /// What all parts cost that a rule is for.
    fn all_parts(&self) -> Option<Cost> {
        let mut parts = self.rest.iter();
        parts.try_fold(self.cost, |all, part| Some(all.and(part.cost?)))
    }
}

fn worst(rest: &[Beside]) -> Fit {
    let verdicts = rest.iter().map(|one| one.verdict);
    verdicts.max().unwrap_or(Fit::Fits)
}

/// The parts that do not run.
fn failing(rest: &[Beside]) -> Vec<Beside> {
    let fails = |one: &&Beside| one.verdict >= Fit::Refused;
    rest.iter().filter(fails).copied().collect()
}

impl About<'_, '_> {
    pub(super) fn spec(&self) -> &LayerSpec {
        &self.parts.all[self.at]
    }

    /// How many layers have a part.
    pub(super) fn layers(&self, at: usize) -> u64 {
        layers(self.parts.model, &self.parts.all, at)
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
            match parts.judged(rule, at, asked) {
                Some(judged) => rest.push(self.besides(at, &judged, judged.plan.as_ref())),
                // Who asks about one part leaves the others open, and so does a kernel.
                None if parts.query.layer.is_none() && !rule.kernel => {
                    open.push(parts.all[at].kind);
                }
                None => {}
            }
        }
        (rest, open)
    }

    /// A part beside the routed experts, its cost held against the shares of another plan.
    pub(super) fn besides(&self, at: usize, judged: &Judged, shares: Option<&Plan>) -> Beside {
        let (part, layers) = (&self.parts.all[at], self.layers(at));
        let plans = judged.plan.as_ref().zip(shares);
        Beside {
            layer: part.kind,
            format: part.weight,
            verdict: judged.fit,
            width: judged.width,
            layers,
            cost: plans.map(|(plan, shares)| Cost::of(plan, shares, layers)),
        }
    }

    fn trial(&self, asked: Parallel) -> Option<Trial> {
        let plan = self.parts.plan(self.rule, self.at, asked)?.ok()?;
        let (rest, open) = self.rest(self.parts, self.rule, asked);
        Some(Trial {
            asked,
            cost: Cost::of(&plan, &plan, self.layers(self.at)),
            plan,
            rest,
            open,
        })
    }

    pub(super) fn advice(&self, plan: &Plan, usable: &[u64], others: &[Other<'_>]) -> RuleAdvice {
        let (rest, open) = self.rest(self.parts, self.rule, self.asked());
        let now = Trial {
            asked: self.asked(),
            cost: Cost::of(plan, plan, self.layers(self.at)),
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
                one.rest
                    .iter()
                    .map(|part| part.cost.map(|cost| cost.extra_bytes))
                    .max(),
                std::cmp::Reverse(one.asked.tp),
            )
        };
        let cheapest = tried.iter().filter(padded).min_by_key(key);
        let cheapest = cheapest.map(|trial| self.instead(Way::Tp, trial));
        let instead = match plan.fit {
            _ if self.blocked => self.degrees(&aligned_known),
            // Nothing but other ranks, or whole copies, changes what the other parts get.
            Fit::Fits if fails => {
                let offline = self.pad_offline(&now).filter(|_| self.pads());
                let whole = self.replicate(&now);
                whole
                    .into_iter()
                    .chain(offline)
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
            layers: self.layers(self.at),
            cost: now.cost,
            all_parts: now.all_parts(),
            fit: plan.fit,
            verdict: plan.fit.max(now.worst()).max(unknown),
            aligned: list(&|one| one.open.is_empty()),
            aligned_known,
            cheapest,
            instead,
            alone: self.rule.kernel && self.parts.all.len() > 1,
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

    pub(super) fn instead(&self, way: Way, trial: &Trial) -> Instead {
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
            cost: trial.cost,
            changed: Vec::new(),
            pad: None,
            all_parts: trial.all_parts(),
            parts: trial.rest.clone(),
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
                pad: None,
                ..way.clone()
            });
        }
        all.extend(offline.filter(|_| self.pads()));
        all.extend(self.replicate(now));
        let told = |cost: Option<Cost>| cost.map(|c| (c.extra_bytes, c.extra_arithmetic()));
        let cost = |way: &Instead| (told(way.all_parts), told(Some(way.cost)));
        if plan.fit == Fit::Padded {
            // What it takes to do nothing.
            let own = (told(now.all_parts()), told(Some(now.cost)));
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
        let judged = self
            .parts
            .judged(self.rule, at, Parallel { tp: 1, ep: 1 })?;
        let plan = judged.plan.as_ref().filter(|_| judged.fit < Fit::Refused)?;
        let runs = |trial: &Trial| {
            let others = |one: &&Beside| one.layer != LayerKind::Shared;
            let mut others = trial.rest.iter().filter(others);
            trial.plan.fit < Fit::Refused && others.all(|one| one.verdict < Fit::Refused)
        };
        let cut = match runs(now) {
            true => now,
            false => &self.spread().filter(runs)?,
        };
        let one = self.besides(at, &judged, Some(plan));
        let copied = Beside {
            cost: Some(one.cost?.copied(self.asked().tp, self.parts.dp)),
            ..one
        };
        let part = |known: &Beside| match known.layer {
            LayerKind::Shared => copied,
            _ => *known,
        };
        let trial = Trial {
            asked: cut.asked,
            plan: cut.plan.clone(),
            cost: cut.cost,
            rest: cut.rest.iter().map(part).collect(),
            open: Vec::new(),
        };
        let way = self.instead(Way::Replicate, &trial);
        // Shared experts of draft layers are among the copies where those are stored alike, so their routed
        // experts are too.
        let alike = self.parts.model.quant.draft_format.is_none();
        let drafts = trial.rest.iter();
        let drafts = drafts.filter(|part| alike && part.layer == LayerKind::Draft);
        let routed = drafts
            .filter_map(|part| part.cost)
            .fold(cut.cost, Cost::and);
        Some(Instead {
            size: Some(plan.width),
            cost: routed.and(copied.cost?),
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
            let (rest, mut open) = beside(other.rule);
            let trial = Trial {
                asked: self.asked(),
                cost: Cost::of(&other.plan, &other.plan, self.layers(self.at)),
                plan: other.plan.clone(),
                rest,
                open: Vec::new(),
            };
            open.retain(|kind| !ours.contains(kind));
            Instead {
                open,
                ..self.instead(Way::Backend, &trial)
            }
        };
        own.into_iter().chain(other).map(instead).collect()
    }
}

/// Whether a plan is worth naming instead of another: it runs, and pads less or at all.
fn better(other: &Plan, plan: &Plan) -> bool {
    let key = |plan: &Plan| (plan.fit, plan.overhead_millionths);
    other.fit <= Fit::Padded && key(other) < key(plan)
}
