//! Which subject the words of the command line choose, and what ends it.
//!
//! It must not ask it. Layer 11.

use super::args::SubjectArgs;
use super::error::CliError;
use super::interrupts::{First, listen};
use super::output::complain;
use super::select::unknown;
use crate::run::ExitCode;
use crate::schedule::UnknownOrder;
use crate::subject::{Known, Limits, Program, Running, SubjectChoice, SubjectError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The chosen subject; a program has been started and greeted then.
pub(super) fn chosen(args: &SubjectArgs, running: &Running) -> Result<SubjectChoice, CliError> {
    let text = args.subject.as_deref().unwrap_or(SubjectChoice::CPU).trim();
    if args.reveal && SubjectChoice::is_own(text) {
        let why = "promises its order of summation: --reveal is for programs";
        return Err(CliError::Usage(format!("subject {text} {why}")));
    }
    if let Some(choice) = SubjectChoice::named(text) {
        return Ok(choice);
    }
    if let Some(word) = SubjectChoice::order(text) {
        let order = word.parse();
        return order
            .map(SubjectChoice::Ordered)
            .map_err(|e: UnknownOrder| CliError::Usage(format!("subject {text}: {e}")));
    }
    let command = |c: char| c.is_whitespace() || std::path::is_separator(c);
    if !text.contains(command) {
        let CliError::Usage(sentence) = unknown("subject", text, SubjectChoice::NAMES) else {
            return Err(unknown("subject", text, SubjectChoice::NAMES));
        };
        return Err(CliError::Usage(format!(
            "{sentence}, or a command with a space or a slash in it"
        )));
    }
    let plain = Limits::default();
    let limits = Limits {
        reply: args.timeout.unwrap_or(plain.reply),
        start: args.start_timeout.unwrap_or(plain.start),
    };
    match Program::start(text, limits, running) {
        Ok(program) if args.reveal => {
            Ok(SubjectChoice::Revealed(Arc::new(program), Known::default()))
        }
        Ok(program) => Ok(SubjectChoice::Process(Arc::new(program))),
        Err(_) if running.ended() => Err(CliError::Interrupted),
        Err(source) => {
            let said = match &source {
                SubjectError::Misbehaved { stderr, .. } if !stderr.is_empty() => {
                    format!("; it wrote: {}", stderr.join(" | "))
                }
                _ => String::new(),
            };
            Err(CliError::Subject { source, said })
        }
    }
}

/// What Ctrl-C does to a run.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// A switch that the first one sets.
    pub(super) stop: Arc<AtomicBool>,
    /// Of its first case and an interrupt.
    first: First,
}

impl Interrupts {
    /// The run begins, and will leave a report: not where an interrupt came first.
    pub(super) fn begin(&self) -> Result<(), CliError> {
        if self.first.moment() {
            Ok(())
        } else {
            Err(CliError::Interrupted)
        }
    }
}

/// A switch that Ctrl-C sets; what runs is ended then, and a second one ends this process at once.
pub(super) fn interrupt(running: &Running) -> Result<Interrupts, CliError> {
    const RUNS: &str = "the report holds what had run; again ends without one";
    const EARLY: &str = "nothing had run, so there is no report";
    let stop = Arc::new(AtomicBool::new(false));
    let first = First::default();
    let interrupts = Interrupts {
        stop: Arc::clone(&stop),
        first: first.clone(),
    };
    let running = running.clone();
    listen(move || {
        if stop.swap(true, Ordering::Relaxed) {
            complain("interrupted", "again: there is no report");
            end(&running);
        }
        let said = if first.interrupt() { EARLY } else { RUNS };
        complain("interrupted", said);
        running.end();
    })?;
    Ok(interrupts)
}

/// For a command of one case: Ctrl-C ends what runs, and this process, at once.
pub(super) fn end_at_once(running: &Running) -> Result<(), CliError> {
    let running = running.clone();
    listen(move || end(&running))
}

/// Nothing is concluded from what an interrupt ended: asked before a word is printed.
pub(super) fn unless_interrupted(running: &Running) -> Result<(), CliError> {
    if running.ended() {
        return Err(CliError::Interrupted);
    }
    Ok(())
}

fn end(running: &Running) -> ! {
    running.end();
    std::process::exit(i32::from(ExitCode::Interrupted.number()))
}
