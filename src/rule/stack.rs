//! What holds for all rules of one stack, and which of its backends it takes by itself.
//!
//! It must not decide anything for a model. Layer 2.

use crate::terms::WeightFormat;
use serde::Deserialize;

/// What a stack does with the experts of data-parallel replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replicas {
    /// They are shared by all ranks of all replicas: cut over TP x DP, or spread whole.
    Share,
    /// TP counts all ranks already; replicas are for attention only.
    Within,
    /// Not read.
    #[default]
    Unknown,
}

/// Over which ranks a stack can spread whole experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Over all ranks that share them, or none.
    AllOrNone,
    /// Nobody read whether groups of several ranks can be asked for.
    #[default]
    Unknown,
}

/// What holds for all rules of one stack.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table that describes a stack"
)]
pub struct Stack {
    /// The stack.
    pub name: String,
    /// Its replicas' experts.
    pub replicas: Replicas,
    /// The groups that its experts are spread over.
    #[serde(default)]
    pub spread: Spread,
    /// Whether it can keep shared experts whole on every rank.
    #[serde(default)]
    pub shared_whole: bool,
    /// Where this is known from.
    pub source: String,
}

/// Which backend a stack's `auto` takes for a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "a table that describes a choice"
)]
pub struct Auto {
    /// The stack.
    pub stack: String,
    /// Architectures it holds for; empty for all.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Weight formats it holds for; empty for all.
    #[serde(default)]
    pub formats: Vec<WeightFormat>,
    /// The backend.
    pub backend: String,
    /// Where this is known from.
    pub source: String,
}
