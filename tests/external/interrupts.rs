//! Ctrl-C, and padproof's own death: nothing that it started runs on.

use crate::external::{command, script, text};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

const CASE: &str = "t=2,i=33,pad=i32";
/// Busy machines are slow; what must come soon is measured where it matters.
const LONG: Duration = Duration::from_secs(60);

/// A padproof that asks a misbehaving subject, and what runs for it.
struct Asked {
    padproof: Child,
    pids: Vec<String>,
    _folder: tempfile::TempDir,
}

/// Starts one, and waits until the subject is where it misbehaves.
fn asked(how: &str, words: &[&str]) -> Option<Asked> {
    if !cfg!(target_os = "linux") {
        println!("skipped: /proc is not there to look");
        return None;
    }
    if crate::cli::interrupts_are_ignored() {
        return None;
    }
    let python = crate::external::python("struct")?;
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("pids");
    let argument = format!("{how} {}", file.display());
    let subject = script(&python, "tests/external/misbehave.py", &argument);
    let limits = ["--timeout", "1h", "--start-timeout", "1h"];
    let option = ["--subject"].iter().filter(|_| words[0] != "reveal");
    let chosen: Vec<&str> = option.copied().chain([&*subject]).collect();
    let mut padproof = command(&[words, &chosen, &limits[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the subject is asked", || {
        assert!(padproof.try_wait().unwrap().is_none(), "it ended");
        file.exists()
    });
    let pids = std::fs::read_to_string(&file).unwrap();
    let pids = pids.split(' ').map(str::to_owned).collect();
    Some(Asked {
        padproof,
        pids,
        _folder: folder,
    })
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < LONG, "not so: {what}");
        std::thread::yield_now();
    }
}

fn gone(pid: &str) -> bool {
    let stat = Path::new("/proc").join(pid).join("stat");
    let state = std::fs::read_to_string(stat).unwrap_or_default();
    state.is_empty() || state.contains(") Z ") || state.contains(") X ")
}

impl Asked {
    fn signal(&self, name: &str) {
        crate::cli::signal(self.padproof.id(), name);
    }

    /// What padproof said, once it and all that it started have ended.
    fn end(self) -> Output {
        let out = self.padproof.wait_with_output().unwrap();
        for pid in &self.pids {
            until("what it started has ended", || gone(pid));
        }
        out
    }
}

#[test]
fn an_interrupt_before_the_greeting_leaves_no_process() {
    for words in [
        &["check", "pad-identity", CASE][..],
        &["run", CASE],
        &["shrink", "pad-identity", CASE],
    ] {
        let Some(asked) = asked("greet-never", words) else {
            return;
        };
        asked.signal("-INT");
        let out = asked.end();
        assert_eq!(out.status.code(), Some(130), "{words:?}");
        let said = text(&out.stderr);
        let wanted = if words[0] == "run" {
            "interrupted: nothing had run, so there is no report\n"
        } else {
            ""
        };
        assert_eq!((&*said, &*text(&out.stdout)), (wanted, ""), "{words:?}");
    }
}

#[test]
fn one_interrupt_ends_a_check_whose_subject_hangs() {
    let Some(asked) = asked("hang-with-a-child", &["check", "pad-identity", CASE]) else {
        return;
    };
    asked.signal("-INT");
    assert_eq!(asked.end().status.code(), Some(130));
}

#[test]
fn an_interrupt_is_no_finding_and_no_smallest_case() {
    // What is ended must not be taken for what ended by itself: a race, so each is tried often.
    const WIDE: &str = "t=2,h=30,i=33,pad=h32.i32";
    const TRIES: usize = 5;
    for words in [
        &["check", "pad-identity", CASE][..],
        &["shrink", "pad-identity", CASE],
        &["check", "hidden-pad", WIDE, "--reveal"],
        &["reveal"],
    ] {
        for _ in 0..TRIES {
            let Some(asked) = asked("hang-with-a-child", words) else {
                return;
            };
            asked.signal("-TERM");
            let out = asked.end();
            let said = text(&out.stdout) + &text(&out.stderr);
            assert_eq!(out.status.code(), Some(130), "{words:?}: {said}");
            assert_eq!(said, "", "{words:?}");
        }
    }
}

#[test]
fn one_interrupt_ends_a_run_whose_subject_hangs_and_leaves_the_report() {
    let words = ["run", "-p", "pad-identity", CASE, "--format", "json"];
    let Some(asked) = asked("hang-with-a-child", &words) else {
        return;
    };
    asked.signal("-INT");
    let since = Instant::now();
    let out = asked.end();
    // About a second is promised; a busy machine is not held to it.
    assert!(since.elapsed() < Duration::from_secs(10));
    assert_eq!(out.status.code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["counts"]["failed"], 0, "an interrupt is no finding");
    let said = text(&out.stderr);
    assert!(said.contains("interrupted: the report holds"), "{said}");
}

#[test]
fn one_interrupt_ends_planting_and_leaves_what_was_judged() {
    let words = ["run", "--mutants", CASE, "--format", "json"];
    let Some(asked) = asked("hang-with-a-child", &words) else {
        return;
    };
    asked.signal("-INT");
    let out = asked.end();
    assert_eq!(out.status.code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let judged = report["mutants"].as_array().unwrap().len();
    let left_out = usize::try_from(report["left_out"].as_u64().unwrap()).unwrap();
    assert_eq!(judged + left_out, padproof::mutant::ALL.len());
    assert!(left_out > 0 && report["idle"] == serde_json::json!([]));
    let said = text(&out.stderr);
    assert!(said.contains("interrupted: the report holds"), "{said}");
}

#[test]
fn only_random_cases_have_a_place_to_go_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines.txt");
    std::fs::write(&lines, CASE).unwrap();
    let lines = lines.display().to_string();
    for (words, goes_on) in [
        (&["replay", &*lines][..], false),
        (&["run", CASE], false),
        // Before the first of them there is nothing to go on from.
        (&["run", "-n", "5"], false),
        (&["run", "-n", "5", "--start", "3"], true),
    ] {
        let Some(asked) = asked("hang-with-a-child", words) else {
            return;
        };
        asked.signal("-INT");
        let out = asked.end();
        assert_eq!(out.status.code(), Some(130), "{words:?}");
        let said = text(&out.stdout);
        assert!(said.contains("\ninterrupted"), "{words:?}: {said}");
        assert_eq!(said.contains("--start"), goes_on, "{words:?}: {said}");
    }
}

#[test]
fn an_interrupt_ends_a_walk_to_a_smaller_case() {
    // The first reply is wrong, the second never comes.
    let words = [
        "run",
        "-p",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,pad=i64",
    ];
    let Some(asked) = asked("hang-after-a-wrong-reply", &words) else {
        return;
    };
    asked.signal("-INT");
    let out = asked.end();
    assert_eq!(out.status.code(), Some(130));
    let said = text(&out.stdout);
    assert!(
        said.contains("FAIL pad-identity"),
        "as it was found: {said}"
    );
}

#[test]
fn what_a_subject_started_ends_with_it() {
    let Some(asked) = asked("exit-with-a-child", &["check", "pad-identity", CASE]) else {
        return;
    };
    let out = asked.end();
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stdout);
    assert!(said.contains("ended: exit status: 3"), "{said}");
}

#[test]
fn when_padproof_is_killed_its_subject_ends() {
    for how in ["hang-with-a-child", "greet-never"] {
        let Some(asked) = asked(how, &["run", "-p", "pad-identity", CASE]) else {
            return;
        };
        asked.signal("-KILL");
        asked.end();
    }
}
