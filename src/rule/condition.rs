//! When a part of a rule applies, and the alignments, refusals and limits that depend on it
//! (facts/upstream-padding.md 5, fields 2 and 12).
//!
//! It must not evaluate them: that is `plan`. Layer 2.

use crate::terms::{Activation, WeightFormat};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// When a granule, refusal or whole rule applies; an absent key always holds. Sizes are elements.
///
/// `per-token`, `arch` and `option` are facts of a run that no config tells: where they would
/// change the plan it is `unknown`, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table of conditions, such as { gated = true }"
)]
pub struct Condition {
    /// Gated or not.
    pub gated: Option<bool>,
    /// One of these activations.
    pub activations: Vec<Activation>,
    /// None of these activations.
    pub activations_not: Vec<Activation>,
    /// One of these weight formats.
    pub formats: Vec<WeightFormat>,
    /// The projections carry biases, or not.
    pub bias: Option<bool>,
    /// More than one rank share the intermediate axis, or one holds it all.
    pub sharded: Option<bool>,
    /// The intermediate size does not divide by the ranks that share it, or does.
    pub uneven: Option<bool>,
    /// Experts are spread over several groups, or not.
    pub spread: Option<bool>,
    /// The per-rank width, unpadded, is at least this.
    pub width_min: Option<u64>,
    /// The per-rank width, unpadded, is at most this.
    pub width_max: Option<u64>,
    /// The per-rank width, unpadded, is not a multiple of this.
    pub width_not_multiple: Option<u64>,
    /// The hidden size is at least this.
    pub hidden_min: Option<u64>,
    /// The hidden size is at most this.
    pub hidden_max: Option<u64>,
    /// The hidden size is not a multiple of this.
    pub hidden_not_multiple: Option<u64>,
    /// This environment variable is set to a true value.
    pub env: Option<String>,
    /// This environment variable is not set to a true value.
    pub env_not: Option<String>,
    /// Activations carry one scale per token, or do not.
    pub per_token: Option<bool>,
    /// One of these architectures.
    pub arch: Vec<String>,
    /// A choice made at run time, in words that complete "if".
    pub option: Option<String>,
}

/// The makers' word for an architecture: `cuda` for sm90, `rocm` for gfx950, else the word itself.
pub fn family(arch: &str) -> &str {
    match arch {
        cuda if cuda.starts_with("sm") => "cuda",
        rocm if rocm.starts_with("gfx") => "rocm",
        other => other,
    }
}

/// Whether one of two words for an architecture is the other, or its family.
pub fn same_arch(one: &str, other: &str) -> bool {
    one == other || family(one) == other || one == family(other)
}

/// Whether there is a device in both lists; an empty one restricts nothing.
pub fn share_device(one: &[String], other: &[String]) -> bool {
    let shared = |a: &String| other.iter().any(|b| same_arch(a, b));
    one.is_empty() || other.is_empty() || one.iter().any(shared)
}

/// The question whether the device is one of these, as a clause; none where any is.
pub fn device_is(archs: &[String]) -> Option<String> {
    (!archs.is_empty()).then(|| format!("the device is {}", archs.join(" or ")))
}

impl Condition {
    /// The facts of a run that it asks for, as a clause: "activations have one scale per token".
    pub fn asks(&self) -> String {
        let mut asked = Vec::new();
        match self.per_token {
            Some(true) => asked.push("activations have one scale per token".to_owned()),
            Some(false) => asked.push("activations have no scale per token".to_owned()),
            None => {}
        }
        asked.extend(device_is(&self.arch));
        asked.extend(self.option.clone());
        asked.join(" and ")
    }
}

/// What a granule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GranuleUnit {
    /// Logical elements.
    #[default]
    Elements,
    /// Units of the stored parameter: bytes when two elements share a byte, else elements.
    Stored,
    /// Bytes.
    Bytes,
}

/// An alignment of one axis.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table such as { align = 16 }"
)]
pub struct Granule {
    /// Multiple to round up to.
    #[serde(default = "one")]
    pub align: u64,
    /// What `align` counts.
    #[serde(default)]
    pub unit: GranuleUnit,
    /// `align` becomes its least common multiple with the format's scale group along K.
    #[serde(default)]
    pub group: bool,
    /// The only sizes there are, in elements, rising: the next one is taken and then aligned
    /// (hidden size only).
    #[serde(default, deserialize_with = "some_sizes")]
    pub next: Vec<u64>,
    /// When it applies; the first entry whose condition holds is used.
    #[serde(default)]
    pub when: Condition,
}

fn one() -> u64 {
    1
}

/// A list that stands there names a size: an empty one would take any.
fn some_sizes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let sizes = Vec::<u64>::deserialize(from)?;
    match sizes.is_empty() {
        true => Err(D::Error::custom("next lists no size")),
        false => Ok(sizes),
    }
}

impl Granule {
    /// Always this many elements.
    pub fn elements(align: u64) -> Self {
        Granule {
            align,
            unit: GranuleUnit::Elements,
            group: false,
            next: Vec::new(),
            when: Condition::default(),
        }
    }
}

/// What a refusal makes of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Runs on a slower path.
    Slow,
    /// Does not start.
    Refused,
    /// Starts and computes something else.
    Wrong,
    /// Not known.
    Unknown,
}

/// A condition under which the backend refuses, slows down or goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table with the keys when, verdict and why"
)]
pub struct Refusal {
    /// When.
    pub when: Condition,
    /// What then.
    pub verdict: Verdict,
    /// Why, as a clause.
    pub why: String,
}

/// A limit on the tokens of one batch: it changes from step to step, so it is told beside the
/// verdict and does not change it (facts/reports.md B98).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table with the keys tokens-min and why"
)]
pub struct Limit {
    /// Fewest tokens of an expert's batch.
    pub tokens_min: u64,
    /// What happens below, as a clause.
    pub why: String,
}
