//! The arguments of `audit`, `pad` and `verify`.
//!
//! It must not check what they mean. Layer 11.

use super::progress::ProgressArgs;
use crate::checkpoint::LayerId;
use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("padding").required(true))]
pub(super) struct AuditArgs {
    /// The checkpoint: a directory with its config.json, or a safetensors file
    #[arg(value_name = "BEFORE")]
    pub(super) before: PathBuf,
    /// The padded parameters as an engine holds them: a safetensors file (see docs/audit.md)
    #[arg(value_name = "AFTER")]
    pub(super) after: PathBuf,
    /// The rule that padded them (see `padproof list rules`)
    #[arg(long, value_name = "ID", group = "padding")]
    pub(super) rule: Option<String>,
    /// A scheme in place of a rule, in the words of a case line (pad=i128,order=up-gate), or a file of them
    #[arg(long, value_name = "SCHEME", group = "padding")]
    pub(super) layout: Option<String>,
    /// The rule as on this architecture: sm90, gfx950, cpu …, or a family: cuda, rocm
    #[arg(long, value_name = "NAME")]
    pub(super) arch: Option<String>,
    /// A rule file to load beside the shipped ones
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
    /// The model, if no config.json lies beside BEFORE: a config file, a directory or a built-in name
    #[arg(long, value_name = "CONFIG_OR_NAME")]
    pub(super) model: Option<String>,
    /// Tensor-parallel ranks in all; AFTER's own `tp`, else 1, if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) tp: Option<u64>,
    /// Expert-parallel groups; divides TP
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) ep: u64,
    /// The rank whose parameters AFTER holds, where neither its names nor its own `rank` say so
    #[arg(long, value_name = "R")]
    pub(super) rank: Option<usize>,
    /// The layer: a number as names have it (5), or a draft's (mtp.0, mtp); the one that AFTER names, else the first with experts, if left out
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    pub(super) layer: Option<LayerId>,
    /// The layer's shared experts in place of its routed ones
    #[arg(long)]
    pub(super) shared: bool,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(super) format: AuditFormat,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}

/// Formats of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AuditFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("padding").required(true))]
pub(super) struct PadArgs {
    /// The checkpoint: a directory with config.json and safetensors files
    #[arg(value_name = "CHECKPOINT")]
    pub(super) checkpoint: PathBuf,
    /// The directory to be made; nothing may be there
    #[arg(value_name = "OUT")]
    pub(super) out: PathBuf,
    /// Tensor-parallel ranks that are to load it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) tp: u64,
    /// The rule whose sizes and places of padding to take (see `padproof list rules`)
    #[arg(long, value_name = "ID", group = "padding")]
    pub(super) rule: Option<String>,
    /// Without a rule: each rank's width becomes a multiple of this, all padding at the end of the axis
    #[arg(long, value_name = "N", group = "padding", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) align: Option<u64>,
    /// Without a rule: the hidden size must be a multiple of this; it is never padded, only refused
    #[arg(long, value_name = "N", requires = "align", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) hidden_align: Option<u64>,
    /// The rule as on this architecture: sm90, sm100, gfx950, cpu …
    #[arg(long, value_name = "NAME", requires = "rule")]
    pub(super) arch: Option<String>,
    /// A rule file to load beside the shipped ones
    #[arg(long, value_name = "FILE", requires = "rule")]
    pub(super) rules: Option<PathBuf>,
    /// Whether the checkpoint itself may be changed: it may not
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = ["never"])]
    pub(super) in_place: String,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The padded checkpoint that `padproof pad` wrote
    #[arg(value_name = "OUT")]
    pub(super) out: PathBuf,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}
