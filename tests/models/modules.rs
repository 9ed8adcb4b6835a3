//! What quantisation entries say of single modules is read, and what makes a mixture of one expert is refused.

use crate::models::changed;
use crate::models::formats::quantised;
use padproof::terms::WeightFormat;
use serde_json::{Value, json};

/// The routed and the shared experts' formats under an entry.
#[track_caller]
fn formats(entry: Value) -> [WeightFormat; 2] {
    let model = quantised(entry.clone()).unwrap_or_else(|e| panic!("{entry}: {e}"));
    [model.quant.format, model.quant.shared_format]
}

fn integers(changes: Value) -> Value {
    let mut entry = json!({"quant_method": "gptq", "bits": 4, "group_size": 128});
    let (map, changes) = (entry.as_object_mut().unwrap(), changes);
    map.extend(changes.as_object().unwrap().clone());
    entry
}

/// They were read as if the keys were not there.
#[test]
fn modules_that_integer_formats_name_have_a_format_of_their_own() {
    use WeightFormat::{Bf16, Int4, Int4G32};
    for (changes, wanted) in [
        (
            json!({"dynamic": {r"-:.*mlp\.experts.*": {}}}),
            [Bf16, Int4],
        ),
        (json!({"dynamic": {r"-:.*self_attn.*": {}}}), [Int4, Int4]),
        (
            json!({"dynamic": {r"+:.*\.experts\..*": {"group_size": 32}}}),
            [Int4G32, Int4],
        ),
        // The first that matches counts; what no format describes hinders only what it is of.
        (
            json!({"dynamic": {r"+:.*experts.*": {"bits": 4}, r"+:.*": {"bits": 8}}}),
            [Int4, Int4],
        ),
        (
            json!({"bits": 8, "dynamic": {r".*experts.*": {"bits": 4}}}),
            [Int4, Int4],
        ),
        (
            json!({"dynamic": {r".*mlp.*": {"group_size": 32}, r"-:.*": {}}}),
            [Int4G32, Int4G32],
        ),
        (
            json!({"dynamic": {r"+:.*self_attn.*": {"bits": 8, "group_size": 32}}}),
            [Int4, Int4],
        ),
        (
            json!({"modules_in_block_to_quantize": [["self_attn.q_proj"]]}),
            [Bf16, Bf16],
        ),
        (
            json!({"modules_in_block_to_quantize": [["mlp.experts"]]}),
            [Int4, Bf16],
        ),
        (json!({"modules_in_block_to_quantize": []}), [Int4, Int4]),
        (
            json!({"quant_method": "auto-round", "extra_config": {".*experts.*": {"bits": 16}}}),
            [Bf16, Bf16],
        ),
        // Found anywhere in a name; a name itself counts before.
        (
            json!({"quant_method": "auto-round", "extra_config": {
                r"mlp\.experts\..*": {"bits": 16},
                "model.layers.1.mlp.experts": {"group_size": 32},
                r"shared_expert.+": {"bits": 16},
            }}),
            [Int4G32, Bf16],
        ),
        (
            json!({"quant_method": "auto-round", "extra_config": {
                "model.layers.1.mlp.shared_expert": {"bits": 16},
                "model.layers.1.self_attn.q_proj": {"bits": 8, "group_size": 32},
            }}),
            [Int4, Bf16],
        ),
    ] {
        assert_eq!(formats(integers(changes.clone())), wanted, "{changes}");
    }
}

/// They were planned as the second projection of the first expert.
#[test]
fn an_expert_of_several_formats_has_none() {
    let layer = "model.layers.1.mlp.experts";
    let names = |kinds: [(&str, &str); 2]| {
        let mut all = serde_json::Map::new();
        for expert in 0..128 {
            for (projection, algo) in kinds {
                let name = format!("{layer}.{expert}.{projection}");
                all.insert(name, json!({"quant_algo": algo}));
            }
        }
        json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": all})
    };
    let tensors = |ignore: Value| {
        json!({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ignore,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}})
    };
    let same = names([("up_proj", "NVFP4"), ("down_proj", "NVFP4")]);
    assert_eq!(formats(same)[0], WeightFormat::Nvfp4);
    for (entry, words) in [
        (
            names([("up_proj", "NVFP4"), ("down_proj", "FP8")]),
            [
                "fp8 in mlp.experts.0.down_proj",
                "nvfp4 in mlp.experts.0.up_proj of layer 1",
            ],
        ),
        (
            tensors(json!(["re:.*experts.*down_proj"])),
            [
                "unquantised in mlp.experts.0.down_proj",
                "fp8-channel in mlp.experts.0.up_proj",
            ],
        ),
        (
            tensors(json!([format!("{layer}.7.down_proj")])),
            [
                "fp8-channel in mlp.experts.0.down_proj",
                "unquantised in mlp.experts.7.down_proj",
            ],
        ),
        (
            integers(json!({"dynamic": {r"+:.*experts.*": {"bits": 8, "group_size": 32}}})),
            [
                "int8 with group_size 32",
                r"quantization_config.dynamic.+:.*experts.*",
            ],
        ),
    ] {
        let error = quantised(entry.clone())
            .expect_err("it is a mixture")
            .to_string();
        for word in words {
            assert!(error.contains(word), "{entry}: {error}");
        }
    }
    let mut two = tensors(json!([]));
    two["config_groups"]["group_1"] = json!({"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}});
    let error = quantised(two).expect_err("it is ambiguous").to_string();
    assert!(
        error.contains("fp8-channel and nvfp4 for the same modules"),
        "{error}"
    );
}

/// Lists name every module of every expert: all of them count, in any order.
#[test]
fn every_name_of_a_long_list_counts() {
    let projections = ["gate_proj", "up_proj", "down_proj"];
    let name = |expert: usize, projection: &str| format!("mlp.experts.{expert}.{projection}");
    let by_expert: Vec<String> = (0..128)
        .flat_map(|n| projections.map(|projection| name(n, projection)))
        .collect();
    let by_projection: Vec<String> = projections
        .iter()
        .flat_map(|projection| (0..128).map(|n| name(n, projection)))
        .collect();
    for list in [by_expert, by_projection] {
        let entry = integers(json!({"modules_in_block_to_quantize": [["self_attn.q_proj"], list]}));
        assert_eq!(formats(entry), [WeightFormat::Int4, WeightFormat::Bf16]);
    }
}

/// A mixture beside the experts hinders no plan of them: it is told, and has no figures.
#[test]
fn shared_experts_without_one_format_are_told_and_left_out() {
    for (entry, words) in [
        (
            integers(json!({"quant_method": "auto-round",
                "extra_config": {".*shared_experts.*": {"bits": 8}}})),
            "shared experts are not planned: some/config.json: quantization_config.extra_config.",
        ),
        (
            integers(json!({"dynamic": {r"-:.*shared_expert\.up_proj": {}}})),
            "shared experts are not planned: some/config.json: quantization_config: int4 in mlp.shared_experts.down_proj and unquantised in mlp.shared_experts.up_proj",
        ),
    ] {
        let model = quantised(entry).unwrap();
        assert_eq!(
            (model.quant.format, model.shared),
            (WeightFormat::Int4, None)
        );
        assert!(
            model.notes.iter().any(|note| note.starts_with(words)),
            "{:?}",
            model.notes
        );
    }
}

/// They left modules as if they were of the main scheme, without a word.
#[test]
fn patterns_of_modules_that_cannot_be_read_are_counted() {
    let entry = integers(json!({"dynamic": {r"-:model\.layers\.(?!0\.).*experts.*": {}}}));
    let notes = quantised(entry).unwrap().notes;
    let told = "1 patterns of modules with a format of their own could not be read";
    assert!(notes.iter().any(|note| note == told), "{notes:?}");
}

/// The draft's experts are named by a number of their own in such files (Qwen3.5 by GPTQ).
#[test]
fn modules_of_a_draft_have_a_format_of_their_own() {
    let entry = integers(json!({"dynamic": {
        "-:.*attn.*": {}, "-:.*shared_expert.*": {}, "-:.*mtp.*": {}, "-:.*visual.*": {},
    }}));
    let model = changed(json!({"quantization_config": entry, "mtp_num_hidden_layers": 1})).unwrap();
    assert_eq!(model.quant.format, WeightFormat::Int4);
    assert_eq!(model.quant.draft_format, Some(WeightFormat::Bf16));
}
