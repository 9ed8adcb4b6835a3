//! Writes tables of plans, and what differs between two, for programs.
//!
//! It must not decide anything. Layer 10.

use super::table_human::{figures, kind};
use crate::run::{Change, Diff, Line, TABLE_SCHEMA, Table};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Columns of the CSV format, which are only ever added to; docs/plan-tables.md explains them.
const TABLE_COLUMNS: [&str; 19] = [
    "model",
    "rule",
    "layer",
    "format",
    "tp",
    "ep",
    "verdict",
    "width",
    "width_padded",
    "hidden",
    "hidden_padded",
    "w13_rows",
    "overhead",
    "ranks",
    "bytes",
    "codes",
    "version",
    "activation_bytes",
    "dispatch",
];

/// Writes a table as CSV: one row a line, with the names of the columns first.
///
/// # Errors
/// Those of the stream.
pub fn table_csv(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(TABLE_COLUMNS).map_err(io_error)?;
    for l in &table.lines {
        csv.write_record([
            l.model.as_str(),
            &l.rule,
            &l.layer,
            &l.format,
            &l.tp.to_string(),
            &l.ep.to_string(),
            l.verdict.name(),
            &l.width.to_string(),
            &l.width_padded.to_string(),
            &l.hidden.to_string(),
            &l.hidden_padded.to_string(),
            &l.w13_rows.to_string(),
            &format!("{:.6}", l.overhead),
            &l.ranks,
            &l.bytes.to_string(),
            &l.codes.join(" "),
            &l.version,
            &l.activation_bytes.to_string(),
            &l.dispatch,
        ])
        .map_err(io_error)?;
    }
    csv.flush()
}

/// The stream's own error, whose kind says that a pipe was closed.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("csv: {other:?}")),
    }
}

/// Writes a table as one JSON object, a line of the table a line of text.
///
/// # Errors
/// Those of the stream.
pub fn table_json(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"schema\": {TABLE_SCHEMA}, \"lines\": [")?;
    for (at, line) in table.lines.iter().enumerate() {
        out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, line)?;
    }
    writeln!(out, "\n]}}")
}

fn change(change: &Change) -> Value {
    let line = change.line();
    let side = |line: &Option<Line>| line.as_ref().map_or(Value::Null, |l| json!(l));
    let figures = figures(change).into_iter();
    let changed: Map<String, Value> = figures
        .map(|(name, before, after)| (name.replace(' ', "_"), json!([before, after])))
        .collect();
    json!({
        "model": line.model,
        "rule": line.rule,
        "layer": line.layer,
        "format": line.format,
        "tp": line.tp,
        "ep": line.ep,
        "kind": kind(change),
        "changed": changed,
        "before": side(&change.before),
        "after": side(&change.after),
    })
}

/// Writes what differs as one JSON object.
///
/// # Errors
/// Those of the stream.
pub fn diff_json(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let document = json!({
        "schema": TABLE_SCHEMA,
        "same": diff.same,
        "changes": diff.changes.iter().map(change).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_explained() {
        let page = include_str!("../../docs/plan-tables.md");
        // The advice in JSON follows in a section of its own.
        let table = page.split("\n## ").next().unwrap_or_default();
        let rows = table.lines().filter_map(|l| l.strip_prefix("| `"));
        let named: Vec<&str> = rows
            .filter_map(|row| Some(row.split_once('`')?.0))
            .collect();
        assert_eq!(named, TABLE_COLUMNS);
    }
}
