//! Versions of a stack: how a rule's range is spelled, and whether a release lies in it.
//!
//! It must not choose rules. Layer 2.

use serde::Deserialize;
use std::cmp::Ordering;

/// A release number such as `0.5.23`, `v1.2.0rc3` or `0.33.0.post1`.
///
/// Numbers compare one by one and missing ones are 0; `a`, `b`, `rc` and `dev` come before the
/// release of the same numbers, `post` after it. What follows `+` is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    numbers: Vec<u64>,
    /// (-1, n) for pre-releases, (0, 0) for the release, (1, n) for post-releases.
    suffix: (i8, u64),
}

impl Release {
    /// Reads a release number; none if the text is not one.
    pub fn parse(text: &str) -> Option<Release> {
        let text = text.trim().trim_start_matches('v');
        let text = text.split('+').next().unwrap_or(text);
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let numbers: Option<Vec<u64>> = numbers
            .trim_end_matches('.')
            .split('.')
            .map(|n| n.parse().ok())
            .collect();
        let word = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = rest[word.len()..].parse().unwrap_or(0);
        let place = match word.trim_start_matches(['-', '.']) {
            "" if rest.is_empty() => 0,
            "a" | "b" | "rc" | "dev" | "alpha" | "beta" => -1,
            "post" => 1,
            _ => return None,
        };
        let mut numbers = numbers?;
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Some(Release {
            numbers,
            suffix: (place, number),
        })
    }
}

impl Ord for Release {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.numbers, self.suffix).cmp(&(&other.numbers, other.suffix))
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One end of a range: a release, or a change that no release number is known for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Bound {
    /// A release, as it was written and as it compares.
    Release(String, Release),
    /// A pull request, commit or date, in words.
    Change(String),
}

impl From<String> for Bound {
    fn from(text: String) -> Self {
        match Release::parse(&text) {
            Some(release) => Bound::Release(text, release),
            None => Bound::Change(text),
        }
    }
}

impl Bound {
    /// As it was written.
    pub fn text(&self) -> &str {
        match self {
            Bound::Release(text, _) | Bound::Change(text) => text,
        }
    }

    fn release(&self) -> Option<&Release> {
        match self {
            Bound::Release(_, release) => Some(release),
            Bound::Change(_) => None,
        }
    }
}

/// Whether a rule holds for a version asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It was read at this version, or the range says so.
    Yes,
    /// The range excludes it.
    No,
    /// Nothing was read that tells.
    Unread,
}

/// Whether a rule that was read at `read` and holds from `since` (inclusive) until `until`
/// (exclusive) holds at `asked`. Between an end that is given and the version that was read it
/// does; beyond that nothing is known.
pub(super) fn held(read: &str, since: Option<&Bound>, until: Option<&Bound>, asked: &str) -> Held {
    let asked_release = Release::parse(asked);
    let read_release = Release::parse(read);
    let same = asked == read || (asked_release.is_some() && asked_release == read_release);
    if same {
        return Held::Yes;
    }
    let Some(release) = asked_release else {
        // A change is compared with the ends of the range by its words alone.
        let named = |end: Option<&Bound>| end.is_some_and(|bound| bound.text() == asked);
        return match (named(since), named(until)) {
            (true, _) => Held::Yes,
            (_, true) => Held::No,
            _ => Held::Unread,
        };
    };
    let asked = release;
    let (from, to) = (
        since.and_then(Bound::release),
        until.and_then(Bound::release),
    );
    if from.is_some_and(|f| asked < *f) || to.is_some_and(|t| asked >= *t) {
        return Held::No;
    }
    let below = read_release.as_ref().is_some_and(|r| asked < *r);
    let above = read_release.as_ref().is_some_and(|r| asked > *r);
    let known = match (from.is_some(), to.is_some()) {
        (true, true) => true,
        (true, false) => below,
        (false, true) => above,
        (false, false) => false,
    };
    if known { Held::Yes } else { Held::Unread }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> Release {
        Release::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn releases_are_ordered_as_packages_order_them() {
        let rising = [
            "0.5.9",
            "0.5.10rc1",
            "0.5.10rc2",
            "0.5.10",
            "0.5.10.post1",
            "0.5.23",
            "0.6",
            "1.2.0rc3",
            "v1.2",
        ];
        for pair in rising.windows(2) {
            assert!(release(pair[0]) < release(pair[1]), "{pair:?}");
        }
        assert_eq!(release("0.6"), release("0.6.0+cu130"));
        for text in [
            "",
            "pull request 22627",
            "e4048607",
            "1..2",
            "1.x",
            "99999999999999999999",
        ] {
            assert_eq!(Release::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_says_yes_no_or_that_nothing_was_read() {
        let bound = |text: &str| Bound::from(text.to_owned());
        let (a, b) = (bound("0.5.10"), bound("0.6"));
        let ask = |since, until, asked| held("0.5.23", since, until, asked);
        assert_eq!(ask(None, None, "0.5.23"), Held::Yes);
        assert_eq!(ask(None, None, "v0.5.23"), Held::Yes);
        assert_eq!(ask(None, None, "0.5.22"), Held::Unread);
        assert_eq!(ask(Some(&a), None, "0.5.9"), Held::No);
        assert_eq!(ask(Some(&a), None, "0.5.10"), Held::Yes);
        assert_eq!(ask(Some(&a), None, "0.5.24"), Held::Unread);
        assert_eq!(ask(Some(&a), Some(&b), "0.5.24"), Held::Yes);
        assert_eq!(ask(Some(&a), Some(&b), "0.6.0"), Held::No);
        assert_eq!(
            ask(None, Some(&bound("pull request 1")), "0.4"),
            Held::Unread
        );
        assert_eq!(
            held("commit e4048607", None, None, "commit e4048607"),
            Held::Yes
        );
        assert_eq!(held("commit e4048607", None, None, "0.1"), Held::Unread);
    }
}
