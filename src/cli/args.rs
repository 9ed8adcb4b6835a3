//! Defines the arguments; what they mean is said once, in their help.
//!
//! It must not act on them. Layer 11.

use crate::terms::LayerKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Proves that padding a Mixture-of-Experts layer keeps its outputs.
#[derive(Debug, Parser)]
#[command(
    name = "padproof",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
    /// When to colour.
    #[arg(long, global = true, value_name = "WHEN")]
    pub(super) color: Option<Color>,
}

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Says before launch what every rule makes of a model: verdicts, sizes, cost, advice
    Plan(PlanArgs),
    /// Lists what there is
    List(ListArgs),
    /// Shows a case's plan, a rule, or a model's facts
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// A config.json, a directory that holds one, or a built-in model's name
    #[arg(value_name = "CONFIG_OR_NAME")]
    pub(super) model: String,
    /// Tensor-parallel ranks in all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) tp: u64,
    /// Expert-parallel groups; divides TP
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) ep: u64,
    /// Only rules whose id matches; a glob
    #[arg(long, value_name = "PATTERN")]
    pub(super) rule: Option<String>,
    /// Only rules of this backend
    #[arg(long, value_name = "NAME")]
    pub(super) backend: Option<String>,
    /// A rule file to load beside the shipped ones
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
    /// Only this part of the model: routed, shared or dense
    #[arg(long, value_name = "PART")]
    pub(super) layer: Option<LayerKind>,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(super) format: PlanFormat,
}

/// Formats of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
    /// For issues.
    Markdown,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// What to list
    #[arg(value_name = "WHAT")]
    pub(super) what: Listed,
    /// For cases: the suite, smoke if left out
    #[arg(value_name = "SUITE")]
    pub(super) suite: Option<String>,
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Listed {
    /// Built-in models.
    Models,
    /// Padding rules.
    Rules,
    /// Subjects.
    Subjects,
    /// Weight formats.
    Formats,
    /// Shipped suites.
    Suites,
    /// Cases and plans of a suite.
    Cases,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// A case line, a rule's id, or a model
    #[arg(value_name = "CASE|RULE|MODEL")]
    pub(super) what: String,
}
