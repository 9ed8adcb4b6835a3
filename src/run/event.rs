//! Defines what a run tells its reporters.
//!
//! It must not format text. Layer 9.

use super::{Counts, Coverage, Group};
use crate::property::Verdict;
use std::borrow::Cow;
use std::io;
use std::time::Duration;

/// Where a run takes place, and how.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Environment {
    /// padproof's version.
    pub version: &'static str,
    /// Name of the budget.
    pub tier: String,
    /// Seed of the random cases, hexadecimal.
    pub seed: String,
    /// Random cases asked for; absent for as many as the time allows.
    pub cases: Option<u64>,
    /// What the subjects run on.
    pub device: String,
}

/// One check that has been made.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The case line, or for a plan entry its full name.
    pub case: String,
    /// Full name of the suite entry, if it comes from one.
    pub name: Option<String>,
    /// File and line of the suite entry, if it comes from one.
    pub place: Option<(String, usize)>,
    /// What `padproof run` finds that entry by.
    pub word: Option<String>,
    /// The property's name.
    pub property: &'static str,
    /// The subject's name; `-` where none is needed.
    pub subject: Cow<'static, str>,
    /// Arguments that the reproducer needs to ask the same subject, behind a space.
    pub arguments: String,
    /// What came out; a failing case is the smallest found.
    pub verdict: Verdict,
    /// How long the check took, shrinking not included.
    pub time: Duration,
}

impl Finished {
    /// The command that reproduces it.
    pub fn repro(&self) -> String {
        let command = match (&self.verdict, &self.word) {
            (_, Some(word)) if crate::property::find(self.property).is_none() => {
                format!("padproof run {}", quoted(word))
            }
            (Verdict::Fail(finding), _) => finding.repro(),
            _ => format!("padproof check {} {}", self.property, self.case),
        };
        command + &self.arguments
    }
}

/// A word as a shell takes it: in quotes where it holds more than names do.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=,:+@".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything ran.
    Whole,
    /// Enough checks had failed.
    MaxFail,
    /// It was interrupted.
    Interrupted,
}

/// What happens in a run, in this order.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// The first event.
    RunStarted {
        /// Where and how.
        environment: &'a Environment,
    },
    /// A case is about to run; a crash leaves this behind.
    CaseStarted {
        /// The case line or the entry's name.
        case: &'a str,
    },
    /// A failing case became smaller; the check that failed follows.
    Shrunk {
        /// The property that fails.
        property: &'static str,
        /// The case as found.
        from: &'a str,
        /// The smallest case found.
        to: &'a str,
    },
    /// A check was made.
    CaseFinished(&'a Finished),
    /// The last event.
    RunFinished {
        /// Verdicts by kind.
        counts: &'a Counts,
        /// Verdicts by property and subject, in the order of the properties.
        groups: &'a [Group],
        /// What the cases covered.
        coverage: &'a Coverage,
        /// Why the run as a whole proved too little, one sentence each.
        shortfalls: &'a [String],
        /// How the run ended.
        ended: Ended,
        /// The `--start` of the first random case that was not told, where a run that ended early
        /// goes on.
        resume: u64,
        /// How long the run took.
        time: Duration,
    },
}

/// Something that listens to a run.
pub trait Reporter {
    /// Takes one event.
    ///
    /// # Errors
    /// Those of the stream that is written to; they end the run.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()>;
}
