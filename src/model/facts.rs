//! Holds what is known about one MoE model: sizes, activation, router, stored formats.
//!
//! It reads nothing. Layer 2.

use crate::terms::{Activation, Bias, Route, WeightFormat};
use serde::{Deserialize, Serialize};

/// How sure a model's facts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Read from a file just now.
    File,
    /// Built in, and checked against a copy of the checkpoint's config.
    Verified,
    /// Built in: the configuration class's default, of which no checkpoint is known.
    ClassDefault,
    /// Built in from memory, unchecked.
    Memory,
}

impl Grade {
    /// The word printed for the grade.
    pub const fn name(self) -> &'static str {
        match self {
            Grade::File => "file",
            Grade::Verified => "verified",
            Grade::ClassDefault => "class-default",
            Grade::Memory => "memory",
        }
    }
}

/// The MoE facts of one model. Sizes are in elements, logical, unpadded and not split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// Built-in name, or the directory, `_name_or_path` or architecture of the file.
    pub name: String,
    /// The path as given, or where the built-in facts come from.
    pub source: String,
    /// How sure the facts are.
    pub grade: Grade,
    /// First of the config's `architectures`, empty when it names none.
    pub architecture: String,
    /// The config's `model_type`, empty when it has none.
    pub model_type: String,
    /// The expert's input width: the latent size where the model has one.
    pub hidden: u64,
    /// The model's own width, which shared experts and dense layers see.
    pub model_hidden: u64,
    /// Width of one routed expert.
    pub intermediate: u64,
    /// Routed experts in a layer.
    pub experts: u64,
    /// Experts chosen per token.
    pub top_k: u64,
    /// Identity ("zero") experts that the router chooses from too: they hold no weights.
    pub zero_experts: u64,
    /// Activation of the routed experts.
    pub activation: Activation,
    /// Router.
    pub route: Route,
    /// Expert groups of a grouped router, else 1.
    pub groups: u64,
    /// Groups kept by a grouped router, else 1.
    pub keep: u64,
    /// routed_scaling_factor, 1 when there is none.
    pub factor: f64,
    /// Biases on the experts' projections.
    pub bias: Bias,
    /// Whether the checkpoint stores gate and up rows interleaved one by one.
    pub interleaved: bool,
    /// Width of all shared experts together, if there are any.
    pub shared: Option<u64>,
    /// Width of one shared expert, where a key of its own gives it and not the routed experts' width.
    #[serde(skip)]
    pub shared_each: Option<u64>,
    /// Width of dense layers, or of a dense MLP beside the experts, if there are any.
    pub dense: Option<u64>,
    /// Layers that have a dense part, of those widths.
    pub dense_layers: u64,
    /// Multi-token-prediction layers behind the model.
    pub mtp_layers: u64,
    /// Whether those have routed experts, as far as the config says.
    pub draft_experts: bool,
    /// Layers that have routed experts.
    pub moe_layers: u64,
    /// Layers of any kind.
    pub layers: u64,
    /// Query heads, when the config says.
    pub attention_heads: Option<u64>,
    /// Key-value heads, when the config says.
    pub kv_heads: Option<u64>,
    /// Vocabulary size, when the config says.
    pub vocab: Option<u64>,
    /// How the checkpoint stores its weights.
    pub quant: Quant,
    /// Why no checkpoint of it can be written with wider experts, as far as its config and its family tell, a
    /// clause.
    #[serde(skip)]
    pub unpaddable: Option<String>,
    /// What was assumed or left out in reading, one sentence each.
    pub notes: Vec<String>,
}

/// How many layers have a dense part of that width, of `others` without experts: those, or the layers with
/// experts where every layer has some and it stands beside them.
pub(super) const fn dense_layers(dense: Option<u64>, others: u64, moe_layers: u64) -> u64 {
    match (dense, others) {
        (None, _) => 0,
        (Some(_), 0) => moe_layers,
        (Some(_), some) => some,
    }
}

impl Model {
    /// Whether the first projection has a gate half.
    pub const fn gated(&self) -> bool {
        self.activation.gated()
    }
}

/// How zero points of integer weights lie in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroPoints {
    /// Eight of four bits in a word of 32, in AWQ's order (facts/reports.md B49).
    Awq,
    /// In an order that nobody read.
    Unread,
}

impl ZeroPoints {
    /// The columns whose zero points a word of AWQ's holds, from its lowest bits on
    /// (facts/reports.md B49).
    pub const AWQ_ORDER: [u32; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
}

/// A format that only some of the layers are stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The format.
    pub format: WeightFormat,
    /// How many layers.
    pub layers: u64,
}

/// How a checkpoint stores the weights of its feed-forward parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quant {
    /// Format of the routed experts; bf16 when not quantised and no dtype is given.
    pub format: WeightFormat,
    /// `quant_method` of the config, `none` without one.
    pub method: String,
    /// Rows and columns that share a scale, for block formats.
    #[serde(default)]
    pub block: Option<(u64, u64)>,
    /// Elements of a row that share a scale, for group formats.
    #[serde(default)]
    pub group: Option<u64>,
    /// Format of the shared experts; that of unquantised weights when there are none.
    pub shared_format: WeightFormat,
    /// Format of dense layers; that of unquantised weights when there are none.
    pub dense_format: WeightFormat,
    /// Format of the experts of multi-token-prediction layers, where it is not the routed one's.
    #[serde(default)]
    pub draft_format: Option<WeightFormat>,
    /// Other formats that routed experts of some layers are stored in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Share>,
    /// Zero points of integer weights, where they have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_points: Option<ZeroPoints>,
    /// Whether integer weights were quantised in activation order: the checkpoint then lists the
    /// group of each input channel (`g_idx`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub act_order: bool,
}

impl Quant {
    /// Nothing quantised: every part in `format`.
    pub fn none(format: WeightFormat) -> Self {
        Quant {
            format,
            method: "none".to_owned(),
            block: None,
            group: None,
            shared_format: format,
            dense_format: format,
            draft_format: None,
            others: Vec::new(),
            zero_points: None,
            act_order: false,
        }
    }
}
