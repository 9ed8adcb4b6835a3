//! Holds the built-in models, read from `data/models.toml`.
//!
//! It must not read other files. Layer 2.

use super::facts::{Grade, Model, Quant, dense_layers};
use crate::terms::{Activation, Bias, Route, WeightFormat};
use serde::Deserialize;
use std::sync::OnceLock;

const DATA: &str = include_str!("data/models.toml");

/// One built-in model as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// The organisation that publishes it, empty when none does.
    org: String,
    #[serde(default)]
    aliases: Vec<String>,
    source: String,
    grade: Grade,
    architecture: String,
    model_type: String,
    hidden: u64,
    model_hidden: Option<u64>,
    intermediate: u64,
    experts: u64,
    top_k: u64,
    #[serde(default)]
    zero_experts: u64,
    activation: Activation,
    route: Route,
    groups: Option<u64>,
    keep: Option<u64>,
    factor: Option<f64>,
    bias: Option<Bias>,
    #[serde(default)]
    interleaved: bool,
    shared: Option<u64>,
    dense: Option<u64>,
    #[serde(default)]
    mtp_layers: u64,
    #[serde(default)]
    draft_experts: bool,
    moe_layers: u64,
    layers: u64,
    attention_heads: Option<u64>,
    kv_heads: Option<u64>,
    vocab: Option<u64>,
    quant: Option<Quant>,
    unpaddable: Option<String>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    model: Vec<Entry>,
}

struct Shipped {
    models: Vec<Model>,
    /// Every spelling of a name, with the model's place.
    names: Vec<(String, usize)>,
}

fn shipped() -> &'static Shipped {
    static SHIPPED: OnceLock<Shipped> = OnceLock::new();
    SHIPPED.get_or_init(|| {
        let table: Table =
            toml::from_str(DATA).expect("the shipped models parse: a test reads them");
        let mut names = Vec::new();
        for (at, entry) in table.model.iter().enumerate() {
            for name in std::iter::once(&entry.name).chain(&entry.aliases) {
                names.push((name.clone(), at));
                if !entry.org.is_empty() {
                    names.push((format!("{}/{name}", entry.org), at));
                }
            }
        }
        Shipped {
            models: table.model.into_iter().map(model).collect(),
            names,
        }
    })
}

fn model(e: Entry) -> Model {
    let family = super::family::find(&[&e.model_type], &[&e.architecture]);
    Model {
        unpaddable: e.unpaddable.or_else(|| family.unpaddable()),
        name: e.name,
        source: e.source,
        grade: e.grade,
        architecture: e.architecture,
        model_type: e.model_type,
        hidden: e.hidden,
        model_hidden: e.model_hidden.unwrap_or(e.hidden),
        intermediate: e.intermediate,
        experts: e.experts,
        top_k: e.top_k,
        zero_experts: e.zero_experts,
        activation: e.activation,
        route: e.route,
        groups: e.groups.unwrap_or(1),
        keep: e.keep.unwrap_or(1),
        factor: e.factor.unwrap_or(1.0),
        bias: e.bias.unwrap_or(Bias::None),
        interleaved: e.interleaved,
        shared: e.shared,
        // Which key gives it is not recorded: a multiple of the routed width mostly follows that.
        shared_each: (e.shared).filter(|shared| !shared.is_multiple_of(e.intermediate.max(1))),
        dense: e.dense,
        dense_layers: dense_layers(e.dense, e.layers.saturating_sub(e.moe_layers), e.moe_layers),
        mtp_layers: e.mtp_layers,
        draft_experts: e.draft_experts,
        moe_layers: e.moe_layers,
        layers: e.layers,
        attention_heads: e.attention_heads,
        kv_heads: e.kv_heads,
        vocab: e.vocab,
        quant: e.quant.unwrap_or_else(|| Quant::none(WeightFormat::Bf16)),
        notes: e.notes,
    }
}

/// The built-in models, in the order of the file.
pub fn builtin() -> &'static [Model] {
    &shipped().models
}

/// Every name a built-in model goes by, without and with its organisation.
pub(super) fn names() -> Vec<(&'static str, &'static Model)> {
    let shipped = shipped();
    shipped
        .names
        .iter()
        .map(|(name, at)| (name.as_str(), &shipped.models[*at]))
        .collect()
}

/// The built-in model of that name, in any case.
pub(super) fn find(name: &str) -> Option<&'static Model> {
    names()
        .into_iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, model)| model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_models_share_a_name() {
        let mut all: Vec<String> = names()
            .iter()
            .map(|(n, _)| n.to_ascii_lowercase())
            .collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn names_are_found_in_any_case_and_with_the_organisation() {
        for name in ["gpt-oss-20b", "GPT-OSS-20B", "openai/gpt-oss-20b"] {
            assert_eq!(find(name).unwrap().name, "gpt-oss-20b");
        }
        assert!(find("other/gpt-oss-20b").is_none());
    }

    #[test]
    fn built_in_sizes_are_possible() {
        for m in builtin() {
            assert!(m.top_k >= 1 && m.top_k <= m.experts, "{}", m.name);
            assert!(m.moe_layers >= 1 && m.moe_layers <= m.layers, "{}", m.name);
            assert_eq!(m.route.grouped(), m.groups > 1, "{}", m.name);
            assert!(
                m.hidden <= m.model_hidden && m.source.contains("facts/"),
                "{}",
                m.name
            );
        }
    }
}
