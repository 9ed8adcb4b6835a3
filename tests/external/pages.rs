//! docs/python-subject.md: the function that it shows is a subject.

use crate::external::{padproof, python, text};
use std::path::Path;

#[test]
fn the_function_shown_is_a_subject() {
    let Some(python) = python("numpy") else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/python-subject.md")).unwrap();
    let shown = page.split("```python\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    // It stands in a list: three spaces in.
    let lines = shown.lines().map(|l| l.strip_prefix("   ").unwrap_or(l));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my_kernel.py");
    std::fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let helpers = root.join("python/padproof_subject.py");
    std::fs::copy(helpers, folder.path().join("padproof_subject.py")).unwrap();
    let command = format!("{python} -B {}", file.display());
    let commands: Vec<&str> = page
        .lines()
        .filter_map(|l| l.trim().strip_prefix("padproof "))
        .collect();
    assert_eq!(commands.len(), 2);
    for shown in commands {
        let (words, subject) = shown.split_once(" --subject '").unwrap();
        assert_eq!(subject, "venv/bin/python my_kernel.py'");
        let words = words.replace("smoke boundary -n 1000", "-n 60 --profile small");
        let mut words: Vec<&str> = words.split(' ').collect();
        words.extend(["--subject", &command]);
        let said = text(&padproof(&words).stdout);
        let verdict = if words[0] == "run" {
            " 0 failed"
        } else {
            "PASS pad-identity"
        };
        assert!(said.contains(verdict), "{said}");
    }
}
