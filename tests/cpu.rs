//! The CPU subject over drawn cases: through the planner, the fill and the layout.

use padproof::case::{Case, PadSpec, Scheme};
use padproof::compare::{Bound, compare, compare_outputs};
use padproof::fill::fill;
use padproof::r#gen::{Domain, draw};
use padproof::layout::pack_layer;
use padproof::plan::{Plan, plan};
use padproof::reference::reference;
use padproof::subject::{Cpu, Subject, SubjectError};
use padproof::tensor::{Logical, Output};

/// Runs a case; `None` when it cannot be planned, laid out or run.
fn run(case: &Case, logical: &Logical) -> Option<(Plan, Output)> {
    let plan = plan(case).ok()?;
    let inputs = pack_layer(&plan, logical).ok()?;
    match Cpu::new().run(&plan, &inputs) {
        Ok(output) => Some((plan, output)),
        Err(SubjectError::Skipped(_)) => None,
        Err(error) => panic!("{case}: {error}"),
    }
}

#[test]
fn outputs_stay_within_the_references_bound() {
    // The uniform domain draws wild values only: nothing in it is exact.
    for (domain, least_exact) in [(&Domain::FULL, 10), (&Domain::UNIFORM, 0)] {
        let (mut compared, mut exact) = (0, 0);
        for index in 0..400 {
            let case = draw(domain, 11, index);
            let Ok(logical) = fill(&case) else { continue };
            let Some((plan, output)) = run(&case, &logical) else {
                continue;
            };
            if plan.fit > padproof::plan::Fit::Unknown {
                continue;
            }
            let Ok(wanted) = reference(&case, &logical) else {
                continue;
            };
            if wanted.ambiguous.iter().any(|&a| a) {
                continue;
            }
            assert_eq!(wanted.ids, output.ids, "{case}");
            let bound = if wanted.exact {
                exact += 1;
                Bound::EqualBits {
                    why: "every operation is exact".into(),
                }
            } else {
                Bound::Derived {
                    limits: &wanted.bound,
                    derivation: "reference".into(),
                }
            };
            let comparison = compare(&wanted.values, &output, &bound);
            assert!(comparison.agree, "{case}: {:?}", comparison.first);
            compared += 1;
        }
        assert!(compared > 200, "only {compared} of 400 compared");
        assert!(exact >= least_exact, "only {exact} of {compared} exact");
    }
}

#[test]
fn padding_a_drawn_case_changes_no_bits() {
    let (mut compared, mut padded) = (0, 0);
    for index in 0..400 {
        let case = draw(&Domain::FULL, 12, index);
        let Scheme::Spelled(spec) = case.scheme else {
            continue;
        };
        let mut bare = case.clone();
        bare.scheme = Scheme::Spelled(PadSpec {
            hidden: 1,
            intermediate: 1,
            tokens: 1,
            ..spec
        });
        let Ok(logical) = fill(&case) else { continue };
        let (Some((plan, actual)), Some((bare_plan, wanted))) =
            (run(&case, &logical), run(&bare, &logical))
        else {
            continue;
        };
        // Wrong schemes, and splits that cut elsewhere, add other numbers first.
        if plan.fit > padproof::plan::Fit::Unknown || plan.ranks != bare_plan.ranks {
            continue;
        }
        let bound = Bound::EqualBits {
            why: "the order is pad-stable".into(),
        };
        let comparison = compare_outputs(&wanted, &actual, &bound);
        assert!(comparison.agree, "{case}: {:?}", comparison.first);
        compared += 1;
        padded += usize::from(plan.width_padded != bare_plan.width_padded);
    }
    assert!(
        compared > 100 && padded > 50,
        "{compared} compared, {padded} padded"
    );
}
