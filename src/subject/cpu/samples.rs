//! Layers for tests: plans made by hand and a packer that writes one element at a time.

use crate::layout::{PackedInputs, RankInputs};
use crate::num::Dtype;
use crate::plan::{Dims, Fit, Parallel, Plan, RankPlan, Role, ScalePlan};
use crate::rng;
use crate::tensor::{RouterInput, Tensor};
use crate::terms::*;

/// A layer whose logical codes are a function of (seed, tensor, expert, row, column).
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) plan: Plan,
    pub(super) seed: u64,
}

pub(super) fn at(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

impl Sample {
    /// t, e, k, h, i over tp ranks in ep groups; unpadded.
    pub(super) fn new(
        dims: [u64; 5],
        tp: u64,
        ep: u64,
        act: Activation,
        w: WeightFormat,
    ) -> Sample {
        let [t, e, k, h, i] = dims;
        let block = [Extent::All, Extent::All]
            .into_iter()
            .chain(w.scale().map(|s| s.rows))
            .chain(w.scale().map(|s| s.cols))
            .map(|x| if let Extent::Block(b) = x { b } else { 1 })
            .max()
            .unwrap();
        let shards = tp / ep;
        let width = i.div_ceil(block).div_ceil(shards) * block;
        let ranks = (0..tp).map(|rank| {
            let start = (rank % shards * width).min(i);
            let per = e / ep;
            let (expert_start, expert_len) = (rank / shards * per, per);
            RankPlan {
                rank,
                start,
                len: width.min(i - start),
                expert_start,
                expert_len,
            }
        });
        let plan = Plan {
            rule: "by-hand".into(),
            kernel: false,
            grade: crate::rule::Grade::Derived,
            arch: Vec::new(),
            layer: LayerKind::Routed,
            fit: Fit::Fits,
            dims: Dims {
                t,
                e,
                k,
                h,
                i,
                halves: act.halves(),
            },
            activation: act,
            weight: w,
            bias: Bias::None,
            numerics: Numerics::default(),
            parallel: Parallel { tp, ep },
            width: width.min(i),
            width_padded: width.min(i),
            width_computed: width.min(i),
            w13_rows: 0,
            hidden_padded: h,
            hidden_computed: h,
            w2_width_computed: width.min(i),
            w2_hidden_computed: h,
            tokens_padded: t,
            split: Split::CeilBlock,
            order: Order::GateUp,
            place: Place::PerHalf,
            storage: Storage::Linear,
            weight_storage: Storage::Linear,
            nibble: Nibble::Low,
            unread: Vec::new(),
            w2_bias: None,
            zero_points: None,
            weight_pad: if w.element() == Dtype::Int4 { 8 } else { 0 },
            w13_scale: None,
            w2_scale: None,
            ranks: ranks.collect(),
            tensors: vec![],
            overhead_millionths: 0,
            violations: vec![],
        };
        let mut sample = Sample { plan, seed: 7 };
        let width = sample.plan.width_padded;
        sample.pad(h, width, t);
        sample
    }

    /// Sets the padded sizes and everything that follows from them.
    pub(super) fn pad(&mut self, hidden: u64, width: u64, tokens: u64) {
        let plan = &mut self.plan;
        let group = plan.order.interleave().max(1);
        let width = if plan.dims.halves == 2 {
            width.next_multiple_of(group)
        } else {
            width
        };
        (plan.hidden_padded, plan.width_padded, plan.tokens_padded) = (hidden, width, tokens);
        plan.w13_rows = width * plan.dims.halves;
        let Some(grid) = plan.weight.scale() else {
            return;
        };
        let block = |x| if let Extent::Block(b) = x { b } else { 0 };
        let (rb, cb) = (block(grid.rows), block(grid.cols));
        let blocks = |n: u64, b: u64| if b == 0 { 1 } else { n.div_ceil(b) };
        let tiled = plan.storage == Storage::Tiled128x4 && grid.dtype.bits() == 8;
        let (row_tile, col_tile) = if tiled { (128, 4) } else { (1, 1) };
        let scale = |rows: u64, cols: u64, halves: u64| ScalePlan {
            dtype: grid.dtype,
            row_block: rb,
            row_block_source: rb,
            col_block: cb,
            col_block_source: cb,
            rows_logical: 0,
            cols_logical: 0,
            rows_padded: halves * blocks(rows, rb),
            cols_padded: blocks(cols, cb),
            rows_stored: (halves * blocks(rows, rb)).next_multiple_of(row_tile),
            cols_stored: blocks(cols, cb).next_multiple_of(col_tile),
            pad_code: 0,
        };
        plan.w13_scale = Some(scale(width, hidden, plan.dims.halves));
        plan.w2_scale = Some(scale(hidden, width, 1));
    }

    fn random(&self, role: u64, e: u64, r: u64, c: u64) -> u64 {
        rng::value(self.seed, role, (e << 42) ^ (r << 21) ^ c)
    }

    fn float(&self, role: u64, e: u64, r: u64, c: u64) -> f32 {
        (self.random(role, e, r, c) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// The logical weight code: never NaN, of moderate size.
    fn code(&self, role: u64, e: u64, r: u64, c: u64) -> u32 {
        let n = self.random(role, e, r, c) as u32;
        let value = self.float(role, e, r, c);
        match self.plan.weight.element() {
            Dtype::F32 => value.to_bits(),
            Dtype::F16 => u32::from(half::f16::from_f32(value).to_bits()),
            Dtype::Bf16 => u32::from(half::bf16::from_f32(value).to_bits()),
            Dtype::E4m3 => (0x20 + n % 0x18) | (n & 0x80_0000) >> 16,
            Dtype::E2m1 | Dtype::Int4 => n & 15,
            _ => n & 0xff,
        }
    }

    fn scale_code(&self, role: u64, e: u64, r: u64, c: u64) -> u32 {
        let n = self.random(role, e, r, c) as u32;
        match self.plan.weight.scale().unwrap().dtype {
            Dtype::F32 => (0.01 + (n % 64) as f32 / 1024.0).to_bits(),
            Dtype::Bf16 => 0x3c00 + n % 0x80,
            Dtype::E8m0 => 122 + n % 4,
            _ => 0x20 + n % 0x10,
        }
    }

    fn tensor(&self, name: &'static str, shape: [u64; 3], bits: u64) -> Tensor {
        Tensor::zeroed(name, &shape.map(at), at(bits))
    }

    fn put(&self, tensor: &mut Tensor, [e, r, c]: [u64; 3], code: u32) {
        let rows = at(tensor.shape()[1] as u64);
        let start = (at(e) * rows + at(r)) * tensor.row_bytes();
        if tensor.bits() == 4 {
            let shift = if (c % 2 == 1) == (self.plan.nibble == Nibble::Low) {
                4
            } else {
                0
            };
            let byte = &mut tensor.bytes_mut()[start + at(c) / 2];
            *byte = *byte & !(15 << shift) | (code as u8) << shift;
        } else {
            let size = tensor.bits() / 8;
            let start = start + at(c) * size;
            tensor.bytes_mut()[start..start + size].copy_from_slice(&code.to_le_bytes()[..size]);
        }
    }

    /// Stored row of channel j of a half, for a half of `width` rows.
    fn row_at(&self, half: u64, j: u64, width: u64) -> u64 {
        let place = if self.plan.order.up_first() && self.plan.dims.halves == 2 {
            1 - half
        } else {
            half
        };
        match self.plan.order.interleave() {
            n if n > 0 && self.plan.dims.halves == 2 => (j / n * 2 + place) * n + j % n,
            _ => place * width + j,
        }
    }

    fn put_scale(&self, tensor: &mut Tensor, scale: &ScalePlan, [e, r, c]: [u64; 3], code: u32) {
        if self.plan.storage == Storage::Tiled128x4 && scale.dtype.bits() == 8 {
            let index = e * scale.rows_stored * scale.cols_stored
                + (((r / 128 * (scale.cols_stored / 4) + c / 4) * 32 + r % 32) * 4 + r / 32 % 4)
                    * 4
                + c % 4;
            tensor.bytes_mut()[at(index)] = code as u8;
        } else {
            self.put(tensor, [e, r, c], code);
        }
    }

    /// The packed tensors, written element by element.
    pub(super) fn inputs(&self) -> PackedInputs {
        let p = &self.plan;
        let mut x = self.tensor("x", [1, p.tokens_padded, p.hidden_padded], 32);
        for t in 0..p.dims.t {
            for c in 0..p.dims.h {
                self.put(&mut x, [0, t, c], self.float(0, 0, t, c).to_bits());
            }
        }
        PackedInputs {
            x,
            router: self.router(),
            ranks: p.ranks.iter().map(|r| self.rank(r)).collect(),
            x_scale: 1.0 / 256.0,
            h_scale: 1.0 / 16.0,
        }
    }

    fn router(&self) -> RouterInput {
        let p = &self.plan;
        let logits = (0..p.dims.t * p.choices())
            .map(|n| 4.0 * self.float(1, 0, 0, n))
            .collect();
        let biased = if p.numerics.route.has_bias() {
            p.choices()
        } else {
            0
        };
        let bias = (0..biased).map(|n| self.float(2, 0, 0, n)).collect();
        RouterInput::Logits { logits, bias }
    }

    fn rank(&self, share: &RankPlan) -> RankInputs {
        let p = &self.plan;
        let (halves, bits) = (p.dims.halves, p.weight.element().bits());
        let mut w13 = self.tensor("w13", [share.expert_len, p.w13_rows, p.hidden_padded], bits);
        let mut w2 = self.tensor(
            "w2",
            [share.expert_len, p.hidden_padded, p.width_padded],
            bits,
        );
        if p.weight_pad != 0 {
            w13.bytes_mut().fill(0x88);
            w2.bytes_mut().fill(0x88);
        }
        for e in 0..share.expert_len {
            let expert = share.expert_start + e;
            for j in 0..share.len {
                for c in 0..p.dims.h {
                    for half in 0..halves {
                        let code = self.code(3 + half, expert, share.start + j, c);
                        self.put(&mut w13, [e, self.row_at(half, j, p.width_padded), c], code);
                    }
                    self.put(&mut w2, [e, c, j], self.code(5, expert, c, share.start + j));
                }
            }
        }
        let mut rank = RankInputs::default();
        rank.set(Role::W13, w13);
        rank.set(Role::W2, w2);
        if let (Some(s13), Some(s2)) = (p.w13_scale, p.w2_scale) {
            self.scales(&mut rank, share, &s13, &s2);
        }
        if p.weight.has_global_scale() {
            let globals = |role, n| {
                let mut t = self.tensor("global", [share.expert_len, n, 1], 32);
                for e in 0..share.expert_len {
                    for half in 0..n {
                        self.put(
                            &mut t,
                            [e, half, 0],
                            self.global(role, share.expert_start + e, half).to_bits(),
                        );
                    }
                }
                t
            };
            rank.set(Role::W13Global, globals(10, halves));
            rank.set(Role::W2Global, globals(11, 1));
        }
        if p.bias == Bias::Both {
            let mut b13 = self.tensor("w13_bias", [share.expert_len, p.w13_rows, 1], 32);
            let mut b2 = self.tensor("w2_bias", [share.expert_len, p.hidden_padded, 1], 32);
            for e in 0..share.expert_len {
                let expert = share.expert_start + e;
                for half in 0..halves {
                    for j in 0..share.len {
                        let bias = self.float(12 + half, expert, share.start + j, 0).to_bits();
                        self.put(&mut b13, [e, self.row_at(half, j, p.width_padded), 0], bias);
                    }
                }
                // Once over the ranks of a group: on the rank that holds the first channel.
                for c in 0..if share.start == 0 { p.dims.h } else { 0 } {
                    self.put(&mut b2, [e, c, 0], self.float(14, expert, c, 0).to_bits());
                }
            }
            rank.set(Role::W13Bias, b13);
            rank.set(Role::W2Bias, b2);
        }
        rank
    }

    fn global(&self, role: u64, e: u64, half: u64) -> f32 {
        0.05 + (self.random(role, e, half, 0) % 100) as f32 / 1000.0
    }

    fn scales(&self, rank: &mut RankInputs, share: &RankPlan, s13: &ScalePlan, s2: &ScalePlan) {
        let p = &self.plan;
        let bits = s13.dtype.bits();
        let mut t13 = self.tensor(
            "w13_scale",
            [share.expert_len, s13.rows_stored, s13.cols_stored],
            bits,
        );
        let mut t2 = self.tensor(
            "w2_scale",
            [share.expert_len, s2.rows_stored, s2.cols_stored],
            bits,
        );
        let per = |n: u64, block: u64| n.checked_div(block).unwrap_or(0);
        for e in 0..share.expert_len {
            let expert = share.expert_start + e;
            for j in 0..share.len {
                for c in 0..p.dims.h {
                    let (gr, gc) = (per(share.start + j, s13.row_block), per(c, s13.col_block));
                    for half in 0..p.dims.halves {
                        let row = match s13.row_block {
                            0 => half,
                            1 => self.row_at(half, j, p.width_padded),
                            b => self.row_at(half, j / b, p.width_padded.div_ceil(b)),
                        };
                        let code = self.scale_code(6 + half, expert, gr, gc);
                        self.put_scale(&mut t13, s13, [e, row, gc], code);
                    }
                    let (row, col) = (per(c, s2.row_block), per(j, s2.col_block));
                    let code = self.scale_code(8, expert, row, per(share.start + j, s2.col_block));
                    self.put_scale(&mut t2, s2, [e, row, col], code);
                }
            }
        }
        rank.set(Role::W13Scale, t13);
        rank.set(Role::W2Scale, t2);
    }

    /// The logical weight of a half (0 gate, 1 up) of w13, or of w2 (2), in f64.
    pub(super) fn weight(&self, which: u64, e: u64, r: u64, c: u64) -> f64 {
        let w = self.plan.weight;
        let code = w.element().decode(self.code(3 + which, e, r, c));
        let scale = w.scale().map_or(1.0, |grid| {
            let block = |x, n: u64| if let Extent::Block(b) = x { n / b } else { 0 };
            let code = self.scale_code(6 + which, e, block(grid.rows, r), block(grid.cols, c));
            f64::from(grid.dtype.decode(code))
        });
        let global = match (w.has_global_scale(), which) {
            (false, _) => 1.0,
            (true, 2) => f64::from(self.global(11, e, 0)),
            (true, half) => f64::from(self.global(10, e, half)),
        };
        f64::from(code) * scale * global
    }

    /// The layer in plain f64 for swiglu and relu2, from the subject's own routing.
    pub(super) fn plainly(&self, ids: &[u32], weights: &[f32]) -> Vec<f64> {
        let Dims {
            t, k, h, i, halves, ..
        } = self.plan.dims;
        let biased = self.plan.bias == Bias::Both;
        let bias = |role, e, n| {
            if biased {
                f64::from(self.float(role, e, n, 0))
            } else {
                0.0
            }
        };
        let mut out = vec![0.0; at(t * h)];
        for (n, (&id, &weight)) in ids.iter().zip(weights).enumerate() {
            let (token, e) = (n as u64 / k, u64::from(id));
            let x: Vec<f64> = (0..h)
                .map(|c| f64::from(self.float(0, 0, token, c)))
                .collect();
            if e >= self.plan.dims.e {
                for c in 0..h {
                    out[at(token * h + c)] += f64::from(weight) * x[at(c)];
                }
                continue;
            }
            let project = |half, j| {
                let products = (0..h).map(|c| self.weight(half, e, j, c) * x[at(c)]);
                products.sum::<f64>() + bias(12 + half, e, j)
            };
            let middle: Vec<f64> = (0..i)
                .map(|j| {
                    let g = project(0, j);
                    if halves == 2 {
                        g / (1.0 + (-g).exp()) * project(1, j)
                    } else {
                        g.max(0.0).powi(2)
                    }
                })
                .collect();
            for c in 0..h {
                let products = (0..i).map(|j| self.weight(2, e, c, j) * middle[at(j)]);
                let y = products.sum::<f64>() + bias(14, e, c);
                out[at(token * h + c)] += f64::from(weight) * y;
            }
        }
        out
    }
}
