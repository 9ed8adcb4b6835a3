//! Checkpoints on disk: families of names, hostile files, and faults that an audit must name.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod again;
mod claims;
mod command;
mod commands;
mod damage;
mod drafts;
mod edited;
mod families;
mod faults;
mod followed;
mod hostile;
mod invent;
mod killed;
mod mixed;
mod moved;
mod named;
mod oddly;
mod padded;
mod plain;
mod planted;
mod python;
mod scene;
mod sentences;
mod shared;
mod slips;
mod stored;
mod verified;
mod whole;

use std::path::Path;
use std::process::{Command, Output};

/// Holds a text against its snapshot in the folder that all tests share.
pub(crate) fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// A command that ended with 2 and one sentence that holds `word`.
#[track_caller]
pub(crate) fn refused(out: &Output, word: &str) {
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(
        out.stdout.is_empty() && text.starts_with("error: ") && text.lines().count() == 1,
        "{text}"
    );
    assert!(text.contains(word), "{text}");
}

/// What the command answers to a verb, paths and options.
pub(crate) fn padproof(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_padproof"))
        .arg(args[0])
        .args(paths)
        .args(&args[1..])
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}
