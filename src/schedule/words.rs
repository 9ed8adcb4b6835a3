//! How summation orders are spelled: letters, digits and hyphens, so that no shell needs quotes.

use super::Schedule;
use std::fmt;
use std::str::FromStr;

/// A word that names no summation order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no summation order `{word}`; one of: {}", Schedule::WORDS.join(", "))]
pub struct UnknownOrder {
    /// The word.
    pub word: String,
}

/// Largest size in a word: no kernel has more lanes, parts or products in a block.
const SIZE_MAX: usize = 1 << 20;

impl Schedule {
    /// The words; N and M stand for sizes from 1 on.
    pub const WORDS: [&'static str; 9] = [
        "sequential",
        "lanes-N",
        "lanes-N-tail",
        "blocked-N",
        "split-k-N",
        "split-k-NxM",
        "pairwise",
        "power-of-two",
        "mma-N",
    ];
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Sequential => f.pad("sequential"),
            Schedule::Lanes(n) => f.pad(&format!("lanes-{n}")),
            Schedule::LanesTail(n) => f.pad(&format!("lanes-{n}-tail")),
            Schedule::Blocked(n) => f.pad(&format!("blocked-{n}")),
            Schedule::SplitK(n) => f.pad(&format!("split-k-{n}")),
            Schedule::SplitTiles { parts, tile } => f.pad(&format!("split-k-{parts}x{tile}")),
            Schedule::Pairwise => f.pad("pairwise"),
            Schedule::PowerOfTwo => f.pad("power-of-two"),
            Schedule::Mma(n) => f.pad(&format!("mma-{n}")),
        }
    }
}

impl FromStr for Schedule {
    type Err = UnknownOrder;

    fn from_str(word: &str) -> Result<Schedule, UnknownOrder> {
        let size = |text: &str| {
            let size: usize = text.parse().ok()?;
            (1..=SIZE_MAX).contains(&size).then_some(size)
        };
        let of = |prefix: &str| word.strip_prefix(prefix);
        let parsed = match word {
            "sequential" => Some(Schedule::Sequential),
            "pairwise" => Some(Schedule::Pairwise),
            "power-of-two" => Some(Schedule::PowerOfTwo),
            _ => None,
        };
        let lanes = || match of("lanes-")?.strip_suffix("-tail") {
            Some(n) => Some(Schedule::LanesTail(size(n)?)),
            None => Some(Schedule::Lanes(size(of("lanes-")?)?)),
        };
        let split = || match of("split-k-")?.split_once('x') {
            Some((parts, tile)) => Some(Schedule::SplitTiles {
                parts: size(parts)?,
                tile: size(tile)?,
            }),
            None => Some(Schedule::SplitK(size(of("split-k-")?)?)),
        };
        parsed
            .or_else(lanes)
            .or_else(split)
            .or_else(|| Some(Schedule::Blocked(size(of("blocked-")?)?)))
            .or_else(|| Some(Schedule::Mma(size(of("mma-")?)?)))
            // One spelling each: no sign, no leading zero.
            .filter(|order| order.to_string() == word)
            .ok_or_else(|| UnknownOrder {
                word: word.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_as_it_is_spelled() {
        for word in Schedule::WORDS {
            let word = word.replace('N', "16").replace('M', "32");
            let order: Schedule = word.parse().unwrap();
            assert_eq!(order.to_string(), word);
        }
        for wrong in [
            "",
            "lanes",
            "lanes-",
            "lanes-0",
            "lanes-016",
            "lanes-+4",
            "lanes-16-",
            "split-k-4x",
            "mma--1",
            "Pairwise",
            "blocked-99999999999999999999",
        ] {
            let error = wrong.parse::<Schedule>().unwrap_err();
            assert!(error.to_string().contains("lanes-N-tail"), "{error}");
        }
    }
}
