//! Goal: any program can be the subject, its faults are found and shrunk, and its misbehaviour is a
//! finding. Method: Python programs, each with one fault, asked by the binary.
//!
//! Without a Python (`PADPROOF_PYTHON`, else `python3`), or without its numpy, the tests that need
//! it say so and pass.

#![cfg(all(feature = "cli", unix))]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "what is left out is said")]

mod adapters;
mod faults;
mod interrupts;
mod misbehaving;
mod orders;
mod pages;
mod sizes;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A Python that can import these modules.
pub(crate) fn python(modules: &str) -> Option<String> {
    let named = std::env::var("PADPROOF_PYTHON").ok();
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        there || named.is_none() || modules != "numpy",
        "PADPROOF_PYTHON={python} cannot import numpy"
    );
    if !there {
        println!("skipped: {python} cannot import {modules} (PADPROOF_PYTHON names one that can)");
    }
    there.then_some(python)
}

/// The command of a script of this repository.
pub(crate) fn script(python: &str, path: &str, argument: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    format!("{python} -B {} {argument}", path.display())
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_padproof"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("PADPROOF_")) || name == "CI" {
            command.env_remove(name);
        }
    }
    let quiet = [("NO_COLOR", "1"), ("OPENBLAS_NUM_THREADS", "1")];
    command.args(args).envs(quiet).stdin(Stdio::null());
    command
}

pub(crate) fn padproof(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it prints, once it has ended with this code.
#[track_caller]
pub(crate) fn ends(args: &[&str], code: i32) -> String {
    let out = padproof(args);
    let (said, complained) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(
        out.status.code(),
        Some(code),
        "{args:?}: {said} {complained}"
    );
    said
}
