//! `padproof pad`: a padded copy of a checkpoint.
//!
//! It must not decide sizes or write files. Layer 11.

use super::bytes::Bytes;
use super::environment::rule_switches;
use super::error::CliError;
use super::interrupts::{First, listen};
use super::output::complain;
use super::pad_args::PadArgs;
use crate::pad::{Outcome, Request, Step, pad as run, partial};
use crate::report::padded_human;
use crate::run::{ExitCode, on_arch};
use std::io::Write;
use std::path::Path;

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
    let first = interrupt(&args.out)?;
    let mut bytes = Bytes::new(args.progress.how);
    let mut progress = |step: Step<'_>| {
        if matches!(step, Step::Placing) {
            // An interrupt that came first ends this process, whose output is in no place then.
            while !first.moment() {
                std::thread::park();
            }
        }
        bytes.step(step);
    };
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

/// What Ctrl-C does: this process ends with a sentence on what it leaves, but where the output is on its way
/// already, which takes no time.
fn interrupt(out: &Path) -> Result<First, CliError> {
    let first = First::default();
    let (place, left, set) = (out.to_owned(), partial(out), first.clone());
    listen(move || {
        if !set.interrupt() {
            return;
        }
        let said = match left.exists() {
            true => format!(
                "{} is not finished; the same command goes on from {}",
                place.display(),
                left.display()
            ),
            false => "nothing was written".to_owned(),
        };
        complain("interrupted", &said);
        std::process::exit(i32::from(ExitCode::Interrupted.number()))
    })?;
    Ok(first)
}
