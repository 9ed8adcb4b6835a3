//! One line for each check that did not pass: for grep.
//!
//! It must not explain. Layer 10.

use crate::property::Verdict;
use crate::run::{Event, Kind, Reporter};
use std::io::{self, Write};

/// The concise format.
pub struct Concise<'w> {
    out: Box<dyn Write + 'w>,
}

impl<'w> Concise<'w> {
    /// Writes to `out`.
    pub fn new(out: impl Write + 'w) -> Self {
        Concise { out: Box::new(out) }
    }
}

impl Reporter for Concise<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::CaseFinished(done) if !matches!(done.verdict, Verdict::Pass(_)) => {
                let case = match &done.verdict {
                    Verdict::Fail(finding) => &finding.case,
                    _ => &done.case,
                };
                let word = Kind::of(&done.verdict).word();
                writeln!(self.out, "{word} {} {} {case}", done.property, done.subject)
            }
            Event::RunFinished { .. } => self.out.flush(),
            _ => Ok(()),
        }
    }
}
