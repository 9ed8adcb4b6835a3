//! Tests of plans of one layer under one rule.

use super::{Effect, Fit, LayerSpec, Parallel, Plan, plan, plan_layer, spelled_rule};
use crate::case::PadSpec;
use crate::rule::Rules;
use crate::terms::{Activation, Bias, LayerKind, Split, WeightFormat};

fn layer(i: u64, h: u64, act: Activation, weight: WeightFormat) -> LayerSpec {
    LayerSpec {
        kind: LayerKind::Routed,
        hidden: h,
        intermediate: i,
        experts: 8,
        top_k: 2,
        zero_experts: 0,
        activation: act,
        weight,
        bias: Bias::None,
        zero_points: None,
        act_order: false,
        tokens: 1,
    }
}

fn planned(rule: &str, spec: &LayerSpec, tp: u64) -> Plan {
    plan_layer(
        spec,
        Parallel { tp, ep: 1 },
        Rules::builtin().get(rule).unwrap(),
        &[],
    )
    .unwrap()
}

#[test]
fn nemotron_at_tp_8_goes_from_961_to_976() {
    for (act, rows) in [(Activation::Relu2, 976), (Activation::Swiglu, 1952)] {
        let p = planned(
            "sglang.flashinfer_cutlass.fp8",
            &layer(7688, 4096, act, WeightFormat::Fp8),
            8,
        );
        assert_eq!(
            (p.fit, p.width, p.width_padded, p.w13_rows),
            (Fit::Padded, 961, 976, rows)
        );
        assert_eq!(p.overhead_millionths, 15_609); // 15/961, rounded
        assert_eq!(p.tensors[1].shape, [8, 4096, 976]);
    }
    let before = planned(
        "sglang.flashinfer_cutlass.fp8.unpadded",
        &layer(7688, 4096, Activation::Relu2, WeightFormat::Fp8),
        8,
    );
    assert_eq!(before.fit, Fit::Refused);
    assert!(
        before.violations[0].message.contains("961 % 16 = 1"),
        "{:?}",
        before.violations
    );
}

/// A spelled case that pads nothing takes what fits alone, as docs/case-line.md says of `split=error`.
#[test]
fn what_does_not_fit_is_refused_where_nothing_is_padded() {
    for (pad, fit) in [("i16", Fit::Refused), ("i10", Fit::Fits)] {
        let line = format!("h=256,i=1000,tp=4,w=bf16,pad={pad},split=error");
        let p = plan(&line.parse().unwrap()).unwrap();
        assert_eq!((p.fit, p.width_padded), (fit, 250), "{line}");
    }
}

/// facts/upstream-padding.md 1.1 S12 and 1.10: gpt-oss's loader takes whole blocks of 32, and nothing widens buffers
/// of 360 for 384 channels; where something does, at least as far, nothing is open.
#[test]
fn what_a_loader_puts_into_narrower_buffers_is_unknown() {
    let mut spec = layer(2880, 2880, Activation::SwigluOai, WeightFormat::Mxfp4);
    spec.bias = Bias::Both;
    for (rule, tp, fit, width) in [
        ("sglang.deep_gemm.mxfp4", 8, Fit::Unknown, 384),
        ("sglang.deep_gemm.mxfp4", 4, Fit::Unknown, 736),
        ("sglang.deep_gemm.mxfp4", 2, Fit::Fits, 1440),
        ("sglang.triton_kernels.mxfp4", 8, Fit::Padded, 384),
        ("sglang.marlin.mxfp4", 4, Fit::Padded, 736),
    ] {
        let p = planned(rule, &spec, tp);
        assert_eq!((p.fit, p.width), (fit, width), "{rule} tp={tp}");
    }
}

#[test]
fn all_violations_are_listed_at_once() {
    let mut spec = layer(1000, 100, Activation::Swiglu, WeightFormat::Nvfp4);
    spec.experts = 3;
    let rule = Rules::builtin()
        .get("sglang.flashinfer_cutlass.nvfp4")
        .unwrap();
    let p = plan_layer(&spec, Parallel { tp: 14, ep: 2 }, rule, &[]).unwrap();
    let codes: Vec<_> = p.violations.iter().map(|v| v.code).collect();
    for code in ["PP101", "PP103", "PP104", "PP106", "PP102"] {
        assert!(codes.contains(&code), "{code} of {codes:?}");
    }
}

/// facts/reports.md B18: w13 alone is padded, which would compute something else, but the
/// repacking of w2 stops it before.
#[test]
fn what_is_refused_is_not_wrong() {
    let spec = layer(2688, 4096, Activation::Relu2, WeightFormat::Fp8);
    let p = planned("vllm.marlin.fp8.w13-only", &spec, 4);
    assert_eq!(p.fit, Fit::Refused);
    assert_eq!(p.reason().map(|v| v.code), Some("PP102"));
    assert!(p.violations.iter().any(|v| v.effect == Effect::Wrong));
}

/// facts/reports.md B06: 192 begins in mid-block, but the stack's own check of 128 stops it first.
#[test]
fn what_is_refused_is_not_unrepresentable() {
    let spec = layer(1536, 4096, Activation::Swiglu, WeightFormat::Fp8Block);
    let p = planned("sglang.triton.fp8-block", &spec, 8);
    assert_eq!(p.fit, Fit::Refused);
    assert_eq!(p.reason().map(|v| v.code), Some("PP102"));
    assert!(p.violations.iter().any(|v| v.code == "PP103"));
}

/// A finer grid is named only where there can be one, and padding before the split is not denied.
#[test]
fn a_straddled_block_is_mended_by_what_can_mend_it() {
    let says = |weight, i, tp| {
        let floor = PadSpec {
            split: Split::Floor,
            ..PadSpec::default()
        };
        let rule = spelled_rule(&floor, WeightFormat::Mxfp4).unwrap();
        let spec = layer(i, 4096, Activation::Swiglu, weight);
        let plan = plan_layer(&spec, Parallel { tp, ep: 1 }, &rule, &[]).unwrap();
        let found = plan.violations.into_iter().find(|v| v.code == "PP103");
        found.expect("a straddled block").message
    };
    let finer = says(WeightFormat::Fp8Block, 1536, 8);
    assert!(finer.contains("scales repeated at 64 would"), "{finer}");
    for message in [
        says(WeightFormat::Mxfp4, 2880, 8),
        says(WeightFormat::Fp8Block, 1000, 4),
    ] {
        assert!(!message.contains("repeated"), "{message}");
        assert!(message.contains("padding the checkpoint before the split may"));
    }
}

#[test]
fn groups_in_activation_order_are_unknown_and_straddle_no_block() {
    let mut spec = layer(1536, 4096, Activation::Swiglu, WeightFormat::Int4);
    let codes = |spec: &LayerSpec| -> Vec<&str> {
        let found = planned("sglang.moe_wna16.int4", spec, 8).violations;
        found.iter().map(|v| v.code).collect()
    };
    assert!(codes(&spec).contains(&"PP121"), "{:?}", codes(&spec));
    spec.act_order = true;
    for tp in [1, 8] {
        assert_eq!(
            planned("sglang.moe_wna16.int4", &spec, tp).fit,
            Fit::Unknown
        );
    }
    assert!(codes(&spec).contains(&"PP133"));
    let runs = ["PP103", "PP121", "PP126"];
    assert!(!codes(&spec).iter().any(|code| runs.contains(code)));
}

#[test]
fn absurd_sizes_are_sentences() {
    let rule = Rules::builtin().get("sglang.aiter.fp8").unwrap();
    for (i, h, tp) in [
        (1 << 40, 1 << 40, 8),
        (u64::MAX, 1, 1),
        (1, 1, u64::MAX),
        (0, 1, 1),
        (1, 1, 0),
    ] {
        let spec = layer(i, h, Activation::Swiglu, WeightFormat::Fp8);
        let error = plan_layer(&spec, Parallel { tp, ep: 1 }, rule, &[]).unwrap_err();
        assert!(error.to_string().contains(char::is_numeric), "{error}");
    }
}

#[test]
fn the_stride_variable_widens_rows_only() {
    let spec = layer(1024, 2048, Activation::Swiglu, WeightFormat::Fp8);
    let rule = Rules::builtin().get("sglang.triton.fp8.rocm").unwrap();
    let bare = plan_layer(&spec, Parallel { tp: 4, ep: 1 }, rule, &[]).unwrap();
    let wide = plan_layer(
        &spec,
        Parallel { tp: 4, ep: 1 },
        rule,
        &["SGLANG_MOE_PADDING"],
    )
    .unwrap();
    assert_eq!(bare.tensors[0].shape, wide.tensors[0].shape);
    assert_eq!(wide.tensors[0].bytes, 8 * 512 * (2048 + 128));
    assert_eq!(wide.fit, Fit::Fits);
}
