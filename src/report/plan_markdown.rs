//! Writes a survey as Markdown, ready to paste into an issue.
//!
//! It must not decide anything. Layer 10.

use super::words::{percent, plain};
use crate::run::Survey;
use std::io::{self, Write};

/// Writes the survey as Markdown: a table of plans, then every finding as a list.
///
/// # Errors
/// Those of the stream.
pub fn plan_markdown(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    let model = &survey.model;
    writeln!(
        out,
        "### {} at tp={}, ep={}\n\nhidden {}, intermediate {}, experts {}, top-k {}, {}, {}\n",
        escaped(&model.name),
        survey.parallel.tp,
        survey.parallel.ep,
        model.hidden,
        model.intermediate,
        model.experts,
        model.top_k,
        model.activation,
        model.quant.format
    )?;
    writeln!(
        out,
        "| rule | layer | verdict | width | padded | hidden | padded | overhead |"
    )?;
    writeln!(
        out,
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for one in &survey.plans {
        let plan = &one.plan;
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            plan.rule,
            plan.layer,
            plan.fit.name(),
            plan.width,
            plan.width_padded,
            plan.dims.h,
            plan.hidden_padded,
            percent(plan.overhead_millionths)
        )?;
    }
    let found = survey
        .plans
        .iter()
        .filter(|one| !one.plan.violations.is_empty());
    for one in found {
        writeln!(out, "\n`{}`, {} layer:\n", one.plan.rule, one.plan.layer)?;
        for violation in &one.plan.violations {
            writeln!(
                out,
                "- {} {}: {}",
                violation.code,
                violation.axis,
                escaped(&violation.message)
            )?;
        }
    }
    if !survey.aligned.is_empty() {
        let all: Vec<String> = survey.aligned_by_all().iter().map(u64::to_string).collect();
        let degrees = if all.is_empty() {
            "none up to 64".to_owned()
        } else {
            all.join(", ")
        };
        writeln!(
            out,
            "\nTP without padding under every current rule: {degrees}"
        )?;
    }
    Ok(())
}

/// Text without the characters that Markdown would read.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in plain(text).chars() {
        if matches!(c, '|' | '*' | '_' | '<' | '>' | '`' | '[' | ']' | '\\') {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}
