//! What a plan holds.

use crate::model::ZeroPoints;
use crate::num::Dtype;
use crate::rule::{BiasShare, Grade, Unread};
use crate::terms::{
    Activation, Bias, LayerKind, Nibble, Numerics, Order, Place, Split, Storage, WeightFormat,
};
use serde::{Deserialize, Serialize};

/// A plan could not be made at all, as opposed to a plan with violations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A size leaves 64 bits.
    #[error("{what} does not fit 64 bits ({terms})")]
    Overflow {
        /// Which quantity.
        what: &'static str,
        /// The factors.
        terms: String,
    },
    /// A rule id that no loaded rule has.
    #[error("{sentence}")]
    UnknownRule {
        /// The rule set's own sentence, with the nearest ids.
        sentence: String,
    },
    /// A size or degree that makes no layer.
    #[error("{key}={value}: {why}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// One feed-forward part to be planned: logical sizes in elements.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpec {
    /// Which part.
    pub kind: LayerKind,
    /// Input width.
    pub hidden: u64,
    /// Width of one expert, global.
    pub intermediate: u64,
    /// Experts (1 for shared and dense).
    pub experts: u64,
    /// Experts per token (1 for shared and dense).
    pub top_k: u64,
    /// Identity experts, which a token may get too; no tensor holds any.
    pub zero_experts: u64,
    /// Activation.
    pub activation: Activation,
    /// Weight format.
    pub weight: WeightFormat,
    /// Biases.
    pub bias: Bias,
    /// Zero points of the weights, if there are any.
    pub zero_points: Option<ZeroPoints>,
    /// Whether the checkpoint lists each input channel's group (`g_idx`), so that groups need not
    /// be runs of channels.
    pub act_order: bool,
    /// Tokens for the activation tensors; 0 leaves them symbolic.
    pub tokens: u64,
}

/// How the model is spread over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Parallel {
    /// Tensor-parallel ranks in all.
    pub tp: u64,
    /// Expert-parallel groups; divides `tp`.
    pub ep: u64,
}

/// Logical sizes of the layer, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dims {
    /// Tokens.
    pub t: u64,
    /// Experts.
    pub e: u64,
    /// Experts per token.
    pub k: u64,
    /// Hidden.
    pub h: u64,
    /// Intermediate, global.
    pub i: u64,
    /// Halves of w13: 2 when gated.
    pub halves: u64,
}

/// The verdict of a plan, from best to worst; docs/verdicts.md explains the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// Nothing is padded.
    Fits,
    /// Padding makes it fit.
    Padded,
    /// It runs, on a slower path.
    Slow,
    /// The rule's source leaves it open.
    Unknown,
    /// The backend refuses it.
    Refused,
    /// No padding of a rank's share can represent the checkpoint's scales there.
    Unrepresentable,
    /// It runs and computes something else.
    Wrong,
}

impl Fit {
    /// Every verdict, worst first.
    pub const ALL: [Fit; 7] = [
        Fit::Wrong,
        Fit::Unrepresentable,
        Fit::Refused,
        Fit::Unknown,
        Fit::Slow,
        Fit::Padded,
        Fit::Fits,
    ];

    /// The word used in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Fit::Fits => "fits",
            Fit::Padded => "padded",
            Fit::Slow => "slow",
            Fit::Unknown => "unknown",
            Fit::Refused => "refused",
            Fit::Unrepresentable => "unrepresentable",
            Fit::Wrong => "wrong",
        }
    }
}

/// What a violation does to the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Worth knowing, no harm.
    Note,
    /// Slower.
    Slow,
    /// Left open by the source.
    Unknown,
    /// Refused by the backend.
    Refused,
    /// Not representable.
    Unrepresentable,
    /// Computes something else.
    Wrong,
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Logical elements.
    Elements,
    /// Bytes.
    Bytes,
    /// Units of the stored parameter: bytes when two elements share a byte, else elements.
    Stored,
    /// Bits of an element.
    Bits,
    /// Scale blocks.
    Blocks,
    /// Ranks.
    Ranks,
    /// Experts.
    Experts,
    /// Tokens.
    Tokens,
    /// Versions.
    Versions,
}

impl Unit {
    /// The plural noun.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Elements => "elements",
            Unit::Bytes => "bytes",
            Unit::Stored => "stored units",
            Unit::Bits => "bits",
            Unit::Blocks => "blocks",
            Unit::Ranks => "ranks",
            Unit::Experts => "experts",
            Unit::Tokens => "tokens",
            Unit::Versions => "versions",
        }
    }
}

/// One thing that is wrong, or worth knowing, with the number that was tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Stable code, `PP101` and on.
    pub code: &'static str,
    /// The axis: `intermediate`, `hidden`, `experts`, `ranks`, `w13 rows`…
    pub axis: &'static str,
    /// The number tested.
    pub value: u64,
    /// What the number counts.
    pub unit: Unit,
    /// What it was tested against.
    pub granule: u64,
    /// One sentence.
    pub message: String,
    /// What it does to the verdict.
    #[serde(skip)]
    pub effect: Effect,
}

/// One rank's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RankPlan {
    /// Rank, 0 to tp - 1.
    pub rank: u64,
    /// First logical intermediate channel it holds.
    pub start: u64,
    /// Logical channels it holds; 0 is legal.
    pub len: u64,
    /// First expert it holds.
    pub expert_start: u64,
    /// Experts it holds.
    pub expert_len: u64,
}

/// Which tensor of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// First projection, [experts, halves * width_padded, hidden_padded].
    W13,
    /// Second projection, [experts, hidden_padded, width_padded].
    W2,
    /// Scales of w13.
    W13Scale,
    /// Scales of w2.
    W2Scale,
    /// Second-level scales of w13, [experts, halves].
    W13Global,
    /// Second-level scales of w2, [experts, 1].
    W2Global,
    /// Bias of w13, [experts, halves * width_padded].
    W13Bias,
    /// Bias of w2, [experts, hidden_padded].
    W2Bias,
}

impl Role {
    /// Every role, in the order of tables.
    pub const ALL: [Role; 8] = [
        Role::W13,
        Role::W2,
        Role::W13Scale,
        Role::W2Scale,
        Role::W13Global,
        Role::W2Global,
        Role::W13Bias,
        Role::W2Bias,
    ];

    /// Whether it belongs to the second projection.
    pub const fn is_second(self) -> bool {
        matches!(
            self,
            Role::W2 | Role::W2Scale | Role::W2Global | Role::W2Bias
        )
    }

    /// The tensor's name (facts/peers.md 5).
    pub const fn name(self) -> &'static str {
        match self {
            Role::W13 => "w13",
            Role::W2 => "w2",
            Role::W13Scale => "w13_scale",
            Role::W2Scale => "w2_scale",
            Role::W13Global => "w13_scale_2",
            Role::W2Global => "w2_scale_2",
            Role::W13Bias => "w13_bias",
            Role::W2Bias => "w2_bias",
        }
    }
}

/// The scale grid of one weight tensor on a rank, in blocks.
///
/// A local block of `block` elements lies inside one block of the checkpoint's grid, whose
/// blocks are `source_block` long; where a rank starts inside a block, `block` is finer and
/// scales are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalePlan {
    /// Element type of a scale.
    pub dtype: Dtype,
    /// Rows that share a scale on the rank; 0 means one scale for the axis (for w13: per half).
    pub row_block: u64,
    /// The same in the checkpoint.
    pub row_block_source: u64,
    /// Columns (K) that share a scale on the rank; 0 means one scale for the axis.
    pub col_block: u64,
    /// The same in the checkpoint.
    pub col_block_source: u64,
    /// Rows of the logical (checkpoint) grid, all halves, whole intermediate or hidden axis.
    pub rows_logical: u64,
    /// Columns of the logical grid.
    pub cols_logical: u64,
    /// Rows on the rank, padded, before the storage layout.
    pub rows_padded: u64,
    /// Columns on the rank, padded, before the storage layout.
    pub cols_padded: u64,
    /// Rows allocated by the storage layout.
    pub rows_stored: u64,
    /// Columns allocated by the storage layout.
    pub cols_stored: u64,
    /// Code written into padding scales.
    pub pad_code: u32,
}

/// One tensor of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorPlan {
    /// Name (facts/peers.md 5).
    pub name: &'static str,
    /// Element type.
    pub dtype: &'static str,
    /// Shape on one rank, padded, in logical elements (packed FP4: elements, not bytes).
    pub shape: [u64; 3],
    /// Logical extent on the fullest rank, in elements, axis by axis.
    pub logical: [u64; 3],
    /// Bytes on one rank, strides and storage padding included.
    pub bytes: u64,
}

/// Every integer of one padded layer under one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The rule's id, or `spelled` for a scheme in the case line.
    pub rule: String,
    /// Whether the rule is a kernel library's own check, which nobody launches.
    pub kernel: bool,
    /// How the rule's content is known.
    pub grade: Grade,
    /// Architectures that the rule is for; empty where its source does not restrict them.
    pub arch: Vec<String>,
    /// Which part.
    pub layer: LayerKind,
    /// The verdict.
    pub fit: Fit,
    /// Logical sizes.
    pub dims: Dims,
    /// Activation.
    pub activation: Activation,
    /// Weight format.
    pub weight: WeightFormat,
    /// Biases.
    pub bias: Bias,
    /// Zero points of the weights, if there are any.
    pub zero_points: Option<ZeroPoints>,
    /// What is computed besides the sizes.
    pub numerics: Numerics,
    /// Ranks.
    pub parallel: Parallel,
    /// Largest logical width of a rank.
    pub width: u64,
    /// Width of every rank's buffers.
    pub width_padded: u64,
    /// Width that the kernel multiplies: less than the buffers' where it is told.
    pub width_computed: u64,
    /// Rows of a rank's w13: halves * width_padded unless the rule is wrong.
    pub w13_rows: u64,
    /// Hidden size of the buffers.
    pub hidden_padded: u64,
    /// Hidden size that the kernel multiplies.
    pub hidden_computed: u64,
    /// Width that the second GEMM multiplies: kernels round what they are told stage by stage.
    pub w2_width_computed: u64,
    /// Hidden size that the second GEMM multiplies.
    pub w2_hidden_computed: u64,
    /// Tokens of the activation buffer.
    pub tokens_padded: u64,
    /// Split rule.
    pub split: Split,
    /// Row order of w13.
    pub order: Order,
    /// Pad place.
    pub place: Place,
    /// Storage layout of the scales.
    pub storage: Storage,
    /// Storage layout of the weights.
    pub weight_storage: Storage,
    /// Nibble order.
    pub nibble: Nibble,
    /// What of how bytes lie the rule's source leaves open, as far as it concerns this layer.
    pub unread: Vec<Unread>,
    /// Where the stack adds the bias of w2, if that was read.
    pub w2_bias: Option<BiasShare>,
    /// Code written into padding weights.
    pub weight_pad: u32,
    /// Scales of w13, if the format has them.
    pub w13_scale: Option<ScalePlan>,
    /// Scales of w2, if the format has them.
    pub w2_scale: Option<ScalePlan>,
    /// One entry per rank.
    pub ranks: Vec<RankPlan>,
    /// Tensors of one rank.
    pub tensors: Vec<TensorPlan>,
    /// Expert bytes of all ranks over the logical bytes, minus 1, in millionths.
    pub overhead_millionths: u64,
    /// Everything that is wrong or worth knowing.
    pub violations: Vec<Violation>,
}

impl Plan {
    /// What the router chooses from: experts, and identity experts behind them.
    pub fn choices(&self) -> u64 {
        self.dims.e.saturating_add(self.numerics.zero)
    }

    /// The plan of a checkpoint whose scales are of another type than the format's.
    pub fn with_scales_of(mut self, dtype: Dtype) -> Plan {
        for scale in [&mut self.w13_scale, &mut self.w2_scale]
            .into_iter()
            .flatten()
        {
            scale.pad_code = match scale.pad_code == scale.dtype.one_code() {
                true => dtype.one_code(),
                false => dtype.zero_code().unwrap_or(0),
            };
            scale.dtype = dtype;
        }
        self
    }

    /// What decides the verdict, and else the first thing worth knowing.
    pub fn reason(&self) -> Option<&Violation> {
        let decisive = decisive(&self.violations)?;
        self.violations.iter().find(|v| v.effect == decisive)
    }
}

/// The effect that decides: the worst, but what is refused stops with the stack's own check before
/// anything is loaded or computed, whatever else is wrong with it.
pub(super) fn decisive(found: &[Violation]) -> Option<Effect> {
    let refused = found.iter().any(|v| v.effect == Effect::Refused);
    let effects = found.iter().map(|v| v.effect);
    effects.filter(|e| !refused || *e <= Effect::Refused).max()
}
