//! Goal: every mutant is caught by the properties that claim it, and every property catches one.
//! Method: the same rows as `padproof run --mutants`, over drawn cases.

#![expect(clippy::print_stdout, reason = "what ran is told when a test fails")]

use padproof::property::ALL;
use padproof::run::{Cell, idle, matrix_cases, row, unknown_claims};
use padproof::subject::Cpu;
use padproof::{mutant, property};
use std::collections::HashSet;

#[test]
fn names_are_unique_and_claims_are_properties() {
    let names: HashSet<_> = mutant::ALL.iter().map(|m| m.name).collect();
    assert_eq!(names.len(), mutant::ALL.len());
    assert!(names.len() >= 30);
    assert_eq!(unknown_claims(), Vec::<&str>::new());
    let properties: HashSet<_> = property::ALL.iter().map(|p| p.name).collect();
    assert_eq!(properties.len(), property::ALL.len());
}

#[test]
fn every_mutant_is_caught_and_every_property_catches_one() {
    let cases = matrix_cases(0x5eed);
    let mut cpu = Cpu::default();
    let rows: Vec<_> = mutant::ALL
        .iter()
        .map(|m| row(m, &cases, 0, &mut cpu))
        .collect();
    let mut faults = Vec::new();
    for row in &rows {
        let cells: Vec<_> = ALL
            .iter()
            .zip(&row.cells)
            .filter_map(|(p, cell)| match cell {
                Cell::Caught(n) => Some(format!("{} at {n}", p.name)),
                Cell::Missed(_) | Cell::NotRun => None,
            })
            .collect();
        println!("{:32} {}", row.mutant, cells.join(", "));
        for property in &row.unmet {
            let n = ALL
                .iter()
                .position(|p| p.name == *property)
                .expect("claims are properties");
            faults.push(format!(
                "{} is not caught by {property}: {:?}",
                row.mutant, row.cells[n]
            ));
        }
    }
    for property in idle(&rows) {
        faults.push(format!("{property} catches no mutant"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
