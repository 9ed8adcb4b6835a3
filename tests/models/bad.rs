//! Bad input: one sentence with file, key and value.

use crate::models::formats::quantised;
use crate::models::{changed, config, refused};
use padproof::model::{load, parse};
use padproof::terms::WeightFormat;
use serde_json::{Value, json};
use std::fs;

#[test]
fn wrong_values_are_named_with_key_and_kind() {
    refused(
        json!({"moe_intermediate_size": "768"}),
        &["moe_intermediate_size is \"768\", a string"],
    );
    refused(
        json!({"hidden_size": 2048.5}),
        &["hidden_size is 2048.5, a float where a whole number"],
    );
    refused(
        json!({"num_experts": [128]}),
        &["num_experts is a list of 1, a list"],
    );
    refused(
        json!({"num_experts": true}),
        &["num_experts is true, a boolean"],
    );
    refused(
        json!({"num_experts": {}}),
        &["num_experts is an object of 0, an object"],
    );
    refused(
        json!({"moe_intermediate_size": null}),
        &["moe_intermediate_size is null, but the width of an expert"],
    );
    refused(
        json!({"moe_intermediate_size": 0}),
        &["moe_intermediate_size is 0, but must be at least 1"],
    );
    refused(
        json!({"hidden_size": -1}),
        &["hidden_size is -1, but must be at least 1"],
    );
    refused(
        json!({"num_experts": 0}),
        &["num_experts is 0, but must be at least 1"],
    );
    refused(
        json!({"num_attention_heads": 0}),
        &["num_attention_heads is 0, but must be at least 1"],
    );
    refused(
        json!({"hidden_size": 1_u64 << 63}),
        &["hidden_size is 9223372036854775808, but must be at most 1099511627776"],
    );
    refused(
        json!({"hidden_size": 1e30}),
        &["hidden_size is 1e+30, but must be at most"],
    );
    refused(
        json!({"num_experts_per_tok": 129}),
        &["num_experts_per_tok is 129, but only 128 experts"],
    );
    refused(
        json!({"hidden_act": "banana"}),
        &[
            "hidden_act: unknown activation `banana`",
            "silu",
            "gelu_pytorch_tanh",
        ],
    );
    refused(json!({"hidden_act": "sily"}), &["did you mean `silu`?"]);
    refused(
        json!({"hidden_act": 3}),
        &["hidden_act is 3, a whole number where a string"],
    );
    refused(
        json!({"num_hidden_layers": 1_u64 << 39}),
        &["num_hidden_layers is 549755813888, but must be at most 1024"],
    );
    refused(
        json!({"moe_intermediate_size": "x".repeat(5000)}),
        &["a string where"],
    );
    refused(
        json!({"moe_intermediate_size": "gone"}),
        &[
            "no width of an expert",
            "moe_intermediate_size",
            "intermediate_size is the expert's width in some families",
        ],
    );
    refused(
        json!({"hidden_size": "gone"}),
        &["no hidden size: none of hidden_size, d_model, n_embd"],
    );
    refused(
        json!({"n_shared_experts": 1_u64 << 40}),
        &["n_shared_experts is 1099511627776, but must be at most"],
    );
}

#[test]
fn a_router_that_cannot_be_is_refused() {
    refused(
        json!({"n_group": 3, "topk_group": 1}),
        &["n_group is 3, which does not divide 128"],
    );
    refused(
        json!({"n_group": 8, "topk_group": 9}),
        &["topk_group is 9, but must be at most 8"],
    );
    refused(
        json!({"n_group": 64, "topk_group": 2}),
        &["num_experts_per_tok is 8, but only 4 experts can be chosen in 2 of 64 groups"],
    );
    refused(
        json!({"zero_expert_num": 4, "num_experts_per_tok": 133}),
        &["num_experts_per_tok is 133, but only 132 experts"],
    );
    refused(
        json!({"zero_expert_num": 4, "zero_expert_type": "copy"}),
        &[
            "zero_expert_type: unknown kind of expert `copy`",
            "identity",
        ],
    );
    refused(
        json!({"zero_expert_num": 4, "n_group": 8, "topk_group": 4}),
        &["zero_expert_num is 4, but a grouped router is only known with 0"],
    );
    // Where a word without groups stands for the router, too.
    for score in ["sigmoid", "sqrtsoftplus"] {
        refused(
            json!({"zero_expert_num": 4, "n_group": 8, "topk_group": 4, "scoring_func": score}),
            &["zero_expert_num is 4, but a grouped router is only known with 0"],
        );
    }
    refused(
        json!({"zero_expert_num": 4, "model_type": "longcat_flash", "architectures": ["LongcatFlashForCausalLM"],
            "n_group": 8, "topk_group": 4}),
        &["zero_expert_num is 4, but a grouped router is only known with 0"],
    );
    refused(
        json!({"zero_expert_num": 1_u64 << 41}),
        &["zero_expert_num is 2199023255552, but must be at most 1099511627776"],
    );
    // Identity experts are chosen too.
    let all = changed(json!({"zero_expert_num": 4, "num_experts_per_tok": 132})).unwrap();
    assert_eq!((all.experts, all.top_k, all.zero_experts), (128, 132, 4));
    refused(
        json!({"routed_scaling_factor": 0}),
        &["routed_scaling_factor is 0, but must be above 0"],
    );
    refused(
        json!({"routed_scaling_factor": "2.5"}),
        &["routed_scaling_factor is \"2.5\", a string where a number"],
    );
    refused(
        json!({"routed_scaling_factor": 1e9}),
        &["routed_scaling_factor is 1000000000"],
    );
    refused(
        json!({"scoring_func": "argmax"}),
        &["unknown scoring function `argmax`"],
    );
    refused(
        json!({"norm_topk_prob": "yes"}),
        &["norm_topk_prob is \"yes\", a string where true or false"],
    );
}

#[test]
fn spellings_that_disagree_are_refused_and_ones_that_agree_are_not() {
    refused(
        json!({"experts_per_token": 4}),
        &["experts_per_token is 4, but num_experts_per_tok is 8"],
    );
    refused(
        json!({"num_local_experts": 64}),
        &["num_local_experts is 64, but num_experts is 128"],
    );
    assert_eq!(changed(json!({"experts_per_token": 8})).unwrap().top_k, 8);
}

#[test]
fn text_that_is_no_config_is_refused() {
    let error = |text: &str| {
        parse(text, "some/config.json", None)
            .unwrap_err()
            .to_string()
    };
    let whole = config(json!({}));
    assert!(
        error(&whole[..whole.len() - 40]).contains("line 1 column"),
        "{}",
        error(&whole[..40])
    );
    assert!(error(&"[".repeat(200_000)).contains("recursion limit"));
    assert!(error("[1]").contains("the top level is a list of 1"));
    assert!(error("").contains("not valid JSON"));
    let infinite = config(json!({})).replace("2048", "Infinity");
    assert!(
        error(&infinite).contains("hidden_size is Infinity, no finite number"),
        "{}",
        error(&infinite)
    );
}

#[test]
fn experts_of_another_part_of_the_model_do_not_count() {
    let text = json!({"model_type": "llava", "hidden_size": 8, "vision_config": {"num_experts": 8},
        "text_config": {"model_type": "llama", "hidden_size": 8}})
    .to_string();
    let error = parse(&text, "v.json", None).unwrap_err().to_string();
    assert!(
        error.contains("not a Mixture-of-Experts model") && error.contains("text_config"),
        "{error}"
    );
    let off = json!({"text_config": {"enable_moe_block": false, "num_experts": 8}}).to_string();
    assert!(
        parse(&off, "v.json", None)
            .unwrap_err()
            .to_string()
            .contains("text_config.enable_moe_block is false")
    );
}

#[test]
fn paths_that_lead_nowhere_are_named_as_given() {
    let folder = std::env::temp_dir().join(format!("padproof-models-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let dir = folder.to_str().unwrap();
    assert_eq!(
        load(dir).unwrap_err().to_string(),
        format!("{dir}: the directory has no config.json")
    );
    let nope = at("nope.json");
    assert!(load(&nope).unwrap_err().to_string().contains(&nope));
    fs::write(at("bad.json"), b"\xff\xfe\x00").unwrap();
    assert!(
        load(&at("bad.json"))
            .unwrap_err()
            .to_string()
            .contains("not UTF-8 text (byte 0")
    );
    fs::write(at("config.json"), config(json!({"_name_or_path": ""}))).unwrap();
    let model = load(dir).unwrap();
    assert_eq!(
        (model.source.as_str(), model.name.as_str()),
        (dir, folder.file_name().unwrap().to_str().unwrap())
    );
    fs::File::create(at("big.json"))
        .unwrap()
        .set_len((16 << 20) + 1)
        .unwrap();
    assert!(
        load(&at("big.json"))
            .unwrap_err()
            .to_string()
            .contains("larger than 16777216 bytes")
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_name_nearly_right_is_suggested() {
    let error = load("gpt-oss-21b").unwrap_err().to_string();
    assert!(
        error.contains("did you mean `gpt-oss-20b`?") && error.len() < 1200,
        "{error}"
    );
    let error = load("Qwen/Qwen3-235B-A22").unwrap_err().to_string();
    assert!(error.contains("did you mean `Qwen3-235B-A22B`?"), "{error}");
    assert!(load("").unwrap_err().to_string().contains("no such file"));
    assert!(load("a\0b").is_err());
}

#[test]
fn hostile_configs_are_answered_quickly() {
    let many: Vec<String> = (0..20_000).map(|n| format!("*a*{n}*b*")).collect();
    let entry = json!({"quant_method": "fp8", "ignore": many});
    let m = changed(json!({"quantization_config": entry, "num_hidden_layers": 1024})).unwrap();
    assert_eq!(m.quant.format, WeightFormat::Fp8);
    let regex = format!("re:{}", "(a|b)".repeat(4000));
    let entry = json!({"quant_method": "fp8", "ignore": [regex]});
    assert!(!quantised(entry).unwrap().notes.is_empty());
    refused(
        json!({"hidden_act": "a\nb"}),
        &["unknown activation `a\\nb`"],
    );
}

#[test]
fn any_value_under_any_key_is_read_or_refused_in_one_line() {
    let keys = [
        "hidden_size",
        "moe_intermediate_size",
        "intermediate_size",
        "num_experts",
        "num_experts_per_tok",
        "num_hidden_layers",
        "hidden_act",
        "norm_topk_prob",
        "model_type",
        "architectures",
        "text_config",
        "n_group",
        "topk_group",
        "topk_method",
        "scoring_func",
        "routed_scaling_factor",
        "n_shared_experts",
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "first_k_dense_replace",
        "moe_layer_freq",
        "mlp_only_layers",
        "moe_layers",
        "moe_layers_enum",
        "hybrid_override_pattern",
        "mlp_layer_types",
        "expert_layer_period",
        "swiglu_limit",
        "quantization_config",
        "expert_dtype",
        "torch_dtype",
        "moe_latent_size",
        "vocab_size",
        "num_attention_heads",
        "num_nextn_predict_layers",
        "num_mtp_modules",
        "enable_moe_block",
        "_name_or_path",
        "ffn_config",
    ];
    let values = [
        "null",
        "true",
        "0",
        "-1",
        "1",
        "7",
        "1099511627776",
        "18446744073709551615",
        "1e30",
        "-1e30",
        "0.5",
        "NaN",
        "-Infinity",
        "\"\"",
        "\"x\\ny\"",
        "[]",
        "[0]",
        "[1,[2]]",
        "{}",
        "{\"quant_method\":3}",
        "{\"config_groups\":{\"a\":{\"weights\":[]}}}",
        "{\"quant_algo\":\"MIXED\",\"quantized_layers\":{\"a\":1}}",
    ];
    let whole: Value = serde_json::from_str(&config(json!({}))).unwrap();
    let mut read = 0;
    for key in keys {
        for value in values {
            let mut map = whole.as_object().unwrap().clone();
            map.insert(key.to_owned(), "<>".into());
            let text = Value::Object(map).to_string().replace("\"<>\"", value);
            match parse(&text, "some/config.json", None) {
                Ok(model) => {
                    read += 1;
                    assert!(model.top_k <= model.experts && model.moe_layers <= model.layers);
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.starts_with("some/config.json: "), "{error}");
                    assert!(!error.contains('\n') && error.len() < 1200, "{error}");
                }
            }
        }
    }
    assert!(
        read > 100 && read < keys.len() * values.len(),
        "{read} were read"
    );
}
