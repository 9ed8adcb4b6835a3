//! Which property catches which mutant.

use crate::case::Case;
use crate::r#gen::{Domain, draw};
use crate::mutant::{self, Mutant};
use crate::property::{ALL, Memory, Property, Trial, Verdict};
use crate::subject::Subject;

/// Cases of the matrix. Rare combinations (a tiled scale grid without storage padding) take hundreds.
const MATRIX_CASES: u64 = 1500;

/// One cell: how many cases on which the mutant was planted it took until it was caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Caught by this case, counting from 1 those that the mutant applied to.
    Caught(u64),
    /// Planted this often and never seen.
    Missed(u64),
    /// The subject cannot be asked this property at all.
    NotRun,
}

/// One mutant's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The mutant's name.
    pub mutant: &'static str,
    /// One cell per property of [`ALL`].
    pub cells: Vec<Cell>,
    /// Properties that claim to catch it and did not.
    pub unmet: Vec<&'static str>,
}

/// Tries one mutant against every property over `cases`; a property that claims the mutant sees
/// all of them, the others only the first `others`.
pub fn row(mutant: &'static Mutant, cases: &[Case], others: u64, subject: &mut dyn Subject) -> Row {
    let mut cells = Vec::with_capacity(ALL.len());
    let mut unmet = Vec::new();
    for property in ALL {
        if !property.suits(subject) {
            cells.push(Cell::NotRun);
            continue;
        }
        let claims = mutant.caught_by.contains(&property.name);
        let cell = cell(
            mutant,
            property,
            cases,
            if claims { u64::MAX } else { others },
            subject,
        );
        if claims && matches!(cell, Cell::Missed(_)) {
            unmet.push(property.name);
        }
        cells.push(cell);
    }
    Row {
        mutant: mutant.name,
        cells,
        unmet,
    }
}

/// A last block of scales that both halves leave short, which no drawn size does: draws are padded to whole ones.
const SHORT_BLOCKS: &str = "t=4,e=2,h=256,i=200,w=fp8-block,pad=i8,split=error,fill=wild";

/// Cases of the matrix: one in four of the uniform profile, the others of the full one, and one that is not drawn.
pub fn matrix_cases(seed: u64) -> Vec<Case> {
    let drawn = (0..MATRIX_CASES).map(|n| {
        let domain = if n % 4 == 0 {
            Domain::UNIFORM
        } else {
            Domain::FULL
        };
        draw(&domain, seed, n)
    });
    let short = SHORT_BLOCKS.parse().expect("the line is a case");
    drawn.chain([short]).collect()
}

fn cell(
    mutant: &'static Mutant,
    property: &Property,
    cases: &[Case],
    most: u64,
    subject: &mut dyn Subject,
) -> Cell {
    let mut planted = 0;
    let mut memory = Memory::default();
    for case in cases
        .iter()
        .take(usize::try_from(most).unwrap_or(usize::MAX))
    {
        let mut trial = Trial::mutated(subject, mutant).with_memory(memory);
        let verdict = (property.check)(case, &mut trial);
        let changed = trial.planted;
        memory = trial.into_memory();
        // What was not judged was not missed.
        if !changed || matches!(verdict, Verdict::Skip(_)) {
            continue;
        }
        planted += 1;
        // A mutant that makes the harness itself stumble was noticed, but not by the claim.
        if matches!(verdict, Verdict::Fail(_)) {
            return Cell::Caught(planted);
        }
    }
    Cell::Missed(planted)
}

/// Properties that no row caught anything with; not those that the subject cannot be asked.
pub fn idle(rows: &[Row]) -> Vec<&'static str> {
    idle_but(rows, |_| false)
}

/// Properties that the subject cannot be asked.
pub(super) fn not_run(rows: &[Row]) -> Vec<&'static str> {
    let never = |n: &usize| rows.iter().all(|r| r.cells[*n] == Cell::NotRun);
    (0..ALL.len()).filter(never).map(|n| ALL[n].name).collect()
}

/// The same; those that `may_rest` are left out where nothing was planted for them.
pub(super) fn idle_but(rows: &[Row], may_rest: impl Fn(usize) -> bool) -> Vec<&'static str> {
    let asked = |n: usize| !may_rest(n) || rows.iter().any(|r| r.cells[n] != Cell::Missed(0));
    (0..ALL.len())
        .filter(|&n| asked(n))
        .filter(|&n| rows.iter().any(|r| r.cells[n] != Cell::NotRun))
        .filter(|&n| !rows.iter().any(|r| matches!(r.cells[n], Cell::Caught(_))))
        .map(|n| ALL[n].name)
        .collect()
}

/// Names in `caught_by` lists that are no property: always empty, as a test holds.
pub fn unknown_claims() -> Vec<&'static str> {
    let known = |name: &&'static str| ALL.iter().any(|p| p.name == *name);
    mutant::ALL
        .iter()
        .flat_map(|m| m.caught_by)
        .copied()
        .filter(|n| !known(n))
        .collect()
}
