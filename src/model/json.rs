//! Parses JSON as Python writes it: `NaN` and `Infinity` are read, not refused.
//!
//! It must not interpret keys. Layer 2.

use serde_json::Value;

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
    serde_json::from_str(text).or_else(|first| match replace(text) {
        Some(fixed) => serde_json::from_str(&fixed),
        None => Err(first),
    })
}

/// Whether the text is an object with this key, read as Python would.
pub fn top_level(text: &str, key: &str) -> bool {
    parse(text).is_ok_and(|value| value.get(key).is_some())
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
