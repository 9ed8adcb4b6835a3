//! Decides the stored format of routed experts, shared experts and dense layers.
//!
//! It must not plan with them. Layer 2. Sources: the methods' config keys as
//! facts/upstream-padding.md 4.1 and facts/peers.md 5 met them.

use super::doc::{Doc, shown};
use super::error::{ModelError, Said};
use super::facts::{Quant, Share};
use super::family::Family;
use super::ignore::Patterns;
use super::layers::Layers;
use super::methods::{Scheme, unknown};
use super::parts::{Part, of_expert, parts};
use super::schemes::{Schemes, Stored, Unread, schemes};
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

/// Reads the formats. `configs` are the objects that may hold `quantization_config`, best first;
/// `beside` is `hf_quant_config.json`, which must agree where both say something. Of routed experts, shared ones and
/// dense MLPs it says too which have no one format, and are not planned.
pub(super) fn read(
    configs: &[Doc<'_>],
    beside: Option<&Doc<'_>>,
    family: &Family,
    (layers, has_shared): (&Layers, bool),
    notes: &mut Vec<String>,
) -> Result<(Quant, [bool; 3]), ModelError> {
    let plain = plain(configs, notes)?;
    let parts = parts(family, layers, has_shared);
    let (own, beside) = (entry(configs)?, beside.map(beside_entry).transpose()?);
    let Formats {
        mut method,
        parts: found,
        others,
        unplanned,
    } = match (&own, &beside) {
        (Some(entry), _) | (None, Some(entry)) => formats(entry, &parts, notes)?,
        (None, None) => Formats {
            method: "none".to_owned(),
            ..Formats::default()
        },
    };
    if let (Some(own), Some(beside)) = (&own, &beside) {
        let other = formats(beside, &parts, &mut Vec::new())?;
        agree(own, beside, &parts, &found, &other.parts)?;
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
    let quant = Quant {
        format: routed.map_or(plain, |s| s.format),
        method,
        block: routed.and_then(|s| s.block),
        group: routed.and_then(|s| s.group),
        shared_format: shared.map_or(plain, |s| s.format),
        dense_format: dense.map_or(plain, |s| s.format),
        draft_format: Some(draft.map_or(plain, |s| s.format))
            .filter(|format| *format != routed.map_or(plain, |s| s.format)),
        others: others
            .iter()
            .map(|(scheme, layers)| Share {
                format: scheme.map_or(plain, |s| s.format),
                layers: u64::try_from(*layers).unwrap_or(u64::MAX),
            })
            .collect(),
        zero_points: found.iter().flatten().find_map(|s| s.zero_points),
        act_order: found.iter().flatten().any(|s| s.act_order),
    };
    Ok((quant, unplanned))
}

/// What an entry makes of a model.
#[derive(Default)]
struct Formats {
    /// The method it names.
    method: String,
    /// The scheme of each part.
    parts: [Option<Scheme>; 3],
    /// Other schemes of routed experts, with their numbers of layers.
    others: Vec<(Option<Scheme>, usize)>,
    /// Parts but the first that are stored in a way that is not planned.
    unplanned: [bool; 3],
}

/// How the experts of the first layer behind the numbered ones are stored.
fn draft(
    entry: &Doc<'_>,
    routed: &Part<'_>,
    layers: &Layers,
) -> Result<Option<Scheme>, ModelError> {
    let (behind, tails) = ([layers.total], &routed.tails);
    let ignored = ignored(entry)?;
    if ignored.covered(&behind, tails) > 0 || ignored.covers_draft(tails) {
        return Ok(None);
    }
    let schemes = schemes(entry)?;
    let named = |one: &Patterns| one.covered(&behind, tails) > 0 || one.covers_draft(tails);
    let stored = schemes.of(routed.routed, named);
    stored.map_err(|unread| no_format(entry, &unread))
}

/// What an entry makes of each part, with the method it names.
fn formats(
    entry: &Doc<'_>,
    parts: &[Part<'_>; 3],
    notes: &mut Vec<String>,
) -> Result<Formats, ModelError> {
    let schemes = schemes(entry)?;
    if schemes.list.is_empty() {
        notes.push(
            "quantized_layers names no quantised layer: none is taken as quantised".to_owned(),
        );
    }
    let ignored = ignored(entry)?;
    let own = schemes.patterns().map(|patterns| patterns.unread).sum();
    for (unread, modules) in [
        (ignored.unread, "left unquantised"),
        (own, "with a format of their own"),
    ] {
        if unread > 0 {
            notes.push(format!(
                "{unread} patterns of modules {modules} could not be read"
            ));
        }
    }
    let mut formats = Formats::default();
    let slots = formats.parts.iter_mut().zip(&mut formats.unplanned);
    for (part, (slot, unplanned)) in parts.iter().zip(slots) {
        let each = match alike(entry, &schemes, &ignored, part) {
            Ok(each) => each,
            Err(error) if part.routed => return Err(error),
            Err(error) if part.exists => {
                notes.push(format!("{} are not planned: {error}", part.word));
                *unplanned = true;
                continue;
            }
            Err(_) => continue,
        };
        let mut counts = counted(&each);
        let Some((main, _)) = counts.first() else {
            continue;
        };
        *slot = *main;
        if counts.len() > 1 && part.exists {
            notes.push(mixed(part, &counts));
            if part.routed {
                formats.others = counts.split_off(1);
            }
        }
    }
    formats.method = schemes.method;
    Ok(formats)
}

/// How a part is stored in each of its layers, of modules `tails`.
fn each_layer(
    schemes: &Schemes,
    ignored: &Patterns,
    part: &Part<'_>,
    tails: &[String],
) -> Vec<Stored> {
    let of = |layer: &[u64]| match ignored.covered(layer, tails) > 0 {
        true => Ok(None),
        false => schemes.of(part.routed, |named| named.covered(layer, tails) > 0),
    };
    part.layers.chunks(1).map(of).collect()
}

/// The modules that are looked at beside a part's own: its first projections, and both of the experts of the least and
/// the largest number that patterns name.
fn others(schemes: &Schemes, ignored: &Patterns, part: &Part<'_>) -> Vec<Vec<String>> {
    let mut all = vec![part.first.clone()];
    if part.routed {
        let named = schemes
            .patterns()
            .chain([ignored])
            .filter_map(Patterns::experts);
        let ends = named.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        for n in ends.into_iter().flat_map(|(least, most)| [least, most]) {
            all.push(of_expert(&part.tails, n));
            all.push(of_expert(&part.first, n));
        }
    }
    all
}

/// The scheme of a part in each of its layers.
///
/// # Errors
/// A scheme that no format describes, and modules of one layer that are stored differently.
fn alike(
    entry: &Doc<'_>,
    schemes: &Schemes,
    ignored: &Patterns,
    part: &Part<'_>,
) -> Result<Vec<Option<Scheme>>, ModelError> {
    let read = |tails: &[String]| -> Result<Vec<Option<Scheme>>, ModelError> {
        let each = each_layer(schemes, ignored, part, tails).into_iter();
        each.map(|stored| stored.map_err(|unread| no_format(entry, &unread)))
            .collect()
    };
    let each = read(&part.tails)?;
    for tails in others(schemes, ignored, part) {
        let found = read(&tails)?;
        let differ = each
            .iter()
            .zip(&found)
            .position(|(one, other)| one != other);
        if let Some(at) = differ {
            let [one, other] = [each[at], found[at]].map(Scheme::word);
            let (layer, own) = (part.layers[at], &part.tails[0]);
            return Err(ModelError::Mixture {
                file: entry.file.to_owned(),
                key: entry.place(),
                what: format!(
                    "{one} in {own} and {other} in {} of layer {layer}",
                    tails[0]
                ),
            });
        }
    }
    Ok(each)
}

/// The error for a scheme that no format describes.
fn no_format(entry: &Doc<'_>, unread: &Unread) -> ModelError {
    ModelError::NoFormat {
        file: entry.file.to_owned(),
        key: unread.key.clone(),
        what: unread.what.clone(),
    }
}

/// Schemes with the number of layers of each: quantised ones first, of them the most frequent.
fn counted(each: &[Option<Scheme>]) -> Vec<(Option<Scheme>, usize)> {
    let mut counts: Vec<(Option<Scheme>, usize)> = Vec::new();
    for &scheme in each {
        match counts.iter_mut().find(|(known, _)| *known == scheme) {
            Some((_, count)) => *count += 1,
            None => counts.push((scheme, 1)),
        }
    }
    counts.sort_by_key(|(scheme, count)| (scheme.is_none(), std::cmp::Reverse(*count)));
    counts
}

/// Says that layers differ, and how they are planned.
fn mixed(part: &Part<'_>, counts: &[(Option<Scheme>, usize)]) -> String {
    let each: Vec<String> = counts
        .iter()
        .map(|(scheme, layers)| format!("{} in {layers}", Scheme::word(*scheme)))
        .collect();
    let how = match part.routed {
        true => "each is planned",
        false => "all are planned as the first, --weights asks about another",
    };
    format!(
        "the {} of {} layers are stored differently ({}): {how}",
        part.word,
        part.layers.len(),
        each.join(", ")
    )
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
        let (file, key) = (doc.file.to_owned(), doc.place());
        let value = Scheme::word(*scheme);
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
