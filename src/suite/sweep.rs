//! Expands a sweep to the product of its keys' values.
//!
//! It must not parse case lines. Layer 8.

use super::error::Fault;
use toml::Value;

/// The values of one swept key, as case-line text.
pub(super) struct Axis {
    pub(super) key: &'static str,
    pub(super) values: Vec<String>,
}

/// Largest number of values of one key, far above any useful sweep.
const VALUES_MAX: u64 = 10_000;

/// What a swept value may be.
const WANTED: &str = "a whole number, a word, a range such as \"31..=33\", or a list of those";

/// Reads one key's values: a list, or a single value.
pub(super) fn axis(entry: &str, key: &'static str, value: &Value) -> Result<Axis, Fault> {
    let single = std::slice::from_ref(value);
    let list = value.as_array().map_or(single, Vec::as_slice);
    let fault = |given: &Value, wanted| Fault::Value {
        name: entry.to_owned(),
        key: key.to_owned(),
        value: given.to_string(),
        wanted,
    };
    let mut values: Vec<String> = Vec::new();
    for given in list {
        let new = match given {
            // Digits would read as hexadecimal in the line and as decimal in the file.
            Value::Integer(_) if key == "seed" => {
                return Err(fault(given, "a seed in quotes (it is hexadecimal)"));
            }
            Value::Integer(n) => vec![n.to_string()],
            Value::Float(x) if key == "factor" => vec![x.to_string()],
            Value::String(text) => match range(text) {
                None => vec![text.clone()],
                Some(Some((first, last))) => (first..=last).map(|n| n.to_string()).collect(),
                Some(None) => return Err(fault(given, "a range of at most 10000 numbers")),
            },
            _ => return Err(fault(given, WANTED)),
        };
        for text in new {
            if values.contains(&text) {
                return Err(fault(value, "free of repeated values"));
            }
            values.push(text);
        }
    }
    if values.is_empty() {
        return Err(fault(value, "a list with at least one value"));
    }
    Ok(Axis { key, values })
}

/// `None` if the text is no range, `Some(None)` if it is an unusable one.
fn range(text: &str) -> Option<Option<(u64, u64)>> {
    let (first, last) = text.split_once("..=")?;
    let bounds = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
    Some(bounds.filter(|(first, last)| first <= last && last - first < VALUES_MAX))
}

/// Every combination as `i=33,tp=2`, the last key fastest; `None` above `max`.
pub(super) fn product(axes: &[Axis], max: usize) -> Option<Vec<String>> {
    let count = axes
        .iter()
        .try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()))?;
    if count > max {
        return None;
    }
    let mut lines = vec![String::new()];
    for Axis { key, values } in axes {
        lines = lines
            .iter()
            .flat_map(|line| {
                values.iter().map(move |value| {
                    let comma = if line.is_empty() { "" } else { "," };
                    format!("{line}{comma}{key}={value}")
                })
            })
            .collect();
    }
    Some(lines)
}
