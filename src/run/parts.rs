//! Which rules judge which part of a model, and what they make of it on any ranks.
//!
//! It must not decide anything that `plan` decides, or advise. Layer 9.

use super::candidates::{Candidate, at_versions, candidates, of_method, on_arch, uncovered};
use super::survey::{NotJudged, Query, SurveyError};
use crate::model::Model;
use crate::plan::{
    Fit, LayerSpec, Parallel, Plan, PlanError, concerns, layers, plan_layer, replicated,
    unread_groups, unread_replicas, unread_shares, unread_version,
};
use crate::rule::{Rule, Rules, Status};
use crate::terms::LayerKind;

/// A part that no chosen rule of a stack is for.
pub(super) struct Silent {
    /// The stack; a dash where no rule was chosen at all.
    pub(super) stack: String,
    /// Why, as a clause.
    pub(super) why: String,
}

/// What rules make of a part.
pub(super) struct Judged {
    pub(super) fit: Fit,
    pub(super) width: u64,
    /// None where there is none: groups of experts do not divide the ranks, a size leaves its type.
    pub(super) plan: Option<Plan>,
}

/// What a rule's plan of a part says of its stack. One backend among several, which nobody says is the stack's
/// choice, says only what holds for all of them: scales that no share could hold, ranks that do not divide.
pub(super) fn of_stack(plan: &Plan, whole: bool) -> Fit {
    let uneven = || plan.violations.iter().any(|v| v.code == "PP101");
    match plan.fit {
        fit if whole => fit,
        Fit::Unrepresentable => Fit::Unrepresentable,
        Fit::Refused if uneven() => Fit::Refused,
        _ => Fit::Unknown,
    }
}

/// A model's parts, and the rules chosen for each.
pub(super) struct Parts<'q> {
    pub(super) model: &'q Model,
    pub(super) rules: &'q Rules,
    pub(super) query: Query<'q>,
    /// Replicas.
    pub(super) dp: u64,
    /// Every part, asked about or not.
    pub(super) all: Vec<LayerSpec>,
    candidates: Vec<Candidate<'q>>,
    /// The candidates that are planned for each part on the ranks asked about.
    picked: Vec<Vec<Candidate<'q>>>,
}

impl<'q> Parts<'q> {
    pub(super) fn new(
        model: &'q Model,
        rules: &'q Rules,
        query: Query<'q>,
        dp: u64,
    ) -> Result<Self, SurveyError> {
        let found = candidates(rules, &query)?;
        let mut parts = Parts {
            model,
            rules,
            query,
            dp,
            all: layers(model, query.tokens),
            candidates: at_versions(rules, found, &query)?,
            picked: Vec::new(),
        };
        let picked = (0..parts.all.len()).map(|at| parts.pick(at)).collect();
        parts.picked = picked;
        Ok(parts)
    }

    /// Whether a part is asked about.
    pub(super) fn asked(&self, at: usize) -> bool {
        self.query
            .layer
            .is_none_or(|kind| kind == self.all[at].kind)
    }

    /// The candidates that are planned for a part.
    pub(super) fn picked(&self, at: usize) -> &[Candidate<'q>] {
        &self.picked[at]
    }

    /// Rules of the routed experts' format that a name chose, and that are for other checkpoints.
    pub(super) fn of_other_methods(&self, at: usize) -> Vec<NotJudged> {
        let part = &self.all[at];
        let named = self.query.rule.is_some() || self.query.backend.is_some();
        let dropped = self.candidates.iter().filter(|(rule, _)| {
            named
                && part.kind == LayerKind::Routed
                && rule.status == Status::Current
                && rule.layers.contains(&part.kind)
                && rule.formats.contains(&part.weight)
                && !of_method(rule, self.model)
                && !self.picked[at]
                    .iter()
                    .any(|(picked, _)| picked.id == rule.id)
        });
        let told = |(rule, _): &Candidate<'q>| NotJudged {
            layer: part.kind,
            rule: Some(rule.id.clone()),
            why: format!(
                "{} is for checkpoints of {}, not of `{}`",
                rule.id,
                rule.methods.join(" or "),
                self.model.quant.method
            ),
        };
        dropped.map(told).collect()
    }

    /// The ranks that share a part under a rule; none when the groups of experts do not divide
    /// them.
    pub(super) fn ranks(&self, rule: &Rule, at: usize, asked: Parallel) -> Option<Parallel> {
        let replicas = self.rules.replicas(&rule.stack);
        replicated(replicas, self.all[at].kind, asked, self.dp)
    }

    /// Whether a rule is for a part's kind and format, the checkpoint's method and a layer like it
    /// on the ranks that share it.
    fn takes(&self, rule: &Rule, at: usize, asked: Parallel) -> bool {
        let part = &self.all[at];
        let concerned = |ranks| concerns(rule, part, ranks, self.query.env);
        rule.layers.contains(&part.kind.follows())
            && rule.formats.contains(&part.weight)
            && of_method(rule, self.model)
            && self.ranks(rule, at, asked).is_none_or(concerned)
    }

    /// Whether nothing but kernels was chosen: nobody launches one by itself, so no other query is advised
    /// about them.
    pub(super) fn kernels_alone(&self) -> bool {
        self.candidates.iter().all(|(rule, _)| rule.kernel)
    }

    /// The candidates that take a part, whether a whole id or a pattern chose them: of a rule that takes nothing
    /// of the model nobody read that its stack refuses it.
    fn pick(&self, at: usize) -> Vec<Candidate<'q>> {
        let candidates = self.candidates.iter();
        let taken = candidates.filter(|(rule, _)| self.takes(rule, at, self.query.parallel));
        taken.copied().collect()
    }

    /// Whether the stack's `auto` takes a rule's backend for a part.
    pub(super) fn is_auto(&self, rule: &Rule, at: usize) -> bool {
        let part = &self.all[at];
        let auto = self
            .rules
            .auto(&rule.stack, &self.model.architecture, part.weight);
        rule.status == Status::Current && auto.is_some_and(|auto| auto.backend == rule.backend)
    }

    /// Whether a rule is its stack's path for a part whatever backend is chosen for others: `auto` takes it, no
    /// backend is named, or a CPU has no other.
    pub(super) fn is_whole(&self, rule: &Rule, at: usize) -> bool {
        self.is_auto(rule, at) || rule.backend == "any" || rule.arch == ["cpu"]
    }

    /// The rules that judge a part where the routed experts are under `rule`: that rule itself
    /// where it is for the part, else those of its stack that are, and are for a device of its.
    fn beside(&self, rule: &Rule, at: usize, asked: Parallel) -> Vec<&Candidate<'q>> {
        let own = self.picked[at].iter().find(|(r, _)| r.id == rule.id);
        let own = own.or_else(|| {
            let mut all = self.candidates.iter();
            all.find(|(r, _)| r.id == rule.id && self.takes(r, at, asked))
        });
        if let Some(own) = own {
            return vec![own];
        }
        let others = self.candidates.iter().filter(|(other, _)| {
            other.stack == rule.stack
                && other.status == Status::Current
                && other.shares_device(rule)
                && self.takes(other, at, asked)
        });
        others.collect()
    }

    /// What a stack makes of a part, where the routed experts are under `rule`: the best of the
    /// rules that are for it; none where there is none.
    pub(super) fn judged(&self, rule: &Rule, at: usize, asked: Parallel) -> Option<Judged> {
        self.judged_as(&self.all[at], rule, at, asked)
    }

    /// The same of a part with other sizes, and of `rule` as it is given where the part is under it.
    pub(super) fn judged_as(
        &self,
        spec: &LayerSpec,
        rule: &Rule,
        at: usize,
        asked: Parallel,
    ) -> Option<Judged> {
        let judge = |(one, _): &&Candidate<'q>| -> Option<Judged> {
            let own = one.id == rule.id;
            let one = if own { rule } else { *one };
            match self.plan_as(spec, one, at, asked) {
                Some(Ok(plan)) => {
                    let says = own || of_stack(&plan, self.is_whole(one, at)) == plan.fit;
                    says.then_some(Judged {
                        fit: plan.fit,
                        width: plan.width,
                        plan: Some(plan),
                    })
                }
                _ => Some(Judged {
                    fit: Fit::Refused,
                    width: 0,
                    plan: None,
                }),
            }
        };
        let rules = self.beside(rule, at, asked);
        let overhead = |one: &Judged| one.plan.as_ref().map(|plan| plan.overhead_millionths);
        rules
            .iter()
            .filter_map(judge)
            .min_by_key(|one| (one.fit, overhead(one)))
    }

    /// A part's plan under a rule, with what nobody read of its stack; none when the groups of
    /// experts do not divide the ranks.
    pub(super) fn plan(
        &self,
        rule: &Rule,
        at: usize,
        asked: Parallel,
    ) -> Option<Result<Plan, PlanError>> {
        self.plan_as(&self.all[at], rule, at, asked)
    }

    /// The same of a part with other sizes.
    pub(super) fn plan_as(
        &self,
        spec: &LayerSpec,
        rule: &Rule,
        at: usize,
        asked: Parallel,
    ) -> Option<Result<Plan, PlanError>> {
        let ranks = self.ranks(rule, at, asked)?;
        let mut all = self.candidates.iter();
        let unread = all.find(|(r, _)| r.id == rule.id).and_then(|(_, v)| *v);
        let on = on_arch(rule, self.query.arch);
        let plan = plan_layer(spec, ranks, &on, self.query.env);
        Some(plan.map(|plan| self.said(plan, rule, unread)))
    }

    fn said(&self, mut plan: Plan, rule: &Rule, unread: Option<&str>) -> Plan {
        let stack = rule.stack.as_str();
        unread_replicas(&mut plan, stack, self.rules.replicas(stack), self.dp);
        unread_shares(&mut plan, stack);
        unread_groups(&mut plan, stack, self.rules.spread(stack));
        if let Some(version) = unread {
            unread_version(&mut plan, rule, version);
        }
        plan
    }

    /// The stacks that judge the routed experts and not this part, at least under one rule.
    pub(super) fn silent(&self, at: usize) -> Vec<Silent> {
        let ranks = self.query.parallel;
        let routed = (0..self.all.len()).filter(|&n| self.all[n].kind == LayerKind::Routed);
        let routed = routed.flat_map(|n| &self.picked[n]);
        // A kernel library is no stack that other parts run on.
        let alone =
            routed.filter(|(rule, _)| !rule.kernel && self.beside(rule, at, ranks).is_empty());
        let mut stacks: Vec<&str> = alone.map(|(rule, _)| rule.stack.as_str()).collect();
        stacks.sort_unstable();
        stacks.dedup();
        let silent = |stack: &str| Silent {
            stack: stack.to_owned(),
            why: self.why(stack, at),
        };
        match (stacks.as_slice(), self.picked[at].is_empty()) {
            // Nothing judges the routed experts either.
            ([], true) => {
                let mut all: Vec<&str> = self
                    .candidates
                    .iter()
                    .map(|(r, _)| r.stack.as_str())
                    .collect();
                all.sort_unstable();
                all.dedup();
                match all.as_slice() {
                    [only] => vec![silent(only)],
                    _ => vec![Silent {
                        stack: "-".to_owned(),
                        why: uncovered(&self.candidates, &self.all[at], self.model, &self.query),
                    }],
                }
            }
            (some, _) => some.iter().map(|stack| silent(stack)).collect(),
        }
    }

    /// Why no rule of a stack judges a part, as a clause.
    fn why(&self, stack: &str, at: usize) -> String {
        let own = |one: &&Candidate<'q>| one.0.stack == stack;
        let own: Vec<Candidate<'q>> = self.candidates.iter().filter(own).copied().collect();
        let kind = self.all[at].kind;
        let mut text = match self.picked[at].iter().any(|(r, _)| r.stack == stack) {
            true => format!(
                "the rules that cover the {kind} layer are for other devices than some of those for the routed one"
            ),
            false => uncovered(&own, &self.all[at], self.model, &self.query),
        };
        // What was not chosen may be read.
        let mut others = self.rules.iter().filter(|rule| {
            rule.stack == stack
                && rule.status == Status::Current
                && !own.iter().any(|(known, _)| known.id == rule.id)
                && own.iter().any(|(known, _)| known.shares_device(rule))
                && self.takes(rule, at, self.query.parallel)
        });
        if let Some(other) = others.next() {
            text.push_str(&format!(
                "; `{}`, which was not chosen, is for it",
                other.id
            ));
        }
        text
    }
}
