//! Defines a suite and its entries.
//!
//! It must not read files. Layer 8.

use super::file_entry::FileEntry;
use super::plan_entry::PlanEntry;
use crate::case::Case;
use std::collections::BTreeMap;

/// A named file of cases, plans and audits, sweeps expanded.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// Its name, which begins every entry's full name.
    pub name: String,
    /// The file it came from, as given.
    pub file: String,
    /// Line of `[suite]` in it, from 1.
    pub line: usize,
    /// Whether it is shipped in the program, where its name alone finds it.
    pub shipped: bool,
    /// What it is for, in a sentence.
    pub about: Option<String>,
    /// Properties to run; all if empty.
    pub properties: Vec<String>,
    /// Least shares of what the cases must cover, by the coverage's name (`padded`).
    pub coverage: BTreeMap<String, f64>,
    /// Largest share of vacuous verdicts under which a line still reads PASS (style.md C.5: half).
    pub vacuous_max: f64,
    /// Cases, in file order, sweeps in order of their keys.
    pub cases: Vec<CaseEntry>,
    /// Plans, in file order.
    pub plans: Vec<PlanEntry>,
    /// Audits of invented files, in file order.
    pub files: Vec<FileEntry>,
}

/// One case of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseEntry {
    /// Full name, for example `boundary/remainders/i=33,tp=2`.
    pub name: String,
    /// The case.
    pub case: Case,
    /// What must come out.
    pub expect: Expect,
    /// Properties to run instead of the suite's; empty if the suite's hold.
    pub properties: Vec<String>,
    /// Why the entry is there.
    pub why: Option<String>,
    /// Where its story is told.
    pub link: Option<String>,
    /// Line of the entry in the file, from 1.
    pub line: usize,
}

/// What a case must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Every property passes (or skips).
    Pass,
    /// At least one property fails; if none does, the entry is stale and reported.
    Fail,
    /// At least one property proves nothing and says so; if none does, the entry is stale.
    Vacuous,
}
