//! Writes tables of plans, and what differs between two, for people.
//!
//! It must not decide anything. Layer 10.

use super::grid::grid;
use super::style::{fit_word, heading};
use super::words::{percent, plural};
use crate::plan::Fit;
use crate::run::{Change, Diff, Figure, Line, Table};
use crate::terms::plain;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// One row of a matrix: rule, layer and format; a cell for each number of ranks.
struct Row<'t> {
    rule: &'t str,
    layer: &'t str,
    format: &'t str,
    cells: BTreeMap<u64, &'t Line>,
}

/// A model's lines as rows, in their order.
fn rows<'t>(lines: &[&'t Line]) -> Vec<Row<'t>> {
    let mut all: Vec<Row<'t>> = Vec::new();
    for line in lines {
        let same = |row: &&mut Row<'_>| {
            (row.rule, row.layer, row.format) == (&*line.rule, &*line.layer, &*line.format)
        };
        match all.iter_mut().rev().find(same) {
            Some(row) => {
                row.cells.insert(line.tp, line);
            }
            None => all.push(Row {
                rule: &line.rule,
                layer: &line.layer,
                format: &line.format,
                cells: BTreeMap::from([(line.tp, *line)]),
            }),
        }
    }
    all
}

/// The models of a table in their order, each with its lines.
fn models(table: &Table) -> Vec<(&str, Vec<&Line>)> {
    let mut all: Vec<(&str, Vec<&Line>)> = Vec::new();
    for line in &table.lines {
        match all.last_mut() {
            Some((model, lines)) if *model == line.model => lines.push(line),
            _ => all.push((&line.model, vec![line])),
        }
    }
    all
}

/// The verdict with what it comes from: the padded width and its cost, or the code.
fn cell(line: &Line) -> String {
    let padded = || {
        let change = |from: u64, to: u64| match from == to {
            true => to.to_string(),
            false => format!("{from}->{to}"),
        };
        let hidden = match line.hidden == line.hidden_padded {
            true => String::new(),
            false => format!(" hidden {}", change(line.hidden, line.hidden_padded)),
        };
        let cost = percent((line.overhead * 1e6).round() as u64);
        format!(" {}{hidden} {cost}", change(line.width, line.width_padded))
    };
    let word = line.verdict.name();
    match line.verdict {
        Fit::Fits => format!("{word} {}", line.width),
        Fit::Padded => format!("{word}{}", padded()),
        // Codes of a file may be anything.
        _ => format!(
            "{word} {}",
            super::plan_markdown::escaped(&line.codes.join(" "))
        )
        .trim_end()
        .to_owned(),
    }
}

/// The dispatch that was asked to send the tokens of a model's lines.
fn sender<'t>(lines: &[&'t Line]) -> Option<&'t str> {
    let mut asked = lines.iter().filter(|line| !line.is_dispatch());
    let named = |line: &&'t Line| Some(line.dispatch.as_str()).filter(|id| !id.is_empty());
    asked.find_map(named)
}

/// A row's rule, with what it is where it is no rule of experts.
fn named(row: &Row<'_>) -> String {
    let dispatch = row.cells.values().any(|line| line.is_dispatch());
    let mark = if dispatch { " (dispatch)" } else { "" };
    format!("{}{mark}", row.rule)
}

fn ranks(rows: &[Row<'_>]) -> Vec<u64> {
    let mut all: Vec<u64> = rows.iter().flat_map(|r| r.cells.keys().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Writes a matrix: a table per model, a row per rule, layer and format, a column per number of
/// ranks. Where that is wider than `width`, each row takes several lines.
///
/// # Errors
/// Those of the stream.
pub fn table_human(table: &Table, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    for (at, (model, lines)) in models(table).into_iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", heading(&plain(model)))?;
        if let Some(dispatch) = sender(&lines) {
            writeln!(out, "dispatch {}", plain(dispatch))?;
        }
        let rows = rows(&lines);
        let ranks = ranks(&rows);
        let heads: Vec<String> = ranks.iter().map(|tp| format!("tp {tp}")).collect();
        let mut headers = vec!["rule", "layer", "format"];
        headers.extend(heads.iter().map(String::as_str));
        let cells = |row: &Row<'_>| {
            let mut all = vec![named(row), row.layer.to_owned(), row.format.to_owned()];
            all.extend(
                ranks
                    .iter()
                    .map(|tp| row.cells.get(tp).map_or(String::new(), |l| cell(l))),
            );
            all
        };
        let texts: Vec<Vec<String>> = rows.iter().map(cells).collect();
        for (_, line) in grid(&headers, &texts, 0, width) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Writes a matrix as Markdown: a table per model.
///
/// # Errors
/// Those of the stream.
pub fn table_markdown(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    for (model, lines) in models(table) {
        let rows = rows(&lines);
        let ranks = ranks(&rows);
        let heads: Vec<String> = ranks.iter().map(|tp| format!("tp {tp}")).collect();
        writeln!(out, "### {}\n", super::plan_markdown::escaped(model))?;
        if let Some(dispatch) = sender(&lines) {
            writeln!(
                out,
                "dispatch {}\n",
                super::plan_markdown::escaped(dispatch)
            )?;
        }
        writeln!(out, "| rule | layer | format | {} |", heads.join(" | "))?;
        writeln!(out, "| --- | --- | --- |{}", " --- |".repeat(ranks.len()))?;
        for row in &rows {
            let cells: Vec<String> = ranks
                .iter()
                .map(|tp| row.cells.get(tp).map_or(String::new(), |l| cell(l)))
                .collect();
            let (layer, format) = (row.layer, row.format);
            let rule = match named(row).split_once(' ') {
                Some((rule, mark)) => format!("`{rule}` {mark}"),
                None => format!("`{}`", row.rule),
            };
            writeln!(
                out,
                "| {rule} | {layer} | {format} | {} |",
                cells.join(" | ")
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A figure as text, and a share in full where two decimals would not tell it from another's.
fn figure(figure: &Figure, full: bool) -> String {
    match figure {
        Figure::Word(text) if text.is_empty() => "-".to_owned(),
        Figure::Word(text) => text.clone(),
        Figure::Count(number) => number.to_string(),
        Figure::Millionths(share) if full => {
            format!("{}.{:04}%", share / 10_000, share % 10_000)
        }
        Figure::Millionths(share) => percent(*share),
    }
}

/// What differs between two lines, as (figure, before, after).
pub(super) fn figures(change: &Change) -> Vec<(&'static str, String, String)> {
    let spelled = |(name, before, after): (&'static str, Figure, Figure)| {
        let full = figure(&before, false) == figure(&after, false);
        (name, figure(&before, full), figure(&after, full))
    };
    change.figures().into_iter().map(spelled).collect()
}

/// What became of the line, in one word.
pub(super) fn kind(change: &Change) -> &'static str {
    match (&change.before, &change.after) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    }
}

/// Writes what differs: a line per plan, and what changed in it.
///
/// # Errors
/// Those of the stream.
pub fn diff_human(diff: &Diff, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let headers = ["rule", "model", "layer", "format", "tp", "ep", "", "what"];
    let row = |change: &Change| {
        let line = change.line();
        let whole = |l: &Line| format!("{} {}", l.verdict.name(), l.width_padded);
        let what = match (&change.before, &change.after) {
            (None, Some(l)) | (Some(l), None) => whole(l),
            _ => {
                let changed = figures(change).into_iter();
                let words: Vec<String> = changed
                    .map(|(n, a, b)| plain(&format!("{n} {a} -> {b}")))
                    .collect();
                words.join(", ")
            }
        };
        vec![
            plain(&line.rule),
            plain(&line.model),
            plain(&line.layer),
            plain(&line.format),
            line.tp.to_string(),
            line.ep.to_string(),
            kind(change).to_owned(),
            what,
        ]
    };
    let rows: Vec<Vec<String>> = diff.changes.iter().map(row).collect();
    if !rows.is_empty() {
        for (_, line) in grid(&headers, &rows, 0, width) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "{}", summary(diff))
}

/// Counts of what changed, in one sentence.
pub(super) fn summary(diff: &Diff) -> String {
    let count = |word| diff.changes.iter().filter(|c| kind(c) == word).count();
    format!(
        "{} changed, {} added, {} removed, {} the same",
        plural(count("changed") as u64, "plan"),
        count("added"),
        count("removed"),
        diff.same
    )
}

/// Writes what differs as Markdown.
///
/// # Errors
/// Those of the stream.
pub fn diff_markdown(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    use super::plan_markdown::escaped;
    if !diff.changes.is_empty() {
        writeln!(
            out,
            "| model | rule | layer | format | tp | ep | | before | after |"
        )?;
        writeln!(
            out,
            "| --- | --- | --- | --- | ---: | ---: | --- | --- | --- |"
        )?;
    }
    for change in &diff.changes {
        let line = change.line();
        let side = |one: &Option<Line>| one.as_ref().map_or(String::new(), cell);
        let (before, after) = match kind(change) {
            "changed" => {
                let sides = figures(change).into_iter().map(|(name, before, after)| {
                    (
                        format!("{name} {}", escaped(&before)),
                        format!("{name} {}", escaped(&after)),
                    )
                });
                let (before, after): (Vec<String>, Vec<String>) = sides.unzip();
                (before.join(", "), after.join(", "))
            }
            _ => (side(&change.before), side(&change.after)),
        };
        writeln!(
            out,
            "| {} | `{}` | {} | {} | {} | {} | {} | {before} | {after} |",
            escaped(&line.model),
            plain(&line.rule).replace(['`', '|'], " "),
            escaped(&line.layer),
            escaped(&line.format),
            line.tp,
            line.ep,
            kind(change),
        )?;
    }
    if !diff.changes.is_empty() {
        writeln!(out)?;
    }
    writeln!(out, "{}", summary(diff))
}

/// The verdict coloured, where a line of text shows it between blanks.
pub(super) fn coloured(line: &str, fit: Fit) -> String {
    let padded = format!("{line} ");
    let word = format!(" {} ", fit.name());
    let painted = padded.replacen(&word, &format!(" {} ", fit_word(fit)), 1);
    painted.trim_end().to_owned()
}
