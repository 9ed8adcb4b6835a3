//! Looks keys up in a config object and turns them into checked values.
//!
//! It must not know what a key means to a family. Layer 2.

use super::error::ModelError;
use super::json::stand_in;
use super::load::SIZE_LIMIT;
use serde_json::{Map, Value};

/// One object of a config, with the words to name it in messages.
#[derive(Clone, Copy)]
pub(super) struct Doc<'a> {
    /// The file's path as given.
    pub(super) file: &'a str,
    /// Where the object lies, for example `text_config`; empty at the top.
    pub(super) path: &'a str,
    /// The object.
    pub(super) map: &'a Map<String, Value>,
    /// Whether a size may be a list of one equal value per layer.
    pub(super) lists: bool,
}

impl<'a> Doc<'a> {
    /// A file's outermost object, of a family that is not known yet.
    pub(super) fn root(file: &'a str, map: &'a Map<String, Value>) -> Doc<'a> {
        Doc {
            file,
            path: "",
            map,
            lists: false,
        }
    }

    /// Where the object lies, in words at the top too.
    pub(super) fn place(&self) -> String {
        match self.path {
            "" => "the top level".to_owned(),
            path => path.to_owned(),
        }
    }

    /// The value at a key, which may be dotted; null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.raw(key).filter(|v| !v.is_null())
    }

    fn raw(&self, key: &str) -> Option<&'a Value> {
        match key.split_once('.') {
            None => self.map.get(key),
            Some((outer, inner)) => self.map.get(outer)?.as_object()?.get(inner),
        }
    }

    /// The key with its place.
    pub(super) fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The first of `keys` that is there and not null.
    pub(super) fn first<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        keys.iter()
            .find_map(|key| self.get(key).map(|value| (*key, value)))
    }

    /// A whole number at the one key given, at least `least`.
    pub(super) fn whole(&self, key: &str, value: &Value, least: u64) -> Result<u64, ModelError> {
        let value = match value {
            Value::Array(items) if self.lists => match items.first() {
                Some(first) if items.iter().all(|item| item == first) => first,
                _ => {
                    return Err(ModelError::Uneven {
                        file: self.file.to_owned(),
                        key: self.name(key),
                        value: format!("{}: {}", shown(value), distinct(items)),
                    });
                }
            },
            other => other,
        };
        let (file, key, text) = (self.file.to_owned(), self.name(key), shown(value));
        let wide = |n: &serde_json::Number| n.as_f64().is_some_and(|x| x > SIZE_LIMIT as f64);
        match value {
            Value::Number(n) if n.as_u64().is_some_and(|n| n >= least && n <= SIZE_LIMIT) => {
                Ok(n.as_u64().expect("the guard read it"))
            }
            Value::Number(n) if n.is_u64() || n.is_i64() || wide(n) => Err(if wide(n) {
                ModelError::TooLarge {
                    file,
                    key,
                    value: text,
                    most: SIZE_LIMIT,
                }
            } else {
                ModelError::TooSmall {
                    file,
                    key,
                    value: text,
                    least,
                }
            }),
            other => Err(ModelError::Kind {
                file,
                key,
                value: text,
                found: kind(other),
                wanted: "a whole number",
            }),
        }
    }

    /// A number under any of several spellings, which must agree. With the key that said it.
    pub(super) fn number(
        &self,
        keys: &[&'static str],
        least: u64,
    ) -> Result<Option<(&'static str, u64)>, ModelError> {
        let mut found: Option<(&'static str, u64)> = None;
        for key in keys {
            let Some(value) = self.get(key) else { continue };
            let number = self.whole(key, value, least)?;
            match found {
                Some((other, same)) if same != number => {
                    return Err(self.conflict((other, same), (key, number)));
                }
                Some(_) => {}
                None => found = Some((key, number)),
            }
        }
        Ok(found)
    }

    fn conflict<T: ToString>(&self, one: (&str, T), two: (&str, T)) -> ModelError {
        ModelError::Conflict {
            file: self.file.to_owned(),
            key: self.name(two.0),
            value: two.1.to_string(),
            other: self.name(one.0),
            other_value: one.1.to_string(),
        }
    }

    /// A size that must be there.
    pub(super) fn need(
        &self,
        keys: &[&'static str],
        what: &'static str,
        note: &'static str,
    ) -> Result<(&'static str, u64), ModelError> {
        if let Some(found) = self.number(keys, 1)? {
            return Ok(found);
        }
        Err(match keys.iter().find(|key| self.raw(key).is_some()) {
            Some(key) => ModelError::Null {
                file: self.file.to_owned(),
                key: self.name(key),
                what,
            },
            None => ModelError::Missing {
                file: self.file.to_owned(),
                what,
                keys: keys
                    .iter()
                    .filter(|k| !k.contains('.'))
                    .map(|k| self.name(k))
                    .collect(),
                note,
            },
        })
    }

    /// A number that is taken from the first spelling; zero and null count as absent.
    pub(super) fn perhaps(&self, keys: &[&'static str]) -> Result<Option<u64>, ModelError> {
        for key in keys {
            if let Some(value) = self.get(key) {
                return Ok(Some(self.whole(key, value, 0)?).filter(|n| *n > 0));
            }
        }
        Ok(None)
    }

    /// A whole number of at least 1 under the first spelling that is there; null is absent.
    pub(super) fn some(&self, keys: &[&'static str]) -> Result<Option<u64>, ModelError> {
        let there = keys.iter().find_map(|key| Some((*key, self.get(key)?)));
        there
            .map(|(key, value)| self.whole(key, value, 1))
            .transpose()
    }

    /// A real number under any of several spellings, which must agree.
    pub(super) fn real(
        &self,
        keys: &[&'static str],
    ) -> Result<Option<(&'static str, f64)>, ModelError> {
        let mut found: Option<(&'static str, f64)> = None;
        for key in keys {
            let Some(value) = self.get(key) else { continue };
            let Some(number) = value.as_f64() else {
                return Err(self.kind(key, value, "a number"));
            };
            match found {
                Some((other, same)) if same != number => {
                    return Err(self.conflict((other, same), (key, number)));
                }
                Some(_) => {}
                None => found = Some((key, number)),
            }
        }
        Ok(found)
    }

    /// A yes or no from the first spelling there.
    pub(super) fn flag(&self, keys: &[&'static str]) -> Result<Option<bool>, ModelError> {
        let Some((key, value)) = self.first(keys) else {
            return Ok(None);
        };
        match value {
            Value::Bool(flag) => Ok(Some(*flag)),
            Value::Number(n) if n.as_u64() == Some(0) => Ok(Some(false)),
            Value::Number(n) if n.as_u64() == Some(1) => Ok(Some(true)),
            other => Err(self.kind(key, other, "true or false")),
        }
    }

    /// A word from the first spelling there, with its key.
    pub(super) fn word(
        &self,
        keys: &[&'static str],
    ) -> Result<Option<(&'static str, &'a str)>, ModelError> {
        let Some((key, value)) = self.first(keys) else {
            return Ok(None);
        };
        match value.as_str() {
            Some(word) => Ok(Some((key, word))),
            None => Err(self.kind(key, value, "a string")),
        }
    }

    /// A list, if the key is there.
    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Value]>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.kind(key, other, "a list")),
        }
    }

    /// A nested object, if the key is there; `path` is its place.
    pub(super) fn object(&self, key: &str, path: &'a str) -> Result<Option<Doc<'a>>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Doc { path, map, ..*self })),
            Some(other) => Err(ModelError::NotObject {
                file: self.file.to_owned(),
                key: self.name(key),
                value: shown(other),
            }),
        }
    }

    /// The error for a value of the wrong kind.
    pub(super) fn kind(&self, key: &str, value: &Value, wanted: &'static str) -> ModelError {
        ModelError::Kind {
            file: self.file.to_owned(),
            key: self.name(key),
            value: shown(value),
            found: kind(value),
            wanted,
        }
    }
}

/// The first few of a list's values, each once.
fn distinct(items: &[Value]) -> String {
    const MOST: usize = 4;
    let mut seen: Vec<&Value> = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
        if seen.len() > MOST {
            break;
        }
    }
    let words: Vec<String> = seen.iter().take(MOST).map(|one| shown(one)).collect();
    let more = if seen.len() > MOST { ", …" } else { "" };
    format!("{}{more}", words.join(", "))
}

/// What kind of JSON value it is, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a float",
        Value::Number(_) => "a whole number",
        Value::String(s) if stand_in(s).is_some() => "no finite number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The value as written, cut to a length that fits a sentence.
pub(super) fn shown(value: &Value) -> String {
    const MOST: usize = 48;
    let text = match value {
        Value::String(s) => match stand_in(s) {
            Some(word) => word.to_owned(),
            None => format!("\"{}\"", cut(s, MOST).escape_debug()),
        },
        // Not printed whole: it may be as long as the file.
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(map) => format!("an object of {}", map.len()),
        other => other.to_string(),
    };
    cut(&text, MOST * 6)
}

/// At most `most` characters of `text`, with dots where something is missing.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A word as it may stand in a sentence: short, without line breaks.
pub(super) fn word(text: &str) -> String {
    cut(text, 48).escape_debug().to_string()
}
