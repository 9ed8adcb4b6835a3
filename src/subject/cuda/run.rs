//! The whole layer on the kernels: routing, three launches a rank, the sum over ranks.
//!
//! It must not know where the kernels run. Layer 5.

use super::host::{self, Kernel, Launch, Turns};
use super::input::Input;
use super::limits;
use super::params::{BLOCK_COLS, BLOCK_ROWS, Fault, Params, activation, shared_bytes};
use super::rank::{Rank, int, unit};
use super::record::Record;
use super::workspace::Workspace;
use crate::layout::PackedInputs;
use crate::num::Dtype;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::subject::api::Subject;
use crate::subject::cpu::{Routing, Sizes, axis, expect_bytes, route, size_error};
use crate::subject::error::{SkipReason, SubjectError};
use crate::tensor::Output;
use crate::terms::Nibble;

/// Threads of `pp_align` hold this many ints of shared memory an expert.
const ALIGN_INTS: usize = 2;

/// Which of a kernel's two paths are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Paths {
    /// The fast one wherever addresses and rows are multiples of sixteen bytes.
    #[default]
    Auto,
    /// The general one everywhere.
    General,
}

/// How the kernels are run; whatever is chosen, the bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostOptions {
    /// Which path.
    pub paths: Paths,
    /// In which order blocks and threads run.
    pub turns: Turns,
    /// The fault that is planted.
    pub fault: Fault,
    /// Element type of the input where its values allow it; bfloat16 if left out.
    pub inputs: Option<Dtype>,
    /// Whether a rank sees -1 for experts that others hold, as expert-parallel dispatch writes it,
    /// instead of their ids.
    pub masked: bool,
}

/// The subject `cuda-host`: the kernels of `kernels/moe.cu` on the CPU, one fiber a CUDA thread.
///
/// Its bits depend neither on padding, batch, grid, turns nor path: K is added in groups of sixteen
/// ([`Schedule::Blocked`]), tokens in the order of their choices, ranks in theirs.
#[derive(Debug, Default)]
pub struct CudaHost {
    options: HostOptions,
    input: Input,
    workspace: Workspace,
    ids: Vec<i32>,
    record: Option<Record>,
}

impl CudaHost {
    /// The subject, forward and without a fault.
    pub fn new() -> CudaHost {
        CudaHost::default()
    }

    /// The subject, run in another way.
    pub fn with(options: HostOptions) -> CudaHost {
        CudaHost {
            options,
            ..CudaHost::default()
        }
    }

    /// Runs the layer and writes down every launch with the output it gave, for
    /// `kernels/host/main.cpp`, which is to run them again with `fault` planted.
    ///
    /// # Errors
    /// As [`Subject::run`].
    pub fn record(
        &mut self,
        plan: &Plan,
        inputs: &PackedInputs,
        fault: Fault,
    ) -> Result<Vec<u8>, SubjectError> {
        self.record = Some(Record::new(fault));
        let ran = self.run(plan, inputs);
        let record = self.record.take().unwrap_or_default();
        ran.map(|_| record.into_bytes())
    }

    /// Whether the kernels were compiled, and run here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn available() -> Result<(), SkipReason> {
        host::available()
    }
}

/// What the launches of one layer share.
struct Layer<'a> {
    plan: &'a Plan,
    sizes: Sizes,
    routing: &'a Routing,
    x: &'a Input,
    mid: Dtype,
    options: HostOptions,
}

impl Subject for CudaHost {
    fn name(&self) -> &'static str {
        "cuda-host"
    }

    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        host::available()?;
        limits::check(plan)
    }

    fn schedule(&self) -> Option<Schedule> {
        Some(Schedule::Blocked(super::params::GROUP))
    }

    fn has_paths(&self) -> bool {
        true
    }

    fn fast(&self, plan: &Plan) -> bool {
        let numerics = &plan.numerics;
        let input = if numerics.route.weights_input() { 4 } else { 2 };
        let mid = if numerics.mid_bf16 { 2 } else { 4 };
        let whole = |cols: u64, size: u64| {
            let weights = cols.saturating_mul(plan.weight.element().bits());
            cols.saturating_mul(size).is_multiple_of(16) && weights.is_multiple_of(128)
        };
        let fits = whole(plan.hidden_padded, input) && whole(plan.width_padded, mid);
        fits && self.options.paths == Paths::Auto
    }

    fn keep_general(&mut self, only: bool) {
        self.options.paths = if only { Paths::General } else { Paths::Auto };
    }

    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
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
        // A weighted input is rounded again: f32 keeps what bfloat16 would lose.
        let wanted = if plan.numerics.route.weights_input() {
            Some(Dtype::F32)
        } else {
            self.options.inputs
        };
        self.input.store(rows, wanted);
        let layer = Layer {
            plan,
            sizes,
            routing: &routing,
            x: &self.input,
            mid: if plan.numerics.mid_bf16 {
                Dtype::Bf16
            } else {
                Dtype::F32
            },
            options: self.options,
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
            layer.rank(rank, &self.ids, &mut self.workspace, self.record.as_mut())?;
            let partial = self.workspace.out.floats().chunks_exact(sizes.hidden);
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

/// One rank's launches.
struct Prepared {
    params: Params,
    launches: [Launch; 3],
    blocks: usize,
}

impl Layer<'_> {
    /// Runs one rank's share; its outputs are in `workspace.out`, [t, hidden].
    fn rank(
        &self,
        rank: &Rank<'_>,
        ids: &[i32],
        workspace: &mut Workspace,
        record: Option<&mut Record>,
    ) -> Result<(), SubjectError> {
        let made = self.prepare(rank, ids, workspace)?;
        for launch in &made.launches {
            if launch.grid.0 > 0 && launch.grid.1 > 0 {
                host::launch(launch, &made.params)?;
            }
        }
        workspace.check(Kernel::Second.name())?;
        if workspace.done.bytes().iter().any(|b| *b != 0) {
            return Err(SubjectError::Kernel {
                kernel: Kernel::Second.name(),
                why: "a token waits for choices that no block computed".to_owned(),
            });
        }
        if let Some(record) = record {
            let buffers = [
                self.x.bytes(),
                bytemuck::cast_slice(ids),
                bytemuck::cast_slice(&self.routing.weights),
                workspace.out.bytes(),
            ];
            record.add(rank, &made.params, made.blocks, &made.launches, buffers);
        }
        Ok(())
    }

    /// Sets the workspace up, and says what to launch over it.
    fn prepare(
        &self,
        rank: &Rank<'_>,
        ids: &[i32],
        w: &mut Workspace,
    ) -> Result<Prepared, SubjectError> {
        let Sizes {
            t,
            k,
            hidden,
            width,
            ..
        } = self.sizes;
        let slots = t * k;
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let blocks = axis("blocks", limits::blocks(wide(slots), wide(rank.experts)))?;
        let mid_size = if self.mid == Dtype::Bf16 { 2 } else { 4 };
        let mid_pitch = (width * mid_size).next_multiple_of(16);
        let tiles = hidden.div_ceil(BLOCK_COLS);

        w.sorted.reset("sorted", blocks * BLOCK_ROWS * 4, 0, 0xff);
        w.block_expert.reset("block_expert", blocks * 4, 0, 0xff);
        w.blocks.reset("blocks", 4, 0, 0xff);
        w.needed.reset("needed", t * 4, 0, 0xff);
        w.done.reset("done", t * tiles * 4, 0, 0);
        // A sentinel row is one past the last: the guards hold it.
        w.mid.reset("mid", slots * mid_pitch, mid_pitch, 0xff);
        w.y.reset("y", slots * hidden * 4, hidden * 4, 0xff);
        w.out.reset("out", t * hidden * 4, hidden * 4, 0xff);

        let order = self.plan.order;
        let (x, x_type) = (self.x.pointer(), self.x.dtype());
        let x_bytes = hidden * if x_type == Dtype::F32 { 4 } else { 2 };
        let mut params = Params {
            w13: rank.w13.matrix,
            w2: rank.w2.matrix,
            x,
            ids: ids.as_ptr(),
            weights: self.routing.weights.as_ptr(),
            sorted: w.sorted.pointer(),
            block_expert: w.block_expert.pointer(),
            blocks: w.blocks.pointer(),
            needed: w.needed.pointer(),
            done: w.done.pointer(),
            mid: w.mid.pointer(),
            y: w.y.pointer(),
            out: w.out.pointer(),
            tokens: int(t)?,
            top_k: int(k)?,
            experts: int(rank.experts)?,
            expert_first: int(rank.expert_first)?,
            hidden: int(hidden)?,
            width: int(width)?,
            halves: int(self.sizes.halves)?,
            up_first: (self.sizes.halves == 2 && order.up_first()).into(),
            group: match self.sizes.halves {
                2 => int(axis("interleave", order.interleave())?)?,
                _ => 0,
            },
            act: activation(self.plan.activation),
            high_first: (self.plan.nibble == Nibble::High).into(),
            weights_input: self.plan.numerics.route.weights_input().into(),
            mid_bf16: self.plan.numerics.mid_bf16.into(),
            mid_pitch: int(mid_pitch)?,
            x_unit: int(unit(x, x_bytes))?,
            mid_unit: int(unit(w.mid.pointer(), width * mid_size))?,
            fault: self.options.fault as i32,
            reserved: 0,
        };
        self.narrow(&mut params);
        let first = width.div_ceil(BLOCK_COLS / self.sizes.halves);
        let fast = [
            params.x_unit == 16 && params.w13.unit == 16,
            params.mid_unit == 16 && params.w2.unit == 16,
        ];
        let launches = [
            self.launch(Kernel::Align, Dtype::F32, (1, 1), false, rank)?,
            self.launch(Kernel::First, x_type, (first, blocks), fast[0], rank)?,
            self.launch(Kernel::Second, self.mid, (tiles, blocks), fast[1], rank)?,
        ];
        Ok(Prepared {
            params,
            launches,
            blocks,
        })
    }

    /// Units below sixteen keep the general path.
    fn narrow(&self, params: &mut Params) {
        if self.options.paths == Paths::General {
            for unit in [
                &mut params.w13.unit,
                &mut params.w2.unit,
                &mut params.x_unit,
                &mut params.mid_unit,
            ] {
                *unit = (*unit).min(8);
            }
        }
    }

    fn launch(
        &self,
        kernel: Kernel,
        inputs: Dtype,
        (x, y): (usize, usize),
        fast: bool,
        rank: &Rank<'_>,
    ) -> Result<Launch, SubjectError> {
        let weights = self.plan.weight.element();
        let grid = |n: usize| {
            u32::try_from(n).map_err(|_| size_error("grid", "blocks", u32::MAX as usize, n))
        };
        Ok(Launch {
            kernel,
            inputs,
            weights,
            fast,
            grid: (grid(x)?, grid(y)?),
            shared: match kernel {
                Kernel::Align => rank.experts * ALIGN_INTS * 4,
                Kernel::First | Kernel::Second => shared_bytes(inputs, weights),
            },
            turns: self.options.turns,
        })
    }
}
