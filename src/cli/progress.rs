//! Shows on standard error how far a run is, once it has lasted half a second.
//!
//! It must not write to standard output. Layer 11.

use super::args::Progress;
use super::output::note;
use crate::property::Verdict;
use crate::run::{Event, Reporter};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Nothing is shown before this.
const QUIET: Duration = Duration::from_millis(500);
/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of a run.
pub(super) struct Meter {
    how: Progress,
    started: Instant,
    shown: Instant,
    checks: u64,
    failed: u64,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// A meter; `auto` takes a bar on a terminal.
    pub(super) fn new(how: Progress) -> Self {
        let how = match how {
            Progress::Auto if io::stderr().is_terminal() => Progress::Bar,
            Progress::Auto => Progress::Counter,
            chosen => chosen,
        };
        let now = Instant::now();
        Meter {
            how,
            started: now,
            shown: now,
            checks: 0,
            failed: 0,
            bar: None,
        }
    }

    fn facts(&self, property: &str) -> String {
        let rate = self.checks as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        format!(
            "{} checks, {} failed, {rate:.0} per second, {property}",
            self.checks, self.failed
        )
    }

    fn show(&mut self, property: &str) {
        match self.how {
            Progress::Bar if self.started.elapsed() >= QUIET => {
                let facts = self.facts(property);
                let bar = self.bar.get_or_insert_with(|| {
                    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
                    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
                });
                bar.set_message(facts);
                bar.tick();
            }
            Progress::Counter if self.shown.elapsed() >= LINE_EVERY => {
                self.shown = Instant::now();
                note(&self.facts(property));
            }
            _ => {}
        }
    }
}

impl Reporter for Meter {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::CaseFinished(done) => {
                self.checks += 1;
                self.failed += u64::from(matches!(done.verdict, Verdict::Fail(_)));
                if self.checks.is_multiple_of(16) {
                    self.show(done.property);
                }
            }
            Event::RunFinished { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
        Ok(())
    }
}
