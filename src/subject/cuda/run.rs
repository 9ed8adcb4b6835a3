//! The whole layer on the kernels: routing, three launches a rank, the sum over ranks.
//!
//! It must not know where the kernels run. Layer 5.

use super::input::Input;
use super::launch::{Kernel, KernelOptions, Launch, Launched, Paths};
use super::layer::{self, Layer, input_type};
use super::limits;
use super::machine::Machine;
use super::params::GROUP;
use super::rank::{Rank, int};
use super::workspace::{Slot, Workspace};
use crate::case::Case;
use crate::layout::PackedInputs;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::Subject;
use crate::subject::cpu::{Sizes, axis, expect_bytes, route, size_error};
use crate::subject::error::{SkipReason, SubjectError};
use crate::tensor::Output;

/// The kernels of `kernels/moe.cu` as a subject, on whichever machine.
///
/// Its bits depend neither on padding, batch, grid nor path: K is added in groups of sixteen
/// ([`Schedule::Blocked`]), tokens in the order of their choices, ranks in theirs.
#[derive(Debug, Default)]
pub(super) struct Kernels<M> {
    pub(super) machine: M,
    pub(super) options: KernelOptions,
    input: Input,
    workspace: Workspace,
    ids: Vec<i32>,
    /// Whether the fast path is not taken for now, whatever the options say.
    general: bool,
    /// What the last layer launched.
    pub(super) launched: Vec<Launched>,
}

/// Makes a subject of a structure whose field `kernels` is one.
macro_rules! subject_by_kernels {
    ($subject:ty) => {
        impl Subject for $subject {
            fn name(&self) -> &str {
                self.kernels.name()
            }

            fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
                self.kernels.supports(plan)
            }

            fn schedule(&self) -> Option<Schedule> {
                self.kernels.schedule()
            }

            fn has_paths(&self) -> bool {
                self.kernels.has_paths()
            }

            fn fast(&self, plan: &Plan) -> bool {
                self.kernels.fast(plan)
            }

            fn keep_general(&mut self, only: bool) {
                self.kernels.keep_general(only);
            }

            fn about(&mut self, case: &Case) {
                self.kernels.about(case);
            }

            fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
                self.kernels.run(plan, inputs)
            }
        }
    };
}
pub(super) use subject_by_kernels;

impl<M> Kernels<M> {
    pub(super) fn on(machine: M, options: KernelOptions) -> Kernels<M> {
        Kernels {
            machine,
            options,
            input: Input::default(),
            workspace: Workspace::default(),
            ids: Vec::new(),
            general: false,
            launched: Vec::new(),
        }
    }
}

impl<M: Machine> Kernels<M> {
    /// Runs one rank's share; its outputs are then in the workspace, [t, hidden].
    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    fn rank(
        machine: &mut M,
        layer: &Layer<'_>,
        rank: &Rank<'_>,
        ids: &[i32],
        workspace: &mut Workspace,
        launched: &mut Vec<Launched>,
    ) -> Result<(), SubjectError> {
        let work = layer.prepare(rank, ids, machine, workspace)?;
        let begun = work.launches.iter().filter(|launch| launch.has_blocks());
        launched.extend(begun.map(Launch::told));
        // SAFETY: `prepare` made the work just now, for this machine and workspace: the buffers have the
        // sizes that it gave the kernels, and `Rank::new` has held the tensors' against the plan.
        unsafe { machine.run(&work, workspace) }?;
        workspace.check(Kernel::Second.name())?;
        let unfinished = workspace.get(Slot::Done).bytes().iter().any(|b| *b != 0);
        if unfinished {
            return Err(SubjectError::Kernel {
                kernel: Kernel::Second.name(),
                why: "a token waits for choices that no block computed".to_owned(),
            });
        }
        Ok(())
    }
}

impl<M: Machine> Subject for Kernels<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        self.machine.available()?;
        limits::check(plan)
    }

    fn schedule(&self) -> Option<Schedule> {
        Some(Schedule::Blocked(GROUP))
    }

    fn has_paths(&self) -> bool {
        true
    }

    fn fast(&self, plan: &Plan) -> bool {
        layer::fast(plan) && self.options().paths == Paths::Auto
    }

    fn keep_general(&mut self, only: bool) {
        self.general = only;
    }

    fn about(&mut self, case: &Case) {
        self.machine.about(case.to_string());
    }

    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        let _turn = M::turn();
        let ran = self.layer(plan, inputs);
        // What lies on a shared machine is in the next one's way.
        self.machine.clear();
        ran
    }
}

impl<M: Machine> Kernels<M> {
    /// As told, on the general path while it is to be kept to.
    fn options(&self) -> KernelOptions {
        let mut options = self.options;
        if self.general {
            options.paths = Paths::General;
        }
        options
    }

    /// The whole layer.
    fn layer(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        self.launched.clear();
        self.supports(plan)?;
        let sizes = Sizes::new(plan)?;
        let tokens_padded = axis("tokens_padded", plan.tokens_padded)?;
        expect_bytes("x", inputs.x.bytes(), &[tokens_padded, sizes.hidden, 4])?;
        if plan.ranks.len() != inputs.ranks.len() {
            let (wanted, actual) = (plan.ranks.len(), inputs.ranks.len());
            return Err(size_error("ranks", "ranks", wanted, actual));
        }
        let mut ranks = Vec::with_capacity(plan.ranks.len());
        for (n, (share, tensors)) in plan.ranks.iter().zip(&inputs.ranks).enumerate() {
            ranks.push(Rank::new(plan, &sizes, share, n, tensors)?);
        }
        let routing = route(plan, &sizes, &inputs.router)?;
        let rows = &inputs.x.f32s()[..sizes.t * sizes.hidden];
        self.input
            .store(rows, input_type(plan).or(self.options.inputs));
        let layer = Layer {
            plan,
            sizes,
            routing: &routing,
            x: &self.input,
            options: self.options(),
        };
        let mut values = vec![0.0; sizes.t * sizes.h];
        for rank in &ranks {
            if rank.experts == 0 || values.is_empty() {
                continue;
            }
            self.ids.clear();
            for &id in &routing.ids {
                let id = axis("id", id.into())?;
                let held = (rank.expert_first..rank.expert_first + rank.experts).contains(&id);
                self.ids.push(if held || !self.options.masked {
                    int(id)?
                } else {
                    -1
                });
            }
            let (machine, workspace) = (&mut self.machine, &mut self.workspace);
            let launched = &mut self.launched;
            Self::rank(machine, &layer, rank, &self.ids, workspace, launched)?;
            let out = self.workspace.get(Slot::Out).floats();
            let partial = out.chunks_exact(layer.hidden()?);
            for (to, from) in values.chunks_exact_mut(sizes.h).zip(partial) {
                to.iter_mut().zip(from).for_each(|(v, p)| *v += p);
            }
        }
        Ok(Output {
            tokens: sizes.t,
            hidden: sizes.h,
            values,
            ids: routing.ids,
            weights: routing.weights,
        })
    }
}
