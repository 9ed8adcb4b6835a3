//! Writes what a long table of plans comes to, above it: the best of each stack, and what to do.
//!
//! It must not decide anything. Layer 10.

use super::advice::{some, ways};
use super::grid::grid;
use super::plan_human::{label, paragraph};
use super::table_human::coloured;
use super::words::{part, percent, plural};
use crate::plan::Fit;
use crate::rule::Status;
use crate::run::{Survey, Surveyed};
use std::io::{self, Write};

/// A part of the model, and its plans.
type OfPart<'s> = (String, Vec<&'s Surveyed>);

/// What a long table comes to: the best of each stack for the first part, what to do, and how many
/// rules say what of each part.
pub(super) fn summary(
    survey: &Survey,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut parts: Vec<OfPart<'_>> = Vec::new();
    for one in &survey.plans {
        let name = part(survey, &one.plan);
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, plans)) => plans.push(one),
            None => parts.push((name, vec![one])),
        }
    }
    let best = best_of_stacks(&parts);
    if let (Some((name, _)), false) = (parts.first(), best.is_empty()) {
        let row = |one: &&Surveyed| {
            let plan = &one.plan;
            let mut verdict = vec![plan.fit.name().to_owned()];
            verdict.extend(beside(&parts, one).into_iter().map(|(_, text)| text));
            let cost = percent(plan.overhead_millionths);
            let (verdict, arch) = (verdict.join(", "), plan.arch.join(", "));
            vec![format!("  {}", label(one)), verdict, cost, arch]
        };
        let rows: Vec<Vec<String>> = best.iter().map(row).collect();
        let head = format!("best of each stack, {name} layer");
        for (at, line) in grid(&[&head, "verdict", "overhead", "for"], &rows, 2, width) {
            match at.and_then(|at| best.get(at)) {
                Some(one) => writeln!(out, "{}", coloured(&line, overall(&parts, one)))?,
                None => writeln!(out, "{line}")?,
            }
        }
    }
    if let Some(text) = to_do(survey, &parts, &best) {
        paragraph(&text, width, out)?;
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
    Ok(())
}

/// What to do, from the best rule of all stacks.
fn to_do(survey: &Survey, parts: &[OfPart<'_>], best: &[&Surveyed]) -> Option<String> {
    let cost = |one: &&&Surveyed| (overall(parts, one), one.plan.overhead_millionths);
    let one = best.iter().min_by_key(cost)?;
    let (rule, fit) = (&one.plan.rule, overall(parts, one));
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
            let pads = percent(one.plan.overhead_millionths);
            format!("to do: {rule} ({}, {pads} overhead){other}", fit.name())
        }
        Fit::Unknown => format!("to do: {rule} is not known to run it{other}"),
        _ => match free {
            Some((_, way)) => format!("to do: no stack runs it so; instead of {rule}, {way}"),
            None => "to do: no stack runs it so".to_owned(),
        },
    })
}

/// The stack of a rule.
fn stack(one: &Surveyed) -> &str {
    one.plan.rule.split('.').next().unwrap_or_default()
}

/// The other parts that a rule's stack does not run, as far as is known, with a word on each.
fn beside(parts: &[OfPart<'_>], one: &Surveyed) -> Vec<(Fit, String)> {
    let others = parts.iter().skip(1);
    let fit = |plans: &[&Surveyed]| {
        let own = plans.iter().find(|p| p.plan.rule == one.plan.rule);
        let same = plans.iter().filter(|p| serves(p) || p.uncovered);
        let stack = same.filter(|p| stack(p) == stack(one)).map(|p| p.plan.fit);
        own.map(|p| p.plan.fit).or(stack.min())
    };
    others
        .filter_map(|(name, plans)| Some((name, fit(plans)?)))
        .filter(|(_, fit)| *fit > Fit::Slow)
        .map(|(name, fit)| (fit, format!("{name} {}", fit.name())))
        .collect()
}

/// The worst verdict of a rule and of the parts beside its own.
fn overall(parts: &[OfPart<'_>], one: &Surveyed) -> Fit {
    let others = beside(parts, one).into_iter().map(|(fit, _)| fit);
    others.fold(one.plan.fit, Fit::max)
}

/// Whether a stack serves models with it: kernels are launched by stacks, and an emulation shows what
/// a format computes.
fn serves(one: &Surveyed) -> bool {
    let emulates = one.plan.rule.split('.').nth(1) == Some("emulation");
    one.status == Status::Current && !one.uncovered && !one.plan.kernel && !emulates
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

/// The best current rule of each stack for the first part: of equals the one that the stack takes by
/// itself, then one whose source leaves nothing open.
fn best_of_stacks<'s>(parts: &[OfPart<'s>]) -> Vec<&'s Surveyed> {
    let key = |one: &Surveyed| {
        let plan = &one.plan;
        let open = !plan.unread.is_empty();
        let worst = overall(parts, one);
        (worst, plan.overhead_millionths, !one.auto, open)
    };
    let mut best: Vec<&Surveyed> = Vec::new();
    let first = parts.first().into_iter().flat_map(|(_, plans)| plans);
    for one in first.copied().filter(|one| serves(one)) {
        match best.iter_mut().find(|known| stack(known) == stack(one)) {
            Some(known) if key(one) < key(known) => *known = one,
            Some(_) => {}
            None => best.push(one),
        }
    }
    best
}
