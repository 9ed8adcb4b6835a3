//! A subject whose orders of summation are found when equal bits could be asked for.
//!
//! It must not take one shape's order for another's. Layer 5.

use super::carrier::{Axis, Setup};
use super::orders::orders;
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::{Allocated, Subject};
use crate::subject::error::{SkipReason, SubjectError};
use crate::tensor::{Output, StageOutputs};
use crate::terms::{Arithmetic, Roundings, WeightFormat};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest sums that are asked about: each takes as many probes and more.
const SUM_MAX: u64 = 4096;
/// Most numbers of tokens that one case's experts may serve for its orders to be asked about.
const COUNTS_MAX: usize = 8;

/// Which padding is known to keep the order, or not to: of all threads.
#[derive(Debug, Clone, Default)]
pub struct Known(Arc<Mutex<HashMap<Setup, bool>>>);

impl Known {
    fn held(&self) -> MutexGuard<'_, HashMap<Setup, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, setup: &Setup) -> Option<bool> {
        self.held().get(setup).copied()
    }
}

/// Another subject, whose orders are asked for.
pub struct Revealed {
    inner: Box<dyn Subject + Send>,
    known: Known,
}

impl Revealed {
    /// Asks `inner`, and only for what is not known.
    pub fn new(inner: Box<dyn Subject + Send>, known: &Known) -> Revealed {
        Revealed {
            inner,
            known: known.clone(),
        }
    }

    /// Whether padding keeps the order of one axis's sums at these sizes.
    fn keeps(&mut self, setup: Setup) -> bool {
        if let Some(known) = self.known.get(&setup) {
            return known;
        }
        // What cannot be asked, or adds in no tree, is held to the bound.
        let found = orders(self.inner.as_mut(), setup);
        let keeps = found.is_ok_and(|found| found.moved.is_none());
        self.known.held().insert(setup, keeps);
        keeps
    }
}

impl Subject for Revealed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        self.inner.supports(plan)
    }

    fn schedule(&self) -> Option<Schedule> {
        self.inner.schedule()
    }

    fn reveals(&self) -> bool {
        true
    }

    fn keeps_order(&mut self, bare: &Plan, padded: &Plan, counts: &[u64]) -> bool {
        let sizes = [
            (Axis::Intermediate, bare.width_padded, padded.width_padded),
            (Axis::Hidden, bare.hidden_padded, padded.hidden_padded),
        ];
        let held = matches!(padded.weight, WeightFormat::F32 | WeightFormat::Bf16);
        let long = sizes.iter().any(|(_, _, to)| *to > SUM_MAX);
        let taken = self.inner.supports(bare).is_ok();
        if !held || long || !taken || counts.len() > COUNTS_MAX {
            return false;
        }
        counts.iter().all(|&tokens| {
            let [(_, width, width_to), (_, hidden, hidden_to)] = sizes;
            sizes.iter().all(|&(axis, n, padded_to)| {
                let (rows, rows_padded) = match axis {
                    Axis::Intermediate => (hidden, hidden_to),
                    Axis::Hidden => (width, width_to),
                };
                self.keeps(Setup {
                    axis,
                    n,
                    padded: padded_to,
                    tokens,
                    rows,
                    rows_padded,
                    weights: padded.weight,
                })
            })
        })
    }

    fn shares_memory(&self) -> bool {
        self.inner.shares_memory()
    }

    fn routes_itself(&self) -> bool {
        self.inner.routes_itself()
    }

    fn rounds(&self) -> Roundings {
        self.inner.rounds()
    }

    fn arithmetic(&self, case: &Case) -> Arithmetic {
        self.inner.arithmetic(case)
    }

    fn said(&self) -> Vec<String> {
        self.inner.said()
    }

    fn about(&mut self, case: &Case) {
        self.inner.about(case);
    }

    fn run_all(&mut self, asked: &[(&Plan, &PackedInputs)]) -> Result<Vec<Output>, SubjectError> {
        self.inner.run_all(asked)
    }

    fn tells_sizes(&self) -> bool {
        self.inner.tells_sizes()
    }

    fn takes_sizes(&self, plan: &Plan) -> Result<(), SkipReason> {
        self.inner.takes_sizes(plan)
    }

    fn allocated(&mut self, plan: &Plan, width: u64) -> Result<Allocated, SubjectError> {
        self.inner.allocated(plan, width)
    }

    fn stages(&self) -> Option<&StageOutputs> {
        self.inner.stages()
    }

    fn has_paths(&self) -> bool {
        self.inner.has_paths()
    }

    fn fast(&self, plan: &Plan) -> bool {
        self.inner.fast(plan)
    }

    fn keep_general(&mut self, only: bool) {
        self.inner.keep_general(only);
    }

    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        self.inner.run(plan, inputs)
    }
}
