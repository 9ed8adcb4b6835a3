//! `padproof explain`: what a finding's code, a word, a fault or a citation means.
//!
//! It must not decide what a plan finds. Layer 11.

use super::args::ExplainArgs;
use super::error::CliError;
use crate::mutant::{self, Mutant, Stage};
use crate::plan::Fit;
use crate::report::{
    CITED, CODES, CodePage, SOURCES, all_case_words, case_words, cited_note, cited_rows,
    fault_section, fault_words, page_human, verdict_section,
};
use crate::run::ExitCode;
use crate::terms::did_you_mean;
use std::io::Write;

pub(super) fn explain(args: &ExplainArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    // A citation is two words.
    let word = args.words.join(" ");
    if word.is_empty() {
        let width = CODES.iter().map(|p| p.verdict().len()).max().unwrap_or(0);
        for page in CODES {
            let (code, verdict, title) = (page.code, page.verdict(), page.title());
            writeln!(out, "{code}  {verdict:width$}  {title}")?;
        }
        let is_mutant = |word: &&str| mutant::ALL.iter().any(|m| m.name == *word);
        let words: Vec<&str> = fault_words().filter(|w| !is_mutant(w)).collect();
        let verdicts = Fit::ALL.map(Fit::name).join(", ");
        writeln!(out, "verdicts of plan, worst first: {verdicts}")?;
        writeln!(out, "words of run, audit and verify: {}", words.join(", "))?;
        writeln!(
            out,
            "faults that an audit names: those of padproof list mutants, or their numbers, such as M4"
        )?;
        writeln!(
            out,
            "words of a case line: those of docs/case-line.md, such as wild or ceil-block"
        )?;
        writeln!(
            out,
            "citations: facts, a note such as facts/reports.md, or a row such as S17, B06 or facts/reports.md B93"
        )?;
        return Ok(ExitCode::Passed);
    }
    let word = word.as_str();
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
    } else if let Some(section) = cited_note(&lower) {
        writeln!(out, "{}", section.trim_end())?;
    } else if !explain_elsewhere(word, &lower, out)? {
        return Err(unknown(word));
    }
    Ok(ExitCode::Passed)
}

/// Writes what a number of a fault, a row of a note or a word of a case line stands for; whether there is any.
fn explain_elsewhere(word: &str, lower: &str, out: &mut dyn Write) -> Result<bool, CliError> {
    let (note, row) = match word.rsplit_once(' ') {
        Some((note, row)) => (note.split(' ').next().unwrap_or_default(), row),
        None => ("", word),
    };
    let rows = cited_rows(row).into_iter();
    let of_note = |head: &str| note.is_empty() || head.split(':').next() == Some(note);
    let rows: Vec<_> = rows.filter(|(head, _)| of_note(head)).collect();
    for (head, what) in &rows {
        writeln!(out, "{head}, {}: {what}", row.to_ascii_uppercase())?;
    }
    // Rows of facts/upstream-padding.md 3.2, which mutants name without the note.
    let numbered = |mutant: &&Mutant| {
        let sources = mutant.source.split(", ");
        let mut own = sources.filter(|source| !source.contains('/'));
        own.any(|source| source.eq_ignore_ascii_case(row))
    };
    let mutants: Vec<&Mutant> = match of_note("facts/upstream-padding.md") {
        true => mutant::ALL.iter().filter(numbered).collect(),
        false => Vec::new(),
    };
    for (n, mutant) in mutants.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        fault(mutant, out)?;
    }
    let words = case_words(lower);
    for (key, what) in &words {
        writeln!(out, "{key}={lower} of a case line: {what}")?;
    }
    Ok(!rows.is_empty() || !mutants.is_empty() || !words.is_empty())
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
    let words = fault_words().chain(verdicts).chain(names);
    let words: Vec<&str> = words.chain(all_case_words()).collect();
    let hint = match did_you_mean(&word.to_ascii_uppercase(), &codes) {
        none if none.is_empty() => did_you_mean(&word.to_ascii_lowercase(), &words),
        hint => hint,
    };
    CliError::Usage(format!(
        "nothing is called `{word}`{hint}; `padproof explain` says what there is"
    ))
}
