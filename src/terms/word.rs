//! One spelling per word: parsing, printing, and the nearest word on a slip. Layer 1.

/// A word that is not in a vocabulary, with the nearest one that is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{word}`{}; one of: {}", did_you_mean(.word, .valid), .valid.join(", "))]
#[non_exhaustive]
pub struct UnknownWord {
    /// What kind of word was wanted, for example `activation`.
    pub kind: &'static str,
    /// What was given.
    pub word: String,
    /// Every valid word.
    pub valid: Vec<String>,
}

/// Text from a file or a command line on one line, without what would move a terminal's cursor or turn
/// the direction of writing (Unicode's bidirectional controls).
pub fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let safe = |c: char| if c.is_control() || turns(c) { ' ' } else { c };
    text.chars().map(safe).collect()
}

/// The candidate nearest to `word` by edit distance, small and capital letters alike, when it is near enough to
/// be a slip.
pub fn nearest<'a, S: AsRef<str>>(word: &str, candidates: &'a [S]) -> Option<&'a str> {
    let small = word.to_lowercase();
    let distance = |c: &str| strsim::damerau_levenshtein(&small, &c.to_lowercase());
    candidates
        .iter()
        .map(|c| (distance(c.as_ref()), c.as_ref()))
        .filter(|(distance, c)| *distance <= 2.max(c.len() / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// The question that ends a sentence about an unknown word, empty where no candidate is near.
pub fn did_you_mean<S: AsRef<str>>(word: &str, candidates: &[S]) -> String {
    nearest(word, candidates).map_or(String::new(), |n| format!(" (did you mean `{n}`?)"))
}

/// Gives an enum one spelling per variant: `ALL`, `name()`, `Display`, `FromStr`.
macro_rules! words {
    ($(#[$meta:meta])* $type:ident, $kind:literal { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $($(#[$vmeta])* $variant),+ }
        impl $type {
            /// Every word, in the order in which lists print them.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];
            /// The one spelling, used in case lines, files and output.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
        impl FromStr for $type {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|v| v.name() == word).ok_or_else(|| UnknownWord {
                    kind: $kind,
                    word: word.to_owned(),
                    valid: Self::ALL.iter().map(|v| v.name().to_owned()).collect(),
                })
            }
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let word = String::deserialize(d)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(super) use words;

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn nothing_moves_a_cursor_or_turns_the_direction_of_writing() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a [31mb ");
        assert_eq!(plain("X\u{202e}\u{2066}\u{200f}Y"), "X   Y");
        assert_eq!(plain("Qwen3-é-模型"), "Qwen3-é-模型");
    }
}
