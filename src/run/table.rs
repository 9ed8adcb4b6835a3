//! Plans as lines of a table: one per model, rule, layer and number of ranks.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::candidates::{Candidate, at_versions, candidates, on_arch};
use super::survey::plan_error;
use super::{Query, Survey, SurveyError};
use crate::model::Model;
use crate::plan::{
    Fit, LayerSpec, Parallel, Plan, concerns, layers, plan_layer, uncovered, unread_shares,
    unread_version,
};
use crate::rule::{Rule, Rules};
use crate::terms::{LayerKind, WeightFormat};
use serde::{Deserialize, Serialize};

/// The usual numbers of ranks.
pub const RANKS: [u64; 5] = [1, 2, 4, 8, 16];

/// The figures of one plan that a reader compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The model's name.
    pub model: String,
    /// The rule's id.
    pub rule: String,
    /// Part of the model.
    pub layer: String,
    /// Weight format.
    pub format: String,
    /// Ranks.
    pub tp: u64,
    /// Expert-parallel groups.
    pub ep: u64,
    /// The verdict.
    pub verdict: Fit,
    /// Largest logical width of a rank, in elements.
    pub width: u64,
    /// Width of every rank's buffers.
    pub width_padded: u64,
    /// Hidden size, in elements.
    pub hidden: u64,
    /// Hidden size of the buffers.
    pub hidden_padded: u64,
    /// Rows of a rank's w13.
    pub w13_rows: u64,
    /// Expert weights held over logical ones, minus 1.
    pub overhead: f64,
    /// Real widths of the ranks with repeats counted: `256*6 0*2`.
    pub ranks: String,
    /// Bytes of the layer's weights, scales, zero points and biases on one rank.
    pub bytes: u64,
    /// Bytes of a rank's activations for the tokens asked about; 0 where a table of an older program
    /// does not tell.
    #[serde(default)]
    pub activation_bytes: u64,
    /// Codes of the findings, each once, in order.
    pub codes: Vec<String>,
    /// Version or commit of the stack that the rule was read at; empty where a table of an older
    /// program does not tell.
    #[serde(default)]
    pub version: String,
    /// The dispatch that was asked to send the tokens; the rule's own id where it is one; empty where there
    /// is none, or where a table of an older program does not tell.
    #[serde(default)]
    pub dispatch: String,
}

impl Line {
    /// The figures of a plan of `model` under a rule that was read at `version`, where `dispatch` was asked to
    /// send the tokens.
    pub fn of(model: &str, version: &str, dispatch: Option<&str>, plan: &Plan) -> Self {
        let mut codes: Vec<String> = plan.violations.iter().map(|v| v.code.to_owned()).collect();
        codes.sort_unstable();
        codes.dedup();
        Line {
            model: model.to_owned(),
            rule: plan.rule.clone(),
            layer: plan.layer.name().to_owned(),
            format: plan.weight.name().to_owned(),
            tp: plan.parallel.tp,
            ep: plan.parallel.ep,
            verdict: plan.fit,
            width: plan.width,
            width_padded: plan.width_padded,
            hidden: plan.dims.h,
            hidden_padded: plan.hidden_padded,
            w13_rows: plan.w13_rows,
            overhead: plan.overhead_millionths as f64 / 1e6,
            ranks: lengths(plan.ranks.iter().map(|rank| rank.len)),
            bytes: plan.weight_bytes(),
            activation_bytes: plan.activation_bytes(),
            codes,
            version: version.to_owned(),
            dispatch: dispatch.unwrap_or_default().to_owned(),
        }
    }

    /// Whether the rule is a dispatch by itself, of which the hidden size alone is known.
    pub fn is_dispatch(&self) -> bool {
        self.dispatch == self.rule
    }

    /// What tells a line from the others of a table.
    pub fn key(&self) -> (&str, &str, &str, &str, u64, u64) {
        (
            &self.model,
            &self.rule,
            &self.layer,
            &self.format,
            self.tp,
            self.ep,
        )
    }
}

/// Lengths with repeats counted.
pub fn lengths(all: impl Iterator<Item = u64>) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for len in all {
        match runs.last_mut() {
            Some((last, times)) if *last == len => *times += 1,
            _ => runs.push((len, 1)),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .map(|(len, times)| format!("{len}*{times}"))
        .collect();
    words.join(" ")
}

/// What lines of several numbers of ranks have in common: layer, rule and format.
type Group<'s> = (LayerKind, &'s str, WeightFormat);

/// A table of plans.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The lines: by model, then layer and rule, then number of ranks.
    pub lines: Vec<Line>,
}

impl Table {
    /// The lines of one model at several numbers of ranks, one survey each: those of one layer,
    /// rule and format together, since not every number of ranks has every rule.
    pub fn of(surveys: &[Survey]) -> Self {
        let mut groups: Vec<(Group<'_>, Vec<Line>)> = Vec::new();
        for survey in surveys {
            // Where the next new group goes: behind the one before it.
            let mut next = 0;
            for one in &survey.plans {
                let plan = &one.plan;
                let key = (plan.layer, plan.rule.as_str(), plan.weight);
                let at = groups.iter().position(|(known, _)| *known == key);
                let at = at.unwrap_or_else(|| {
                    groups.insert(next, (key, Vec::new()));
                    next
                });
                next = at + 1;
                let own = one.dispatch.then_some(plan.rule.as_str());
                let dispatch = own.or(survey.dispatch.as_deref());
                groups[at].1.push(Line {
                    // As asked: replicas may have made more ranks of it.
                    tp: survey.parallel.tp,
                    ep: survey.parallel.ep,
                    ..Line::of(&survey.model.name, &one.version, dispatch, plan)
                });
            }
        }
        let lines = groups.into_iter().flat_map(|(_, lines)| lines);
        Table {
            lines: lines.collect(),
        }
    }

    /// Every model under every rule at every number of ranks. A rule that does not take a
    /// model's format is planned with the first one it does take; one that is for other layers is
    /// left out.
    ///
    /// # Errors
    /// As [`super::survey`].
    pub fn all(
        models: &[Model],
        rules: &Rules,
        query: &Query<'_>,
        ranks: &[u64],
    ) -> Result<Self, SurveyError> {
        let chosen = at_versions(rules, candidates(rules, query)?, query)?;
        let sender = rules.sender();
        let mut table = Table::default();
        for model in models {
            let all = layers(model, query.tokens);
            let parts = all
                .iter()
                .filter(|p| query.layer.is_none_or(|kind| kind == p.kind));
            for part in parts {
                let asked = part;
                for (rule, unread) in chosen
                    .iter()
                    .filter(|(rule, _)| rule.layers.contains(&part.kind.follows()))
                {
                    let rule: &Rule = &on_arch(rule, query.arch);
                    let mut part = part.clone();
                    if !rule.formats.contains(&part.weight) {
                        let of_kind = |other: &&LayerSpec| other.kind == part.kind;
                        let first = all.iter().find(of_kind).map(|other| other.weight);
                        if first != Some(part.weight) {
                            // What the rule makes of the kind stands there by its first format.
                            continue;
                        }
                        part.weight = rule.formats.first().copied().unwrap_or(part.weight);
                    }
                    for &tp in ranks {
                        let parallel = Parallel {
                            tp,
                            ..query.parallel
                        };
                        if !concerns(rule, &part, parallel, query.env) {
                            continue;
                        }
                        let mut plan = plan_layer(&part, parallel, rule, query.env)
                            .map_err(|source| plan_error(model, part.kind, rule, source))?;
                        unread_shares(&mut plan, &rule.stack);
                        if let Some(version) = unread {
                            unread_version(&mut plan, rule, version);
                        }
                        let own = rule.dispatch.then_some(rule.id.as_str());
                        let line = Line::of(&model.name, &rule.version, own.or(sender), &plan);
                        table.lines.push(line);
                    }
                }
                for stack in silent(&chosen, asked.kind) {
                    for &tp in ranks {
                        let parallel = Parallel {
                            tp,
                            ..query.parallel
                        };
                        let why = format!("no chosen rule covers the {} layer", asked.kind);
                        let plan = uncovered(asked, parallel, stack, why).map_err(|source| {
                            SurveyError::Plan {
                                model: model.name.clone(),
                                layer: asked.kind,
                                rule: stack.to_owned(),
                                source,
                            }
                        })?;
                        table.lines.push(Line::of(&model.name, "", sender, &plan));
                    }
                }
            }
        }
        Ok(table)
    }
}

/// Stacks with a chosen rule for routed experts, beside which none is for another kind of layer on
/// the same device.
fn silent<'q>(chosen: &[Candidate<'q>], kind: LayerKind) -> Vec<&'q str> {
    let covers = |rule: &Rule, kind: LayerKind| rule.layers.contains(&kind.follows());
    let alone = |rule: &Rule| {
        let beside = |other: &Rule| {
            other.stack == rule.stack && covers(other, kind) && other.shares_device(rule)
        };
        let routed = covers(rule, LayerKind::Routed) && !rule.kernel;
        routed && !chosen.iter().any(|(other, _)| beside(other))
    };
    let alone = chosen.iter().filter(|(rule, _)| alone(rule));
    let mut stacks: Vec<&str> = alone.map(|(rule, _)| rule.stack.as_str()).collect();
    stacks.sort_unstable();
    stacks.dedup();
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted() {
        assert_eq!(lengths([256, 256, 0, 0, 0].into_iter()), "256*2 0*3");
        assert_eq!(lengths(std::iter::empty()), "");
    }

    #[test]
    fn every_model_meets_every_rule_at_every_number_of_ranks() {
        let query = Query {
            all: false,
            ..Query::of(Parallel { tp: 1, ep: 1 })
        };
        let models = &crate::model::builtin()[..3];
        let rules = Rules::builtin();
        let table = Table::all(models, rules, &query, &RANKS).unwrap();
        // What a later change replaced is left out too.
        let replaced = |r: &Rule| r.until.is_some() && rules.iter().any(|l| l.since == r.until);
        let current = |r: &&Rule| r.status == crate::rule::Status::Current && !replaced(r);
        for rule in rules.iter().filter(current) {
            let routed = rule.layers.contains(&crate::terms::LayerKind::Routed);
            let lines = table
                .lines
                .iter()
                .filter(|l| l.rule == rule.id && l.layer == "routed");
            let wanted = if routed { 3 * RANKS.len() } else { 0 };
            // A rule for some layers only is left out of those it is not for.
            let some = rule.when != Default::default();
            let count = lines.count();
            assert!(count == wanted || (some && count < wanted), "{}", rule.id);
        }
        let mut keys: Vec<_> = table.lines.iter().map(Line::key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), table.lines.len(), "two lines have one key");
    }

    #[test]
    fn bytes_are_those_of_weights_whatever_the_tokens() {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let of = |tokens| {
            let query = Query {
                rule: Some("vllm.marlin.mxfp4"),
                tokens,
                ..Query::of(Parallel { tp: 8, ep: 1 })
            };
            let found = crate::run::survey(&model, Rules::builtin(), &query).unwrap();
            let line = Line::of("m", "1", None, &found.plans[0].plan);
            (line.bytes, line.activation_bytes)
        };
        let (one, many) = (of(1), of(64));
        assert_eq!(one.0, many.0);
        // Input, output and four intermediate rows in f32: 3072 wide, and 384.
        assert_eq!(one.1, 4 * (2 * 3072 + 4 * 384));
        assert_eq!(many.1, 64 * one.1);
    }

    /// `vllm.deepep_*` are for spread experts: two groups of one rank have none, of two ranks two.
    #[test]
    fn lines_of_one_rule_stand_together_though_rules_depend_on_ranks() {
        let model = crate::model::load("Qwen3-235B-A22B").unwrap();
        let at = |tp, ep| {
            let query = Query {
                rule: Some("vllm.*"),
                ..Query::of(Parallel { tp, ep })
            };
            crate::run::survey(&model, Rules::builtin(), &query).unwrap()
        };
        let surveys = [at(1, 1), at(2, 2), at(4, 1)];
        let spread = |s: &Survey| s.plans.iter().any(|p| p.plan.rule.contains("deepep_ht"));
        assert_eq!([0, 1, 2].map(|n| spread(&surveys[n])), [false, true, false]);
        let table = Table::of(&surveys);
        let plans: usize = surveys.iter().map(|s| s.plans.len()).sum();
        assert_eq!(table.lines.len(), plans);
        let mut groups: Vec<_> = table
            .lines
            .iter()
            .map(|l| (&l.layer, &l.rule, &l.format))
            .collect();
        groups.dedup();
        let runs = groups.len();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), runs, "a rule's lines stand apart");
    }
}
