//! One rule: what one backend of one stack at one version does to one layer's weights
//! (facts/upstream-padding.md 5).

use crate::terms::{Activation, LayerKind, Nibble, Order, Place, Split, Stores, WeightFormat};
use serde::Deserialize;

/// How a rule's content is known (facts/upstream-padding.md, first paragraphs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Read in the named source file.
    Source,
    /// Taken from an issue or pull-request text.
    Issue,
    /// Derived by arithmetic from source facts.
    Derived,
}

/// Whether the rule describes code that is shipped today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// In the named version.
    #[default]
    Current,
    /// Replaced, or known wrong: kept so that its faults can be shown.
    Historical,
}

/// When the padding happens (facts/upstream-padding.md 5, field 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// In the model config, before any layer exists.
    Config,
    /// When buffers are created; loading then places the checkpoint's part.
    Creation,
    /// After loading.
    AfterLoad,
    /// Never.
    Never,
}

/// What a granule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GranuleUnit {
    /// Logical elements.
    #[default]
    Elements,
    /// Units of the stored parameter: bytes when two elements share a byte, else elements.
    Stored,
    /// Bytes.
    Bytes,
}

/// When a granule or refusal applies; an absent key always holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Condition {
    /// Gated or not.
    pub gated: Option<bool>,
    /// One of these activations.
    pub activations: Vec<Activation>,
    /// One of these weight formats.
    pub formats: Vec<WeightFormat>,
    /// The per-rank width, unpadded, is at most this (elements).
    pub width_max: Option<u64>,
    /// The per-rank width, unpadded, is not a multiple of this (elements).
    pub width_not_multiple: Option<u64>,
    /// The hidden size is not a multiple of this (elements).
    pub hidden_not_multiple: Option<u64>,
}

/// An alignment of one axis.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Granule {
    /// Multiple to round up to.
    pub align: u64,
    /// What `align` counts.
    #[serde(default)]
    pub unit: GranuleUnit,
    /// When it applies; the first entry whose condition holds is used.
    #[serde(default)]
    pub when: Condition,
}

/// What padding is filled with (facts/upstream-padding.md 5, field 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PadValue {
    /// Zero bytes.
    #[default]
    Zero,
    /// The code of 1.0.
    One,
    /// The byte 1 (2^-126 in E8M0).
    ByteOne,
    /// A code that decodes to zero (INT4: nibble 8).
    DecodeZero,
}

/// Fill of each kind of tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Fills {
    /// Weights.
    pub weight: PadValue,
    /// Scales.
    pub scale: PadValue,
}

/// How scales follow the padding (facts/upstream-padding.md 5, field 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ScaleRule {
    /// A shard that begins inside a block may repeat scales on a finer grid.
    pub refine: bool,
}

/// Which formula gives the rows of w13 and the columns of w2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// halves * width and width: consistent by construction.
    #[default]
    Consistent,
    /// AITER's `get_moe_weight_sizes` as first published, torch with the FP4 dtype.
    AiterPublished,
    /// The same without the FP4 dtype.
    AiterPublishedNoFp4,
    /// As shipped in SGLang 0.5.23, torch with the FP4 dtype.
    AiterShipped,
    /// The same without the FP4 dtype.
    AiterShippedNoFp4,
}

/// A wider row stride that is never multiplied (facts/upstream-padding.md 1.1 S18).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Stride {
    /// The environment variable that switches it on.
    pub env: String,
    /// Elements added to each row of K.
    pub elements: u64,
}

/// What a refusal makes of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Runs on a slower path.
    Slow,
    /// Does not start.
    Refused,
    /// Starts and computes something else.
    Wrong,
    /// Not known.
    Unknown,
}

/// A condition under which the backend refuses, slows down or goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Refusal {
    /// When.
    pub when: Condition,
    /// What then.
    pub verdict: Verdict,
    /// Why, as a clause.
    pub why: String,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rule {
    /// `stack.backend.format[.variant]`, lower case.
    pub id: String,
    /// The stack.
    pub stack: String,
    /// Version or commit that was read.
    pub version: String,
    /// The backend's name as the stack spells it.
    pub backend: String,
    /// Weight formats it takes.
    pub formats: Vec<WeightFormat>,
    /// Architectures; empty when the source does not restrict them.
    #[serde(default)]
    pub arch: Vec<String>,
    /// Section of the facts, then file and function of the stack.
    pub source: String,
    /// How it is known.
    pub grade: Grade,
    /// Shipped today or not.
    #[serde(default)]
    pub status: Status,
    /// What is known to be wrong with it.
    pub wrong: Option<String>,
    /// Parts of the model it applies to.
    #[serde(default = "routed")]
    pub layers: Vec<LayerKind>,
    /// When the padding happens.
    pub timing: Timing,
    /// How the intermediate axis is cut.
    pub split: Split,
    /// Row order of w13.
    pub order: Order,
    /// Pad place.
    #[serde(default = "per_half")]
    pub place: Place,
    /// Storage layout of scales, of weights, or of both (`aiter-256x8+shuffle-16x16`).
    #[serde(default = "linear")]
    pub storage: Stores,
    /// Nibble order.
    #[serde(default = "low")]
    pub nibble: Nibble,
    /// Alignments of the per-rank intermediate width; none: not padded.
    #[serde(default)]
    pub intermediate: Vec<Granule>,
    /// Alignments of the hidden size; none: not padded.
    #[serde(default)]
    pub hidden: Vec<Granule>,
    /// Alignments of the token axis; none: not padded.
    #[serde(default)]
    pub tokens: Vec<Granule>,
    /// Fills.
    #[serde(default)]
    pub fill: Fills,
    /// Scales.
    #[serde(default)]
    pub scale: ScaleRule,
    /// Size formula.
    #[serde(default)]
    pub sizes: Sizes,
    /// Stride padding.
    pub stride: Option<Stride>,
    /// Refusals, slow paths, known faults.
    #[serde(default)]
    pub refuse: Vec<Refusal>,
}

fn routed() -> Vec<LayerKind> {
    vec![LayerKind::Routed]
}
fn per_half() -> Place {
    Place::PerHalf
}
fn linear() -> Stores {
    Stores::LINEAR
}
fn low() -> Nibble {
    Nibble::Low
}

/// Which backend a stack's `auto` takes for a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Auto {
    /// The stack.
    pub stack: String,
    /// Architectures it holds for; empty for all.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Weight formats it holds for; empty for all.
    #[serde(default)]
    pub formats: Vec<WeightFormat>,
    /// The backend.
    pub backend: String,
    /// Where this is known from.
    pub source: String,
}
