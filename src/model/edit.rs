//! Replaces values in the text of a JSON object and leaves every other byte as it is.
//!
//! It must not know what a key means, nor print numbers anew: a float read and written again may
//! differ in its last place. Layer 2.

use std::ops::Range;

/// `text`, one JSON object that a parser has taken, with the value at each path replaced and
/// members added at its end; none where a path leads nowhere.
pub fn edited(
    text: &str,
    changes: &[(Vec<String>, String)],
    added: &[(&str, String)],
) -> Option<String> {
    let top = top(text)?;
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (path, value) in changes {
        edits.push((find(text, top, path)?, value.clone()));
    }
    let end = value_end(text.as_bytes(), top)? - 1;
    let last = text[..end].trim_end().len();
    let mut more = String::new();
    for (key, value) in added {
        let first = more.is_empty() && text[..last].ends_with('{');
        let key = serde_json::Value::from(*key);
        more += &format!("{}\n  {key}: {value}", if first { "" } else { "," });
    }
    if !more.is_empty() {
        more.push('\n');
        edits.push((last..end, more));
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, value) in edits {
        out.push_str(text.get(at..range.start)?);
        out.push_str(&value);
        at = range.end;
    }
    out.push_str(&text[at..]);
    Some(out)
}

/// Where the top object begins: behind white space and a byte order mark.
fn top(text: &str) -> Option<usize> {
    let at = text.find(|c: char| !c.is_whitespace() && c != '\u{feff}')?;
    text[at..].starts_with('{').then_some(at)
}

/// The bytes of the value at a path below the object that begins at `object`; of a key that is
/// there twice, the last, as parsers take it.
fn find(text: &str, object: usize, path: &[String]) -> Option<Range<usize>> {
    let (key, rest) = path.split_first()?;
    let members = members(text, object)?;
    let (_, value) = members.into_iter().rev().find(|(name, _)| name == key)?;
    match rest {
        [] => Some(value),
        _ if text[value.clone()].starts_with('{') => find(text, value.start, rest),
        _ => None,
    }
}

/// The keys and the values' places of an object.
fn members(text: &str, object: usize) -> Option<Vec<(String, Range<usize>)>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = space(bytes, object + 1);
    while *bytes.get(at)? != b'}' {
        let end = value_end(bytes, at)?;
        let key: String = serde_json::from_str(&text[at..end]).ok()?;
        at = space(bytes, end);
        if *bytes.get(at)? != b':' {
            return None;
        }
        let start = space(bytes, at + 1);
        let end = value_end(bytes, start)?;
        found.push((key, start..end));
        at = space(bytes, end);
        if *bytes.get(at)? == b',' {
            at = space(bytes, at + 1);
        }
    }
    Some(found)
}

fn space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Where the value that begins at `at` ends.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut quoted, mut n) = (0_usize, false, at);
    loop {
        let byte = *bytes.get(n)?;
        n += 1;
        match byte {
            b'\\' if quoted => n += 1,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return Some(n);
                }
            }
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some(n);
                }
            }
            b',' | b'}' | b']' if depth == 0 => return Some(n - 1),
            byte if byte.is_ascii_whitespace() && depth == 0 => return Some(n - 1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn only_the_values_named_change() {
        let text = "\u{feff}{\n  \"eps\": 1e-06, \"a\\u0062\": {\"x\": [1, {\"x\": 2}], \"y\": 7},\n  \"y\": 8, \"z\": Infinity\n}\n";
        let changes = [
            (path("ab.y"), "70".to_owned()),
            (path("y"), "80".to_owned()),
        ];
        let out = edited(text, &changes, &[("more", "{}".to_owned())]).expect("paths lead on");
        let wanted = text
            .replace("\"y\": 7}", "\"y\": 70}")
            .replace("\"y\": 8,", "\"y\": 80,")
            .replace("Infinity\n}", "Infinity,\n  \"more\": {}\n}");
        assert_eq!(out, wanted);
        assert_eq!(edited(text, &[(path("ab.w"), String::new())], &[]), None);
        assert_eq!(edited(text, &[(path("eps.w"), String::new())], &[]), None);
        let alone = edited("{}", &[], &[("a", "1".to_owned()), ("b", "2".to_owned())]);
        assert_eq!(alone.as_deref(), Some("{\n  \"a\": 1,\n  \"b\": 2\n}"));
    }

    #[test]
    fn of_a_key_given_twice_the_last_counts() {
        let out = edited(r#"{"a": 1, "a": 2}"#, &[(path("a"), "3".to_owned())], &[]);
        assert_eq!(out.as_deref(), Some(r#"{"a": 1, "a": 3}"#));
    }

    proptest! {
        #[test]
        fn an_edit_is_what_a_parser_would_have_changed(
            keys in prop::collection::btree_map("[a-c\"\\\\{é]{1,3}", "[\\x00-\\x7fé]{0,8}", 1..6), pick in any::<usize>(),
        ) {
            let mut object: serde_json::Map<String, Value> = keys
                .iter()
                .enumerate()
                .map(|(n, (k, v))| (k.clone(), match n % 3 {
                    0 => Value::from(v.clone()),
                    1 => serde_json::json!({"in": [v, {"deep": n}]}),
                    _ => Value::from(n),
                }))
                .collect();
            let text = serde_json::to_string_pretty(&object).expect("it prints");
            let key = keys.keys().nth(pick % keys.len()).expect("one").clone();
            let out = edited(&text, &[(vec![key.clone()], "[4]".to_owned())], &[("new", "5".to_owned())]);
            object.insert(key, serde_json::json!([4]));
            object.insert("new".to_owned(), Value::from(5));
            let read: serde_json::Map<String, Value> = serde_json::from_str(&out.expect("a path")).expect("still JSON");
            prop_assert_eq!(read, object);
        }

        #[test]
        fn any_text_is_survived(text in "[{}\\[\\],:\"\\\\a ]{0,24}") {
            let _ = edited(&text, &[(path("a"), "1".to_owned())], &[("b", "2".to_owned())]);
        }
    }
}
