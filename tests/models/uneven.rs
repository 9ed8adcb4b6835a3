//! Sizes that differ from layer to layer make a model for each kind of layer.

use super::{changed, config};
use padproof::model::{Model, parse_each};
use padproof::terms::WeightFormat;
use serde_json::json;

fn each(changes: serde_json::Value) -> Vec<Model> {
    parse_each(&config(changes), "some/config.json", None).unwrap()
}

/// A list of widths was refused, whatever stood in it.
#[test]
fn layers_of_different_widths_are_models_by_themselves() {
    let widths = json!({
        "moe_intermediate_size": [768, 768, 1536, 768], "num_hidden_layers": 4, "mlp_only_layers": [0],
    });
    let told: Vec<_> = each(widths.clone())
        .into_iter()
        .map(|model| {
            (
                model.name,
                model.intermediate,
                model.moe_layers,
                model.dense,
            )
        })
        .collect();
    let name = |size: u64| format!("some (moe_intermediate_size {size})");
    let wanted = [(name(768), 768, 2, Some(6144)), (name(1536), 1536, 1, None)];
    assert_eq!(told, wanted);
    // What takes one model says so.
    assert!(changed(widths).is_err());
    // A width of dense layers alone makes no kind.
    let dense = json!({
        "moe_intermediate_size": [256, 768, 768, 768], "num_hidden_layers": 4, "mlp_only_layers": [0],
    });
    let only = each(dense);
    let [only] = only.as_slice() else {
        panic!("{} models", only.len());
    };
    // One kind is the model, and nothing is to be told apart.
    let uneven = only.notes.iter().any(|note| note.contains("differ"));
    assert_eq!((only.name.as_str(), uneven), ("some", false));
    assert_eq!((only.intermediate, only.moe_layers), (768, 3));
}

/// Such a list was taken for the widths of two layers, and the others for nothing.
#[test]
fn a_list_shorter_than_the_layers_is_not_one_value_a_layer() {
    let parts = json!({ "moe_intermediate_size": [1536, 512], "num_hidden_layers": 28 });
    let error = parse_each(&config(parts), "some/config.json", None).unwrap_err();
    let told = "moe_intermediate_size is a list of 2 sizes, and there are 28 layers: one a layer is needed, or one number";
    assert!(error.to_string().contains(told), "{error}");
    // One of six names, of layers that the config counts.
    let longer = json!({ "moe_intermediate_size": [768, 1536, 768], "num_hidden_layers": 2 });
    assert!(parse_each(&config(longer), "some/config.json", None).is_err());
    // Far more than layers: kinds were looked for among all of them, which did not end.
    let widths: Vec<u64> = (64..64 + (1 << 20)).collect();
    let far = json!({ "moe_intermediate_size": widths, "num_hidden_layers": 2 });
    assert!(parse_each(&config(far), "some/config.json", None).is_err());
    // Only layers without experts.
    let none = json!({
        "moe_intermediate_size": [768, 1536], "num_hidden_layers": 2, "mlp_only_layers": [0, 1],
    });
    assert!(parse_each(&config(none), "some/config.json", None).is_err());
}

#[test]
fn several_lists_make_a_kind_of_each_combination() {
    let both = json!({
        "moe_intermediate_size": [768, 768, 1536], "num_experts": [64, 128, 128], "num_hidden_layers": 3,
    });
    let sizes = each(both).into_iter().map(|m| (m.intermediate, m.experts));
    assert_eq!(
        sizes.collect::<Vec<_>>(),
        [(768, 64), (768, 128), (1536, 128)]
    );
    // Of two lengths one is of something else.
    let lengths = json!({ "moe_intermediate_size": [768, 1536], "num_experts": [64, 128, 128] });
    let error = parse_each(&config(lengths), "some/config.json", None).unwrap_err();
    let told = "num_experts is a list of 3 sizes, and moe_intermediate_size has 2: one a layer";
    assert!(error.to_string().contains(told), "{error}");
    assert_eq!(each(json!({})).len(), 1);
}

/// Each kind was said to have as many layers in each format as the whole model.
#[test]
fn formats_of_a_kind_are_those_of_its_layers() {
    let both = json!({
        "moe_intermediate_size": [768, 768, 1536, 1536, 1536], "num_hidden_layers": 5,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
            "modules_to_not_convert": ["model.layers.1.mlp", "model.layers.2.mlp", "model.layers.3.mlp"]},
    });
    let told: Vec<_> = each(both)
        .into_iter()
        .map(|m| {
            let others = m.quant.others.iter();
            let others: Vec<_> = others.map(|s| (s.format, s.layers)).collect();
            (m.intermediate, m.moe_layers, m.quant.format, others)
        })
        .collect();
    let (fp8, bf16) = (WeightFormat::Fp8Block, WeightFormat::Bf16);
    let wanted = [
        (768, 2, fp8, vec![(bf16, 1)]),
        (1536, 3, fp8, vec![(bf16, 2)]),
    ];
    assert_eq!(told, wanted);
}

/// Lists of equal sizes were refused where unequal ones were planned.
#[test]
fn a_list_of_equal_sizes_is_that_size() {
    let equal = json!({
        "moe_intermediate_size": [768, 768, 768], "num_experts_per_tok": [4, 4, 4], "num_hidden_layers": 3,
    });
    let told: Vec<_> = each(equal)
        .into_iter()
        .map(|m| (m.name, m.intermediate, m.top_k))
        .collect();
    assert_eq!(told, [("some".to_owned(), 768, 4)]);
}

/// The dense layer that stood last was left out, and a width that no dense layer has planned in its place.
#[test]
fn dense_layers_have_the_width_that_stands_at_their_number() {
    let widths = |all: [u64; 3]| {
        json!({
            "intermediate_size": all, "num_hidden_layers": 3, "mlp_only_layers": [0, 2],
            "moe_intermediate_size": 768,
        })
    };
    let one = each(widths([2000, 6144, 2000]));
    let told: Vec<_> = one
        .iter()
        .map(|m| (m.name.as_str(), m.dense, m.dense_layers))
        .collect();
    assert_eq!(told, [("some", Some(2000), 2)]);
    let error = parse_each(
        &config(widths([2000, 6144, 6144])),
        "some/config.json",
        None,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("intermediate_size"), "{error}");
}
