//! Every verified model of the survey is one of the shipped ones.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use padproof::model::builtin;

/// facts/upstream-padding.md 4.1, where the survey lies beside the repository.
#[test]
fn every_verified_row_of_the_survey_is_shipped() {
    let path = "../shared/facts/upstream-padding.md";
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => return println!("skipped the comparison with {path}: {e}"),
    };
    let after = text.split("### 4.1").nth(1).expect("section 4.1");
    let section = after.split("### 4.2").next().expect("section 4.2");
    let mut verified = 0;
    for line in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells
            .last()
            .is_some_and(|status| status.contains("verified"))
        {
            verified += 1;
            let name = cells[0].replace('*', "");
            let name = name.split(" (").next().unwrap_or_default();
            let row = format!("row {name}");
            let shipped = builtin().iter().any(|model| model.source.contains(&row));
            assert!(shipped, "{name}");
        }
    }
    assert!(verified > 55, "{verified}");
}
