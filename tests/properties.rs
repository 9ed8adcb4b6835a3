//! Goal: every property holds over drawn cases. Method: the runner's own draws, a fixed seed for
//! the counts and proptest for shrinking.

#![expect(clippy::print_stdout, reason = "what ran is told when a test fails")]

use padproof::r#gen::{Domain, draw, strategy};
use padproof::property::{ALL, Needs, Trial, Verdict, find};
use padproof::subject::{Cpu, SkipReason};
use proptest::prelude::*;

/// Draws per property and profile.
const CASES: u64 = 300;

#[test]
fn every_property_holds_over_drawn_cases_and_proves_something() {
    let mut failures = Vec::new();
    // Those of subjects with two paths are asked in tests/kernels, those of sizes in tests/external.
    let narrow = [Needs::Paths, Needs::Sizes];
    for property in ALL.iter().filter(|p| !narrow.contains(&p.needs)) {
        let mut cpu = Cpu::default();
        let mut trial = Trial::new(&mut cpu);
        let (mut passed, mut skipped, mut vacuous, mut inapplicable) = (0, 0, 0, 0);
        let (mut proved, mut proving) = (0, 0);
        for n in 0..CASES {
            let domain = [Domain::FULL, Domain::UNIFORM][(n % 2) as usize];
            let case = draw(&domain, 0x5eed, n);
            let verdict = (property.check)(&case, &mut trial);
            // The uniform profile pads neither hidden nor tokens, by definition.
            if n % 2 == 0 {
                proved += u64::from(matches!(verdict, Verdict::Pass(_)));
                proving += u64::from(matches!(verdict, Verdict::Pass(_) | Verdict::Vacuous(_)));
            }
            match verdict {
                Verdict::Pass(_) => passed += 1,
                Verdict::Skip(SkipReason::Inapplicable(_)) => inapplicable += 1,
                Verdict::Skip(_) => skipped += 1,
                Verdict::Vacuous(_) => vacuous += 1,
                Verdict::Fail(f) => failures.push(format!(
                    "{}: {} wanted {}, got {} ({}; {} of {})\n  {}",
                    property.name,
                    f.place,
                    f.wanted,
                    f.actual,
                    f.bound,
                    f.differing,
                    f.total,
                    f.repro()
                )),
                Verdict::Broken(e) => {
                    failures.push(format!("{} {case}: broken: {e}", property.name))
                }
            }
        }
        println!(
            "{:18} passed {passed} skipped {skipped} inapplicable {inapplicable} vacuous {vacuous}",
            property.name
        );
        // Of all draws most prove something; a run of any length then reads PASS.
        if skipped * 5 > CASES || inapplicable * 2 > CASES || proved * 5 < proving * 3 {
            failures.push(format!(
                "{}: {passed} passed, {vacuous} vacuous, {skipped} skipped of {CASES}",
                property.name
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures[..failures.len().min(30)].join("\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn padding_preserves_outputs(case in strategy(Domain::FULL)) {
        let property = find("pad-identity").expect("it is listed");
        let mut cpu = Cpu::default();
        let verdict = (property.check)(&case, &mut Trial::new(&mut cpu));
        if let Verdict::Fail(finding) = &verdict {
            prop_assert!(false, "{}", finding.repro());
        }
        prop_assert!(!matches!(verdict, Verdict::Broken(_)), "{verdict:?}");
    }
}
