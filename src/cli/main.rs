//! Parses the arguments, calls the command, and turns what came out into an exit code.
//!
//! It must not know what a command does. Layer 11.

use super::args::{Arguments, Color, Command};
use super::environment::Environment;
use super::error::CliError;
use super::output::{complain, stdout};
use super::{audit, check, diff, doctor, explain, list, pad, plan, reveal, run, show, verify};
use crate::run::ExitCode;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use std::io::{self, Write};

/// Runs the command of the process's arguments and environment.
pub fn main() -> std::process::ExitCode {
    let parsed = Arguments::command().try_get_matches().and_then(|matches| {
        run::idle_beside_mutants(&matches)?;
        Arguments::from_arg_matches(&matches)
    });
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error).into(),
    };
    let environment = Environment::read();
    for note in &environment.notes {
        complain("warning", note);
    }
    let color = arguments.color.or(environment.color).unwrap_or(Color::Auto);
    let mut out = stdout(color);
    let ended = dispatch(&arguments.command, color, &environment, &mut out)
        .and_then(|code| out.flush().map(|()| code).map_err(CliError::Output));
    match ended {
        Ok(code) => code,
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::Passed
        }
        Err(CliError::Interrupted) => ExitCode::Interrupted,
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::Broken
        }
    }
    .into()
}

fn dispatch(
    command: &Command,
    color: Color,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    match command {
        Command::Plan(args) => plan::plan(args, environment, out),
        Command::Audit(args) => audit::audit(args, environment, out),
        Command::Pad(args) => pad::pad(args, out),
        Command::Verify(args) => verify::verify(args, out),
        Command::Diff(args) => diff::diff(args, environment, out),
        Command::Run(args) if args.mutants => run::mutants(args, out),
        Command::Run(args) => run::run(args, color, environment),
        Command::Check(args) => check::check(args, environment, out),
        Command::Reveal(args) => reveal::reveal(args, out),
        Command::List(args) => list::list(args, out),
        Command::Explain(args) => explain::explain(args, out),
        Command::Show(args) => show::show(args, environment, out),
        Command::Shrink(args) => check::shrink(args, out),
        Command::Replay(args) => run::replay(args, color, environment),
        Command::Doctor => doctor::doctor(out),
    }
}

/// Help and version as they are; a mistake as one sentence.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print().and_then(|()| io::stdout().flush());
            match printed {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    complain("error", &CliError::Output(e).to_string());
                    ExitCode::Broken
                }
                _ => ExitCode::Passed,
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::Broken
        }
        _ => {
            complain("error", &sentence(&error.to_string()));
            ExitCode::Broken
        }
    }
}

/// Clap's first paragraph and its tips, on one line.
fn sentence(text: &str) -> String {
    let wanted = |paragraph: &&str| !paragraph.trim_start().starts_with("Usage:");
    let joined: Vec<String> = text
        .split("\n\n")
        .take_while(wanted)
        .filter(|paragraph| !paragraph.starts_with("For more information"))
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let line = joined.join("; ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
