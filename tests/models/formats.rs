//! Quantisation entries become weight formats.

use crate::models::{changed, config};
use padproof::model::{Model, ModelError, Share, parse};
use padproof::plan;
use padproof::terms::{LayerKind, WeightFormat};
use serde_json::{Value, json};

pub(crate) fn quantised(entry: Value) -> Result<Model, ModelError> {
    changed(
        json!({"quantization_config": entry, "first_k_dense_replace": 1, "n_shared_experts": 1}),
    )
}

#[track_caller]
fn formats(entry: Value, wanted: [WeightFormat; 3]) {
    let q = quantised(entry.clone())
        .unwrap_or_else(|e| panic!("{entry}: {e}"))
        .quant;
    assert_eq!(
        [q.format, q.shared_format, q.dense_format],
        wanted,
        "{entry}"
    );
}

#[test]
fn quantisation_methods_become_formats() {
    use WeightFormat::*;
    formats(
        json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
        [Fp8Block; 3],
    );
    formats(
        json!({"quant_method": "fp8", "weight_block_size": [32, 32]}),
        [Fp8Block32; 3],
    );
    formats(
        json!({"quant_method": "fp8", "weight_block_size": null}),
        [Fp8; 3],
    );
    formats(json!({"quant_method": "fbgemm_fp8"}), [Fp8Channel; 3]);
    formats(json!({"quant_method": "mxfp4"}), [Mxfp4, Bf16, Bf16]);
    formats(
        json!({"quant_algo": "FP8", "quant_method": "modelopt"}),
        [Fp8; 3],
    );
    formats(json!({"quant_algo": "NVFP4", "group_size": 16}), [Nvfp4; 3]);
    formats(
        json!({"quant_method": "gptq", "bits": 4, "group_size": 128}),
        [Int4; 3],
    );
    formats(
        json!({"quant_method": "gptq", "bits": 4, "group_size": 64}),
        [Int4G64; 3],
    );
    formats(
        json!({"quant_method": "awq", "bits": 4, "group_size": 32}),
        [Int4G32; 3],
    );
    // In the words of AWQ's first files.
    formats(
        json!({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"}),
        [Int4G64; 3],
    );
    formats(
        json!({"quant_method": "w4afp8"}),
        [Int4, Fp8Block, Fp8Block],
    );
    formats(
        json!({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"]}),
        [Fp8, Fp8, Bf16],
    );
    formats(
        json!({"quant_method": "fp8", "ignored_layers": ["shared_experts", "gate"]}),
        [Fp8, Bf16, Fp8],
    );
    formats(
        json!({"quant_method": "fp8", "ignore": ["re:.*mlp.*"]}),
        [Bf16; 3],
    );
    let float8 = |more: Value| {
        let mut weights = json!({"num_bits": 8, "type": "float"});
        weights
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
    };
    formats(float8(json!({"strategy": "channel"})), [Fp8Channel; 3]);
    formats(float8(json!({"strategy": "tensor"})), [Fp8; 3]);
    formats(
        float8(json!({"strategy": "block", "block_structure": [128, 128]})),
        [Fp8Block; 3],
    );
    let group = |targets: Value, bits: u64, kind: &str, size: u64| json!({"targets": targets, "weights": {"num_bits": bits, "type": kind, "strategy": "group", "group_size": size}});
    formats(
        json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": group(json!(["Linear"]), 4, "int", 32)}, "ignore": ["re:.*shared_experts.*"]}),
        [Int4G32, Bf16, Int4G32],
    );
    formats(
        json!({"quant_algo": "MIXED_PRECISION", "config_groups": {
            "group_0": group(json!(["Linear"]), 8, "float", 32),
            "group_1": group(json!(["re:.*mlp\\.experts\\..*"]), 4, "float", 16)}}),
        [Nvfp4, Mxfp8, Mxfp8],
    );
    formats(
        json!({"quant_algo": "MIXED_PRECISION", "quantized_layers": {
            "model.layers.1.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16},
            "model.layers.1.mlp.shared_experts": {"quant_algo": "FP8"}}}),
        [Nvfp4, Fp8, Bf16],
    );
    formats(
        json!({"quant_method": "quark", "global_quant_config": {"weight":
            {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}, "exclude": ["*shared_experts*"]}),
        [Mxfp4, Bf16, Mxfp4],
    );
}

#[test]
fn draft_experts_follow_patterns_for_the_layer_behind_or_for_mtp() {
    let draft = |ignore: Value| {
        let read = changed(json!({"num_nextn_predict_layers": 1, "quantization_config":
            {"quant_method": "fp8", "ignore": ignore}}));
        let model = read.unwrap();
        assert_eq!(model.quant.format, WeightFormat::Fp8);
        model.quant.draft_format
    };
    // Two layers: the draft layer is number 2.
    for left_out in [
        "model.layers.2*",
        "re:.*layers\\.2\\..*",
        "mtp*",
        "mtp.layers.0",
        "re:.*mtp.*",
    ] {
        assert_eq!(
            draft(json!([left_out])),
            Some(WeightFormat::Bf16),
            "{left_out}"
        );
    }
    for other in [
        "lm_head",
        "mtp.fc",
        "model.layers.2.self_attn*",
        "model.mtp.layers.0.self_attn.*",
    ] {
        assert_eq!(draft(json!([other])), None, "{other}");
    }
}

/// Laguna-S-2.1-FP8: blocks by strategy, shared experts left out by a pattern.
#[test]
fn block_strategies_and_patterns_of_compressed_tensors_are_read() {
    use WeightFormat::{Bf16, Fp8Block};
    formats(
        json!({"quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                "block_structure": [128, 128], "group_size": null, "num_bits": 8,
                "strategy": "block", "symmetric": true, "type": "float"}}},
            "ignore": ["lm_head", "re:.*\\.mlp\\.gate$",
                "re:.*\\.mlp\\.shared_expert\\.(gate|up|down)_proj$"]}),
        [Fp8Block, Bf16, Fp8Block],
    );
}

#[test]
fn a_quantisation_without_a_format_is_refused() {
    let refused = |entry: Value, word: &str| {
        let text = quantised(entry).unwrap_err().to_string();
        assert!(
            text.starts_with("some/config.json: ")
                && text.contains("quantization_config")
                && text.contains(word),
            "{text}"
        );
    };
    refused(
        json!({"quant_method": "bitsandbytes"}),
        "unknown quantisation method `bitsandbytes`",
    );
    refused(
        json!({"quant_method": "gptq", "bits": 4, "group_size": 48}),
        "quantization_config.group_size: int4 with group_size 48",
    );
    // Nothing said is no -1.
    refused(
        json!({"quant_method": "gptq", "bits": 4}),
        "int4 without groups",
    );
    refused(
        json!({"quant_method": "awq", "bits": 4, "group_size": 0}),
        "quantization_config.group_size is 0",
    );
    refused(
        json!({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "group_size": 128}),
        "q_group_size: q_group_size 64 beside another group_size",
    );
    // It was taken as if nothing were said.
    let of_weights = |strategy: &str, size: Value| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": strategy, "group_size": size}}}})
    };
    let told = |entry| quantised(entry).unwrap_err().to_string();
    for size in [json!("128"), json!(1.5), json!(-2), json!([128])] {
        let text = told(of_weights("channel", size));
        assert!(text.contains("weights.group_size is "), "{text}");
    }
    for strategy in ["channel", "tensor"] {
        let text = told(of_weights(strategy, json!(128)));
        let word =
            format!("weights.group_size: a strategy of one scale a {strategy} with group_size 128");
        assert!(text.contains(&word), "{text}");
    }
    refused(
        json!({"quant_method": "fp8", "weight_block_size": [128, 96]}),
        "fp8 with blocks of 128x96",
    );
    refused(
        json!({"quant_method": "fp8", "fmt": "e5m2"}),
        "fp8 of elements e5m2",
    );
    refused(
        json!({"quant_method": "fp8", "weight_block_size": 128}),
        "weight_block_size is 128",
    );
    refused(
        json!({"quant_algo": "FP3"}),
        "unknown quantisation algorithm `FP3`",
    );
    refused(
        json!({"quant_algo": "NVFP4", "group_size": 32}),
        "nvfp4 with group_size 32",
    );
    refused(json!({"quant_method": "fp8", "ignore": [3]}), "ignore is 3");
    refused(json!([1]), "a list of 1, where an object is needed");
    refused(json!({"bits": 4}), "quant_method");
}

#[test]
fn expert_dtype_counts_where_the_entry_says_eight_bits() {
    let format = |entry: Value, dtype: &str| {
        changed(json!({"quantization_config": entry, "expert_dtype": dtype}))
            .map(|m| m.quant.format)
    };
    let fp8 = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    assert_eq!(format(fp8.clone(), "fp4").unwrap(), WeightFormat::Mxfp4);
    assert_eq!(format(fp8.clone(), "fp8").unwrap(), WeightFormat::Fp8Block);
    // nvidia's re-quantised DeepSeek-V4 keeps the key and stores NVFP4.
    assert_eq!(
        format(json!({"quant_algo": "NVFP4"}), "fp4").unwrap(),
        WeightFormat::Nvfp4
    );
    assert!(
        format(fp8, "fp3")
            .unwrap_err()
            .to_string()
            .contains("unknown expert dtype `fp3`")
    );
}

#[test]
fn the_file_beside_says_the_format_where_the_config_does_not() {
    let beside = r#"{"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}"#;
    let model = parse(&config(json!({})), "some/config.json", Some(beside)).unwrap();
    assert_eq!(model.quant.format, WeightFormat::Nvfp4);
    let error = parse(&config(json!({})), "some/config.json", Some("{"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("some/hf_quant_config.json: not valid JSON"),
        "{error}"
    );
}

#[test]
fn mixed_precision_that_names_no_layer_is_noted_and_a_layer_that_is_no_object_is_named() {
    let mixed = |layers: Value| {
        let entry = json!({"quant_algo": "MIXED_PRECISION", "quantized_layers": layers});
        let beside = json!({ "quantization": entry }).to_string();
        parse(&config(json!({})), "some/config.json", Some(&beside))
    };
    let model = mixed(json!({})).unwrap();
    assert_eq!(model.quant.format, WeightFormat::Bf16);
    let noted = |note: &String| note.contains("quantized_layers names no quantised layer");
    assert!(model.notes.iter().any(noted), "{:?}", model.notes);
    let error = mixed(json!({"a\nb": 1})).unwrap_err().to_string();
    assert_eq!(
        error,
        "some/hf_quant_config.json: quantized_layers.a\\nb is 1, where an object is needed"
    );
}

/// It was read only where the config said nothing; a stale one was never noticed.
#[test]
fn two_files_that_disagree_are_refused_and_name_both() {
    let read = |own: Value, beside: Value| {
        let config = config(json!({ "quantization_config": own }));
        parse(&config, "some/config.json", Some(&beside.to_string())).map(|m| m.quant.format)
    };
    let fp8 = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let algo = |algo: &str| json!({"quantization": {"quant_algo": algo}});
    assert_eq!(
        read(fp8.clone(), algo("FP8_PB_WO")).unwrap(),
        WeightFormat::Fp8Block
    );
    // What is excluded by other names but leaves the model's parts alone is no disagreement.
    let excluding = json!({"quant_algo": "FP8_PB_WO", "exclude_modules": ["lm_head"]});
    assert_eq!(
        read(fp8.clone(), excluding).unwrap(),
        WeightFormat::Fp8Block
    );
    for (beside, value) in [
        (algo("NVFP4"), "nvfp4"),
        (algo("FP8"), "says fp8;"),
        (
            json!({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}}),
            "unquantised",
        ),
        (
            json!({"quantization": {"quant_algo": "FP8_PB_WO", "exclude_modules": ["model.layers.*.mlp.experts*"]}}),
            "unquantised",
        ),
    ] {
        let error = read(fp8.clone(), beside.clone()).unwrap_err().to_string();
        for word in [
            "some/config.json: quantization_config says that the routed experts are fp8-block",
            "some/hf_quant_config.json: quantization says",
            value,
        ] {
            assert!(error.contains(word), "{beside}: `{error}` lacks `{word}`");
        }
    }
    let top = read(fp8, json!({"quant_algo": "NVFP4"}))
        .unwrap_err()
        .to_string();
    assert!(
        top.contains("some/hf_quant_config.json: the top level says nvfp4"),
        "{top}"
    );
}

/// One format was planned for all, without a word.
#[test]
fn layers_of_different_formats_are_counted_and_each_format_is_planned() {
    let algo = |algo: &str| json!({ "quant_algo": algo });
    let named = |layer: u64| format!("model.layers.{layer}.mlp.experts*");
    for (first, rest, planned) in [
        ("NVFP4", "FP8", WeightFormat::Fp8),
        ("FP8", "NVFP4", WeightFormat::Nvfp4),
    ] {
        let layers = json!({
            named(0): algo(first), named(1): algo(rest), named(2): algo(rest), named(3): algo(rest),
        });
        let entry = json!({
            "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers,
        });
        let model =
            changed(json!({ "num_hidden_layers": 4, "quantization_config": entry })).unwrap();
        assert_eq!(model.quant.format, planned);
        let said = format!(
            "the routed experts of 4 layers are stored differently ({planned} in 3, {} in 1)",
            first.to_ascii_lowercase()
        );
        assert!(
            model.notes.iter().any(|n| n.starts_with(&said)),
            "{:?}",
            model.notes
        );
        let other = if first == "FP8" {
            WeightFormat::Fp8
        } else {
            WeightFormat::Nvfp4
        };
        assert_eq!(
            model.quant.others,
            [Share {
                format: other,
                layers: 1
            }]
        );
        let routed = plan::layers(&model, 1)
            .into_iter()
            .filter(|l| l.kind == LayerKind::Routed);
        assert_eq!(
            routed.map(|l| l.weight).collect::<Vec<_>>(),
            [planned, other]
        );
    }
}

#[test]
fn layers_left_unquantised_are_a_format_of_their_own() {
    let model = changed(json!({ "num_hidden_layers": 4, "quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["model.layers.1.mlp.experts", "model.layers.2.mlp.experts", "model.layers.3.mlp.experts"],
    }}))
    .unwrap();
    assert_eq!(model.quant.format, WeightFormat::Fp8Block);
    assert_eq!(
        model.quant.others,
        [Share {
            format: WeightFormat::Bf16,
            layers: 3
        }]
    );
    let said = "(fp8-block in 1, unquantised in 3): each is planned";
    assert!(
        model.notes.iter().any(|n| n.contains(said)),
        "{:?}",
        model.notes
    );
}
