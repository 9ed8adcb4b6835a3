//! Shows on standard error how many bytes a command has read, how fast, and how long it will take.
//!
//! It must not write to standard output. Layer 11.

use super::args::Progress;
use super::output::note;
use crate::pad::Step;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Nothing is shown before this.
const QUIET: Duration = Duration::from_millis(500);
/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of a command that reads files.
pub(super) struct Bytes {
    how: Progress,
    started: Instant,
    shown: Instant,
    total: u64,
    done: u64,
    /// Bytes that were read since it started.
    read: u64,
    doing: String,
    bar: Option<ProgressBar>,
}

impl Bytes {
    /// A meter; `auto` takes a bar on a terminal.
    pub(super) fn new(how: Progress) -> Self {
        let how = match how {
            Progress::Auto if io::stderr().is_terminal() => Progress::Bar,
            Progress::Auto => Progress::Counter,
            chosen => chosen,
        };
        let now = Instant::now();
        Bytes {
            how,
            started: now,
            shown: now,
            total: 0,
            done: 0,
            read: 0,
            doing: String::new(),
            bar: None,
        }
    }

    /// Takes what a command tells.
    pub(super) fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Begin { total, done } => (self.total, self.done) = (total, done),
            Step::Read(bytes) => {
                self.done += bytes;
                self.read += bytes;
            }
            Step::Doing(what) => self.doing = crate::terms::plain(what).to_string(),
        }
        self.show();
    }

    fn show(&mut self) {
        let rest = self.rest();
        match self.how {
            Progress::Bar if self.started.elapsed() >= QUIET => {
                let bar = self.bar.get_or_insert_with(|| {
                    let style =
                        ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {msg}");
                    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                });
                bar.set_length(self.total);
                bar.set_position(self.done);
                if self.shown.elapsed() >= Duration::from_millis(100) {
                    self.shown = Instant::now();
                    bar.set_message(format!(
                        "{}, {}",
                        pace(self.read, rest, self.started),
                        self.doing
                    ));
                }
            }
            Progress::Counter if self.shown.elapsed() >= LINE_EVERY => {
                self.shown = Instant::now();
                let (done, total) = (HumanBytes(self.done), HumanBytes(self.total));
                let pace = pace(self.read, rest, self.started);
                note(&format!("{done} of {total}, {pace}, {}", self.doing));
            }
            _ => {}
        }
    }

    fn rest(&self) -> u64 {
        self.total.saturating_sub(self.done)
    }

    /// Takes the bar away.
    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn pace(read: u64, rest: u64, started: Instant) -> String {
    let rate = read as f64 / started.elapsed().as_secs_f64().max(1e-3);
    let left = Duration::from_secs_f64((rest as f64 / rate.max(1.0)).min(1e9));
    format!(
        "{}/s, {} left",
        HumanBytes(rate as u64),
        HumanDuration(left)
    )
}
