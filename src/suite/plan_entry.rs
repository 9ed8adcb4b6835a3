//! Defines a plan entry: a model on ranks under a rule, and what its plan must say.
//!
//! It must not load models or plan. Layer 8.

use crate::case::PadSpec;
use crate::model::ZeroPoints;
use crate::plan::Fit;
use crate::rule::Rule;
use crate::terms::{Activation, LayerKind, WeightFormat};
use serde::Deserialize;
use std::collections::BTreeMap;

/// One plan that is held to what the entry expects.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanEntry {
    /// Full name, for example `reports/nemotronh-7688/tp=8`.
    pub name: String,
    /// The model.
    pub model: PlanModel,
    /// Tensor-parallel ranks.
    pub tp: u64,
    /// Expert-parallel groups.
    pub ep: u64,
    /// Format of every part instead of the model's own.
    pub format: Option<WeightFormat>,
    /// Which rules.
    pub rules: PlanRules,
    /// The dispatch that sends the tokens of its stack's rules.
    pub dispatch: Option<Box<Rule>>,
    /// Which layers are planned.
    pub layer: LayerKind,
    /// What every plan that matches must say.
    pub expect: PlanExpect,
    /// Why the entry is there.
    pub why: Option<String>,
    /// Where its story is told.
    pub link: Option<String>,
    /// Line of the entry in the file, from 1.
    pub line: usize,
}

/// The rules of a plan entry.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanRules {
    /// Every shipped rule that takes the format.
    Every,
    /// The shipped rules of this id or pattern.
    Named(String),
    /// A rule of the suite file itself, written as in a rule file.
    Own(Box<Rule>),
    /// A scheme as a case line spells it, and whether scales may be repeated on a finer grid
    /// (what the format allows if left out).
    Spelled(PadSpec, Option<bool>),
}

impl PlanRules {
    /// The id or pattern, for tables.
    pub fn pattern(&self) -> &str {
        match self {
            PlanRules::Every => "*",
            PlanRules::Named(pattern) => pattern,
            PlanRules::Own(rule) => &rule.id,
            PlanRules::Spelled(..) => "spelled",
        }
    }
}

/// Where a plan entry's model comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanModel {
    /// A built-in name, or the path of a config.
    Named(String),
    /// Sizes spelled out.
    Sizes(ModelSizes),
}

/// Sizes of a model, laid over a base model where one is named.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSizes {
    /// Built-in model that gives what is left out.
    pub base: Option<String>,
    /// The expert's input width.
    pub hidden: Option<u64>,
    /// Intermediate size of one routed expert.
    pub intermediate: Option<u64>,
    /// Experts.
    pub experts: Option<u64>,
    /// Experts chosen per token.
    pub top_k: Option<u64>,
    /// Whether w13 has two halves, where no activation says it.
    pub gated: Option<bool>,
    /// Activation.
    pub activation: Option<Activation>,
    /// Format the routed experts are stored in.
    pub format: Option<WeightFormat>,
    /// How zero points of integer weights lie, where they have some.
    pub zero_points: Option<ZeroPoints>,
    /// Intermediate size of the shared experts together.
    pub shared: Option<u64>,
    /// Intermediate size of dense layers.
    pub dense: Option<u64>,
}

/// What a plan must say; what is left out is not looked at.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlanExpect {
    /// Verdicts, one of which it must have.
    pub verdicts: Vec<Fit>,
    /// Real width per rank.
    pub width: Option<u64>,
    /// Padded width per rank.
    pub width_padded: Option<u64>,
    /// Width that the kernel multiplies.
    pub width_computed: Option<u64>,
    /// Hidden size.
    pub hidden: Option<u64>,
    /// Padded hidden size.
    pub hidden_padded: Option<u64>,
    /// Hidden size that the kernel multiplies.
    pub hidden_computed: Option<u64>,
    /// Rows of w13 as stored, both halves.
    pub w13_rows: Option<u64>,
    /// Columns of w2, in elements.
    pub w2_cols: Option<u64>,
    /// Start and length of every rank's real range.
    pub ranks: Option<Vec<(u64, u64)>>,
    /// Codes that must be among the findings.
    pub codes: Vec<String>,
    /// Codes that must not.
    pub no_codes: Vec<String>,
    /// How many rules the pattern must match; at least one if left out.
    pub rules: Option<u64>,
    /// Extra weight memory over all ranks, in percent with two decimals.
    pub overhead: Option<f64>,
    /// Shape of tensors on a rank, by name.
    pub shapes: BTreeMap<String, Vec<u64>>,
    /// Logical extent of tensors on the fullest rank, by name.
    pub logical: BTreeMap<String, Vec<u64>>,
    /// Bytes of tensors on a rank, by name.
    pub bytes: BTreeMap<String, u64>,
    /// The checkpoint's scale block in which each rank's channels begin.
    pub blocks: Option<Vec<u64>>,
    /// Numbers of ranks up to 64 that need no padding.
    pub aligned_tp: Option<Vec<u64>>,
    /// Those of them that heads and vocabulary take too.
    pub usable_tp: Option<Vec<u64>>,
    /// Texts, each of which a finding must contain.
    pub says: Vec<String>,
}
