//! Holds plan entries to what they expect.
//!
//! It must not decide what fits. Layer 9.

use super::{Query, Survey, survey};
use crate::model::{self, Model, ModelError, Quant};
use crate::plan::{Parallel, Plan, TensorPlan, spelled_rule};
use crate::property::{Finding, Tier, Verdict, invariants};
use crate::rule::{Rule, Rules};
use crate::suite::{ModelSizes, PlanEntry, PlanExpect, PlanModel, PlanRules};
use crate::terms::{Activation, LayerKind};
use std::collections::BTreeMap;

/// The name under which plan entries are reported, as a property is.
pub const PLAN_ENTRY: &str = "plan-entry";

/// Plans the entry's model under its rules, those of `rules` unless it brings its own, and compares every plan
/// with what is expected. What
/// padding must hold whatever is expected ([`invariants`]) is asked of every plan too.
pub fn hold(entry: &PlanEntry, rules: &Rules) -> Verdict {
    match faults(entry, rules) {
        Ok((faults, count)) => {
            let told = (entry.name.as_str(), entry.why.as_deref());
            verdict(PLAN_ENTRY, told, &faults, count)
        }
        Err(message) => Verdict::Broken(message),
    }
}

/// A field that differs: where, wanted, actual.
pub(super) type Fault = [String; 3];

fn faults(entry: &PlanEntry, rules: &Rules) -> Result<(Vec<Fault>, u64), String> {
    let mut model = model(&entry.model).map_err(|e| e.to_string())?;
    if let Some(format) = entry.format {
        model.quant = Quant::none(format);
    }
    let own = own_rules(entry, &model)?;
    let rules = own.as_ref().unwrap_or(rules);
    let dispatch = entry.dispatch.as_deref();
    let sent = dispatch.map(|dispatch| rules.clone().sent_by(dispatch));
    let rules = sent.as_ref().unwrap_or(rules);
    let pattern = match &entry.rules {
        PlanRules::Every => None,
        PlanRules::Named(pattern) => Some(pattern.as_str()),
        PlanRules::Own(_) | PlanRules::Spelled(..) => rules.iter().next().map(|r| r.id.as_str()),
    };
    let query = Query {
        rule: pattern,
        layer: Some(entry.layer),
        advice: entry.expect.aligned_tp.is_some() || entry.expect.usable_tp.is_some(),
        ..Query::of(Parallel {
            tp: entry.tp,
            ep: entry.ep,
        })
    };
    let mut found = survey(&model, rules, &query).map_err(|e| e.to_string())?;
    // Entries are about rules.
    found.plans.retain(|one| !one.uncovered);
    let mut faults = compare(&entry.expect, pattern.is_some(), &found);
    for one in &found.plans {
        let rule = rules.get(&one.plan.rule).map_err(|e| e.to_string())?;
        for fault in invariants(rule, &one.plan) {
            let place = format!("{} invariants", one.plan.rule);
            faults.push([place, "hold".to_owned(), fault]);
        }
    }
    Ok((faults, found.plans.len() as u64))
}

/// The one rule that the entry brings itself, if it does.
fn own_rules(entry: &PlanEntry, model: &Model) -> Result<Option<Rules>, String> {
    let rule = match &entry.rules {
        PlanRules::Every | PlanRules::Named(_) => return Ok(None),
        PlanRules::Own(rule) => Rule::clone(rule),
        PlanRules::Spelled(spec, refine) => {
            let weight = match entry.layer {
                LayerKind::Routed => model.quant.format,
                LayerKind::Shared => model.quant.shared_format,
                LayerKind::Dense => model.quant.dense_format,
                LayerKind::Draft => model.quant.draft_format.unwrap_or(model.quant.format),
            };
            let mut rule = spelled_rule(spec, weight).map_err(|e| e.to_string())?;
            rule.scale.refine = refine.unwrap_or(rule.scale.refine);
            rule.layers = vec![LayerKind::Routed, LayerKind::Shared, LayerKind::Dense];
            rule
        }
    };
    let set = Rules::of(vec![rule], &entry.name);
    set.map(Some).map_err(|e| e.to_string())
}

fn model(spec: &PlanModel) -> Result<Model, ModelError> {
    match spec {
        PlanModel::Named(name) => model::load(name),
        PlanModel::Sizes(sizes) => {
            let mut model = model::load(sizes.base.as_deref().unwrap_or("Qwen3-30B-A3B"))?;
            overlay(&mut model, sizes);
            Ok(model)
        }
    }
}

/// Lays the entry's own sizes over the base model.
fn overlay(model: &mut Model, sizes: &ModelSizes) {
    if let Some(hidden) = sizes.hidden {
        model.hidden = hidden;
        model.model_hidden = hidden;
    }
    model.intermediate = sizes.intermediate.unwrap_or(model.intermediate);
    model.experts = sizes.experts.unwrap_or(model.experts);
    let chosen = sizes.top_k.unwrap_or(model.top_k);
    model.top_k = chosen.min(model.experts.saturating_add(model.zero_experts));
    if let Some(gated) = sizes.gated.filter(|gated| *gated != model.gated()) {
        model.activation = if gated {
            Activation::Swiglu
        } else {
            Activation::Relu2
        };
    }
    model.activation = sizes.activation.unwrap_or(model.activation);
    if let Some(format) = sizes.format {
        model.quant = Quant::none(format);
    }
    model.quant.zero_points = sizes.zero_points.or(model.quant.zero_points);
    model.shared = sizes.shared.or(model.shared);
    model.dense = sizes.dense.or(model.dense);
}

fn compare(expect: &PlanExpect, named: bool, found: &Survey) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count = found.plans.len() as u64;
    match expect.rules {
        Some(wanted) if wanted != count => {
            faults.push(["rules".into(), wanted.to_string(), count.to_string()]);
        }
        // Without a pattern every rule that takes the format is held; there may be none.
        None if count == 0 && named => {
            faults.push(["rules".into(), "at least one".into(), "none".into()]);
        }
        _ => {}
    }
    for one in &found.plans {
        differences(&one.plan, expect, &mut faults);
    }
    let aligned = found.aligned.iter().map(|(rule, list)| (rule, list));
    degrees(
        "aligned_tp",
        expect.aligned_tp.as_ref(),
        aligned,
        &mut faults,
    );
    let usable = found
        .advice
        .rules
        .iter()
        .map(|one| (&one.rule, &one.aligned));
    degrees("usable_tp", expect.usable_tp.as_ref(), usable, &mut faults);
    faults
}

/// Holds every rule's list of degrees against the one that is wanted.
fn degrees<'s>(
    key: &str,
    wanted: Option<&Vec<u64>>,
    lists: impl ExactSizeIterator<Item = (&'s String, &'s Vec<u64>)>,
    faults: &mut Vec<Fault>,
) {
    let Some(wanted) = wanted else {
        return;
    };
    if lists.len() == 0 {
        faults.push([key.into(), "a list".into(), "none".into()]);
    }
    for (rule, list) in lists.filter(|(_, list)| *list != wanted) {
        let place = format!("{rule} {key}");
        faults.push([place, format!("{wanted:?}"), format!("{list:?}")]);
    }
}

/// A pass, or a finding of an entry's name and reason.
pub(super) fn verdict(
    property: &'static str,
    (name, why): (&str, Option<&str>),
    faults: &[Fault],
    count: u64,
) -> Verdict {
    let Some([place, wanted, actual]) = faults.first().cloned() else {
        return Verdict::Pass(Tier::Bytes);
    };
    let line = |[place, wanted, actual]: &Fault| format!("{place} wanted {wanted}, got {actual}");
    Verdict::Fail(Box::new(Finding {
        property,
        subject: "-".to_owned(),
        case: name.to_owned(),
        place,
        wanted,
        actual,
        bound: "equal integers".to_owned(),
        derivation: String::new(),
        differing: faults.len() as u64,
        total: count.max(faults.len() as u64),
        first: faults.iter().take(10).map(line).collect(),
        note: why.map(str::to_owned),
        many: false,
    }))
}

/// What is listed, the wanted lists by tensor, and where a tensor has its own.
type Lists<'a> = (
    &'static str,
    &'a BTreeMap<String, Vec<u64>>,
    fn(&TensorPlan) -> &[u64],
);

/// Every expected field that differs: where, wanted, actual.
fn differences(plan: &Plan, expect: &PlanExpect, faults: &mut Vec<Fault>) {
    let mut differ = |what: &str, wanted: String, actual: String| {
        if wanted != actual {
            faults.push([format!("{} {what}", plan.rule), wanted, actual]);
        }
    };
    if !expect.verdicts.is_empty() && !expect.verdicts.contains(&plan.fit) {
        let words: Vec<&str> = expect.verdicts.iter().map(|fit| fit.name()).collect();
        differ("verdict", words.join(" or "), plan.fit.name().to_owned());
    }
    let tensor = |name: &str| plan.tensors.iter().find(|t| t.name == name);
    let w2_cols = tensor("w2").and_then(|t| t.shape.last().copied());
    let numbers = [
        ("width", expect.width, Some(plan.width)),
        ("width_padded", expect.width_padded, Some(plan.width_padded)),
        (
            "width_computed",
            expect.width_computed,
            Some(plan.width_computed),
        ),
        ("hidden", expect.hidden, Some(plan.dims.h)),
        (
            "hidden_padded",
            expect.hidden_padded,
            Some(plan.hidden_padded),
        ),
        (
            "hidden_computed",
            expect.hidden_computed,
            Some(plan.hidden_computed),
        ),
        ("w13_rows", expect.w13_rows, Some(plan.w13_rows)),
        ("w2_cols", expect.w2_cols, w2_cols),
    ];
    let spelled = |number: Option<u64>| number.map_or("none".to_owned(), |n| n.to_string());
    for (what, wanted, actual) in numbers {
        if wanted.is_some() {
            differ(what, spelled(wanted), spelled(actual));
        }
    }
    if let Some(ranks) = &expect.ranks {
        let actual: Vec<(u64, u64)> = plan.ranks.iter().map(|r| (r.start, r.len)).collect();
        differ("ranks", format!("{ranks:?}"), format!("{actual:?}"));
    }
    // Percent with two decimals, as the plan prints it.
    let percent = format!("{:.2}", plan.overhead_millionths as f64 / 10_000.0);
    if let Some(wanted) = expect.overhead {
        differ("overhead", format!("{wanted:.2}"), percent);
    }
    let lists: [Lists<'_>; 2] = [
        ("shape", &expect.shapes, |t| &t.shape),
        ("logical extent", &expect.logical, |t| &t.logical),
    ];
    for (what, wanted, of) in lists {
        for (name, wanted) in wanted {
            let actual = tensor(name).map_or("no such tensor".into(), |t| format!("{:?}", of(t)));
            differ(&format!("{name} {what}"), format!("{wanted:?}"), actual);
        }
    }
    for (name, wanted) in &expect.bytes {
        let actual = tensor(name).map_or("no such tensor".into(), |t| t.bytes.to_string());
        differ(&format!("{name} bytes"), wanted.to_string(), actual);
    }
    if let Some(blocks) = &expect.blocks {
        let block = plan.w2_scale.map_or(1, |s| s.col_block_source.max(1));
        let actual: Vec<u64> = plan.ranks.iter().map(|r| r.start / block).collect();
        differ("blocks", format!("{blocks:?}"), format!("{actual:?}"));
    }
    for text in &expect.says {
        if !plan.violations.iter().any(|v| v.message.contains(text)) {
            differ("findings", text.clone(), "no finding says so".into());
        }
    }
    let has = |code: &String| plan.violations.iter().any(|v| v.code == code);
    for code in &expect.codes {
        if !has(code) {
            differ(code, "among the findings".into(), "not there".into());
        }
    }
    for code in &expect.no_codes {
        if has(code) {
            differ(code, "not there".into(), "among the findings".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(expect: &str) -> PlanEntry {
        let text = format!(
            "[suite]\nname = \"s\"\n[[plan]]\nname = \"p\"\nmodel = \"NemotronH-default\"\ntp = 8\nrule = \"sglang.flashinfer_trtllm.bf16\"\nexpect = {expect}\n"
        );
        let suite = crate::suite::parse(&text, "s.toml").unwrap_or_else(|e| panic!("{e}"));
        suite.plans[0].clone()
    }

    #[test]
    fn a_right_entry_passes_and_a_wrong_one_names_the_field() {
        assert_eq!(
            hold(&entry("{ width = 961 }"), Rules::builtin()),
            Verdict::Pass(Tier::Bytes)
        );
        let Verdict::Fail(finding) =
            hold(&entry("{ width = 960, no_codes = [] }"), Rules::builtin())
        else {
            panic!("must fail");
        };
        assert!(finding.place.ends_with("width"), "{}", finding.place);
        assert_eq!(
            (finding.wanted.as_str(), finding.actual.as_str()),
            ("960", "961")
        );
    }

    #[test]
    fn each_expectation_can_fail() {
        for right in [
            "{ width_padded = 1024, overhead = 6.56, w13_rows = 1024, w2_cols = 1024 }",
            "{ shapes = { w13 = [8, 1024, 4096] }, logical = { w2 = [8, 4096, 1024] } }",
            "{ bytes = { w2 = 67108864 }, blocks = [0, 1024, 2048, 3072, 4096, 5120, 6144, 7168] }",
        ] {
            assert_eq!(
                hold(&entry(right), Rules::builtin()),
                Verdict::Pass(Tier::Bytes),
                "{right}"
            );
        }
        for (wrong, field) in [
            ("{ overhead = 6.57 }", "overhead"),
            ("{ shapes = { w13 = [8, 1024, 4095] } }", "w13 shape"),
            ("{ shapes = { w3 = [1] } }", "w3 shape"),
            ("{ logical = { w2 = [1] } }", "w2 logical extent"),
            ("{ bytes = { w2 = 1 } }", "w2 bytes"),
            ("{ blocks = [0] }", "blocks"),
            ("{ aligned_tp = [2] }", "aligned_tp"),
            ("{ usable_tp = [61] }", "usable_tp"),
            ("{ says = [\"961 % 16\"] }", "findings"),
            ("{ codes = [\"PP105\"] }", "PP105"),
            ("{ rules = 2 }", "rules"),
        ] {
            let Verdict::Fail(finding) = hold(&entry(wrong), Rules::builtin()) else {
                panic!("{wrong} must fail");
            };
            assert!(finding.place.ends_with(field), "{wrong}: {}", finding.place);
        }
    }
}
