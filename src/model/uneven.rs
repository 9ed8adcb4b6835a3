//! Takes a config that lists sizes layer by layer apart into one model for each kind of layer.
//!
//! It must not decide what a size means. Layer 2.

use super::doc::Doc;
use super::error::ModelError;
use super::facts::Model;
use super::layers::{self, COUNT, EACH, TOTAL};
use super::load::{EXPERTS, LAYER_LIMIT, TOP_K, WIDTH, object, parse_map, scope};
use serde_json::{Map, Value};

/// Layers that have the same sizes.
struct Kind {
    /// Of each listed key the size.
    sizes: Vec<u64>,
    /// Their numbers.
    layers: Vec<u64>,
}

/// Reads the text of a `config.json` as [`super::parse`] does, into one model for each kind of layer that its
/// lists tell apart; mostly that is one.
///
/// # Errors
/// As [`super::parse`].
pub fn parse_each(
    json: &str,
    file: &str,
    hf_quant: Option<&str>,
) -> Result<Vec<Model>, ModelError> {
    let map = object(json, file)?;
    let root = Doc::root(file, &map);
    let doc = scope(root)?;
    let lists = lists(&doc);
    let keys: Vec<&str> = lists.iter().map(|(key, _)| *key).collect();
    let as_it_is = || Ok(vec![parse_map(&map, file, hf_quant, None)?]);
    if let Some((other, odd, first)) = odd(&doc, &lists) {
        return as_it_is().map_err(|error| of_length(error, other, odd, first));
    }
    let kinds = kinds(&lists);
    let listed: u64 = kinds.iter().map(|kind| kind.layers.len() as u64).sum();
    // Of each kind that has experts its config, its sizes and how many layers; the widths of dense layers.
    let (mut kept, mut dense, mut with_experts) = (Vec::new(), Vec::new(), 0);
    for kind in &kinds {
        let own = with_sizes(&map, doc.path, &keys, &kind.sizes);
        let layers = layers::read(&scope(Doc { map: &own, ..root })?, &mut Vec::new())?;
        if listed != layers.total {
            // A list of another length is none of one value a layer.
            let Some((key, items)) = lists.first() else {
                return as_it_is();
            };
            let total = format!("there are {} layers", layers.total);
            let key = doc.name(key);
            return as_it_is().map_err(|error| of_length(error, key, items.len(), total));
        }
        let among = |all: &[u64]| kind.layers.iter().filter(|n| all.contains(n)).count() as u64;
        let model = parse_map(&own, file, hf_quant, Some(&kind.layers))?;
        if among(&layers.dense) > 0 || layers.dense.is_empty() {
            dense.push(model.dense);
        }
        with_experts = layers.moe.len();
        let count = among(&layers.moe);
        if count > 0 {
            kept.push((model, &kind.sizes, count));
        }
    }
    dense.dedup();
    let (several, [dense]) = (kept.len(), dense.as_slice()) else {
        // Dense layers of several widths are no part of one model.
        return as_it_is();
    };
    let mut models = Vec::new();
    for (mut model, sizes, count) in kept {
        if several > 1 {
            let sizes = (keys.iter().zip(sizes).enumerate())
                .filter(|(n, (_, size))| kinds.iter().any(|kind| kind.sizes[*n] != **size))
                .map(|(_, (key, size))| format!("{key} {size}"));
            let sizes = sizes.collect::<Vec<_>>().join(", ");
            model.notes.push(format!(
                "of {with_experts} layers with experts the {count} with {sizes}: sizes differ from layer to layer, and each of {several} kinds is planned by itself"
            ));
            model.name = format!("{} ({sizes})", model.name);
            model.unpaddable = Some("its sizes differ from layer to layer".to_owned());
            model.moe_layers = count;
            if model.draft_experts {
                let why = "which of the sizes a draft has is not recorded: it is not planned";
                model.notes.push(why.to_owned());
                (model.mtp_layers, model.draft_experts) = (0, false);
            }
        }
        // Said of the first.
        (model.dense, model.dense_layers) = match models.is_empty() {
            true => (*dense, model.dense_layers),
            false => (None, 0),
        };
        models.push(model);
    }
    if models.is_empty() {
        return as_it_is();
    }
    Ok(models)
}

/// A list of another length than the first has, by its key, with what the first says.
fn odd(doc: &Doc<'_>, lists: &[(&str, Vec<u64>)]) -> Option<(String, usize, String)> {
    let (first, others) = lists.split_first()?;
    let (key, items) = others
        .iter()
        .find(|(_, items)| items.len() != first.1.len())?;
    let first = format!("{} has {}", doc.name(first.0), first.1.len());
    Some((doc.name(key), items.len(), first))
}

/// The error of a reader that found a list where one size is needed, where no list of one size a layer could stand.
fn of_length(error: ModelError, key: String, length: usize, other: String) -> ModelError {
    match error {
        ModelError::Uneven { file, .. }
        | ModelError::Kind {
            file,
            found: "a list",
            ..
        } => ModelError::Length {
            file,
            key,
            length,
            other,
        },
        error => error,
    }
}

/// The keys that hold a list of sizes.
fn lists<'k>(doc: &Doc<'_>) -> Vec<(&'k str, Vec<u64>)> {
    let sizes = [
        WIDTH,
        &["intermediate_size"],
        TOTAL,
        EACH,
        COUNT,
        EXPERTS,
        TOP_K,
    ];
    let listed = sizes.iter().flat_map(|keys| keys.iter().copied());
    let listed = listed.filter_map(|key| {
        let items = doc.get(key)?.as_array()?;
        let items: Option<Vec<u64>> = items.iter().map(Value::as_u64).collect();
        Some((key, items?))
    });
    listed.collect()
}

/// The kinds of layers that lists of one length make; none of lists longer than any model has layers, which are
/// none of one value a layer: whoever reads them says so.
fn kinds(listed: &[(&str, Vec<u64>)]) -> Vec<Kind> {
    let length = listed.first().map_or(0, |(_, items)| items.len());
    let length = if length as u64 <= LAYER_LIMIT {
        length
    } else {
        0
    };
    let mut kinds: Vec<Kind> = Vec::new();
    for at in 0..length {
        let sizes: Vec<u64> = listed.iter().map(|(_, items)| items[at]).collect();
        match kinds.iter_mut().find(|kind| kind.sizes == sizes) {
            Some(kind) => kind.layers.push(at as u64),
            None => kinds.push(Kind {
                sizes,
                layers: vec![at as u64],
            }),
        }
    }
    kinds
}

/// The config with one size at each of the keys.
fn with_sizes(
    map: &Map<String, Value>,
    path: &str,
    keys: &[&str],
    sizes: &[u64],
) -> Map<String, Value> {
    let mut map = map.clone();
    let mut at = Some(&mut map);
    for part in path.split('.').filter(|part| !part.is_empty()) {
        at = at.and_then(|map| map.get_mut(part)?.as_object_mut());
    }
    let Some(scope) = at else { return map };
    for (key, size) in keys.iter().zip(sizes) {
        let (outer, inner) = match key.split_once('.') {
            Some((outer, inner)) => (scope.get_mut(outer).and_then(Value::as_object_mut), inner),
            None => (Some(&mut *scope), *key),
        };
        if let Some(value) = outer.and_then(|map| map.get_mut(inner)) {
            *value = Value::from(*size);
        }
    }
    map
}
