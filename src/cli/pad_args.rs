//! The arguments of `pad` and `verify`.
//!
//! It must not check what they mean. Layer 11.

use super::progress::ProgressArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
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
    #[arg(long, value_name = "ID", required_unless_present = "align")]
    pub(super) rule: Option<String>,
    /// Without a rule: each rank's width becomes a multiple of this, all padding at the end of the axis
    #[arg(long, value_name = "N", conflicts_with = "rule", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
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
