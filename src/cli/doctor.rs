//! `padproof doctor`: what this program can use here.
//!
//! It must not change anything. Layer 11.

use super::environment::{rule_switches, switch_names};
use super::error::CliError;
use crate::model;
use crate::rule::Rules;
use crate::run::ExitCode;
use crate::subject::SubjectChoice;
use std::io::Write;

pub(super) fn doctor(out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let features: Vec<&str> = [
        ("cli", cfg!(feature = "cli")),
        ("hub", cfg!(feature = "hub")),
        ("arbitrary", cfg!(feature = "arbitrary")),
        ("proptest", cfg!(feature = "proptest")),
        ("cuda", cfg!(feature = "cuda")),
        ("cuda-host", cfg!(feature = "cuda-host")),
    ]
    .into_iter()
    .filter_map(|(name, on)| on.then_some(name))
    .collect();
    writeln!(out, "padproof   {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "features   {}", features.join(", "))?;
    writeln!(
        out,
        "machine    {} {}, {threads} threads",
        std::env::consts::ARCH,
        std::env::consts::OS
    )?;
    writeln!(
        out,
        "subjects   {}, and any program that speaks docs/subject-protocol.md",
        SubjectChoice::NAMES.join(", ")
    )?;
    writeln!(out, "device     {}", device())?;
    writeln!(
        out,
        "shipped    {} models, {} rules, {} properties, {} mutants",
        model::builtin().len(),
        Rules::builtin().iter().count(),
        crate::property::ALL.len(),
        crate::mutant::ALL.len()
    )?;
    let rules = Rules::builtin();
    let set = match rule_switches(rules).as_slice() {
        [] => "none set".to_owned(),
        set => format!("set: {}", set.join(", ")),
    };
    let known = switch_names(rules).join(", ");
    writeln!(out, "switches   that rules read ({known}): {set}")?;
    Ok(ExitCode::Passed)
}

/// The device that the subject `cuda` would use.
#[cfg(feature = "cuda")]
fn device() -> String {
    match crate::subject::Cuda::facts() {
        Ok(facts) => format!(
            "{}, {}, {} MiB, driver for CUDA {}.{}; {}",
            facts.name,
            facts.arch,
            facts.memory >> 20,
            facts.driver.0,
            facts.driver.1,
            compiler()
        ),
        Err(why) => format!(
            "none: {}",
            why.to_string().trim_start_matches("no device: ")
        ),
    }
}

/// What compiles for it.
#[cfg(feature = "cuda")]
fn compiler() -> String {
    match crate::subject::Cuda::compiler() {
        Ok(facts) => {
            let (major, minor) = facts.version;
            facts.note.unwrap_or(format!("NVRTC {major}.{minor}"))
        }
        Err(why) => format!("not used: {why}"),
    }
}

/// The device that the subject `cuda` would use.
#[cfg(not(feature = "cuda"))]
fn device() -> String {
    "not looked for: built without the feature cuda".to_owned()
}
