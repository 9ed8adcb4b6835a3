//! Plants every mutant and asks every property, over all threads.
//!
//! It must not know what a mutant does. Layer 9.

use super::matrix::{Cell, Row, idle, idle_but, not_run, row};
use crate::case::Case;
use crate::mutant;
use crate::plan::plan;
use crate::property::ALL;
use crate::subject::{SkipReason, SubjectChoice};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cases after which a property that does not claim a mutant gives up on it.
const OTHERS: u64 = 16;

/// The mutant matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// One row per mutant, in the order of the catalogue.
    pub rows: Vec<Row>,
    /// Mutants that no property caught.
    pub uncaught: Vec<&'static str>,
    /// Properties that caught no mutant.
    pub idle: Vec<&'static str>,
    /// Properties that this subject cannot be asked.
    pub not_run: Vec<&'static str>,
    /// Mutants that an interrupt left out: of what was asked alone no property is called idle or not run.
    pub left_out: usize,
}

impl Matrix {
    /// Whether every mutant is caught by those that claim it, and every property catches one.
    pub fn holds(&self) -> bool {
        self.uncaught.is_empty()
            && self.idle.is_empty()
            && self.rows.iter().all(|row| row.unmet.is_empty())
    }
}

/// Whether the subject runs any of the cases at all.
///
/// # Errors
/// Why it runs none: the reason of the first that can be planned.
pub fn runs_any(cases: &[Case], choice: &SubjectChoice) -> Result<(), SkipReason> {
    let subject = choice.subject();
    let mut first = None;
    for plan in cases.iter().filter_map(|case| plan(case).ok()) {
        match subject.supports(&plan) {
            Ok(()) => return Ok(()),
            Err(why) if first.is_none() => first = Some(why),
            Err(_) => {}
        }
    }
    Err(first.unwrap_or_else(|| SkipReason::Inapplicable("none can be planned".to_owned())))
}

/// Tries every mutant on the given cases, with the chosen subject, until `stop` is set; tells each that is done to
/// `done`. What was running when it was set is left out: an interrupt ends a subject in its midst.
///
/// The CPU subject takes every plan: a claim for which nothing could be planted is not met then. Of
/// another one that is only said by the cell.
pub fn matrix(
    cases: &[Case],
    subject: &SubjectChoice,
    stop: &AtomicBool,
    done: impl Fn(&'static str) + Sync,
) -> Matrix {
    let stopped = || stop.load(Ordering::Relaxed);
    let mut rows: Vec<Row> = mutant::ALL
        .par_iter()
        .filter_map(|mutant| {
            if stopped() {
                return None;
            }
            let row = row(mutant, cases, OTHERS, subject.subject().as_mut());
            done(mutant.name);
            (!stopped()).then_some(row)
        })
        .collect();
    let takes_all = matches!(subject, SubjectChoice::Cpu);
    if !takes_all {
        let never = |row: &Row, name: &str| {
            let unasked = |cell: &Cell| matches!(cell, Cell::Missed(0) | Cell::NotRun);
            (ALL.iter().zip(&row.cells)).any(|(p, cell)| p.name == name && unasked(cell))
        };
        for row in &mut rows {
            let kept = row.unmet.iter().copied().filter(|name| !never(row, name));
            row.unmet = kept.collect();
        }
    }
    let missed = |row: &&Row| !row.cells.iter().any(|cell| matches!(cell, Cell::Caught(_)));
    let left_out = mutant::ALL.len() - rows.len();
    let idle = match (left_out, takes_all) {
        (0, true) => idle(&rows),
        (0, false) => idle_but(&rows, |_| true),
        _ => Vec::new(),
    };
    Matrix {
        uncaught: rows.iter().filter(missed).map(|row| row.mutant).collect(),
        idle,
        not_run: match left_out {
            0 => not_run(&rows),
            _ => Vec::new(),
        },
        rows,
        left_out,
    }
}
