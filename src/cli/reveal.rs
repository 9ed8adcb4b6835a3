//! `padproof reveal`: the order in which a subject adds.
//!
//! It must not ask the subject itself. Layer 11.

use super::args::SubjectArgs;
use super::error::CliError;
use super::subject::{chosen, end_at_once, unless_interrupted};
use crate::report::orders_human;
use crate::run::ExitCode;
use crate::subject::{Axis, Running, Setup, Subject, orders};
use crate::terms::WeightFormat;
use clap::{Args, ValueEnum};
use std::io::Write;

#[derive(Debug, Args)]
pub(super) struct RevealArgs {
    /// The subject: `cpu`, `cpu:ORDER` for the same in another order (see docs/orders.md), or the
    /// command of a program of yours (see docs/subject-protocol.md)
    #[arg(value_name = "SUBJECT", default_value = "cpu")]
    pub(super) subject: String,
    /// How long a reply of that program may take, 10s if left out
    #[arg(long, value_name = "DUR", env = "PADPROOF_TIMEOUT", hide_env_values = true, value_parser = super::values::limit)]
    pub(super) timeout: Option<std::time::Duration>,
    /// How long that program may take to start, 60s if left out
    #[arg(long, value_name = "DUR", env = "PADPROOF_START_TIMEOUT", hide_env_values = true, value_parser = super::values::limit)]
    pub(super) start_timeout: Option<std::time::Duration>,
    /// Products of a sum
    #[arg(long, value_name = "N", default_value_t = 961, value_parser = clap::value_parser!(u64).range(1..=65536), allow_negative_numbers = true)]
    pub(super) k: u64,
    /// What padding brings them to; the next multiple of 16 if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536), allow_negative_numbers = true)]
    pub(super) k_padded: Option<u64>,
    /// Whose sums: over the intermediate or the hidden size
    #[arg(long, value_name = "AXIS", default_value = "both")]
    pub(super) axis: RevealAxis,
    /// Tokens: kernels choose their path by their number too
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4096), allow_negative_numbers = true)]
    pub(super) tokens: u64,
    /// Sums of a layer, at most: the size of the other axis
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536), allow_negative_numbers = true)]
    pub(super) rows: u64,
    /// Weight format; of those that cannot hold 2^100 the input carries the products, and each
    /// token is a sum
    #[arg(long, value_name = "FORMAT", default_value = "f32")]
    pub(super) weights: WeightFormat,
}

/// Whose sums are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RevealAxis {
    /// Those of the second projection.
    Intermediate,
    /// Those of the first projection.
    Hidden,
    /// Both.
    Both,
}

/// Multiple that widths are padded to where no size is named.
const GRANULE: u64 = 16;

/// Prints the orders found, axis by axis.
pub(super) fn reveal(args: &RevealArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let padded = args.k_padded.unwrap_or(args.k.next_multiple_of(GRANULE));
    if padded < args.k {
        return Err(CliError::Usage(format!(
            "--k-padded {padded} is less than --k {}",
            args.k
        )));
    }
    let axes = match args.axis {
        RevealAxis::Intermediate => &[Axis::Intermediate][..],
        RevealAxis::Hidden => &[Axis::Hidden],
        RevealAxis::Both => &[Axis::Intermediate, Axis::Hidden],
    };
    let running = Running::default();
    let mut subject = subject(args, &running)?;
    for &axis in axes {
        let setup = Setup {
            axis,
            n: args.k,
            padded,
            tokens: args.tokens,
            rows: args.rows,
            rows_padded: args.rows,
            weights: args.weights,
        };
        let found = orders(subject.as_mut(), setup);
        unless_interrupted(&running)?;
        orders_human(&args.subject, &found?, out)?;
    }
    Ok(ExitCode::Passed)
}

fn subject(args: &RevealArgs, running: &Running) -> Result<Box<dyn Subject + Send>, CliError> {
    end_at_once(running)?;
    let choice = chosen(
        &SubjectArgs {
            subject: Some(args.subject.clone()),
            timeout: args.timeout,
            start_timeout: args.start_timeout,
            reveal: false,
        },
        running,
    )?;
    Ok(choice.subject())
}
