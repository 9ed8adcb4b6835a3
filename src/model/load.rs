//! Reads a model from a file, a directory or a built-in name.
//!
//! It must not know rules or parallelism. Layer 2.

use super::doc::{Doc, cut, shown};
use super::error::{ModelError, NotMoe};
use super::facts::{Grade, Model, dense_layers};
use super::uneven::parse_each;
use super::{activation, builtin, family, json, keys, layers, methods, quant, router};
use crate::terms::{Bias, nearest};
use serde_json::{Map, Value};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Most bytes of a configuration file: 16 MiB, so that an `hf_quant_config.json` that names every
/// expert of the largest models (about 10 MB) is read, and one made to hurt (`[[0],[0],…`) costs
/// less than 2 GiB once parsed.
pub const FILE_LIMIT: u64 = 16 << 20;
/// Largest size taken, so that products of two sizes stay far below 2^128 and of real ones below 2^64.
pub const SIZE_LIMIT: u64 = 1 << 40;
/// Most weights of one projection of all experts: a hundred million times the largest real ones, and
/// their bytes fit 64 bits.
const WEIGHTS_LIMIT: u128 = 1 << 60;
/// Most layers taken; real models have a hundred.
pub const LAYER_LIMIT: u64 = 1 << 10;

const CONFIG: &str = "config.json";
const BESIDE: &str = "hf_quant_config.json";

pub(super) const EXPERTS: &[&str] = &[
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_routed_experts",
    "ffn_config.moe_num_experts",
];
pub(super) const TOP_K: &[&str] = &[
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "num_selected_experts",
    "ffn_config.moe_top_k",
];
pub(super) const IDENTITY: &str = "zero_expert_num";
const HIDDEN: &[&str] = &["hidden_size", "d_model", "n_embd"];
const LATENT: &[&str] = &["moe_latent_size", "routed_expert_hidden_size"];
pub(super) const WIDTH: &[&str] = &[
    "moe_intermediate_size",
    "expert_ffn_hidden_size",
    "moe_ffn_hidden_size",
    "ffn_config.ffn_hidden_size",
];
/// Where multimodal configs keep their language model's.
pub(super) const NESTED: &[&str] = &[
    "text_config",
    "llm_config",
    "language_config",
    "language_model",
    "thinker_config.text_config",
];

/// Reads a config file, a directory that holds one, or a built-in model.
///
/// What exists as a path is read as one; built-in names are taken in any case, with or without
/// the organisation before them.
pub fn load(path_or_name: &str) -> Result<Model, ModelError> {
    let parse = |json: &str, file: &str, beside: Option<&str>| {
        let source = path_or_name.to_owned();
        parse(json, file, beside).map(|model| Model { source, ..model })
    };
    read_by(path_or_name, &parse, Model::clone)
}

/// As [`load`], of a config whose layers have different sizes a model for each kind of layer.
pub fn load_each(path_or_name: &str) -> Result<Vec<Model>, ModelError> {
    let sourced = |model| Model {
        source: path_or_name.to_owned(),
        ..model
    };
    let parse = |json: &str, file: &str, beside: Option<&str>| {
        let all = parse_each(json, file, beside)?;
        Ok(all.into_iter().map(sourced).collect())
    };
    read_by(path_or_name, &parse, |known| vec![known.clone()])
}

/// How a config's text is read: its path, and the text of the quantisation file beside it.
type Parse<'p, T> = &'p dyn Fn(&str, &str, Option<&str>) -> Result<T, ModelError>;

/// Reads what is named: a config by `parse`, a built-in model by `known`.
fn read_by<T>(
    path_or_name: &str,
    parse: Parse<'_, T>,
    known: fn(&Model) -> T,
) -> Result<T, ModelError> {
    let path = Path::new(path_or_name);
    let config = match path.is_dir() {
        true => path.join(CONFIG),
        false => path.to_owned(),
    };
    let file = config.to_string_lossy();
    match text(&file)? {
        Some(json) => parse(&json, &file, beside(&config)?.as_deref()),
        None if path.is_dir() => Err(ModelError::NoConfig {
            dir: path_or_name.to_owned(),
        }),
        None => builtin::find(path_or_name)
            .map(known)
            .ok_or_else(|| missing(path_or_name)),
    }
}

/// The error for an argument that is neither a path nor a name.
fn missing(given: &str) -> ModelError {
    let given_lower = given.to_ascii_lowercase();
    if given_lower.ends_with(".json") || given.starts_with(['/', '.', '~']) || given.is_empty() {
        return ModelError::NoFile {
            given: format!("`{}`", cut(given, 400).escape_debug()),
        };
    }
    let all = builtin::names();
    let lower: Vec<String> = all
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    let short = given_lower.rsplit('/').next().unwrap_or_default();
    let near = nearest(short, &lower)
        .and_then(|near| lower.iter().position(|name| name == near))
        .map(|at| all[at].1.name.clone());
    ModelError::NoModel {
        given: cut(given, 400).escape_debug().to_string(),
        near,
        known: builtin::builtin().len(),
    }
}

/// The text of the quantisation file that may lie beside a config.
fn beside(config: &Path) -> Result<Option<String>, ModelError> {
    match config.file_name().is_some_and(|name| name == CONFIG) {
        true => text(&config.with_file_name(BESIDE).to_string_lossy()),
        false => Ok(None),
    }
}

/// The text of a file, none if there is no such file.
fn text(file: &str) -> Result<Option<String>, ModelError> {
    let io = |source| ModelError::Io {
        file: file.to_owned(),
        source,
    };
    let opened = crate::files::open(Path::new(file)).and_then(|opened| {
        let is = opened.metadata()?;
        match is.is_dir() {
            true => Err(std::io::Error::other("not a regular file")),
            false => Ok((opened, is.len())),
        }
    });
    let too_big = || ModelError::TooBig {
        file: file.to_owned(),
        limit: FILE_LIMIT,
    };
    let opened = match opened {
        Ok((_, bytes)) if bytes > FILE_LIMIT => return Err(too_big()),
        Ok((opened, _)) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        // A name with a NUL, or longer than names may be, is no file's.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::InvalidFilename
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(io(error)),
    };
    let mut bytes = Vec::new();
    opened
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(too_big());
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| ModelError::NotUtf8 {
            file: file.to_owned(),
            at: error.utf8_error().valid_up_to(),
        })
}

/// The top object of a JSON text.
pub(super) fn object(json: &str, file: &str) -> Result<Map<String, Value>, ModelError> {
    let parsed = json::parse(json).map_err(|source| ModelError::Json {
        file: file.to_owned(),
        place: json::place(json, &source),
        source,
    })?;
    match parsed {
        Value::Object(map) => Ok(map),
        other => Err(ModelError::NotObject {
            file: file.to_owned(),
            key: "the top level".to_owned(),
            value: shown(&other),
        }),
    }
}

/// Reads the text of a `config.json`; `file` is its path for messages, `hf_quant` the text of
/// the `hf_quant_config.json` beside it.
pub fn parse(json: &str, file: &str, hf_quant: Option<&str>) -> Result<Model, ModelError> {
    parse_map(&object(json, file)?, file, hf_quant, None)
}

/// The same of its top object; formats are those of the layers `only`, where these are some of its kinds.
pub(super) fn parse_map(
    map: &Map<String, Value>,
    file: &str,
    hf_quant: Option<&str>,
    only: Option<&[u64]>,
) -> Result<Model, ModelError> {
    let beside_file = Path::new(file).with_file_name(BESIDE);
    let beside_file = beside_file.to_string_lossy();
    let beside_map = hf_quant
        .map(|text| object(text, &beside_file))
        .transpose()?;
    let root = Doc::root(file, map);
    let beside = beside_map.as_ref().map(|map| Doc {
        file: &beside_file,
        map,
        ..root
    });
    read(root, beside, only)
}

/// Reads the facts out of a config.
fn read(root: Doc<'_>, beside: Option<Doc<'_>>, only: Option<&[u64]>) -> Result<Model, ModelError> {
    let doc = scope(root)?;
    let architectures = architectures(&root, &doc)?;
    let (outer, inner) = (kind(&root)?, kind(&doc)?);
    let family = family::find(&[&inner, &outer], &architectures);
    let doc = Doc {
        lists: family.lists,
        ..doc
    };

    let mut notes = Vec::new();
    let said = doc.need(HIDDEN, "hidden size", "")?;
    let model_hidden = said.1;
    let (hidden_key, hidden) = doc.number(LATENT, 1)?.unwrap_or(said);
    let (experts_key, experts) = doc.need(EXPERTS, "number of experts", "")?;
    let top_k = doc.need(TOP_K, "number of experts per token", "")?;
    let zero_experts = identity(&doc)?;
    if top_k.1 > experts + zero_experts {
        let (file, key) = (doc.file.to_owned(), doc.name(top_k.0));
        return Err(ModelError::TopK {
            file,
            key,
            top_k: top_k.1,
            experts: experts + zero_experts,
            groups: 1,
            keep: 1,
        });
    }
    let (width_key, intermediate) = width(&doc, &family)?;
    let sizes = [
        (hidden_key, hidden),
        (width_key, intermediate),
        (experts_key, experts),
    ];
    if sizes.iter().map(|s| u128::from(s.1)).product::<u128>() > WEIGHTS_LIMIT {
        let sizes = sizes.map(|(key, size)| format!("{} {size}", doc.name(key)));
        return Err(ModelError::TooMany {
            file: doc.file.to_owned(),
            sizes: sizes.join(" x "),
        });
    }
    let layers = layers::read(&doc, &mut notes)?;
    let activation = activation::read(&doc, &family)?;
    let router = router::read(&doc, &family, (experts, zero_experts), top_k, &mut notes)?;
    let shared = layers::shared(&doc, &family, intermediate)?;
    let dense = layers::dense(&doc, &family, &layers, &mut notes)?;
    let dense_key = dense.map(|(key, _)| key);
    let dense = dense.map(|(_, width)| width);
    // The experts' dtype is written where the experts are; the quantisation at the top mostly.
    let (quant, [_, no_shared, no_dense]) = quant::read(
        &[root, doc],
        beside.as_ref(),
        &family,
        (&layers.among(only), shared.is_some()),
        &mut notes,
    )?;
    let (shared, dense) = (shared.filter(|_| !no_shared), dense.filter(|_| !no_dense));

    if shared.is_some() && layers.draft && quant.draft_format.is_some() {
        let note = "draft layers are stored in another format: in which their shared experts are was not looked for, so no figure has them";
        notes.push(note.to_owned());
    }
    let architecture = architectures.first().map_or(String::new(), |a| cut(a, 200));
    let model_type = if outer.is_empty() { inner } else { outer };
    Ok(Model {
        name: name(&root, &architecture, &model_type),
        source: root.file.to_owned(),
        grade: Grade::File,
        architecture,
        model_type,
        hidden,
        model_hidden,
        intermediate,
        experts,
        top_k: top_k.1,
        zero_experts,
        activation,
        route: router.route,
        groups: router.groups,
        keep: router.keep,
        factor: router.factor,
        bias: if family.oai { Bias::Both } else { Bias::None },
        interleaved: family.oai,
        shared,
        shared_each: layers::shared_each(&doc, shared)?,
        dense,
        dense_layers: dense_layers(dense, layers.dense.len() as u64, layers.moe.len() as u64),
        mtp_layers: layers.mtp,
        draft_experts: layers.draft,
        moe_layers: layers.moe.len() as u64,
        layers: layers.total,
        attention_heads: doc.some(&["num_attention_heads", "n_heads", "n_head"])?,
        kv_heads: doc.perhaps(&["num_key_value_heads", "attn_config.kv_n_heads"])?,
        vocab: doc.perhaps(&["vocab_size"])?,
        quant,
        unpaddable: keys::unpaddable(&root, &family, (width_key, dense_key)),
        notes,
    })
}

fn architectures<'a>(root: &Doc<'a>, doc: &Doc<'a>) -> Result<Vec<&'a str>, ModelError> {
    let mut all = strings(root, "architectures")?;
    all.extend(strings(doc, "architectures")?);
    Ok(all)
}

/// The model type, empty where there is none.
fn kind(doc: &Doc<'_>) -> Result<String, ModelError> {
    let word = doc.word(&["model_type"])?;
    Ok(word.map_or(String::new(), |(_, t)| cut(t, 200)))
}

/// The family of a config whose language model is `doc`.
pub(super) fn family_of(root: &Doc<'_>, doc: &Doc<'_>) -> Result<family::Family, ModelError> {
    let types = [kind(doc)?, kind(root)?];
    let types = [types[0].as_str(), types[1].as_str()];
    Ok(family::find(&types, &architectures(root, doc)?))
}

/// The object that counts experts: the language model's, else the top one.
pub(super) fn scope(root: Doc<'_>) -> Result<Doc<'_>, ModelError> {
    let mut looked = Vec::new();
    let mut found = None;
    for path in NESTED {
        let map = match root.get(path) {
            Some(Value::Object(map)) => map,
            None => continue,
            Some(other) => {
                return Err(ModelError::NotObject {
                    file: root.file.to_owned(),
                    key: (*path).to_owned(),
                    value: shown(other),
                });
            }
        };
        let nested = Doc { path, map, ..root };
        looked.push((*path).to_owned());
        if found.is_none() && nested.first(EXPERTS).is_some() {
            found = Some(nested);
        }
    }
    let found = found.or_else(|| root.first(EXPERTS).map(|_| root));
    let file = root.file.to_owned();
    let Some(doc) = found else {
        let keys = EXPERTS
            .iter()
            .copied()
            .filter(|key| !key.contains('.'))
            .collect();
        return Err(ModelError::NotMoe {
            file,
            why: NotMoe::NoKey {
                keys,
                scopes: looked,
            },
        });
    };
    if doc.flag(&["enable_moe_block"])? == Some(false) {
        let key = doc.name("enable_moe_block");
        return Err(ModelError::NotMoe {
            file,
            why: NotMoe::SwitchedOff { key },
        });
    }
    Ok(doc)
}

/// Identity experts (LongCat-Flash); experts of another kind without weights are not known.
fn identity(doc: &Doc<'_>) -> Result<u64, ModelError> {
    let zero = doc.perhaps(&[IDENTITY])?.unwrap_or(0);
    match doc.word(&["zero_expert_type"])? {
        Some((key, word)) if zero > 0 && word != "identity" => Err(methods::unknown(
            doc,
            key,
            "kind of expert",
            word,
            &["identity"],
        )),
        _ => Ok(zero),
    }
}

/// The routed expert's width.
fn width(doc: &Doc<'_>, family: &family::Family) -> Result<(&'static str, u64), ModelError> {
    const WHAT: &str = "width of an expert";
    if family.wide && doc.first(WIDTH).is_none() {
        return doc.need(&["intermediate_size"], WHAT, "");
    }
    let note = match doc.first(&["intermediate_size"]) {
        Some(_) => {
            " (intermediate_size is the expert's width in some families, but this one is not known to be of them)"
        }
        None => "",
    };
    doc.need(WIDTH, WHAT, note)
}

fn strings<'a>(doc: &Doc<'a>, key: &str) -> Result<Vec<&'a str>, ModelError> {
    let Some(value) = doc.get(key) else {
        return Ok(Vec::new());
    };
    let items = value.as_array();
    let words = items.and_then(|items| items.iter().map(Value::as_str).collect());
    words.ok_or_else(|| doc.kind(key, value, "a list of words"))
}

/// A name for the model: its directory's, else what the config calls itself.
fn name(root: &Doc<'_>, architecture: &str, model_type: &str) -> String {
    let path = Path::new(root.file);
    let directory = path
        .file_name()
        .filter(|name| *name == CONFIG)
        .and_then(|_| path.parent()?.file_name()?.to_str())
        // A snapshot directory of the hub's cache is named by a commit.
        .filter(|name| name.len() != 40 || !name.bytes().all(|b| b.is_ascii_hexdigit()));
    let own = root.get("_name_or_path").and_then(Value::as_str);
    let own = own.and_then(|n| n.trim_end_matches('/').rsplit('/').next());
    let candidates = [directory, own, Some(architecture), Some(model_type)];
    let found = candidates
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty());
    cut(found.unwrap_or("model"), 200)
}
