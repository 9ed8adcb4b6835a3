//! Asks a process, as a subject.

use super::child::Child;
use super::program::Program;
use super::{message, reply};
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::Subject;
use crate::subject::cpu::{Sizes, route};
use crate::subject::error::{Misbehaviour, SkipReason, SubjectError};
use crate::tensor::{Output, StageOutputs};
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
    /// Its name in commands and reports.
    pub const NAME: &'static str = "process";

    /// A subject that asks one process of the program.
    pub fn new(program: &Arc<Program>) -> Process {
        Process {
            program: Arc::clone(program),
            child: None,
            case: String::new(),
            stages: StageOutputs::default(),
        }
    }

    /// One request and its reply. A process that leaves its stream in doubt is ended.
    fn ask(
        &mut self,
        plan: &Plan,
        request: impl FnOnce(u64) -> Result<Vec<u8>, String>,
    ) -> Result<reply::Reply, SubjectError> {
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.program.take()?,
        };
        let number = child.number();
        let request = request(number).map_err(|why| SubjectError::Misbehaved {
            what: Misbehaviour::Pipe(why),
            stderr: Vec::new(),
        })?;
        let exchange = || {
            child.unasked()?;
            child.send(request, reply::limit(plan));
            let bytes = child.receive(self.program.timeout())?;
            child.weigh()?;
            Ok(bytes)
        };
        let bytes = match exchange() {
            Ok(bytes) => bytes,
            Err(what) => {
                return Err(SubjectError::Misbehaved {
                    what,
                    stderr: child.kill(),
                });
            }
        };
        match reply::reply(&bytes, number, plan, self.routes_itself()) {
            Ok(reply) => {
                self.child = Some(child);
                Ok(reply)
            }
            // A complaint leaves the process well; anything else leaves it in doubt.
            Err(what @ Misbehaviour::Said(_)) => {
                let stderr = child.said();
                self.child = Some(child);
                Err(SubjectError::Misbehaved { what, stderr })
            }
            Err(what) => Err(SubjectError::Misbehaved {
                what,
                stderr: child.kill(),
            }),
        }
    }
}

impl Subject for Process {
    fn name(&self) -> &'static str {
        Process::NAME
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

    fn about(&mut self, case: &Case) {
        self.case = case.to_string();
    }

    fn stages(&self) -> Option<&StageOutputs> {
        Some(&self.stages)
    }

    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
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
        let routing = route(plan, &sizes, &inputs.router)?;
        let case = self.case.clone();
        let reply = self.ask(plan, |number| {
            message::request(number, &case, plan, inputs, &routing)
        })?;
        self.stages = reply.stages;
        let mut values = vec![0.0; sizes.t * sizes.h];
        for share in &reply.shares {
            for (value, part) in values.iter_mut().zip(share) {
                *value += part;
            }
        }
        Ok(Output {
            tokens: sizes.t,
            hidden: sizes.h,
            values,
            ids: reply.ids,
            weights: reply.weights,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.program.give(child);
        }
    }
}
