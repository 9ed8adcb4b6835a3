//! Reads what integer formats say of single modules: GPTQ's `dynamic` and `modules_in_block_to_quantize`,
//! auto-round's `extra_config`.
//!
//! It must not know which modules a model has. Layer 2. Sources: the readers of these keys, GPTQModel (`dynamic`: a
//! regular expression a module, from its start, the first that matches; `-:` leaves the module as it is, `+:` or nothing
//! changes what it says), transformers (`modules_in_block_to_quantize`: all others stay as they are) and vLLM
//! (`extra_config`: an exact name, else the first regular expression found anywhere in it; 16 bits are no quantisation).

use super::doc::{Doc, word};
use super::error::ModelError;
use super::ignore::Patterns;
use super::methods::Scheme;
use super::schemes::{Reach, Schemes, Stored, stored};
use serde_json::{Map, Value};

/// Bits from which on weights stay as they are.
const UNQUANTISED: u64 = 16;
/// The keys that this reads.
const KEYS: [&str; 3] = ["dynamic", "extra_config", "modules_in_block_to_quantize"];
/// What tells a regular expression from a module's name.
const SIGNS: &[char] = &[
    '*', '+', '?', '^', '$', '(', ')', '[', ']', '{', '}', '|', '\\',
];

/// The scheme of all modules, with those of single ones before it; `read` reads a scheme from an entry.
pub(super) fn with_overrides(
    entry: &Doc<'_>,
    method: &str,
    read: impl Fn(&Doc<'_>) -> Result<Scheme, ModelError>,
) -> Result<Schemes, ModelError> {
    let mut list = Vec::new();
    for (name, of) in modules(entry, KEYS[0], &read)? {
        let regex = name.strip_prefix("-:").or(name.strip_prefix("+:"));
        let regex = format!("re:{}", regex.unwrap_or(name));
        list.push((named([regex.as_str()]), of));
    }
    let extra = modules(entry, KEYS[1], &read)?;
    let (regexes, names): (Vec<_>, Vec<_>) = extra
        .into_iter()
        .partition(|(name, _)| name.contains(SIGNS));
    // Lists name every module: those of one scheme are one.
    let mut kinds: Vec<(Stored, Vec<&str>)> = Vec::new();
    for (name, of) in names {
        match kinds.iter_mut().find(|(known, _)| *known == of) {
            Some((_, names)) => names.push(name),
            None => kinds.push((of, vec![name])),
        }
    }
    list.extend(kinds.into_iter().map(|(of, names)| (named(names), of)));
    for (regex, of) in regexes {
        list.push((named([format!("re:.*(?:{regex})").as_str()]), of));
    }
    let reach = match blocks(entry)? {
        Some(names) => named(names),
        None => Reach::All,
    };
    list.push((reach, stored(read(entry).map(Some))?));
    Ok(Schemes {
        method: method.to_owned(),
        list,
    })
}

fn named<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Reach {
    Reach::Named(Patterns::new(patterns.into_iter()))
}

/// How each module that a key names is stored.
fn modules<'a>(
    entry: &Doc<'a>,
    key: &'static str,
    read: &impl Fn(&Doc<'_>) -> Result<Scheme, ModelError>,
) -> Result<Vec<(&'a str, Stored)>, ModelError> {
    let Some(all) = entry.object(key, key)? else {
        return Ok(Vec::new());
    };
    let mut shared = entry.map.clone();
    KEYS.iter().for_each(|key| drop(shared.remove(*key)));
    let of = |(name, value): (&'a String, &'a Value)| {
        let stays = key == KEYS[0] && name.starts_with("-:") || *value == Value::Bool(false);
        let of = match (stays, value) {
            (true, _) => Ok(None),
            (false, Value::Object(own)) => {
                let path = format!("{}.{}", entry.name(key), word(name));
                stored(changed(
                    &Doc {
                        path: &path,
                        ..*entry
                    },
                    &shared,
                    own,
                    read,
                ))?
            }
            (false, other) => return Err(all.kind(name, other, "an object")),
        };
        Ok((name.as_str(), of))
    };
    all.map.iter().map(of).collect()
}

/// The scheme of `shared` with what a module says otherwise; none where it stays as it is.
fn changed(
    module: &Doc<'_>,
    shared: &Map<String, Value>,
    own: &Map<String, Value>,
    read: &impl Fn(&Doc<'_>) -> Result<Scheme, ModelError>,
) -> Result<Option<Scheme>, ModelError> {
    let mut map = shared.clone();
    map.extend(own.clone());
    let doc = Doc {
        map: &map,
        ..*module
    };
    match doc.number(&["bits", "w_bit"], 1)? {
        Some((_, bits)) if bits >= UNQUANTISED => Ok(None),
        _ => read(&doc).map(Some),
    }
}

/// The only modules that are quantised, where an entry names some.
fn blocks<'a>(entry: &Doc<'a>) -> Result<Option<Vec<&'a str>>, ModelError> {
    let key = KEYS[2];
    let all = match entry.list(key)? {
        None | Some([]) => return Ok(None),
        Some(all) => all,
    };
    let names = all.iter().flat_map(|block| match block {
        Value::Array(names) => names.as_slice(),
        one => std::slice::from_ref(one),
    });
    let text = |name: &'a Value| {
        let wrong = || entry.kind(key, name, "a list of lists of strings");
        name.as_str().ok_or_else(wrong)
    };
    names.map(text).collect::<Result<_, _>>().map(Some)
}
