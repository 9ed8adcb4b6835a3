//! Writes what a long table of plans comes to, above it: the best of each stack, and what to do.
//!
//! It must not decide anything; `run` says what is best. Layer 10.

use super::advice::{some, ways};
use super::grid::{grid, paragraph};
use super::table_human::coloured;
use super::words::{self, label, listed, part, percent, plural};
use crate::plan::Fit;
use crate::run::{Best, Instead, Survey, Surveyed};
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
            let cost = percent(plan.overhead_millionths);
            let (verdict, arch) = (verdict(survey, one), plan.arch.join(", "));
            vec![format!("  {}", label(one.plan)), verdict, cost, arch]
        };
        let rows: Vec<Vec<String>> = best.iter().map(row).collect();
        let head = match parts.len() {
            1 => "best of each stack".to_owned(),
            _ => format!("best of each stack, {}", name(first)),
        };
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
        paragraph(&format!("{}: {text}", listed(&names)), width, out)?;
    }
    Ok(())
}

/// The verdict of the first part and of those that do not run beside it, in as few words as a narrow
/// terminal has room for: `unrepresentable, draft too, rest unknown`.
fn verdict(survey: &Survey, one: &Best<'_>) -> String {
    let fit = one.plan.plan.fit;
    let named = |like: Fit| -> Vec<String> {
        let parts = one.beside.iter().filter(|part| part.fit == like);
        parts.map(|other| part(survey, other.plan)).collect()
    };
    let mut words = vec![fit.name().to_owned()];
    let same = named(fit);
    if !same.is_empty() {
        words.push(format!("{} too", listed(&same)));
    }
    let others = Fit::ALL.iter().filter(|other| **other != fit);
    let mut others: Vec<(Vec<String>, Fit)> = others.map(|other| (named(*other), *other)).collect();
    others.retain(|(names, _)| !names.is_empty());
    let all = one.beside.len() + 1 == survey.parts().len();
    match others.as_slice() {
        [(names, fit)] if all && names.len() > 1 => words.push(format!("rest {}", fit.name())),
        some => {
            let told = some.iter();
            words.extend(told.map(|(names, fit)| format!("{} {}", listed(names), fit.name())));
        }
    }
    words.join(", ")
}

/// What to do, from the best rule of all stacks.
fn to_do(survey: &Survey, best: &[Best<'_>]) -> Option<String> {
    let one = best.iter().min_by_key(|one| one.rank())?;
    let (plan, fit) = (&one.plan.plan, one.fit());
    let rule = &plan.rule;
    let advised = survey.advice.rules.iter().find(|a| a.rule == *rule);
    let lines = advised.map_or_else(Vec::new, |advised| {
        let free = |way: &Instead| way.verdict == Fit::Fits && way.still.is_empty();
        let fits = advised.instead.iter().map(free);
        fits.zip(ways(advised)).collect()
    });
    let free = lines.iter().find(|(fits, _)| *fits).or(lines.first());
    let blocked = &survey.advice.blocked;
    if !blocked.is_empty() {
        let way = free.map_or(String::new(), |(_, way)| format!(": {rule}, {way}"));
        return Some(format!(
            "to do: another tp, since {} does not divide {}{way}",
            survey.parallel.tp,
            listed(blocked)
        ));
    }
    let other = free.map_or(String::new(), |(_, way)| format!("; or {way}"));
    Some(match fit {
        Fit::Fits => format!("to do: nothing under {rule}"),
        Fit::Padded | Fit::Slow => {
            let pads = percent(plan.overhead_millionths);
            format!("to do: {rule} ({}, {pads} overhead){other}", fit.name())
        }
        Fit::Unknown if plan.fit < Fit::Unknown => {
            let pads = match plan.fit {
                Fit::Fits => "fits".to_owned(),
                fit => format!(
                    "{}, {} overhead",
                    fit.name(),
                    percent(plan.overhead_millionths)
                ),
            };
            format!(
                "to do: {rule} for the {} layer ({pads}); {}{other}",
                part(survey, plan),
                open(survey, one)
            )
        }
        Fit::Unknown => format!("to do: {rule} is not known to run it{other}"),
        _ => match free {
            Some((_, way)) => format!("to do: no stack runs it so; instead of {rule}, {way}"),
            None => "to do: no stack runs it so".to_owned(),
        },
    })
}

/// What is open of the parts beside a rule: `of its stack nothing was read for the shared layer`.
fn open(survey: &Survey, one: &Best<'_>) -> String {
    let named = |read: bool| {
        let these = one.beside.iter().filter(|part| part.read == read);
        let names: Vec<String> = these.map(|other| part(survey, other.plan)).collect();
        (!names.is_empty()).then(|| format!("the {}", words::layers(&names)))
    };
    let unread = named(false).map(|parts| format!("of its stack nothing was read for {parts}"));
    let unsure = named(true).map(|parts| format!("what its stack does with {parts} is not known"));
    let both: Vec<String> = unread.into_iter().chain(unsure).collect();
    both.join("; ")
}

/// `of 45 rules, 18 fits, 19 padded (4.49% to 13.78%), 8 refused`.
fn counts(plans: &[&Surveyed]) -> String {
    // What only sends tokens says nothing of the experts.
    let plans = || plans.iter().filter(|one| !one.dispatch);
    let count = |fit: &Fit| {
        let these = || plans().filter(|one| one.plan.fit == *fit && !one.uncovered);
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
        let rules = plans().filter(|one| !one.uncovered).count();
        format!("of {}, {}", plural(rules as u64, "rule"), words.join(", "))
    });
    let open = plans().filter(|one| one.uncovered);
    let open: Vec<String> = open.map(|one| one.plan.rule.clone()).collect();
    let open = (!open.is_empty()).then(|| format!("unknown for {}, no rule", some(&open)));
    let both: Vec<String> = judged.into_iter().chain(open).collect();
    both.join("; ")
}
