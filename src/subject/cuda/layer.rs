//! One rank's share of a layer as launches: every size, address and grid, the same on host and device.
//!
//! It must not launch anything. Layer 5.

use super::input::Input;
use super::launch::{Kernel, KernelOptions, Launch, Paths};
use super::limits;
use super::machine::{Machine, Reads, every};
use super::params::{ALIGN_INTS, BLOCK_COLS, BLOCK_ROWS, Matrix, Params, activation, shared_bytes};
use super::rank::{Rank, computed, int, row_bytes, unit};
use super::reads::{self, Channels, Readings};
use super::workspace::{Slot, Workspace};
use crate::num::Dtype;
use crate::plan::{Plan, ScalePlan};
use crate::subject::cpu::{Routing, Sizes, axis, size_error};
use crate::subject::error::SubjectError;
use crate::terms::Nibble;

/// Most tensors and buffers of a rank's launches: eight that are written, x, ids, weights, four of each projection.
const PARTS: u64 = 19;

/// What the launches of one layer share.
pub(super) struct Layer<'a> {
    pub(super) plan: &'a Plan,
    pub(super) sizes: Sizes,
    pub(super) routing: &'a Routing,
    pub(super) x: &'a Input,
    pub(super) options: KernelOptions,
}

/// What a rank's launches are told, and what lies behind it. Only [`Layer::prepare`] makes one.
#[cfg_attr(
    not(feature = "cuda-host"),
    expect(dead_code, reason = "records are written on the host")
)]
pub(super) struct Work<'a> {
    pub(super) rank: &'a Rank<'a>,
    pub(super) params: Params,
    pub(super) launches: [Launch; 3],
    /// Blocks of rows that there is room for.
    pub(super) blocks: usize,
    pub(super) x: &'a [u8],
    pub(super) ids: &'a [i32],
    pub(super) weights: &'a [f32],
}

/// Whether rows of a plan fit the fast path, with a bfloat16 input.
pub(super) fn fast(plan: &Plan) -> bool {
    let numerics = &plan.numerics;
    let input = input_type(plan).unwrap_or(Dtype::Bf16);
    let whole = |cols: u64, dtype: Dtype| cols.saturating_mul(dtype.bits()).is_multiple_of(128);
    let weights = plan.weight.element();
    [plan.hidden_padded, plan.hidden_computed]
        .into_iter()
        .all(|cols| whole(cols, input) && whole(cols, weights))
        && whole(plan.width_computed, mid_type(numerics.mid_bf16))
        && whole(plan.width_computed, weights)
        && whole(plan.width_padded, weights)
}

/// The element type that the input must have: a weighted input is rounded again, and f32 keeps what
/// bfloat16 would lose.
pub(super) fn input_type(plan: &Plan) -> Option<Dtype> {
    plan.numerics.route.weights_input().then_some(Dtype::F32)
}

fn mid_type(bf16: bool) -> Dtype {
    if bf16 { Dtype::Bf16 } else { Dtype::F32 }
}

impl Layer<'_> {
    /// Channels of the output that the kernels compute.
    pub(super) fn hidden(&self) -> Result<usize, SubjectError> {
        computed(self.plan.hidden_computed, self.sizes.hidden)
    }

    /// Sets the workspace up, shows the machine every buffer, and says what to launch over them.
    pub(super) fn prepare<'a>(
        &'a self,
        rank: &'a Rank<'a>,
        ids: &'a [i32],
        machine: &mut impl Machine,
        w: &mut Workspace,
    ) -> Result<Work<'a>, SubjectError> {
        let (t, k) = (self.sizes.t, self.sizes.k);
        let slots = t * k;
        for (name, len) in [("ids", ids.len()), ("weights", self.routing.weights.len())] {
            if len != slots {
                return Err(size_error(name, "slots", slots, len));
            }
        }
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let blocks = axis("blocks", limits::blocks(wide(slots), wide(rank.experts)))?;
        let width = computed(self.plan.width_computed, self.sizes.width)?;
        let hidden = self.hidden()?;
        let mid = mid_type(self.plan.numerics.mid_bf16);
        let mid_read = row_bytes(width, mid);
        let mid_pitch = mid_read.next_multiple_of(16);
        let tiles = hidden.div_ceil(BLOCK_COLS);

        // A sentinel row is one past the last: the guards hold it.
        for (slot, name, bytes, guard, fill) in [
            (Slot::Sorted, "sorted", blocks * BLOCK_ROWS * 4, 0, 0xff),
            (Slot::BlockExpert, "block_expert", blocks * 4, 0, 0xff),
            (Slot::Blocks, "blocks", 4, 0, 0xff),
            (Slot::Needed, "needed", t * 4, 0, 0xff),
            (Slot::Done, "done", t * tiles * 4, 0, 0),
            (Slot::Mid, "mid", slots * mid_pitch, mid_pitch, 0xff),
            (Slot::Y, "y", slots * hidden * 4, hidden * 4, 0xff),
            (Slot::Out, "out", t * hidden * 4, hidden * 4, 0xff),
        ] {
            w.get_mut(slot).reset(name, bytes, guard, fill);
        }
        machine.clear();
        let read = self.x.bytes().len() + slots * 8 + rank.bytes();
        machine.room(wide(w.bytes() + read), PARTS)?;
        let at = machine.lend(w)?;
        let (x_type, weights) = (self.x.dtype(), self.plan.weight.element());
        let x_pitch = row_bytes(self.sizes.hidden, x_type);
        let rows = reads::rows(x_pitch, row_bytes(hidden, x_type));
        let x = machine.place(self.x.bytes(), &rows)?;
        let order = self.plan.order;
        let scales = |grid: Option<ScalePlan>| grid.map(|grid| grid.dtype);
        let first = Readings {
            channels: Channels {
                experts: rank.experts,
                halves: self.sizes.halves,
                computed: width,
                stored: self.sizes.width,
                up_first: order.up_first(),
                group: axis("interleave", order.interleave())?,
            },
            of: &rank.w13,
            weights,
            scales: scales(self.plan.w13_scale),
        };
        let second = Readings {
            channels: Channels {
                halves: 1,
                computed: hidden,
                stored: self.sizes.hidden,
                ..first.channels
            },
            of: &rank.w2,
            weights,
            scales: scales(self.plan.w2_scale),
        };
        let mut params = Params {
            w13: placed(&first, machine)?,
            w2: placed(&second, machine)?,
            x,
            ids: machine.place(bytemuck::cast_slice(ids), &every)?.cast(),
            weights: machine
                .place(bytemuck::cast_slice(&self.routing.weights), &every)?
                .cast(),
            sorted: at.of(Slot::Sorted),
            block_expert: at.of(Slot::BlockExpert),
            blocks: at.of(Slot::Blocks),
            needed: at.of(Slot::Needed),
            done: at.of(Slot::Done),
            mid: at.of(Slot::Mid),
            y: at.of(Slot::Y),
            out: at.of(Slot::Out),
            tokens: int(t)?,
            top_k: int(k)?,
            experts: int(rank.experts)?,
            expert_first: int(rank.expert_first)?,
            hidden: int(hidden)?,
            width: int(width)?,
            half_rows: int(self.sizes.width)?,
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
            x_pitch: int(x_pitch)?,
            mid_pitch: int(mid_pitch)?,
            x_unit: int(unit(x, x_pitch, row_bytes(hidden, x_type)))?,
            mid_unit: int(unit(at.of(Slot::Mid), mid_pitch, mid_read))?,
            fault: machine.fault() as i32,
        };
        self.narrow(&mut params);
        let first = width.div_ceil(BLOCK_COLS / self.sizes.halves);
        let fast = [
            params.x_unit == 16 && params.w13.unit == 16,
            params.mid_unit == 16 && params.w2.unit == 16,
        ];
        let launch =
            |kernel, inputs, grid, fast| launch(kernel, (inputs, weights), grid, fast, rank);
        let launches = [
            launch(Kernel::Align, x_type, (1, 1), false)?,
            launch(Kernel::First, x_type, (first, blocks), fast[0])?,
            launch(Kernel::Second, mid, (tiles, blocks), fast[1])?,
        ];
        Ok(Work {
            rank,
            params,
            launches,
            blocks,
            x: self.x.bytes(),
            ids,
            weights: &self.routing.weights,
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
}

/// A projection's tensors where the machine's kernels see them; null for those it has not.
fn placed(readings: &Readings<'_>, machine: &mut impl Machine) -> Result<Matrix, SubjectError> {
    let of = readings.of;
    let mut matrix = of.matrix;
    matrix.weights = machine.place(of.weights, &|bytes| readings.weights(bytes))?;
    let scales = |bytes: usize| readings.scales(bytes);
    let bias = |bytes: usize| readings.bias(bytes);
    let others: [(_, _, Reads<'_>); 3] = [
        (of.scales, &mut matrix.scales, &scales),
        (of.globals, &mut matrix.globals, &every),
        (of.bias, &mut matrix.bias, &bias),
    ];
    for (bytes, at, reads) in others {
        if let Some(bytes) = bytes {
            *at = machine.place(bytes, reads)?;
        }
    }
    let read = row_bytes(of.computed, readings.weights);
    matrix.unit = int(unit(matrix.weights, of.row_bytes, read))?;
    Ok(matrix)
}

fn launch(
    kernel: Kernel,
    (inputs, weights): (Dtype, Dtype),
    (x, y): (usize, usize),
    fast: bool,
    rank: &Rank<'_>,
) -> Result<Launch, SubjectError> {
    let grid =
        |n: usize| u32::try_from(n).map_err(|_| size_error("grid", "blocks", u32::MAX as usize, n));
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
    })
}
