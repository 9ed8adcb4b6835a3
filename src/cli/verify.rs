//! `padproof verify`: a padded checkpoint checked from its files alone.
//!
//! It must not judge bytes. Layer 11.

use super::bytes::Bytes;
use super::error::CliError;
use super::pad_args::VerifyArgs;
use crate::pad::verify as run;
use crate::report::verified_human;
use crate::run::ExitCode;
use std::io::Write;

pub(super) fn verify(args: &VerifyArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let mut bytes = Bytes::new(args.progress.how);
    let ended = run(&args.out, &mut |step| bytes.step(step));
    bytes.end();
    let verified = ended?;
    verified_human(&verified, &args.out, out)?;
    Ok(match verified.faults {
        0 => ExitCode::Passed,
        _ => ExitCode::Failed,
    })
}
