//! Shows on standard error how far a run is, once it has lasted half a second.
//!
//! It must not write to standard output. Layer 11.

use super::output::note;
use crate::property::Verdict;
use crate::report::plural;
use crate::run::{Event, Reporter};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How progress is shown.
#[derive(Debug, Args)]
pub(super) struct ProgressArgs {
    /// What shows progress on standard error
    #[arg(
        long = "progress",
        value_name = "HOW",
        env = "PADPROOF_PROGRESS",
        hide_env_values = true,
        default_value = "auto"
    )]
    pub(super) how: Progress,
}

/// What shows progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Progress {
    /// A bar on a terminal, else a line every ten seconds.
    Auto,
    /// A bar.
    Bar,
    /// A line every ten seconds.
    Counter,
    /// Nothing.
    None,
}

/// Nothing is shown before this.
const QUIET: Duration = Duration::from_millis(500);
/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Where progress is shown, and since when: a bar on a terminal, else a line now and then.
pub(super) struct Display {
    how: Progress,
    started: Instant,
    shown: Instant,
    bar: Option<ProgressBar>,
}

impl Display {
    /// A display; `auto` takes a bar on a terminal.
    pub(super) fn new(how: Progress) -> Self {
        let how = match how {
            Progress::Auto if io::stderr().is_terminal() => Progress::Bar,
            Progress::Auto => Progress::Counter,
            chosen => chosen,
        };
        let now = Instant::now();
        Display {
            how,
            started: now,
            shown: now,
            bar: None,
        }
    }

    /// Units a second of what was done since the start.
    pub(super) fn rate(&self, done: u64) -> f64 {
        done as f64 / self.started.elapsed().as_secs_f64().max(1e-3)
    }

    /// The bar of an indicatif template, where one is shown by now.
    pub(super) fn bar(&mut self, template: &str) -> Option<&ProgressBar> {
        (self.how == Progress::Bar && self.started.elapsed() >= QUIET).then(|| {
            &*self.bar.get_or_insert_with(|| {
                let style = ProgressStyle::with_template(template);
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
            })
        })
    }

    /// Writes a line where there is no terminal and one is due.
    pub(super) fn line(&mut self, text: impl FnOnce() -> String) {
        if self.how == Progress::Counter && self.shown.elapsed() >= LINE_EVERY {
            self.shown = Instant::now();
            note(&text());
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The progress of a known number of steps that threads take.
pub(super) struct Steps {
    state: Mutex<(Display, usize)>,
    total: usize,
    noun: &'static str,
}

impl Steps {
    /// None of `total` is taken.
    pub(super) fn new(how: Progress, total: usize, noun: &'static str) -> Self {
        Steps {
            state: Mutex::new((Display::new(how), 0)),
            total,
            noun,
        }
    }

    fn state(&self) -> MutexGuard<'_, (Display, usize)> {
        // A panic in between leaves a number that is only shown.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more is taken; the last was `name`.
    pub(super) fn done(&self, name: &str) {
        let mut state = self.state();
        let (display, taken) = &mut *state;
        *taken += 1;
        let text = format!(
            "{taken} of {}, last {name}",
            plural(self.total as u64, self.noun)
        );
        if let Some(bar) = display.bar("{spinner} {elapsed} {msg}") {
            bar.set_message(text.clone());
            bar.tick();
        }
        display.line(|| text);
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.state().0.end();
    }
}

/// The progress of a run.
pub(super) struct Meter {
    display: Display,
    checks: u64,
    failed: u64,
}

impl Meter {
    /// A meter; `auto` takes a bar on a terminal.
    pub(super) fn new(how: Progress) -> Self {
        Meter {
            display: Display::new(how),
            checks: 0,
            failed: 0,
        }
    }

    fn show(&mut self, property: &str) {
        let (checks, failed, rate) = (self.checks, self.failed, self.display.rate(self.checks));
        let facts =
            || format!("{checks} checks, {failed} failed, {rate:.0} per second, {property}");
        if let Some(bar) = self.display.bar("{spinner} {elapsed} {msg}") {
            bar.set_message(facts());
            bar.tick();
        }
        self.display.line(facts);
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
                self.display.end();
            }
            _ => {}
        }
        Ok(())
    }
}
