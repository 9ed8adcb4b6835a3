//! Writes a survey for people: a headline, one row per rule and layer, every finding, advice.
//!
//! It must not decide anything. Layer 10.

use super::advice;
use super::grid::{grid, sentence};
use super::shares::{self, change};
use super::style::{fit_word, lines, table};
use super::table_human::coloured;
use super::words::{facts, part, percent, plural};
use crate::model::Model;
use crate::plan::{Fit, Plan, Unit, Violation};
use crate::rule::Status;
use crate::run::{Survey, Surveyed};
use crate::terms::{LayerKind, plain};
use std::io::{self, Write};

/// Writes the survey as text no wider than `width` where cells and words allow; verdicts are
/// coloured.
///
/// # Errors
/// Those of the stream.
pub fn plan_human(survey: &Survey, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    headline(&survey.model, out)?;
    let replicas = match survey.dp {
        1 => String::new(),
        dp => format!("  dp {dp}"),
    };
    let (tp, ep) = (survey.parallel.tp, survey.parallel.ep);
    writeln!(out, "tp {tp}  ep {ep}{replicas}")?;
    let blocked = &survey.advice.blocked;
    if !blocked.is_empty() {
        let parts = blocked.join(", ");
        let note = format!("note: tp {tp} does not divide {parts}: verdicts are of experts alone");
        writeln!(out, "{note}")?;
    }
    writeln!(out)?;
    if survey.plans.is_empty() {
        return match not_judged(survey) {
            Some(text) => writeln!(out, "{text}; see `padproof list rules`"),
            None => writeln!(out, "no rule was chosen; see `padproof list rules`"),
        };
    }
    // Above a long table stands what it comes to, and what to do.
    let long = survey.plans.len() > ROWS;
    if long {
        summary(survey, width, out)?;
        advice::human(survey, width, out)?;
        writeln!(out)?;
    }
    rows(survey, width, out)?;
    if let Some(text) = not_judged(survey) {
        writeln!(out)?;
        for line in sentence(&text, width) {
            writeln!(out, "{}", line.trim_start())?;
        }
    }
    for group in groups(survey) {
        group.write(width, out)?;
    }
    let first = survey.plans.iter().find_map(|one| one.plan.reason());
    if let Some(found) = first {
        writeln!(out, "\nwhat a code means: padproof explain {}", found.code)?;
    }
    match long {
        true => Ok(()),
        false => advice::human(survey, width, out),
    }
}

/// Rows of a table that is read at a glance.
const ROWS: usize = 6;

/// What a long table comes to: how many rules say what of each part, and the best of each stack
/// for the first.
fn summary(survey: &Survey, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let mut parts: Vec<(String, Vec<&Surveyed>)> = Vec::new();
    for one in &survey.plans {
        let name = part(survey, &one.plan);
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, plans)) => plans.push(one),
            None => parts.push((name, vec![one])),
        }
    }
    for (name, plans) in &parts {
        for line in sentence(&counts(name, plans), width) {
            writeln!(out, "{}", line.strip_prefix("  ").unwrap_or(&line))?;
        }
    }
    let Some((name, plans)) = parts.first() else {
        return Ok(());
    };
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

/// `routed: 18 fits, 19 padded (4.49% to 13.78%), 8 refused`.
fn counts(name: &str, plans: &[&Surveyed]) -> String {
    let count = |fit: &Fit| {
        let these = || plans.iter().filter(|one| one.plan.fit == *fit);
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
    format!(
        "{name}, {}: {}",
        plural(plans.len() as u64, "rule"),
        words.join(", ")
    )
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
    for one in plans.iter().filter(|one| one.status == Status::Current) {
        match best.iter_mut().find(|known| stack(known) == stack(one)) {
            Some(known) if key(one) < key(known) => *known = one,
            Some(_) => {}
            None => best.push(one),
        }
    }
    best
}

/// What was not judged and why, as one line.
pub(super) fn not_judged(survey: &Survey) -> Option<String> {
    let clauses: Vec<String> = survey.not_judged.iter().map(|n| plain(&n.why)).collect();
    (!clauses.is_empty()).then(|| format!("not judged: {}", clauses.join("; ")))
}

/// The model's facts in a few lines.
fn headline(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{}  ({}; {})\n{}",
        plain(&model.name),
        plain(&model.source),
        model.grade.name(),
        facts(model).join("  ")
    )?;
    for note in &model.notes {
        writeln!(out, "note: {}", plain(note))?;
    }
    Ok(())
}

/// A rule's id, with what a reader must know about it before anything else.
fn label(one: &Surveyed) -> String {
    let mark = match (one.status, one.auto) {
        (Status::Historical, _) => " (historical)",
        (Status::Proposed, _) => " (proposed)",
        (Status::Current, true) => " (auto)",
        (Status::Current, false) => "",
    };
    format!("{}{mark}", one.plan.rule)
}

fn rows(survey: &Survey, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    const HEADERS: [&str; 7] = [
        "rule", "layer", "verdict", "width", "hidden", "overhead", "finding",
    ];
    let plans = &survey.plans;
    let row = |one: &Surveyed| {
        let plan = &one.plan;
        vec![
            label(one),
            part(survey, plan),
            plan.fit.name().to_owned(),
            shares::width(plan),
            change(plan.dims.h, plan.hidden_padded),
            percent(plan.overhead_millionths),
            plan.reason().map_or(String::new(), short),
        ]
    };
    // A draft layer that a rule plans as it plans the routed one shares its line.
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut fits = Vec::new();
    for one in plans {
        let cells = row(one);
        let same = |known: &&mut Vec<String>| {
            one.plan.layer == LayerKind::Draft && known[0] == cells[0] && known[2..] == cells[2..]
        };
        match rows.iter_mut().find(same) {
            Some(known) => known[1] = format!("{}, {}", known[1], cells[1]),
            None => {
                rows.push(cells);
                fits.push(one.plan.fit);
            }
        }
    }
    for (at, line) in grid(&HEADERS, &rows, 1, width) {
        match at.and_then(|at| fits.get(at)) {
            Some(fit) => writeln!(out, "{}", coloured(&line, *fit))?,
            None => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

/// Code, axis and the number that was tested; a rule as a whole tests none.
fn short(found: &Violation) -> String {
    if found.axis == "rule" && found.granule == 0 {
        return format!("{} rule", found.code);
    }
    if found.unit == Unit::Ranks && found.granule > 1 {
        return format!("{} {} of {} ranks", found.code, found.value, found.granule);
    }
    let granule = if found.granule > 1 {
        format!(" % {}", found.granule)
    } else {
        String::new()
    };
    format!(
        "{} {} {} {}{granule}",
        found.code,
        found.axis,
        found.value,
        found.unit.name()
    )
}

/// What is said of a plan, a sentence each.
fn texts(plan: &Plan, wrong: Option<&str>) -> Vec<String> {
    let wrong = wrong.map(|wrong| format!("known wrong: {}", plain(wrong)));
    let found = plan
        .violations
        .iter()
        .map(|found| format!("{}: {}", short(found), plain(&found.message)));
    wrong.into_iter().chain(found).chain(told(plan)).collect()
}

/// What a kernel that is told the padding multiplies.
fn told(plan: &Plan) -> Option<String> {
    let (width, hidden) = (plan.width_computed, plan.hidden_computed);
    plan.is_told().then(|| {
        format!(
            "the kernel is told at run time what is padding: it multiplies {width} of {} channels and {hidden} of {} of hidden, {} more arithmetic than without padding",
            plan.width_padded,
            plan.hidden_padded,
            percent(plan.arithmetic_millionths())
        )
    })
}

/// Plans of which the same is said.
struct Group {
    fit: Fit,
    texts: Vec<String>,
    /// Layers, and the rules of which it is said there.
    plans: Vec<(String, Vec<String>)>,
}

fn groups(survey: &Survey) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for one in &survey.plans {
        let (fit, layer) = (one.plan.fit, part(survey, &one.plan));
        let texts = texts(&one.plan, one.wrong.as_deref());
        if texts.is_empty() {
            continue;
        }
        let known = |group: &Group| (group.fit, &group.texts) == (fit, &texts);
        let at = groups.iter().position(known).unwrap_or_else(|| {
            groups.push(Group {
                fit,
                texts,
                plans: Vec::new(),
            });
            groups.len() - 1
        });
        let plans = &mut groups[at].plans;
        match plans.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, rules)) => rules.push(one.plan.rule.clone()),
            None => plans.push((layer, vec![one.plan.rule.clone()])),
        }
    }
    groups
}

impl Group {
    fn write(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let mut heads: Vec<(Vec<&str>, &Vec<String>)> = Vec::new();
        for (layer, rules) in &self.plans {
            match heads.iter_mut().find(|(_, known)| *known == rules) {
                Some((layers, _)) => layers.push(layer),
                None => heads.push((vec![layer], rules)),
            }
        }
        writeln!(out)?;
        for (layers, rules) in heads {
            let s = if layers.len() > 1 { "s" } else { "" };
            let layers = layers.join(" and ");
            let head = format!(
                "{}, {layers} layer{s}: {}",
                advice::some(rules),
                self.fit.name()
            );
            for line in sentence(&head, width) {
                let line = line.strip_prefix("  ").unwrap_or(&line);
                writeln!(out, "{}", coloured(line, self.fit))?;
            }
        }
        for text in &self.texts {
            for line in sentence(text, width) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

/// Writes one plan in full: its sizes, ranks, tensors and findings.
///
/// # Errors
/// Those of the stream.
pub fn tensors_human(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{}  {}  width {}  hidden {}  overhead {}",
        plan.rule,
        fit_word(plan.fit),
        shares::width(plan),
        change(plan.dims.h, plan.hidden_padded),
        percent(plan.overhead_millionths)
    )?;
    let mut ranks = table(&["rank", "channels", "experts"]);
    let range = |start: u64, len: u64| format!("{start}..{}", start.saturating_add(len));
    for rank in &plan.ranks {
        ranks.add_row([
            rank.rank.to_string(),
            range(rank.start, rank.len),
            range(rank.expert_start, rank.expert_len),
        ]);
    }
    let list = |sizes: &[u64]| {
        let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
        words.join(" x ")
    };
    let mut tensors = table(&["tensor", "dtype", "shape per rank", "logical", "bytes"]);
    for tensor in &plan.tensors {
        tensors.add_row([
            tensor.name.to_owned(),
            tensor.dtype.to_owned(),
            list(&tensor.shape),
            list(&tensor.logical),
            tensor.bytes.to_string(),
        ]);
    }
    for rows in [ranks, tensors] {
        writeln!(out)?;
        for line in lines(&rows) {
            writeln!(out, "{line}")?;
        }
    }
    match texts(plan, None) {
        texts if texts.is_empty() => Ok(()),
        texts => {
            let plans = vec![(plan.layer.to_string(), vec![plan.rule.clone()])];
            let fit = plan.fit;
            Group { fit, texts, plans }.write(None, out)
        }
    }
}
