//! Writes what a long table of plans comes to, above it: the best of each stack, and what to do.
//!
//! It must not decide anything; `run` says what is best. Layer 10.

use super::advice::{some, ways};
use super::grid::grid;
use super::plan_human::{label, paragraph};
use super::table_human::coloured;
use super::words::{part, percent, plural};
use crate::plan::Fit;
use crate::run::{Best, Survey, Surveyed};
use std::io::{self, Write};

/// What a long table comes to: the best of each stack for the first part, what to do, and how many
/// rules say what of each part.
pub(super) fn summary(
    survey: &Survey,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let parts = survey.parts();
    let name = |plans: &[&Surveyed]| part(survey, &plans[0].plan);
    let best = survey.best_of_stacks();
    if let (Some(first), false) = (parts.first(), best.is_empty()) {
        let row = |one: &Best<'_>| {
            let plan = &one.plan.plan;
            let beside = one.beside.iter();
            let beside =
                beside.map(|(other, fit)| format!("{} {}", part(survey, other), fit.name()));
            let verdict: Vec<String> = std::iter::once(plan.fit.name().to_owned())
                .chain(beside)
                .collect();
            let cost = percent(plan.overhead_millionths);
            let (verdict, arch) = (verdict.join(", "), plan.arch.join(", "));
            vec![format!("  {}", label(one.plan)), verdict, cost, arch]
        };
        let rows: Vec<Vec<String>> = best.iter().map(row).collect();
        let head = format!("best of each stack, {} layer", name(first));
        for (at, line) in grid(&[&head, "verdict", "overhead", "for"], &rows, 2, width) {
            match at.and_then(|at| best.get(at)) {
                Some(one) => writeln!(out, "{}", coloured(&line, one.fit()))?,
                None => writeln!(out, "{line}")?,
            }
        }
    }
    if let Some(text) = to_do(survey, &best) {
        paragraph(&text, width, out)?;
    }
    // A draft layer that is planned as the routed one shares its line.
    let mut lines: Vec<(Vec<String>, String)> = Vec::new();
    for plans in &parts {
        let text = counts(plans);
        match lines.iter_mut().find(|(_, known)| *known == text) {
            Some((names, _)) => names.push(name(plans)),
            None => lines.push((vec![name(plans)], text)),
        }
    }
    for (names, text) in lines {
        paragraph(&format!("{}: {text}", names.join(" and ")), width, out)?;
    }
    Ok(())
}

/// What to do, from the best rule of all stacks.
fn to_do(survey: &Survey, best: &[Best<'_>]) -> Option<String> {
    let cost = |one: &&Best<'_>| (one.fit(), one.plan.plan.overhead_millionths);
    let one = best.iter().min_by_key(cost)?;
    let (plan, fit) = (&one.plan.plan, one.fit());
    let rule = &plan.rule;
    let advised = survey.advice.rules.iter().find(|a| a.rule == *rule);
    let lines = advised.map_or_else(Vec::new, |advised| {
        let fits = advised.instead.iter().map(|way| way.verdict == Fit::Fits);
        fits.zip(ways(advised)).collect()
    });
    let free = lines.iter().find(|(fits, _)| *fits).or(lines.first());
    let other = free.map_or(String::new(), |(_, way)| format!("; or {way}"));
    Some(match fit {
        Fit::Fits => format!("to do: nothing under {rule}"),
        Fit::Padded | Fit::Slow => {
            let pads = percent(plan.overhead_millionths);
            format!("to do: {rule} ({}, {pads} overhead){other}", fit.name())
        }
        Fit::Unknown => format!("to do: {rule} is not known to run it{other}"),
        _ => match free {
            Some((_, way)) => format!("to do: no stack runs it so; instead of {rule}, {way}"),
            None => "to do: no stack runs it so".to_owned(),
        },
    })
}

/// `of 45 rules, 18 fits, 19 padded (4.49% to 13.78%), 8 refused`.
fn counts(plans: &[&Surveyed]) -> String {
    let count = |fit: &Fit| {
        let these = || {
            plans
                .iter()
                .filter(|one| one.plan.fit == *fit && !one.uncovered)
        };
        let number = these().count();
        let costs = || these().map(|one| one.plan.overhead_millionths);
        let costs = match (fit, costs().min(), costs().max()) {
            (Fit::Padded, Some(least), Some(most)) if least < most => {
                format!(" ({} to {})", percent(least), percent(most))
            }
            (Fit::Padded, Some(least), _) => format!(" ({})", percent(least)),
            _ => String::new(),
        };
        (number > 0).then(|| format!("{number} {}{costs}", fit.name()))
    };
    let words: Vec<String> = Fit::ALL.iter().rev().filter_map(count).collect();
    let judged = (!words.is_empty()).then(|| {
        let rules = plans.iter().filter(|one| !one.uncovered).count();
        format!("of {}, {}", plural(rules as u64, "rule"), words.join(", "))
    });
    let open = plans.iter().filter(|one| one.uncovered);
    let open: Vec<String> = open.map(|one| one.plan.rule.clone()).collect();
    let open = (!open.is_empty()).then(|| format!("unknown for {}, no rule", some(&open)));
    let both: Vec<String> = judged.into_iter().chain(open).collect();
    both.join("; ")
}
