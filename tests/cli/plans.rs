//! Plans, lists and pages: fields, exit codes, what the environment changes.

use crate::cli::{Folder, command, ends, padproof, qwen, refused, text};
use serde_json::{Value, json};

#[test]
fn a_rules_clauses_are_plain_text_on_one_line() {
    let folder = Folder::new();
    let rules = folder.file(
        "r.toml",
        "[[rule]]\nid = \"a.b.fp8\"\nstack = \"a\"\nversion = \"1\"\nbackend = \"b\"\nformats = [\"fp8\"]\n\
         source = \"here\"\ngrade = \"source\"\ntiming = \"after-load\"\nsplit = \"floor\"\norder = \"gate-up\"\n\
         refuse = [{ when = {}, verdict = \"refused\", why = \"one\\ntwo\\u001b[31m\" }]\n",
    );
    let args = [
        "Qwen3-30B-A3B",
        "--weights",
        "fp8",
        "--rules",
        &rules,
        "--rule",
        "a.b.fp8",
    ];
    let out = padproof(&[&["plan"] as &[&str], &args].concat());
    let said = text(&out.stdout);
    assert!(said.contains("\n  PP102 rule: one two [31m\n"), "{said}");
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
    // Another format than the rule's.
    let out = plan(&["--rule", "sglang.aiter.mxfp4", "--format", "json"], 1);
    assert!(text(&out.stdout).contains("no chosen rule takes fp8-block in the routed layer"));
}

#[test]
fn plan_json_has_the_fields_that_others_rely_on() {
    let out = ends(
        &["plan", "NemotronH-default", "--tp", "8", "--format", "json"],
        0,
    );
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], 2);
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

/// facts/reports.md B06: 192 wide shards of 1536 in blocks of 128.
#[test]
fn advice_is_usable_and_says_what_it_costs() {
    let args = [
        "plan",
        "Qwen3-235B-A22B",
        "--tp",
        "8",
        "--weights",
        "fp8-block",
    ];
    let args = [&args[..], &["--rule", "sglang.triton.fp8-block"]].concat();
    let human = text(&ends(&args, 1).stdout);
    for line in [
        "1, 2, 4: sglang.triton.fp8-block\n",
        "for 64 attention heads, 4 key-value heads, 151936 words of vocabulary",
        "instead of sglang.triton.fp8-block at tp 8, ep 1 (refused)",
        "tp 4: fits 384, 52.9 GiB of experts a rank\n",
        "ep 8: fits 1536, 26.4 GiB of experts a rank\n",
        "scales repeated on a grid of 64, without loss: fits 192, ",
        "checkpoint padded to 2048 before it is served (padproof pad --tp 8 --align 256), 256 a rank instead of 192: fits, 33.33% more arithmetic, 70.5 GiB more memory in all, 35.3 GiB of experts a rank",
    ] {
        assert!(human.contains(line), "no `{line}` in\n{human}");
    }
    let json = ends(&[&args[..], &["--format", "json"]].concat(), 1);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let advice = &json["advice"];
    assert_eq!(advice["aligned_tp"], json!([1, 2, 3, 4, 6, 12]));
    assert_eq!(advice["aligned_usable_tp"], json!([1, 2, 4]));
    let rule = &advice["rules"][0];
    assert_eq!(rule["aligned_tp"], json!([1, 2, 4]));
    let ways: Vec<_> = rule["instead"].as_array().unwrap().iter().collect();
    let words: Vec<_> = ways
        .iter()
        .map(|way| way["way"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        [
            "ep",
            "backend",
            "finer-scales",
            "pad-offline",
            "requantise",
            "backend",
            "tp"
        ]
    );
    for key in [
        "tp",
        "ep",
        "verdict",
        "width",
        "width_padded",
        "extra_bytes",
        "extra_arithmetic",
        "lossless",
    ] {
        assert!(!ways[0][key].is_null(), "instead[].{key}");
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
            "sglang.triton.fp8.rocm",
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
fn replicas_share_experts_only_where_a_stack_does_that() {
    let folder = Folder::new();
    let rule = std::fs::read_to_string("src/rule/data/sglang.toml").unwrap();
    let block = rule
        .split("[[rule]]")
        .find(|r| r.contains("\"sglang.triton.fp8-block\""));
    let mine = |stack: &str| {
        let text = format!("[[rule]]{}", block.unwrap()).replace("\"sglang", &format!("\"{stack}"));
        let text = text.replace("stack = \"sglang\"", &format!("stack = \"{stack}\""));
        folder.file(&format!("{stack}.toml"), text)
    };
    let widths = |stack: &str, code: i32| {
        let file = mine(stack);
        let rule = format!("{stack}.triton.fp8-block");
        let args = [
            "plan",
            "DeepSeek-V3",
            "--tp",
            "8",
            "--dp",
            "2",
            "--rules",
            &file,
        ];
        let out = ends(
            &[&args[..], &["--rule", &rule, "--format", "json"]].concat(),
            code,
        );
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json["parallel"], json!({ "tp": 8, "ep": 1, "dp": 2 }));
        let plans = json["plans"].as_array().unwrap().clone();
        plans
            .iter()
            .map(|p| {
                (
                    p["width"].as_u64().unwrap(),
                    p["verdict"].as_str().unwrap().to_owned(),
                )
            })
            .collect::<Vec<_>>()
    };
    let own = |plans: &[(u64, &str)]| -> Vec<(u64, String)> {
        plans.iter().map(|(w, v)| (*w, (*v).to_owned())).collect()
    };
    // Routed, shared, dense, draft: 2048 / 16 and 18432 / 8.
    assert_eq!(
        widths("vllm", 0),
        own(&[(128, "fits"), (256, "fits"), (2304, "fits"), (128, "fits")])
    );
    assert_eq!(
        widths("sglang", 0),
        own(&[(256, "fits"), (256, "fits"), (2304, "fits"), (256, "fits")])
    );
    assert!(
        widths("other", 0)
            .iter()
            .all(|(_, verdict)| verdict == "unknown")
    );
    refused(&["plan", "--all", "--dp", "2"], &["--dp"]);
}

/// facts/upstream-padding.md 1.9 and 1.10: 1536 over 8, 7688 over 8.
#[test]
fn several_ranks_make_a_matrix_in_every_format() {
    let args = [
        "plan",
        "NemotronH-default",
        "--weights",
        "fp8",
        "--tp",
        "8,1,4,8",
    ];
    let args = [&args[..], &["--rule", "sglang.flashinfer_cutlass.fp8"]].concat();
    let format = |name: &str| text(&ends(&[&args[..], &["--format", name]].concat(), 0).stdout);
    let human = format("human");
    assert!(human.contains("padded 961->976 1.56%"), "{human}");
    assert!(human.contains("tp 1 ") && human.contains("tp 8"), "{human}");
    assert!(format("markdown").contains("| padded 961->976 1.56% |"));
    let csv = format("csv");
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 7, "{csv}");
    assert!(rows[6].contains(",sglang,shared,bf16,8,1,unknown,961,"));
    assert!(rows[0].starts_with("model,rule,layer,format,tp,ep,verdict,width,width_padded"));
    assert!(
        rows[3].contains(",8,1,padded,961,976,4096,4096,976,0.015609,961*8,"),
        "{csv}"
    );
    let json: Value = serde_json::from_str(&format("json")).unwrap();
    assert_eq!(json["lines"][2]["width_padded"], 976);
}

#[test]
fn all_is_the_matrix_of_models_rules_and_ranks() {
    let out = ends(&["plan", "--all", "--format", "json"], 0);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let lines = json["lines"].as_array().unwrap();
    let models: std::collections::BTreeSet<_> = lines
        .iter()
        .map(|line| line["model"].as_str().unwrap())
        .collect();
    assert_eq!(models.len(), padproof::model::builtin().len());
    let one = ends(
        &["plan", "GLM-4.7", "--all", "--tp", "8", "--format", "csv"],
        0,
    );
    assert!(
        text(&one.stdout)
            .lines()
            .skip(1)
            .all(|line| line.starts_with("GLM-4.7,"))
    );
    refused(&["plan"], &["CONFIG_OR_NAME"]);
    refused(&["plan", "--all", "--tp", "0"], &["--tp"]);
}

#[test]
fn diff_prints_only_what_changed() {
    let folder = Folder::new();
    let saved = |name: &str, args: &[&str]| {
        let out = padproof(&[&["plan"], args, &["--format", "json"]].concat());
        folder.file(name, out.stdout)
    };
    let eight = saved(
        "8.json",
        &["GLM-4.7", "--tp", "8", "--rule", "sglang.*.bf16"],
    );
    let all = saved(
        "all.json",
        &["GLM-4.7", "--all", "--rule", "sglang.*.bf16", "--tp", "8"],
    );
    let same = text(&ends(&["diff", &eight, &eight], 0).stdout);
    assert!(
        same.starts_with("0 plans changed") && same.lines().count() == 1,
        "{same}"
    );
    // A table of one plan and one of all hold the same figures.
    ends(&["diff", &eight, &all, "--format", "json"], 0);
    let changed = std::fs::read_to_string(&all).unwrap();
    let changed = changed.replacen(
        "\"verdict\":\"padded\",\"width\":192,\"width_padded\":256",
        "\"verdict\":\"refused\",\"width\":192,\"width_padded\":192",
        1,
    );
    let changed = folder.file("changed.json", changed);
    let human = text(&ends(&["diff", &all, &changed], 1).stdout);
    assert!(
        human.contains("verdict padded -> refused, padded 256 -> 192"),
        "{human}"
    );
    assert!(
        human.contains("1 plan changed, 0 added, 0 removed"),
        "{human}"
    );
    let markdown = text(&ends(&["diff", &all, &changed, "--format", "markdown"], 1).stdout);
    assert!(
        markdown.contains("| verdict padded, padded 256 | verdict refused, padded 192 |"),
        "{markdown}"
    );
    let json = ends(&["diff", &all, &changed, "--format", "json"], 1);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        json["changes"][0]["changed"]["verdict"],
        json!(["padded", "refused"])
    );
}

#[test]
fn diff_refuses_what_is_no_table() {
    let folder = Folder::new();
    let good = folder.file("good.json", "{\"schema\": 1, \"lines\": []}");
    ends(&["diff", &good, &good], 0);
    for (text, words) in [
        ("{", "not a table of plans"),
        ("{\"schema\": 1}", "neither `lines`"),
        ("{\"schema\": 7, \"lines\": []}", "schema 7 is newer"),
        ("{\"schema\": 1, \"lines\": [{}]}", "missing field"),
        ("\u{ff}", "not a table"),
    ] {
        let bad = folder.file("bad.json", text);
        refused(&["diff", &good, &bad], &["bad.json", words]);
    }
    refused(&["diff", &good, "no-such-file"], &["no-such-file"]);
    refused(&["diff", &good, folder.0.path().to_str().unwrap()], &[]);
}

#[test]
fn explain_lists_codes_and_shows_their_pages() {
    let listed = text(&ends(&["explain"], 0).stdout);
    let (codes, rest): (Vec<&str>, Vec<&str>) =
        listed.lines().partition(|line| line.starts_with("PP1"));
    assert!(codes.len() > 20 && rest.len() == 5, "{listed}");
    assert!(rest[0].contains("wrong, unrepresentable, refused, unknown, slow, padded, fits"));
    assert!(rest[1].contains("minus-zero-pads"), "{listed}");
    let words = [("storage-pad", "128 x 4"), ("halves-swapped", "from M4")];
    for (word, says) in words.into_iter().chain([("refused", "worst first")]) {
        let section = text(&ends(&["explain", word], 0).stdout);
        assert!(section.starts_with(word) && section.contains(says));
    }
    // The heads of the page's tables are no rows.
    refused(&["explain", "row"], &["`row`"]);
    refused(
        &["explain", "halves-swaped"],
        &["did you mean `halves-swapped`?"],
    );
    // Faults by number, rows of one note, words of case lines, in one argument or two.
    for (words, says) in [
        (&["M4"] as &[&str], "halves-swapped: gate where"),
        (
            &["facts/upstream-padding.md 3.2 M4"],
            "halves-swapped: gate where",
        ),
        (&["facts/reports.md B93"], "flashinfer PR #1469"),
        // A section, and one of a range of them.
        (&["1.9"], "get_moe_weight_sizes"),
        (&["facts/upstream-padding.md 1.3"], "a row for each backend"),
        (&["facts/reports.md", "b93"], "flashinfer PR #1469"),
        (&["facts/peers.md F5"], "sglang NVFP4 non-gated"),
        (&["facts/peers.md"], "other programs, run"),
        (&["wild"], "fill=wild of a case line: Values over"),
        (&["vacuous"], "proves nothing"),
    ] {
        let out = text(&ends(&[&["explain"], words].concat(), 0).stdout);
        assert!(out.contains(says), "{words:?}: {out}");
    }
    let one = text(&ends(&["explain", "facts/peers.md F5"], 0).stdout);
    assert_eq!(one.lines().count(), 1, "{one}");
    refused(&["explain", "M99"], &["`M99`", "says what there is"]);
    let page = text(&ends(&["explain", "pp103"], 0).stdout);
    assert!(
        page.starts_with("PP103: ") && page.contains("What to do"),
        "{page}"
    );
    assert!(!page.contains('\u{1b}') && !page.contains("```"), "{page}");
    refused(&["explain", "PP183"], &["`PP183`", "did you mean `PP103`?"]);
    let hint = "what a code means: padproof explain PP";
    let plan = ends(&["plan", "GLM-4.7", "--tp", "8"], 0);
    assert!(text(&plan.stdout).contains(hint));
}

#[test]
fn names_in_a_config_cannot_move_the_cursor() {
    let folder = Folder::new();
    let named = json!({ "_name_or_path": "a/\u{1b}[31mred\nsecond" });
    let file = folder.file("c.json", qwen(&named));
    for args in [
        &["plan", &file, "--color", "always"] as &[&str],
        &["show", &file, "--color", "always"],
    ] {
        let shown = text(&ends(args, 0).stdout);
        assert!(!shown.contains("\u{1b}[31mred"), "{shown}");
        assert!(!shown.contains("\nsecond"), "{shown}");
    }
}
