//! What every subject promises.

use super::error::{SkipReason, SubjectError};
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::tensor::{Output, StageOutputs};
use crate::terms::{Arithmetic, Roundings};

/// Sizes of a rank's two projections, as a stack allocates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// Rows of w13.
    pub w13_rows: u64,
    /// Columns of w2, in elements.
    pub w2_elements: u64,
}

/// The thing under test.
pub trait Subject {
    /// Its name in commands and reports.
    fn name(&self) -> &str;

    /// Whether it can run the plan.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn supports(&self, plan: &Plan) -> Result<(), SkipReason>;

    /// The order in which it adds the products of both projections, where it promises one.
    fn schedule(&self) -> Option<Schedule>;

    /// Whether its order is found from its outputs when equal bits could be asked for.
    fn reveals(&self) -> bool {
        false
    }

    /// Where it promises no order: whether padding is found to keep the order in which it adds, for
    /// experts that serve these numbers of tokens.
    fn keeps_order(&mut self, _bare: &Plan, _padded: &Plan, _counts: &[u64]) -> bool {
        false
    }

    /// Whether it works in padproof's own memory, so that it could write where it must not.
    fn shares_memory(&self) -> bool {
        true
    }

    /// Whether it chooses experts by itself, so that its choice can be held against the reference.
    fn routes_itself(&self) -> bool {
        true
    }

    /// Where it rounds to bfloat16 besides what the plan says.
    fn rounds(&self) -> Roundings {
        Roundings::NONE
    }

    /// What a bound on a case's outputs may count on: shards are no longer than the axes, and padding adds zeros.
    fn arithmetic(&self, case: &Case) -> Arithmetic {
        let additions =
            |order: Schedule| Some((order.additions(case.h)?, order.additions(case.i)?));
        Arithmetic {
            rounds: self.rounds(),
            additions: self.schedule().and_then(additions),
            ..self.promises()
        }
    }

    /// What it promises besides: which partial sums it rounds, and how far its functions are off.
    fn promises(&self) -> Arithmetic {
        Arithmetic::default()
    }

    /// The last lines that a program wrote beside its replies.
    fn said(&self) -> Vec<String> {
        Vec::new()
    }

    /// Is told the case that is asked about, before its plans.
    fn about(&mut self, _case: &Case) {}

    /// Computes several; a program is handed them all before its first reply is waited for.
    ///
    /// # Errors
    /// As [`Subject::run`], of the first that fails.
    fn run_all(&mut self, asked: &[(&Plan, &PackedInputs)]) -> Result<Vec<Output>, SubjectError> {
        let asked = asked.iter();
        asked.map(|(plan, inputs)| self.run(plan, inputs)).collect()
    }

    /// Whether it tells the sizes that its stack allocates.
    fn tells_sizes(&self) -> bool {
        false
    }

    /// Whether it tells those of the plan's format.
    ///
    /// # Errors
    /// The reason why not.
    fn takes_sizes(&self, _plan: &Plan) -> Result<(), SkipReason> {
        Err(SkipReason::NoSubject)
    }

    /// The sizes that it allocates on a rank for the plan's format and a width of one half.
    ///
    /// # Errors
    /// As [`Subject::run`].
    fn allocated(&mut self, _plan: &Plan, _width: u64) -> Result<Allocated, SubjectError> {
        Err(SkipReason::NoSubject.into())
    }

    /// What it shows of its way to the last output.
    fn stages(&self) -> Option<&StageOutputs> {
        Option::None
    }

    /// Whether it has a fast path, which takes some plans, and a general one, which takes all.
    fn has_paths(&self) -> bool {
        false
    }

    /// Whether it takes the plan on its fast path, with a bfloat16 input.
    fn fast(&self, _plan: &Plan) -> bool {
        false
    }

    /// Keeps to its general path, or no longer.
    fn keep_general(&mut self, _only: bool) {}

    /// Computes the layer.
    ///
    /// # Errors
    /// When plan and tensors do not belong together. It never panics on them.
    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError>;
}

/// The subject that supports nothing: for properties that need none.
#[derive(Debug, Clone, Copy, Default)]
pub struct None;

/// A subject that supports nothing.
pub fn none() -> None {
    None
}

impl Subject for None {
    fn name(&self) -> &'static str {
        "-"
    }

    fn supports(&self, _: &Plan) -> Result<(), SkipReason> {
        Err(SkipReason::NoSubject)
    }

    fn schedule(&self) -> Option<Schedule> {
        Option::None
    }

    fn run(&mut self, _: &Plan, _: &PackedInputs) -> Result<Output, SubjectError> {
        Err(SkipReason::NoSubject.into())
    }
}
