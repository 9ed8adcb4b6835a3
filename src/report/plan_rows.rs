//! Writes the table of a survey's plans: one line a rule, in sections by layer where it is long.
//!
//! It must not decide anything. Layer 10.

use super::advice::some;
use super::grid::{grid, paragraph};
use super::shares::{change, shares};
use super::table_human::coloured;
use super::words::{label, part, percent, short};
use crate::plan::{Fit, Plan};
use crate::run::{Survey, Surveyed};
use crate::terms::LayerKind;
use std::io::{self, Write};

const HEADERS: [&str; 8] = [
    "rule", "layer", "verdict", "width", "overhead", "hidden", "for", "finding",
];
/// Where the layer stands.
const LAYER: usize = 1;
/// Columns at the end that a narrow terminal does without: findings follow below.
const SPARE: usize = 4;

/// A row, of plans that say the same.
struct Row {
    cells: Vec<String>,
    fit: Fit,
    /// Whether nobody serves with the rule by itself.
    alone: bool,
}

/// Writes the rows, those of kernels and of dispatches after those of stacks; `long` in a section for each
/// layer.
pub(super) fn rows(
    survey: &Survey,
    long: bool,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = merged(survey);
    let mut layers: Vec<&str> = Vec::new();
    for row in &rows {
        if !layers.contains(&row.cells[LAYER].as_str()) {
            layers.push(&row.cells[LAYER]);
        }
    }
    if !long && layers.len() > 1 {
        return write(&HEADERS, rows.iter(), width, out);
    }
    let mut headers = HEADERS.to_vec();
    headers.remove(LAYER);
    for (at, layer) in layers.iter().enumerate() {
        if layers.len() > 1 {
            let gap = if at > 0 { "\n" } else { "" };
            writeln!(out, "{gap}{layer}")?;
        }
        let own = rows.iter().filter(|row| row.cells[LAYER] == *layer);
        let bare = own.map(|row| {
            let mut cells = row.cells.clone();
            cells.remove(LAYER);
            Row { cells, ..*row }
        });
        let bare: Vec<Row> = bare.collect();
        write(&headers, bare.iter(), width, out)?;
    }
    Ok(())
}

fn write<'r>(
    headers: &[&str],
    rows: impl Iterator<Item = &'r Row>,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows: Vec<&Row> = rows.collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells.clone()).collect();
    for (at, line) in grid(headers, &cells, SPARE, width) {
        match at.and_then(|at| rows.get(at)) {
            Some(row) => writeln!(out, "{}", coloured(&line, row.fit))?,
            None => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

/// One row a plan. A draft layer that a rule plans as it plans the routed one shares its line, and so
/// do stacks that have no rule for a layer.
fn merged(survey: &Survey) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let several = open_stacks(survey);
    for one in &survey.plans {
        let mut cells = cells(survey, one);
        if one.uncovered {
            let Some((_, stacks)) = several.iter().find(|(layer, _)| *layer == cells[LAYER]) else {
                continue;
            };
            if stacks.first() != Some(&one.plan.rule) {
                continue;
            }
            cells[0] = format!("no rule of {}", some(stacks));
            cells[4] = String::new();
        }
        let same = |known: &&mut Row| {
            let (known, rest) = (&known.cells, LAYER + 1);
            one.plan.layer == LayerKind::Draft
                && known[0] == cells[0]
                && known[rest..] == cells[rest..]
        };
        match rows.iter_mut().find(same) {
            Some(known) => {
                let both = format!("{}, {}", known.cells[LAYER], cells[LAYER]);
                known.cells[LAYER] = both;
            }
            None => rows.push(Row {
                cells,
                fit: one.plan.fit,
                alone: one.plan.kernel || one.dispatch,
            }),
        }
    }
    rows.sort_by_key(|row| row.alone);
    rows
}

fn cells(survey: &Survey, one: &Surveyed) -> Vec<String> {
    let plan = &one.plan;
    vec![
        label(one),
        part(survey, plan),
        plan.fit.name().to_owned(),
        change(plan.width, plan.width_padded),
        percent(plan.overhead_millionths),
        change(plan.dims.h, plan.hidden_padded),
        plan.arch.join(", "),
        plan.reason().map_or(String::new(), short),
    ]
}

/// The parts that stacks have no rule for, with the stacks: a row for each.
fn open_stacks(survey: &Survey) -> Vec<(String, Vec<String>)> {
    let open = survey.plans.iter().filter(|one| one.uncovered);
    gathered(open.map(|one| (part(survey, &one.plan), one.plan.rule.clone())))
}

/// Values by key, both in the order in which they came.
fn gathered(pairs: impl Iterator<Item = (String, String)>) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (key, value) in pairs {
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => all.push((key, vec![value])),
        }
    }
    all
}

/// Writes what ranks hold where not all hold as much, a line for all rules that cut alike.
pub(super) fn unequal(
    survey: &Survey,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let told = |plan: &Plan| shares(plan).filter(|_| plan.width > 0);
    let pairs = survey.plans.iter().filter(|one| !one.uncovered);
    let pairs = pairs.filter_map(|one| Some((told(&one.plan)?, one.plan.rule.clone())));
    for (at, (shares, rules)) in gathered(pairs).into_iter().enumerate() {
        if at == 0 {
            writeln!(out)?;
        }
        paragraph(
            &format!("shares {shares} under {}", some(&rules)),
            width,
            out,
        )?;
    }
    Ok(())
}
