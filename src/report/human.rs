//! The format for people (style.md C.5): a line per property, every failure with its evidence,
//! what was covered, and a summary.
//!
//! It must not decide anything; verdict words are coloured, and carry the meaning alone. Layer 10.

use super::block::finding_block;
use super::style::kind_word;
use super::words::{plural, seconds, thousands};
use crate::run::{Counts, Coverage, Ended, Event, Finished, Group, Kind, Reporter};
use std::io::{self, Write};
use std::time::Duration;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// What did not pass, and the summary.
    Quiet,
    /// One line per property and subject.
    Normal,
    /// Also skips with reasons, and each case before it runs.
    Verbose,
    /// Also bound derivations and differing elements.
    Full,
}

/// Failures that are repeated at the end.
const REPEATED_MAX: usize = 10;

/// The human format.
pub struct Human<'w> {
    out: Box<dyn Write + 'w>,
    verbosity: Verbosity,
    keep: bool,
    failures: Vec<Finished>,
    shown: usize,
    /// Whether there are random cases, so that there is a place to go on from.
    draws: bool,
}

impl<'w> Human<'w> {
    /// Writes to `out`; with `keep`, failures say how to keep their case.
    pub fn new(out: impl Write + 'w, verbosity: Verbosity, keep: bool) -> Self {
        Human {
            out: Box::new(out),
            verbosity,
            keep,
            failures: Vec::new(),
            shown: 0,
            draws: false,
        }
    }

    fn block(&mut self, done: &Finished) -> io::Result<()> {
        let full = self.verbosity >= Verbosity::Full;
        finding_block(done, full, self.keep, &mut self.out)
    }

    fn check(&mut self, done: &Finished) -> io::Result<()> {
        match Kind::of(&done.verdict) {
            Kind::Fail | Kind::Broken => {
                self.shown += 1;
                if self.failures.len() < REPEATED_MAX {
                    self.failures.push(done.clone());
                }
                self.block(done)?;
                self.out.flush()
            }
            Kind::Skip | Kind::Vacuous if self.verbosity >= Verbosity::Verbose => {
                let word = kind_word(Kind::of(&done.verdict), 8);
                let why = super::parts::reason(&done.verdict).unwrap_or_default();
                writeln!(
                    self.out,
                    "{word} {}  {}  {}  {why}",
                    done.property, done.subject, done.case
                )
            }
            _ => Ok(()),
        }
    }

    fn groups(&mut self, groups: &[Group]) -> io::Result<()> {
        let width = |text: fn(&Group) -> usize| groups.iter().map(text).max().unwrap_or(0);
        let (property, subject) = (width(|g| g.property.len()), width(|g| g.subject.len()));
        let counts: Vec<String> = groups.iter().map(cases).collect();
        let count = counts.iter().map(String::len).max().unwrap_or(0);
        for (group, cases) in groups.iter().zip(counts) {
            let kind = group.kind();
            if self.verbosity == Verbosity::Quiet && kind <= Kind::Skip {
                continue;
            }
            let reason = match (kind, group.reason()) {
                (Kind::Vacuous, _) if group.vacuous.len() > 1 => format!("  {}", reasons(group)),
                (Kind::Vacuous | Kind::Skip, Some(reason)) => format!("  {reason}"),
                // Where most could not be asked, why is worth a word.
                (Kind::Pass, Some(reason))
                    if group.vacuous.is_empty() && group.counts.skipped > group.counts.passed =>
                {
                    format!("  skipped most for: {reason}")
                }
                (Kind::Pass, _) if group.other_bits > 0 => {
                    format!("  same order, other bits ({})", thousands(group.other_bits))
                }
                _ => String::new(),
            };
            writeln!(
                self.out,
                "{} {:property$}  {:subject$}  {cases:>count$}  {:>6}{reason}",
                kind_word(kind, 8),
                group.property,
                group.subject,
                seconds(group.time),
            )?;
        }
        Ok(())
    }

    fn coverage(&mut self, coverage: &Coverage) -> io::Result<()> {
        if coverage.cases() == 0 || self.verbosity == Verbosity::Quiet {
            return Ok(());
        }
        write!(self.out, "\ncoverage")?;
        for (name, hits) in coverage.iter() {
            write!(self.out, "  {name} {}%", hits * 100 / coverage.cases())?;
        }
        writeln!(self.out)
    }

    fn repeat(&mut self) -> io::Result<()> {
        let failures = std::mem::take(&mut self.failures);
        if failures.is_empty() || self.verbosity == Verbosity::Quiet {
            return Ok(());
        }
        let more = if self.shown > failures.len() {
            format!(", the first {}", failures.len())
        } else {
            String::new()
        };
        let count = plural(self.shown as u64, "failure");
        writeln!(self.out, "\n{count}{more}:")?;
        failures.iter().try_for_each(|done| self.block(done))
    }

    fn stopped(&mut self, ended: Ended, resume: u64) -> io::Result<()> {
        let why = match ended {
            Ended::Whole => return Ok(()),
            Ended::MaxFail => "stopped at the failure limit (--max-fail)",
            Ended::Interrupted => "interrupted",
        };
        // Before the first random case there is nothing to go on from.
        if self.draws && resume > 0 {
            writeln!(self.out, "{why}; go on with --start {resume}")
        } else {
            writeln!(self.out, "{why}")
        }
    }

    fn summary(&mut self, counts: &Counts, groups: &[Group], time: Duration) -> io::Result<()> {
        let mut names: Vec<&str> = groups.iter().map(|g| g.property).collect();
        names.dedup();
        let broken = if counts.broken > 0 {
            format!("{} broken, ", thousands(counts.broken))
        } else {
            String::new()
        };
        writeln!(
            self.out,
            "{}, {}: {} passed, {} failed, {broken}{} vacuous, {} skipped in {}",
            plural(names.len() as u64, "property"),
            plural(counts.total(), "check"),
            thousands(counts.passed),
            thousands(counts.failed),
            thousands(counts.vacuous),
            thousands(counts.skipped),
            seconds(time)
        )
    }
}

/// `tp=1 (30), output mostly zero (11)`: every reason of a vacuous verdict, the commonest first.
fn reasons(group: &Group) -> String {
    let mut all: Vec<_> = group.vacuous.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words: Vec<String> = (all.iter())
        .map(|(reason, count)| format!("{} ({})", reason.reason(), thousands(**count)))
        .collect();
    words.join(", ")
}

/// `512 cases`, or of how many when not all came to the line's verdict.
fn cases(group: &Group) -> String {
    let total = group.counts.total();
    let part = match group.kind() {
        Kind::Pass => group.counts.passed,
        Kind::Skip => group.counts.skipped,
        Kind::Vacuous => group.counts.vacuous,
        Kind::Fail => group.counts.failed,
        Kind::Broken => group.counts.broken,
    };
    if part == total {
        plural(total, "case")
    } else {
        format!("{} of {}", thousands(part), plural(total, "case"))
    }
}

impl Reporter for Human<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::RunStarted { environment: e } => {
                self.draws = e.cases != Some(0);
                writeln!(
                    self.out,
                    "padproof {}  seed {}  tier {}  {}",
                    e.version, e.seed, e.tier, e.device
                )?;
                self.out.flush()
            }
            Event::CaseStarted { case } => {
                if self.verbosity >= Verbosity::Verbose {
                    writeln!(self.out, "run      {case}")?;
                    self.out.flush()?;
                }
                Ok(())
            }
            Event::Shrunk { .. } => Ok(()),
            Event::CaseFinished(done) => self.check(done),
            Event::RunFinished {
                counts,
                groups,
                coverage,
                shortfalls,
                ended,
                resume,
                time,
            } => {
                if self.shown > 0 {
                    writeln!(self.out)?;
                }
                self.groups(groups)?;
                self.coverage(coverage)?;
                for shortfall in *shortfalls {
                    writeln!(self.out, "{} {shortfall}", kind_word(Kind::Vacuous, 8))?;
                }
                self.repeat()?;
                self.stopped(*ended, *resume)?;
                self.summary(counts, groups, *time)?;
                self.out.flush()
            }
        }
    }
}
