//! Says why a line is not a case, naming key and value.
//!
//! It must not parse. Layer 2.

use super::line::{KEYS, LINE_MAX};
use super::valid::InvalidCase;
use crate::terms::{UnknownWord, did_you_mean};

/// Why a line is not a case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Nothing was given.
    #[error("empty case; write key=value pairs, for example t=4,e=8,k=2")]
    Empty,
    /// The line is longer than any case.
    #[error("case line of {length} bytes; at most {LINE_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A character outside the allowed set.
    #[error("character {character:?} at byte {at}; a case line uses only a-z 0-9 = , . + - _")]
    Character {
        /// The character.
        character: char,
        /// Byte offset in the line.
        at: usize,
    },
    /// A piece that is not `key=value`.
    #[error("`{piece}` is not key=value")]
    NotKeyValue {
        /// The piece between commas.
        piece: String,
    },
    /// A key that no case has.
    #[error("unknown key `{key}`{}; one of: {}", did_you_mean(.key, KEYS), KEYS.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key given twice.
    #[error("key `{key}` is given twice")]
    Repeated {
        /// The key.
        key: &'static str,
    },
    /// A key which the given rule already decides.
    #[error("{key}={value} cannot stand beside rule={rule}, which decides it")]
    BesideRule {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The rule's id.
        rule: String,
    },
    /// A number that is none.
    #[error("{key}={value} is not {wanted}")]
    Number {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A number beyond 64 bits.
    #[error("{key}={value} does not fit 64 bits")]
    Overflow {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
    },
    /// A word outside its vocabulary.
    #[error("{key}={}: {source}", .source.word)]
    Word {
        /// The key.
        key: &'static str,
        /// The vocabulary's own complaint.
        source: UnknownWord,
    },
    /// A padding that does not read as `h64.i128.t8`.
    #[error(
        "pad={value}: write granules of the axes h, i, t, each at most once, as in pad=h64.i128.t8"
    )]
    Pad {
        /// What was given.
        value: String,
    },
    /// Values that do not make sense alone or together.
    #[error(transparent)]
    Invalid(#[from] InvalidCase),
}
