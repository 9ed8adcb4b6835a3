//! Says which layers' modules a list of module patterns covers: names, globs, `re:` patterns.
//!
//! It must not know quantisation. Layer 2. Every family writes other prefixes before `layers.`,
//! so patterns are compared from there on. Of regular expressions it reads what such lists use
//! (`.*`, escapes, alternatives, classes); one it cannot read covers nothing and is counted.

use std::collections::{HashMap, HashSet};

/// Patterns without a literal layer number that are looked at; real lists have a dozen.
const GENERAL_LIMIT: usize = 256;
/// Alternatives that one regular expression may expand to.
const EXPANSION_LIMIT: usize = 256;
/// Bytes of one pattern; longer ones are not read.
const LENGTH_LIMIT: usize = 1024;
/// Nesting of groups in a regular expression.
const DEPTH_LIMIT: u32 = 8;

/// A list of module patterns.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    layered: HashMap<u64, Layered>,
    /// Names of modules in any layer, between dots; lists name every module of every expert.
    plain: HashSet<String>,
    general: Vec<Pattern>,
    /// The least and the largest expert but the first that patterns name.
    experts: Option<(u64, u64)>,
    /// Patterns of multi-token-prediction modules that are numbered by themselves.
    draft: Vec<Pattern>,
    /// Patterns that could not be read.
    pub(super) unread: usize,
}

/// Patterns of one layer; lists name every module of every expert.
#[derive(Debug, Default)]
struct Layered {
    /// Beginnings of modules' names, between dots.
    plain: HashSet<String>,
    wild: Vec<Pattern>,
}

impl Layered {
    /// Whether one covers a module's name, given between dots.
    fn hits(&self, name: &str) -> bool {
        let mut ends = name.match_indices('.').skip(1);
        ends.any(|(end, _)| self.plain.contains(&name[..=end]))
            || self.wild.iter().any(|pattern| pattern.hits(name))
    }
}

#[derive(Debug)]
enum Pattern {
    /// A module's name or the end of one, between dots.
    Plain(String),
    /// `*` for any characters, `?` for one; matches from start to end.
    Wild(String),
}

impl Pattern {
    /// Whether it covers a module's name, given between dots.
    fn hits(&self, name: &str) -> bool {
        match self {
            Pattern::Plain(text) => name.contains(text),
            // The dots around the name are for plain patterns.
            Pattern::Wild(text) => wild(text.as_bytes(), name.trim_matches('.').as_bytes()),
        }
    }
}

impl Patterns {
    /// Reads the patterns.
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut all = Patterns::default();
        for text in texts {
            if text.len() > LENGTH_LIMIT {
                all.unread += 1;
                continue;
            }
            match text.strip_prefix("re:") {
                None => all.push(text, text.contains(['*', '?'])),
                Some(regex) => match expand(&format!("({regex})"), 0) {
                    Some(wild) => wild.iter().for_each(|w| all.push(&anchored(w), true)),
                    None => all.unread += 1,
                },
            }
        }
        all
    }

    fn push(&mut self, text: &str, wild: bool) {
        if let Some(at) = text
            .find("mtp")
            .filter(|_| self.draft.len() < GENERAL_LIMIT)
        {
            let text = &text[at..];
            self.draft.push(match wild {
                true => Pattern::Wild(text.to_owned()),
                false => Pattern::Plain(format!(".{text}.")),
            });
        }
        let Some(text) = from_layers(text) else {
            return;
        };
        let layer = text.strip_prefix("layers.").and_then(|rest| {
            let digits = rest.split('.').next()?;
            digits.parse().ok()
        });
        match (layer, wild) {
            (Some(layer), false) => {
                let own = self.layered.entry(layer).or_default();
                own.plain.insert(format!(".{text}."));
            }
            (Some(layer), true) => {
                let own = self.layered.entry(layer).or_default();
                own.wild.push(Pattern::Wild(text.to_owned()));
            }
            (None, false) => {
                self.plain.insert(format!(".{text}."));
            }
            (None, true) if self.general.len() < GENERAL_LIMIT => {
                self.general.push(Pattern::Wild(text.to_owned()));
            }
            (None, true) => {
                self.unread += 1;
                return;
            }
        }
        if let Some(n @ 1..) = expert(text) {
            let (least, most) = self.experts.unwrap_or((n, n));
            self.experts = Some((least.min(n), most.max(n)));
        }
    }

    /// Experts but the first that patterns name: the least and the largest.
    pub(super) fn experts(&self) -> Option<(u64, u64)> {
        self.experts
    }

    /// Whether a module `mtp.layers.0.TAIL` is covered, for any of `tails`.
    pub(super) fn covers_draft(&self, tails: &[String]) -> bool {
        let names = || tails.iter().map(|tail| format!(".mtp.layers.0.{tail}."));
        self.draft
            .iter()
            .any(|pattern| names().any(|name| pattern.hits(&name)))
    }

    /// Whether a plain pattern is a part of a module's name, between dots.
    fn names(&self, name: &str) -> bool {
        let dots = || name.match_indices('.').map(|(at, _)| at);
        !self.plain.is_empty()
            && dots().any(|from| {
                let mut ends = dots().filter(|end| *end > from);
                ends.any(|end| self.plain.contains(&name[from..=end]))
            })
    }

    /// Of `layers`, how many have a module `layers.N.TAIL` that is covered, for any of `tails`.
    pub(super) fn covered(&self, layers: &[u64], tails: &[String]) -> usize {
        if self.layered.is_empty() && self.plain.is_empty() && self.general.is_empty() {
            return 0;
        }
        let any = |layer: u64| {
            let names: Vec<String> = tails
                .iter()
                .map(|tail| format!(".layers.{layer}.{tail}."))
                .collect();
            let own = self.layered.get(&layer);
            names.iter().any(|name| {
                own.is_some_and(|own| own.hits(name))
                    || self.names(name)
                    || self.general.iter().any(|pattern| pattern.hits(name))
            })
        };
        layers.iter().filter(|layer| any(**layer)).count()
    }
}

/// The number of the expert that a pattern names.
fn expert(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("experts.")?;
    rest.split('.').next()?.parse().ok()
}

/// The pattern from `layers.` on; none for parts that are not the language model's layers.
fn from_layers(text: &str) -> Option<&str> {
    let mut from = 0;
    while let Some(at) = text[from..].find("layers.").map(|at| from + at) {
        if at == 0 || text[..at].ends_with(['.', '*']) {
            let before = &text[..at];
            let other = ["vision", "visual", "audio", "mtp"]
                .iter()
                .any(|w| before.contains(w));
            return (!other).then_some(&text[at..]);
        }
        from = at + 1;
    }
    Some(text)
}

/// `re:` patterns are anchored at the start only.
fn anchored(wild: &str) -> String {
    match wild.strip_suffix('$') {
        Some(exact) => exact.to_owned(),
        None => format!("{wild}*"),
    }
}

/// The globs that together say what a regular expression says, or none if it uses more.
fn expand(regex: &str, depth: u32) -> Option<Vec<String>> {
    if depth > DEPTH_LIMIT {
        return None;
    }
    let mut found = vec![String::new()];
    let mut rest = regex;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let mut one = match c {
            '^' => continue,
            '[' => {
                let (one, after) = class(rest)?;
                rest = after;
                one
            }
            '.' | '\\' => {
                let (atom, after) = atom(c, rest)?;
                rest = after;
                vec![atom]
            }
            '(' => {
                let (inner, after) = group(rest)?;
                rest = after;
                let mut all = Vec::new();
                for part in inner {
                    all.extend(expand(part, depth + 1)?);
                }
                all
            }
            '*' | '+' | '?' | '{' | ')' | '|' => return None,
            other => vec![other.to_string()],
        };
        if let Some(after) = rest.strip_prefix(['*', '+']) {
            // Anything repeated is taken as anything.
            rest = after.strip_prefix('?').unwrap_or(after);
            one = vec!["*".to_owned()];
        }
        if let [only] = one.as_slice() {
            found.iter_mut().for_each(|text| text.push_str(only));
            continue;
        }
        if found.len() * one.len() > EXPANSION_LIMIT {
            return None;
        }
        found = found
            .iter()
            .flat_map(|a| one.iter().map(move |b| format!("{a}{b}")))
            .collect();
    }
    Some(found)
}

/// One character's worth of pattern that begins with `c`, and what follows it.
fn atom(c: char, rest: &str) -> Option<(String, &str)> {
    match c {
        '.' => Some(("?".to_owned(), rest)),
        _ => {
            let next = rest.chars().next()?;
            let after = &rest[next.len_utf8()..];
            let text = if matches!(next, 'd' | 'w') {
                "?".to_owned()
            } else {
                next.to_string()
            };
            Some((text, after))
        }
    }
}

/// What a class of characters may be, and what follows it: each digit where it is of some digits alone, else anything.
fn class(rest: &str) -> Option<(Vec<String>, &str)> {
    let (inner, after) = rest.split_once(']')?;
    let mut digits = Vec::new();
    let mut left = inner.as_bytes();
    while let [first @ b'0'..=b'9', more @ ..] = left {
        let (last, more) = match more {
            [b'-', last @ b'0'..=b'9', more @ ..] => (last, more),
            more => (first, more),
        };
        digits.extend((*first..=*last).map(|digit| char::from(digit).to_string()));
        left = more;
    }
    match left.is_empty() && (1..10).contains(&digits.len()) {
        true => Some((digits, after)),
        false => Some((vec!["?".to_owned()], after)),
    }
}

/// The alternatives up to the closing parenthesis, and what follows it.
fn group(rest: &str) -> Option<(Vec<&str>, &str)> {
    let rest = rest.strip_prefix("?:").unwrap_or(rest);
    let (mut depth, mut from, mut parts, mut skip) = (0_u32, 0, Vec::new(), false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if skip => skip = false,
            '\\' => skip = true,
            '(' => depth += 1,
            ')' if depth == 0 => {
                parts.push(&rest[from..at]);
                return Some((parts, &rest[at + 1..]));
            }
            ')' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&rest[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// Whether a glob matches all of `name`; linear in memory, no recursion.
fn wild(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    g = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(pattern: &str, tail: &str) -> usize {
        Patterns::new([pattern].into_iter()).covered(&[0, 1, 2], &[tail.to_owned()])
    }

    #[test]
    fn names_cover_what_lies_below_them() {
        assert_eq!(covered("model.layers.1.mlp", "mlp.down_proj"), 1);
        assert_eq!(covered("mlp", "mlp.experts.0.down_proj"), 3);
        assert_eq!(covered("model.layers.1.mlp.gate", "mlp.gate_proj"), 0);
        assert_eq!(covered("gate", "mlp.gate_proj"), 0);
    }

    #[test]
    fn globs_match_from_start_to_end() {
        assert_eq!(
            covered("model.language_model.layers.1.mlp*", "mlp.down_proj"),
            1
        );
        assert_eq!(
            covered("*.ffn.shared_experts.*", "ffn.shared_experts.down_proj"),
            3
        );
        assert_eq!(covered("model.layers.1*", "mlp.down_proj"), 1);
        assert_eq!(covered("mtp.layers.0*", "mlp.down_proj"), 0);
    }

    #[test]
    fn regular_expressions_are_read_as_far_as_lists_use_them() {
        assert_eq!(
            covered(r"re:.*shared_experts.*", "mlp.shared_experts.up_proj"),
            3
        );
        assert_eq!(
            covered(r"re:.*mlp\.(gate|up|down)_proj.*", "mlp.down_proj"),
            3
        );
        assert_eq!(
            covered(
                r"re:.*mlp\.(gate|up|down)_proj.*",
                "mlp.experts.0.down_proj"
            ),
            0
        );
        assert_eq!(
            covered(
                r"re:.*\.mlp\.shared_expert\.up_proj$",
                "mlp.shared_expert.up_proj"
            ),
            3
        );
        assert_eq!(
            covered(r"re:model\.layers\.(0|2)\.mlp\..*", "mlp.up_proj"),
            2
        );
        assert_eq!(covered(r"re:.*layers\.[0-9]+\.mlp", "mlp.up_proj"), 3);
        assert_eq!(covered(r"re:.*layers\.[0-9]\.mlp", "mlp.up_proj"), 3);
        assert_eq!(covered(r"re:.*layers\.[1-9]\.mlp", "mlp.up_proj"), 2);
    }

    #[test]
    fn what_cannot_be_read_covers_nothing_and_is_counted() {
        for regex in [
            "re:(",
            "re:a{2}",
            "re:a)",
            &format!("re:{}", "(".repeat(100_000)),
        ] {
            let patterns = Patterns::new([regex].into_iter());
            assert_eq!(patterns.unread, 1);
            assert_eq!(patterns.covered(&[0], &["mlp".to_owned()]), 0);
        }
    }
}
