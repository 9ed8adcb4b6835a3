//! Defines a plan entry: a model on ranks under a rule, and what its plan must say.
//!
//! It must not load models or plan. Layer 8.

use crate::plan::Fit;
use crate::terms::{Activation, LayerKind, WeightFormat};
use serde::Deserialize;

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
    /// Rule id or pattern; every rule if left out.
    pub rule: Option<String>,
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
    /// Hidden size.
    pub hidden: Option<u64>,
    /// Padded hidden size.
    pub hidden_padded: Option<u64>,
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
}
