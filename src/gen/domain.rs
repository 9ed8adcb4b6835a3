//! Holds the one table of ranges and interesting points per axis, for each profile of cases.
//!
//! It must not draw. Layer 8.

use crate::terms::{
    ActQuant, Activation, Bias, Fill, Nibble, Order, Route, Split, Storage, WeightFormat,
};

/// The range of one size, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Interesting values beside those that follow from granules, groups and ranks.
    pub points: &'static [u64],
}

/// What a profile draws from. In each list the first entry is the plain one, which a case gets
/// when the swarm mask switches the feature off.
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// The profile's name.
    pub name: &'static str,
    /// Tokens.
    pub tokens: Axis,
    /// Hidden size, before it is rounded up to a row group of the format.
    pub hidden: Axis,
    /// Intermediate size.
    pub intermediate: Axis,
    /// Experts.
    pub experts: Axis,
    /// Largest k, before it is cut to the experts there are; where the router has groups, or identity experts are drawn,
    /// it may be all that can be chosen.
    pub top_k_max: u64,
    /// Tensor-parallel ranks.
    pub ranks: &'static [u64],
    /// Whether ranks are also grouped by expert parallelism.
    pub expert_parallel: bool,
    /// Granules of the intermediate axis, before the format's group is honoured.
    pub granules: &'static [u64],
    /// Granules of the hidden axis; 1 where the swarm mask switches its padding off.
    pub hidden_granules: &'static [u64],
    /// Granules of the token axis.
    pub token_granules: &'static [u64],
    /// Weight formats.
    pub formats: &'static [WeightFormat],
    /// Activations.
    pub activations: &'static [Activation],
    /// Routers.
    pub routes: &'static [Route],
    /// routed_scaling_factor in thousandths.
    pub factors: &'static [u64],
    /// Most identity experts; some where there may be any, in one case of 32.
    pub zero_max: u64,
    /// Row orders of a gated w13.
    pub orders: &'static [Order],
    /// Split rules.
    pub splits: &'static [Split],
    /// Storage layouts of scales, for formats with scales per row group.
    pub stores: &'static [Storage],
    /// Storage layouts of weights; with one alone none is drawn.
    pub weight_stores: &'static [Storage],
    /// Nibble orders, for packed formats.
    pub nibbles: &'static [Nibble],
    /// Quantisation of the input.
    pub input_quants: &'static [ActQuant],
    /// Quantisation of the intermediate.
    pub mid_quants: &'static [ActQuant],
    /// Whether the intermediate may be bf16.
    pub mid_bf16: bool,
    /// Biases.
    pub biases: &'static [Bias],
    /// Fills of the half of the cases that is not exact.
    pub fills: &'static [Fill],
    /// Of 16 sizes, how many sit on or beside an edge instead of anywhere in the range.
    pub edges: u64,
    /// Whether a mask of features is drawn per case.
    pub swarm: bool,
}

/// Group sizes of the scaled formats, around which every profile with edges draws sizes.
pub const GROUPS: &[u64] = &[16, 32, 128];

const fn axis(min: u64, max: u64, points: &'static [u64]) -> Axis {
    Axis { min, max, points }
}

impl Domain {
    /// The distribution of facts/baseline_hypothesis.py, for comparing speed: uniform, no edges.
    ///
    /// The script's data are normal deviates; here half of the cases use the exact fill.
    pub const UNIFORM: Domain = Domain {
        name: "uniform",
        tokens: axis(1, 16, &[]),
        hidden: axis(16, 128, &[]),
        intermediate: axis(1, 300, &[]),
        experts: axis(2, 8, &[]),
        top_k_max: 4,
        ranks: &[1, 2, 4, 8],
        expert_parallel: false,
        granules: &[16, 32, 64, 128],
        hidden_granules: &[1],
        token_granules: &[1],
        formats: &[
            WeightFormat::F32,
            WeightFormat::Bf16,
            WeightFormat::Fp8,
            WeightFormat::Nvfp4,
            WeightFormat::Mxfp4,
        ],
        activations: &[Activation::Swiglu, Activation::Relu2],
        routes: &[Route::SoftmaxRenorm],
        factors: &[1000],
        zero_max: 0,
        orders: &[Order::GateUp],
        splits: &[Split::CeilBlock],
        stores: &[Storage::Linear],
        weight_stores: &[Storage::Linear],
        nibbles: &[Nibble::Low],
        input_quants: &[ActQuant::None],
        mid_quants: &[ActQuant::None],
        mid_bf16: false,
        biases: &[Bias::None],
        fills: &[Fill::Wild],
        edges: 0,
        swarm: false,
    };

    /// Everything there is, mixed by a swarm mask, with edges in most sizes.
    pub const FULL: Domain = Domain {
        name: "full",
        tokens: axis(0, 20, &[1, 8, 16]),
        hidden: axis(1, 160, &[1, 2, 64]),
        intermediate: axis(1, 400, &[1, 2, 64, 352]),
        experts: axis(1, 12, &[1, 2, 8]),
        top_k_max: 12,
        ranks: &[1, 2, 3, 4, 6, 8],
        expert_parallel: true,
        granules: &[1, 8, 16, 32, 64, 128, 256],
        hidden_granules: &[16, 64, 128],
        token_granules: &[1, 4, 8],
        formats: WeightFormat::ALL,
        activations: Activation::ALL,
        routes: ROUTES,
        factors: &[1000, 500, 1446, 2000, 2500, 16_000],
        zero_max: 4,
        orders: Order::ALL,
        splits: SPLITS,
        stores: SCALE_STORES,
        weight_stores: WEIGHT_STORES,
        nibbles: Nibble::ALL,
        input_quants: ActQuant::ALL,
        mid_quants: ActQuant::ALL,
        mid_bf16: true,
        biases: Bias::ALL,
        fills: &[Fill::Wild, Fill::Paint, Fill::Edge],
        edges: 10,
        swarm: true,
    };

    /// Everything with small groups, in tiny sizes: what a fuzzer runs thousands of times a second.
    pub const SMALL: Domain = Domain {
        name: "small",
        tokens: axis(0, 3, &[1]),
        hidden: axis(1, 20, &[1, 2]),
        intermediate: axis(1, 36, &[1, 2]),
        experts: axis(1, 4, &[1, 2]),
        top_k_max: 4,
        ranks: &[1, 2, 3, 4],
        granules: &[1, 8, 16, 32],
        hidden_granules: &[16, 64],
        token_granules: &[1, 4],
        formats: &[
            WeightFormat::F32,
            WeightFormat::F16,
            WeightFormat::Bf16,
            WeightFormat::Fp8,
            WeightFormat::Fp8Channel,
            WeightFormat::Fp8Block32,
            WeightFormat::Mxfp8,
            WeightFormat::Nvfp4,
            WeightFormat::Mxfp4,
            WeightFormat::Int4G32,
            WeightFormat::Int8,
        ],
        orders: &[
            Order::GateUp,
            Order::UpGate,
            Order::Int1,
            Order::Int8,
            Order::Int16,
        ],
        ..Domain::FULL
    };

    /// Every profile.
    pub const ALL: &'static [Domain] = &[Domain::UNIFORM, Domain::SMALL, Domain::FULL];
}

/// The plain router first; the rest in the vocabulary's order.
const ROUTES: &[Route] = &[
    Route::SoftmaxRenorm,
    Route::Given,
    Route::Softmax,
    Route::TopkSoftmax,
    Route::Sigmoid,
    Route::SigmoidRenorm,
    Route::SigmoidBias,
    Route::SqrtSoftplusBias,
    Route::SoftmaxBias,
    Route::SoftmaxBiasRenorm,
    Route::GroupedSoftmax,
    Route::GroupedSigmoidBias,
    Route::Llama4,
    Route::TanhCapped,
    Route::SparseMixer,
];

/// The plain split first; the rest in the vocabulary's order.
const SPLITS: &[Split] = &[
    Split::CeilBlock,
    Split::Floor,
    Split::Stride,
    Split::Ceil,
    Split::Prepad,
    Split::RankChunk,
    Split::Config,
    Split::Error,
];

/// The plain layout first; the rest of the vocabulary's layouts of scales in its order.
const SCALE_STORES: &[Storage] = &[
    Storage::Linear,
    Storage::Tiled128x4,
    Storage::Tiled8x4,
    Storage::TritonBlackwell,
    Storage::TritonHopper,
    Storage::TritonCdna4,
    Storage::Aiter256x8,
    Storage::AiterN32k4,
    Storage::DeepGemm,
];

/// The plain layout, and those of weights.
const WEIGHT_STORES: &[Storage] = &[
    Storage::Linear,
    Storage::Shuffle16x16,
    Storage::TritonHopperValue,
    Storage::Rows16,
    Storage::Rows32,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_table_leaves_no_word_out() {
        for route in Route::ALL {
            assert!(Domain::FULL.routes.contains(route), "{route}");
        }
        for split in Split::ALL {
            assert!(Domain::FULL.splits.contains(split), "{split}");
        }
        for storage in Storage::ALL {
            let list = if storage.of_weights() {
                Domain::FULL.weight_stores
            } else {
                Domain::FULL.stores
            };
            assert!(list.contains(storage), "{storage}");
        }
    }

    #[test]
    fn the_plain_words_are_those_of_the_default_case() {
        let plain = crate::case::Case::default();
        for domain in Domain::ALL {
            assert_eq!(domain.formats[0], plain.w, "{}", domain.name);
            assert_eq!(domain.activations[0], plain.act, "{}", domain.name);
            assert_eq!(domain.routes[0], plain.route, "{}", domain.name);
            assert_eq!(domain.factors[0], plain.factor, "{}", domain.name);
            assert_eq!(domain.input_quants[0], plain.qx, "{}", domain.name);
            assert_eq!(domain.biases[0], plain.bias, "{}", domain.name);
        }
    }
}
