//! Turns one quantisation entry of a config into a weight format.
//!
//! It must not know which module the entry is for. Layer 2.

use super::doc::{self, Doc};
use super::error::ModelError;
use super::facts::ZeroPoints;
use crate::num::Dtype;
use crate::terms::{UnknownWord, WeightFormat};
use serde_json::Value;

/// A format with the sizes its scales are shared over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) format: WeightFormat,
    pub(super) block: Option<(u64, u64)>,
    pub(super) group: Option<u64>,
    pub(super) zero_points: Option<ZeroPoints>,
    pub(super) act_order: bool,
}

impl Scheme {
    /// The format's word, of weights that stay as they are too.
    pub(super) fn word(scheme: Option<Scheme>) -> String {
        scheme.map_or("unquantised".to_owned(), |s| s.format.to_string())
    }

    pub(super) const fn of(format: WeightFormat) -> Self {
        let group = match format {
            WeightFormat::Nvfp4 => Some(16),
            WeightFormat::Mxfp4 | WeightFormat::Mxfp8 | WeightFormat::Int4G32 => Some(32),
            WeightFormat::Int4 => Some(128),
            WeightFormat::Int4G64 => Some(64),
            _ => None,
        };
        let block = match format {
            WeightFormat::Fp8Block => Some((128, 128)),
            WeightFormat::Fp8Block64 => Some((64, 64)),
            WeightFormat::Fp8Block32 => Some((32, 32)),
            _ => None,
        };
        Scheme {
            format,
            block,
            group,
            zero_points: None,
            act_order: false,
        }
    }
}

/// The error for a quantisation in words that no format describes.
pub(super) fn no_format(doc: &Doc<'_>, key: &str, what: String) -> ModelError {
    ModelError::NoFormat {
        file: doc.file.to_owned(),
        key: doc.name(key),
        what,
    }
}

/// The error for a word outside a list.
pub(super) fn unknown(
    doc: &Doc<'_>,
    key: &str,
    kind: &'static str,
    word: &str,
    valid: &[&str],
) -> ModelError {
    ModelError::Word {
        file: doc.file.to_owned(),
        key: doc.name(key),
        source: UnknownWord {
            kind,
            word: doc::word(word),
            valid: valid.iter().map(|w| (*w).to_owned()).collect(),
        },
    }
}

/// FP8 with `weight_block_size`, or per tensor without.
pub(super) fn fp8(doc: &Doc<'_>) -> Result<Scheme, ModelError> {
    if let Some((key, element)) = doc.word(&["fmt"])?
        && !element.to_ascii_lowercase().contains("e4m3")
    {
        return Err(no_format(
            doc,
            key,
            format!("fp8 of elements {}", doc::word(element)),
        ));
    }
    match block(doc, "weight_block_size")? {
        None => Ok(Scheme::of(WeightFormat::Fp8)),
        Some(block) => blocked(doc, "weight_block_size", block),
    }
}

/// A block's rows and columns, if the key is there.
pub(super) fn block(doc: &Doc<'_>, key: &str) -> Result<Option<(u64, u64)>, ModelError> {
    let Some(items) = doc.list(key)? else {
        return Ok(None);
    };
    match items {
        [rows, cols] => Ok(Some((doc.whole(key, rows, 1)?, doc.whole(key, cols, 1)?))),
        _ => {
            let value = Value::from(items.to_vec());
            Err(doc.kind(key, &value, "a list of two sizes"))
        }
    }
}

/// FP8 with scales per block.
pub(super) fn blocked(doc: &Doc<'_>, key: &str, block: (u64, u64)) -> Result<Scheme, ModelError> {
    match block {
        (128, 128) => Ok(Scheme::of(WeightFormat::Fp8Block)),
        (64, 64) => Ok(Scheme::of(WeightFormat::Fp8Block64)),
        (32, 32) => Ok(Scheme::of(WeightFormat::Fp8Block32)),
        (1, 32) => Ok(Scheme::of(WeightFormat::Mxfp8)),
        (rows, cols) => Err(no_format(
            doc,
            key,
            format!("fp8 with blocks of {rows}x{cols}"),
        )),
    }
}

/// Keys of the channels that share a scale: AWQ's first files say it in their own word.
const GROUP_SIZE: &[&str] = &["group_size", "q_group_size"];

/// The channels that share a scale, if an entry says it; -1 is all of a row.
fn group_size(doc: &Doc<'_>) -> Result<Option<u64>, ModelError> {
    let mut found: Option<(&str, Option<u64>)> = None;
    for key in GROUP_SIZE {
        let Some(value) = doc.get(key) else { continue };
        let group = match value.as_i64() {
            Some(-1) => None,
            _ => {
                let group = value.as_u64().filter(|group| *group > 0);
                let wanted = "-1 or a whole number of at least 1";
                Some(group.ok_or_else(|| doc.kind(key, value, wanted))?)
            }
        };
        match found {
            Some((other, said)) if said != group => {
                let what = format!("{key} {value} beside another {other}");
                return Err(no_format(doc, key, what));
            }
            _ => found = Some((key, group)),
        }
    }
    Ok(found.and_then(|(_, group)| group))
}

/// Integers with `group_size`; -1 or none is one scale per row.
pub(super) fn integer(doc: &Doc<'_>, key: &str, bits: u64) -> Result<Scheme, ModelError> {
    let group = group_size(doc)?;
    match (bits, group) {
        (4, Some(128)) => Ok(Scheme::of(WeightFormat::Int4)),
        (4, Some(64)) => Ok(Scheme::of(WeightFormat::Int4G64)),
        (4, Some(32)) => Ok(Scheme::of(WeightFormat::Int4G32)),
        (8, None) => Ok(Scheme::of(WeightFormat::Int8)),
        // -1 is one scale a row; nothing said is not.
        (4, None) if doc.first(GROUP_SIZE).is_some() => Ok(Scheme::of(WeightFormat::Int4Channel)),
        (4, Some(group)) => Err(no_format(
            doc,
            "group_size",
            format!("int4 with group_size {group}"),
        )),
        (bits, Some(group)) => Err(no_format(
            doc,
            key,
            format!("int{bits} with group_size {group}"),
        )),
        (bits, None) => Err(no_format(doc, key, format!("int{bits} without groups"))),
    }
}

/// The scheme with the zero points that `key` says it has: by `true`, or by `false` where the key
/// asks whether codes are symmetric.
pub(super) fn with_zero_points(
    doc: &Doc<'_>,
    key: &'static str,
    (yes, order): (bool, ZeroPoints),
    scheme: Scheme,
) -> Result<Scheme, ModelError> {
    let has = doc.flag(&[key])? == Some(yes) && scheme.format.element() == Dtype::Int4;
    Ok(Scheme {
        zero_points: has.then_some(order),
        ..scheme
    })
}

/// The scheme with the order of its groups: `desc_act` of GPTQ is true or false, `actorder` of
/// compressed-tensors a word or nothing. Whether a word of that leaves groups in runs was not read.
pub(super) fn in_order(
    doc: &Doc<'_>,
    key: &'static str,
    scheme: Scheme,
) -> Result<Scheme, ModelError> {
    let listed = match doc.get(key) {
        None => false,
        Some(value) if key == "actorder" && value.is_string() => true,
        Some(_) => doc.flag(&[key])? == Some(true),
    };
    Ok(Scheme {
        // One scale a row is no group that a channel could be in.
        act_order: listed && scheme.group.is_some() && scheme.format.element() == Dtype::Int4,
        ..scheme
    })
}

/// ModelOpt's `quant_algo`; none where it says that nothing is quantised.
pub(super) fn algo(doc: &Doc<'_>, word: &str) -> Result<Option<Scheme>, ModelError> {
    const VALID: &[&str] = &[
        "FP8",
        "FP8_PER_CHANNEL_PER_TOKEN",
        "FP8_PB_WO",
        "FP8_BLOCK_SCALES",
        "NVFP4",
        "NVFP4_AWQ",
        "W4A16_NVFP4",
        "MXFP4",
        "W4A8_MXFP4_FP8",
        "W4A8_NVFP4_FP8",
        "MXFP8",
        "W4A16_AWQ",
        "W4A8_AWQ",
        "INT8_SQ",
        "MIXED_PRECISION",
    ];
    let format = match word.to_ascii_uppercase().as_str() {
        "" | "NONE" | "NO_QUANT" => return Ok(None),
        "FP8" => WeightFormat::Fp8,
        "FP8_PER_CHANNEL_PER_TOKEN" => WeightFormat::Fp8Channel,
        "FP8_PB_WO" | "FP8_PB_REAL" | "FP8_BLOCK_SCALES" => WeightFormat::Fp8Block,
        "NVFP4" | "NVFP4_AWQ" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" => WeightFormat::Nvfp4,
        "MXFP4" | "W4A8_MXFP4_FP8" | "W4A16_MXFP4" => WeightFormat::Mxfp4,
        "MXFP8" => WeightFormat::Mxfp8,
        "INT8_SQ" | "W8A8_SQ_PER_CHANNEL" => WeightFormat::Int8,
        "W4A16_AWQ" | "W4A8_AWQ" | "INT4_AWQ" => return integer(doc, "quant_algo", 4).map(Some),
        _ => {
            return Err(unknown(
                doc,
                "quant_algo",
                "quantisation algorithm",
                word,
                VALID,
            ));
        }
    };
    grouped(doc, Scheme::of(format)).map(Some)
}

/// Refuses a `group_size` other than the format's own; block formats say theirs otherwise.
fn grouped(doc: &Doc<'_>, scheme: Scheme) -> Result<Scheme, ModelError> {
    match (scheme.group, doc.get("group_size")) {
        (Some(own), Some(value)) => match doc.whole("group_size", value, 1)? {
            group if group == own => Ok(scheme),
            group => Err(no_format(
                doc,
                "group_size",
                format!("{} with group_size {group}", scheme.format),
            )),
        },
        _ => Ok(scheme),
    }
}

/// A `weights` entry of compressed-tensors; `doc` is the entry, `packed` the group's format word.
pub(super) fn weights(doc: &Doc<'_>, packed: Option<&str>) -> Result<Scheme, ModelError> {
    match packed {
        Some("nvfp4-pack-quantized") => return grouped(doc, Scheme::of(WeightFormat::Nvfp4)),
        Some("mxfp4-pack-quantized") => return grouped(doc, Scheme::of(WeightFormat::Mxfp4)),
        Some("mxfp8-quantized") => return grouped(doc, Scheme::of(WeightFormat::Mxfp8)),
        _ => {}
    }
    let (_, bits) = doc.need(&["num_bits"], "number of bits", "")?;
    let kind = doc.word(&["type"])?.map_or("int", |(_, word)| word);
    let strategy = match doc.word(&["strategy"])? {
        Some((_, word)) => word,
        // A group size alone says which.
        None => match doc.get("group_size").and_then(Value::as_i64) {
            None => "tensor",
            Some(-1) => "channel",
            Some(_) => "group",
        },
    };
    let group = group_size(doc)?;
    if let (Some(group), "tensor" | "channel" | "token") = (group, strategy) {
        // One scale has no groups: which of the two holds is not known.
        let what = format!("a strategy of one scale a {strategy} with group_size {group}");
        return Err(no_format(doc, "group_size", what));
    }
    match (kind, bits, strategy, group) {
        ("float", 4, _, Some(16)) => Ok(Scheme::of(WeightFormat::Nvfp4)),
        ("float", 4, _, Some(32)) => Ok(Scheme::of(WeightFormat::Mxfp4)),
        ("float", 8, "tensor", _) => Ok(Scheme::of(WeightFormat::Fp8)),
        ("float", 8, "channel", _) => Ok(Scheme::of(WeightFormat::Fp8Channel)),
        ("float", 8, "group", Some(32)) => Ok(Scheme::of(WeightFormat::Mxfp8)),
        ("float", 8, "block", _) => match block(doc, "block_structure")? {
            Some(block) => blocked(doc, "block_structure", block),
            None => Err(no_format(
                doc,
                "strategy",
                "fp8 in blocks of unsaid size".to_owned(),
            )),
        },
        ("int", 4, "channel", None) | ("int", 4, "group", Some(_)) => {
            let scheme = match group {
                Some(_) => integer(doc, "num_bits", 4)?,
                None => Scheme::of(WeightFormat::Int4Channel),
            };
            let scheme = in_order(doc, "actorder", scheme)?;
            with_zero_points(doc, "symmetric", (false, ZeroPoints::Unread), scheme)
        }
        ("int", 8, "channel", None) => Ok(Scheme::of(WeightFormat::Int8)),
        _ => {
            let group = group.map_or(String::new(), |g| format!(", group_size {g}"));
            let what = format!(
                "{} with {bits} bits per {}{group}",
                doc::word(kind),
                doc::word(strategy)
            );
            Err(no_format(doc, "num_bits", what))
        }
    }
}

/// A `weight` entry of Quark.
pub(super) fn quark(doc: &Doc<'_>) -> Result<Scheme, ModelError> {
    let dtype = doc.word(&["dtype"])?.map_or("", |(_, word)| word);
    let scheme = doc.word(&["qscheme"])?.map_or("", |(_, word)| word);
    let group = group_size(doc)?;
    match (dtype, scheme, group) {
        ("fp4", "per_group", Some(32)) => Ok(Scheme::of(WeightFormat::Mxfp4)),
        ("fp8_e4m3", "per_tensor", _) => Ok(Scheme::of(WeightFormat::Fp8)),
        ("fp8_e4m3", "per_channel", _) => Ok(Scheme::of(WeightFormat::Fp8Channel)),
        ("fp8_e4m3", "per_group", Some(32)) => Ok(Scheme::of(WeightFormat::Mxfp8)),
        ("int4", "per_group", Some(_)) => integer(doc, "dtype", 4),
        // What has no sign has a zero point, unless said otherwise.
        ("uint4", "per_group", Some(_)) => {
            let scheme = integer(doc, "dtype", 4)?;
            let symmetric = doc.flag(&["symmetric"])? == Some(true);
            Ok(Scheme {
                zero_points: (!symmetric).then_some(ZeroPoints::Unread),
                ..scheme
            })
        }
        ("int8", "per_channel", _) => Ok(Scheme::of(WeightFormat::Int8)),
        _ => {
            let group = group.map_or(String::new(), |g| format!(", group_size {g}"));
            let what = format!("`{}` {}{group}", doc::word(dtype), doc::word(scheme));
            Err(no_format(doc, "dtype", what))
        }
    }
}
