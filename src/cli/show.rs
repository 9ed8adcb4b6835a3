//! `padproof show`: a case's plan, a rule, or a model's facts.
//!
//! It must not derive anything. Layer 11.

use super::args::ShowArgs;
use super::environment::Environment;
use super::error::CliError;
use super::select::{models, rules};
use crate::case::{Case, Scheme};
use crate::model::{Model, ModelError};
use crate::plan::{PlanError, plan, plan_under};
use crate::report::{CITED, tensors_human};
use crate::rule::{Condition, Finer, Granule, Rule, RuleError, Rules, Sizes, Valid};
use crate::run::ExitCode;
use crate::terms::{Activation, plain};
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
        let found = models(what, environment);
        let dotted = what.matches('.').count() >= 2 && !what.contains('/');
        if dotted && matches!(found, Err(CliError::Model(ModelError::NoModel { .. }))) {
            // Three dotted words are a rule's id: its own sentence names the nearest.
            rules.get(what)?;
        }
        for (at, model) in found?.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            show_model(model, out)?;
        }
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
    let text = |granule: &Granule| {
        let mut text = match granule.next.as_slice() {
            [] => format!("{} {}", granule.align, word(&granule.unit)),
            sizes => format!("next of {sizes:?}"),
        };
        if granule.group {
            text.push_str(", whole groups");
        }
        if granule.when != Condition::default() {
            text.push_str(&format!(" when {}", conditions(&granule.when)));
        }
        text
    };
    granules
        .iter()
        .map(text)
        .collect::<Vec<_>>()
        .join("; else ")
}

/// The word of an enumeration's value, as rule files spell it.
fn word(value: &impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{value:?}").chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// A condition in the words of a rule file.
fn conditions(when: &Condition) -> String {
    let list = |key: &str, words: Vec<String>| {
        (!words.is_empty()).then(|| format!("{key} is {}", words.join(" or ")))
    };
    let size = |key: &str, how: &str, n: Option<u64>| n.map(|n| format!("{key} {how} {n}"));
    let flag =
        |key: &str, on: Option<bool>| on.map(|on| format!("{}{key}", if on { "" } else { "not " }));
    let texts = |words: &[Activation]| words.iter().map(ToString::to_string).collect();
    let all = [
        flag("gated", when.gated),
        list("activation", texts(&when.activations)),
        list("activation not", texts(&when.activations_not)),
        list(
            "format",
            when.formats.iter().map(ToString::to_string).collect(),
        ),
        flag("bias", when.bias),
        flag("sharded", when.sharded),
        flag("uneven", when.uneven),
        flag("spread", when.spread),
        size("width", ">=", when.width_min),
        size("width", "<=", when.width_max),
        size("width", "no multiple of", when.width_not_multiple),
        size("hidden", ">=", when.hidden_min),
        size("hidden", "<=", when.hidden_max),
        size("hidden", "no multiple of", when.hidden_not_multiple),
        when.env.as_ref().map(|name| format!("{name} is set")),
        (when.env_not.as_ref()).map(|name| format!("{name} is not set")),
        flag("one scale per token", when.per_token),
        list("arch", when.arch.clone()),
        when.option.clone(),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    match all.is_empty() {
        true => "always".to_owned(),
        false => all.join(", "),
    }
}

fn fills(rule: &Rule) -> String {
    let fill = &rule.fill;
    format!(
        "weight {}, scale {}, bias {}, activation {}",
        word(&fill.weight),
        word(&fill.scale),
        word(&fill.bias),
        word(&fill.activation)
    )
}

fn scales(rule: &Rule) -> String {
    let scale = &rule.scale;
    let mut text = format!("counted by {}", word(&scale.count));
    if scale.refine {
        text.push_str(match scale.finer {
            Finer::Cut => ", repeated on a finer grid where that helps",
            Finer::Gcd => ", repeated on blocks of gcd(block, width, hidden) where that is finer",
            Finer::Halved => ", repeated on groups halved until they divide the width",
        });
    }
    if scale.columns > 0 {
        text.push_str(&format!(", columns to {}", scale.columns));
    }
    text
}

fn told(valid: &Valid) -> String {
    let unit = |axis: &str, unit: Option<u64>| unit.map(|unit| format!("{axis} by {unit}"));
    let units = [
        unit("intermediate", valid.intermediate),
        unit("hidden", valid.hidden),
        unit("intermediate of w2", valid.w2_intermediate),
        unit("hidden of w2", valid.w2_hidden),
    ];
    let units: Vec<String> = units.into_iter().flatten().collect();
    match units.is_empty() {
        true => "nothing".to_owned(),
        false => format!("{} ({})", units.join(", "), word(&valid.rounding)),
    }
}

/// Where citations are explained, under a source that has some.
fn cited(source: &str, out: &mut dyn Write) -> io::Result<()> {
    match source.contains("facts/") {
        true => line(out, "", CITED),
        false => Ok(()),
    }
}

fn show_rule(rule: &Rule, out: &mut dyn Write) -> io::Result<()> {
    let formats: Vec<&str> = rule.formats.iter().map(|f| f.name()).collect();
    let layers: Vec<&str> = rule.layers.iter().map(|l| l.name()).collect();
    line(out, "rule", &rule.id)?;
    line(out, "stack", format!("{} {}", rule.stack, rule.version))?;
    line(out, "backend", &rule.backend)?;
    line(out, "source", &rule.source)?;
    cited(&rule.source, out)?;
    line(out, "grade", word(&rule.grade))?;
    line(out, "status", rule.status.name())?;
    if !rule.arch.is_empty() {
        line(out, "arch", rule.arch.join(", "))?;
    }
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
    if !rule.methods.is_empty() {
        line(out, "methods", rule.methods.join(", "))?;
    }
    if rule.when != Condition::default() {
        line(out, "when", conditions(&rule.when))?;
    }
    if rule.dispatch {
        let how = format!(
            "sends tokens; with the GEMM of a rule: plan --dispatch {}",
            rule.backend
        );
        line(out, "dispatch", how)?;
    }
    line(out, "timing", word(&rule.timing))?;
    let own = match rule.kernel {
        true => " (a kernel loads nothing: the share that a caller would give it)",
        false => "",
    };
    line(out, "split", format!("{}{own}", rule.split))?;
    for loader in &rule.loaders {
        let when = conditions(&loader.when);
        line(out, "split", format!("{} when {when}", loader.split))?;
    }
    line(out, "order", rule.order)?;
    line(out, "place", rule.place)?;
    line(out, "storage", rule.storage)?;
    line(out, "nibble", rule.nibble)?;
    if !rule.unread.is_empty() {
        let what: Vec<&str> = rule.unread.iter().map(|one| one.meaning()).collect();
        line(
            out,
            "unknown",
            format!("{}: its source does not say", what.join(", ")),
        )?;
    }
    line(out, "intermediate", granules(&rule.intermediate))?;
    line(out, "hidden", granules(&rule.hidden))?;
    line(out, "tokens", granules(&rule.tokens))?;
    for [intermediate, hidden] in &rule.cheapest {
        let pair = format!("intermediate {intermediate}, hidden {hidden}, if it pads least");
        line(out, "cheapest", pair)?;
    }
    line(out, "pads", fills(rule))?;
    line(out, "scales", scales(rule))?;
    if rule.zero_points {
        line(out, "zero points", "taken")?;
    }
    if rule.sizes != Sizes::Consistent {
        line(out, "sizes", word(&rule.sizes))?;
    }
    if let Some(stride) = &rule.stride {
        let more = format!(
            "{} elements and {} bytes more",
            stride.elements, stride.bytes
        );
        line(out, "stride", format!("{more}, when {} is set", stride.env))?;
    }
    for valid in &rule.valid {
        let when = conditions(&valid.when);
        line(
            out,
            "kernel is told",
            format!("when {when}: {}", told(valid)),
        )?;
    }
    if let Some(share) = &rule.w2_bias {
        line(out, "w2 bias", word(share))?;
    }
    for refusal in &rule.refuse {
        let when = conditions(&refusal.when);
        line(
            out,
            &word(&refusal.verdict),
            format!("when {when}: {}", refusal.why),
        )?;
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
    cited(&model.source, out)?;
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
    let identity = match model.zero_experts {
        0 => String::new(),
        zero => format!(", {zero} identity experts behind the others"),
    };
    line(
        out,
        "router",
        format!("{}{groups}{identity}, factor {}", model.route, model.factor),
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
