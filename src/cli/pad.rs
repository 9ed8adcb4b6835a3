//! `padproof pad`: a padded copy of a checkpoint.
//!
//! It must not decide sizes or write files. Layer 11.

use super::bytes::Bytes;
use super::environment::rule_switches;
use super::error::CliError;
use super::pad_args::PadArgs;
use crate::pad::{Outcome, Request, pad as run};
use crate::report::padded_human;
use crate::run::{ExitCode, on_arch};
use std::io::Write;

pub(super) fn pad(args: &PadArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let rules = super::select::rules(args.rules.as_deref())?;
    let rule = match &args.rule {
        Some(id) => Some(on_arch(rules.get(id)?, args.arch.as_deref())),
        None => None,
    };
    let switches = rule_switches(&rules);
    let request = Request::new(
        args.tp,
        rule.as_deref(),
        args.align,
        args.hidden_align,
        &switches,
    );
    let mut bytes = Bytes::new(args.progress.how);
    let mut progress = |step: crate::pad::Step<'_>| bytes.step(step);
    let ended = run(
        &args.checkpoint,
        &args.out,
        &request,
        rule.as_deref(),
        &switches,
        &mut progress,
    );
    bytes.end();
    match ended? {
        Outcome::Nothing(sentence) => writeln!(out, "{}", crate::terms::plain(&sentence))?,
        Outcome::Padded(padded) => padded_human(&padded, &args.out, out)?,
    }
    Ok(ExitCode::Passed)
}
