//! Mirrors the TOML of a suite file, where unknown keys are errors.
//!
//! It must not interpret values. Layer 8.

use crate::rule::Rule;
use crate::terms::{LayerKind, WeightFormat};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// Keys of an entry beside the swept ones.
pub(super) const ENTRY_KEYS: &[&str] = &["name", "line", "expect", "why", "link", "properties"];

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "tables suite, case, sweep, plan, file and rule"
)]
pub(super) struct RawSuite {
    pub(super) suite: Spanned<RawHead>,
    #[serde(default)]
    pub(super) case: Vec<Spanned<RawCase>>,
    /// Sweeps mix entry keys and case keys, so they are sorted out by hand.
    #[serde(default)]
    pub(super) sweep: Vec<Spanned<BTreeMap<String, toml::Value>>>,
    #[serde(default)]
    pub(super) plan: Vec<Spanned<RawPlan>>,
    #[serde(default)]
    pub(super) file: Vec<Spanned<RawFile>>,
    /// Rules that the suite's plans may name, as in a rule file.
    #[serde(default)]
    pub(super) rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of what holds for the suite")]
pub(super) struct RawHead {
    pub(super) name: String,
    pub(super) about: Option<String>,
    #[serde(default)]
    pub(super) properties: Vec<String>,
    #[serde(default)]
    pub(super) coverage: BTreeMap<String, f64>,
    pub(super) vacuous_max: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table that describes a case")]
pub(super) struct RawCase {
    pub(super) name: String,
    pub(super) line: String,
    pub(super) expect: Option<String>,
    pub(super) why: Option<String>,
    pub(super) link: Option<String>,
    #[serde(default)]
    pub(super) properties: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table that describes a plan")]
pub(super) struct RawPlan {
    pub(super) name: String,
    pub(super) model: RawModel,
    pub(super) tp: Option<OneOrMany<u64>>,
    pub(super) ep: Option<u64>,
    pub(super) rule: Option<String>,
    pub(super) scheme: Option<String>,
    pub(super) refine: Option<bool>,
    pub(super) dispatch: Option<String>,
    pub(super) format: Option<OneOrMany<WeightFormat>>,
    pub(super) layer: Option<LayerKind>,
    pub(super) why: Option<String>,
    pub(super) link: Option<String>,
    #[serde(default)]
    pub(super) expect: RawPlanExpect,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table that describes an audit of files"
)]
pub(super) struct RawFile {
    pub(super) name: String,
    pub(super) line: String,
    pub(super) fault: Option<String>,
    /// Tensors that the fault is planted in; all, if left out.
    #[serde(default)]
    pub(super) tensors: Vec<String>,
    pub(super) pads: Option<RawPads>,
    pub(super) rows: Option<RawRows>,
    pub(super) why: Option<String>,
    pub(super) link: Option<String>,
    #[serde(default)]
    pub(super) expect: RawFileExpect,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a tensor and a code, such as { tensor = \"w2\", code = 1 }"
)]
pub(super) struct RawPads {
    pub(super) tensor: String,
    pub(super) code: u32,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a tensor and an order of rows, such as { tensor = \"w2\", order = [1, 0] }"
)]
pub(super) struct RawRows {
    pub(super) tensor: String,
    pub(super) order: Vec<usize>,
}

#[derive(Deserialize, Default)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of what the audit must say, such as { name = \"tail-pad\" }"
)]
pub(super) struct RawFileExpect {
    pub(super) name: Option<OneOrMany<String>>,
    pub(super) tensors: Option<Vec<String>>,
    pub(super) ranks: Option<Vec<usize>>,
    pub(super) elements: Option<u64>,
    pub(super) pads: Option<u64>,
    #[serde(default)]
    pub(super) differing: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) bytes: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a value or a list of values")]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a model's name or path, a list of them, or a table of sizes (keys: base, hidden, \
                 intermediate, experts, top_k, gated, activation, format, shared, dense)"
)]
pub(super) enum RawModel {
    Named(String),
    Many(Vec<String>),
    Sizes(super::plan_entry::ModelSizes),
}

#[derive(Deserialize, Default)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of what the plan must say, such as { verdict = \"padded\" }"
)]
pub(super) struct RawPlanExpect {
    pub(super) verdict: Option<OneOrMany<String>>,
    pub(super) width: Option<u64>,
    pub(super) width_padded: Option<u64>,
    pub(super) width_computed: Option<u64>,
    pub(super) hidden: Option<u64>,
    pub(super) hidden_padded: Option<u64>,
    pub(super) hidden_computed: Option<u64>,
    pub(super) w13_rows: Option<u64>,
    pub(super) w2_cols: Option<u64>,
    pub(super) ranks: Option<Vec<(u64, u64)>>,
    pub(super) codes: Option<Vec<String>>,
    pub(super) no_codes: Option<Vec<String>>,
    pub(super) rules: Option<u64>,
    pub(super) overhead: Option<f64>,
    #[serde(default)]
    pub(super) shapes: BTreeMap<String, Vec<u64>>,
    #[serde(default)]
    pub(super) logical: BTreeMap<String, Vec<u64>>,
    #[serde(default)]
    pub(super) bytes: BTreeMap<String, u64>,
    pub(super) blocks: Option<Vec<u64>>,
    pub(super) aligned_tp: Option<Vec<u64>>,
    pub(super) usable_tp: Option<Vec<u64>>,
    #[serde(default)]
    pub(super) says: Vec<String>,
}
