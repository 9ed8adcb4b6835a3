//! Asks one property of one case, under the one `catch_unwind`, and shrinks what fails.
//!
//! It must not choose cases. Layer 9.

use crate::case::Case;
use crate::r#gen::minimise;
use crate::property::{Finding, Memory, Needs, Property, Trial, Verdict};
use crate::subject::{Cpu, Subject};
use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The name of the subject that runs everywhere.
pub const SUBJECT: &str = "cpu";

/// Most checks that one walk to a smaller case may make.
const SHRINK_BUDGET: usize = 400;

/// A worker's subject and memory, kept from check to check.
#[derive(Default)]
pub(super) struct Worker {
    cpu: Cpu,
    memory: Memory,
}

impl Worker {
    /// Asks the property; a panic becomes a finding of its own kind.
    pub(super) fn check(&mut self, property: &Property, case: &Case) -> Verdict {
        let mut trial = Trial::new(&mut self.cpu).with_memory(mem::take(&mut self.memory));
        let asked = catch_unwind(AssertUnwindSafe(|| (property.check)(case, &mut trial)));
        match asked {
            Ok(verdict) => {
                self.memory = trial.into_memory();
                verdict
            }
            Err(payload) => {
                // What the panic left half done is not used again.
                self.cpu = Cpu::default();
                Verdict::Fail(Box::new(panicked(property, case, payload.as_ref())))
            }
        }
    }

    /// The smallest case found that still fails.
    pub(super) fn shrink(&mut self, property: &Property, case: &Case) -> Case {
        let fails = |c: &Case| matches!(self.check(property, c), Verdict::Fail(_));
        minimise(case, fails, SHRINK_BUDGET)
    }
}

/// Asks one property of one case.
pub fn check(property: &Property, case: &Case) -> Verdict {
    Worker::default().check(property, case)
}

/// The smallest case found that still fails the property; none if the case does not fail.
pub fn shrink(property: &Property, case: &Case) -> Option<Case> {
    let mut worker = Worker::default();
    let fails = matches!(worker.check(property, case), Verdict::Fail(_));
    fails.then(|| worker.shrink(property, case))
}

/// The subject's name in the reports of a property.
pub(super) fn subject_of(property: &Property) -> &'static str {
    match property.needs {
        Needs::Subject => SUBJECT,
        Needs::Plan | Needs::Bytes => crate::subject::none().name(),
    }
}

fn panicked(property: &Property, case: &Case, payload: &(dyn Any + Send)) -> Finding {
    let message = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    Finding {
        property: property.name,
        subject: subject_of(property).to_owned(),
        case: case.to_string(),
        place: "panicked".to_owned(),
        wanted: "a verdict".to_owned(),
        actual: message,
        bound: "no panic".to_owned(),
        derivation: String::new(),
        differing: 1,
        total: 1,
        first: Vec::new(),
        note: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subjects_name_is_its_own() {
        assert_eq!(Cpu::default().name(), SUBJECT);
    }

    fn panics(_: &Case, _: &mut Trial<'_>) -> Verdict {
        panic!("i={}", 7)
    }

    fn wide_fails(case: &Case, _: &mut Trial<'_>) -> Verdict {
        if case.i > 17 {
            panic!("too wide")
        }
        Verdict::Pass(crate::property::Tier::Bytes)
    }

    fn property(check: fn(&Case, &mut Trial<'_>) -> Verdict) -> Property {
        Property {
            name: "stub",
            meaning: "A stub.",
            needs: Needs::Plan,
            check,
        }
    }

    #[test]
    fn a_panic_is_a_finding_of_its_own_kind() {
        let Verdict::Fail(finding) = check(&property(panics), &Case::default()) else {
            panic!("must fail");
        };
        assert_eq!(
            (finding.place.as_str(), finding.actual.as_str()),
            ("panicked", "i=7")
        );
    }

    #[test]
    fn failing_cases_shrink_and_passing_ones_do_not() {
        let property = property(wide_fails);
        let case: Case = "t=9,e=6,k=3,i=300,tp=4".parse().unwrap();
        assert_eq!(shrink(&property, &case).unwrap().i, 18);
        assert!(shrink(&property, &"i=3".parse().unwrap()).is_none());
    }
}
