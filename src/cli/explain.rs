//! `padproof explain`: what a finding's code, a word of an audit or the name of a fault means.
//!
//! It must not decide what a plan finds. Layer 11.

use super::args::ExplainArgs;
use super::error::CliError;
use crate::mutant::{self, Mutant, Stage};
use crate::plan::Fit;
use crate::report::{
    CITED, CODES, CodePage, SOURCES, cited_rows, fault_section, fault_words, page_human,
    verdict_section,
};
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
        let is_mutant = |word: &&str| mutant::ALL.iter().any(|m| m.name == *word);
        let words: Vec<&str> = fault_words().filter(|w| !is_mutant(w)).collect();
        let verdicts = Fit::ALL.map(Fit::name).join(", ");
        writeln!(out, "verdicts of plan, worst first: {verdicts}")?;
        writeln!(out, "words of audit and verify: {}", words.join(", "))?;
        writeln!(
            out,
            "faults that an audit names: those of padproof list mutants"
        )?;
        writeln!(out, "citations: facts, or a row such as S17 or B06")?;
        return Ok(ExitCode::Passed);
    };
    let lower = word.to_ascii_lowercase();
    if let Some(page) = CodePage::find(word) {
        page_human(page, out)?;
    } else if let Some((section, about)) = verdict_section(&lower) {
        let text = format!("{lower}\n\n{}\n\n{}", section.trim_end(), about.trim_end());
        writeln!(out, "{}", text.replace('`', ""))?;
    } else if let Some(mutant) = mutant::ALL.iter().find(|m| m.name == lower) {
        fault(mutant, out)?;
    } else if let Some(section) = fault_section(&lower) {
        writeln!(out, "{lower}\n\n{}", section.trim_end().replace('`', ""))?;
    } else if lower == "facts" {
        write!(out, "{SOURCES}")?;
    } else {
        let rows = cited_rows(word);
        if rows.is_empty() {
            return Err(unknown(word));
        }
        for (head, what) in rows {
            writeln!(out, "{head}, {}: {what}", word.to_ascii_uppercase())?;
        }
    }
    Ok(ExitCode::Passed)
}

/// What is known of a fault that an audit names.
fn fault(mutant: &Mutant, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "{}: {}\n", mutant.name, mutant.meaning)?;
    let told = match mutant.stage {
        Stage::Plan(_) => {
            "the loader's sizes or shares are wrong: an audit names it by the elements that such a plan would store"
        }
        Stage::Layout(_) | Stage::LayoutOf(..) => {
            "the loader stores another layout than the kernel reads: an audit names it by the elements in that layout"
        }
        Stage::Bytes(_) => {
            "the loader changes or loses codes after packing: an audit names it by making the same change"
        }
        Stage::Reload(_) => {
            "only a second load shows it: an audit of its files names what it leaves"
        }
        Stage::Output(_) => "no file shows it: only running the layer does",
    };
    match fault_section(mutant.name) {
        Some(section) => writeln!(out, "{}\n", section.trim_end().replace('`', ""))?,
        None => writeln!(out, "{told}")?,
    }
    writeln!(out, "known from {}", mutant.source)?;
    if mutant.source.contains("facts/") {
        writeln!(out, "{CITED}")?;
    }
    writeln!(
        out,
        "properties that catch it: {}",
        mutant.caught_by.join(", ")
    )?;
    Ok(())
}

fn unknown(word: &str) -> CliError {
    let codes: Vec<&str> = CODES.iter().map(|page| page.code).collect();
    let names = mutant::ALL.iter().map(|mutant| mutant.name);
    let verdicts = Fit::ALL.iter().map(|fit| fit.name());
    let words: Vec<&str> = fault_words().chain(verdicts).chain(names).collect();
    let hint = match did_you_mean(&word.to_ascii_uppercase(), &codes) {
        none if none.is_empty() => did_you_mean(&word.to_ascii_lowercase(), &words),
        hint => hint,
    };
    CliError::Usage(format!(
        "no finding has the code `{word}`{hint}; one of: {}",
        codes.join(", ")
    ))
}
