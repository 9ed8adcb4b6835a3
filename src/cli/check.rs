//! `padproof check` and `padproof shrink`: one property and one case.
//!
//! It must not contain checks. Layer 11.

use super::args::CheckArgs;
use super::environment::Environment;
use super::error::CliError;
use super::select::{case, property, rules, rules_arguments};
use super::subject::{chosen, end_at_once, unless_interrupted};
use crate::case::Case;
use crate::property::{Property, Verdict};
use crate::report::finding_block;
use crate::rule::Rules;
use crate::run::{ExitCode, Finished, Worker, arguments_of, subject_of};
use crate::subject::{Running, SubjectChoice};
use std::borrow::Cow;
use std::io::Write;
use std::time::{Duration, Instant};

/// What one question needs.
struct Question {
    property: &'static Property,
    case: Case,
    subject: SubjectChoice,
    /// What an interrupt ends.
    running: Running,
    rules: Cow<'static, Rules>,
    /// Arguments that bring the rules.
    arguments: String,
}

fn parsed(args: &CheckArgs) -> Result<Question, CliError> {
    let file = args.own.rules.as_deref();
    let rules = rules(file)?;
    let running = Running::default();
    end_at_once(&running)?;
    Ok(Question {
        property: property(&args.property)?,
        case: case(&args.case, &rules)?,
        subject: chosen(&args.subject, &running)?,
        running,
        rules,
        arguments: rules_arguments(file),
    })
}

fn finished(question: &Question, verdict: Verdict, time: Duration) -> Finished {
    let Question {
        property,
        case,
        subject,
        ..
    } = question;
    Finished {
        case: case.to_string(),
        name: None,
        place: None,
        word: None,
        property: property.name,
        subject: subject_of(subject, property),
        arguments: arguments_of(subject, property) + &question.arguments,
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
    let question = parsed(args)?;
    let started = Instant::now();
    let mut worker = Worker::new(&question.subject, &question.rules);
    let verdict = worker.check(question.property, &question.case);
    unless_interrupted(&question.running)?;
    let code = match verdict {
        Verdict::Pass(_) => ExitCode::Passed,
        Verdict::Fail(_) => ExitCode::Failed,
        Verdict::Broken(_) => ExitCode::Broken,
        Verdict::Vacuous(_) => ExitCode::Vacuous,
        Verdict::Skip(_) => ExitCode::NothingRan,
    };
    let done = finished(&question, verdict, started.elapsed());
    finding_block(&done, true, environment.ci, out)?;
    Ok(code)
}

/// Prints a smaller case that still fails.
pub(super) fn shrink(args: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let question = parsed(args)?;
    let property = question.property;
    let mut worker = Worker::new(&question.subject, &question.rules);
    let verdict = worker.check(property, &question.case);
    unless_interrupted(&question.running)?;
    if !matches!(verdict, Verdict::Fail(_)) {
        // Failed is style.md C.3's word for a shrink that had nothing to shrink.
        let code = match verdict {
            Verdict::Broken(_) => ExitCode::Broken,
            _ => ExitCode::Failed,
        };
        let done = finished(&question, verdict, Duration::ZERO);
        writeln!(
            out,
            "{} does not fail on this case; nothing to shrink",
            property.name
        )?;
        finding_block(&done, false, false, out)?;
        return Ok(code);
    }
    let go_on = || !question.running.ended();
    let started = Instant::now();
    let (_, verdict) = worker.smallest(property, &question.case, verdict, go_on);
    unless_interrupted(&question.running)?;
    let done = finished(&question, verdict, started.elapsed());
    finding_block(&done, true, false, out)?;
    Ok(ExitCode::Passed)
}
