//! Real configs are read, or refused, as facts/upstream-padding.md 4.1 has them; bad ones name
//! their file, key and value.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use padproof::model::{Grade, Model, ModelError, builtin, load, parse};
use padproof::terms::{Activation, Bias, Route, WeightFormat};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// The folder of real configs, if this checkout has it.
fn configs() -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/configs"));
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

fn real(name: &str) -> Option<Result<Model, ModelError>> {
    Some(load(configs()?.join(name).to_str().unwrap()))
}

fn row(m: &Model) -> String {
    let some = |x: Option<u64>| x.map_or("-".to_owned(), |x| x.to_string());
    let width = if m.hidden == m.model_hidden {
        m.hidden.to_string()
    } else {
        format!("{} [{}]", m.hidden, m.model_hidden)
    };
    let groups = if m.groups > 1 {
        format!(" {}/{}", m.groups, m.keep)
    } else {
        String::new()
    };
    format!(
        "{width} x {} e {}/{} {} {}{groups} x{} shared {} dense {} layers {}/{} mtp {} heads {}/{} vocab {} | {} {} {} ({})",
        m.intermediate,
        m.experts,
        m.top_k,
        m.activation,
        m.route,
        m.factor,
        some(m.shared),
        some(m.dense),
        m.moe_layers,
        m.layers,
        m.mtp_layers,
        some(m.attention_heads),
        some(m.kv_heads),
        some(m.vocab),
        m.quant.format,
        m.quant.shared_format,
        m.quant.dense_format,
        m.quant.method,
    )
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn real_configs_are_read_or_refused() {
    let Some(folder) = configs() else { return };
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 25);
    let mut table = String::new();
    for name in &names {
        let directory = real(name).unwrap();
        let file = load(folder.join(name).join("config.json").to_str().unwrap());
        match (&directory, file) {
            (Ok(model), Ok(file)) => {
                assert_eq!(model.name, *name);
                assert_eq!(
                    Model {
                        source: model.source.clone(),
                        ..file
                    },
                    *model
                );
                writeln!(table, "{name}\n  {}", row(model)).unwrap();
                for note in &model.notes {
                    writeln!(table, "  note: {note}").unwrap();
                }
            }
            (Err(one), Err(_)) => {
                let text = one.to_string();
                let text = text.split_once("config.json: ").unwrap().1;
                writeln!(table, "{name}\n  refused: {text}").unwrap();
            }
            _ => panic!("{name}: the directory and the file in it differ"),
        }
    }
    snapshot("models@configs", &table);
}

#[test]
fn shipped_models_have_the_facts_sizes() {
    let mut table = String::new();
    for model in builtin() {
        writeln!(
            table,
            "{} ({}: {})\n  {}",
            model.name,
            model.grade.name(),
            model.source,
            row(model)
        )
        .unwrap();
    }
    snapshot("models@builtin", &table);
}

/// Facts of one row, checked by hand against facts/upstream-padding.md 4.1.
struct Row(
    &'static str,
    [u64; 4],
    Activation,
    Route,
    Option<u64>,
    Option<u64>,
    [WeightFormat; 3],
);

#[test]
fn key_rows_are_those_of_the_facts() {
    use Activation::{GegluTanh, Relu2, Situ, Swiglu, SwigluClamp, SwigluOai, SwigluStep};
    use Route::{
        GroupedSigmoidBias, Llama4, SigmoidBias, SoftmaxRenorm, SqrtSoftplusBias, TopkSoftmax,
    };
    use WeightFormat::{Bf16, Fp8, Fp8Block, Mxfp4, Nvfp4};
    let rows = [
        Row(
            "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
            [2688, 1856, 128, 6],
            Relu2,
            SigmoidBias,
            Some(3712),
            None,
            [Nvfp4, Nvfp4, Nvfp4],
        ),
        Row(
            "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
            [1024, 2688, 512, 22],
            Relu2,
            SigmoidBias,
            Some(5376),
            None,
            [Fp8, Fp8, Fp8],
        ),
        Row(
            "Qwen--Qwen3-235B-A22B-FP8",
            [4096, 1536, 128, 8],
            Swiglu,
            SoftmaxRenorm,
            None,
            None,
            [Fp8Block; 3],
        ),
        Row(
            "Qwen--Qwen3-VL-30B-A3B-Instruct",
            [2048, 768, 128, 8],
            Swiglu,
            SoftmaxRenorm,
            None,
            None,
            [Bf16; 3],
        ),
        Row(
            "Qwen--Qwen3.5-35B-A3B",
            [2048, 512, 256, 8],
            Swiglu,
            SoftmaxRenorm,
            Some(512),
            None,
            [Bf16; 3],
        ),
        Row(
            "deepseek-ai--DeepSeek-V3",
            [7168, 2048, 256, 8],
            Swiglu,
            GroupedSigmoidBias,
            Some(2048),
            Some(18432),
            [Fp8Block; 3],
        ),
        Row(
            "nvidia--DeepSeek-V3.1-NVFP4",
            [7168, 2048, 256, 8],
            Swiglu,
            GroupedSigmoidBias,
            Some(2048),
            Some(18432),
            [Nvfp4; 3],
        ),
        Row(
            "deepseek-ai--DeepSeek-V4-Pro",
            [7168, 3072, 384, 6],
            SwigluClamp,
            SqrtSoftplusBias,
            Some(3072),
            None,
            [Mxfp4, Fp8Block, Fp8Block],
        ),
        Row(
            "moonshotai--Kimi-K3",
            [3584, 3072, 896, 16],
            Situ,
            SigmoidBias,
            Some(6144),
            Some(33792),
            [Mxfp4, Bf16, Bf16],
        ),
        Row(
            "google--gemma-4-26B-A4B",
            [2816, 704, 128, 8],
            GegluTanh,
            SoftmaxRenorm,
            None,
            Some(2112),
            [Bf16; 3],
        ),
        Row(
            "nvidia--Gemma-4-26B-A4B-NVFP4",
            [2816, 704, 128, 8],
            GegluTanh,
            SoftmaxRenorm,
            None,
            Some(2112),
            [Nvfp4, Nvfp4, Bf16],
        ),
        Row(
            "openai--gpt-oss-20b",
            [2880, 2880, 32, 4],
            SwigluOai,
            TopkSoftmax,
            None,
            None,
            [Mxfp4, Bf16, Bf16],
        ),
        Row(
            "meta-llama--Llama-4-Scout-17B-16E-Instruct",
            [5120, 8192, 16, 1],
            Swiglu,
            Llama4,
            Some(8192),
            None,
            [Bf16; 3],
        ),
        Row(
            "mistralai--Mixtral-8x7B-v0.1",
            [4096, 14336, 8, 2],
            Swiglu,
            SoftmaxRenorm,
            None,
            None,
            [Bf16; 3],
        ),
        Row(
            "MiniMaxAI--MiniMax-M2.5",
            [3072, 1536, 256, 8],
            Swiglu,
            SigmoidBias,
            None,
            None,
            [Fp8Block; 3],
        ),
        Row(
            "XiaomiMiMo--MiMo-V2-Flash",
            [4096, 2048, 256, 8],
            Swiglu,
            SigmoidBias,
            None,
            Some(16384),
            [Fp8Block; 3],
        ),
        Row(
            "stepfun-ai--Step-3.7-Flash-FP8",
            [4096, 1280, 288, 8],
            SwigluStep,
            SigmoidBias,
            Some(1280),
            Some(11264),
            [Fp8Block; 3],
        ),
        Row(
            "zai-org--GLM-5-FP8",
            [6144, 2048, 256, 8],
            Swiglu,
            SigmoidBias,
            Some(2048),
            Some(12288),
            [Fp8Block; 3],
        ),
    ];
    for Row(name, sizes, act, route, shared, dense, formats) in rows {
        let Some(model) = real(name) else { return };
        let m = model.unwrap();
        assert_eq!(
            [m.hidden, m.intermediate, m.experts, m.top_k],
            sizes,
            "{name}"
        );
        assert_eq!((m.activation, m.route), (act, route), "{name}");
        assert_eq!((m.shared, m.dense), (shared, dense), "{name}");
        assert_eq!(
            [m.quant.format, m.quant.shared_format, m.quant.dense_format],
            formats,
            "{name}"
        );
    }
}

#[test]
fn gpt_oss_is_interleaved_and_has_biases() {
    let Some(model) = real("openai--gpt-oss-20b") else {
        return;
    };
    let model = model.unwrap();
    assert!(model.interleaved && model.bias == Bias::Both);
    assert_eq!(model.quant.group, Some(32));
}

#[test]
fn files_and_shipped_models_agree() {
    for (file, name) in [
        (
            "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "Nemotron-3-Nano-30B-A3B",
        ),
        ("Qwen--Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("deepseek-ai--DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
        ("google--gemma-4-26B-A4B", "google/gemma-4-26b-a4b"),
        ("mistralai--Mixtral-8x7B-v0.1", "Mixtral-8x7B-v0.1"),
        ("openai--gpt-oss-20b", "gpt-oss-20b"),
    ] {
        let Some(read) = real(file) else { return };
        let shipped = load(name).unwrap();
        assert_eq!(shipped.grade, Grade::Verified);
        let same = Model {
            name: shipped.name.clone(),
            source: shipped.source.clone(),
            grade: shipped.grade,
            ..read.unwrap()
        };
        assert_eq!(same, shipped);
    }
}

#[test]
fn dense_models_are_refused_with_the_keys_looked_for() {
    for name in [
        "meta-llama--Meta-Llama-3.1-8B",
        "nvidia--Nemotron-H-56B-Base-8K",
    ] {
        let Some(model) = real(name) else { return };
        let error = model.unwrap_err();
        assert!(matches!(error, ModelError::NotMoe { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("num_experts, n_routed_experts, num_local_experts"),
            "{text}"
        );
        assert!(text.contains(name), "{text}");
    }
}

/// A small config of the Qwen3-MoE kind, with some keys changed; null takes a key away.
fn config(changes: Value) -> String {
    let mut all = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
        "hidden_size": 2048, "moe_intermediate_size": 768, "intermediate_size": 6144,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 2, "norm_topk_prob": true,
    });
    for (key, value) in changes.as_object().unwrap() {
        let map = all.as_object_mut().unwrap();
        if value == "gone" {
            map.shift_remove(key)
        } else {
            map.insert(key.clone(), value.clone())
        };
    }
    all.to_string()
}

fn changed(changes: Value) -> Result<Model, ModelError> {
    parse(&config(changes), "some/config.json", None)
}

#[track_caller]
fn refused(changes: Value, words: &[&str]) {
    let error = match changed(changes.clone()) {
        Ok(model) => panic!("{changes} was read: {model:?}"),
        Err(error) => error.to_string(),
    };
    for word in words.iter().chain(&["some/config.json: "]) {
        assert!(error.contains(word), "{changes}: `{error}` lacks `{word}`");
    }
    assert!(error.len() < 1200 && !error.contains('\n'), "{error}");
}

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
fn an_activation_with_another_limit_is_another_function() {
    let act = |changes| changed(changes).map(|m| m.activation);
    assert_eq!(
        act(json!({"swiglu_limit": 10.0})).unwrap(),
        Activation::SwigluClamp
    );
    assert_eq!(
        act(json!({"swiglu_limit": null})).unwrap(),
        Activation::Swiglu
    );
    refused(
        json!({"swiglu_limit": 9.0}),
        &["swiglu_limit is 9, but swiglu-clamp is only known with 10"],
    );
    assert_eq!(
        act(json!({"hidden_act": "gone", "hidden_activation": "gelu"})).unwrap(),
        Activation::Geglu
    );
    // A family that is not known and names no activation is not guessed at.
    refused(
        json!({"hidden_act": "gone", "model_type": "new", "architectures": ["New"]}),
        &["no activation"],
    );
}

#[test]
fn other_families_are_read_by_their_keys() {
    let m = changed(json!({
        "model_type": "new_moe", "architectures": ["NewForCausalLM"], "scoring_func": "sigmoid",
        "num_shared_experts": 2, "first_k_dense_replace": 1, "num_hidden_layers": 4,
        "use_routing_bias": true, "moe_router_scaling_factor": 3,
    }))
    .unwrap();
    assert_eq!((m.route, m.factor), (Route::SigmoidBias, 3.0));
    assert_eq!(
        (m.shared, m.dense, m.moe_layers),
        (Some(1536), Some(6144), 3)
    );
}

#[test]
fn layers_without_experts_are_counted() {
    let layers = |changes| changed(changes).map(|m| (m.moe_layers, m.layers, m.dense));
    assert_eq!(
        layers(json!({"num_hidden_layers": 6, "decoder_sparse_step": 2})).unwrap(),
        (3, 6, Some(6144))
    );
    assert_eq!(
        layers(json!({"num_hidden_layers": 6, "mlp_only_layers": [0, 5]})).unwrap(),
        (4, 6, Some(6144))
    );
    assert_eq!(
        layers(json!({"mlp_layer_types": ["dense", "sparse"]})).unwrap(),
        (1, 2, Some(6144))
    );
    assert_eq!(
        layers(json!({"hybrid_override_pattern": "ME*E-"})).unwrap(),
        (2, 5, Some(6144))
    );
    refused(
        json!({"hybrid_override_pattern": "M*-"}),
        &[
            "not a Mixture-of-Experts model",
            "hybrid_override_pattern leaves no layer",
        ],
    );
    refused(
        json!({"mlp_only_layers": [0, 1]}),
        &["mlp_only_layers leaves no layer"],
    );
    refused(
        json!({"decoder_sparse_step": 0}),
        &["decoder_sparse_step is 0"],
    );
}

fn quantised(entry: Value) -> Result<Model, ModelError> {
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
        json!({"quant_method": "awq", "bits": 4, "group_size": 32}),
        [Int4G32; 3],
    );
    formats(
        json!({"quant_method": "w4afp8"}),
        [Int4, Fp8Block, Fp8Block],
    );
    formats(
        json!({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.down_proj"]}),
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
            "model.layers.1.mlp.shared_experts.down_proj": {"quant_algo": "FP8"}}}),
        [Nvfp4, Fp8, Bf16],
    );
    formats(
        json!({"quant_method": "quark", "global_quant_config": {"weight":
            {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}, "exclude": ["*shared_experts*"]}),
        [Mxfp4, Bf16, Mxfp4],
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
        json!({"quant_method": "gptq", "bits": 4, "group_size": 64}),
        "int4 with group_size 64",
    );
    refused(
        json!({"quant_method": "fp8", "weight_block_size": [128, 96]}),
        "fp8 with blocks of 128x96",
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
        .set_len(65 << 20)
        .unwrap();
    assert!(
        load(&at("big.json"))
            .unwrap_err()
            .to_string()
            .contains("larger than 67108864 bytes")
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

/// A config of a family with keys of its own, from a few of them.
fn family(keys: Value) -> Model {
    parse(&keys.to_string(), "f.json", None).unwrap_or_else(|e| panic!("{keys}: {e}"))
}

#[test]
fn families_with_keys_of_their_own_are_read() {
    let m = family(
        json!({"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48,
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "ffn_act_fn": {"name": "silu"}},
        "attn_config": {"kv_n_heads": 8}}),
    );
    assert_eq!(
        (m.hidden, m.intermediate, m.experts, m.top_k, m.layers),
        (6144, 10752, 16, 4, 40)
    );
    assert_eq!(
        (m.attention_heads, m.kv_heads, m.activation),
        (Some(48), Some(8), Activation::Swiglu)
    );

    let each = |n: u64| vec![n; 4];
    let m = family(
        json!({"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072,
        "moe_intermediate_size": each(3072), "num_experts": 64, "moe_topk": each(8), "num_shared_expert": each(1),
        "num_hidden_layers": 4, "hidden_act": "silu"}),
    );
    assert_eq!((m.intermediate, m.top_k, m.shared), (3072, 8, Some(3072)));

    let m = family(
        json!({"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_experts": 16,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "expert_layer_period": 2, "expert_layer_offset": 1,
        "hidden_act": "silu"}),
    );
    assert_eq!(
        (m.intermediate, m.moe_layers, m.route, m.dense),
        (14336, 16, Route::Softmax, Some(14336))
    );

    let m = family(
        json!({"model_type": "longcat_flash", "hidden_size": 6144, "ffn_hidden_size": 12288,
        "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "moe_topk": 12, "num_layers": 28,
        "routed_scaling_factor": 6.0}),
    );
    assert_eq!(
        (m.intermediate, m.route, m.factor),
        (2048, Route::SoftmaxBias, 6.0)
    );

    let m = family(
        json!({"model_type": "step3_vl", "text_config": {"model_type": "step3_text", "hidden_size": 7168,
        "intermediate_size": 18432, "moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120,
        "share_expert_dim": 5120, "moe_layers_enum": "4,5,6", "num_hidden_layers": 8}}),
    );
    assert_eq!(
        (m.route, m.shared, m.dense, m.moe_layers),
        (Route::Softmax, Some(5120), Some(18432), 3)
    );

    let m = family(
        json!({"model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size": 5120,
        "hidden_act": "silu", "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 128,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "num_hidden_layers": 48}}),
    );
    assert_eq!(
        (m.shared, m.dense, m.moe_layers),
        (Some(8192), Some(16384), 24)
    );

    let m = family(
        json!({"model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "n_routed_experts": 160, "num_experts_per_tok": 6, "n_group": 8,
        "topk_group": 3, "topk_method": "group_limited_greedy", "scoring_func": "softmax", "norm_topk_prob": false,
        "routed_scaling_factor": 16.0, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_hidden_layers": 60,
        "hidden_act": "silu"}),
    );
    assert_eq!(
        (m.route, m.groups, m.keep, m.shared),
        (Route::GroupedSoftmax, 8, 3, Some(3072))
    );
    assert!(m.notes.is_empty());
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
