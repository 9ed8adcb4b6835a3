//! Gives words their colour and tables their look.
//!
//! It must not decide whether the terminal wants colour: the stream strips it. Layer 10.

use crate::plan::Fit;
use crate::run::Kind;
use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};

const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();

/// An empty table with headers, aligned by spaces alone and never wrapped: rows stay lines.
pub fn table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headers.iter().copied());
    table
}

/// The table as text without the blanks at the ends of its lines.
pub(super) fn lines(table: &Table) -> Vec<String> {
    let unindented = |line: &str| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned();
    table.to_string().lines().map(unindented).collect()
}

/// A verdict of a plan, coloured.
pub fn fit_word(fit: Fit) -> String {
    let style = match fit {
        Fit::Fits | Fit::Padded => GREEN,
        Fit::Slow | Fit::Unknown => YELLOW,
        Fit::Refused | Fit::Unrepresentable | Fit::Wrong => RED,
    };
    painted(style, fit.name())
}

pub(super) fn painted(style: Style, word: &str) -> String {
    format!("{style}{word}{style:#}")
}

/// A heading.
pub(super) fn heading(text: &str) -> String {
    painted(Style::new().bold(), text)
}

/// The word of a kind of verdict, padded to `width` and coloured.
pub(super) fn kind_word(kind: Kind, width: usize) -> String {
    let style = match kind {
        Kind::Pass => GREEN,
        Kind::Skip | Kind::Vacuous => YELLOW,
        Kind::Fail | Kind::Broken => RED,
    };
    let blanks = " ".repeat(width.saturating_sub(kind.word().len()));
    format!("{}{blanks}", painted(style, kind.word()))
}
