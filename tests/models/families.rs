//! Families with keys and habits of their own.

use crate::models::{changed, refused};
use padproof::model::{Model, parse};
use padproof::terms::{Activation, Route};
use serde_json::{Value, json};

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

/// Dense MLPs beside the experts are parts of their own, or said to be there.
#[test]
fn a_dense_mlp_beside_the_experts_is_planned_or_told() {
    let longcat = changed(json!({
        "model_type": "longcat_flash", "architectures": ["LongcatFlashForCausalLM"], "intermediate_size": "gone",
        "ffn_hidden_size": 12288,
    }));
    let grok = changed(json!({
        "model_type": "grok-2", "architectures": ["Grok1ForCausalLM"], "hidden_act": "gelu", "residual_moe": true,
        "intermediate_size": 32768,
    }));
    for (model, width) in [(longcat, 12_288), (grok, 32_768)] {
        let m = model.unwrap();
        assert_eq!((m.dense, m.dense_layers), (Some(width), 2), "{}", m.name);
    }
    let arctic = changed(json!({
        "model_type": "arctic", "architectures": ["ArcticForCausalLM"], "moe_intermediate_size": "gone",
        "intermediate_size": 4864, "use_residual": true,
    }));
    let notes = arctic.unwrap().notes;
    assert!(
        notes.iter().any(|n| n.contains("beside the experts")),
        "{notes:?}"
    );
}

/// A key that a padding would have to change, and that no plan looks at.
#[test]
fn an_odd_key_beside_the_widths_hinders_no_plan() {
    let text = json!({
        "model_type": "qwen3_moe", "moe_intermediate_size": "auto",
        "text_config": serde_json::from_str::<Value>(&crate::models::config(json!({}))).unwrap(),
    });
    let m = parse(&text.to_string(), "config.json", None).unwrap();
    assert_eq!(m.intermediate, 768);
    assert!(m.unpaddable.is_some());
}

/// Their configs have no key of an expert's width alone.
#[test]
fn families_whose_only_width_is_the_experts_are_read() {
    for (kind, class, route) in [
        ("olmoe", "OlmoeForCausalLM", Route::Softmax),
        ("flex_olmo", "FlexOlmoForCausalLM", Route::Softmax),
        ("minimax_m1", "MiniMaxM1ForCausalLM", Route::SoftmaxRenorm),
    ] {
        for gone in ["model_type", "architectures"] {
            let mut changes = json!({
                "model_type": kind, "architectures": [class], "moe_intermediate_size": "gone",
                "intermediate_size": 1024, "norm_topk_prob": "gone",
            });
            changes[gone] = json!("gone");
            let m = changed(changes).unwrap();
            assert_eq!((m.intermediate, m.route), (1024, route), "{kind}");
        }
    }
}

/// transformers raises for another number of experts than two.
#[test]
fn the_sparse_mixer_is_read_with_its_two_experts_and_its_jitter() {
    let phi = |top_k: u64, jitter: f64| {
        json!({
            "model_type": "phimoe", "architectures": ["PhiMoEForCausalLM"], "moe_intermediate_size": "gone",
            "intermediate_size": 6400, "num_experts_per_tok": top_k, "router_jitter_noise": jitter,
        })
    };
    let m = changed(phi(2, 0.01)).unwrap();
    assert_eq!((m.route, m.top_k), (Route::SparseMixer, 2));
    let told = |m: &Model| m.notes.iter().any(|n| n.contains("router_jitter_noise"));
    assert!(!told(&m), "{:?}", m.notes);
    let other = changed(phi(2, 0.02)).unwrap();
    assert!(told(&other), "{:?}", other.notes);
    refused(
        phi(4, 0.01),
        &["num_experts_per_tok is 4, but sparse-mixer is only known with 2"],
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

/// `hidden_act` is the whole model's, a key of the MLPs theirs.
#[test]
fn the_activation_of_the_experts_is_read_from_their_own_key() {
    let m = family(json!({
        "model_type": "nemotron_h", "num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 256,
        "moe_intermediate_size": 768, "hidden_act": "silu", "mlp_hidden_act": "relu2",
    }));
    assert_eq!(m.activation, Activation::Relu2);
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
        json!({"hybrid_override_pattern": "MEX"}),
        &["hybrid_override_pattern", "letter of a layer `X`"],
    );
    refused(
        json!({"moe_layer_freq": [0, 0, 0]}),
        &[
            "moe_layer_freq leaves no layer with experts; it lists 3 layers, and the config counts 2",
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
        "routed_scaling_factor": 6.0, "zero_expert_num": 256, "zero_expert_type": "identity"}),
    );
    assert_eq!(
        (m.intermediate, m.route, m.factor, m.zero_experts),
        (2048, Route::SoftmaxBias, 6.0, 256)
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
fn a_list_of_layers_says_nothing_about_those_behind_it() {
    let model =
        changed(json!({"mlp_layer_types": ["sparse", "sparse"], "num_nextn_predict_layers": 1}));
    let model = model.unwrap();
    assert!(model.mtp_layers == 1 && !model.draft_experts);
    assert!(
        model
            .notes
            .iter()
            .any(|note| note.contains("multi-token-prediction"))
    );
    let dense = changed(json!({"mlp_only_layers": [2], "num_nextn_predict_layers": 1})).unwrap();
    assert!(!dense.draft_experts);
    assert!(!changed(json!({})).unwrap().draft_experts);
}
