//! Bad input ends with 2 and one clear sentence.

use crate::cli::{Folder, ends, qwen, refused, text};
use serde_json::json;

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
    plan(&["--arch", "sm91"], &["sm91", "sm90, xpu"]);
    plan(&["--stack-version", "0.20"], &["STACK=VERSION", "vllm"]);
    plan(&["--stack-version", "vlm=0.20"], &["did you mean `vllm`?"]);
    plan(&["--stack-version", "vllm="], &["sglang=0.5.20"]);
    // It was taken for a version that nobody read.
    plan(
        &["--stack-version", "vllm=banana"],
        &["`banana` is no release number and no commit; read: 0.33.0"],
    );
    plan(&["--stack-version", "vlm=banana"], &["no rule is of `vlm`"]);
    plan(&["--layer", "sharded"], &["shared"]);
    plan(&["--format", "yaml"], &["human, json, markdown"]);
    refused(&["run", "smok"], &["did you mean `smoke`?"]);
    refused(&["run", "no-file.toml"], &["no-file.toml: No such file"]);
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
    for command in [&["check", "pad-identity"] as &[&str], &["run"], &["show"]] {
        let args: Vec<&str> = command
            .iter()
            .chain(&["i=3,rule=sglang.aiter.fp"])
            .copied()
            .collect();
        refused(&args, &["did you mean `sglang.aiter.fp8`?"]);
    }
    refused(
        &["check", "pad-identty", "i=3"],
        &["did you mean `pad-identity`?"],
    );
}

#[test]
fn huge_cases_are_answered_not_allocated() {
    ends(&["check", "pad-identity", "i=16777216,h=16777216"], 4);
    let huge = "i=1099511627776,h=1099511627776";
    for args in [
        &["check", "pad-identity", huge] as &[&str],
        &["run", huge],
        &["show", huge],
    ] {
        refused(args, &["does not fit 64 bits"]);
    }
}

#[test]
fn sentences_about_files_name_no_type_of_the_program() {
    let folder = Folder::new();
    let suite = folder.file(
        "suite.toml",
        "[suite]\nname = \"s\"\n[[plan]]\nname = \"p\"\nmodel = \"GLM-4.7\"\nexpect = \"padded\"\n",
    );
    refused(
        &["run", &suite],
        &["expected a table of what the plan must say"],
    );
    let rules = folder.file(
        "rules.toml",
        "[[rule]]\nid = \"a.b.c\"\nintermediate = [16]\n",
    );
    let args = ["plan", "GLM-4.7", "--rules", &rules];
    refused(&args, &["expected a table such as { align = 16 }"]);
}

#[test]
fn a_suites_unknown_names_are_refused_with_their_place() {
    let folder = Folder::new();
    let head = "[suite]\nname = \"s\"\n";
    let case = "[[case]]\nname = \"c\"\nline = \"i=33\"\n";
    for (text, words) in [
        (
            format!("{head}{case}properties = [\"pad-identty\"]\n"),
            [
                "s.toml:3: entry `s/c`: no property `pad-identty`",
                "`pad-identity`?",
            ],
        ),
        (
            format!("# one\n{head}properties = [\"x\"]\n{case}"),
            ["s.toml:2: [suite]: no property `x`", "tp-sum"],
        ),
        (
            format!("{head}[suite.coverage]\npaded = 0.5\n{case}"),
            ["s.toml:1: [suite]: no coverage `paded`", "`padded`?"],
        ),
    ] {
        let file = folder.file("s.toml", text);
        refused(&["run", &file], &words);
    }
}

#[test]
fn what_never_ends_or_is_too_long_is_not_read_to_its_end() {
    let folder = Folder::new();
    let long = folder.file("config.json", vec![b'['; (16 << 20) + 1]);
    refused(&["plan", &long], &["larger than 16777216 bytes"]);
    let rules = folder.file("rules.toml", vec![b'#'; (4 << 20) + 1]);
    let words = ["larger than 4194304 bytes", "rule file"];
    refused(&["plan", "Qwen3-30B-A3B", "--rules", &rules], &words);
    #[cfg(unix)]
    refused(&["plan", "Qwen3-30B-A3B", "--rules", "/dev/zero"], &words);
}

/// A pipe that nobody writes to would be waited for; one that is open already is read like a file.
#[cfg(unix)]
#[test]
fn pipes_are_read_where_they_are_open_and_refused_elsewhere() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let folder = Folder::new();
    let model = folder.file("config.json", qwen(&json!({})));
    let pipe = folder.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let pipe = pipe.to_str().unwrap();
    let all: [&[&str]; 6] = [
        &["plan", pipe],
        &["plan", &model, "--rules", pipe],
        &["run", pipe],
        &["replay", pipe],
        &["diff", pipe, pipe],
        &["list", "rules", "--rules", pipe],
    ];
    for args in all {
        refused(args, &["not a regular file", "/dev/stdin"]);
    }
    for (args, given) in [
        (
            ["plan", "/dev/stdin", "--tp", "8"].as_slice(),
            qwen(&json!({})),
        ),
        (&["plan", &model, "--rules", "/dev/stdin"], String::new()),
        (
            &["run", "/dev/stdin", "-p", "plan-units"],
            "t=1\n".to_owned(),
        ),
        (&["replay", "/dev/stdin"], "t=1\n".to_owned()),
    ] {
        let mut command = crate::cli::command(args);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(given.as_bytes())
            .unwrap();
        let out = child.wait_with_output().unwrap();
        let said = text(&out.stderr);
        // 3: it was read, and so small a case proves nothing to some property.
        let read = matches!(out.status.code(), Some(0 | 3));
        assert!(read, "{args:?}: {said}");
    }
}

#[test]
fn keys_and_values_that_no_reader_agrees_on_are_named() {
    let folder = Folder::new();
    let wide = 1u64 << 40;
    let sizes = json!({ "hidden_size": wide, "moe_intermediate_size": wide });
    let whole = qwen(&json!({}));
    let changed = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replacen(from, to, 1)
    };
    for (text, words) in [
        (
            qwen(&sizes),
            [
                "hidden_size 1099511627776 x moe_intermediate_size 1099511627776",
                "more weights",
            ],
        ),
        (
            changed(
                "\"moe_intermediate_size\":768",
                "\"moe_intermediate_size\": 1e400",
            ),
            ["out of range", "moe_intermediate_size is 1e400"],
        ),
        (
            changed(
                "\"hidden_size\":2048",
                "\"hidden_size\":2048,\"hidden_size\":4096",
            ),
            ["the key hidden_size stands twice", "column"],
        ),
        (
            qwen(&json!({ "text_config": "x" })),
            ["text_config is \"x\"", "object"],
        ),
        (
            qwen(&json!({ "architectures": "x" })),
            ["architectures is \"x\"", "a list of words"],
        ),
        (
            qwen(&json!({ "architectures": [5] })),
            ["architectures is a list", "a list of words"],
        ),
    ] {
        let file = folder.file("config.json", text);
        refused(
            &["plan", &file, "--tp", "8"],
            &["config.json", words[0], words[1]],
        );
    }
    let stack = ["plan", "Qwen3-30B-A3B", "--stack-version", "vllm"];
    refused(&stack, &["say vllm=VERSION, such as vllm=0.33.0"]);
    let mut command = crate::cli::command(&["plan", "Qwen3-30B-A3B"]);
    let out = command
        .env("SGLANG_MOE_PADDING", "banana")
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert!(
        said.contains("SGLANG_MOE_PADDING=banana is neither 1 or true"),
        "{said}"
    );
}
