//! Writes the mutant matrix: which property caught which mutant, and after how many cases.
//!
//! It must not decide whether it holds. Layer 10.

use super::parts::SCHEMA;
use super::style::{lines, table};
use super::words::plural;
use crate::property::{ALL, Needs};
use crate::run::{Cell, Matrix, Row};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Writes the matrix as a table: a number is the cases it took, `.` a mutant planted and not
/// seen, a blank one that never applied.
///
/// # Errors
/// Those of the stream.
pub fn matrix_human(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    let letters: Vec<String> = ('a'..='z').map(String::from).take(ALL.len()).collect();
    for (letter, property) in letters.iter().zip(ALL) {
        writeln!(out, "{letter}  {}", property.name)?;
    }
    let mut headers = vec!["mutant"];
    headers.extend(letters.iter().map(String::as_str));
    let mut rows = table(&headers);
    for row in &matrix.rows {
        let cells = row.cells.iter().map(|cell| match cell {
            Cell::Caught(cases) => cases.to_string(),
            Cell::Missed(0) => String::new(),
            Cell::Missed(_) => ".".to_owned(),
            Cell::NotRun => "-".to_owned(),
        });
        rows.add_row(std::iter::once(row.mutant.to_owned()).chain(cells));
    }
    writeln!(out)?;
    for line in lines(&rows) {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "\na number: cases until it was caught; `.`: planted, not seen; blank: changed nothing; -: not run here\n"
    )?;
    for row in matrix.rows.iter().filter(|row| !row.unmet.is_empty()) {
        writeln!(
            out,
            "{} should be caught by {}, and is not",
            row.mutant,
            row.unmet.join(", ")
        )?;
    }
    for mutant in &matrix.uncaught {
        writeln!(out, "{mutant} is not caught")?;
    }
    for property in &matrix.idle {
        writeln!(out, "{property} catches no mutant")?;
    }
    for property in &matrix.not_run {
        let needs = ALL.iter().find(|p| p.name == *property).map(|p| p.needs);
        let who = match needs {
            Some(Needs::Sizes) => "a program that tells the sizes it allocates",
            _ => "a device, which has a fast path and a general one",
        };
        writeln!(out, "{property} is not run here: it needs {who}")?;
    }
    if matrix.left_out > 0 {
        let left = plural(matrix.left_out as u64, "mutant");
        writeln!(
            out,
            "interrupted: {left} left out; no property is called idle"
        )?;
    }
    let caught = matrix.rows.len() - matrix.uncaught.len();
    writeln!(
        out,
        "{}, {caught} caught; {} run, {} of them idle; {} not run here",
        plural(matrix.rows.len() as u64, "mutant"),
        plural((ALL.len() - matrix.not_run.len()) as u64, "property"),
        matrix.idle.len(),
        matrix.not_run.len()
    )
}

/// Writes the matrix as one JSON object.
///
/// # Errors
/// Those of the stream.
pub fn matrix_json(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    let document = json!({
        "schema": SCHEMA,
        "mutants": matrix.rows.iter().map(row).collect::<Vec<_>>(),
        "uncaught": matrix.uncaught,
        "idle": matrix.idle,
        "not_run": matrix.not_run,
        "left_out": matrix.left_out,
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn row(row: &Row) -> Value {
    let cell = |cell: &Cell| match cell {
        Cell::Caught(cases) => json!(cases),
        Cell::Missed(_) | Cell::NotRun => Value::Null,
    };
    let cells = row.cells.iter().map(cell);
    let cells: Map<String, Value> = ALL.iter().map(|p| p.name.to_owned()).zip(cells).collect();
    json!({ "mutant": row.mutant, "caught_after": cells, "unmet": row.unmet })
}
