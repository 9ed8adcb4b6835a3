//! Says which keys of a config give the widths of experts, for whoever changes them.
//!
//! It must not change a config. Layer 2.

use super::doc::Doc;
use super::error::ModelError;
use super::family::Family;
use super::layers::{EACH, TOTAL};
use super::load::{NESTED, WIDTH, family_of, object, scope};
use serde_json::{Map, Value};

/// The key under which a padded config keeps what it said before.
pub const PADDED: &str = "padproof";

/// What a key's number is the width of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WidthOf {
    /// One routed expert.
    Expert,
    /// All shared experts together.
    Shared,
    /// One shared expert.
    SharedEach,
}

/// A key that gives a width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WidthKey {
    /// The keys that lead to it, from the top.
    pub path: Vec<String>,
    /// What it is the width of.
    pub of: WidthOf,
    /// The width.
    pub value: u64,
    /// How often the width stands there, where it is a list of one value per layer.
    pub list: Option<usize>,
}

impl WidthKey {
    /// How the config says a width there.
    pub fn said(&self, width: u64) -> Value {
        match self.list {
            Some(len) => vec![width; len].into(),
            None => width.into(),
        }
    }
}

/// Every key that gives the width of routed or shared experts, aliases too, where the model's sizes are
/// read first, and then wherever else a language model's are; `file` is the config's path for messages.
///
/// # Errors
/// When the text is no config of a MoE model.
pub fn width_keys(json: &str, file: &str) -> Result<Vec<WidthKey>, ModelError> {
    let map = object(json, file)?;
    of_root(&Doc::root(file, &map))
}

fn of_root(root: &Doc<'_>) -> Result<Vec<WidthKey>, ModelError> {
    let root = *root;
    let doc = scope(root)?;
    let family = family_of(&root, &doc)?;
    let lists = family.lists;
    let mut expert: Vec<&str> = WIDTH.to_vec();
    if family.wide && doc.first(WIDTH).is_none() {
        expert.clear();
    }
    if expert.is_empty() || family.twice {
        expert.push("intermediate_size");
    }
    let expert = &*expert;
    let mut found = of_doc(&Doc { lists, ..doc }, expert)?;
    let nested = NESTED.iter().filter_map(|path| {
        let map = root.get(path)?.as_object()?;
        Some(Doc { path, map, ..root })
    });
    for other in [root].into_iter().chain(nested) {
        if other.path != doc.path {
            found.extend(of_doc(&Doc { lists, ..other }, expert)?);
        }
    }
    Ok(found)
}

/// The keys of one object of a config.
fn of_doc(doc: &Doc<'_>, expert: &[&str]) -> Result<Vec<WidthKey>, ModelError> {
    let mut found = Vec::new();
    let kinds = [
        (expert, WidthOf::Expert),
        (TOTAL, WidthOf::Shared),
        (EACH, WidthOf::SharedEach),
    ];
    for (keys, of) in kinds {
        for key in keys {
            let Some(value) = doc.get(key) else { continue };
            let list = match value {
                Value::Array(items) => Some(items.len()),
                _ => None,
            };
            let path = doc.path.split('.').filter(|part| !part.is_empty());
            found.push(WidthKey {
                path: path.chain(key.split('.')).map(str::to_owned).collect(),
                of,
                value: doc.whole(key, value, 0)?,
                list,
            });
        }
    }
    Ok(found)
}

/// Where else a config, below none of the keys `but`, says what one of these keys does: for another part of
/// the model, or layer by layer. `intermediate_size` is many a thing's, and not looked for.
///
/// # Errors
/// When the text is no JSON object.
pub fn width_strays(
    json: &str,
    file: &str,
    keys: &[WidthKey],
    but: &str,
) -> Result<Vec<String>, ModelError> {
    Ok(strays_of(&object(json, file)?, keys, but))
}

fn strays_of(map: &Map<String, Value>, keys: &[WidthKey], but: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in map.iter().filter(|(key, _)| *key != but) {
        strays(value, &mut vec![key.clone()], keys, &mut found);
    }
    found
}

/// A key that says another width than the first of its kind, with that one.
pub fn torn(keys: &[WidthKey]) -> Option<(&WidthKey, &WidthKey)> {
    let first = |key: &WidthKey| keys.iter().find(|k| k.of == key.of && k.value > 0);
    let said = keys.iter().filter(|key| key.value > 0);
    let mut pairs = said.filter_map(|key| Some((key, first(key)?)));
    pairs.find(|(key, first)| key.value != first.value)
}

/// Why no checkpoint with this config can be written with wider experts, a clause: for how its family names
/// tensors, or since no change of the config could say it. `width` is the key of the experts' width, and that of
/// dense layers.
pub(super) fn unpaddable(
    root: &Doc<'_>,
    family: &Family,
    width: (&str, Option<&str>),
) -> Option<String> {
    if root.map.contains_key(PADDED) {
        return Some(format!("it was padded before, as `{PADDED}` says"));
    }
    if let Some(why) = family.unpaddable() {
        return Some(why);
    }
    // A plan has no use for some of the keys that a padding would change.
    let keys = match of_root(root) {
        Ok(keys) => keys,
        Err(error) => return Some(error.to_string()),
    };
    let said = |key: &WidthKey| format!("{}={}", key.path.join("."), key.value);
    if let Some((key, first)) = torn(&keys) {
        let (key, first) = (said(key), said(first));
        return Some(format!("{key} and {first} differ"));
    }
    if let Some(stray) = strays_of(root.map, &keys, PADDED).first() {
        return Some(format!("{stray} says a width of experts as well"));
    }
    let (own, dense) = width;
    (Some(own) == dense).then(|| format!("{own} is the width of its dense layers too"))
}

/// Nesting is bounded by the parser.
fn strays(value: &Value, at: &mut Vec<String>, keys: &[WidthKey], found: &mut Vec<String>) {
    let own = |key: &WidthKey| {
        let last = key.path.last().filter(|k| *k != "intermediate_size");
        let said = match value {
            Value::Array(each) => each.first(),
            one => Some(one),
        };
        let said = said.and_then(Value::as_u64);
        last.is_some() && last == at.last() && key.value > 0 && said == Some(key.value)
    };
    if keys.iter().any(own) && keys.iter().all(|key| key.path != *at) {
        found.push(at.join("."));
    }
    let mut below = |name: String, value: &Value| {
        at.push(name);
        strays(value, at, keys, found);
        at.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| below(k.clone(), v)),
        Value::Array(items) => (0..)
            .zip(items)
            .for_each(|(n, v): (usize, _)| below(n.to_string(), v)),
        _ => {}
    }
}

/// Where a config gives the two sizes of FP8 scale blocks, from the top.
///
/// # Errors
/// When the text is no config of a MoE model.
pub fn block_key(json: &str, file: &str) -> Result<Option<Vec<String>>, ModelError> {
    one_key(
        json,
        file,
        ["weight_block_size", "block_structure"],
        Value::is_array,
    )
}

/// Where a config gives the group size of INT4 weights, from the top: one key of a group of
/// compressed-tensors, or of the method itself. None where there is none, or several say it.
///
/// # Errors
/// When the text is no config of a MoE model.
pub fn group_key(json: &str, file: &str) -> Result<Option<Vec<String>>, ModelError> {
    one_key(json, file, ["group_size", "group_size"], Value::is_u64)
}

/// The one place where a quantisation says something: `own`, or `of_weights` of a group of
/// compressed-tensors.
fn one_key(
    json: &str,
    file: &str,
    [own, of_weights]: [&str; 2],
    says: fn(&Value) -> bool,
) -> Result<Option<Vec<String>>, ModelError> {
    quantisation_key(json, file, |entry| {
        let mut keys: Vec<Vec<&str>> = Vec::new();
        if entry.get(own).is_some_and(says) {
            keys.push(vec![own]);
        }
        let groups = entry.get("config_groups").and_then(Value::as_object);
        for (name, group) in groups.into_iter().flatten() {
            let weights = group.get("weights");
            if weights.and_then(|w| w.get(of_weights)).is_some_and(says) {
                keys.push(vec!["config_groups", name, "weights", of_weights]);
            }
        }
        only(&keys)
    })
}

/// A path that has no rival.
fn only(keys: &[Vec<&str>]) -> Option<Vec<String>> {
    match keys {
        [only] => Some(only.iter().map(|key| (*key).to_owned()).collect()),
        _ => None,
    }
}

/// The path of what `within` finds in a `quantization_config`, the outermost first.
fn quantisation_key(
    json: &str,
    file: &str,
    within: impl Fn(&Map<String, Value>) -> Option<Vec<String>>,
) -> Result<Option<Vec<String>>, ModelError> {
    const KEY: &str = "quantization_config";
    let map = object(json, file)?;
    let root = Doc::root(file, &map);
    let nested = scope(root)?;
    let found = [root, nested].into_iter().find_map(|doc| {
        let inside = within(doc.get(KEY)?.as_object()?)?;
        let outside = doc.path.split('.').filter(|part| !part.is_empty());
        let path = outside.chain([KEY]).map(str::to_owned);
        Some(path.chain(inside).collect())
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(json: &str) -> Vec<(String, WidthOf, u64)> {
        let found = width_keys(json, "config.json").expect("a config");
        let row = |k: WidthKey| (k.path.join("."), k.of, k.value);
        found.into_iter().map(row).collect()
    }

    #[test]
    fn widths_are_found_where_a_familys_code_reads_them() {
        let text = r#"{"model_type": "m", "text_config": {"model_type": "qwen2_moe", "num_experts": 4,
            "moe_intermediate_size": 704, "intermediate_size": 9, "shared_expert_intermediate_size": 1408}}"#;
        let of = |key: &str, of, value| (key.to_owned(), of, value);
        assert_eq!(
            keys(text),
            [
                of("text_config.moe_intermediate_size", WidthOf::Expert, 704),
                of(
                    "text_config.shared_expert_intermediate_size",
                    WidthOf::Shared,
                    1408
                ),
            ]
        );
        let wide =
            r#"{"model_type": "mixtral", "num_local_experts": 8, "intermediate_size": 14336}"#;
        assert_eq!(
            keys(wide),
            [of("intermediate_size", WidthOf::Expert, 14336)]
        );
    }

    #[test]
    fn block_sizes_are_found_beside_the_language_model_or_above_it() {
        let text =
            r#"{"num_experts": 4, "quantization_config": {"weight_block_size": [128, 128]}}"#;
        let path = block_key(text, "config.json").expect("a config");
        assert_eq!(
            path.expect("it is there").join("."),
            "quantization_config.weight_block_size"
        );
        assert_eq!(
            block_key(r#"{"num_experts": 4}"#, "config.json").expect("a config"),
            None
        );
    }

    /// Some readers take Hunyuan's experts' width from one key, some from the other: both are theirs.
    #[test]
    fn both_keys_of_hunyuans_width_are_found() {
        let json = r#"{"model_type": "hunyuan_v1_moe", "num_experts": 4, "intermediate_size": 704,
            "moe_intermediate_size": [704, 704]}"#;
        let found = width_keys(json, "config.json").expect("a config");
        let named: Vec<_> = found
            .iter()
            .map(|k| (k.path.join("."), k.value, k.list))
            .collect();
        let wanted = [
            ("moe_intermediate_size", Some(2)),
            ("intermediate_size", None),
        ];
        let wanted = wanted.map(|(key, list)| (key.to_owned(), 704, list));
        assert_eq!(named, wanted);
        assert!(found.iter().all(|key| key.of == WidthOf::Expert));
    }
}
