//! Decides the stored format of routed experts, shared experts and dense layers.
//!
//! It must not plan with them. Layer 2. Sources: the methods' config keys as
//! facts/upstream-padding.md 4.1 and facts/peers.md 5 met them.

use super::doc::{Doc, shown, word};
use super::error::{ModelError, Said};
use super::facts::Quant;
use super::family::Family;
use super::ignore::Patterns;
use super::layers::Layers;
use super::methods::{self, Scheme, unknown};
use super::parts::{Part, parts};
use crate::terms::WeightFormat;
use serde_json::Value;

const IGNORE: &[&str] = &[
    "ignore",
    "ignored_layers",
    "modules_to_not_convert",
    "exclude_modules",
    "exclude",
    "exclude_layers",
];

/// Which modules a scheme is for.
enum Reach {
    All,
    RoutedOnly,
    Named(Patterns),
}

/// Schemes in order of precedence: the first that reaches a part is its own.
struct Schemes {
    method: String,
    list: Vec<(Reach, Option<Scheme>)>,
}

impl Schemes {
    fn all(method: &str, scheme: Option<Scheme>) -> Self {
        Schemes {
            method: method.to_owned(),
            list: vec![(Reach::All, scheme)],
        }
    }

    fn routed(method: &str, routed: WeightFormat, rest: Option<Scheme>) -> Self {
        let list = vec![
            (Reach::RoutedOnly, Some(Scheme::of(routed))),
            (Reach::All, rest),
        ];
        Schemes {
            method: method.to_owned(),
            list,
        }
    }

    fn of(&self, part: &Part<'_>) -> Option<Scheme> {
        let reaches = |reach: &Reach| match reach {
            Reach::All => true,
            Reach::RoutedOnly => part.routed,
            Reach::Named(patterns) => patterns.covered(part.layers, &part.tails) > 0,
        };
        self.list
            .iter()
            .find(|(reach, _)| reaches(reach))
            .and_then(|(_, scheme)| *scheme)
    }
}

/// Reads the formats. `configs` are the objects that may hold `quantization_config`, best first;
/// `beside` is `hf_quant_config.json`, which must agree where both say something.
pub(super) fn read(
    configs: &[Doc<'_>],
    beside: Option<&Doc<'_>>,
    family: &Family,
    (layers, has_shared): (&Layers, bool),
    notes: &mut Vec<String>,
) -> Result<Quant, ModelError> {
    let plain = plain(configs, notes)?;
    let parts = parts(family, layers, has_shared);
    let (own, beside) = (entry(configs)?, beside.map(beside_entry).transpose()?);
    let (mut method, found) = match (&own, &beside) {
        (Some(entry), _) | (None, Some(entry)) => formats(entry, &parts, notes)?,
        (None, None) => ("none".to_owned(), [None; 3]),
    };
    if let (Some(own), Some(beside)) = (&own, &beside) {
        let (_, other) = formats(beside, &parts, &mut Vec::new())?;
        agree(own, beside, &parts, &found, &other)?;
    }
    let [routed, shared, dense] = found;
    let routed = stored(configs, routed)?;
    let draft = match own.as_ref().or(beside.as_ref()) {
        Some(entry) if layers.draft => stored(configs, draft(entry, &parts[0], layers)?)?,
        _ => routed,
    };
    if method == "none" && routed.is_some() {
        method = "expert_dtype".to_owned();
    }
    Ok(Quant {
        format: routed.map_or(plain, |s| s.format),
        method,
        block: routed.and_then(|s| s.block),
        group: routed.and_then(|s| s.group),
        shared_format: shared.map_or(plain, |s| s.format),
        dense_format: dense.map_or(plain, |s| s.format),
        draft_format: Some(draft.map_or(plain, |s| s.format))
            .filter(|format| *format != routed.map_or(plain, |s| s.format)),
    })
}

/// How the experts of the first layer behind the numbered ones are stored.
fn draft(
    entry: &Doc<'_>,
    routed: &Part<'_>,
    layers: &Layers,
) -> Result<Option<Scheme>, ModelError> {
    let behind = [layers.total];
    let part = Part {
        layers: &behind,
        tails: routed.tails.clone(),
        ..*routed
    };
    let ignored = ignored(entry)?;
    if ignored.covered(&behind, &part.tails) > 0 || ignored.covers_draft(&part.tails) {
        return Ok(None);
    }
    Ok(schemes(entry)?.of(&part))
}

/// What an entry makes of each part, with the method it names.
fn formats(
    entry: &Doc<'_>,
    parts: &[Part<'_>; 3],
    notes: &mut Vec<String>,
) -> Result<(String, [Option<Scheme>; 3]), ModelError> {
    let schemes = schemes(entry)?;
    if schemes.list.is_empty() {
        notes.push(
            "quantized_layers names no quantised layer: none is taken as quantised".to_owned(),
        );
    }
    let ignored = ignored(entry)?;
    if ignored.unread > 0 {
        notes.push(format!(
            "{} patterns of modules left unquantised could not be read",
            ignored.unread
        ));
    }
    let mut found = [None; 3];
    for (part, slot) in parts.iter().zip(&mut found) {
        *slot = schemes.of(part);
        let left = ignored.covered(part.layers, &part.tails);
        if slot.is_none() || left == 0 {
            continue;
        }
        if left == part.layers.len() {
            *slot = None;
        } else {
            notes.push(format!(
                "{left} of {} layers' {} are not quantised",
                part.layers.len(),
                part.word
            ));
        }
    }
    Ok((schemes.method, found))
}

/// Refuses two entries that give a part of the model different formats: one of them is stale, and
/// stacks differ in which they read.
fn agree(
    own: &Doc<'_>,
    beside: &Doc<'_>,
    parts: &[Part<'_>; 3],
    found: &[Option<Scheme>; 3],
    other: &[Option<Scheme>; 3],
) -> Result<(), ModelError> {
    let said = |doc: &Doc<'_>, scheme: &Option<Scheme>| {
        let (file, key) = (
            doc.file.to_owned(),
            match doc.path {
                "" => "the top level".to_owned(),
                path => path.to_owned(),
            },
        );
        let value = scheme.map_or("unquantised".to_owned(), |s| s.format.to_string());
        Box::new(Said { file, key, value })
    };
    for ((part, a), b) in parts.iter().zip(found).zip(other) {
        if a != b && part.exists {
            return Err(ModelError::Disagree {
                part: part.word,
                own: said(own, a),
                beside: said(beside, b),
            });
        }
    }
    Ok(())
}

/// The format of unquantised weights.
fn plain(configs: &[Doc<'_>], notes: &mut Vec<String>) -> Result<WeightFormat, ModelError> {
    for doc in configs {
        let Some((key, word)) = doc.word(&["torch_dtype", "dtype"])? else {
            continue;
        };
        return Ok(match word.trim_start_matches("torch.") {
            "bfloat16" | "auto" => WeightFormat::Bf16,
            "float16" | "half" => WeightFormat::F16,
            "float32" | "float" => WeightFormat::F32,
            _ => {
                notes.push(format!(
                    "{} is {}; bf16 is assumed",
                    doc.name(key),
                    shown(&Value::from(word))
                ));
                WeightFormat::Bf16
            }
        });
    }
    Ok(WeightFormat::Bf16)
}

/// What an `expert_dtype` (DeepSeek-V4) makes of the routed experts' format: its quantisation
/// entry says fp8 for the whole model, while the experts are MXFP4. An entry that says four
/// bits itself (a re-quantised checkpoint) wins.
fn stored(configs: &[Doc<'_>], routed: Option<Scheme>) -> Result<Option<Scheme>, ModelError> {
    let Some(doc) = configs.iter().find(|doc| doc.get("expert_dtype").is_some()) else {
        return Ok(routed);
    };
    let four = routed.is_some_and(|s| s.format.element().bits() == 4);
    match doc.word(&["expert_dtype"])? {
        Some((_, "fp4")) if !four => Ok(Some(Scheme::of(WeightFormat::Mxfp4))),
        Some((_, "fp4" | "fp8")) | None => Ok(routed),
        Some((_, "bf16" | "bfloat16")) => Ok(None),
        Some((key, word)) => Err(unknown(
            doc,
            key,
            "expert dtype",
            word,
            &["fp4", "fp8", "bf16"],
        )),
    }
}

/// The config's quantisation entry, if there is one.
fn entry<'a>(configs: &[Doc<'a>]) -> Result<Option<Doc<'a>>, ModelError> {
    for doc in configs {
        for key in ["quantization_config", "compression_config"] {
            let path = match (doc.path, key) {
                ("text_config", "quantization_config") => "text_config.quantization_config",
                (_, key) => key,
            };
            match doc.object(key, path)? {
                Some(entry) if !entry.map.is_empty() => return Ok(Some(entry)),
                _ => {}
            }
        }
    }
    Ok(None)
}

/// The entry of `hf_quant_config.json`.
fn beside_entry<'a>(beside: &Doc<'a>) -> Result<Doc<'a>, ModelError> {
    Ok(beside
        .object("quantization", "quantization")?
        .unwrap_or(*beside))
}

/// The modules that stay unquantised.
fn ignored(entry: &Doc<'_>) -> Result<Patterns, ModelError> {
    let mut names = Vec::new();
    for key in IGNORE {
        for item in entry.list(key)?.unwrap_or_default() {
            names.push(
                item.as_str()
                    .ok_or_else(|| entry.kind(key, item, "a list of strings"))?,
            );
        }
    }
    Ok(Patterns::new(names.into_iter()))
}

/// The schemes that an entry lists.
fn schemes(entry: &Doc<'_>) -> Result<Schemes, ModelError> {
    const METHODS: &[&str] = &[
        "fp8",
        "fbgemm_fp8",
        "ptpc_fp8",
        "modelopt",
        "compressed-tensors",
        "mxfp4",
        "mxfp8",
        "nvfp4",
        "awq",
        "gptq",
        "auto-round",
        "quark",
        "w4afp8",
        "w8a8_int8",
        "experts_int8",
    ];
    let method = match entry.word(&["quant_method"])? {
        Some((_, method)) => method,
        None if entry.get("quant_algo").is_some() || entry.get("quantized_layers").is_some() => {
            "modelopt"
        }
        None if entry.get("config_groups").is_some() => "compressed-tensors",
        None if entry.get("quant_algo").is_none() && entry.map.contains_key("quant_algo") => {
            return Ok(Schemes::all("none", None));
        }
        None => {
            return Err(ModelError::Missing {
                file: entry.file.to_owned(),
                what: "quantisation method",
                keys: vec![entry.name("quant_method"), entry.name("quant_algo")],
                note: "",
            });
        }
    };
    let all = |scheme| Ok(Schemes::all(method, Some(scheme)));
    match method {
        "fp8" | "deepseek_fp8" => all(methods::fp8(entry)?),
        "fbgemm_fp8" | "ptpc_fp8" => all(Scheme::of(WeightFormat::Fp8Channel)),
        "mxfp8" => all(Scheme::of(WeightFormat::Mxfp8)),
        "nvfp4" | "petit_nvfp4" => all(Scheme::of(WeightFormat::Nvfp4)),
        "w8a8_int8" => all(Scheme::of(WeightFormat::Int8)),
        "mxfp4" | "gpt_oss_mxfp4" => Ok(Schemes::routed(method, WeightFormat::Mxfp4, None)),
        "experts_int8" => Ok(Schemes::routed(method, WeightFormat::Int8, None)),
        "w4afp8" => {
            let rest = Scheme::of(WeightFormat::Fp8Block);
            Ok(Schemes::routed(method, WeightFormat::Int4, Some(rest)))
        }
        "awq" | "awq_marlin" | "gptq" | "gptq_marlin" | "auto-round" | "auto_round" => {
            let (key, bits) = entry.need(&["bits", "w_bit"], "number of bits", "")?;
            all(methods::integer(entry, key, bits)?)
        }
        "modelopt" | "modelopt_fp4" | "modelopt_mixed" | "modelopt_mxfp8" => {
            modelopt(entry, method)
        }
        "compressed-tensors" | "compressed_tensors" => groups(entry, method),
        "quark" => quark(entry),
        other => Err(unknown(
            entry,
            "quant_method",
            "quantisation method",
            other,
            METHODS,
        )),
    }
}

fn modelopt(entry: &Doc<'_>, method: &str) -> Result<Schemes, ModelError> {
    match entry.word(&["quant_algo"])? {
        Some((_, word)) if !word.to_ascii_uppercase().starts_with("MIXED") => {
            Ok(Schemes::all(method, methods::algo(entry, word)?))
        }
        _ if entry.get("config_groups").is_some() => groups(entry, method),
        _ => by_layer(entry, method),
    }
}

/// ModelOpt's mixed precision: an algorithm per module name.
fn by_layer(entry: &Doc<'_>, method: &str) -> Result<Schemes, ModelError> {
    let Some(layers) = entry.object("quantized_layers", "quantized_layers")? else {
        return Err(ModelError::Missing {
            file: entry.file.to_owned(),
            what: "mixed quantisation",
            keys: vec![entry.name("config_groups"), entry.name("quantized_layers")],
            note: "",
        });
    };
    let mut kinds: Vec<(Scheme, Vec<&str>)> = Vec::new();
    for name in layers.map.keys() {
        let map = match layers.map.get(name) {
            Some(Value::Object(map)) => map,
            other => {
                return Err(ModelError::NotObject {
                    file: layers.file.to_owned(),
                    key: format!("quantized_layers.{}", word(name)),
                    value: other.map_or(String::new(), shown),
                });
            }
        };
        let doc = Doc { map, ..layers };
        let word = doc.word(&["quant_algo"])?.map_or("", |(_, word)| word);
        let Some(scheme) = methods::algo(&doc, word)? else {
            continue;
        };
        match kinds.iter_mut().find(|(known, _)| *known == scheme) {
            Some((_, names)) => names.push(name),
            None => kinds.push((scheme, vec![name])),
        }
    }
    let list = kinds
        .into_iter()
        .map(|(scheme, names)| (Reach::Named(Patterns::new(names.into_iter())), Some(scheme)))
        .collect();
    Ok(Schemes {
        method: method.to_owned(),
        list,
    })
}

/// The `config_groups` of compressed-tensors (and of ModelOpt): named targets before classes.
fn groups(entry: &Doc<'_>, method: &str) -> Result<Schemes, ModelError> {
    let (mut named, mut classes) = (Vec::new(), Vec::new());
    let format = entry.word(&["format"])?.map(|(_, word)| word);
    let Some(all) = entry.object("config_groups", "config_groups")? else {
        return Err(ModelError::Missing {
            file: entry.file.to_owned(),
            what: "quantisation groups",
            keys: vec![entry.name("config_groups")],
            note: "",
        });
    };
    for key in all.map.keys() {
        let Some(group) = all.object(key, "config_groups")? else {
            continue;
        };
        let packed = group.word(&["format"])?.map(|(_, word)| word).or(format);
        let scheme = match group.object("weights", "config_groups.weights")? {
            Some(weights) => Some(methods::weights(&weights, packed)?),
            None => None,
        };
        let mut names = Vec::new();
        for target in group.list("targets")?.unwrap_or_default() {
            let target = target
                .as_str()
                .ok_or_else(|| group.kind("targets", target, "a list of strings"))?;
            let lower = target.to_ascii_lowercase();
            if target == "Linear" || target == "*" {
                classes.push((Reach::All, scheme));
            } else if target.contains(['.', '*', ':', '_']) {
                names.push(target);
            } else if lower.contains("moe") || lower.contains("expert") {
                classes.insert(0, (Reach::RoutedOnly, scheme));
            }
        }
        if !names.is_empty() {
            named.push((Reach::Named(Patterns::new(names.into_iter())), scheme));
        }
    }
    named.extend(classes);
    Ok(Schemes {
        method: method.to_owned(),
        list: named,
    })
}

/// Quark: a scheme for all, and others by module pattern.
fn quark(entry: &Doc<'_>) -> Result<Schemes, ModelError> {
    let weight = |holder: &Doc<'_>| -> Result<Option<Scheme>, ModelError> {
        let (holder, doc) = (
            *holder,
            match holder.get("weight") {
                None => return Ok(None),
                Some(Value::Array(items)) => items.first().and_then(Value::as_object),
                Some(other) => other.as_object(),
            },
        );
        let Some(map) = doc else {
            return Err(holder.kind("weight", &Value::Null, "an object"));
        };
        methods::quark(&Doc {
            path: "weight",
            map,
            ..holder
        })
        .map(Some)
    };
    let mut list = Vec::new();
    if let Some(layers) = entry.object("layer_quant_config", "layer_quant_config")? {
        for name in layers.map.keys() {
            let Some(Value::Object(map)) = layers.map.get(name) else {
                continue;
            };
            let scheme = weight(&Doc { map, ..layers })?;
            list.push((
                Reach::Named(Patterns::new([name.as_str()].into_iter())),
                scheme,
            ));
        }
    }
    if let Some(global) = entry.object("global_quant_config", "global_quant_config")? {
        list.push((Reach::All, weight(&global)?));
    }
    Ok(Schemes {
        method: "quark".to_owned(),
        list,
    })
}
