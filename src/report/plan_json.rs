//! Writes a survey as JSON; the fields are an interface, and only ever added to.
//!
//! It must not decide anything. Layer 10.

use super::advice;
use crate::model::Model;
use crate::plan::{Parallel, RankPlan, TensorPlan, Violation};
use crate::rule::{Grade, Unread};
use crate::run::{Survey, Surveyed, TABLE_SCHEMA};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};

#[derive(Serialize)]
struct Document<'a> {
    /// Version of the shape; raised when a field changes its meaning. `diff` reads it too.
    schema: u64,
    model: ModelFacts<'a>,
    parallel: Ranks,
    plans: Vec<OnePlan<'a>>,
    not_judged: Vec<NotJudged<'a>>,
    advice: Advice<'a>,
}

#[derive(Serialize)]
struct NotJudged<'a> {
    layer: &'a str,
    rule: Option<&'a str>,
    why: &'a str,
}

#[derive(Serialize)]
struct Ranks {
    #[serde(flatten)]
    parallel: Parallel,
    /// Replicas, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    dp: Option<u64>,
    /// What sends the tokens of spread experts, where that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<String>,
}

#[derive(Serialize)]
struct ModelFacts<'a> {
    #[serde(flatten)]
    model: &'a Model,
    gated: bool,
    router: Router<'a>,
}

#[derive(Serialize)]
struct Router<'a> {
    name: &'a str,
    groups: u64,
    keep: u64,
    factor: f64,
}

#[derive(Serialize)]
struct OnePlan<'a> {
    rule: &'a str,
    version: &'a str,
    layer: &'a str,
    verdict: &'a str,
    status: &'a str,
    auto: bool,
    /// Whether the rule is a kernel library's own check, which nobody launches.
    kernel: bool,
    /// Whether the rule is a dispatch by itself, of which the hidden size alone is known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dispatch: bool,
    grade: Grade,
    /// Whether `rule` is for the layer; else it is the name of a stack whose chosen rules are not.
    covered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<&'a str>,
    format: &'a str,
    width: u64,
    width_padded: u64,
    width_computed: u64,
    hidden: u64,
    hidden_padded: u64,
    hidden_computed: u64,
    w2_width_computed: u64,
    w2_hidden_computed: u64,
    /// Multiplications beyond those without padding; less than `overhead` where the kernel is told.
    extra_arithmetic: f64,
    w13_rows: u64,
    overhead: f64,
    /// What of how bytes lie the rule's source leaves open.
    #[serde(skip_serializing_if = "<[Unread]>::is_empty")]
    unread: &'a [Unread],
    ranks: &'a [RankPlan],
    tensors: &'a [TensorPlan],
    findings: &'a [Violation],
}

#[derive(Serialize)]
struct Advice<'a> {
    /// Of the routed experts alone, whatever heads take, and so is `per_rule`.
    aligned_tp: Vec<u64>,
    per_rule: BTreeMap<&'a str, Vec<u64>>,
    /// Of all parts, among the degrees that heads and vocabulary take; empty where a part has no rule.
    per_rule_all_parts: BTreeMap<&'a str, Vec<u64>>,
    /// Those that stand in the list of each of `rules`.
    aligned_usable_tp: Vec<u64>,
    usable_tp: &'a [u64],
    limits: &'a [String],
    blocked: &'a [String],
    unchecked: &'a [String],
    rules: Vec<Value>,
}

/// Writes the survey as one JSON object.
///
/// # Errors
/// Those of the stream.
pub fn plan_json(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    let model = &survey.model;
    let advised = survey.advice.rules.iter();
    let document = Document {
        schema: TABLE_SCHEMA,
        model: ModelFacts {
            model,
            gated: model.gated(),
            router: Router {
                name: model.route.name(),
                groups: model.groups,
                keep: model.keep,
                factor: model.factor,
            },
        },
        parallel: Ranks {
            parallel: survey.parallel,
            dp: Some(survey.dp).filter(|dp| *dp > 1),
            dispatch: survey.dispatch.clone(),
        },
        plans: survey.plans.iter().map(one).collect(),
        not_judged: survey
            .not_judged
            .iter()
            .map(|n| NotJudged {
                layer: n.layer.name(),
                rule: n.rule.as_deref(),
                why: &n.why,
            })
            .collect(),
        advice: Advice {
            aligned_tp: survey.aligned_by_all(),
            per_rule: per_rule(survey.aligned.iter().map(|(rule, list)| (rule, list))),
            per_rule_all_parts: per_rule(advised.map(|one| (&one.rule, &one.aligned))),
            aligned_usable_tp: advice::common(survey),
            usable_tp: &survey.advice.usable,
            limits: &survey.advice.limits,
            blocked: &survey.advice.blocked,
            unchecked: &survey.advice.unchecked,
            rules: advice::rules_json(survey),
        },
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn one(surveyed: &Surveyed) -> OnePlan<'_> {
    let plan = &surveyed.plan;
    OnePlan {
        rule: &plan.rule,
        version: &surveyed.version,
        layer: plan.layer.name(),
        verdict: plan.fit.name(),
        status: surveyed.status.name(),
        auto: surveyed.auto,
        kernel: plan.kernel,
        dispatch: surveyed.dispatch,
        grade: plan.grade,
        covered: !surveyed.uncovered,
        wrong: surveyed.wrong.as_deref(),
        format: plan.weight.name(),
        width: plan.width,
        width_padded: plan.width_padded,
        width_computed: plan.width_computed,
        hidden: plan.dims.h,
        hidden_padded: plan.hidden_padded,
        hidden_computed: plan.hidden_computed,
        w2_width_computed: plan.w2_width_computed,
        w2_hidden_computed: plan.w2_hidden_computed,
        extra_arithmetic: ratio(plan.arithmetic_millionths()),
        w13_rows: plan.w13_rows,
        overhead: ratio(plan.overhead_millionths),
        unread: &plan.unread,
        ranks: &plan.ranks,
        tensors: &plan.tensors,
        findings: &plan.violations,
    }
}

/// Degrees that need no padding by rule: in each format that the rule takes, where layers have
/// several.
fn per_rule<'s>(
    lists: impl Iterator<Item = (&'s String, &'s Vec<u64>)>,
) -> BTreeMap<&'s str, Vec<u64>> {
    let mut all: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (rule, list) in lists {
        let known = all.entry(rule).or_insert_with(|| list.clone());
        known.retain(|tp| list.contains(tp));
    }
    all
}

/// Millionths as a ratio.
fn ratio(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}
