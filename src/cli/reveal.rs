//! `padproof reveal`: the order in which a subject adds.
//!
//! It must not ask the subject itself. Layer 11.

use super::args::{RevealArgs, RevealAxis};
use super::error::CliError;
use crate::report::orders_human;
use crate::run::{Axis, ExitCode, Setup, orders};
use crate::schedule::Schedule;
use crate::subject::{Cpu, Subject};
use std::io::Write;

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
    let mut subject = subject(&args.subject)?;
    for &axis in axes {
        let setup = Setup {
            axis,
            n: args.k,
            padded,
            tokens: args.tokens,
            rows: args.rows,
            weights: args.weights,
        };
        let found = orders(subject.as_mut(), setup)?;
        orders_human(&args.subject, &found, out)?;
    }
    Ok(ExitCode::Passed)
}

fn subject(text: &str) -> Result<Box<dyn Subject>, CliError> {
    let unknown = || {
        CliError::Usage(format!(
            "no subject `{text}`: `cpu`, or `cpu:ORDER` with an order of {}",
            Schedule::WORDS.join(", ")
        ))
    };
    match text.split_once(':') {
        None if text == "cpu" => Ok(Box::new(Cpu::new())),
        Some(("cpu", word)) => match word.parse() {
            Ok(order) => Ok(Box::new(Cpu::under(order))),
            Err(_) => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}
