//! Writes a survey as Markdown, ready to paste into an issue.
//!
//! It must not decide anything. Layer 10.

use super::advice;
use super::plan_human::not_judged;
use super::shares::shares;
use super::words::{asked, facts, part, percent};
use crate::run::Survey;
use crate::terms::plain;
use std::io::{self, Write};

/// Writes the survey as Markdown: a table of plans, then every finding as a list.
///
/// # Errors
/// Those of the stream.
pub fn plan_markdown(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    let model = &survey.model;
    let ranks = asked(survey).into_iter();
    let ranks: Vec<String> = ranks.map(|(key, value)| format!("{key}={value}")).collect();
    writeln!(
        out,
        "### {} at {}\n\n{}\n",
        escaped(&model.name),
        ranks.join(", "),
        facts(model).join(", ")
    )?;
    writeln!(
        out,
        "| rule | layer | verdict | width | width padded | hidden | hidden padded | overhead |"
    )?;
    writeln!(
        out,
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for one in &survey.plans {
        let plan = &one.plan;
        if one.uncovered {
            let (layer, fit) = (part(survey, plan), plan.fit.name());
            let (width, hidden) = (plan.width, plan.dims.h);
            writeln!(
                out,
                "| `{}`, no rule | {layer} | {fit} | {width} | | {hidden} | | |",
                plan.rule
            )?;
            continue;
        }
        let shares = shares(plan).map_or(String::new(), |shares| format!(" ({shares})"));
        writeln!(
            out,
            "| `{}`{} | {} | {} | {} | {}{shares} | {} | {} | {} |",
            plan.rule,
            if one.dispatch { " (dispatch)" } else { "" },
            part(survey, plan),
            plan.fit.name(),
            plan.width,
            plan.width_padded,
            plan.dims.h,
            plan.hidden_padded,
            percent(plan.overhead_millionths)
        )?;
    }
    if let Some(text) = not_judged(survey) {
        writeln!(out, "\n{}", escaped(&text))?;
    }
    let found = survey
        .plans
        .iter()
        .filter(|one| !one.plan.violations.is_empty());
    for one in found {
        let layer = part(survey, &one.plan);
        writeln!(out, "\n`{}`, {layer} layer:\n", one.plan.rule)?;
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
    if !survey.advice.rules.is_empty() {
        let open = advice::open_degrees(survey);
        let told = match open.is_empty() {
            true => advice::degrees(&advice::common(survey)),
            false => open.join("; "),
        };
        writeln!(
            out,
            "\nTP without padding under every current rule ({}): {}",
            advice::held_against(survey).join("; "),
            escaped(&told)
        )?;
    }
    for one in survey
        .advice
        .rules
        .iter()
        .filter(|one| !one.instead.is_empty())
    {
        writeln!(
            out,
            "\nInstead of `{}` ({}):\n",
            advice::named(survey, one),
            advice::told(one)
        )?;
        for way in advice::ways(one) {
            writeln!(out, "- {}", escaped(&way))?;
        }
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
