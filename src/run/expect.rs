//! Holds plan entries to what they expect.
//!
//! It must not decide what fits. Layer 9.

use super::{Query, Survey, survey};
use crate::model::{self, Model, ModelError, Quant};
use crate::plan::{Parallel, Plan};
use crate::property::{Finding, Verdict};
use crate::rule::Rules;
use crate::suite::{ModelSizes, PlanEntry, PlanExpect, PlanModel};
use crate::terms::Activation;

/// The name under which plan entries are reported, as a property is.
pub const PLAN_ENTRY: &str = "plan-entry";

/// Plans the entry's model and compares every plan with what is expected.
pub(super) fn hold(entry: &PlanEntry) -> Verdict {
    let model = match model(&entry.model) {
        Ok(model) => model,
        Err(error) => return Verdict::Broken(error.to_string()),
    };
    let query = Query {
        parallel: Parallel {
            tp: entry.tp,
            ep: entry.ep,
        },
        tokens: 1,
        rule: entry.rule.as_deref(),
        backend: None,
        layer: Some(entry.layer),
        env: &[],
        advice: false,
    };
    match survey(&model, Rules::builtin(), &query) {
        Ok(found) => compare(entry, &found),
        Err(error) => Verdict::Broken(error.to_string()),
    }
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
    model.top_k = sizes.top_k.unwrap_or(model.top_k).min(model.experts);
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
    model.shared = sizes.shared.or(model.shared);
    model.dense = sizes.dense.or(model.dense);
}

fn compare(entry: &PlanEntry, found: &Survey) -> Verdict {
    let mut faults = Vec::new();
    let count = found.plans.len() as u64;
    match entry.expect.rules {
        Some(wanted) if wanted != count => {
            faults.push(["rules".into(), wanted.to_string(), count.to_string()]);
        }
        // Without a pattern every rule that takes the format is held; there may be none.
        None if count == 0 && entry.rule.is_some() => {
            faults.push(["rules".into(), "at least one".into(), "none".into()]);
        }
        _ => {}
    }
    for one in &found.plans {
        differences(&one.plan, &entry.expect, &mut faults);
    }
    let Some([place, wanted, actual]) = faults.first().cloned() else {
        return Verdict::Pass;
    };
    let line =
        |[place, wanted, actual]: &[String; 3]| format!("{place} wanted {wanted}, got {actual}");
    Verdict::Fail(Box::new(Finding {
        property: PLAN_ENTRY,
        subject: "-".to_owned(),
        case: entry.name.clone(),
        place,
        wanted,
        actual,
        bound: "equal integers".to_owned(),
        derivation: String::new(),
        differing: faults.len() as u64,
        total: count.max(1),
        first: faults.iter().take(10).map(line).collect(),
        note: entry.why.clone(),
    }))
}

/// Every expected field that differs: where, wanted, actual.
fn differences(plan: &Plan, expect: &PlanExpect, faults: &mut Vec<[String; 3]>) {
    let mut differ = |what: &str, wanted: String, actual: String| {
        if wanted != actual {
            faults.push([format!("{} {what}", plan.rule), wanted, actual]);
        }
    };
    if !expect.verdicts.is_empty() && !expect.verdicts.contains(&plan.fit) {
        let words: Vec<&str> = expect.verdicts.iter().map(|fit| fit.name()).collect();
        differ("verdict", words.join(" or "), plan.fit.name().to_owned());
    }
    let w2_cols = plan
        .tensors
        .iter()
        .find(|t| t.name == "w2")
        .and_then(|t| t.shape.last().copied());
    let numbers = [
        ("width", expect.width, Some(plan.width)),
        ("width_padded", expect.width_padded, Some(plan.width_padded)),
        ("hidden", expect.hidden, Some(plan.dims.h)),
        (
            "hidden_padded",
            expect.hidden_padded,
            Some(plan.hidden_padded),
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
        assert_eq!(hold(&entry("{ width = 961 }")), Verdict::Pass);
        let Verdict::Fail(finding) = hold(&entry("{ width = 960, no_codes = [] }")) else {
            panic!("must fail");
        };
        assert!(finding.place.ends_with("width"), "{}", finding.place);
        assert_eq!(
            (finding.wanted.as_str(), finding.actual.as_str()),
            ("960", "961")
        );
    }
}
