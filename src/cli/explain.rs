//! `padproof explain`: what a finding's code means.
//!
//! It must not decide what a plan finds. Layer 11.

use super::args::ExplainArgs;
use super::error::CliError;
use crate::report::{CODES, CodePage, page_human};
use crate::run::ExitCode;
use crate::terms::did_you_mean;
use std::io::Write;

pub(super) fn explain(args: &ExplainArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let Some(word) = args.code.as_deref() else {
        let width = CODES.iter().map(|p| p.verdict().len()).max().unwrap_or(0);
        for page in CODES {
            let (code, verdict, title) = (page.code, page.verdict(), page.title());
            writeln!(out, "{code}  {verdict:width$}  {title}")?;
        }
        return Ok(ExitCode::Passed);
    };
    page_human(CodePage::find(word).ok_or_else(|| unknown(word))?, out)?;
    Ok(ExitCode::Passed)
}

fn unknown(word: &str) -> CliError {
    let codes: Vec<&str> = CODES.iter().map(|page| page.code).collect();
    let hint = did_you_mean(&word.to_ascii_uppercase(), &codes);
    CliError::Usage(format!(
        "no finding has the code `{word}`{hint}; one of: {}",
        codes.join(", ")
    ))
}
