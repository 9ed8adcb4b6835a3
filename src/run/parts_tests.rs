//! What is said of parts that no rule is for, and of what nobody read a stack to do.

use super::survey_tests::{advised, model};
use super::{Query, survey, survey_replicas};
use crate::model::Model;
use crate::plan::{Fit, Parallel};
use crate::rule::Rules;
use crate::terms::LayerKind;

fn ask(rule: Option<&str>) -> Query<'_> {
    advised(rule, 8, 1)
}

/// facts/reports.md B08: experts and a shared expert of 512 in blocks of 128.
fn b08() -> Model {
    let mut model = crate::model::load("Qwen3-Next-80B-A3B").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8Block);
    model
}

/// `fits`, 0 and a list of degrees were said of models whose shared expert nobody had looked at.
#[test]
fn a_part_that_no_chosen_rule_is_for_is_unknown_in_a_row_of_its_own() {
    for (rule, stack) in [
        ("sglang.deep_gemm.fp8-block", "sglang"),
        ("sglang.flashinfer_trtllm.fp8-block", "sglang"),
        ("sglang.aiter.fp8", "sglang"),
        ("vllm.any.fp8-block", "vllm"),
        ("trtllm.cutlass.fp8-block", "trtllm"),
    ] {
        let query = Query {
            parallel: Parallel { tp: 8, ep: 8 },
            ..ask(Some(rule))
        };
        let found = survey(&b08(), Rules::builtin(), &query).unwrap();
        let [routed, shared] = found.plans.as_slice() else {
            panic!("{rule}: {:?}", found.plans);
        };
        assert_eq!(routed.plan.fit, Fit::Fits, "{rule}");
        let (plan, codes) = (&shared.plan, &shared.plan.violations);
        assert_eq!(
            (plan.rule.as_str(), plan.fit, plan.width),
            (stack, Fit::Unknown, 64)
        );
        assert_eq!((codes.len(), codes[0].code), (1, "PP134"));
        assert!(shared.uncovered && !found.named_fails);
        let advice = &found.advice.rules[0];
        assert_eq!(advice.verdict, Fit::Unknown, "{rule}");
        assert_eq!(
            (advice.aligned.as_slice(), advice.aligned_known.as_slice()),
            (&[][..], &[1, 2, 4, 8, 16][..])
        );
    }
    // The part alone, which no rule takes in this format.
    let alone = Query {
        layer: Some(crate::terms::LayerKind::Shared),
        all: false,
        ..ask(None)
    };
    let mut model = b08();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8);
    let found = survey(&model, Rules::builtin(), &alone).unwrap();
    let open = |stack: &str| {
        found
            .plans
            .iter()
            .any(|p| p.uncovered && p.plan.rule == stack)
    };
    assert!(open("vllm") && open("sglang") && open("trtllm"));
}

/// Every degree was listed as one without padding, whatever becomes of a shared expert in bf16.
#[test]
fn no_degree_is_without_padding_where_a_part_is_stored_otherwise() {
    let mut model = b08();
    model.quant.shared_format = crate::terms::WeightFormat::Bf16;
    let found = survey(
        &model,
        Rules::builtin(),
        &advised(Some("sglang.triton.fp8-block"), 4, 1),
    );
    let advice = &found.unwrap().advice.rules[0];
    assert_eq!((advice.aligned.len(), advice.verdict), (0, Fit::Unknown));
    assert_eq!(advice.open, [LayerKind::Shared]);
}

/// The rule for the CPU was all that was said of the dense layer beside experts on a GPU.
#[test]
fn a_rule_for_another_device_judges_no_part() {
    let mut model = crate::model::load("Gemma-4-26B-A4B").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Nvfp4);
    model.quant.dense_format = crate::terms::WeightFormat::Bf16;
    let query = Query {
        all: false,
        ..ask(None)
    };
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let dense = found
        .plans
        .iter()
        .filter(|p| p.plan.layer == crate::terms::LayerKind::Dense);
    let sglang: Vec<&str> = dense
        .map(|p| p.plan.rule.as_str())
        .filter(|rule| rule.starts_with("sglang"))
        .collect();
    assert_eq!(sglang, ["sglang.cpu.any", "sglang"]);
}

/// facts/reports.md 0: with EP over all ranks. Two groups of four were said to fit.
#[test]
fn groups_that_a_stack_was_not_read_to_have_are_unknown() {
    let fit = |tp, ep, dp| {
        let query = Query {
            parallel: Parallel { tp, ep },
            ..ask(Some("vllm.any.fp8-block"))
        };
        let mut model = model();
        model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8Block);
        let found = survey_replicas(&model, Rules::builtin(), &query, dp).unwrap();
        let codes = &found.plans[0].plan.violations;
        (
            found.plans[0].plan.fit,
            codes.iter().any(|v| v.code == "PP135"),
        )
    };
    assert_eq!(fit(8, 2, 1), (Fit::Unknown, true));
    assert_eq!(fit(4, 4, 2), (Fit::Unknown, true));
    for (tp, ep, dp) in [(8, 8, 1), (4, 8, 2), (4, 1, 1)] {
        assert_eq!(fit(tp, ep, dp), (Fit::Fits, false));
    }
}

/// Every verdict was `fits` and the exit code 1, for rules that stood in no row.
#[test]
fn rules_that_cannot_be_asked_change_no_exit_code() {
    let query = Query {
        parallel: Parallel { tp: 4, ep: 8 },
        ..ask(Some("*.fp8-block"))
    };
    let mut model = model();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8Block);
    let found = survey_replicas(&model, Rules::builtin(), &query, 2).unwrap();
    assert!(found.not_judged.iter().any(|n| n.rule.is_some()));
    assert!(found.plans.iter().all(|p| p.plan.fit == Fit::Fits));
    assert!(!found.named_fails);
}

/// facts/reports.md B32: the greatest of what the dispatch and the GEMM ask is one padded size for all.
#[test]
fn a_dispatch_is_no_word_on_the_gemm() {
    let mut model = model();
    model.hidden = 2880;
    for rule in ["vllm.deepep_ht.any", "vllm.deepep_ll.any", "vllm.nixl.any"] {
        let query = Query {
            parallel: Parallel { tp: 8, ep: 8 },
            ..ask(Some(rule))
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let plan = &found.plans[0].plan;
        assert_eq!(
            (plan.fit, plan.hidden_padded),
            (Fit::Unknown, 3072),
            "{rule}"
        );
        assert!(
            found.advice.rules.is_empty(),
            "no backend is another dispatch"
        );
    }
}

/// facts/upstream-padding.md 1.7 D3: only SwiGLU, clamped or not.
#[test]
fn what_megamoe_does_with_other_activations_is_unknown() {
    let fit = |name: &str, rule| {
        let mut model = crate::model::load(name).unwrap();
        model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Mxfp4);
        let query = Query {
            layer: Some(crate::terms::LayerKind::Routed),
            ..ask(Some(rule))
        };
        survey(&model, Rules::builtin(), &query).unwrap().plans[0]
            .plan
            .fit
    };
    for rule in ["sglang.megamoe.mxfp4", "sglang.megamoe.mxfp4.w4a16"] {
        assert_eq!(fit("Kimi-K3", rule), Fit::Unknown);
        assert_eq!(fit("MiniMax-M3", rule), Fit::Unknown);
        assert_eq!(fit("DeepSeek-V4-Pro", rule), Fit::Fits);
    }
}

/// facts/reports.md B12: a shard of 64 in blocks of 128 loads on aiter, for which the check is left out
/// (facts/upstream-padding.md 1.1 S17). Triton's refusal stood for aiter's devices too.
#[test]
fn shared_experts_beside_aiter_are_open_where_the_check_is_left_out() {
    let of = |rule: &str| {
        let found = survey(&b08(), Rules::builtin(), &advised(None, 8, 1)).unwrap();
        let advised = found.advice.rules.into_iter().find(|one| one.rule == rule);
        let parts = advised.unwrap().parts;
        parts
            .into_iter()
            .find(|part| part.layer == LayerKind::Shared)
            .map(|part| part.verdict)
    };
    assert_eq!(of("sglang.aiter.fp8"), Some(Fit::Unknown));
    assert_eq!(of("sglang.triton.fp8-block"), Some(Fit::Refused));
    assert_eq!(of("sglang.deep_gemm.fp8-block"), Some(Fit::Refused));
}

/// "Refused" was said of every stack; that one refuses experts that do not divide nobody read.
#[test]
fn experts_that_groups_do_not_share_equally_are_open() {
    let model = crate::model::load("Qwen1.5-MoE-A2.7B").unwrap();
    let found = survey(
        &model,
        Rules::builtin(),
        &advised(Some("sglang.triton.bf16"), 8, 8),
    )
    .unwrap();
    let plan = &found.plans[0].plan;
    assert_eq!(plan.fit, Fit::Unknown);
    let said = &plan.violations[0];
    assert_eq!(said.code, "PP106");
    assert!(
        said.message.ends_with("what sglang does then was not read"),
        "{}",
        said.message
    );
    // A case is padproof's own, which cannot share them.
    let case = "e=60,k=4,h=64,i=64,tp=8,ep=8".parse().unwrap();
    assert_eq!(crate::plan::plan(&case).unwrap().fit, Fit::Refused);
}
