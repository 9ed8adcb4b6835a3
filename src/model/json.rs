//! Parses JSON as Python writes it: `NaN` and `Infinity` are read, not refused.
//!
//! It must not interpret keys. Layer 2.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Python's three words that JSON lacks, and stand-ins of the same length, so that the
/// parser's columns stay right.
const WORDS: [(&str, &str); 3] = [
    ("-Infinity", r#""-inf   ""#),
    ("Infinity", r#""+inf  ""#),
    ("NaN", r#""~""#),
];

/// Parses `text`.
pub(super) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = |text: &str| serde_json::from_str(text).map(|Unique(value)| value);
    read(text).or_else(|first| match replace(text) {
        Some(fixed) => read(&fixed),
        None => Err(first),
    })
}

/// The number that an error stopped at and the key it belongs to; nothing for other errors.
pub(super) fn place(text: &str, error: &serde_json::Error) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let number = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let head = text.get(..before + error.column()).unwrap_or(text);
    let start = head.trim_end_matches(number).len();
    let tail = text.get(start..).unwrap_or_default();
    let value: String = tail.chars().take_while(|c| number(*c)).take(40).collect();
    let key = text.get(..start).unwrap_or_default().trim_end();
    let key = key.strip_suffix(':').map(str::trim_end);
    let key = key.and_then(|key| key.strip_suffix('"')?.rsplit('"').next());
    match key {
        Some(key) if value.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            let key: String = key.chars().take(100).collect();
            format!(" ({} is {value})", key.escape_debug())
        }
        _ => String::new(),
    }
}

/// A value no object of which has a key twice: readers differ in which of the two they take.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unique, D::Error> {
        from.deserialize_any(Reader).map(Unique)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(value)) = from.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if all.contains_key(&key) {
                let key: String = key.chars().take(100).collect();
                let why = format!("the key {} stands twice", key.escape_debug());
                return Err(A::Error::custom(why));
            }
            let Unique(value) = from.next_value()?;
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}

/// Whether the text is an object with this key, read as Python would.
pub fn top_level(text: &str, key: &str) -> bool {
    parse(text).is_ok_and(|value| value.get(key).is_some())
}

/// The value of a key of the top, read as Python would.
pub fn value_at(text: &str, key: &str) -> Option<Value> {
    parse(text).ok()?.get(key).cloned()
}

/// The word that a stand-in replaced, if `text` is one.
pub(super) fn stand_in(text: &str) -> Option<&'static str> {
    WORDS
        .iter()
        .find(|(_, s)| s.trim_matches('"') == text)
        .map(|(word, _)| *word)
}

/// `text` with the words outside strings replaced, or none if there is no such word.
fn replace(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut at, mut quoted) = (0, 0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'-' | b'I' | b'N' if !quoted && !joins(bytes, at.checked_sub(1)) => {
                let word = WORDS
                    .iter()
                    .find(|(word, _)| bytes[at..].starts_with(word.as_bytes()));
                if let Some((word, stand_in)) = word
                    && !joins(bytes, Some(at + word.len()))
                {
                    out.push_str(&text[copied..at]);
                    out.push_str(stand_in);
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    out.push_str(&text[copied..]);
    (copied > 0).then_some(out)
}

/// Whether the byte at `at` would make a longer word of its neighbour.
fn joins(bytes: &[u8], at: Option<usize>) -> bool {
    at.and_then(|at| bytes.get(at)).is_some_and(|b| {
        b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.' | b'_' | 0x80..)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pythons_infinities_are_read_and_strings_keep_theirs() {
        let v = parse(r#"{"a": [0.0, Infinity, -Infinity, NaN], "NaN": "say \"Infinity\", NaN"}"#)
            .unwrap();
        assert_eq!(v["NaN"], "say \"Infinity\", NaN");
        let words: Vec<_> = v["a"].as_array().unwrap().iter().skip(1).collect();
        let words: Vec<_> = words
            .iter()
            .map(|w| stand_in(w.as_str().unwrap()).unwrap())
            .collect();
        assert_eq!(words, ["Infinity", "-Infinity", "NaN"]);
    }

    #[test]
    fn a_longer_word_is_not_one_of_pythons() {
        for text in [
            "[Infinityx]",
            "[xNaN]",
            "[--Infinity]",
            "[NaN1]",
            "[nan]",
            "[NaNé]",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_behind_an_infinity_keeps_its_column() {
        let error = parse("{\"a\": Infinity,\n \"b\": -Infinity, ?}").unwrap_err();
        assert_eq!((error.line(), error.column()), (2, 18));
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(parse("\u{feff}[1]").unwrap()[0], 1);
    }
}
