//! The command as a user meets it: arguments, exit codes, pipes, no terminal.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bad_input;
mod choices;
mod exports;
mod parts;
mod plans;
mod runs;

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_padproof"));
    for (name, _) in std::env::vars_os() {
        let own = name.to_str().is_some_and(|n| n.starts_with("PADPROOF_"));
        if own || name == "CI" || name == "CARGO_TERM_COLOR" || name == "SGLANG_MOE_PADDING" {
            command.env_remove(name);
        }
    }
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

pub(crate) fn padproof(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Signals that a process ignores, as bits from that of signal 1 on: its number, or `self`; none where no /proc says so.
pub(crate) fn signals_ignored(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap())
}

/// Whether the tests were started to outlive interrupts, as by nohup: what they start would then too.
#[expect(clippy::print_stdout, reason = "what is left out is said")]
pub(crate) fn interrupts_are_ignored() -> bool {
    // SIGHUP, which is 1, and SIGINT, 2.
    let ignored = signals_ignored("self") & 0b11 != 0;
    if ignored {
        println!("skipped: interrupts, or the loss of the terminal, are ignored here");
    }
    ignored
}

/// Sends a signal such as `-INT` to a process that is there.
pub(crate) fn signal(id: u32, which: &str) {
    let kill = Command::new("kill").args([which, &id.to_string()]).status();
    assert!(kill.unwrap().success());
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
pub(crate) fn ends(args: &[&str], code: i32) -> Output {
    let out = padproof(args);
    assert_eq!(
        out.status.code(),
        Some(code),
        "{args:?}: {} {}",
        text(&out.stdout),
        text(&out.stderr)
    );
    out
}

/// Exit 2, one line on standard error with these words, nothing on standard output.
#[track_caller]
pub(crate) fn refused(args: &[&str], words: &[&str]) {
    let out = ends(args, 2);
    let complaint = text(&out.stderr);
    assert!(out.stdout.is_empty(), "{args:?}: partial output");
    assert!(complaint.starts_with("error: "), "{args:?}: {complaint}");
    assert!(
        complaint.lines().count() == 1 && complaint.len() < 1500,
        "{args:?}: {complaint}"
    );
    assert!(!complaint.contains("panicked"), "{complaint}");
    for word in words {
        assert!(
            complaint.contains(word),
            "{args:?}: `{complaint}` lacks `{word}`"
        );
    }
}

/// A folder of its own per test, removed at its end.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

pub(crate) fn qwen(changes: &Value) -> String {
    let mut all = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
        "hidden_size": 2048, "moe_intermediate_size": 768, "intermediate_size": 3072,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 2, "norm_topk_prob": true,
    });
    for (key, value) in changes.as_object().unwrap() {
        all[key] = value.clone();
    }
    all.to_string()
}
