//! Plans, lists and pages: fields, exit codes, what the environment changes.

use crate::{Folder, command, ends, qwen, refused, text};
use serde_json::{Value, json};

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
fn explain_lists_codes_and_shows_their_pages() {
    let listed = text(&ends(&["explain"], 0).stdout);
    assert!(
        listed.lines().all(|line| line.starts_with("PP1")),
        "{listed}"
    );
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
