//! Lays rows out within the width of a terminal: cells are never broken.
//!
//! It must not colour anything. Layer 10.

use super::style::{lines, table};
use std::io::{self, Write};

/// Blanks before what belongs to the line above.
const INDENT: &str = "  ";

/// A line of text, and the row it shows if it shows one.
pub(super) type Laid = (Option<usize>, String);

/// Characters of a line.
fn wide(text: &str) -> usize {
    text.chars().count()
}

/// The rows as a table when it is not wider than `width`, without as many of its last `spare`
/// columns as need be; else each row as its first cell on a line of its own, the others below it with their
/// headers, as many to a line as fit.
pub(super) fn grid(
    headers: &[&str],
    rows: &[Vec<String>],
    spare: usize,
    width: Option<usize>,
) -> Vec<Laid> {
    for left_out in 0..=spare {
        let keep = headers.len().saturating_sub(left_out);
        let laid = aligned(headers, rows, keep);
        let fits = |(_, line): &Laid| width.is_none_or(|most| wide(line) <= most);
        if laid.iter().all(fits) {
            return laid;
        }
    }
    let mut all = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Some((first, rest)) = row.split_first() else {
            continue;
        };
        all.push((Some(at), first.clone()));
        let cells = headers
            .iter()
            .skip(1)
            .zip(rest)
            .filter(|(_, cell)| !cell.is_empty());
        let cells = cells.map(|(header, cell)| format!("{header} {cell}"));
        all.extend(filled(cells, "  ", width).map(|line| (Some(at), line)));
    }
    all
}

/// The first `keep` columns, aligned.
fn aligned(headers: &[&str], rows: &[Vec<String>], keep: usize) -> Vec<Laid> {
    let mut full = table(headers.get(..keep).unwrap_or(headers));
    for row in rows {
        full.add_row(row.iter().take(keep));
    }
    let numbered = |(at, line): (usize, String)| (at.checked_sub(1), line);
    lines(&full).into_iter().enumerate().map(numbered).collect()
}

/// Indented lines of whole pieces, as many to a line as fit.
fn filled(
    pieces: impl Iterator<Item = String>,
    between: &str,
    width: Option<usize>,
) -> std::vec::IntoIter<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(line) if width.is_none_or(|w| wide(line) + wide(between) + wide(&piece) <= w) => {
                line.push_str(between);
                line.push_str(&piece);
            }
            _ => all.push(format!("{INDENT}{piece}")),
        }
    }
    all.into_iter()
}

/// A sentence broken between words; lines after the first are indented further.
pub(super) fn sentence(text: &str, width: Option<usize>) -> Vec<String> {
    let most = width.map(|w| w.saturating_sub(INDENT.len()));
    let broken = filled(text.split(' ').map(str::to_owned), " ", most);
    let further = |(at, line): (usize, String)| match at {
        0 => line,
        _ => format!("{INDENT}{line}"),
    };
    broken.enumerate().map(further).collect()
}

/// A sentence at the margin, its further lines indented.
pub(super) fn paragraph(text: &str, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    for line in sentence(text, width) {
        writeln!(out, "{}", line.strip_prefix("  ").unwrap_or(&line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |words: [&str; 3]| words.map(str::to_owned).to_vec();
        vec![
            row(["a long name", "padded", "1 -> 2"]),
            row(["b", "fits", ""]),
        ]
    }

    fn texts(width: Option<usize>) -> Vec<String> {
        let laid = grid(&["rule", "verdict", "width"], &rows(), 0, width);
        laid.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn a_table_that_fits_is_aligned() {
        let wanted = [
            "rule         verdict  width",
            "a long name  padded   1 -> 2",
            "b            fits",
        ];
        assert_eq!(texts(None), wanted);
        assert_eq!(texts(Some(28)), wanted);
    }

    #[test]
    fn one_that_does_not_is_stacked_and_no_cell_is_broken() {
        assert_eq!(
            texts(Some(27)),
            [
                "a long name",
                "  verdict padded",
                "  width 1 -> 2",
                "b",
                "  verdict fits"
            ]
        );
        assert_eq!(texts(Some(1)), texts(Some(16)));
    }

    #[test]
    fn spare_columns_go_before_rows_are_stacked() {
        let laid = grid(&["rule", "verdict", "width"], &rows(), 1, Some(20));
        assert_eq!(laid[1].1, "a long name  padded");
    }

    #[test]
    fn sentences_break_between_words() {
        assert_eq!(sentence("one two three", None), ["  one two three"]);
        assert_eq!(
            sentence("one two three", Some(11)),
            ["  one two", "    three"]
        );
    }
}
