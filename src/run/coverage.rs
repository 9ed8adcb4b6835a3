//! Counts what the cases of a run covered, so that a green run can be mistrusted.
//!
//! It must not judge verdicts. Layer 9.

use crate::case::Case;
use crate::plan::{Plan, plan_with};
use crate::property::is_padded;
use crate::rule::Rules;
use crate::terms::{Fill, Route};

/// What is counted: the name in reports and in `[suite.coverage]`, and its test.
type Counter = (&'static str, fn(&Case, &Plan) -> bool);

const COUNTERS: &[Counter] = &[
    ("padded", |_, plan| is_padded(plan)),
    ("tp>1", |case, _| case.tp / case.ep > 1),
    ("ep>1", |case, _| case.ep > 1),
    ("odd k", |case, _| case.k % 2 == 1),
    ("empty expert", |case, _| {
        case.t.saturating_mul(case.k) < case.e
    }),
    ("empty rank", |_, plan| {
        plan.ranks.iter().any(|r| r.len == 0)
    }),
    ("packed", |case, _| case.w.element().bits() == 4),
    ("scaled", |case, _| case.w.scale().is_some()),
    ("gated", |case, _| case.act.gated()),
    ("exact", |case, _| {
        case.fill == Fill::Exact && case.act.exact() && case.route == Route::Given
    }),
];

/// Names of what is counted.
pub const COVERAGE: &[&str] = &[
    "padded",
    "tp>1",
    "ep>1",
    "odd k",
    "empty expert",
    "empty rank",
    "packed",
    "scaled",
    "gated",
    "exact",
];

/// How many cases covered what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    cases: u64,
    hits: [u64; COUNTERS.len()],
}

impl Coverage {
    /// What one case covers; one without a plan covers nothing.
    pub fn of(case: &Case, rules: &Rules) -> Self {
        let mut one = Coverage {
            cases: 1,
            ..Coverage::default()
        };
        if let Ok(plan) = plan_with(case, rules) {
            for (hit, (_, test)) in one.hits.iter_mut().zip(COUNTERS) {
                *hit = u64::from(test(case, &plan));
            }
        }
        one
    }

    /// Adds what others covered.
    pub fn add(&mut self, other: &Coverage) {
        self.cases += other.cases;
        for (hit, more) in self.hits.iter_mut().zip(&other.hits) {
            *hit += more;
        }
    }

    /// Cases looked at.
    pub const fn cases(&self) -> u64 {
        self.cases
    }

    /// The share of cases that covered the thing of that name; nothing for an unknown name or
    /// without cases.
    pub fn share(&self, name: &str) -> Option<f64> {
        let at = COVERAGE.iter().position(|known| *known == name)?;
        (self.cases > 0).then(|| self.hits[at] as f64 / self.cases as f64)
    }

    /// Every name with its number of cases.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COVERAGE.iter().copied().zip(self.hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tests_stand_in_one_order() {
        let names: Vec<&str> = COUNTERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, COVERAGE);
    }

    #[test]
    fn a_case_covers_what_it_says() {
        let case: Case = "t=1,e=8,k=1,i=33,tp=2,w=mxfp4,pad=i32".parse().unwrap();
        let one = Coverage::of(&case, Rules::builtin());
        for name in [
            "padded",
            "tp>1",
            "odd k",
            "empty expert",
            "packed",
            "scaled",
            "gated",
        ] {
            assert_eq!(one.share(name), Some(1.0), "{name}");
        }
        assert_eq!(one.share("exact"), Some(0.0));
        assert_eq!(one.share("nothing"), None);
        assert_eq!(Coverage::default().share("padded"), None);
    }
}
