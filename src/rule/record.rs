//! One rule: what one backend of one stack at one version does to one layer's weights
//! (facts/upstream-padding.md 5).

use super::condition::{Condition, Granule, Limit, Refusal, share_device};
use super::version::{Bound, Held, held};
use crate::terms::{LayerKind, Nibble, Order, Place, Split, Stores, WeightFormat};
use serde::{Deserialize, Serialize};

/// How a rule's content is known (facts/upstream-padding.md, first paragraphs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// In the named version.
    #[default]
    Current,
    /// What the code should do: no version that was read does it.
    Proposed,
    /// Replaced, or known wrong: kept so that its faults can be shown.
    Historical,
}

impl Status {
    /// The word used in lists and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Current => "current",
            Status::Historical => "historical",
            Status::Proposed => "proposed",
        }
    }
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
    /// A copy of a value of the same tensor, so that its least and greatest stay as they are.
    Existing,
    /// Whatever the memory held.
    Uninitialised,
}

/// Fill of each kind of tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table of the keys weight, scale, bias and activation"
)]
pub struct Fills {
    /// Weights.
    pub weight: PadValue,
    /// Scales.
    pub scale: PadValue,
    /// Biases.
    pub bias: PadValue,
    /// Activations, where the hidden size or the tokens are padded at run time.
    pub activation: PadValue,
}

/// How many scale columns w2 gets (facts/upstream-padding.md 3.1 V-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// One for each group that a channel is in.
    #[default]
    Ceil,
    /// One for each whole group: channels past the last whole group have none.
    Floor,
    /// As TRT-LLM's trtllm-gen methods pad them before the cut: to the multiple that as many channels would be
    /// padded to (facts/upstream-padding.md 1.6 T4, 3.2 M40).
    TrtllmGen,
}

/// How far a stack that repeats scales goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finer {
    /// Along the axis that is cut alone, to what the ranks' starts need.
    #[default]
    Cut,
    /// One block for both axes of both weights: gcd(block, width of a rank, hidden size)
    /// (facts/upstream-padding.md 1.3 V9).
    Gcd,
    /// One group along K of both weights, halved until it divides the width of a rank and the hidden size
    /// (facts/upstream-padding.md 1.1 S23).
    Halved,
}

/// How scales follow the padding (facts/upstream-padding.md 5, field 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table of the keys refine, finer, count and columns"
)]
pub struct ScaleRule {
    /// A shard that begins inside a block may repeat scales on a finer grid.
    pub refine: bool,
    /// How far, if it may.
    pub finer: Finer,
    /// How many scales a row of w2 gets.
    pub count: Count,
    /// Columns stored are rounded up to this many; 0: as many as there are.
    pub columns: u64,
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
    /// As shipped, by callers that say "concatenated" whether the weights are gated or not.
    AiterConcat,
    /// w13 is padded, w2 is left as it is (facts/reports.md B18).
    FirstOnly,
}

/// A wider row stride that is never multiplied (facts/upstream-padding.md 1.1 S18).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table with the key env"
)]
pub struct Stride {
    /// The environment variable that switches it on.
    pub env: String,
    /// Elements added to each row of K.
    #[serde(default)]
    pub elements: u64,
    /// Bytes added to each row of K.
    #[serde(default)]
    pub bytes: u64,
    /// Only where a row's bytes are a multiple of this.
    pub row_bytes_multiple: Option<u64>,
}

/// How a size that a kernel is told is rounded (facts/upstream-padding.md 1.4 F3, 1.5 AI1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// The kernel is told the valid size, which is rounded up.
    Up,
    /// The kernel is told the pad amount, which is rounded down.
    PadDown,
}

/// What a kernel is told at run time, so that padding is not multiplied
/// (facts/upstream-padding.md 5, field 10).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table with the key rounding"
)]
pub struct Valid {
    /// When; the first entry whose condition holds is used.
    #[serde(default)]
    pub when: Condition,
    /// How a size is rounded.
    pub rounding: Rounding,
    /// Unit of the intermediate width; absent: the kernel is not told.
    pub intermediate: Option<u64>,
    /// Unit of the hidden size; absent: the kernel is not told.
    pub hidden: Option<u64>,
    /// Unit of the intermediate width in the second GEMM, where it is another.
    pub w2_intermediate: Option<u64>,
    /// Unit of the hidden size in the second GEMM, where it is another.
    pub w2_hidden: Option<u64>,
    /// The rounded hidden size must be the padded one.
    #[serde(default)]
    pub exact: bool,
    /// The pad amount is passed twice over, which cuts real channels.
    #[serde(default)]
    pub doubled: bool,
    /// The pad amount is passed twice over, and whether the kernel doubles what it is told was not read.
    #[serde(default)]
    pub doubled_unread: bool,
}

/// A split for layers that a model's own loader places.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table with the keys when and split"
)]
pub struct Loader {
    /// Which layers.
    pub when: Condition,
    /// How their intermediate axis is cut.
    pub split: Split,
}

/// On which ranks the bias of w2 is added (facts/upstream-padding.md 3.1 V-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BiasShare {
    /// On rank 0 alone.
    FirstRank,
    /// On every rank, divided by their number.
    Divided,
    /// In full on every rank: added too often.
    EveryRank,
}

/// What of how bytes lie a rule's source leaves open. The value that the rule gives is what padproof
/// lays out for want of another, and nothing known of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unread {
    /// The order of w13's rows.
    Order,
    /// How weights are stored.
    Weights,
    /// How scales are stored.
    Scales,
}

impl Unread {
    /// All that can be open.
    pub const ALL: [Unread; 3] = [Unread::Order, Unread::Weights, Unread::Scales];

    /// What is open, as a noun.
    pub const fn meaning(self) -> &'static str {
        match self {
            Unread::Order => "order of w13's rows",
            Unread::Weights => "storage of weights",
            Unread::Scales => "storage of scales",
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table that describes a rule"
)]
pub struct Rule {
    /// `stack.backend.format[.variant]`, lower case.
    pub id: String,
    /// The stack.
    pub stack: String,
    /// Version or commit that was read.
    pub version: String,
    /// First version it holds for, or the change that brought it; the one read if left out.
    pub since: Option<Bound>,
    /// First version it no longer holds for, or the change that ended it.
    pub until: Option<Bound>,
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
    /// What a kernel library itself asks for: it loads nothing, the width is its caller's, and nobody
    /// launches it.
    #[serde(default)]
    pub kernel: bool,
    /// A dispatch of tokens between ranks: it multiplies nothing, and its `hidden` is what it takes besides
    /// the GEMM of the stack's other rules.
    #[serde(default)]
    pub dispatch: bool,
    /// The dispatch of its stack that sends the tokens; in no rule file ([`super::Rules::sent_by`]).
    #[serde(skip)]
    pub sent: Option<Box<Rule>>,
    /// What is known to be wrong with it.
    pub wrong: Option<String>,
    /// Parts of the model it applies to.
    #[serde(default = "routed")]
    pub layers: Vec<LayerKind>,
    /// Checkpoint methods (`quant_method`) it is for; empty for all.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Layers it is for, among those of its formats.
    #[serde(default)]
    pub when: Condition,
    /// When the padding happens.
    pub timing: Timing,
    /// How the intermediate axis is cut.
    pub split: Split,
    /// Splits of models with a loader of their own; the first whose condition holds is used
    /// instead of `split`.
    #[serde(default)]
    pub loaders: Vec<Loader>,
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
    /// Which of these its source leaves open.
    #[serde(default)]
    pub unread: Vec<Unread>,
    /// Alignments of the per-rank intermediate width; none: not padded.
    #[serde(default)]
    pub intermediate: Vec<Granule>,
    /// Alignments of the hidden size; none: not padded.
    #[serde(default)]
    pub hidden: Vec<Granule>,
    /// Alignments of the token axis; none: not padded.
    #[serde(default)]
    pub tokens: Vec<Granule>,
    /// (intermediate, hidden) alignments in elements of which the one with the least padded area
    /// is taken, the first on a tie; instead of `intermediate` and `hidden`.
    #[serde(default)]
    pub cheapest: Vec<[u64; 2]>,
    /// Fills.
    #[serde(default)]
    pub fill: Fills,
    /// Scales.
    #[serde(default)]
    pub scale: ScaleRule,
    /// Whether weights with zero points are taken, as far as was read.
    #[serde(default)]
    pub zero_points: bool,
    /// Size formula.
    #[serde(default)]
    pub sizes: Sizes,
    /// Stride padding.
    pub stride: Option<Stride>,
    /// What the kernel is told at run time.
    #[serde(default)]
    pub valid: Vec<Valid>,
    /// Where the bias of w2 is added, if that was read.
    pub w2_bias: Option<BiasShare>,
    /// Refusals, slow paths, known faults.
    #[serde(default)]
    pub refuse: Vec<Refusal>,
    /// Limits on the tokens of a batch.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// What else its source says, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Rule {
    /// Environment variables that it names.
    pub fn variables(&self) -> Vec<&str> {
        let granules = [&self.intermediate, &self.hidden, &self.tokens];
        let whens = granules
            .into_iter()
            .flatten()
            .map(|g| &g.when)
            .chain(self.refuse.iter().map(|r| &r.when))
            .chain(self.valid.iter().map(|v| &v.when))
            .chain(self.loaders.iter().map(|l| &l.when))
            .chain([&self.when]);
        let sent = self.sent.iter().flat_map(|one| one.variables());
        let stride = self.stride.iter().map(|s| s.env.as_str());
        whens
            .flat_map(|w| w.env.iter().chain(&w.env_not).map(String::as_str))
            .chain(stride)
            .chain(sent)
            .collect()
    }

    /// Whether the backend calls itself an emulation: it shows what the format computes, and is none
    /// to serve with.
    pub fn emulates(&self) -> bool {
        self.backend == "emulation"
    }

    /// Whether there is a device that both rules are for, as far as their sources restrict them.
    pub fn shares_device(&self, other: &Rule) -> bool {
        share_device(&self.arch, &other.arch)
    }

    /// Whether it was read at a version of this name, or begins or ends with it.
    pub fn names(&self, version: &str) -> bool {
        let ends = [&self.since, &self.until].into_iter().flatten();
        self.version == version || ends.into_iter().any(|end| end.text() == version)
    }

    /// Whether it holds for a version of its stack.
    pub fn held_at(&self, version: &str) -> Held {
        held(
            &self.version,
            self.since.as_ref(),
            self.until.as_ref(),
            version,
        )
    }
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
