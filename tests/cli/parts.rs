//! Parts of a model: those that no chosen rule is for, what all of them cost, and what sends their tokens.

use crate::cli::{Folder, ends, qwen, refused, text};
use serde_json::{Value, json};

/// facts/reports.md B08. CSV and the exit code said nothing of the shared expert.
#[test]
fn a_part_without_a_rule_stands_in_every_format() {
    let folder = Folder::new();
    let shared = json!({ "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
    }, "moe_intermediate_size": 512, "model_type": "qwen3_next", "shared_expert_intermediate_size": 512 });
    let file = folder.file("config.json", qwen(&shared));
    let rule = "vllm.any.fp8-block";
    let told = |format: &str| {
        let args = ["plan", &file, "--tp", "8", "--ep", "8", "--rule", rule];
        text(&ends(&[&args[..], &["--format", format]].concat(), 0).stdout)
    };
    let human = told("human");
    let first: Vec<&str> = human.lines().take(4).collect();
    let said = |line: &&str| line.starts_with("unknown: no chosen rule covers the shared layer");
    assert!(first.iter().any(said), "{human}");
    let row = |line: &&str| line.starts_with("no rule of vllm ") && line.contains(" unknown ");
    assert!(human.lines().any(|line| row(&line)), "{human}");
    assert!(
        !human.contains("tp without padding, of all parts"),
        "{human}"
    );
    assert!(told("csv").contains(",vllm,shared,fp8-block,8,8,unknown,64,"));
    assert!(told("markdown").contains("| `vllm`, no rule | shared | unknown | 64 | |"));
    let json: Value = serde_json::from_str(&told("json")).unwrap();
    let plan = &json["plans"][1];
    assert_eq!(
        (&plan["rule"], &plan["verdict"]),
        (&json!("vllm"), &json!("unknown"))
    );
    assert_eq!(
        (&plan["layer"], &plan["covered"]),
        (&json!("shared"), &json!(false))
    );
    assert_eq!(plan["findings"][0]["code"], "PP134");
    assert_eq!(json["advice"]["aligned_usable_tp"], json!([]));
    assert_eq!(
        json["advice"]["rules"][0]["unknown_parts"],
        json!(["shared"])
    );
}

#[test]
fn each_kind_of_layer_has_its_plans_and_the_worst_decides() {
    let args = [
        "plan",
        "DeepSeek-V3",
        "--rule",
        "sglang.triton.fp8-block",
        "--format",
        "csv",
    ];
    let kinds = |tp: &str, code: i32| {
        let out = ends(&[&args[..], &["--tp", tp]].concat(), code);
        let csv = text(&out.stdout);
        let cells = csv
            .lines()
            .skip(1)
            .map(|line| line.split(',').collect::<Vec<_>>());
        cells
            .map(|c| format!("{} {}", c[2], c[6]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kinds("16", 0),
        ["routed fits", "shared fits", "dense fits", "draft fits"]
    );
    // 18432 / 32 = 576 = 4.5 blocks of 128, though 2048 / 32 lies in one.
    let worst = kinds("32", 1);
    assert!(worst.contains(&"dense refused".to_owned()), "{worst:?}");
    let only = [&args[..], &["--tp", "16", "--layer", "draft"]].concat();
    assert_eq!(text(&ends(&only, 0).stdout).lines().count(), 2);
    refused(
        &["plan", "GLM-4.7", "--layer", "draft"],
        &["no draft layer"],
    );
}

/// facts/reports.md B32: one hidden size for the dispatch and the GEMM, which a plan could not say.
#[test]
fn a_dispatch_is_planned_with_each_gemm_of_its_stack() {
    let args = [
        "plan",
        "gpt-oss-20b",
        "--tp",
        "8",
        "--ep",
        "8",
        "--rule",
        "vllm.triton.mxfp4",
    ];
    let planned = |more: &[&str]| -> Value {
        let out = ends(&[&args as &[&str], &["--format", "json"], more].concat(), 0);
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let alone = planned(&[]);
    assert_eq!(alone["plans"][0]["hidden_padded"], 2880);
    assert!(alone["parallel"].get("dispatch").is_none());
    for named in ["deepep_ll", "vllm.deepep_ll.any", "deepep_ht", "nixl"] {
        let sent = planned(&["--dispatch", named]);
        assert_eq!(sent["plans"][0]["hidden_padded"], 3072, "{named}");
        assert_eq!(sent["plans"][0]["verdict"], "padded");
        assert_eq!(sent["plans"][0]["findings"][0]["code"], "PP136");
    }
    let told = planned(&["--dispatch", "nixl"]);
    assert_eq!(told["parallel"]["dispatch"], "vllm.nixl.any");
    let whole = ["plan", "gpt-oss-20b", "--tp", "8", "--dispatch", "nixl"];
    let out = ends(&whole, 0);
    assert!(text(&out.stdout).contains("the dispatch changes nothing"));
    let wrong = [&args as &[&str], &["--dispatch", "deepep"]].concat();
    refused(&wrong, &["no dispatch is `deepep`", "vllm.deepep_ll.any"]);
    let shown = ends(&["show", "vllm.deepep_ll.any"], 0);
    assert!(text(&shown.stdout).contains("plan --dispatch deepep_ll"));
}

/// gpt-oss under DeepEP was "fits, 2880" for stacks whose dispatch nobody read (facts/reports.md B32), and a
/// dispatch that changes nothing left a finding.
#[test]
fn a_dispatch_of_another_stack_leaves_the_hidden_size_open() {
    let planned = |model: &str, rule: &str, ep: &str| -> String {
        let ranks = ["plan", model, "--tp", "8", "--ep", ep, "--rule", rule];
        let out = ends(
            &[&ranks as &[&str], &["--dispatch", "deepep_ll"]].concat(),
            0,
        );
        text(&out.stdout).to_owned()
    };
    for rule in ["sglang.triton_kernels.mxfp4.sm90", "trtllm.cutlass.mxfp4"] {
        let spread = planned("gpt-oss-20b", rule, "8");
        for word in ["unknown", "PP119", "was not read"] {
            assert!(spread.contains(word), "{spread}");
        }
        assert!(!spread.contains("the dispatch changes nothing"), "{spread}");
        let cut = planned("gpt-oss-20b", rule, "1");
        assert!(!cut.contains("PP119"), "{cut}");
        assert!(cut.contains("the dispatch changes nothing"), "{cut}");
    }
    let same = planned("DeepSeek-V4-Flash", "vllm.marlin.mxfp4", "8");
    assert!(same.contains("4096") && !same.contains("PP136"), "{same}");
    assert!(!same.contains("the dispatch changes nothing"), "{same}");
}

/// Under the finding that no size serves both stood one that named the size that does.
#[test]
fn where_no_hidden_size_serves_both_none_is_named() {
    let folder = Folder::new();
    let file = sender(
        &folder,
        "when = { spread = true }\nhidden = [{ next = [2048] }]",
    );
    let ranks = ["plan", "gpt-oss-20b", "--tp", "8", "--ep", "8"];
    let asked = [
        "--rule",
        "vllm.marlin.mxfp4",
        "--dispatch",
        "mine.sender.any",
        "--rules",
        &file,
    ];
    let out = ends(&[&ranks as &[&str], &asked].concat(), 1);
    let told = text(&out.stdout);
    assert!(told.contains("PP128") && !told.contains("PP136"), "{told}");
}

/// A rule file with a dispatch of vLLM's, with more lines of its own.
fn sender(folder: &Folder, more: &str) -> String {
    let rules = format!(
        "[[rule]]\nid = \"mine.sender.any\"\nstack = \"vllm\"\nversion = \"1\"\nbackend = \"sender\"\n\
        formats = [\"mxfp4\"]\ndispatch = true\nsource = \"test\"\ngrade = \"derived\"\n\
        timing = \"creation\"\nsplit = \"floor\"\norder = \"gate-up\"\n{more}\n"
    );
    folder.file("mine.toml", &rules)
}

/// Where an option or the device decides whether it sends the tokens, the plan was the GEMM's alone.
#[test]
fn a_dispatch_that_may_send_the_tokens_leaves_the_plan_unknown() {
    let option = "when = { option = \"the cluster has it\" }\nhidden = [{ align = 1024 }]";
    let ranks = ["plan", "gpt-oss-20b", "--tp", "8", "--ep", "8"];
    let asked = [
        "--rule",
        "vllm.marlin.mxfp4",
        "--dispatch",
        "sender",
        "--rules",
    ];
    let told = |more: &str, arch: &[&str]| {
        let folder = Folder::new();
        let file = sender(&folder, more);
        let out = ends(&[&ranks as &[&str], &asked, &[&file], arch].concat(), 0);
        text(&out.stdout)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let open = told(option, &[]);
    let said = "sends the tokens if the cluster has it, which no config tells: hidden is 3072 then, and 3072 else";
    assert!(open.contains(said) && open.contains("unknown"), "{open}");
    let device = "arch = [\"sm90\"]\nhidden = [{ align = 4096 }]";
    let open = told(device, &[]);
    assert!(
        open.contains("if the device is sm90") && open.contains("4096 then"),
        "{open}"
    );
    let given = told(device, &["--arch", "sm90"]);
    assert!(
        given.contains("PP136") && !given.contains("PP119"),
        "{given}"
    );
    let both = "arch = [\"sm90\"]\nwhen = { option = \"asked\" }\nhidden = [{ next = [2048] }]";
    let open = told(both, &[]);
    assert!(
        open.contains("if asked and the device is sm90") && open.contains("2880 is above 2048"),
        "{open}"
    );
}

/// Tables did not say of which dispatch they were, and of one by itself they said unknown and no more.
#[test]
fn tables_say_which_dispatch_they_are_of() {
    let of = [
        "--rule",
        "vllm.triton.mxfp4",
        "--dispatch",
        "nixl",
        "--ep",
        "8",
    ];
    let all = [&["plan", "--all", "--tp", "8"], &of[..]].concat();
    let several = [&["plan", "gpt-oss-20b", "--tp", "8,16"], &of[..]].concat();
    for asked in [&all[..], &several] {
        let table = |format: &str| {
            text(&ends(&[asked, &["--format", format]].concat(), 0).stdout).to_owned()
        };
        assert!(table("human").contains("dispatch vllm.nixl.any"));
        assert!(table("markdown").contains("\ndispatch vllm.nixl.any\n"));
        assert!(
            table("csv")
                .lines()
                .skip(1)
                .all(|line| line.ends_with(",vllm.nixl.any"))
        );
        let json: Value = serde_json::from_str(&table("json")).unwrap();
        assert_eq!(json["lines"][0]["dispatch"], "vllm.nixl.any");
    }
    let alone = [
        "plan",
        "gpt-oss-20b",
        "--rule",
        "vllm.nixl.any",
        "--ep",
        "8",
        "--tp",
        "8",
    ];
    assert!(text(&ends(&alone, 0).stdout).contains("vllm.nixl.any (dispatch)"));
    let two = [&alone[..7], &["8,16"]].concat();
    assert!(text(&ends(&two, 0).stdout).contains("vllm.nixl.any (dispatch)"));
}

/// A dispatch was the best of vLLM where every GEMM refuses; a slip in a capital named another one; and a
/// pattern of dispatches beside `--dispatch` matched "no rule".
#[test]
fn a_dispatch_is_no_backend() {
    let args = ["plan", "gpt-oss-20b", "--tp", "8", "--ep", "8"];
    let refused_as =
        |more: &[&str], said: &str| refused(&[&args as &[&str], more].concat(), &[said]);
    refused_as(&["--dispatch", "deepep_LL"], "did you mean `deepep_ll`?");
    let both = "names a dispatch alone (vllm.deepep_ht.any)";
    refused_as(&["--dispatch", "nixl", "--rule", "vllm.deepep*"], both);
    refused_as(&["--dispatch", "nixl", "--backend", "deepep_ht"], both);
    let folder = Folder::new();
    let file = sender(&folder, "hidden = [{ next = [] }]");
    refused_as(&["--rules", &file], "next lists no size");
}

/// `aligned_tp` and `per_rule` are of the routed experts alone; what all parts take, and cost, was not said.
#[test]
fn advice_in_json_says_what_all_parts_take_and_cost() {
    let args = [
        "plan",
        "DeepSeek-V3",
        "--weights",
        "fp8-block",
        "--tp",
        "8",
        "--rule",
        "sglang.triton.fp8-block",
    ];
    let out = ends(&[&args as &[&str], &["--format", "json"]].concat(), 0);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let advice = &json["advice"];
    let one = &advice["rules"][0];
    assert_eq!(
        advice["per_rule_all_parts"]["sglang.triton.fp8-block"],
        one["aligned_tp"]
    );
    let layers: Vec<&str> = one["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["layer"].as_str().unwrap())
        .collect();
    assert_eq!(layers, ["shared", "dense", "draft"]);
    let number = |of: &Value| of["rank_bytes"].as_u64().unwrap();
    let parts: u64 = one["parts"].as_array().unwrap().iter().map(number).sum();
    assert_eq!(number(&one["all_parts"]), number(one) + parts);
    assert_eq!(one["all_parts"]["extra_arithmetic"], 0.0);
    // Each is explained.
    let page = include_str!("../../docs/plan-tables.md");
    for object in [advice, one] {
        for key in object
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| !["rule", "format"].contains(&key.as_str()))
        {
            let told = [
                format!("`{key}`"),
                format!("`rules[].{key}"),
                format!(".{key}`"),
            ];
            assert!(told.iter().any(|word| page.contains(word)), "{key}");
        }
    }
}

/// The worst kind of layer decides, and each is said.
#[test]
fn layers_of_different_widths_are_planned_one_kind_after_the_other() {
    let folder = Folder::new();
    let widths = json!({ "moe_intermediate_size": [1024, 768], "num_hidden_layers": 2, "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
    } });
    let file = folder.file("config.json", qwen(&widths));
    let args = [
        "plan",
        &file,
        "--tp",
        "8",
        "--rule",
        "sglang.triton.fp8-block",
    ];
    let said = text(&ends(&args, 1).stdout);
    for kind in [
        "(moe_intermediate_size 1024)",
        "(moe_intermediate_size 768)",
        "96 % 128 = 96",
        "of 2 layers with experts the 1 with",
    ] {
        assert!(said.contains(kind), "{kind}: {said}");
    }
    let table = ends(&[&args as &[&str], &["--format", "csv"]].concat(), 1);
    assert_eq!(text(&table.stdout).lines().count(), 3);
    // Refused, where `plan` took it.
    let shown = text(&ends(&["show", &file], 0).stdout);
    assert_eq!(shown.matches("intermediate     ").count(), 2, "{shown}");
    ends(
        &[
            &args[..2],
            &[
                "--tp",
                "8",
                "--rule",
                "sglang.triton.fp8-block",
                "--layer",
                "routed",
                "--tensors",
            ],
        ]
        .concat(),
        1,
    );
}
