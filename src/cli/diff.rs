//! `padproof diff`: what changed between two saved tables of plans.
//!
//! It must not decide what a change means. Layer 11.

use super::args::{DiffArgs, DiffFormat};
use super::environment::Environment;
use super::error::CliError;
use crate::report::{diff_human, diff_json, diff_markdown};
use crate::run::{Diff, ExitCode, Table};
use std::io::{self, Read, Write};
use std::path::Path;

/// Largest table that is read: every model under every rule takes a few MiB.
const FILE_LIMIT: u64 = 256 << 20;

pub(super) fn diff(
    args: &DiffArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let diff = Diff::of(&read(&args.before)?, &read(&args.after)?);
    match args.format {
        DiffFormat::Human => diff_human(&diff, environment.columns, out)?,
        DiffFormat::Json => diff_json(&diff, out)?,
        DiffFormat::Markdown => diff_markdown(&diff, out)?,
    }
    Ok(if diff.changes.is_empty() {
        ExitCode::Passed
    } else {
        ExitCode::Failed
    })
}

fn read(path: &Path) -> Result<Table, CliError> {
    let file = path.display().to_string();
    let io = |source| CliError::File {
        file: file.clone(),
        source,
    };
    let opened = crate::files::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    opened
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(io(io::Error::other("is too large for a table of plans")));
    }
    let text = String::from_utf8(bytes).map_err(|_| io(io::Error::other("is not UTF-8")))?;
    Ok(Table::parse(&text, &file)?)
}
