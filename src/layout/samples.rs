//! Plans and logical tensors made by hand, for tests of this layer and of audit: independent of
//! the planner.

use crate::num::Dtype;
use crate::plan::{Dims, Fit, Parallel, Plan, RankPlan, ScalePlan};
use crate::tensor::{Logical, RouterInput, Tensor};
use crate::terms::{
    Activation, Bias, Extent, LayerKind, Nibble, Numerics, Order, Place, Split, Storage,
    WeightFormat,
};
use proptest::prelude::*;

/// What a sample plan is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) weight: WeightFormat,
    pub(crate) gated: bool,
    pub(crate) e: u64,
    pub(crate) h: u64,
    pub(crate) i: u64,
    pub(crate) tp: u64,
    pub(crate) ep: u64,
    pub(crate) order: Order,
    pub(crate) place: Place,
    /// Granules of the padded sizes.
    pub(crate) hidden: u64,
    pub(crate) width: u64,
    /// Granule of the cut between ranks.
    pub(crate) cut: u64,
    pub(crate) storage: Storage,
    pub(crate) weights: Storage,
    pub(crate) nibble: Nibble,
    pub(crate) bias: Bias,
}

impl Default for Sample {
    fn default() -> Self {
        Sample {
            weight: WeightFormat::Nvfp4,
            gated: true,
            e: 2,
            h: 32,
            i: 48,
            tp: 2,
            ep: 1,
            order: Order::GateUp,
            place: Place::PerHalf,
            hidden: 64,
            width: 32,
            cut: 16,
            storage: Storage::Linear,
            weights: Storage::Linear,
            nibble: Nibble::Low,
            bias: Bias::Both,
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn source_block(extent: Extent) -> u64 {
    match extent {
        Extent::All => 0,
        Extent::Block(n) => n,
    }
}

fn blocks(len: u64, block: u64) -> u64 {
    if block == 0 { 1 } else { len.div_ceil(block) }
}

impl Sample {
    /// The plan, worked out here and not by the planner.
    pub(crate) fn plan(&self) -> Plan {
        let halves = if self.gated { 2 } else { 1 };
        let cuts = self.tp / self.ep;
        let cut = if cuts == 1 {
            self.i
        } else {
            self.i.div_ceil(self.cut).div_ceil(cuts) * self.cut
        };
        let per_group = self.e.div_ceil(self.ep);
        let ranks: Vec<RankPlan> = (0..self.tp)
            .map(|rank| {
                let start = (rank % cuts * cut).min(self.i);
                let expert_start = (rank / cuts * per_group).min(self.e);
                RankPlan {
                    rank,
                    start,
                    len: cut.min(self.i - start),
                    expert_start,
                    expert_len: per_group.min(self.e - expert_start),
                }
            })
            .collect();
        let width = ranks.iter().map(|r| r.len).max().unwrap_or(0);
        let group = if self.gated {
            self.order.interleave().max(1)
        } else {
            1
        };
        let lcm = |a: u64, b: u64| a / gcd(a, b) * b;
        // What the weights' storage layout must be able to fill: 64 elements are 32 bytes of FP4.
        let whole = match self.weights {
            Storage::Shuffle16x16 => 64,
            Storage::Rows16 | Storage::Rows32 => 32,
            _ => 1,
        };
        let width_padded = width.next_multiple_of(lcm(lcm(self.width, group), whole));
        let hidden_padded = self.h.next_multiple_of(lcm(self.hidden, whole));
        let scale = |w13: bool| {
            let grid = self.weight.scale()?;
            let (row_source, col_source) = (source_block(grid.rows), source_block(grid.cols));
            // Where a rank starts inside a block, the block is refined.
            let fine = |source: u64| {
                if cuts == 1 || source == 0 {
                    source
                } else {
                    gcd(source, cut)
                }
            };
            let (row_block, col_block) = if w13 {
                (fine(row_source), col_source)
            } else {
                (row_source, fine(col_source))
            };
            let (rows, cols, rows_all, cols_all) = if w13 {
                let half = if row_block == 1 && width_padded == 0 {
                    0
                } else {
                    blocks(width_padded, row_block)
                };
                (
                    halves * half,
                    blocks(hidden_padded, col_block),
                    halves * blocks(self.i, row_source),
                    blocks(self.h, col_source),
                )
            } else {
                (
                    blocks(hidden_padded, row_block),
                    blocks(width_padded, col_block),
                    blocks(self.h, row_source),
                    blocks(self.i, col_source),
                )
            };
            let (tile_rows, tile_cols) = match (self.storage, grid.dtype) {
                (Storage::Tiled128x4, Dtype::E4m3 | Dtype::E8m0) => (128, 4),
                (Storage::Tiled8x4, Dtype::E4m3 | Dtype::E8m0) => (8, 4),
                (Storage::TritonBlackwell, Dtype::E8m0) => (128, 8),
                (Storage::TritonHopper, Dtype::E8m0) => (256, 2),
                (Storage::TritonCdna4, Dtype::E8m0) => (32, 8),
                (Storage::Aiter256x8, Dtype::E8m0) => (256, 8),
                (Storage::AiterN32k4, Dtype::E8m0) => (32, 4),
                (Storage::DeepGemm, Dtype::E8m0) => (4, 4),
                _ => (1, 1),
            };
            Some(ScalePlan {
                dtype: grid.dtype,
                row_block,
                row_block_source: row_source,
                col_block,
                col_block_source: col_source,
                rows_logical: rows_all,
                cols_logical: cols_all,
                rows_padded: rows,
                cols_padded: cols,
                rows_stored: rows.next_multiple_of(tile_rows),
                cols_stored: cols.next_multiple_of(tile_cols),
                pad_code: match grid.dtype {
                    Dtype::E8m0 => 127,
                    Dtype::E4m3 => 0x38,
                    Dtype::F32 => 1f32.to_bits(),
                    _ => 0,
                },
            })
        };
        Plan {
            rule: "spelled".to_owned(),
            kernel: false,
            grade: crate::rule::Grade::Derived,
            arch: Vec::new(),
            layer: LayerKind::Routed,
            fit: Fit::Padded,
            dims: Dims {
                t: 2,
                e: self.e,
                k: 1,
                h: self.h,
                i: self.i,
                halves,
            },
            activation: if self.gated {
                Activation::Swiglu
            } else {
                Activation::Relu2
            },
            weight: self.weight,
            bias: self.bias,
            numerics: Numerics::default(),
            parallel: Parallel {
                tp: self.tp,
                ep: self.ep,
            },
            width,
            width_padded,
            width_computed: width_padded,
            w13_rows: halves * width_padded,
            hidden_padded,
            hidden_computed: hidden_padded,
            w2_width_computed: width_padded,
            w2_hidden_computed: hidden_padded,
            tokens_padded: 4,
            split: Split::CeilBlock,
            order: self.order,
            place: self.place,
            storage: self.storage,
            weight_storage: self.weights,
            nibble: self.nibble,
            unread: Vec::new(),
            w2_bias: None,
            zero_points: None,
            weight_pad: if self.weight.element() == Dtype::Int4 {
                8
            } else {
                0
            },
            w13_scale: scale(true),
            w2_scale: scale(false),
            ranks,
            tensors: Vec::new(),
            overhead_millionths: 0,
            violations: Vec::new(),
        }
    }
}

/// A logical tensor of scattered codes, so that any two places differ soon.
fn scattered(name: &'static str, shape: &[u64], bits: u64) -> Tensor {
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    let mut tensor = Tensor::zeroed(name, &shape, bits.max(8) as usize);
    let mask = if bits == 4 { 0xf } else { 0xff };
    let mut state = name.len() as u64 + 1;
    for byte in tensor.bytes_mut() {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8 & mask;
    }
    tensor
}

/// Logical tensors of a plan's sizes.
pub(crate) fn logical(plan: &Plan) -> Logical {
    let d = plan.dims;
    let bits = plan.weight.element().bits();
    let scale = |s: Option<ScalePlan>, name| {
        s.map(|s| scattered(name, &[d.e, s.rows_logical, s.cols_logical], s.dtype.bits()))
    };
    let global = plan.weight.has_global_scale();
    let bias = plan.bias == Bias::Both;
    Logical {
        x: scattered("x", &[d.t, d.h], 32),
        router: RouterInput::Given {
            ids: Vec::new(),
            weights: Vec::new(),
        },
        w13: scattered("w13", &[d.e, d.halves * d.i, d.h], bits),
        w2: scattered("w2", &[d.e, d.h, d.i], bits),
        w13_scale: scale(plan.w13_scale, "w13_scale"),
        w2_scale: scale(plan.w2_scale, "w2_scale"),
        w13_global: global.then(|| scattered("w13_scale_2", &[d.e, d.halves], 32)),
        w2_global: global.then(|| scattered("w2_scale_2", &[d.e, 1], 32)),
        w13_bias: bias.then(|| scattered("w13_bias", &[d.e, d.halves * d.i], 32)),
        w2_bias: bias.then(|| scattered("w2_bias", &[d.e, d.h], 32)),
        x_scale: 1.0,
        h_scale: 1.0,
    }
}

/// The storage layouts of weights, or those of scales; half of them plain.
fn of_weights(weights: bool) -> Vec<Storage> {
    let all = Storage::ALL.iter().copied();
    let some = all.filter(|s| *s != Storage::Linear && s.of_weights() == weights);
    some.flat_map(|s| {
        if weights {
            vec![s, Storage::Linear]
        } else {
            vec![s]
        }
    })
    .collect()
}

/// Random samples over every format, order, place, storage, nibble order and parallelism.
pub(crate) fn samples() -> impl Strategy<Value = Sample> {
    let sizes = (
        1u64..5,
        1u64..70,
        1u64..150,
        prop::sample::select(vec![1u64, 2, 4]),
    );
    let pads = (
        prop::sample::select(vec![1u64, 2, 3, 16, 32]),
        prop::sample::select(vec![1u64, 2, 5, 16, 32, 64, 128]),
        prop::sample::select(vec![1u64, 2, 16, 32, 128]),
    );
    let words = (
        prop::sample::select(WeightFormat::ALL.to_vec()),
        any::<bool>(),
        prop::sample::select(Order::ALL.to_vec()),
        prop::sample::select(Place::ALL.to_vec()),
        prop::sample::select(of_weights(false)),
        prop::sample::select(of_weights(true)),
        prop::sample::select(Nibble::ALL.to_vec()),
        prop::sample::select(Bias::ALL.to_vec()),
    );
    (sizes, pads, words, 0u64..3).prop_map(|((e, h, i, tp), (hidden, width, cut), words, ep)| {
        let (weight, gated, order, place, storage, weights, nibble, bias) = words;
        let row_blocks = matches!(
            weight.scale().map(|s| s.rows),
            Some(Extent::Block(n)) if n > 1
        );
        let order = match order {
            Order::GateUp | Order::UpGate => order,
            _ if row_blocks => Order::UpGate,
            _ => order,
        };
        Sample {
            weight,
            gated,
            e,
            h,
            i,
            tp,
            ep: (1 << ep).min(tp),
            order,
            place,
            hidden,
            width,
            cut,
            storage,
            weights,
            nibble,
            bias,
        }
    })
}
