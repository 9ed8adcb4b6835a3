//! Which subject the words of the command line choose, and what ends it.
//!
//! It must not ask it. Layer 11.

use super::args::SubjectArgs;
use super::error::CliError;
use super::select::unknown;
use crate::run::ExitCode;
use crate::subject::{Program, SubjectChoice, SubjectError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The chosen subject; a program has been started and greeted then.
pub(super) fn chosen(args: &SubjectArgs) -> Result<SubjectChoice, CliError> {
    let text = args.subject.as_deref().unwrap_or(SubjectChoice::CPU).trim();
    if let Some(choice) = SubjectChoice::named(text) {
        return Ok(choice);
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
    let timeout = args.timeout.unwrap_or(Program::TIMEOUT);
    match Program::start(text, timeout) {
        Ok(program) => Ok(SubjectChoice::Process(Arc::new(program))),
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

/// A switch that Ctrl-C sets; a second one ends the subject and this process at once.
pub(super) fn interrupt(subject: &SubjectChoice) -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let (inside, subject) = (Arc::clone(&stop), subject.clone());
    ctrlc::set_handler(move || {
        if inside.swap(true, Ordering::Relaxed) {
            end(&subject);
        }
    })
    .map_err(handler)?;
    Ok(stop)
}

/// For a command of one case: Ctrl-C ends the subject and this process at once.
pub(super) fn end_at_once(subject: &SubjectChoice) -> Result<(), CliError> {
    let subject = subject.clone();
    ctrlc::set_handler(move || end(&subject)).map_err(handler)
}

fn end(subject: &SubjectChoice) -> ! {
    subject.kill();
    std::process::exit(i32::from(ExitCode::Interrupted.number()))
}

fn handler(error: ctrlc::Error) -> CliError {
    CliError::Usage(format!("cannot listen for interrupts: {error}"))
}
