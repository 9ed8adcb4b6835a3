//! Reads single values of arguments.
//!
//! It must not know which argument they belong to. Layer 11.

use super::args::RunFormat;
use crate::run::StackVersion;
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Duration;

/// A number, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub(super) Option<u64>);

/// A seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed(pub(super) u64);

/// A count of cases, or `max`.
pub(super) fn cases(text: &str) -> Result<Count, String> {
    count(text, "max")
}

/// A count of failures, or `all`.
pub(super) fn max_fail(text: &str) -> Result<Count, String> {
    match count(text, "all")? {
        Count(Some(0)) => Err("at least 1, or `all`".to_owned()),
        count => Ok(count),
    }
}

/// `sglang=0.5.20`, or a version alone where the chosen rules are of one stack.
pub(super) fn stack_version(text: &str) -> Result<StackVersion, String> {
    let (stack, version) = match text.split_once('=') {
        Some((stack, version)) => (Some(stack.trim().to_owned()), version.trim()),
        None => (None, text.trim()),
    };
    if version.is_empty() || stack.as_ref().is_some_and(String::is_empty) {
        return Err("a version such as sglang=0.5.20, or 0.5.20".to_owned());
    }
    Ok(StackVersion {
        stack,
        version: version.to_owned(),
    })
}

fn count(text: &str, unlimited: &str) -> Result<Count, String> {
    if text == unlimited {
        return Ok(Count(None));
    }
    text.parse()
        .map(|n| Count(Some(n)))
        .map_err(|_| format!("a number below 2^64, or `{unlimited}`"))
}

/// `30s`, `10m`, `1h`, `500ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wanted = || "a time such as 500ms, 30s, 10m or 1h".to_owned();
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(wanted)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wanted())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wanted()),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(wanted)
}

/// The same for a limit of time, under which something must be able to happen.
pub(super) fn limit(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a time above 0".to_owned()),
        limit => Ok(limit),
    }
}

/// Up to 16 hexadecimal digits, or the first 16 of a git hash.
pub(super) fn seed(text: &str) -> Result<Seed, String> {
    let digits = match text.len() {
        1..=16 => Some(text),
        40 => text.get(..16),
        _ => None,
    };
    let all_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    digits
        .filter(|_| all_hex)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .map(Seed)
        .ok_or_else(|| "up to 16 hexadecimal digits, or a git hash of 40".to_owned())
}

/// `json=report.json`.
pub(super) fn export(text: &str) -> Result<(RunFormat, PathBuf), String> {
    let (format, path) = text
        .split_once('=')
        .ok_or("FORMAT=PATH, for example junit=report.xml")?;
    let format = RunFormat::from_str(format, false).map_err(|_| {
        let names: Vec<String> = RunFormat::value_variants()
            .iter()
            .filter_map(|v| Some(v.to_possible_value()?.get_name().to_owned()))
            .collect();
        format!("the format must be one of: {}", names.join(", "))
    })?;
    match path {
        "" => Err("a path after `=`".to_owned()),
        path => Ok((format, PathBuf::from(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(limit("1ms"), Ok(Duration::from_millis(1)));
        assert!(limit("0s").is_err() && limit("0ms").is_err());
        for bad in [
            "",
            "30",
            "s",
            "-1s",
            "1d",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_are_hexadecimal_or_a_git_hash() {
        assert_eq!(seed("1b2c"), Ok(Seed(0x1b2c)));
        let hash = "9f3c21aa00000001aaaaaaaaaaaaaaaaaaaaaaaa";
        assert_eq!(seed(hash), Ok(Seed(0x9f3c_21aa_0000_0001)));
        for bad in ["", "0x1", "xyz", "11111111111111111", "+1", "é"] {
            assert!(seed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_may_be_unlimited() {
        assert_eq!(cases("max"), Ok(Count(None)));
        assert_eq!(max_fail("7"), Ok(Count(Some(7))));
        assert!(max_fail("0").is_err() && cases("-1").is_err() && cases("all").is_err());
    }
}
