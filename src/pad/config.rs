//! The config and the index of a padded checkpoint: the same text but for the sizes.
//!
//! It must not decide sizes. Layer 8.

use super::certificate::CERTIFICATE;
use super::error::PadError;
use super::recipe::Recipe;
use crate::model::{self, Model, ModelError, WidthKey, WidthOf};
use crate::terms::WeightFormat;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The config's name in a checkpoint.
pub(super) const CONFIG: &str = "config.json";
/// The key under which a padded config keeps what it said before.
pub(super) const KEY: &str = model::PADDED;

/// A config's text and what it means.
pub(super) struct Config {
    /// Its path, for messages.
    pub(super) file: String,
    pub(super) text: String,
    /// The text of the `hf_quant_config.json` beside it.
    pub(super) beside: Option<String>,
    pub(super) model: Model,
    pub(super) keys: Vec<WidthKey>,
}

impl Config {
    pub(super) fn read(
        file: String,
        text: String,
        beside: Option<String>,
    ) -> Result<Config, PadError> {
        let model = model::parse(&text, &file, beside.as_deref())?;
        let keys = model::width_keys(&text, &file)?;
        Ok(Config {
            file,
            text,
            beside,
            model,
            keys,
        })
    }

    /// What the config says under [`KEY`], if it does.
    pub(super) fn padded_before(&self) -> bool {
        model::top_level(&self.text, KEY)
    }

    /// What is wrong with what the config says under [`KEY`]: it must be what padding by a recipe wrote.
    pub(super) fn says_before(&self, recipe: &Recipe, tool: &str) -> Option<String> {
        let Some(said) = model::value_at(&self.text, KEY) else {
            return Some("it does not say what it was before".to_owned());
        };
        let wanted = note(tool, self.before(recipe));
        let (said, wanted) = (spread(&said), spread(&wanted));
        let keys: BTreeSet<&String> = said.keys().chain(wanted.keys()).collect();
        let key = keys
            .into_iter()
            .find(|key| said.get(*key) != wanted.get(*key))?;
        let told = |value: &Value| value.to_string().chars().take(80).collect::<String>();
        Some(match (said.get(key), wanted.get(key)) {
            (Some(said), Some(wanted)) => {
                format!("{KEY}.{key}: {}, wanted {}", told(said), told(wanted))
            }
            (Some(said), None) => {
                format!(
                    "{KEY}.{key}: {}, and padding writes no such key",
                    told(said)
                )
            }
            (None, wanted) => format!(
                "{KEY}.{key}: not there, and should say {}",
                wanted.map_or(String::new(), told)
            ),
        })
    }

    /// What keys of a padded config said before: by a recipe, and by what they say now.
    fn before(&self, recipe: &Recipe) -> serde_json::Map<String, Value> {
        let mut before = serde_json::Map::new();
        for key in &self.keys {
            let old = self.old_width(key, recipe);
            if let Some(old) = old.filter(|&old| old != key.value) {
                before.insert(key.path.join("."), key.said(old));
            }
        }
        let path = self.block_path(recipe).ok().flatten();
        if let (Some(blocks), Some(path)) = (recipe.routed.blocks, path) {
            before.insert(path.join("."), block_said(recipe, blocks.from));
        }
        before
    }

    /// Where the config says the size of scale blocks or groups, if it is one place.
    fn block_path(&self, recipe: &Recipe) -> Result<Option<Vec<String>>, ModelError> {
        match recipe.routed.groups() {
            true => model::group_key(&self.text, &self.file),
            false => model::block_key(&self.text, &self.file),
        }
    }

    fn old_width(&self, key: &WidthKey, recipe: &Recipe) -> Option<u64> {
        let shared = recipe.shared.as_ref().map(|part| &part.width);
        match key.of {
            _ if key.value == 0 => None,
            WidthOf::Expert => Some(recipe.routed.width.from),
            WidthOf::Shared => shared.map(|w| w.from),
            // As many as the padded width is of.
            WidthOf::SharedEach => shared.map(|w| w.from / (w.to / key.value).max(1)),
        }
    }

    /// The text that describes the padded tensors, held against what a reader makes of it.
    pub(super) fn padded(&self, recipe: &Recipe) -> Result<String, PadError> {
        let refused = |why: String| PadError::File {
            file: self.file.clone(),
            why,
        };
        if let Some((key, first)) = model::torn(&self.keys) {
            let [key, first] = [key, first].map(|k| format!("{}={}", k.path.join("."), k.value));
            return Err(refused(format!(
                "{key}, and {first} says another width of the same: readers differ in which they take"
            )));
        }
        // Strays of widths that change only.
        let changing = |key: &&WidthKey| {
            self.new_width(key, recipe)
                .is_some_and(|new| new != key.value)
        };
        let changing: Vec<WidthKey> = self.keys.iter().filter(changing).cloned().collect();
        let strays = model::width_strays(&self.text, &self.file, &changing, KEY)?;
        if let Some(stray) = strays.first() {
            return Err(refused(format!(
                "{stray} says a width that would change, and is none of the language model's own keys: it would stay as it is"
            )));
        }
        let mut changes = Vec::new();
        let mut before = serde_json::Map::new();
        let mut replace = |path: Vec<String>, old: Value, new: Value| {
            if old != new {
                before.insert(path.join("."), old);
                changes.push((path, new.to_string()));
            }
        };
        for key in &self.keys {
            let Some(new) = self.new_width(key, recipe) else {
                continue;
            };
            replace(key.path.clone(), key.said(key.value), key.said(new));
        }
        if let Some(blocks) = recipe.routed.blocks {
            let key = self.block_path(recipe)?;
            let what = format!("scale blocks of {} would become {}", blocks.from, blocks.to);
            if self.beside.is_some() {
                let why = "hf_quant_config.json beside it speaks of them as well";
                return Err(refused(format!("{what}, but {why}")));
            }
            let path = key.ok_or_else(|| {
                let keys = match recipe.routed.groups() {
                    true => "group_size, there or in config_groups.….weights",
                    false => "weight_block_size or config_groups.….weights.block_structure",
                };
                refused(format!(
                    "{what}, but not one key of quantization_config alone says their size ({keys})"
                ))
            })?;
            let [old, new] = [blocks.from, blocks.to].map(|size| block_said(recipe, size));
            replace(path, old, new);
        }
        let note = note(&super::certificate::tool(), before);
        let text =
            model::edited(&self.text, &changes, &[(KEY, note.to_string())]).ok_or_else(|| {
                let keys: Vec<String> = changes.iter().map(|(path, _)| path.join(".")).collect();
                refused(format!(
                    "not found again where it was read: {}",
                    keys.join(" or ")
                ))
            })?;
        let wanted = self.wanted(recipe);
        let read = model::parse(&text, &self.file, self.beside.as_deref())?;
        match differing(&wanted, &read) {
            None => Ok(text),
            Some(what) => {
                let keys = changes
                    .iter()
                    .map(|(path, to)| format!("{}={to}", path.join(".")));
                let keys: Vec<String> = keys.collect();
                Err(refused(format!(
                    "no config can describe the result: with {} it would say another {what} \
                     (one key gives several sizes)",
                    keys.join(" and ")
                )))
            }
        }
    }

    fn new_width(&self, key: &WidthKey, recipe: &Recipe) -> Option<u64> {
        let shared = recipe.shared.as_ref().map(|part| &part.width);
        match key.of {
            _ if key.value == 0 => None,
            WidthOf::Expert => Some(recipe.routed.width.to),
            WidthOf::Shared => shared.map(|w| w.to),
            WidthOf::SharedEach => shared.map(|w| w.to / (w.from / key.value.max(1)).max(1)),
        }
    }

    /// What a reader must make of the padded config.
    fn wanted(&self, recipe: &Recipe) -> Model {
        let mut model = self.model.clone();
        model.intermediate = recipe.routed.width.to;
        model.shared = recipe.shared.as_ref().map(|part| part.width.to);
        // As many of them as there were.
        let shared = recipe.shared.as_ref().map(|part| &part.width);
        model.shared_each =
            (model.shared_each.zip(shared)).map(|(each, w)| w.to / (w.from / each.max(1)).max(1));
        if let Some(blocks) = recipe.routed.blocks {
            let finer = |format: WeightFormat| {
                let part = &recipe.routed;
                if format == part.format {
                    part.format_now()
                } else {
                    format
                }
            };
            let quant = &mut model.quant;
            match recipe.routed.groups() {
                true => quant.group = quant.group.map(|_| blocks.to),
                false => quant.block = Some((blocks.to, blocks.to)),
            }
            quant.format = finer(quant.format);
            quant.shared_format = finer(quant.shared_format);
            quant.dense_format = finer(quant.dense_format);
            quant.draft_format = quant.draft_format.map(finer);
        }
        model
    }

    /// Checks that the config of a padded checkpoint says the recipe's sizes, and nothing else
    /// about its experts.
    pub(super) fn agrees(&self, recipe: &Recipe) -> Option<String> {
        let model = &self.model;
        let shared = recipe.shared.as_ref().map(|part| part.width.to);
        let says = [
            ("width", model.intermediate, recipe.routed.width.to),
            ("hidden size", model.hidden, recipe.routed.hidden),
            ("number of experts", model.experts, recipe.experts),
            (
                "width of shared experts",
                model.shared.unwrap_or(0),
                shared.unwrap_or(0),
            ),
        ];
        let key = |of: WidthOf| {
            let key = self.keys.iter().find(|key| key.of == of);
            key.map_or(String::new(), |key| format!("{}: ", key.path.join(".")))
        };
        let numbers = says.into_iter().find(|(_, said, wanted)| said != wanted);
        let told = numbers.map(|(what, said, wanted)| {
            let key = match what {
                "width" => key(WidthOf::Expert),
                "width of shared experts" => key(WidthOf::Shared),
                _ => String::new(),
            };
            format!("{key}{what} {said}, wanted {wanted}")
        });
        let told = told.or_else(|| {
            let (key, first) = model::torn(&self.keys)?;
            let (path, of) = (key.path.join("."), first.path.join("."));
            Some(format!(
                "{path}: width {}, and {of} says {}",
                key.value, first.value
            ))
        });
        let kind = (model.gated(), model.interleaved) != (recipe.gated, recipe.interleaved);
        let (format, wanted) = (model.quant.format, recipe.routed.format_now());
        let told = told.or(kind.then(|| {
            let word = |(gated, interleaved)| match (gated, interleaved) {
                (false, _) => "no gate",
                (true, false) => "gate and up as halves",
                (true, true) => "gate and up in turn",
            };
            let said = word((model.gated(), model.interleaved));
            let wanted = word((recipe.gated, recipe.interleaved));
            format!("architectures and model_type: {said}, wanted {wanted}")
        }));
        told.or((format != wanted)
            .then(|| format!("quantization_config: weights in {format}, wanted {wanted}")))
    }
}

/// What a padded config says under [`KEY`].
fn note(tool: &str, before: serde_json::Map<String, Value>) -> Value {
    json!({"tool": tool, "certificate": CERTIFICATE, "before": before})
}

/// Entries of a note, those of what was before each by itself.
fn spread(note: &Value) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let Some(entries) = note.as_object() else {
        return BTreeMap::from([("".to_owned(), note.clone())]);
    };
    for (key, value) in entries {
        match value.as_object().filter(|_| key == "before") {
            Some(before) => {
                let named = before
                    .iter()
                    .map(|(k, v)| (format!("before.{k}"), v.clone()));
                all.extend(named);
            }
            None => {
                all.insert(key.clone(), value.clone());
            }
        }
    }
    all
}

/// How a config says the size of scale blocks or groups.
fn block_said(recipe: &Recipe, size: u64) -> Value {
    match recipe.routed.groups() {
        true => json!(size),
        false => json!([size, size]),
    }
}

/// What two models differ in, names and notes aside.
fn differing(wanted: &Model, read: &Model) -> Option<&'static str> {
    if wanted.intermediate != read.intermediate {
        return Some("width of the experts");
    }
    if wanted.shared != read.shared {
        return Some("width of the shared experts");
    }
    if wanted.dense != read.dense {
        return Some("width of dense layers");
    }
    if wanted.quant != read.quant {
        return Some("quantisation");
    }
    let plain = |model: &Model| Model {
        notes: Vec::new(),
        unpaddable: None,
        ..model.clone()
    };
    (plain(wanted) != plain(read)).then_some("model")
}

/// The index's text with the new `total_size`, where it says one; none where the text is no index.
pub(super) fn index(text: &str, total: u64) -> Option<String> {
    let read: Value = serde_json::from_str(text).ok()?;
    let said = read.get("metadata").and_then(|m| m.get("total_size"));
    if said.is_none() {
        return Some(text.to_owned());
    }
    let path = ["metadata", "total_size"].map(str::to_owned).to_vec();
    model::edited(text, &[(path, total.to_string())], &[])
}

/// What an index says of its tensors: the file of each, and `total_size` if it says one.
pub(super) fn read_index(text: &str) -> Option<(BTreeMap<String, String>, Option<u64>)> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
        // Some writers give null.
        metadata: Option<BTreeMap<String, Value>>,
    }
    let read: Index = serde_json::from_str(text).ok()?;
    let metadata = read.metadata.unwrap_or_default();
    let total = match metadata.get("total_size") {
        // Some writers give a float.
        Some(Value::Number(n)) => n.as_u64().or(n.as_f64().map(|n| n as u64)),
        _ => None,
    };
    Some((read.weight_map, total))
}

#[cfg(test)]
mod tests {
    use super::super::recipe::{Request, recipe};
    use super::*;
    use std::fmt::Write;
    use std::path::Path;

    /// What becomes of a model's config for eight ranks of whole 128s, in one line.
    fn told(folder: &Path) -> String {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let text = read("config.json").expect("a config");
        let config =
            match Config::read("config.json".to_owned(), text, read("hf_quant_config.json")) {
                Ok(config) => config,
                Err(error) => return error.to_string(),
            };
        let request = Request::new(8, None, Some(128), None, &[]);
        let made = recipe(&config.model, &config.keys, &request, None, &[]);
        let padded = made.and_then(|made| {
            let width = |part: &super::super::sizes::Part| {
                format!("{} -> {}", part.width.from, part.width.to)
            };
            let shared = made
                .shared
                .as_ref()
                .map_or(String::new(), |p| format!(", shared {}", width(p)));
            let sizes = format!("{}{shared}", width(&made.routed));
            config.padded(&made).map(|text| (sizes, text))
        });
        match padded {
            Err(error) => error.to_string(),
            Ok((sizes, text)) => {
                let old = config.text.lines().count();
                let changed: Vec<&str> = text
                    .lines()
                    .zip(config.text.lines())
                    .filter(|(new, old)| new.trim_end_matches(',') != old.trim_end_matches(','))
                    .map(|(new, _)| new.trim().trim_end_matches(','))
                    .collect();
                assert!(text.lines().count() <= old + 2, "{text}");
                format!("{sizes}: {}", changed.join(" "))
            }
        }
    }

    #[test]
    fn real_configs_are_rewritten_or_say_why_not() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/configs");
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        let mut folders: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
        folders.retain(|path| path.is_dir());
        folders.sort();
        let mut table = String::new();
        for folder in folders {
            let name = folder.file_name().expect("a name").to_string_lossy();
            writeln!(table, "{name}\n    {}", told(&folder)).expect("text takes text");
        }
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../../snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!("pad-configs", table));
    }
}
