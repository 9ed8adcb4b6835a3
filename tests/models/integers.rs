//! Integer weights: one scale a row, zero points, groups that are listed.

use super::formats::quantised;
use padproof::model::ZeroPoints;
use padproof::terms::WeightFormat;
use serde_json::{Value, json};

#[test]
fn zero_points_are_found_where_a_method_says_so() {
    let points = |entry: Value| quantised(entry).unwrap().quant.zero_points;
    let group = |symmetric: bool| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": symmetric},
        }}})
    };
    let (awq, unread) = (Some(ZeroPoints::Awq), Some(ZeroPoints::Unread));
    for (entry, wanted) in [
        (
            json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true}),
            awq,
        ),
        (
            json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": false}),
            None,
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": false}),
            unread,
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true}),
            None,
        ),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128}),
            None,
        ),
        (group(false), unread),
        (group(true), None),
    ] {
        assert_eq!(points(entry.clone()), wanted, "{entry}");
    }
}

/// They were planned as if each group were a run of channels.
#[test]
fn activation_order_is_found_where_a_method_says_so() {
    let order = |entry: Value| quantised(entry).unwrap().quant.act_order;
    let gptq = |desc: Value| json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": desc});
    let packed = |order: Value| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "actorder": order},
        }}})
    };
    for (entry, wanted) in [
        (gptq(json!(true)), true),
        (gptq(json!(false)), false),
        (gptq(json!(null)), false),
        (packed(json!("group")), true),
        (packed(json!(null)), false),
    ] {
        assert_eq!(order(entry.clone()), wanted, "{entry}");
    }
    assert!(quantised(gptq(json!("yes"))).is_err());
}

/// `group_size` -1 was refused: such checkpoints could not be asked about.
#[test]
fn a_group_size_of_minus_one_is_one_scale_a_row() {
    use WeightFormat::{Int4Channel, Int8};
    let packed = |bits: u64, strategy: Value, size: Value| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"],
            "weights": {"num_bits": bits, "type": "int", "strategy": strategy, "group_size": size, "symmetric": false, "actorder": "group"}}}})
    };
    for (entry, wanted) in [
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true}),
            Int4Channel,
        ),
        (
            json!({"quant_method": "awq", "bits": 4, "group_size": -1, "zero_point": true}),
            Int4Channel,
        ),
        (
            json!({"quant_method": "gptq", "bits": 8, "group_size": -1}),
            Int8,
        ),
        (packed(4, json!("channel"), json!(-1)), Int4Channel),
        (packed(4, json!("channel"), json!(null)), Int4Channel),
        (packed(4, json!(null), json!(-1)), Int4Channel),
        (packed(8, json!(null), json!(-1)), Int8),
    ] {
        let quant = quantised(entry.clone())
            .unwrap_or_else(|e| panic!("{entry}: {e}"))
            .quant;
        assert_eq!((quant.format, quant.group), (wanted, None), "{entry}");
        // No channel has a group of its own.
        assert!(!quant.act_order, "{entry}");
    }
    // Both a scale a row and groups.
    assert!(quantised(packed(4, json!("channel"), json!(128))).is_err());
    let awq = json!({"quant_method": "awq", "bits": 4, "group_size": -1, "zero_point": true});
    assert_eq!(
        quantised(awq).unwrap().quant.zero_points,
        Some(ZeroPoints::Awq)
    );
}

/// Codes without a sign were read as if they had no zero points.
#[test]
fn unsigned_codes_of_quark_have_zero_points() {
    let quark = |dtype: &str, symmetric: Value| {
        let weight = json!({"dtype": dtype, "qscheme": "per_group", "group_size": 128, "symmetric": symmetric});
        let entry = json!({"quant_method": "quark", "global_quant_config": {"weight": weight}});
        quantised(entry).unwrap().quant.zero_points
    };
    assert_eq!(quark("uint4", json!(null)), Some(ZeroPoints::Unread));
    assert_eq!(quark("uint4", json!(true)), None);
    assert_eq!(quark("int4", json!(null)), None);
}
