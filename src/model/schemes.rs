//! Reads the quantisation schemes that a config lists, and for which modules each is.
//!
//! It must not decide what is planned. Layer 2. Sources: the methods' config keys as
//! facts/upstream-padding.md 4.1 and facts/peers.md 5 met them.

use super::doc::{Doc, shown, word};
use super::error::ModelError;
use super::facts::ZeroPoints;
use super::ignore::Patterns;
use super::methods::{self, Scheme, unknown};
use super::overrides::with_overrides;
use crate::terms::WeightFormat;
use serde_json::Value;

/// Which modules a scheme is for.
pub(super) enum Reach {
    All,
    RoutedOnly,
    Named(Patterns),
}

/// Schemes in order of precedence: the first that reaches a part is its own.
pub(super) struct Schemes {
    pub(super) method: String,
    pub(super) list: Vec<(Reach, Stored)>,
}

/// How a module is stored: by a scheme, as it was, or so that no format describes it.
pub(super) type Stored = Result<Option<Scheme>, Unread>;

/// A scheme that no format describes: its key, and the scheme in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) key: String,
    pub(super) what: String,
}

/// The scheme that is read, or what no format describes.
///
/// # Errors
/// Whatever else hinders reading it.
pub(super) fn stored(read: Result<Option<Scheme>, ModelError>) -> Result<Stored, ModelError> {
    match read {
        Ok(scheme) => Ok(Ok(scheme)),
        Err(ModelError::NoFormat { key, what, .. }) => Ok(Err(Unread { key, what })),
        Err(error) => Err(error),
    }
}

impl Schemes {
    fn all(method: &str, scheme: Option<Scheme>) -> Self {
        Schemes {
            method: method.to_owned(),
            list: vec![(Reach::All, Ok(scheme))],
        }
    }

    fn routed(method: &str, routed: WeightFormat, rest: Option<Scheme>) -> Self {
        let list = vec![
            (Reach::RoutedOnly, Ok(Some(Scheme::of(routed)))),
            (Reach::All, Ok(rest)),
        ];
        Schemes {
            method: method.to_owned(),
            list,
        }
    }

    /// How modules are stored that are of routed experts or not; `covers` says whether patterns name them.
    pub(super) fn of(&self, routed: bool, covers: impl Fn(&Patterns) -> bool) -> Stored {
        let reaches = |reach: &Reach| match reach {
            Reach::All => true,
            Reach::RoutedOnly => routed,
            Reach::Named(patterns) => covers(patterns),
        };
        let mut list = self.list.iter();
        let found = list.find(|(reach, _)| reaches(reach));
        found.map_or(Ok(None), |(_, stored)| stored.clone())
    }

    /// The patterns of modules that have a scheme of their own.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &Patterns> {
        self.list.iter().filter_map(|(reach, _)| match reach {
            Reach::Named(patterns) => Some(patterns),
            Reach::All | Reach::RoutedOnly => None,
        })
    }
}

/// The schemes that an entry lists.
pub(super) fn schemes(entry: &Doc<'_>) -> Result<Schemes, ModelError> {
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
            let read = |entry: &Doc<'_>| {
                let (key, bits) = entry.need(&["bits", "w_bit"], "number of bits", "")?;
                let scheme = methods::integer(entry, key, bits)?;
                let scheme = methods::in_order(entry, "desc_act", scheme)?;
                let (key, yes) = match method.starts_with("awq") {
                    true => ("zero_point", (true, ZeroPoints::Awq)),
                    false => ("sym", (false, ZeroPoints::Unread)),
                };
                methods::with_zero_points(entry, key, yes, scheme)
            };
            with_overrides(entry, method, read)
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
        .map(|(scheme, names)| {
            let named = Reach::Named(Patterns::new(names.into_iter()));
            (named, Ok(Some(scheme)))
        })
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
    let mut of_all = classes
        .iter()
        .filter(|(reach, _)| matches!(reach, Reach::All));
    if let Some((_, one)) = of_all.next()
        && let Some((_, two)) = of_all.find(|(_, two)| one != two)
    {
        return Err(ModelError::Mixture {
            file: entry.file.to_owned(),
            key: entry.name("config_groups"),
            what: format!(
                "{} and {} for the same modules",
                Scheme::word(*one),
                Scheme::word(*two)
            ),
        });
    }
    named.extend(classes);
    let list = named.into_iter().map(|(reach, scheme)| (reach, Ok(scheme)));
    Ok(Schemes {
        method: method.to_owned(),
        list: list.collect(),
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
                Ok(scheme),
            ));
        }
    }
    if let Some(global) = entry.object("global_quant_config", "global_quant_config")? {
        list.push((Reach::All, Ok(weight(&global)?)));
    }
    Ok(Schemes {
        method: "quark".to_owned(),
        list,
    })
}
