//! Seeds of the fuzz targets, and cases that failed once, through the targets' own functions.

#![expect(clippy::print_stdout, reason = "what ran is told when a test fails")]

use padproof::property::{self, Verdict};
use padproof::rule::Rules;
use padproof::run::hold;
use padproof::suite::{Expect, builtin, parse};
use std::path::Path;

#[path = "../fuzz/src/targets.rs"]
#[expect(unreachable_pub, reason = "the fuzz crate's public functions")]
mod targets;

use targets::{ALL, Outcome, ask, replay_path};

#[test]
fn every_seed_holds() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut failures = Vec::new();
    for (name, body) in ALL {
        let outcomes =
            replay_path(body, &seeds.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let held = outcomes.iter().filter(|(_, o)| *o == Outcome::Held).count();
        println!("{name}: {} seeds, {held} held", outcomes.len());
        assert!(outcomes.len() >= 10, "{name}: {} seeds", outcomes.len());
        assert!(held >= 5, "{name}: {held} seeds prove something");
        failures.extend(
            outcomes
                .into_iter()
                .filter_map(|(input, outcome)| match outcome {
                    Outcome::Failed(why) => Some(format!("{name}: {input}\n{why}")),
                    Outcome::Held | Outcome::Rejected => None,
                }),
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_folder_of_seeds_and_every_target_file_has_its_function() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let names: Vec<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    for folder in ["seeds", "fuzz_targets"] {
        let mut found: Vec<String> = std::fs::read_dir(fuzz.join(folder))
            .expect("the fuzz crate is here")
            .map(|e| e.expect("a readable folder").path())
            .map(|p| {
                p.file_stem()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        found.sort();
        assert_eq!(found, names, "fuzz/{folder}");
    }
}

#[test]
fn what_failed_once_holds_now() {
    let text = builtin("regressions").expect("it is shipped");
    let suite = parse(text, "tests/suites/regressions.toml").expect("it reads");
    for entry in &suite.plans {
        let verdict = hold(entry, Rules::builtin());
        assert!(
            matches!(verdict, Verdict::Pass(_)),
            "{}: {verdict:?}",
            entry.name
        );
    }
    for entry in suite.cases.iter().filter(|c| c.expect != Expect::Fail) {
        for property in property::ALL {
            if let Outcome::Failed(why) = ask(property.name, &entry.case) {
                panic!("{}: {why}", entry.name);
            }
        }
        // What proved nothing and passed must go on saying so, under each property named.
        if entry.expect == Expect::Vacuous {
            assert!(!entry.properties.is_empty(), "{} names none", entry.name);
            for name in &entry.properties {
                assert_eq!(
                    ask(name, &entry.case),
                    Outcome::Rejected,
                    "{}: {name}",
                    entry.name
                );
            }
        }
    }
}

#[test]
fn a_failing_claim_is_told_with_its_reproducer() {
    match ask("no-such-claim", &"t=1".parse().expect("a case")) {
        Outcome::Failed(why) => assert!(why.contains("no-such-claim"), "{why}"),
        other => panic!("{other:?}"),
    }
}
