//! Shows on standard error how many bytes a command has read, how fast, and how long it will take.
//!
//! It must not write to standard output. Layer 11.

use super::progress::{Display, Progress};
use crate::pad::Step;
use indicatif::{HumanBytes, HumanDuration};
use std::time::Duration;

/// The progress of a command that reads files.
pub(super) struct Bytes {
    display: Display,
    total: u64,
    done: u64,
    /// Bytes that were read since it started.
    read: u64,
    doing: String,
}

impl Bytes {
    /// A meter; `auto` takes a bar on a terminal.
    pub(super) fn new(how: Progress) -> Self {
        Bytes {
            display: Display::new(how),
            total: 0,
            done: 0,
            read: 0,
            doing: String::new(),
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
            Step::Placing => {}
        }
        self.show();
    }

    fn show(&mut self) {
        let (total, done) = (self.total, self.done);
        let rate = self.display.rate(self.read);
        let doing = &self.doing;
        let facts = || format!("{}, {doing}", pace(rate, total.saturating_sub(done)));
        if let Some(bar) = self.display.bar("{bar:30} {bytes} of {total_bytes}, {msg}") {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(facts());
        }
        let line = || format!("{} of {}, {}", HumanBytes(done), HumanBytes(total), facts());
        self.display.line(line);
    }

    /// Takes the bar away.
    pub(super) fn end(mut self) {
        self.display.end();
    }
}

fn pace(rate: f64, rest: u64) -> String {
    let left = Duration::from_secs_f64((rest as f64 / rate.max(1.0)).min(1e9));
    format!(
        "{}/s, {} left",
        HumanBytes(rate as u64),
        HumanDuration(left)
    )
}
