//! Asks one property of one case, under the one `catch_unwind`, and shrinks what fails.
//!
//! It must not choose cases. Layer 9.

use crate::case::Case;
use crate::r#gen::minimise;
use crate::property::{Finding, Memory, Needs, Property, Trial, Verdict};
use crate::rule::Rules;
use crate::subject::{Subject, SubjectChoice};
use std::any::Any;
use std::borrow::Cow;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Most checks that one walk to a smaller case may make.
const SHRINK_BUDGET: usize = 400;
/// Time of the walk after which no smaller case is tried: a subject that hangs takes its limit of
/// time for each.
const SHRINK_TIME: Duration = Duration::from_secs(120);

/// A worker's subject and memory, kept from check to check.
pub struct Worker<'r> {
    choice: SubjectChoice,
    rules: &'r Rules,
    subject: Box<dyn Subject + Send>,
    memory: Memory,
}

impl<'r> Worker<'r> {
    /// A worker that asks the chosen subject, of cases under these rules.
    pub fn new(choice: &SubjectChoice, rules: &'r Rules) -> Self {
        Worker {
            choice: choice.clone(),
            rules,
            subject: choice.subject(),
            memory: Memory::default(),
        }
    }

    /// Asks the property; a panic becomes a finding of its own kind.
    pub fn check(&mut self, property: &Property, case: &Case) -> Verdict {
        let mut trial = Trial::new(self.subject.as_mut())
            .under(self.rules)
            .with_memory(mem::take(&mut self.memory))
            .about(property.name, case);
        let asked = catch_unwind(AssertUnwindSafe(|| (property.check)(case, &mut trial)));
        match asked {
            Ok(verdict) => {
                self.memory = trial.into_memory();
                verdict
            }
            Err(payload) => {
                // What the panic left half done is not used again.
                self.subject = self.choice.subject();
                let subject = subject_of(&self.choice, property);
                let finding = panicked(property, &subject, case, payload.as_ref());
                Verdict::Fail(Box::new(finding))
            }
        }
    }

    /// The smallest case found that still fails, in `SHRINK_BUDGET` checks and `SHRINK_TIME`.
    pub fn shrink(&mut self, property: &Property, case: &Case) -> Case {
        self.shrink_while(property, case, || true)
    }

    /// The same, as long as `go_on` says so.
    pub fn shrink_while(
        &mut self,
        property: &Property,
        case: &Case,
        go_on: impl Fn() -> bool,
    ) -> Case {
        let since = Instant::now();
        let fails = |c: &Case| {
            since.elapsed() < SHRINK_TIME
                && go_on()
                && matches!(self.check(property, c), Verdict::Fail(_))
        };
        minimise(case, fails, SHRINK_BUDGET)
    }

    /// The smallest case found that still fails like one that `failed`, with its verdict. A program may fail for what
    /// it was asked before: a small case counts where a new process fails on it too, and one that no new process
    /// fails on says so.
    pub fn smallest(
        &mut self,
        property: &Property,
        case: &Case,
        failed: Verdict,
        go_on: impl Fn() -> bool,
    ) -> (Case, Verdict) {
        let small = self.shrink_while(property, case, &go_on);
        if go_on() {
            match self.alone(property, &small) {
                None => {}
                Some(fresh @ Verdict::Fail(_)) => return (small, fresh),
                Some(fresh) => return self.worn(property, (case, failed), (&small, fresh)),
            }
        }
        match self.check(property, &small) {
            again @ Verdict::Fail(_) => (small, again),
            _ => (case.clone(), failed),
        }
    }

    /// What is told where a new process does not fail on the small case.
    fn worn(
        &self,
        property: &Property,
        (case, failed): (&Case, Verdict),
        (small, fresh): (&Case, Verdict),
    ) -> (Case, Verdict) {
        let whole = match small == case {
            true => fresh,
            false => self.alone(property, case).unwrap_or(fresh),
        };
        let note = match whole {
            Verdict::Fail(_) => return (case.clone(), failed),
            Verdict::Pass(_) | Verdict::Vacuous(_) => "a new process passes this case: it fails for what it was asked before, or by chance; run the same again with -j 1".to_owned(),
            Verdict::Skip(reason) => format!("a new process was not asked: {reason}"),
            Verdict::Broken(why) => format!("no new process could be asked: {why}"),
        };
        (case.clone(), told(failed, note))
    }

    /// What a process that was asked nothing before makes of the case; none where the subject is no program.
    fn alone(&self, property: &Property, case: &Case) -> Option<Verdict> {
        match property.needs {
            Needs::Subject | Needs::Paths | Needs::Sizes => {}
            Needs::Plan | Needs::Bytes => return None,
        }
        match self.choice.afresh() {
            Ok(choice) => Some(Worker::new(&choice?, self.rules).check(property, case)),
            Err(e) => Some(Verdict::Broken(e.to_string())),
        }
    }
}

/// A finding with one more note.
fn told(verdict: Verdict, note: String) -> Verdict {
    let Verdict::Fail(mut finding) = verdict else {
        return verdict;
    };
    finding.note = Some(match finding.note.take() {
        Some(before) => format!("{before}; {note}"),
        None => note,
    });
    Verdict::Fail(finding)
}

/// Asks one property of one case, of the CPU subject.
pub fn check(property: &Property, case: &Case) -> Verdict {
    Worker::new(&SubjectChoice::Cpu, Rules::builtin()).check(property, case)
}

/// The smallest case found that still fails the property on the CPU subject; none if the case does
/// not fail.
pub fn shrink(property: &Property, case: &Case) -> Option<Case> {
    let mut worker = Worker::new(&SubjectChoice::Cpu, Rules::builtin());
    let fails = matches!(worker.check(property, case), Verdict::Fail(_));
    fails.then(|| worker.shrink(property, case))
}

/// Stands for the subject where a property needs none.
const NO_SUBJECT: &str = "-";

/// The subject's name in the reports of a property.
pub fn subject_of(choice: &SubjectChoice, property: &Property) -> Cow<'static, str> {
    match property.needs {
        Needs::Subject | Needs::Paths | Needs::Sizes => choice.name(),
        Needs::Plan | Needs::Bytes => NO_SUBJECT.into(),
    }
}

/// The arguments that a property's reproducer needs, behind a space.
pub fn arguments_of(choice: &SubjectChoice, property: &Property) -> String {
    match property.needs {
        Needs::Subject | Needs::Paths | Needs::Sizes => choice.arguments(),
        Needs::Plan | Needs::Bytes => String::new(),
    }
}

fn panicked(
    property: &Property,
    subject: &str,
    case: &Case,
    payload: &(dyn Any + Send),
) -> Finding {
    let message = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    Finding {
        property: property.name,
        subject: subject.to_owned(),
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
        many: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
