//! Plans as lines of a table: one per model, rule, layer and number of ranks.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::candidates::{at_versions, candidates, on_arch};
use super::survey::plan_error;
use super::{Query, Survey, SurveyError, Surveyed};
use crate::model::Model;
use crate::plan::{Fit, Parallel, Plan, concerns, layers, plan_layer, unread_version};
use crate::rule::{Rule, Rules};
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
    /// Bytes of the layer's tensors on one rank.
    pub bytes: u64,
    /// Codes of the findings, each once, in order.
    pub codes: Vec<String>,
}

impl Line {
    /// The figures of a plan of `model`.
    pub fn of(model: &str, plan: &Plan) -> Self {
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
            bytes: plan
                .tensors
                .iter()
                .fold(0, |all, t| t.bytes.saturating_add(all)),
            codes,
        }
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

/// A table of plans.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The lines: by model, then layer and rule, then number of ranks.
    pub lines: Vec<Line>,
}

impl Table {
    /// The lines of one model at several numbers of ranks: one survey each.
    pub fn of(surveys: &[Survey]) -> Self {
        let mut lines: Vec<Line> = Vec::new();
        let longest = surveys.iter().map(|s| s.plans.len()).max().unwrap_or(0);
        for at in 0..longest {
            let plans = surveys.iter().filter_map(|s| Some((s, s.plans.get(at)?)));
            let line = |(s, one): (&Survey, &Surveyed)| Line {
                // As asked: replicas may have made more ranks of it.
                tp: s.parallel.tp,
                ep: s.parallel.ep,
                ..Line::of(&s.model.name, &one.plan)
            };
            lines.extend(plans.map(line));
        }
        Table { lines }
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
        let chosen = at_versions(candidates(rules, query)?, query)?;
        let mut table = Table::default();
        for model in models {
            let parts = layers(model, query.tokens);
            let parts = parts
                .iter()
                .filter(|p| query.layer.is_none_or(|kind| kind == p.kind));
            for part in parts {
                for (rule, unread) in chosen
                    .iter()
                    .filter(|(rule, _)| rule.layers.contains(&part.kind.follows()))
                {
                    let rule: &Rule = &on_arch(rule, query.arch);
                    let mut part = part.clone();
                    if !rule.formats.contains(&part.weight) {
                        part.weight = rule.formats.first().copied().unwrap_or(part.weight);
                    }
                    for &tp in ranks {
                        let parallel = Parallel {
                            tp,
                            ..query.parallel
                        };
                        if !concerns(rule, &part, parallel) {
                            continue;
                        }
                        let mut plan = plan_layer(&part, parallel, rule, query.env)
                            .map_err(|source| plan_error(model, part.kind, rule, source))?;
                        if let Some(version) = unread {
                            unread_version(&mut plan, rule, version);
                        }
                        table.lines.push(Line::of(&model.name, &plan));
                    }
                }
            }
        }
        Ok(table)
    }
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
            parallel: Parallel { tp: 1, ep: 1 },
            tokens: 1,
            rule: None,
            backend: None,
            layer: None,
            env: &[],
            all: false,
            arch: None,
            versions: &[],
            advice: false,
        };
        let models = &crate::model::builtin()[..3];
        let rules = Rules::builtin();
        let table = Table::all(models, rules, &query, &RANKS).unwrap();
        let current = |r: &&Rule| r.status == crate::rule::Status::Current;
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
}
