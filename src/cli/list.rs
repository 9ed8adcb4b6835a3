//! `padproof list`: what there is, one line each, the name first.
//!
//! It must not explain. Layer 11.

use super::args::{ListArgs, Listed};
use super::error::CliError;
use super::select::rules as loaded;
use crate::model;
use crate::mutant::{self, Mutant};
use crate::proof::{self, Wanted};
use crate::property;
use crate::rule::Rules;
use crate::run::ExitCode;
use crate::subject::SubjectChoice;
use crate::suite::{self, Suite};
use crate::terms::{WeightFormat, did_you_mean};
use std::io::Write;

pub(super) fn list(args: &ListArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    if let (Some(extra), true) = (&args.suite, args.what != Listed::Cases) {
        return Err(CliError::Usage(format!(
            "unexpected `{extra}`: only `list cases` takes a suite"
        )));
    }
    if args.rules.is_some() && args.what != Listed::Rules {
        return Err(CliError::Usage(
            "only `list rules` takes --rules".to_owned(),
        ));
    }
    let rows: Vec<[String; 2]> = match args.what {
        Listed::Models => models(),
        Listed::Rules => rules(loaded(args.rules.as_deref())?.as_ref()),
        Listed::Properties => property::ALL
            .iter()
            .map(|p| [p.name.to_owned(), p.meaning.to_owned()])
            .collect(),
        Listed::Proofs => proofs(),
        Listed::Mutants => mutant::ALL.iter().map(mutant_row).collect(),
        Listed::Subjects => subjects(),
        Listed::Formats => WeightFormat::ALL.iter().copied().map(format).collect(),
        Listed::Suites => suites()?,
        Listed::Cases => cases(args.suite.as_deref().unwrap_or("smoke"))?,
    };
    let width = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    for [name, text] in rows {
        writeln!(out, "{}", format!("{name:width$}  {text}").trim_end())?;
    }
    Ok(ExitCode::Passed)
}

const CPU: &str = "padded, sharded, packed bytes on this machine; every rank computed and summed";

const CUDA_HOST: &str =
    "the CUDA kernels' own source on the CPU, one fiber a thread (kernels/README.md)";

const CUDA: &str = "the CUDA kernels on a device, compiled for it at run time; skips without one";

fn proofs() -> Vec<[String; 2]> {
    let lemma = |lemma: proof::Lemma| {
        let how = match lemma.wanted {
            Wanted::Holds => "for all sizes",
            Wanted::Example => "by example",
        };
        let about = lemma.functions.join(", ");
        let text = format!("{} ({how}; {about}; proofs/{})", lemma.claim, lemma.file);
        [lemma.name.to_owned(), text]
    };
    let exhaustive = |claim: &proof::Exhaustive| {
        let text = format!("{} (code by code; tests/inert.rs)", claim.claim);
        [claim.name.to_owned(), text]
    };
    let lemmas = proof::lemmas().into_iter().map(lemma);
    lemmas
        .chain(proof::EXHAUSTIVE.iter().map(exhaustive))
        .collect()
}

fn mutant_row(mutant: &Mutant) -> [String; 2] {
    let text = format!(
        "{}; caught by {} ({})",
        mutant.meaning,
        mutant.caught_by.join(", "),
        mutant.source
    );
    [mutant.name.to_owned(), text]
}

fn subjects() -> Vec<[String; 2]> {
    let own = SubjectChoice::NAMES.iter().map(|name| {
        let text = match *name {
            SubjectChoice::CUDA => CUDA,
            SubjectChoice::CUDA_HOST => CUDA_HOST,
            _ => CPU,
        };
        [(*name).to_owned(), text.to_owned()]
    });
    let program = "any program that speaks docs/subject-protocol.md, by its command";
    own.chain([["COMMAND".to_owned(), program.to_owned()]])
        .collect()
}

fn models() -> Vec<[String; 2]> {
    let row = |m: &model::Model| {
        let text = format!(
            "hidden {} intermediate {} experts {} top-k {} {} {} ({})",
            m.hidden,
            m.intermediate,
            m.experts,
            m.top_k,
            m.activation,
            m.quant.format,
            m.grade.name()
        );
        [m.name.clone(), text]
    };
    model::builtin().iter().map(row).collect()
}

fn rules(rules: &Rules) -> Vec<[String; 2]> {
    let row = |rule: &crate::rule::Rule| {
        let formats: Vec<&str> = rule.formats.iter().map(|f| f.name()).collect();
        let status = rule.status.name();
        let wrong = rule
            .wrong
            .as_ref()
            .map_or(String::new(), |w| format!(": {w}"));
        let text = format!("{status} {} ({}){wrong}", rule.version, formats.join(", "));
        [rule.id.clone(), text]
    };
    rules.iter().map(row).collect()
}

fn format(format: WeightFormat) -> [String; 2] {
    let element = format.element();
    let scale = format.scale().map_or("no scale".to_owned(), |grid| {
        let extent = |extent| match extent {
            crate::terms::Extent::All => "all".to_owned(),
            crate::terms::Extent::Block(n) => n.to_string(),
        };
        format!(
            "one {} scale per {} rows x {} columns",
            grid.dtype.name(),
            extent(grid.rows),
            extent(grid.cols)
        )
    });
    let global = if format.has_global_scale() {
        ", one f32 scale per expert and projection"
    } else {
        ""
    };
    let bits = element.bits();
    [
        format.to_string(),
        format!("{} ({bits} bits), {scale}{global}", element.name()),
    ]
}

fn suites() -> Result<Vec<[String; 2]>, CliError> {
    let row = |(name, _): &(&str, &str)| {
        let suite = builtin(name)?;
        let mut count = format!("{} cases, {} plans", suite.cases.len(), suite.plans.len());
        if !suite.files.is_empty() {
            count += &format!(", {} audits of files", suite.files.len());
        }
        let about = suite.about.unwrap_or_default();
        Ok([suite.name, format!("{count}: {about}")])
    };
    suite::BUILTIN.iter().map(row).collect()
}

/// A shipped suite, or a sentence that names the nearest.
pub(super) fn builtin(name: &str) -> Result<Suite, CliError> {
    let text = suite::builtin(name).ok_or_else(|| {
        let known: Vec<&str> = suite::BUILTIN.iter().map(|(name, _)| *name).collect();
        let hint = did_you_mean(name, &known);
        CliError::Usage(format!(
            "no suite `{name}`{hint}; one of: {}",
            known.join(", ")
        ))
    })?;
    let suite = suite::parse(text, &format!("{name}.toml"))?;
    Ok(Suite {
        shipped: true,
        ..suite
    })
}

fn cases(name: &str) -> Result<Vec<[String; 2]>, CliError> {
    let suite = builtin(name)?;
    let cases = suite
        .cases
        .iter()
        .map(|entry| [entry.name.clone(), entry.case.to_string()]);
    let plans = suite.plans.iter().map(|entry| {
        let rule = entry.rules.pattern();
        let text = format!(
            "plan tp={} ep={} {} {rule}",
            entry.tp, entry.ep, entry.layer
        );
        [entry.name.clone(), text]
    });
    let files = suite
        .files
        .iter()
        .map(|entry| [entry.name.clone(), format!("file {}", entry.case)]);
    Ok(cases.chain(plans).chain(files).collect())
}
