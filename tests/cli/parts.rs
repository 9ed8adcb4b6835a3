//! Parts of a model that no chosen rule is for.

use crate::{Folder, ends, qwen, refused, text};
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
