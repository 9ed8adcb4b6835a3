//! Goal: the lemmas of `proofs/` hold for all sizes. Method: z3 answers every file; without it the
//! test says so and proves nothing. That formulas are the program's is tested in `src/proof/`.

#![expect(
    clippy::print_stderr,
    reason = "what was skipped, and why, is the result where there is no solver"
)]

use padproof::proof::{FILES, lemmas};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The least version known to end: 4.8 does not (facts/feasibility.md 4).
const MAJOR_MIN: u32 = 5;

/// The solver, or why there is none.
fn solver() -> Result<String, String> {
    let named = std::env::var("PADPROOF_Z3").ok();
    let program = named.clone().unwrap_or_else(|| "z3".to_owned());
    let out = match Command::new(&program).arg("--version").output() {
        Ok(out) => out,
        Err(error) => {
            assert!(named.is_none(), "PADPROOF_Z3={program}: {error}");
            return Err(format!(
                "no z3 on PATH ({error}), and PADPROOF_Z3 is not set"
            ));
        }
    };
    let version = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let major = version
        .split(['.', ' '])
        .find_map(|w| w.parse::<u32>().ok());
    match major {
        Some(major) if major >= MAJOR_MIN => Ok(program),
        _ => Err(format!(
            "{version}: the lemmas need {MAJOR_MIN}.0 or later to end"
        )),
    }
}

#[test]
fn z3_answers_every_lemma_as_it_should() {
    let program = match solver() {
        Ok(program) => program,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let begun = Instant::now();
    let mut faults = Vec::new();
    for (file, _) in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("proofs")
            .join(file);
        let out = Command::new(&program)
            .args(["-T:30", "-t:8000"])
            .arg(&path)
            .output()
            .expect("z3 runs");
        let text = String::from_utf8_lossy(&out.stdout);
        let here: Vec<_> = lemmas().into_iter().filter(|l| l.file == *file).collect();
        let mut answers = text.lines();
        for lemma in &here {
            let answer = answers.next().unwrap_or("no answer");
            if answer != lemma.wanted.answer() {
                faults.push(format!("{file}: {}: {answer}", lemma.name));
            }
        }
        faults.extend(answers.map(|line| format!("{file}: {line}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    eprintln!(
        "{} lemmas in {:.1} s",
        lemmas().len(),
        begun.elapsed().as_secs_f32()
    );
}
