//! Writes what a long table of plans comes to, above it.
//!
//! It must not decide anything. Layer 10.

use super::advice::some;
use super::grid::grid;
use super::plan_human::{label, paragraph};
use super::table_human::coloured;
use super::words::{part, percent, plural};
use crate::plan::Fit;
use crate::rule::Status;
use crate::run::{Survey, Surveyed};
use std::io::{self, Write};

/// What a long table comes to: how many rules say what of each part, and the best of each stack
/// for the first.
pub(super) fn summary(
    survey: &Survey,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut parts: Vec<(String, Vec<&Surveyed>)> = Vec::new();
    for one in &survey.plans {
        let name = part(survey, &one.plan);
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, plans)) => plans.push(one),
            None => parts.push((name, vec![one])),
        }
    }
    // A draft layer that is planned as the routed one shares its line.
    let mut lines: Vec<(Vec<&str>, String)> = Vec::new();
    for (name, plans) in &parts {
        let text = counts(plans);
        match lines.iter_mut().find(|(_, known)| *known == text) {
            Some((names, _)) => names.push(name),
            None => lines.push((vec![name], text)),
        }
    }
    for (names, text) in lines {
        paragraph(&format!("{}: {text}", names.join(" and ")), width, out)?;
    }
    let Some((name, plans)) = parts.first() else {
        return Ok(());
    };
    if plans.iter().all(|one| one.uncovered) {
        return Ok(());
    }
    writeln!(out, "\nbest of each stack, {name} layer")?;
    let best = best_of_stacks(plans);
    let row = |one: &&Surveyed| {
        let plan = &one.plan;
        let cost = percent(plan.overhead_millionths);
        vec![
            format!("  {}", label(one)),
            plan.fit.name().to_owned(),
            cost,
        ]
    };
    let rows: Vec<Vec<String>> = best.iter().map(row).collect();
    let laid = grid(&["  rule", "verdict", "overhead"], &rows, 0, width);
    for (at, line) in laid {
        match at.and_then(|at| best.get(at)) {
            Some(one) => writeln!(out, "{}", coloured(&line, one.plan.fit))?,
            None => writeln!(out, "{line}")?,
        }
    }
    Ok(())
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

/// The best current rule of each stack: of equals the one that the stack takes by itself, then one
/// whose source leaves nothing open.
fn best_of_stacks<'s>(plans: &[&'s Surveyed]) -> Vec<&'s Surveyed> {
    let stack = |one: &Surveyed| one.plan.rule.split('.').next().map(str::to_owned);
    let key = |one: &Surveyed| {
        let plan = &one.plan;
        let open = !plan.unread.is_empty();
        (plan.fit, plan.overhead_millionths, !one.auto, open)
    };
    let mut best: Vec<&Surveyed> = Vec::new();
    let serves = |one: &&&Surveyed| {
        let emulates = one.plan.rule.split('.').nth(1) == Some("emulation");
        one.status == Status::Current && !one.uncovered && !emulates
    };
    for one in plans.iter().filter(serves) {
        match best.iter_mut().find(|known| stack(known) == stack(one)) {
            Some(known) if key(one) < key(known) => *known = one,
            Some(_) => {}
            None => best.push(one),
        }
    }
    best
}
