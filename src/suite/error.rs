//! Says what is wrong with a suite file, naming file, line, entry, key and value.
//!
//! It must not parse. Layer 8.

use crate::case::ParseError;
use crate::terms::{CODES, did_you_mean};

/// Why a text is not a suite.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {fault}")]
#[non_exhaustive]
pub struct SuiteError {
    /// The file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    #[source]
    pub fault: Box<Fault>,
}

/// What is wrong at a place in a suite file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not TOML, or a key or type that no suite has.
    #[error("{message}")]
    Toml {
        /// The parser's complaint.
        message: String,
    },
    /// A name that could not be part of a full name.
    #[error("name `{name}`: use 1 to 64 of the characters a-z 0-9 . _ -")]
    Name {
        /// The name.
        name: String,
    },
    /// Two entries of one name.
    #[error("entry `{name}` exists already, at line {first}")]
    Duplicate {
        /// The full name.
        name: String,
        /// Line of the first.
        first: usize,
    },
    /// A key that a sweep does not have, and that is no case key.
    #[error("entry `{name}`: unknown key `{key}`{}", hint(.key))]
    UnknownKey {
        /// The entry.
        name: String,
        /// The key.
        key: String,
    },
    /// A case line that does not parse.
    #[error("entry `{name}`: {source}")]
    Case {
        /// The entry.
        name: String,
        /// The line's fault.
        source: ParseError,
    },
    /// A dispatch that neither the file nor the program has.
    #[error("entry `{name}`: {message}")]
    Dispatch {
        /// The entry.
        name: String,
        /// What the rules say.
        message: String,
    },
    /// A value that does not fit its key.
    #[error("entry `{name}`: {key} = {value} is not {wanted}")]
    Value {
        /// The entry.
        name: String,
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A rule that is not shipped.
    #[error("entry `{name}`: {message}")]
    Rule {
        /// The entry.
        name: String,
        /// What was looked for, and the nearest.
        message: String,
    },
    /// More experts chosen than there are.
    #[error("entry `{name}`: model.top_k = {top_k}, but only {experts} experts can be chosen")]
    TopK {
        /// The entry.
        name: String,
        /// Experts chosen.
        top_k: u64,
        /// Experts.
        experts: u64,
    },
    /// A finding code that no plan has.
    #[error("entry `{name}`: {key}: no code `{code}`{}; one of: {}", did_you_mean(.code, CODES), CODES.join(", "))]
    Code {
        /// The entry.
        name: String,
        /// The key.
        key: &'static str,
        /// The code.
        code: String,
    },
    /// An expected failure or vacuous verdict without a reason.
    #[error("entry `{name}`: expect = \"{word}\" needs `why`, the reason in a sentence")]
    NoReason {
        /// The entry.
        name: String,
        /// What is expected.
        word: String,
    },
    /// A rule and a scheme together.
    #[error("entry `{name}`: give either `rule` or `scheme` (`refine` goes with `scheme`)")]
    TwoRules {
        /// The entry.
        name: String,
    },
    /// A sweep that sweeps nothing.
    #[error("entry `{name}` sweeps no key; write it as [[case]]")]
    NothingSwept {
        /// The entry.
        name: String,
    },
    /// More cases than a suite may expand to.
    #[error("entry `{name}` brings the suite over {max} entries")]
    TooMany {
        /// The entry.
        name: String,
        /// The largest number.
        max: usize,
    },
}

fn hint(key: &str) -> String {
    let known: Vec<&str> = super::raw::ENTRY_KEYS
        .iter()
        .chain(crate::case::KEYS)
        .copied()
        .collect();
    did_you_mean(key, &known)
}
