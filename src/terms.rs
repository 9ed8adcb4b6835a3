//! Names the closed vocabularies that every layer shares: weight formats, activations,
//! routers, gated orders, pad places and split rules, each with its one spelling.
//!
//! It computes nothing: activation formulas live twice (reference and subject), split
//! arithmetic once in `plan`. Layer 1.

mod rounding;
mod storage;
mod word;

use crate::num::Dtype;
use std::fmt;
use std::str::FromStr;
use word::words;

pub use rounding::{Arithmetic, Rounded, Roundings};
pub use storage::{Storage, Stores};
pub use word::{UnknownWord, did_you_mean, nearest, plain};

/// Codes of what a plan can find; each has a page in docs/codes.
pub const CODES: &[&str] = &[
    "PP101", "PP102", "PP103", "PP104", "PP105", "PP106", "PP109", "PP110", "PP111", "PP114",
    "PP115", "PP116", "PP117", "PP118", "PP119", "PP120", "PP121", "PP122", "PP123", "PP124",
    "PP125", "PP126", "PP127", "PP128", "PP129", "PP130", "PP131", "PP132", "PP133", "PP134",
    "PP135", "PP136", "PP137", "PP138",
];

words! {
    /// How a weight tensor is stored: element type, scale grid, second-level scale.
    WeightFormat, "weight format" {
        /// IEEE binary32, no scale.
        F32 = "f32",
        /// IEEE binary16, no scale.
        F16 = "f16",
        /// bfloat16, no scale.
        Bf16 = "bf16",
        /// E4M3FN, one f32 scale per expert and projection.
        Fp8 = "fp8",
        /// E4M3FN, one f32 scale per output row.
        Fp8Channel = "fp8-channel",
        /// E4M3FN, one f32 scale per 128x128 block.
        Fp8Block = "fp8-block",
        /// E4M3FN, one f32 scale per 64x64 block: a 128 grid refined without loss.
        Fp8Block64 = "fp8-block64",
        /// E4M3FN, one f32 scale per 32x32 block: a 128 grid refined without loss.
        Fp8Block32 = "fp8-block32",
        /// E4M3FN, one E8M0 scale per 32 elements of a row (OCP MX).
        Mxfp8 = "mxfp8",
        /// E2M1, one E4M3 scale per 16 elements of a row and one f32 scale per expert and projection.
        Nvfp4 = "nvfp4",
        /// E2M1, one E8M0 scale per 32 elements of a row (OCP MX).
        Mxfp4 = "mxfp4",
        /// INT4 stored with offset 8, one bf16 scale per 128 elements of a row.
        Int4 = "int4",
        /// INT4 stored with offset 8, one bf16 scale per 64 elements of a row.
        Int4G64 = "int4-g64",
        /// INT4 stored with offset 8, one bf16 scale per 32 elements of a row.
        Int4G32 = "int4-g32",
        /// INT4 stored with offset 8, one bf16 scale per output row.
        Int4Channel = "int4-channel",
        /// INT8, one f32 scale per output row.
        Int8 = "int8",
    }
}

/// How many elements of one axis share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The whole axis (for w13 rows: each half by itself).
    All,
    /// Blocks of this many elements, the last one possibly short.
    Block(u64),
}

/// The scale grid of a weight format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScaleGrid {
    /// Element type of a scale.
    pub dtype: Dtype,
    /// Sharing along the output rows.
    pub rows: Extent,
    /// Sharing along K, the reduction axis (last axis).
    pub cols: Extent,
}

impl WeightFormat {
    /// The stored element type.
    pub const fn element(self) -> Dtype {
        match self {
            WeightFormat::F32 => Dtype::F32,
            WeightFormat::F16 => Dtype::F16,
            WeightFormat::Bf16 => Dtype::Bf16,
            WeightFormat::Fp8
            | WeightFormat::Fp8Channel
            | WeightFormat::Fp8Block
            | WeightFormat::Fp8Block64
            | WeightFormat::Fp8Block32
            | WeightFormat::Mxfp8 => Dtype::E4m3,
            WeightFormat::Nvfp4 | WeightFormat::Mxfp4 => Dtype::E2m1,
            WeightFormat::Int4
            | WeightFormat::Int4G64
            | WeightFormat::Int4G32
            | WeightFormat::Int4Channel => Dtype::Int4,
            WeightFormat::Int8 => Dtype::Int8,
        }
    }

    /// The scale grid, if elements are scaled.
    pub const fn scale(self) -> Option<ScaleGrid> {
        const fn grid(dtype: Dtype, rows: Extent, cols: Extent) -> Option<ScaleGrid> {
            Some(ScaleGrid { dtype, rows, cols })
        }
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => None,
            WeightFormat::Fp8 => grid(Dtype::F32, Extent::All, Extent::All),
            WeightFormat::Fp8Channel | WeightFormat::Int8 => {
                grid(Dtype::F32, Extent::Block(1), Extent::All)
            }
            WeightFormat::Fp8Block => grid(Dtype::F32, Extent::Block(128), Extent::Block(128)),
            WeightFormat::Fp8Block64 => grid(Dtype::F32, Extent::Block(64), Extent::Block(64)),
            WeightFormat::Fp8Block32 => grid(Dtype::F32, Extent::Block(32), Extent::Block(32)),
            WeightFormat::Mxfp8 | WeightFormat::Mxfp4 => {
                grid(Dtype::E8m0, Extent::Block(1), Extent::Block(32))
            }
            WeightFormat::Nvfp4 => grid(Dtype::E4m3, Extent::Block(1), Extent::Block(16)),
            WeightFormat::Int4 => grid(Dtype::Bf16, Extent::Block(1), Extent::Block(128)),
            WeightFormat::Int4G64 => grid(Dtype::Bf16, Extent::Block(1), Extent::Block(64)),
            WeightFormat::Int4G32 => grid(Dtype::Bf16, Extent::Block(1), Extent::Block(32)),
            WeightFormat::Int4Channel => grid(Dtype::Bf16, Extent::Block(1), Extent::All),
        }
    }

    /// Whether the format fixes its scale groups, so that scales cannot be repeated on a finer grid.
    pub const fn grid_is_fixed(self) -> bool {
        matches!(
            self,
            WeightFormat::Mxfp4 | WeightFormat::Mxfp8 | WeightFormat::Nvfp4
        )
    }

    /// Whether a second-level f32 scale per expert and projection multiplies every block scale.
    pub const fn has_global_scale(self) -> bool {
        matches!(self, WeightFormat::Nvfp4)
    }
}

words! {
    /// What happens between the two projections; formulas in `reference` and `subject::cpu`,
    /// constants in the `const`s below (facts/upstream-padding.md 2.1, 2.2).
    Activation, "activation" {
        /// silu(gate) * up.
        Swiglu = "swiglu",
        /// silu(gate) rounded to bf16, times up.
        SwigluRounded = "swiglu-rounded",
        /// Exact-erf GELU of gate, times up.
        Geglu = "geglu",
        /// Tanh GELU of gate, times up.
        GegluTanh = "geglu-tanh",
        /// gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7), g * sigmoid(1.702 g) * (u + 1).
        SwigluOai = "swigluoai",
        /// DeepSeek-V4: silu(min(gate, 10)) * clamp(up, -10, 10).
        SwigluClamp = "swiglu-clamp",
        /// Step-3.5: min(silu(gate), 7) * clamp(up, -7, 7).
        SwigluStep = "swiglustep",
        /// Kimi-K3: b tanh(g/b) sigmoid(g) * c tanh(u/c), b = 4, c = 25.
        Situ = "situ",
        /// g > 0: g^(m/(sqrt(g)+1)) sigmoid(g), else g sigmoid(g); times up; m = 2.5.
        Powlu = "powlu",
        /// max(x, 0)^2, one projection.
        Relu2 = "relu2",
        /// (L tanh(max(x, 0)/L))^2, L = 7, one projection.
        Relu2Clamped = "relu2-clamped",
        /// silu, one projection.
        Silu = "silu",
        /// Exact-erf GELU, one projection.
        Gelu = "gelu",
        /// Tanh GELU, one projection.
        GeluTanh = "gelu-tanh",
        /// max(x, 0), one projection.
        Relu = "relu",
        /// x, one projection.
        Identity = "identity",
    }
}

/// Sharpness of swigluoai's sigmoid (facts/upstream-padding.md 2.1).
pub const SWIGLUOAI_ALPHA: f32 = 1.702;
/// Clamp of swigluoai (facts/upstream-padding.md 2.1).
pub const SWIGLUOAI_LIMIT: f32 = 7.0;
/// Clamp of DeepSeek-V4's SwiGLU (facts/upstream-padding.md 2.1).
pub const SWIGLU_CLAMP_LIMIT: f32 = 10.0;
/// Clamp of SwiGLU-step (facts/upstream-padding.md 2.1).
pub const SWIGLUSTEP_LIMIT: f32 = 7.0;
/// SiTU's gate bound b (facts/upstream-padding.md 2.1).
pub const SITU_GATE: f32 = 4.0;
/// SiTU's up bound c (facts/upstream-padding.md 2.1).
pub const SITU_UP: f32 = 25.0;
/// PowLU's exponent m (facts/upstream-padding.md 2.1).
pub const POWLU_M: f32 = 2.5;
/// Bound L of the clamped squared ReLU (facts/upstream-padding.md 2.2 leaves L to the model; 7 here).
pub const RELU2_LIMIT: f32 = 7.0;
/// tanh GELU's inner factor sqrt(2/pi).
pub const GELU_TANH_SCALE: f64 = 0.797_884_560_802_865_4;
/// tanh GELU's cubic coefficient (facts/upstream-padding.md 2.1).
pub const GELU_TANH_CUBIC: f64 = 0.044715;

impl Activation {
    /// Whether the first projection has two halves, gate and up.
    pub const fn gated(self) -> bool {
        matches!(
            self,
            Activation::Swiglu
                | Activation::SwigluRounded
                | Activation::Geglu
                | Activation::GegluTanh
                | Activation::SwigluOai
                | Activation::SwigluClamp
                | Activation::SwigluStep
                | Activation::Situ
                | Activation::Powlu
        )
    }

    /// Number of halves of w13: 2 if gated, else 1.
    pub const fn halves(self) -> u64 {
        if self.gated() { 2 } else { 1 }
    }

    /// Whether dyadic inputs give an output without rounding (polynomial or piecewise linear).
    pub const fn exact(self) -> bool {
        matches!(
            self,
            Activation::Relu2 | Activation::Relu | Activation::Identity
        )
    }
}

words! {
    /// How logits become expert ids and weights (facts/upstream-padding.md 2.3).
    Route, "router" {
        /// Ids and dyadic weights are drawn, no logits: what the exact tier uses.
        Given = "given",
        /// softmax, top-k, weights as they are.
        Softmax = "softmax",
        /// softmax, top-k, renormalised to sum 1.
        SoftmaxRenorm = "softmax-renorm",
        /// top-k of the logits, softmax over the chosen (gpt-oss); equals softmax-renorm up to rounding.
        TopkSoftmax = "topk-softmax",
        /// sigmoid, top-k, weights as they are.
        Sigmoid = "sigmoid",
        /// sigmoid, top-k, renormalised.
        SigmoidRenorm = "sigmoid-renorm",
        /// Chosen by sigmoid + bias, weighted by sigmoid, renormalised (DeepSeek-V3).
        SigmoidBias = "sigmoid-bias",
        /// Chosen by sqrt(softplus) + bias, weighted by sqrt(softplus), renormalised (DeepSeek-V4).
        SqrtSoftplusBias = "sqrtsoftplus-bias",
        /// Chosen by softmax + bias, weighted by softmax, not renormalised (LongCat).
        SoftmaxBias = "softmax-bias",
        /// Chosen by softmax + bias, weighted by softmax, renormalised (Ernie).
        SoftmaxBiasRenorm = "softmax-bias-renorm",
        /// Groups ranked by their maximum softmax; then top-k in the kept groups (DeepSeek-V2).
        GroupedSoftmax = "grouped-softmax",
        /// Groups ranked by the sum of their two best sigmoid + bias; then top-k (DeepSeek-V3).
        GroupedSigmoidBias = "grouped-sigmoid-bias",
        /// top-1 of the logits; sigmoid multiplies the expert's input (Llama-4).
        Llama4 = "llama4",
        /// 30 tanh(x/30), softmax, top-k, not renormalised (Grok).
        TanhCapped = "tanh-capped",
        /// Two experts in turn, each of the largest logit m not chosen yet, weighted by softmax over the logits x not chosen yet with (m - x)/max(|x|, m) <= 0.02 (Phi-3.5-MoE).
        SparseMixer = "sparse-mixer",
    }
}

/// Cap of the tanh-capped router (facts/upstream-padding.md 2.3).
pub const ROUTE_TANH_CAP: f32 = 30.0;
/// How far below the largest logit another survives under the sparse mixer, as a share: twice router_jitter_noise, which is
/// 0.01 in PhiMoE's config; transformers and vLLM read it there, SGLang has the number (`sparsemixer` in each of them).
pub const ROUTE_MIXER_BAND: f32 = 0.02;

impl Route {
    /// Whether a correction bias takes part in the choice of experts.
    pub const fn has_bias(self) -> bool {
        matches!(
            self,
            Route::SigmoidBias
                | Route::SqrtSoftplusBias
                | Route::SoftmaxBias
                | Route::SoftmaxBiasRenorm
                | Route::GroupedSigmoidBias
        )
    }

    /// Whether experts compete inside groups first.
    pub const fn grouped(self) -> bool {
        matches!(self, Route::GroupedSoftmax | Route::GroupedSigmoidBias)
    }

    /// Whether the weight multiplies the expert's input instead of its output.
    pub const fn weights_input(self) -> bool {
        matches!(self, Route::Llama4)
    }

    /// Whether identity experts may be among what it chooses from: where groups, a weighed input or a fixed number of
    /// choices would have to be defined for them, no stack does.
    pub const fn takes_identity(self) -> bool {
        !self.grouped() && !self.weights_input() && self.chooses().is_none()
    }

    /// How many experts it chooses, where that is not the model's to say.
    pub const fn chooses(self) -> Option<u64> {
        match self {
            Route::Llama4 => Some(1),
            Route::SparseMixer => Some(2),
            _ => None,
        }
    }
}

words! {
    /// Quantisation of activations on the fly, to E4M3.
    ActQuant, "activation quantisation" {
        /// Not quantised.
        None = "none",
        /// One scale for the tensor, fixed beforehand (a power of two).
        Static = "static",
        /// One scale per token from its amax.
        Token = "token",
        /// One scale per group of 32 elements of a token, from its amax.
        Group = "group",
    }
}

/// Elements that share a scale under [`ActQuant::Group`].
pub const ACT_QUANT_GROUP: u64 = 32;

words! {
    /// Order of the rows of w13 in storage (facts/upstream-padding.md 1.0, "Gated layouts").
    Order, "gated order" {
        /// Halves, gate first.
        GateUp = "gate-up",
        /// Halves, up first.
        UpGate = "up-gate",
        /// One gate row, one up row, and so on.
        Int1 = "int1",
        /// Eight gate rows, eight up rows, and so on.
        Int8 = "int8",
        /// Sixteen gate rows, sixteen up rows, and so on.
        Int16 = "int16",
        /// Sixty-four up rows, sixty-four gate rows, and so on.
        Int64 = "int64",
        /// One up row, one gate row, and so on.
        Int1Up = "int1-up",
    }
}

impl Order {
    /// Rows that stay together before the other half's turn; 0 for halves.
    pub const fn interleave(self) -> u64 {
        match self {
            Order::GateUp | Order::UpGate => 0,
            Order::Int1 | Order::Int1Up => 1,
            Order::Int8 => 8,
            Order::Int16 => 16,
            Order::Int64 => 64,
        }
    }

    /// Whether the up half comes first.
    pub const fn up_first(self) -> bool {
        matches!(self, Order::UpGate | Order::Int64 | Order::Int1Up)
    }
}

words! {
    /// Where the padding rows of a gated w13 go.
    Place, "pad place" {
        /// Each half is padded by itself (for interleaved orders: whole groups at the end).
        PerHalf = "per-half",
        /// Once at the end of the concatenation: wrong for a kernel that halves the padded rows.
        Tail = "tail",
    }
}

words! {
    /// The eight ways to cut the intermediate axis over TP ranks (facts/upstream-padding.md 1.0).
    Split, "split rule" {
        /// I % tp must be 0; rank r takes [r N, (r+1) N); padding at every rank's tail.
        Floor = "floor",
        /// The padded width is the stride, clipped to I; late ranks may be empty.
        Stride = "stride",
        /// Whole scale blocks: ceil(ceil(I/g)/tp) g per rank; the last rank is short.
        CeilBlock = "ceil-block",
        /// ceil(I/tp) elements per rank; the last rank is short.
        Ceil = "ceil",
        /// The global width is padded to a multiple of lcm(align, g, tp), then cut equally.
        Prepad = "prepad",
        /// The checkpoint is cut in tp chunks; each chunk's tail is padded before loading.
        RankChunk = "rank-chunk",
        /// The model config's size is rounded up to tp*align before any layer exists.
        Config = "config",
        /// Anything that does not fit is refused.
        Error = "error",
    }
}

words! {
    /// Which of the two elements of a byte comes first.
    Nibble, "nibble order" {
        /// The even element is in the low four bits: every stack read so far.
        Low = "low",
        /// The even element is in the high four bits.
        High = "high",
    }
}

words! {
    /// Which projections carry a bias.
    Bias, "bias" {
        /// No bias.
        None = "none",
        /// Biases on w13 and w2 (gpt-oss); w2's is added once over the ranks.
        Both = "both",
    }
}

words! {
    /// Which of a model's feed-forward parts a plan is about.
    LayerKind, "layer kind" {
        /// The routed experts, split over TP within an EP group.
        Routed = "routed",
        /// The shared experts, split over all TP ranks.
        Shared = "shared",
        /// Dense layers, split over all TP ranks.
        Dense = "dense",
        /// The experts of multi-token-prediction layers, split as the routed ones.
        Draft = "draft",
    }
}

impl LayerKind {
    /// The kind whose rules it follows: draft layers are loaded by the code of the routed ones.
    pub const fn follows(self) -> LayerKind {
        match self {
            LayerKind::Routed | LayerKind::Draft => LayerKind::Routed,
            LayerKind::Shared => LayerKind::Shared,
            LayerKind::Dense => LayerKind::Dense,
        }
    }
}

words! {
    /// How a logical element's value is drawn.
    Fill, "fill" {
        /// Small dyadic values, so that every partial sum is exact.
        Exact = "exact",
        /// Values over several binades: rounding happens.
        Wild = "wild",
        /// The value encodes the element's index with a prime period, to show misplacement.
        Paint = "paint",
        /// Mostly zeros, signed zeros and extremes of the format.
        Edge = "edge",
    }
}

/// What a layer computes besides its sizes: read alike by reference and subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numerics {
    /// Router.
    pub route: Route,
    /// Expert groups of a grouped router, else 1.
    pub groups: u64,
    /// Groups kept, else 1.
    pub keep: u64,
    /// routed_scaling_factor in thousandths.
    pub factor: u64,
    /// Identity ("zero") experts, of ids behind the others: each adds its weight times the input as it came.
    pub zero: u64,
    /// Quantisation of the expert's input on the fly.
    pub qx: ActQuant,
    /// Quantisation of the intermediate on the fly.
    pub qh: ActQuant,
    /// Whether the intermediate is rounded to bf16.
    pub mid_bf16: bool,
}

impl Default for Numerics {
    fn default() -> Self {
        Numerics {
            route: Route::SoftmaxRenorm,
            groups: 1,
            keep: 1,
            factor: 1000,
            zero: 0,
            qx: ActQuant::None,
            qh: ActQuant::None,
            mid_bf16: false,
        }
    }
}
