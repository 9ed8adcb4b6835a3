//! The command as a user meets it: arguments, exit codes, pipes, no terminal.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn command(args: &[&str]) -> Command {
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

fn padproof(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn ends(args: &[&str], code: i32) -> Output {
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
fn refused(args: &[&str], words: &[&str]) {
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
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn qwen(changes: &Value) -> String {
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

#[test]
fn no_arguments_print_short_help_and_end_with_2() {
    let out = ends(&[], 2);
    assert!(text(&out.stderr).contains("Usage: padproof"));
    ends(&["--help"], 0);
    ends(&["--version"], 0);
}

#[test]
fn bad_configs_are_one_sentence_with_file_key_and_value() {
    let folder = Folder::new();
    let cases = [
        (
            json!({ "moe_intermediate_size": "768" }),
            "moe_intermediate_size",
        ),
        (
            json!({ "moe_intermediate_size": 0 }),
            "moe_intermediate_size",
        ),
        (json!({ "hidden_size": -1 }), "hidden_size"),
        (
            json!({ "moe_intermediate_size": 1u64 << 63 }),
            "9223372036854775808",
        ),
        (json!({ "num_experts_per_tok": 129 }), "129"),
        (json!({ "num_experts": 0 }), "num_experts"),
        (json!({ "hidden_act": "banana" }), "banana"),
        (json!({ "num_experts": [128] }), "num_experts"),
        (
            json!({ "moe_intermediate_size": null }),
            "moe_intermediate_size",
        ),
        (json!({ "hidden_size": 2048.5 }), "2048.5"),
    ];
    for (changes, word) in cases {
        let file = folder.file("config.json", qwen(&changes));
        refused(&["plan", &file, "--tp", "8"], &["config.json", word]);
    }
    let dense = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008}"#;
    let file = folder.file("config.json", dense);
    refused(&["plan", &file, "--tp", "8"], &["Mixture-of-Experts"]);
}

#[test]
fn bad_files_are_one_sentence() {
    let folder = Folder::new();
    let whole = qwen(&json!({}));
    let cut = folder.file("cut.json", &whole[..whole.len() - 40]);
    refused(&["plan", &cut, "--tp", "8"], &["cut.json", "JSON"]);
    let bytes = folder.file("bytes.json", b"\xff\xfe\x00");
    refused(&["plan", &bytes, "--tp", "8"], &["bytes.json", "UTF-8"]);
    let deep = folder.file("deep.json", "[".repeat(200_000));
    refused(&["plan", &deep, "--tp", "8"], &["deep.json"]);
    let empty = folder.path("");
    refused(
        &["plan", empty.to_str().unwrap(), "--tp", "8"],
        &["no config.json"],
    );
    let missing = folder.path("nope.json");
    refused(
        &["plan", missing.to_str().unwrap(), "--tp", "8"],
        &["nope.json"],
    );
    refused(
        &["plan", "gpt-oss-20", "--tp", "8"],
        &["did you mean `gpt-oss-20b`?"],
    );
    let rules = folder.file("rules.toml", "[[rule]]\nid = \"a\"\nno-such-key = 1\n");
    let args = ["plan", "gpt-oss-20b", "--rules", &rules];
    refused(&args, &["rules.toml", "no-such-key"]);
    let suite = folder.file(
        "suite.toml",
        "[suite]\nname = \"s\"\n[[case]]\nname = \"a\"\nline = \"i=0\"\n",
    );
    refused(&["run", &suite], &["suite.toml", "i=0"]);
    let lines = folder.file("lines.txt", "# comment\n\ni=33\nzz=1\n");
    refused(&["replay", &lines], &["lines.txt:4", "zz"]);
}

#[test]
fn bad_numbers_and_names_are_one_sentence() {
    let plan = |more: &[&str], words: &[&str]| {
        let args: Vec<&str> = ["plan", "gpt-oss-20b"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        refused(&args, words);
    };
    for bad in ["0", "-1", "x", "18446744073709551616", "99999999"] {
        plan(&["--tp", bad], &[bad]);
    }
    plan(&["--tp", "8", "--ep", "0"], &["--ep"]);
    plan(&["--tp", "8", "--ep", "3"], &["3"]);
    plan(&["--rule", "no.such.rule"], &["no.such.rule"]);
    plan(
        &["--rule", "sglang.aiter.mxfp"],
        &["did you mean `sglang.aiter.mxfp4`?"],
    );
    plan(&["--backend", "aitre"], &["did you mean `aiter`?"]);
    plan(&["--layer", "sharded"], &["shared"]);
    plan(&["--format", "yaml"], &["human, json, markdown"]);
    refused(&["run", "smok"], &["did you mean `smoke`?"]);
    refused(
        &["run", "-p", "pad-identty"],
        &["did you mean `pad-identity`?"],
    );
    refused(&["run", "-s", "gpu"], &["cpu"]);
    refused(&["run", "--seed", "xyz"], &["xyz", "hexadecimal"]);
    refused(&["run", "--time", "3"], &["30s"]);
    refused(&["run", "--export", "yaml=x"], &["jsonl"]);
    refused(&["list", "modles"], &["models"]);
    refused(
        &["show", "sglang.aiter.mxfp"],
        &["did you mean `sglang.aiter.mxfp4`?"],
    );
}

#[test]
fn bad_case_lines_are_one_sentence() {
    let lines = [
        "i=0",
        "e=4,k=5",
        "i=99999999999999999999",
        "t=1,t=2",
        "zz=1",
        "act=banana",
        "w=fp3",
        "",
        "i=18446744073709551615,h=18446744073709551615",
    ];
    for line in lines {
        refused(&["check", "pad-identity", line], &["case: "]);
        refused(&["shrink", "pad-identity", line], &["case: "]);
    }
    refused(
        &["check", "pad-identty", "i=3"],
        &["did you mean `pad-identity`?"],
    );
}

#[test]
fn huge_cases_are_answered_not_allocated() {
    ends(&["check", "pad-identity", "i=16777216,h=16777216"], 4);
    let out = ends(
        &["check", "pad-identity", "i=1099511627776,h=1099511627776"],
        2,
    );
    assert!(text(&out.stdout).contains("does not fit 64 bits"));
}

#[test]
fn plans_end_with_1_only_when_a_named_rule_does_not_run_the_model() {
    let folder = Folder::new();
    let block = json!({ "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
    }, "moe_intermediate_size": 1536 });
    let file = folder.file("config.json", qwen(&block));
    let plan = |more: &[&str], code| {
        let args: Vec<&str> = ["plan", &file, "--tp", "8"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        ends(&args, code)
    };
    plan(&[], 0);
    plan(&["--rule", "sglang.aiter.fp8"], 0);
    plan(&["--rule", "sglang.triton.fp8-block"], 1);
    plan(&["--rule", "sglang.triton.*"], 1);
    // Another format than the rule's: the plan is made, and says so.
    let out = plan(&["--rule", "sglang.aiter.mxfp4", "--format", "json"], 1);
    assert!(text(&out.stdout).contains("PP111"));
}

#[test]
fn plan_json_has_the_fields_that_others_rely_on() {
    let out = ends(
        &["plan", "NemotronH-default", "--tp", "8", "--format", "json"],
        0,
    );
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    for key in [
        "name",
        "hidden",
        "model_hidden",
        "intermediate",
        "experts",
        "top_k",
        "gated",
        "activation",
    ] {
        assert!(!json["model"][key].is_null(), "model.{key}");
    }
    assert_eq!(json["parallel"], json!({ "tp": 8, "ep": 1 }));
    assert!(json["advice"]["aligned_tp"].is_array());
    let plan = &json["plans"][0];
    for key in [
        "rule",
        "layer",
        "verdict",
        "status",
        "auto",
        "width",
        "width_padded",
        "hidden",
        "hidden_padded",
        "overhead",
        "ranks",
        "tensors",
        "findings",
    ] {
        assert!(!plan[key].is_null(), "plans[].{key}");
    }
    for key in ["rank", "start", "len"] {
        assert!(plan["ranks"][7][key].is_u64(), "ranks[].{key}");
    }
    for key in ["name", "dtype", "shape", "logical", "bytes"] {
        assert!(!plan["tensors"][0][key].is_null(), "tensors[].{key}");
    }
    for key in ["code", "axis", "value", "unit", "granule", "message"] {
        let found = json["plans"].as_array().unwrap().iter();
        let first = found
            .flat_map(|p| p["findings"].as_array().unwrap())
            .next()
            .unwrap();
        assert!(!first[key].is_null(), "findings[].{key}");
    }
}

#[test]
fn the_stride_pad_follows_its_environment_variable() {
    let plan = |value: &str| {
        let mut plan = command(&["plan", "Mixtral-8x7B-v0.1", "--tp", "8", "--format", "json"]);
        text(
            &plan
                .env("SGLANG_MOE_PADDING", value)
                .output()
                .unwrap()
                .stdout,
        )
    };
    assert_eq!(plan("0"), plan(""));
    assert_eq!(plan("1"), plan("true"));
    let folder = Folder::new();
    let fp8 =
        json!({ "quantization_config": { "quant_method": "fp8", "activation_scheme": "dynamic" } });
    let file = folder.file("config.json", qwen(&fp8));
    let strided = |value: &str| {
        let mut plan = command(&[
            "plan",
            &file,
            "--rule",
            "sglang.triton.fp8",
            "--format",
            "json",
        ]);
        text(
            &plan
                .env("SGLANG_MOE_PADDING", value)
                .output()
                .unwrap()
                .stdout,
        )
    };
    assert_ne!(strided("0"), strided("1"));
}

#[test]
fn a_closed_pipe_ends_with_0() {
    for args in [
        &["list", "cases", "boundary"] as &[&str],
        &["run", "smoke", "--format", "jsonl", "--progress", "none"],
        &["plan", "gpt-oss-20b", "--tp", "64", "--format", "json"],
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
    assert!(text(&out.stderr).contains("PADPROOF_SEDE is ignored (did you mean PADPROOF_SEED?)"));
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
fn every_list_names_one_thing_a_line() {
    for what in [
        "models",
        "rules",
        "properties",
        "subjects",
        "formats",
        "suites",
        "cases",
        "mutants",
    ] {
        let out = ends(&["list", what], 0);
        let listed = text(&out.stdout);
        assert!(
            listed.lines().all(|line| !line.starts_with(' ')) && !listed.is_empty(),
            "{what}"
        );
    }
    assert!(text(&ends(&["list", "mutants"], 0).stdout).lines().count() >= 30);
}

#[test]
fn show_knows_cases_rules_and_models() {
    assert!(text(&ends(&["show", "i=33,w=mxfp4,pad=i32"], 0).stdout).contains("33 -> 64"));
    assert!(text(&ends(&["show", "sglang.aiter.mxfp4"], 0).stdout).contains("backend"));
    assert!(text(&ends(&["show", "gpt-oss-20b"], 0).stdout).contains("swigluoai"));
    ends(&["doctor"], 0);
}

#[test]
#[cfg(unix)]
fn an_interrupt_leaves_a_whole_report_and_ends_with_130() {
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
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "run-finished");
    assert_eq!(last["ended"], "interrupted");
}
