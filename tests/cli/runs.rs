//! Runs: exit codes, exports, pipes, interrupts, threads.

use crate::cli::{Folder, command, ends, padproof, refused, text};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_closed_pipe_ends_with_0() {
    for args in [
        &["list", "cases", "boundary"] as &[&str],
        &["run", "smoke", "--format", "jsonl", "--progress", "none"],
        &["plan", "gpt-oss-20b", "--tp", "64", "--format", "json"],
        &["plan", "--all", "--format", "csv"],
        &["plan", "--all", "--format", "json"],
        &["plan", "--all"],
    ] {
        let mut child = command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(
            out.status.code(),
            Some(0),
            "{args:?}: {}",
            text(&out.stderr)
        );
        assert!(out.stderr.is_empty(), "{args:?}: {}", text(&out.stderr));
    }
}

#[test]
fn without_a_terminal_nothing_is_coloured_or_drawn() {
    let mut run = command(&["run", "smoke/orders", "-p", "plan-units"]);
    let out = run.env_remove("NO_COLOR").output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert!(!out.stdout.contains(&0x1b) && out.stderr.is_empty());
    let out = ends(
        &[
            "run",
            "smoke/orders",
            "-p",
            "plan-units",
            "--color",
            "always",
        ],
        0,
    );
    assert!(out.stdout.contains(&0x1b));
}

/// The report without its times.
fn report(args: &[&str]) -> Value {
    let out = padproof(args);
    let mut json: Value = serde_json::from_slice(&out.stdout).unwrap();
    json["time"].take();
    for group in json["properties"].as_array_mut().unwrap() {
        group["time"].take();
    }
    json
}

#[test]
fn runs_say_the_same_on_any_number_of_threads() {
    let run = |jobs: &str| {
        report(&[
            "run",
            "smoke/fills",
            "smoke/splits",
            "-n",
            "70",
            "--format",
            "json",
            "-j",
            jobs,
        ])
    };
    let one = run("1");
    assert!(one["counts"]["passed"].as_u64().unwrap() > 500);
    assert_eq!(one, run("3"));
}

#[test]
fn filters_choose_and_an_empty_choice_is_not_a_pass() {
    let json = report(&[
        "run",
        "smoke",
        "-f",
        "w=nvfp4,store=128x4",
        "-p",
        "pad-is-inert",
        "--format",
        "json",
    ]);
    assert_eq!(json["coverage"]["cases"], 2);
    ends(&["run", "smoke", "-f", "w=nothing"], 4);
    ends(
        &["run", "smoke", "-f", "w=nothing", "--no-cases", "warn"],
        0,
    );
    let all = ["plan-minimal", "plan-units"];
    let json = report(&[
        "run",
        "smoke/orders",
        "-p",
        &all.join(","),
        "--format",
        "json",
    ]);
    assert_eq!(json["properties"].as_array().unwrap().len(), 2);
}

#[test]
fn a_stale_expected_failure_turns_red() {
    let folder = Folder::new();
    let suite = "[suite]\nname = \"s\"\nproperties = [\"plan-units\"]\n[[case]]\nname = \"a\"\nline = \"i=33,w=mxfp4,pad=i32\"\nexpect = \"fail\"\nwhy = \"it failed once\"\n";
    let file = folder.file("s.toml", suite);
    let out = ends(&["run", &file], 1);
    assert!(text(&out.stdout).contains("stale"), "{}", text(&out.stdout));
}

#[test]
fn coverage_below_a_suites_minimum_ends_with_3() {
    let folder = Folder::new();
    let suite = "[suite]\nname = \"s\"\nproperties = [\"plan-units\"]\n[suite.coverage]\npadded = 0.5\n[[case]]\nname = \"a\"\nline = \"i=64\"\n";
    let file = folder.file("s.toml", suite);
    let out = ends(&["run", &file], 3);
    assert!(text(&out.stdout).contains("padded 0% of cases, at least 50% wanted"));
}

#[test]
fn plan_entries_are_held_and_named_by_their_reproducer() {
    let folder = Folder::new();
    let entry = |width: u64| {
        format!(
            "[suite]\nname = \"s\"\n[[plan]]\nname = \"p\"\nmodel = \"NemotronH-default\"\ntp = 8\nrule = \"sglang.flashinfer_trtllm.bf16\"\nexpect = {{ width = {width} }}\n"
        )
    };
    ends(&["run", &folder.file("right.toml", entry(961))], 0);
    let out = ends(&["run", &folder.file("wrong.toml", entry(960))], 1);
    assert!(
        text(&out.stdout).contains("wanted 960, got 961"),
        "{}",
        text(&out.stdout)
    );
}

#[test]
fn a_file_whose_name_begins_as_an_option_is_named_so_that_it_can_be_pasted() {
    let folder = Folder::new();
    folder.file(
        "-x.toml",
        "[suite]\nname = \"x\"\n[[plan]]\nname = \"a\"\nmodel = \"Qwen3-30B-A3B\"\nexpect = { width = 1 }\n",
    );
    let mut run = command(&["run", "--", "-x.toml"]);
    let out = run.current_dir(folder.0.path()).output().unwrap();
    let said = text(&out.stdout);
    assert!(said.contains("padproof run ./-x.toml::x/a"), "{said}");
    let mut again = command(&["run", "./-x.toml::x/a"]);
    let out = again.current_dir(folder.0.path()).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
}

#[test]
fn a_suites_texts_are_plain_text_on_one_line() {
    let folder = Folder::new();
    let head = "[suite]\nname = \"x\"\n[[plan]]\nname = \"a\"\nmodel = \"Qwen3-30B-A3B\"\n";
    for (rest, wanted) in [
        (
            "width = 1 }\nwhy = \"p\\nq\\u001b[31m\"",
            " differ; p q [31m\n",
        ),
        ("says = [\"p\\nq\"] }\nwhy = \"r\"", "p q"),
        ("shapes = { \"p\\nq\" = [1] } }", "p q shape wanted"),
    ] {
        let rule = "rule = \"sglang.triton.bf16\"";
        let file = folder.file("x.toml", format!("{head}{rule}\nexpect = {{ {rest}\n"));
        let said = text(&padproof(&["run", &file]).stdout);
        assert!(said.contains(wanted) && !said.contains("\nq"), "{said}");
    }
}

#[test]
fn exports_are_whole_files_beside_standard_output() {
    let folder = Folder::new();
    let (json, junit) = (folder.path("r.json"), folder.path("r.xml"));
    let exports = [
        format!("json={}", json.display()),
        format!("junit={}", junit.display()),
    ];
    ends(
        &[
            "run",
            "smoke/orders",
            "-p",
            "plan-units",
            "--export",
            &exports[0],
            "--export",
            &exports[1],
        ],
        0,
    );
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["schema"], 1);
    assert!(
        std::fs::read_to_string(&junit)
            .unwrap()
            .starts_with("<?xml")
    );
    let left = std::fs::read_dir(Path::new(folder.0.path()))
        .unwrap()
        .count();
    assert_eq!(left, 2);
    let nowhere = folder.path("no/such/r.json");
    refused(
        &[
            "run",
            "smoke/orders",
            "-p",
            "plan-units",
            "--export",
            &format!("json={}", nowhere.display()),
        ],
        &["r.json"],
    );
}

#[test]
fn case_lines_come_from_files_and_from_a_pipe() {
    let folder = Folder::new();
    let file = folder.file("lines.txt", "# two\ni=33,pad=i32\n\ni=65,pad=i64\n");
    for args in [&["replay", &file] as &[&str], &["run", &file]] {
        let mut args = args.to_vec();
        args.extend(["--format", "json", "-p", "plan-units"]);
        assert_eq!(report(&args)["coverage"]["cases"], 2);
    }
    let mut child = command(&["run", "-", "-p", "plan-units"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"i=33\n").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn unknown_variables_are_reported_and_known_ones_are_read() {
    let mut run = command(&["run", "smoke/orders", "-p", "plan-units"]);
    let out = run
        .env("PADPROOF_SEDE", "1")
        .env("PADPROOF_SEED", "abc")
        .output()
        .unwrap();
    assert!(out.status.success());
    assert!(text(&out.stderr).contains("PADPROOF_SEDE is ignored (did you mean `PADPROOF_SEED`?)"));
    assert!(text(&out.stdout).contains("seed abc"));
    let mut run = command(&["run", "smoke/orders"]);
    assert_eq!(
        run.env("PADPROOF_CASES", "many")
            .output()
            .unwrap()
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn passing_checks_do_not_shrink() {
    let out = ends(&["shrink", "plan-units", "i=33,pad=i32"], 1);
    assert!(text(&out.stdout).contains("does not fail"));
    ends(&["check", "plan-units", "i=33,pad=i32"], 0);
}

#[test]
#[cfg(unix)]
fn an_interrupt_leaves_a_whole_report_and_ends_with_130() {
    if super::interrupts_are_ignored() {
        return;
    }
    let args = [
        "run",
        "-n",
        "max",
        "--time",
        "1h",
        "--format",
        "jsonl",
        "--progress",
        "none",
    ];
    let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    // The first line is written when the run has begun and listens.
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    super::signal(child.id(), "-INT");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "run-finished");
    assert_eq!(last["ended"], "interrupted");
}

/// A handler took the place of what nohup, or a shell's `&`, had ignored: the run ended with its terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_run_that_was_started_to_outlive_interrupts_does() {
    for (signal, bit) in [("HUP", 1), ("INT", 2)] {
        let words = format!("trap '' {signal}; exec \"$0\" run -n max --time 1h --format jsonl");
        let mut child = Command::new("sh")
            .args(["-c", &words, env!("CARGO_BIN_EXE_padproof")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The first line is written when the run would listen.
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
        let ignored = super::signals_ignored(&child.id().to_string());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ignored & bit, bit, "{signal}: {ignored:x}");
    }
}

/// What a failure of a plan entry prints, in a file of the user's own, under any name.
#[test]
fn the_reproducer_of_a_users_plan_entry_can_be_pasted() {
    let folder = Folder::new();
    let entry = |name: &str, width: u64| {
        format!(
            "[[plan]]\nname = \"{name}\"\nmodel = \"NemotronH-default\"\ntp = 8\nrule = \"sglang.flashinfer_trtllm.bf16\"\nexpect = {{ width = {width} }}\n"
        )
    };
    let text = format!(
        "[suite]\nname = \"mine\"\n{}{}[[case]]\nname = \"stale\"\nline = \"i=20,pad=i16\"\nexpect = \"fail\"\nwhy = \"it did once\"\n",
        entry("right", 961),
        entry("wrong", 960)
    );
    for name in ["mine.toml", "it's mine; a::b.toml"] {
        let file = folder.file(name, &text);
        let out = ends(&["run", &file, "--max-fail", "all"], 1);
        let printed = self::text(&out.stdout);
        let repros: Vec<&str> = (printed.lines())
            .filter_map(|line| line.trim().strip_prefix("repro: padproof run "))
            .collect();
        assert_eq!(repros.len(), 4, "two failures, told twice: {printed}");
        for repro in &repros[..2] {
            // A shell takes the word apart.
            let line = format!("printf %s {repro}");
            let word = Command::new("sh").args(["-c", &line]).output().unwrap();
            let out = ends(&["run", &self::text(&word.stdout)], 1);
            let again = self::text(&out.stdout);
            assert!(again.contains(repro), "{again}");
            assert!(again.contains(" 1 failed"), "{again}");
        }
        assert!(repros[0].contains("mine/stale") && repros[1].contains("mine/wrong"));
    }
    let file = folder.file("mine.toml", &text);
    refused(
        &["run", &format!("{file}::mine/wrnog")],
        &["did you mean `mine/wrong`?"],
    );
    refused(&["run", "nowhere.toml::mine/wrong"], &["nowhere.toml"]);
    // The name that stands in the file will do.
    ends(&["run", &format!("{file}::right")], 0);
    ends(&["run", &format!("{file}::wrong")], 1);
    // A shipped suite is no file.
    ends(&["run", "smoke::orders", "-p", "plan-units"], 0);
    refused(&["run", "reports::nosuch"], &["suite reports has no entry"]);
}

#[test]
fn what_mutants_would_ignore_is_refused() {
    for (flags, name) in [
        (&["-p", "tp-sum"][..], "--property"),
        (&["-f", "i=4"], "--filter"),
        (&["-j", "2"], "--jobs"),
        (&["-n", "3"], "--cases"),
        (&["--export", "json=x.json"], "--export"),
    ] {
        let said = format!("{name} does nothing beside --mutants");
        refused(&[&["run", "--mutants"], flags].concat(), &[&said]);
    }
}
