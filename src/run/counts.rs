//! Counts verdicts, in all and by property and subject.
//!
//! It must not decide the exit code. Layer 9.

use super::Finished;
use crate::property::{Tier, Vacuous, Verdict};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The kind of a verdict, from best to worst as a report's line shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Held.
    Pass,
    /// Could not be asked.
    Skip,
    /// Agreed and proved nothing.
    Vacuous,
    /// Failed.
    Fail,
    /// The harness failed.
    Broken,
}

impl Kind {
    /// The kind of a verdict.
    pub const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Pass(_) => Kind::Pass,
            Verdict::Skip(_) => Kind::Skip,
            Verdict::Vacuous(_) => Kind::Vacuous,
            Verdict::Fail(_) => Kind::Fail,
            Verdict::Broken(_) => Kind::Broken,
        }
    }

    /// The word of reports.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Pass => "PASS",
            Kind::Skip => "SKIP",
            Kind::Vacuous => "VACUOUS",
            Kind::Fail => "FAIL",
            Kind::Broken => "BROKEN",
        }
    }
}

/// Verdicts by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Passes.
    pub passed: u64,
    /// Failures.
    pub failed: u64,
    /// Broken checks.
    pub broken: u64,
    /// Vacuous verdicts.
    pub vacuous: u64,
    /// Skips.
    pub skipped: u64,
}

impl Counts {
    /// Counts one verdict.
    pub fn add(&mut self, verdict: &Verdict) {
        let slot = match Kind::of(verdict) {
            Kind::Pass => &mut self.passed,
            Kind::Skip => &mut self.skipped,
            Kind::Vacuous => &mut self.vacuous,
            Kind::Fail => &mut self.failed,
            Kind::Broken => &mut self.broken,
        };
        *slot += 1;
    }

    /// Checks that ran, skips left out.
    pub const fn ran(&self) -> u64 {
        self.passed + self.failed + self.broken + self.vacuous
    }

    /// Checks in all.
    pub const fn total(&self) -> u64 {
        self.ran() + self.skipped
    }
}

/// Reasons of skips that a group keeps apart.
const SKIPS_MAX: usize = 32;
/// What the rest of them are counted under.
const OTHER: &str = "other reasons";

/// The verdicts of one property on one subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The property.
    pub property: &'static str,
    /// The subject.
    pub subject: Cow<'static, str>,
    /// Verdicts by kind.
    pub counts: Counts,
    /// Passes of a program with other bits though padding keeps its order of summation.
    pub other_bits: u64,
    /// How many verdicts were vacuous for each reason.
    pub vacuous: BTreeMap<Vacuous, u64>,
    /// How many checks were skipped for each reason, as far as there are few; the rest together.
    pub skips: BTreeMap<String, u64>,
    /// Time of all its checks together.
    pub time: Duration,
    /// Largest share of vacuous verdicts under which it still reads PASS.
    pub vacuous_max: f64,
}

impl Group {
    /// An empty group.
    pub fn new(
        property: &'static str,
        subject: impl Into<Cow<'static, str>>,
        vacuous_max: f64,
    ) -> Self {
        Group {
            property,
            subject: subject.into(),
            counts: Counts::default(),
            other_bits: 0,
            vacuous: BTreeMap::new(),
            skips: BTreeMap::new(),
            time: Duration::ZERO,
            vacuous_max,
        }
    }

    /// Counts one check of the group.
    pub fn add(&mut self, finished: &Finished) {
        self.counts.add(&finished.verdict);
        self.time += finished.time;
        match &finished.verdict {
            Verdict::Vacuous(reason) => *self.vacuous.entry(*reason).or_default() += 1,
            Verdict::Skip(reason) => self.skipped(reason.to_string()),
            Verdict::Pass(Tier::OtherBits) => self.other_bits += 1,
            Verdict::Pass(_) | Verdict::Fail(_) | Verdict::Broken(_) => {}
        }
    }

    fn skipped(&mut self, reason: String) {
        let known = self.skips.len() < SKIPS_MAX || self.skips.contains_key(&reason);
        let reason = if known { reason } else { OTHER.to_owned() };
        *self.skips.entry(reason).or_default() += 1;
    }

    /// The commonest reason of a vacuous verdict, or else of a skip.
    pub fn reason(&self) -> Option<&str> {
        let vacuous = self.vacuous.iter().rev().max_by_key(|(_, count)| **count);
        let skip = self.skips.iter().rev().max_by_key(|(_, count)| **count);
        let vacuous = vacuous.map(|(reason, _)| reason.reason());
        vacuous.or(skip.map(|(reason, _)| reason.as_str()))
    }

    /// What the group's line reads: its worst verdict; vacuous ones count when they pass the share
    /// that is allowed, skips when nothing else is there.
    pub fn kind(&self) -> Kind {
        let c = &self.counts;
        let proving = c.passed + c.vacuous;
        if c.broken > 0 {
            Kind::Broken
        } else if c.failed > 0 {
            Kind::Fail
        } else if c.vacuous > 0 && c.vacuous as f64 > self.vacuous_max * proving as f64 {
            Kind::Vacuous
        } else if c.passed == 0 && c.vacuous == 0 {
            Kind::Skip
        } else {
            Kind::Pass
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(passed: u64, vacuous: u64, skipped: u64) -> Kind {
        let mut group = Group::new("p", "-", 0.5);
        group.counts = Counts {
            passed,
            vacuous,
            skipped,
            ..Counts::default()
        };
        group.kind()
    }

    #[test]
    fn vacuous_wins_over_pass_only_past_the_allowed_share() {
        assert_eq!(group(5, 5, 0), Kind::Pass);
        assert_eq!(group(4, 5, 100), Kind::Vacuous);
        assert_eq!(group(0, 0, 3), Kind::Skip);
        assert_eq!(group(1, 0, 3), Kind::Pass);
    }

    #[test]
    fn one_failure_or_breakage_decides_the_line() {
        let mut group = Group::new("p", "-", 0.5);
        group.counts.passed = 100;
        group.counts.failed = 1;
        assert_eq!(group.kind(), Kind::Fail);
        group.counts.broken = 1;
        assert_eq!(group.kind(), Kind::Broken);
    }
}
