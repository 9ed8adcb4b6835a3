//! Says what is wrong with a model argument: always the file, the key and the value.
//!
//! It decides nothing. Layer 2.

use crate::terms::{UnknownWord, WeightFormat};

/// What one file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Path as given.
    pub file: String,
    /// Where it says so.
    pub key: String,
    /// What it says.
    pub value: String,
}

/// Why a model could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No file of that name, and it does not look like a built-in name.
    #[error("{given}: no such file or directory")]
    NoFile {
        /// The argument.
        given: String,
    },
    /// Neither a file nor a built-in name.
    #[error("{given}: no such file or directory, and no built-in model has that name{}; `padproof list models` names all {known}", hint(.near))]
    NoModel {
        /// The argument.
        given: String,
        /// The nearest built-in name.
        near: Option<String>,
        /// How many there are.
        known: usize,
    },
    /// The file could not be read.
    #[error("{file}: {source}")]
    Io {
        /// Path as given.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A directory without a config.
    #[error("{dir}: the directory has no config.json")]
    NoConfig {
        /// Path as given.
        dir: String,
    },
    /// The file is larger than any config.
    #[error("{file}: larger than {limit} bytes, which no config is")]
    TooBig {
        /// Path as given.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is not text.
    #[error("{file}: not UTF-8 text (byte {at} is not)")]
    NotUtf8 {
        /// Path as given.
        file: String,
        /// Offset of the first bad byte.
        at: usize,
    },
    /// The text is not JSON.
    #[error("{file}: not valid JSON: {source}{place}")]
    Json {
        /// Path as given.
        file: String,
        /// The key whose value it is and what stands there, behind a space; or nothing.
        place: String,
        /// What the parser said, with line and column.
        source: serde_json::Error,
    },
    /// The JSON is not an object where one is needed.
    #[error("{file}: {key} is {value}, where an object is needed")]
    NotObject {
        /// Path as given.
        file: String,
        /// The key, or `the top level`.
        key: String,
        /// The value as written, shortened.
        value: String,
    },
    /// A model without routed experts.
    #[error("{file}: not a Mixture-of-Experts model: {why}")]
    NotMoe {
        /// Path as given.
        file: String,
        /// What was looked for and not found.
        why: NotMoe,
    },
    /// Two files that give the same weights different formats.
    #[error("{}: {} says that the {part} are {}, but {}: {} says {}; one of the two is stale", .own.file, .own.key, .own.value, .beside.file, .beside.key, .beside.value)]
    Disagree {
        /// Which weights.
        part: &'static str,
        /// What the config says.
        own: Box<Said>,
        /// What the file beside it says.
        beside: Box<Said>,
    },
    /// A needed key is absent.
    #[error("{file}: no {what}: none of {} is there{note}", .keys.join(", "))]
    Missing {
        /// Path as given.
        file: String,
        /// What the key would say.
        what: &'static str,
        /// The spellings looked for.
        keys: Vec<String>,
        /// More to say, beginning with a separator, or nothing.
        note: &'static str,
    },
    /// A needed key is null.
    #[error("{file}: {key} is null, but the {what} is needed")]
    Null {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// What the key says.
        what: &'static str,
    },
    /// A value of the wrong kind.
    #[error("{file}: {key} is {value}, {found} where {wanted} is needed")]
    Kind {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// The value as written, shortened.
        value: String,
        /// What kind of value it is.
        found: &'static str,
        /// What kind is needed.
        wanted: &'static str,
    },
    /// A number below the least one.
    #[error("{file}: {key} is {value}, but must be at least {least}")]
    TooSmall {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// The value as written, shortened.
        value: String,
        /// The least number taken.
        least: u64,
    },
    /// A number above the largest one.
    #[error("{file}: {key} is {value}, but must be at most {most}")]
    TooLarge {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// The value as written, shortened.
        value: String,
        /// The largest number taken.
        most: u64,
    },
    /// Sizes that are fine each by itself and not together.
    #[error("{file}: {sizes} are more weights than any model has")]
    TooMany {
        /// Path as given.
        file: String,
        /// Keys and sizes.
        sizes: String,
    },
    /// A real number that must be above zero.
    #[error("{file}: {key} is {value}, but must be above 0")]
    NotPositive {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Two spellings of one thing disagree.
    #[error("{file}: {key} is {value}, but {other} is {other_value}; they mean the same")]
    Conflict {
        /// Path as given.
        file: String,
        /// One key.
        key: String,
        /// Its value.
        value: String,
        /// The other key.
        other: String,
        /// Its value.
        other_value: String,
    },
    /// A list with one value per layer, where layers differ.
    #[error("{file}: {key} is a list of different sizes ({value}), where one is needed")]
    Uneven {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// The list in words, with the first few of what stands there.
        value: String,
    },
    /// A list of sizes that is not one value per layer.
    #[error(
        "{file}: {key} is a list of {length} sizes, and {other}: one a layer is needed, or one number"
    )]
    Length {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// How many sizes it has.
        length: usize,
        /// How many layers, or sizes in another list, there are, a clause.
        other: String,
    },
    /// More experts chosen than there are.
    #[error("{file}: {key} is {top_k}, but only {experts} experts can be chosen{}", grouped(.groups, .keep))]
    TopK {
        /// Path as given.
        file: String,
        /// The key of top_k.
        key: String,
        /// Its value.
        top_k: u64,
        /// Experts that can be chosen: all, or those in the kept groups.
        experts: u64,
        /// Expert groups.
        groups: u64,
        /// Groups kept.
        keep: u64,
    },
    /// Expert groups that do not divide the experts.
    #[error("{file}: {key} is {groups}, which does not divide {experts} experts")]
    Groups {
        /// Path as given.
        file: String,
        /// The key of the groups.
        key: String,
        /// Its value.
        groups: u64,
        /// Experts.
        experts: u64,
    },
    /// A word outside a vocabulary: activation, scoring function, quantisation.
    #[error("{file}: {key}: {source}")]
    Word {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// The word and the valid ones.
        source: UnknownWord,
    },
    /// A constant other than the one the activation or router is defined with here.
    #[error("{file}: {key} is {value}, but {word} is only known with {wanted}")]
    Constant {
        /// Path as given.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The activation or router.
        word: &'static str,
        /// The constant.
        wanted: f32,
    },
    /// Weights of one part in several formats.
    #[error("{file}: {key}: {what}; one format for all of them is needed")]
    Mixture {
        /// Path as given.
        file: String,
        /// The key of the quantisation.
        key: String,
        /// The formats in words.
        what: String,
    },
    /// A quantisation that no weight format describes.
    #[error("{file}: {key}: {what} is no format known here; known: {}", formats())]
    NoFormat {
        /// Path as given.
        file: String,
        /// The key of the quantisation.
        key: String,
        /// The quantisation in words.
        what: String,
    },
}

/// Why a model counts as having no experts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotMoe {
    /// No key counts experts.
    #[error("no number of experts; looked for {}{}", .keys.join(", "), inside(.scopes))]
    NoKey {
        /// The spellings looked for.
        keys: Vec<&'static str>,
        /// The nested objects looked into.
        scopes: Vec<String>,
    },
    /// A switch turns the experts off.
    #[error("{key} is false")]
    SwitchedOff {
        /// The switch.
        key: String,
    },
    /// Every layer is something else.
    #[error("{key} leaves no layer with experts{}", of_another_length(.lists))]
    NoLayer {
        /// The key that places the experts.
        key: String,
        /// The layers that it lists and those that the config counts, where they are not as many.
        lists: Option<(u64, u64)>,
    },
}

fn of_another_length(lists: &Option<(u64, u64)>) -> String {
    lists.map_or(String::new(), |(listed, counted)| {
        format!("; it lists {listed} layers, and the config counts {counted}")
    })
}

fn hint(near: &Option<String>) -> String {
    near.as_ref()
        .map_or(String::new(), |n| format!(" (did you mean `{n}`?)"))
}

fn grouped(groups: &u64, keep: &u64) -> String {
    if *groups > 1 {
        format!(" in {keep} of {groups} groups")
    } else {
        String::new()
    }
}

fn inside(scopes: &[String]) -> String {
    if scopes.is_empty() {
        String::new()
    } else {
        format!(", at the top level and in {}", scopes.join(", "))
    }
}

fn formats() -> String {
    let names: Vec<&str> = WeightFormat::ALL.iter().map(|f| f.name()).collect();
    names.join(", ")
}
