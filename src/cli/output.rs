//! Opens standard output and standard error, with colour where it is wanted.
//!
//! It must not decide what is written. Layer 11.

use super::args::Color;
use crate::terms::plain;
use anstream::{AutoStream, ColorChoice};
use std::io::{self, BufWriter, Write};

/// Standard output, buffered.
pub(super) fn stdout(color: Color) -> impl Write {
    BufWriter::new(AutoStream::new(io::stdout(), choice(color)))
}

fn choice(color: Color) -> ColorChoice {
    match color {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::AlwaysAnsi,
        Color::Never => ColorChoice::Never,
    }
}

/// Writes one line to standard error; nothing can be done if that fails.
pub(super) fn complain(kind: &str, sentence: &str) {
    // A file name or a value may hold anything: a terminal must see one harmless line.
    let _ = writeln!(io::stderr(), "{kind}: {}", plain(sentence));
}

/// Writes one line of progress or settings to standard error.
pub(super) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
