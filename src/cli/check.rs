//! `padproof check` and `padproof shrink`: one property and one case.
//!
//! It must not contain checks. Layer 11.

use super::args::CheckArgs;
use super::environment::Environment;
use super::error::CliError;
use super::select::{case, property};
use super::subject::{chosen, end_at_once};
use crate::case::Case;
use crate::property::{Property, Verdict};
use crate::report::finding_block;
use crate::run::{ExitCode, Finished, Worker, arguments_of, subject_of};
use crate::subject::SubjectChoice;
use std::io::Write;
use std::time::{Duration, Instant};

fn parsed(args: &CheckArgs) -> Result<(&'static Property, Case), CliError> {
    Ok((property(&args.property)?, case(&args.case)?))
}

fn finished(
    subject: &SubjectChoice,
    property: &Property,
    case: &Case,
    verdict: Verdict,
    time: Duration,
) -> Finished {
    Finished {
        case: case.to_string(),
        name: None,
        place: None,
        word: None,
        property: property.name,
        subject: subject_of(subject, property),
        arguments: arguments_of(subject, property),
        verdict,
        time,
    }
}

/// Prints the verdict with all its evidence.
pub(super) fn check(
    args: &CheckArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let (property, case) = parsed(args)?;
    let subject = chosen(&args.subject)?;
    end_at_once(&subject)?;
    let started = Instant::now();
    let verdict = Worker::new(&subject).check(property, &case);
    let code = match verdict {
        Verdict::Pass(_) => ExitCode::Passed,
        Verdict::Fail(_) => ExitCode::Failed,
        Verdict::Broken(_) => ExitCode::Broken,
        Verdict::Vacuous(_) => ExitCode::Vacuous,
        Verdict::Skip(_) => ExitCode::NothingRan,
    };
    let done = finished(&subject, property, &case, verdict, started.elapsed());
    finding_block(&done, true, environment.ci, out)?;
    Ok(code)
}

/// Prints the smallest case that still fails.
pub(super) fn shrink(args: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let (property, case) = parsed(args)?;
    let subject = chosen(&args.subject)?;
    end_at_once(&subject)?;
    let mut worker = Worker::new(&subject);
    let verdict = worker.check(property, &case);
    if !matches!(verdict, Verdict::Fail(_)) {
        // Failed is style.md C.3's word for a shrink that had nothing to shrink.
        let code = match verdict {
            Verdict::Broken(_) => ExitCode::Broken,
            _ => ExitCode::Failed,
        };
        let done = finished(&subject, property, &case, verdict, Duration::ZERO);
        writeln!(
            out,
            "{} does not fail on this case; nothing to shrink",
            property.name
        )?;
        finding_block(&done, false, false, out)?;
        return Ok(code);
    }
    let small = worker.shrink(property, &case);
    let started = Instant::now();
    let verdict = worker.check(property, &small);
    let done = finished(&subject, property, &case, verdict, started.elapsed());
    finding_block(&done, true, false, out)?;
    Ok(ExitCode::Passed)
}
