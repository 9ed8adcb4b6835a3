//! Decides which layers have experts, which are dense, and how wide the dense ones are.
//!
//! It must not know quantisation. Layer 2.

use super::doc::{Doc, shown};
use super::error::{ModelError, NotMoe};
use super::family::Family;
use super::load::LAYER_LIMIT;
use super::methods::unknown;
use serde_json::Value;

/// A model's layers by kind.
#[derive(Clone)]
pub(super) struct Layers {
    /// Numbers of the layers with routed experts.
    pub(super) moe: Vec<u64>,
    /// Numbers of the dense layers.
    pub(super) dense: Vec<u64>,
    /// Layers of any kind.
    pub(super) total: u64,
    /// Multi-token-prediction layers behind them.
    pub(super) mtp: u64,
    /// Whether those have experts, as far as the config says.
    pub(super) draft: bool,
}

impl Layers {
    /// The same with those layers with experts alone that are among some.
    pub(super) fn among(&self, only: Option<&[u64]>) -> Layers {
        let mut layers = self.clone();
        if let Some(only) = only {
            layers.moe.retain(|layer| only.contains(layer));
        }
        layers
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Moe,
    Dense,
    Other,
}

/// Reads the layers.
pub(super) fn read(doc: &Doc<'_>, notes: &mut Vec<String>) -> Result<Layers, ModelError> {
    let named = match doc.first(&["num_hidden_layers", "num_layers", "n_layers"]) {
        Some((key, value)) => Some(limited(doc, key, doc.whole(key, value, 1)?)?),
        None => None,
    };
    let listed = listed(doc)?;
    let mtp = mtp(doc)?;
    let draft = mtp > 0 && draft(doc, listed.is_some(), named.unwrap_or(1), notes)?;
    let (key, kinds) = match listed {
        Some(listed) => listed,
        None => counted(doc, named.unwrap_or(1))?,
    };
    let total = kinds.len() as u64;
    match named {
        None if total == 1 => notes.push("no number of layers: one is assumed".to_owned()),
        Some(n) if n != total => {
            notes.push(format!(
                "{key} lists {total} layers, num_hidden_layers is {n}; the list is taken"
            ));
        }
        _ => {}
    }
    let of = |kind| {
        (0..)
            .zip(&kinds)
            .filter(|(_, k)| **k == kind)
            .map(|(n, _)| n)
            .collect()
    };
    let (moe, dense): (Vec<u64>, Vec<u64>) = (of(Kind::Moe), of(Kind::Dense));
    if moe.is_empty() {
        let why = NotMoe::NoLayer {
            key: doc.name(key),
            lists: named.filter(|n| *n != total).map(|n| (total, n)),
        };
        return Err(ModelError::NotMoe {
            file: doc.file.to_owned(),
            why,
        });
    }
    Ok(Layers {
        moe,
        dense,
        total,
        mtp,
        draft,
    })
}

/// Whether multi-token-prediction layers have experts: by their own pattern, else by the rule
/// that the layers before them follow. A list of layers says nothing about those behind it.
fn draft(
    doc: &Doc<'_>,
    listed: bool,
    total: u64,
    notes: &mut Vec<String>,
) -> Result<bool, ModelError> {
    if let Some((_, pattern)) = doc.word(&["mtp_hybrid_override_pattern"])? {
        return Ok(pattern.contains('E'));
    }
    if listed {
        notes.push(
            "the config does not say whether the multi-token-prediction layers have experts"
                .to_owned(),
        );
        return Ok(false);
    }
    let (_, kinds) = counted(doc, total.saturating_add(1))?;
    Ok(kinds.last() == Some(&Kind::Moe))
}

/// Refuses more layers than can be listed.
fn limited(doc: &Doc<'_>, key: &str, layers: u64) -> Result<u64, ModelError> {
    if layers <= LAYER_LIMIT {
        return Ok(layers);
    }
    Err(ModelError::TooLarge {
        file: doc.file.to_owned(),
        key: doc.name(key),
        value: layers.to_string(),
        most: LAYER_LIMIT,
    })
}

/// Kinds from a key with one entry per layer.
fn listed(doc: &Doc<'_>) -> Result<Option<(&'static str, Vec<Kind>)>, ModelError> {
    const PATTERN: &str = "hybrid_override_pattern";
    if let Some((_, pattern)) = doc.word(&[PATTERN])? {
        limited(doc, PATTERN, pattern.len() as u64)?;
        // M: Mamba, *: attention, E: experts, -: dense MLP; | only separates.
        let kinds = pattern.chars().filter(|c| *c != '|').map(|c| match c {
            'E' => Ok(Kind::Moe),
            '-' => Ok(Kind::Dense),
            'M' | '*' => Ok(Kind::Other),
            _ => Err(unknown(
                doc,
                PATTERN,
                "letter of a layer",
                &c.to_string(),
                &["M", "*", "E", "-", "|"],
            )),
        });
        return Ok(Some((PATTERN, kinds.collect::<Result<_, _>>()?)));
    }
    for key in ["mlp_layer_types", "layers_block_type"] {
        let Some(items) = doc.list(key)? else {
            continue;
        };
        limited(doc, key, items.len() as u64)?;
        let kinds: Vec<Kind> = items
            .iter()
            .map(|item| match item.as_str() {
                Some("sparse" | "moe") => Kind::Moe,
                Some("dense" | "mlp") => Kind::Dense,
                _ => Kind::Other,
            })
            .collect();
        // Jamba's list of block types tells attention from Mamba only.
        if kinds.iter().any(|k| *k != Kind::Other) {
            return Ok(Some((key, kinds)));
        }
    }
    const FREQ: &str = "moe_layer_freq";
    if let Some(Value::Array(items)) = doc.get(FREQ) {
        limited(doc, FREQ, items.len() as u64)?;
        let kind = |item: &Value| match item.as_u64() {
            Some(0) => Ok(Kind::Dense),
            Some(1) => Ok(Kind::Moe),
            _ => Err(doc.kind(FREQ, item, "a list of 0 and 1")),
        };
        return Ok(Some((
            FREQ,
            items.iter().map(kind).collect::<Result<_, _>>()?,
        )));
    }
    Ok(None)
}

/// Kinds from first layers, steps and lists of layer numbers.
fn counted(doc: &Doc<'_>, total: u64) -> Result<(&'static str, Vec<Kind>), ModelError> {
    let mut kinds = vec![Kind::Moe; total as usize];
    let mut by = "num_hidden_layers";
    let mut keep = |key, stays: &dyn Fn(u64) -> bool| {
        for (n, kind) in (0..).zip(&mut kinds) {
            if !stays(n) {
                *kind = Kind::Dense;
                by = key;
            }
        }
    };
    if let Some(numbers) = numbers(doc)? {
        let (key, mut has) = numbers;
        has.sort_unstable();
        keep(key, &|n| has.binary_search(&n).is_ok());
        return Ok((by, kinds));
    }
    for key in [
        "first_k_dense_replace",
        "num_dense_layers",
        "moe_layer_start_index",
    ] {
        if let Some(value) = doc.get(key) {
            let first = doc.whole(key, value, 0)?;
            keep(key, &|n| n >= first);
        }
    }
    // Whether the first layer of a step or the last has the experts differs by family.
    for (key, last) in [
        ("decoder_sparse_step", true),
        ("interleave_moe_layer_step", true),
        ("moe_layer_interval", true),
        ("moe_layer_freq", false),
    ] {
        if let Some(value) = doc.get(key) {
            let step = doc.whole(key, value, 1)?;
            keep(key, &|n| (n + u64::from(last)).is_multiple_of(step));
        }
    }
    if let Some(value) = doc.get("expert_layer_period") {
        let period = doc.whole("expert_layer_period", value, 1)?;
        let offset = doc.perhaps(&["expert_layer_offset"])?.unwrap_or(0);
        keep("expert_layer_period", &|n| n % period == offset);
    }
    if let Some(items) = doc.list("mlp_only_layers")? {
        let mut only = items
            .iter()
            .map(|item| doc.whole("mlp_only_layers", item, 0))
            .collect::<Result<Vec<_>, _>>()?;
        only.sort_unstable();
        keep("mlp_only_layers", &|n| only.binary_search(&n).is_err());
    }
    Ok((by, kinds))
}

/// The numbers of the layers with experts, where a key lists them.
fn numbers(doc: &Doc<'_>) -> Result<Option<(&'static str, Vec<u64>)>, ModelError> {
    const LIST: &str = "moe_layers";
    const TEXT: &str = "moe_layers_enum";
    if let Some(items) = doc.list(LIST)? {
        limited(doc, LIST, items.len() as u64)?;
        let all = items.iter().map(|item| doc.whole(LIST, item, 0));
        return Ok(Some((LIST, all.collect::<Result<_, _>>()?)));
    }
    let Some((_, text)) = doc.word(&[TEXT])? else {
        return Ok(None);
    };
    limited(doc, TEXT, text.split(',').count() as u64)?;
    let all = text.split(',').map(|n| {
        n.trim().parse().map_err(|_| ModelError::Kind {
            file: doc.file.to_owned(),
            key: doc.name(TEXT),
            value: shown(&Value::from(n)),
            found: "a string",
            wanted: "a list of layer numbers",
        })
    });
    Ok(Some((TEXT, all.collect::<Result<_, _>>()?)))
}

fn mtp(doc: &Doc<'_>) -> Result<u64, ModelError> {
    const KEYS: &[&str] = &[
        "num_nextn_predict_layers",
        "mtp_num_hidden_layers",
        "num_mtp_layers",
        "mtp_num_layers",
    ];
    if let Some(layers) = doc.perhaps(KEYS)? {
        return Ok(layers);
    }
    let modules = doc.perhaps(&["num_mtp_modules"])?.unwrap_or(0);
    let each = doc.perhaps(&["mtp_transformer_layers"])?.unwrap_or(1);
    // Each may be SIZE_LIMIT; their product is only a count to print.
    Ok(modules.saturating_mul(each))
}

/// What is said of a dense MLP whose width no key says.
const BESIDE: &str = "a dense MLP runs beside the experts; its width is not recorded";

/// Width of dense layers, or of the dense MLP beside the experts, and its key, where there are any.
pub(super) fn dense(
    doc: &Doc<'_>,
    family: &Family,
    layers: &Layers,
    notes: &mut Vec<String>,
) -> Result<Option<(&'static str, u64)>, ModelError> {
    // Arctic's residual MLP has no key of its width.
    if doc.get("use_residual") == Some(&Value::Bool(true)) {
        notes.push(BESIDE.to_owned());
    }
    let beside = family.parallel || doc.get("residual_moe") == Some(&Value::Bool(true));
    if layers.dense.is_empty() && !beside {
        return Ok(None);
    }
    // Llama-4 has its dense width in intermediate_size_mlp, its experts' in intermediate_size.
    let keys = &[
        "intermediate_size_mlp",
        "intermediate_size",
        "ffn_hidden_size",
    ];
    let Some((key, value)) = doc.first(keys) else {
        notes.push(format!(
            "{} dense layers, but no key says how wide",
            layers.dense.len()
        ));
        return Ok(None);
    };
    doc.whole(key, value, 1).map(|width| Some((key, width)))
}

/// Keys of how many shared experts there are.
pub(super) const COUNT: &[&str] = &[
    "n_shared_experts",
    "num_shared_experts",
    "num_shared_expert",
    "moe_num_shared_experts",
];
/// Keys of one shared expert's width, to be multiplied by their number.
pub(super) const EACH: &[&str] = &["moe_shared_expert_intermediate_size"];
/// Keys of the width of all shared experts together.
pub(super) const TOTAL: &[&str] = &[
    "shared_expert_intermediate_size",
    "share_expert_dim",
    "share_expert_dims",
    "shared_intermediate_size",
];

/// Width of one shared expert, where a key of its own gives it, of `total` together.
pub(super) fn shared_each(doc: &Doc<'_>, total: Option<u64>) -> Result<Option<u64>, ModelError> {
    let (Some(total), all) = (total, doc.perhaps(TOTAL)?) else {
        return Ok(None);
    };
    all.map_or_else(|| doc.perhaps(EACH), |_| Ok(Some(total)))
}

/// Width of all shared experts together, where there are any.
pub(super) fn shared(
    doc: &Doc<'_>,
    family: &Family,
    intermediate: u64,
) -> Result<Option<u64>, ModelError> {
    let count = doc.number(COUNT, 0)?;
    if let Some((_, 0)) = count {
        return Ok(None);
    }
    if let Some(total) = doc.perhaps(TOTAL)? {
        return Ok(Some(total));
    }
    let (key, number) = match count {
        Some((key, number)) => (key, Some(number)),
        None => (EACH[0], None),
    };
    let width = match (doc.perhaps(EACH)?, number) {
        (Some(each), number) => each.checked_mul(number.unwrap_or(1)),
        (None, Some(number)) => intermediate.checked_mul(number),
        (None, None) if family.shared => Some(intermediate),
        (None, None) => return Ok(None),
    };
    match width {
        Some(width) if width <= super::load::SIZE_LIMIT => Ok(Some(width)),
        _ => Err(ModelError::TooLarge {
            file: doc.file.to_owned(),
            key: doc.name(key),
            value: number.unwrap_or(1).to_string(),
            most: super::load::SIZE_LIMIT / intermediate.max(1),
        }),
    }
}
