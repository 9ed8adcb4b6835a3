//! Asks a process, as a subject.

use super::child::Child;
use super::message;
use super::program::Program;
use super::reply::{self, HEADER_MAX, Reply};
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::{Allocated, Subject};
use crate::subject::cpu::{Routing, Sizes, route};
use crate::subject::error::{Misbehaviour, SkipReason, SubjectError};
use crate::tensor::{Output, StageOutputs};
use crate::terms::Roundings;
use std::sync::Arc;

/// A program as the subject. It promises no order of summation.
#[derive(Debug)]
pub struct Process {
    program: Arc<Program>,
    child: Option<Child>,
    case: String,
    stages: StageOutputs,
}

impl Process {
    /// A subject that asks one process of the program.
    pub fn new(program: &Arc<Program>) -> Process {
        Process {
            program: Arc::clone(program),
            child: None,
            case: String::new(),
            stages: StageOutputs::default(),
        }
    }

    /// Hands every request over, then takes the replies in their order. A process that leaves its
    /// stream in doubt is ended.
    fn ask(
        &mut self,
        asked: &[(&Plan, &PackedInputs, Routing)],
    ) -> Result<Vec<Reply>, SubjectError> {
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.program.take()?,
        };
        let mut replies = Vec::with_capacity(asked.len());
        let told = self.exchange(&mut child, asked, &mut replies);
        // A complaint is a reply like any other, where no more are on their way.
        let last = replies.len() + 1 == asked.len();
        self.keep(child, told, last).map(|()| replies)
    }

    /// Keeps a process that is well after what it told.
    fn keep<T>(
        &mut self,
        child: Child,
        told: Result<T, Misbehaviour>,
        last: bool,
    ) -> Result<T, SubjectError> {
        let what = match told {
            Ok(value) => {
                self.child = Some(child).filter(|child| !child.worn());
                return Ok(value);
            }
            Err(what) => what,
        };
        // Asked for only here: words may be waited for.
        let stderr = if matches!(what, Misbehaviour::Said(_)) && last {
            let said = child.said();
            self.child = Some(child);
            said
        } else {
            child.kill()
        };
        Err(SubjectError::Misbehaved { what, stderr })
    }

    /// One question of sizes.
    fn question(
        &self,
        child: &mut Child,
        plan: &Plan,
        width: u64,
    ) -> Result<[u64; 2], Misbehaviour> {
        child.unasked()?;
        let number = child.number();
        let question =
            message::sizes(number, &self.case, plan, width).map_err(Misbehaviour::Pipe)?;
        child.send(question, HEADER_MAX);
        reply::sizes(&child.receive(self.program.timeout())?, number)
    }

    fn exchange(
        &self,
        child: &mut Child,
        asked: &[(&Plan, &PackedInputs, Routing)],
        replies: &mut Vec<Reply>,
    ) -> Result<(), Misbehaviour> {
        child.unasked()?;
        let mut numbers = Vec::with_capacity(asked.len());
        for one in asked {
            numbers.push(self.send(child, one)?);
        }
        let mut seems = None;
        for (number, (plan, _, _)) in numbers.into_iter().zip(asked) {
            let bytes = child.receive(self.program.timeout())?;
            seems = child.weigh(&self.program.grew)?.or(seems);
            let routes = self.program.supports().routes_itself();
            replies.push(reply::reply(&bytes, number, plan, routes)?);
        }
        let (Some(growth), Some(last)) = (seems, asked.last()) else {
            return Ok(());
        };
        child.confirm(growth, &self.program.grew, |child| {
            self.send(child, last)?;
            child.receive(self.program.timeout()).map(drop)
        })
    }

    /// Hands one request over, and answers its number.
    fn send(
        &self,
        child: &mut Child,
        (plan, inputs, routing): &(&Plan, &PackedInputs, Routing),
    ) -> Result<u64, Misbehaviour> {
        let number = child.number();
        let request = message::request(number, &self.case, plan, inputs, routing)
            .map_err(Misbehaviour::Pipe)?;
        child.send(request, reply::limit(plan));
        Ok(number)
    }
}

impl Subject for Process {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        self.program.supports().check(plan)
    }

    fn schedule(&self) -> Option<Schedule> {
        None
    }

    fn shares_memory(&self) -> bool {
        false
    }

    fn routes_itself(&self) -> bool {
        self.program.supports().routes_itself()
    }

    fn rounds(&self) -> Roundings {
        self.program.supports().rounds()
    }

    fn tells_sizes(&self) -> bool {
        self.program.supports().tells_sizes()
    }

    fn takes_sizes(&self, plan: &Plan) -> Result<(), SkipReason> {
        self.program.supports().check_sizes(plan)
    }

    fn allocated(&mut self, plan: &Plan, width: u64) -> Result<Allocated, SubjectError> {
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.program.take()?,
        };
        let told = self.question(&mut child, plan, width);
        let [w13_rows, w2_columns] = self.keep(child, told, true)?;
        let units = if plan.weight.element().bits() < 8 {
            2
        } else {
            1
        };
        Ok(Allocated {
            w13_rows,
            w2_elements: w2_columns.saturating_mul(units),
        })
    }

    fn said(&self) -> Vec<String> {
        self.child.as_ref().map_or_else(Vec::new, Child::said)
    }

    fn about(&mut self, case: &Case) {
        self.case = case.to_string();
    }

    fn stages(&self) -> Option<&StageOutputs> {
        Some(&self.stages)
    }

    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        let mut outputs = self.run_all(&[(plan, inputs)])?;
        Ok(outputs.pop().expect("one output for one request"))
    }

    fn run_all(&mut self, asked: &[(&Plan, &PackedInputs)]) -> Result<Vec<Output>, SubjectError> {
        let mut routed = Vec::with_capacity(asked.len());
        for &(plan, inputs) in asked {
            self.supports(plan)?;
            let sizes = Sizes::new(plan)?;
            if plan.ranks.len() != inputs.ranks.len() {
                return Err(SubjectError::Size {
                    tensor: "ranks",
                    unit: "ranks",
                    wanted: plan.ranks.len() as u64,
                    actual: inputs.ranks.len() as u64,
                });
            }
            routed.push((plan, inputs, route(plan, &sizes, &inputs.router)?));
        }
        let replies = self.ask(&routed)?;
        let outputs = routed.iter().zip(replies).map(|((plan, _, _), reply)| {
            self.stages = reply.stages;
            Output {
                tokens: plan.dims.t as usize,
                hidden: plan.dims.h as usize,
                values: sum(&reply.shares),
                ids: reply.ids,
                weights: reply.weights,
            }
        });
        Ok(outputs.collect())
    }
}

/// The ranks' shares added in their order.
fn sum(shares: &[Vec<f32>]) -> Vec<f32> {
    let mut values = vec![0.0; shares.first().map_or(0, Vec::len)];
    for share in shares {
        for (value, part) in values.iter_mut().zip(share) {
            *value += part;
        }
    }
    values
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.program.give(child);
        }
    }
}
