//! Reads what integer formats say of single modules: GPTQ's `dynamic` and `modules_in_block_to_quantize`,
//! auto-round's `extra_config`.
//!
//! It must not know which modules a model has. Layer 2. Sources: the readers of these keys, GPTQModel (`dynamic`: a
//! regular expression a module, from its start; `-:` leaves it as it is, `+:` or nothing changes what it says),
//! transformers (`modules_in_block_to_quantize`: all others stay as they are) and auto-round (`extra_config`: names or
//! regular expressions; 16 bits are no quantisation).

use super::doc::Doc;
use super::error::ModelError;
use super::ignore::Patterns;
use super::methods::Scheme;
use super::schemes::{Reach, Schemes, Unread};
use serde_json::{Map, Value};

/// Bits from which on weights stay as they are.
const UNQUANTISED: u64 = 16;

/// The scheme of all modules, with those of single ones before it; `read` reads a scheme from an entry.
pub(super) fn with_overrides(
    entry: &Doc<'_>,
    method: &str,
    main: Scheme,
    read: impl Fn(&Doc<'_>) -> Result<Scheme, ModelError>,
) -> Result<Schemes, ModelError> {
    let mut all = Schemes {
        method: method.to_owned(),
        list: Vec::new(),
        unread: Vec::new(),
    };
    for key in ["dynamic", "extra_config"] {
        let Some(modules) = entry.object(key, key)? else {
            continue;
        };
        for (name, value) in modules.map {
            let regex = name.trim_start_matches(['+', '-']).trim_start_matches(':');
            let (left, pattern) = match key {
                "dynamic" => (name.starts_with("-:"), format!("re:{regex}")),
                // Names have none of these.
                _ if name.contains(['*', '\\', '^', '$', '(', '[']) => {
                    (false, format!("re:{name}"))
                }
                _ => (false, name.clone()),
            };
            let own = match (left, value) {
                (true, _) | (false, Value::Bool(false)) => None,
                (false, Value::Object(own)) => Some(own),
                (false, other) => return Err(modules.kind(name, other, "an object")),
            };
            let patterns = Patterns::new([pattern.as_str()].into_iter());
            match own.map(|own| changed(entry, own, &read)).transpose() {
                Ok(scheme) => all.list.push((Reach::Named(patterns), scheme.flatten())),
                Err(ModelError::NoFormat { key, what, .. }) => {
                    all.unread.push(Unread {
                        patterns,
                        key,
                        what,
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }
    match entry.list("modules_in_block_to_quantize")? {
        None => all.list.push((Reach::All, Some(main))),
        Some(blocks) => {
            let mut names = Vec::new();
            for name in blocks.iter().flat_map(|block| match block {
                Value::Array(names) => names.as_slice(),
                one => std::slice::from_ref(one),
            }) {
                let wanted = "a list of lists of strings";
                let key = "modules_in_block_to_quantize";
                names.push(name.as_str().ok_or_else(|| entry.kind(key, name, wanted))?);
            }
            let named = Reach::Named(Patterns::new(names.into_iter()));
            all.list.push((named, Some(main)));
        }
    }
    Ok(all)
}

/// The entry's scheme with what a module says otherwise; none where it stays as it is.
fn changed(
    entry: &Doc<'_>,
    own: &Map<String, Value>,
    read: &impl Fn(&Doc<'_>) -> Result<Scheme, ModelError>,
) -> Result<Option<Scheme>, ModelError> {
    let mut map = entry.map.clone();
    map.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
    let doc = Doc {
        map: &map,
        ..*entry
    };
    match doc.number(&["bits", "w_bit"], 1)? {
        Some((_, bits)) if bits >= UNQUANTISED => Ok(None),
        _ => read(&doc).map(Some),
    }
}
