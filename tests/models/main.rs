//! Real configs are read, or refused, as facts/upstream-padding.md 4.1 has them; bad ones name
//! their file, key and value.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod advised;
mod bad;
mod chosen;
mod families;
mod formats;
mod integers;
mod modules;
mod real;
mod survey;
mod uneven;

use padproof::model::{Model, ModelError, parse};
use serde_json::{Value, json};

/// A small config of the Qwen3-MoE kind, with some keys changed; null takes a key away.
pub(crate) fn config(changes: Value) -> String {
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

pub(crate) fn changed(changes: Value) -> Result<Model, ModelError> {
    parse(&config(changes), "some/config.json", None)
}

#[track_caller]
pub(crate) fn refused(changes: Value, words: &[&str]) {
    let error = match changed(changes.clone()) {
        Ok(model) => panic!("{changes} was read: {model:?}"),
        Err(error) => error.to_string(),
    };
    for word in words.iter().chain(&["some/config.json: "]) {
        assert!(error.contains(word), "{changes}: `{error}` lacks `{word}`");
    }
    assert!(error.len() < 1200 && !error.contains('\n'), "{error}");
}
