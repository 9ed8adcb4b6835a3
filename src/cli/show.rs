//! `padproof show`: a case's plan, a rule, or a model's facts.
//!
//! It must not derive anything. Layer 11.

use super::args::ShowArgs;
use super::environment::Environment;
use super::error::CliError;
use super::select::{model, rules};
use crate::case::{Case, Scheme};
use crate::model::Model;
use crate::plan::{PlanError, plan, plan_under};
use crate::report::tensors_human;
use crate::rule::{Granule, Rule, RuleError, Rules};
use crate::run::ExitCode;
use crate::terms::plain;
use std::io::{self, Write};

pub(super) fn show(
    args: &ShowArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let what = args.what.as_str();
    let loaded = rules(args.rules.as_deref())?;
    let rules: &Rules = &loaded;
    if what.contains('=') && !std::path::Path::new(what).exists() {
        let case: Case = what.parse()?;
        let plan = match &case.scheme {
            Scheme::Rule(id) => {
                let unknown = |e: RuleError| PlanError::UnknownRule {
                    sentence: e.to_string(),
                };
                plan_under(&case, rules.get(id).map_err(unknown)?)?
            }
            Scheme::Spelled(_) => plan(&case)?,
        };
        writeln!(out, "{case:#}")?;
        tensors_human(&plan, out)?;
    } else if let Ok(rule) = rules.get(what) {
        show_rule(rule, out)?;
    } else {
        let rule_like = what.matches('.').count() >= 2 && !std::path::Path::new(what).exists();
        if rule_like && !what.contains('/') {
            // Three dotted words are a rule's id: its own sentence names the nearest.
            rules.get(what)?;
        }
        show_model(&model(what, environment)?, out)?;
    }
    Ok(ExitCode::Passed)
}

fn line(out: &mut dyn Write, key: &str, value: impl std::fmt::Display) -> io::Result<()> {
    writeln!(out, "{key:<16} {}", plain(&value.to_string()))
}

fn granules(granules: &[Granule]) -> String {
    if granules.is_empty() {
        return "not padded".to_owned();
    }
    let word = |granule: &Granule| {
        let when = if granule.when == Default::default() {
            ""
        } else {
            " (conditional)"
        };
        format!("{} {:?}{when}", granule.align, granule.unit).to_lowercase()
    };
    granules.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn show_rule(rule: &Rule, out: &mut dyn Write) -> io::Result<()> {
    let formats: Vec<&str> = rule.formats.iter().map(|f| f.name()).collect();
    let layers: Vec<&str> = rule.layers.iter().map(|l| l.name()).collect();
    line(out, "rule", &rule.id)?;
    line(out, "stack", format!("{} {}", rule.stack, rule.version))?;
    line(out, "backend", &rule.backend)?;
    line(out, "source", &rule.source)?;
    line(out, "status", rule.status.name())?;
    for (key, bound) in [("since", &rule.since), ("until", &rule.until)] {
        if let Some(bound) = bound {
            line(out, key, bound.text())?;
        }
    }
    if let Some(wrong) = &rule.wrong {
        line(out, "known wrong", wrong)?;
    }
    line(out, "formats", formats.join(", "))?;
    line(out, "layers", layers.join(", "))?;
    line(out, "split", rule.split)?;
    line(out, "order", rule.order)?;
    line(out, "place", rule.place)?;
    line(out, "storage", rule.storage)?;
    line(out, "nibble", rule.nibble)?;
    line(out, "intermediate", granules(&rule.intermediate))?;
    line(out, "hidden", granules(&rule.hidden))?;
    line(out, "tokens", granules(&rule.tokens))?;
    for refusal in &rule.refuse {
        let verdict = format!("{:?}", refusal.verdict).to_lowercase();
        line(out, &verdict, &refusal.why)?;
    }
    for limit in &rule.limits {
        let text = format!("at least {}, else {}", limit.tokens_min, limit.why);
        line(out, "tokens of a batch", text)?;
    }
    for note in &rule.notes {
        line(out, "note", note)?;
    }
    Ok(())
}

fn show_model(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    line(out, "model", &model.name)?;
    line(
        out,
        "source",
        format!("{} ({})", model.source, model.grade.name()),
    )?;
    line(
        out,
        "architecture",
        format!("{} ({})", model.architecture, model.model_type),
    )?;
    line(out, "hidden", model.hidden)?;
    line(out, "model hidden", model.model_hidden)?;
    line(out, "intermediate", model.intermediate)?;
    line(
        out,
        "experts",
        format!("{}, {} chosen", model.experts, model.top_k),
    )?;
    for (key, width) in [("shared", model.shared), ("dense", model.dense)] {
        if let Some(width) = width {
            line(out, key, width)?;
        }
    }
    if model.mtp_layers > 0 {
        let what = if model.draft_experts {
            "with experts"
        } else {
            "without experts, or not known"
        };
        line(out, "draft layers", format!("{}, {what}", model.mtp_layers))?;
    }
    line(out, "activation", model.activation)?;
    let groups = if model.groups > 1 {
        format!(", {} of {} groups", model.keep, model.groups)
    } else {
        String::new()
    };
    line(
        out,
        "router",
        format!("{}{groups}, factor {}", model.route, model.factor),
    )?;
    line(out, "bias", model.bias)?;
    line(
        out,
        "format",
        format!("{} ({})", model.quant.format, model.quant.method),
    )?;
    line(
        out,
        "layers",
        format!("{} of {} with experts", model.moe_layers, model.layers),
    )?;
    for note in &model.notes {
        line(out, "note", note)?;
    }
    Ok(())
}
