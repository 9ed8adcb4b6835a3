//! Subjects that crash, hang, and talk nonsense: findings with a reproducer, and the run goes on.

use crate::external::{ends, padproof, python, script, text};

const CASE: &str = "t=2,i=33,pad=i32";

#[test]
fn misbehaviour_is_a_finding_with_its_last_words_and_a_reproducer() {
    let Some(python) = python("struct") else {
        return;
    };
    for (how, wanted) in [
        ("exit", "ended: exit status: 3"),
        ("signal", "ended: signal: 9"),
        ("hang", "the subject gave no reply within 500ms"),
        ("stop-reading", "the subject gave no reply within 500ms"),
        ("close", "ended: its output alone, the process runs on"),
        ("print", "standard output begins with `Done in 0.1 s`"),
        ("short", "no safetensors"),
        (
            "huge",
            "the subject announced a reply of 4611686018427387904 bytes",
        ),
        ("cut", "the subject ended its output after 4 of 100 bytes"),
        ("rubbish", "no safetensors"),
        ("shape", "y: shape [64, 2, 1], wanted [1, 2, 64]"),
        ("dtype", "y: dtype BF16, wanted F32"),
        ("nan", "got NaN"),
        ("nameless", "y: there is no such tensor"),
        ("other-id", "`id`: `0`, wanted `1`"),
        ("enormous-shape", "no safetensors"),
        ("complain", "the subject says: no kernel image"),
        ("expert", "topk_ids: -1 is none of"),
        (
            "stage",
            "stage.foo: no such stage; stages are stage.route_ids",
        ),
    ] {
        let command = script(&python, "tests/external/misbehave.py", how);
        let asked = ["--subject", &command, "--timeout", "500ms"];
        let said = ends(&[&["check", "pad-identity", CASE], &asked[..]].concat(), 1);
        assert!(said.contains(wanted), "{how}: {said}");
        assert!(
            said.starts_with(&format!("FAIL pad-identity  {how}  ")),
            "{how}: its own name: {said}"
        );
        let repro = format!(
            "repro: padproof check pad-identity {CASE} --subject '{command}' --timeout 500ms"
        );
        assert!(said.contains(&repro), "{how}: {said}");
        // Beside a complaint stands what had been written until then.
        assert!(
            how == "complain" || said.contains(&format!("about to {how}")),
            "{how}: {said}"
        );
    }
}

#[test]
fn a_crash_is_seen_where_a_process_elsewhere_holds_the_pipes() {
    let Some(python) = python("struct") else {
        return;
    };
    // A limit above the time for which the death is looked into, and one below.
    for limit in ["10s", "500ms"] {
        let how = "signal-beside-a-holder";
        let command = script(&python, "tests/external/misbehave.py", how);
        let asked = ["--subject", &command, "--timeout", limit];
        let said = ends(&[&["check", "pad-identity", CASE], &asked[..]].concat(), 1);
        assert!(said.contains("the subject ended: signal: 11"), "{said}");
    }
}

#[test]
fn a_second_reply_is_found_before_the_next_request() {
    let Some(python) = python("struct") else {
        return;
    };
    let command = script(&python, "tests/external/misbehave.py", "twice");
    let said = ends(
        &["check", "poison-isolated", CASE, "--subject", &command],
        1,
    );
    assert!(
        said.contains("before it was asked") || said.contains("`id`"),
        "{said}"
    );
}

#[test]
fn commands_that_are_no_subjects_cannot_run() {
    for (command, wanted) in [
        ("./no/such/program", "cannot start `./no/such/program`"),
        ("sh -c 'exit 7'", "ended: exit status: 7"),
        (
            "sh -c 'echo no numpy here >&2; exit 1'",
            "it wrote: no numpy here",
        ),
        (
            "sh -c \"echo",
            "a quote in the command `sh -c \"echo` does not end",
        ),
        ("cpux", "did you mean `cpu`?"),
        ("kernel", "or a command with a space or a slash in it"),
    ] {
        for words in [
            &["check", "tp-sum", CASE][..],
            &["shrink", "tp-sum", CASE],
            &["run", CASE],
        ] {
            let out = padproof(&[words, &["--subject", command]].concat());
            let complaint = text(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{command}: {complaint}");
            assert!(complaint.contains(wanted), "{command}: {complaint}");
            assert_eq!(complaint.lines().count(), 1, "{complaint}");
        }
    }
}

#[test]
fn greetings_that_are_none_cannot_run() {
    let Some(python) = python("struct") else {
        return;
    };
    for (how, wanted) in [
        (
            "greet-never",
            "did not greet within 2s (--start-timeout): standard output begins with `hm`; it wrote: importing",
        ),
        ("greet-without-a-name", "metadata `name`: there is none"),
        (
            "greet-without-supports",
            "metadata `supports`: there is none",
        ),
        (
            "greet-with-min-above-max",
            "supports: min: tokens: 5 is above max: tokens: 3",
        ),
    ] {
        let command = script(&python, "tests/external/misbehave.py", how);
        let limits = ["--timeout", "1h", "--start-timeout", "2s"];
        let asked = [
            &["check", "tp-sum", CASE, "--subject", &command],
            &limits[..],
        ]
        .concat();
        let out = padproof(&asked);
        let complaint = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{how}: {complaint}");
        assert!(complaint.contains(wanted), "{how}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

#[test]
fn limits_of_no_time_are_refused() {
    for limit in ["--timeout", "--start-timeout"] {
        for command in [&["check", "tp-sum", CASE][..], &["run"], &["reveal"]] {
            let out = padproof(&[command, &[limit, "0s"]].concat());
            let complaint = text(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{complaint}");
            assert!(complaint.contains("a time above 0"), "{complaint}");
        }
    }
}

#[test]
fn a_run_goes_on_after_a_crash() {
    let Some(python) = python("numpy") else {
        return;
    };
    let command = script(&python, "tests/external/faulty.py", "ends-now-and-then");
    let run = [
        "run",
        "-n",
        "30",
        "--profile",
        "small",
        "-p",
        "pad-identity",
        "-j",
        "1",
    ];
    let how = ["--max-fail", "all", "--no-shrink", "--format", "json"];
    let said = ends(&[&run[..], &how, &["--subject", &command]].concat(), 1);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let count = |word: &str| report["counts"][word].as_u64().unwrap();
    assert!(
        count("failed") >= 3 && count("passed") >= 8,
        "{}",
        report["counts"]
    );
    assert!(said.contains("out of luck"), "{said}");
}

#[test]
fn a_slow_leak_is_a_finding() {
    let Some(python) = python("numpy") else {
        return;
    };
    if !cfg!(target_os = "linux") {
        println!("skipped: the system does not tell a process's memory");
        return;
    }
    let run = ["run", "-n", "1500", "--profile", "small"];
    let how = ["-p", "pad-identity", "-j", "1", "--no-shrink", "--no-cases"];
    let all = ["pass", "--max-fail", "all", "--subject"];
    let words = [&run[..], &how, &all].concat();
    let ran = |fault: &str, code: i32| {
        // The shell waits for it, so that the memory is that of a process below.
        let command = script(&python, "tests/external/faulty.py", fault);
        ends(
            &[&words[..], &[&format!("sh -c '{command}; true'")]].concat(),
            code,
        )
    };
    for fault in ["leak", "leak-shared"] {
        let said = ran(fault, 1);
        assert!(said.contains("of memory over 512 replies"), "{said}");
        // Once, though the next process grows as the first did.
        assert!(said.contains("1 failure:"), "{said}");
        let repro = "repro: padproof run -p pad-identity -n 2000 -j 1 --subject";
        assert!(said.contains(repro), "{said}");
    }
    // What grows by as much, and keeps what it has for a case that comes again, does not leak.
    ran("cache", 0);
}

#[test]
fn what_fails_for_what_was_asked_before_says_so_and_is_not_made_small() {
    let Some(python) = python("numpy") else {
        return;
    };
    let command = script(&python, "tests/external/faulty.py", "wrong-from-the-fourth");
    let cases = [
        "t=5,h=32,i=20,pad=i16",
        "t=5,h=32,i=24,pad=i16",
        "t=4,h=32,i=24,pad=i16",
        "t=4,h=33,i=24,pad=i16",
    ];
    let how = [
        "-p",
        "pad-identity",
        "-j",
        "1",
        "--max-fail",
        "all",
        "--subject",
        &command,
    ];
    let said = ends(&[&["run"], &cases[..], &how[..]].concat(), 1);
    assert!(said.contains("a new process passes this case"), "{said}");
    assert!(
        said.contains("check pad-identity h=33,i=24,pad=i16 --subject"),
        "{said}"
    );
    // Where a new process fails too, the case is made small as ever.
    let command = script(&python, "tests/external/faulty.py", "wrong-from-the-first");
    let how = ["-p", "pad-identity", "-j", "1", "--subject", &command];
    let said = ends(&[&["run", cases[3]], &how[..]].concat(), 1);
    assert!(!said.contains("a new process"), "{said}");
    assert!(said.contains("from: h=33,i=24,pad=i16"), "{said}");
}
