//! Layers whose outputs are the sums of chosen products.
//!
//! Where weights hold 2^100 they carry the products: on the intermediate axis a row of w2 holds them
//! and the intermediate is one constant; on the hidden axis a row of w13 does, and w2 hands each
//! row's sum to an output of its own. Where they do not, as in formats of four and eight bits, the
//! input carries them, a token for each sum: on the hidden axis w13 is all ones; on the intermediate
//! axis its rows hand the input on, each a column, and w2 is all ones. It must not run them. Layer 5.

use crate::case::{Case, PadSpec, Scheme};
use crate::num::{Dtype, Encode};
use crate::plan::storage_granule;
use crate::schedule::Probe;
use crate::tensor::{Logical, RouterInput, Tensor};
use crate::terms::{Activation, Extent, Order, Route, Stores, WeightFormat};
use std::fmt;

/// Which sums are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Those of the second projection, over the intermediate.
    Intermediate,
    /// Those of the first projection, over the hidden size.
    Hidden,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Axis::Intermediate => "intermediate",
            Axis::Hidden => "hidden",
        })
    }
}

/// The layers that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setup {
    /// Whose sums.
    pub axis: Axis,
    /// Products of a sum.
    pub n: u64,
    /// The size that padding brings that axis to; `n` for none.
    pub padded: u64,
    /// Tokens: kernels choose their path by their number too.
    pub tokens: u64,
    /// Size of the other axis.
    pub rows: u64,
    /// The size that padding brings the other axis to; `rows` for none.
    pub rows_padded: u64,
    /// Weight format.
    pub weights: WeightFormat,
}

/// What a row adds up.
pub(super) enum Row<'p> {
    Probe(&'p Probe),
    /// So many ones.
    Ones(usize),
}

impl Row<'_> {
    fn value(&self, k: usize) -> f32 {
        match self {
            Row::Probe(probe) => probe.value(k),
            Row::Ones(count) if k < *count => 1.0,
            Row::Ones(_) => 0.0,
        }
    }
}

/// What a gate row comes to: every sigmoid of it is 1 in f32 and bf16.
const GATE: f32 = 64.0;

impl Setup {
    /// Whether the input carries the products.
    pub(super) fn by_input(&self) -> bool {
        !matches!(self.weights, WeightFormat::F32 | WeightFormat::Bf16)
    }

    /// Sums of one layer.
    pub(super) fn sums(&self, case: &Case) -> u64 {
        match (self.by_input(), self.axis) {
            (true, _) => case.t,
            (false, Axis::Intermediate) => case.h,
            (false, Axis::Hidden) => case.i,
        }
    }

    /// Activations through which sums show.
    pub(super) fn activations(&self) -> &'static [Activation] {
        use Activation::{Geglu, GegluTanh, Gelu, GeluTanh, Identity, Relu, Silu, Swiglu};
        match (self.by_input(), self.axis) {
            // The intermediate is a constant, whatever it is.
            (false, Axis::Intermediate) => Activation::ALL,
            // Those that leave a sum, or a large one, as it is.
            (false, Axis::Hidden) => &[
                Identity, Relu, Silu, Gelu, GeluTanh, Swiglu, Geglu, GegluTanh,
            ],
            // A gate would be moved by the input.
            (true, Axis::Hidden) => &[Identity, Relu, Silu, Gelu, GeluTanh],
            // Products have both signs.
            (true, Axis::Intermediate) => &[Identity, Swiglu, Geglu, GegluTanh],
        }
    }

    /// Multiples that the other axis is brought to where its size is the layer's own business.
    pub(super) fn granules(&self) -> &'static [u64] {
        match (self.by_input(), self.axis) {
            (true, Axis::Intermediate) => &[1, 32, 128, 256],
            _ => &[1],
        }
    }

    /// A layer of these sizes.
    pub(super) fn case(&self, act: Activation, order: Order, route: Route, granule: u64) -> Case {
        // A granule of the padded size itself, in whole blocks of scales: one multiple of it is the next from any
        // n below, and the plan widens it no further.
        let blocks = storage_granule(self.weights, Stores::LINEAR);
        // Both are powers of two.
        let turns = blocks.max(order.interleave());
        let granule_of = |n: u64, padded: u64, step: u64| match padded > n {
            true => padded.next_multiple_of(step),
            false => 1,
        };
        let (mine, others) = match self.axis {
            Axis::Intermediate => (turns, blocks),
            Axis::Hidden => (blocks, turns),
        };
        let own = granule_of(self.n, self.padded, mine);
        let other = granule_of(self.rows, self.rows_padded, others);
        let (h, i, pads) = match (self.axis, self.by_input()) {
            (Axis::Intermediate, false) => (self.rows, self.n, (other, own)),
            // A column for each product, and one that the gate reads.
            (Axis::Intermediate, true) => {
                let columns = self.n.saturating_add(1).next_multiple_of(granule);
                (columns, self.n, (1, own))
            }
            // A row's sum leaves by an output of its own: no more rows than the hidden size.
            (Axis::Hidden, false) => (self.n, self.rows.min(self.n), (own, other)),
            (Axis::Hidden, true) => (self.n, self.rows, (own, other)),
        };
        Case {
            t: self.tokens,
            e: 1,
            k: 1,
            h,
            i,
            act,
            route,
            w: self.weights,
            scheme: Scheme::Spelled(PadSpec {
                hidden: pads.0,
                intermediate: pads.1,
                order,
                ..PadSpec::default()
            }),
            ..Case::default()
        }
    }

    /// Bytes of the layer's values in f32.
    pub(super) fn bytes(case: &Case) -> u64 {
        let rows = case.act.halves().saturating_mul(case.i);
        let weights = rows.saturating_add(case.i).saturating_mul(case.h);
        let x = case.t.saturating_mul(case.h);
        weights.saturating_add(x).saturating_mul(4)
    }

    /// The layer's tensors; where the input carries the products only it depends on the rows.
    pub(super) fn logical(&self, case: &Case, rows: &[Row<'_>]) -> Logical {
        let size = |n: u64| usize::try_from(n).expect("a plan was made");
        let Case { t, h, i, act, .. } = *case;
        let (t, h, i, halves) = (size(t), size(h), size(i), size(act.halves()));
        let mut w13 = vec![0.0; halves * i * h];
        let mut w2 = vec![0.0; h * i];
        let mut x = vec![0.0; t * h];
        let up = (halves - 1) * i;
        match (self.axis, self.by_input()) {
            (Axis::Intermediate, false) => {
                x.chunks_mut(h).for_each(|x| x[0] = 1.0);
                for (r, row) in w13.chunks_mut(h).enumerate() {
                    row[0] = if r < i { GATE } else { 1.0 / GATE };
                }
                for (row, w2) in rows.iter().zip(w2.chunks_mut(i)) {
                    put(row, w2, 1.0);
                }
            }
            (Axis::Hidden, false) => {
                x.fill(1.0);
                // Where there is no gate the sum itself goes through the activation.
                let scale = if halves == 2 { 1.0 } else { GATE };
                for (r, row) in w13.chunks_mut(h).enumerate() {
                    if r < up {
                        row[0] = GATE;
                    } else if let Some(of) = rows.get(r - up) {
                        put(of, row, scale);
                    }
                }
                (0..i.min(h)).for_each(|j| w2[j * i + j] = 1.0);
            }
            (Axis::Intermediate, true) => {
                self.input(h, rows, &mut x);
                for (r, row) in w13.chunks_mut(h).enumerate() {
                    // Up's rows hand on a column each; gate's read the last.
                    row[if r < up { h - 1 } else { r - up }] = 1.0;
                }
                w2.fill(1.0);
            }
            (Axis::Hidden, true) => {
                self.input(h, rows, &mut x);
                w13.fill(1.0);
                w2.chunks_mut(i).for_each(|w2| w2[0] = 1.0);
            }
        }
        let router = match case.route {
            Route::Given => RouterInput::Given {
                ids: vec![0; t],
                weights: vec![1.0; t],
            },
            // One expert is chosen with weight 1, whatever its logit.
            _ => RouterInput::Logits {
                logits: vec![0.0; t],
                bias: Vec::new(),
            },
        };
        let w = self.weights;
        let global = |name, halves: usize| {
            let ones = vec![1.0; halves];
            w.has_global_scale()
                .then(|| Tensor::from_f32(name, &[1, halves], &ones))
        };
        Logical {
            x: Tensor::from_f32("x", &[t, h], &x),
            router,
            w13: codes("w13", [halves * i, h], w.element(), &w13),
            w2: codes("w2", [h, i], w.element(), &w2),
            w13_scale: scales("w13_scale", w, [halves, i, h]),
            w2_scale: scales("w2_scale", w, [1, h, i]),
            w13_global: global("w13_scale_2", halves),
            w2_global: global("w2_scale_2", 1),
            w13_bias: None,
            w2_bias: None,
            x_scale: 1.0,
            h_scale: 1.0,
        }
    }

    /// The rows of products as rows of an input of `columns` each.
    pub(super) fn input(&self, columns: usize, rows: &[Row<'_>], x: &mut [f32]) {
        x.fill(0.0);
        for (row, x) in rows.iter().zip(x.chunks_mut(columns)) {
            let n = usize::try_from(self.n).unwrap_or(columns).min(columns);
            match self.axis {
                Axis::Intermediate => put(row, &mut x[..n], 1.0),
                // No gate: the sum itself goes through the activation.
                Axis::Hidden => put(row, &mut x[..n], GATE),
            }
        }
        if self.axis == Axis::Intermediate {
            // Every token's gate, those of no row too.
            x.chunks_mut(columns).for_each(|x| x[columns - 1] = GATE);
        }
    }
}

fn put(row: &Row<'_>, into: &mut [f32], scale: f32) {
    into.iter_mut()
        .enumerate()
        .for_each(|(k, value)| *value = scale * row.value(k));
}

/// Values as stored codes, whole bytes each.
fn codes(name: &'static str, [rows, cols]: [usize; 2], element: Dtype, values: &[f32]) -> Tensor {
    let bits = usize::try_from(element.bits().max(8)).expect("a few");
    let mut tensor = Tensor::zeroed(name, &[1, rows, cols], bits);
    let each = tensor.bytes_mut().chunks_exact_mut(bits / 8);
    for (to, &value) in each.zip(values) {
        let code = element.encode(f64::from(value), Encode::OCP).to_le_bytes();
        to.copy_from_slice(&code[..bits / 8]);
    }
    tensor
}

/// Scales of 1, where the format has any.
fn scales(name: &'static str, w: WeightFormat, [halves, rows, cols]: [usize; 3]) -> Option<Tensor> {
    let grid = w.scale()?;
    let blocks = |extent, n: usize| match extent {
        Extent::All => 1,
        Extent::Block(block) => n.div_ceil(usize::try_from(block).unwrap_or(n).max(1)),
    };
    let shape = [halves * blocks(grid.rows, rows), blocks(grid.cols, cols)];
    let ones = vec![1.0; shape[0] * shape[1]];
    Some(codes(name, shape, grid.dtype, &ones))
}
