//! What a survey plans, and what it says of the rest.

use super::{Query, StackVersion, survey, survey_replicas};
use crate::model::Model;
use crate::plan::{Fit, Parallel};
use crate::rule::{Rules, Status};

/// Every rule or one, on so many ranks in so many groups, with advice.
pub(super) fn advised(rule: Option<&str>, tp: u64, ep: u64) -> Query<'_> {
    Query {
        rule,
        advice: true,
        ..Query::of(Parallel { tp, ep })
    }
}

fn ask<'a>(rule: Option<&'a str>, backend: Option<&'a str>) -> Query<'a> {
    Query {
        backend,
        ..advised(rule, 8, 1)
    }
}

pub(super) fn model() -> Model {
    let mut model = crate::model::load("Qwen3-235B-A22B").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8);
    model
}

#[test]
fn current_rules_come_before_historical_ones() {
    let found = survey(&model(), Rules::builtin(), &ask(None, None)).unwrap();
    let statuses: Vec<bool> = found
        .plans
        .iter()
        .map(|p| p.status == Status::Historical)
        .collect();
    assert!(statuses.is_sorted() && statuses.contains(&true) && statuses.contains(&false));
}

/// Some layers of other formats: each is planned under the rules that take it, the worst decides.
#[test]
fn layers_of_another_format_are_planned_too() {
    use crate::terms::WeightFormat::{Fp8, Fp8Block};
    let query = Query {
        arch: Some("cuda"),
        ..ask(Some("sglang.triton.*"), None)
    };
    let mut mixed = model();
    assert!(
        !survey(&mixed, Rules::builtin(), &query)
            .unwrap()
            .named_fails
    );
    mixed.quant.others = vec![crate::model::Share {
        format: Fp8Block,
        layers: 10,
    }];
    let found = survey(&mixed, Rules::builtin(), &query).unwrap();
    let plans: Vec<_> = found
        .plans
        .iter()
        .map(|p| (p.plan.rule.as_str(), p.plan.weight, p.plan.fit))
        .collect();
    let wanted = [
        ("sglang.triton.fp8", Fp8, Fit::Fits),
        ("sglang.triton.fp8-block", Fp8Block, Fit::Refused),
    ];
    assert_eq!(plans, wanted);
    assert!(found.named_fails);
    // Advice is about each format, and its bytes are those of its layers alone.
    let rules = found.advice.rules.iter();
    let rules: Vec<_> = rules.map(|one| (one.rule.as_str(), one.layers)).collect();
    let layers = mixed.moe_layers - 10;
    assert_eq!(
        rules,
        [
            ("sglang.triton.fp8", layers),
            ("sglang.triton.fp8-block", 10)
        ]
    );
}

/// Layers of another format take another path: a rule that takes some layers refuses none of those.
#[test]
fn a_rule_named_exactly_is_not_held_against_layers_of_other_formats() {
    let mut mixed = model();
    mixed.quant.others = vec![crate::model::Share {
        format: crate::terms::WeightFormat::Bf16,
        layers: 2,
    }];
    let id = "sglang.triton.fp8";
    let found = survey(&mixed, Rules::builtin(), &ask(Some(id), None)).unwrap();
    let rows: Vec<_> = found
        .plans
        .iter()
        .map(|p| (p.plan.rule.as_str(), p.plan.fit, p.uncovered))
        .collect();
    let wanted = [(id, Fit::Fits, false), ("sglang", Fit::Unknown, true)];
    assert_eq!((rows.as_slice(), found.named_fails), (&wanted[..], false));
    let why = &found.not_judged[0].why;
    assert!(why.contains("no chosen rule takes bf16"), "{why}");
}

/// A version of one stack changes no other's rows.
#[test]
fn a_version_is_asked_of_its_own_stack_alone() {
    let mut packed = model();
    packed.quant = crate::model::Quant::none(crate::terms::WeightFormat::Nvfp4);
    let rows = |versions: &[StackVersion]| {
        let query = Query {
            all: false,
            versions,
            ..ask(None, None)
        };
        let found = survey(&packed, Rules::builtin(), &query).unwrap();
        let ids = found.plans.into_iter().map(|p| p.plan.rule);
        ids.filter(|id| !id.starts_with("vllm."))
            .collect::<Vec<_>>()
    };
    let newest = [StackVersion {
        stack: Some("vllm".to_owned()),
        version: "0.33.0".to_owned(),
    }];
    assert_eq!(rows(&newest), rows(&[]));
    assert!(!rows(&[]).is_empty());
}

/// "Refused" was said where a rule's whole id was spelled: that its stack refuses other formats nobody read.
#[test]
fn a_rule_for_another_format_does_not_refuse_the_model() {
    for rule in ["sglang.aiter.mxfp4", "sglang.aiter.mxfp4*"] {
        let found = survey(&model(), Rules::builtin(), &ask(Some(rule), None)).unwrap();
        let [one] = found.plans.as_slice() else {
            panic!("{rule}: {:?}", found.plans);
        };
        let codes: Vec<&str> = one.plan.violations.iter().map(|v| v.code).collect();
        let said = (one.uncovered, one.plan.fit, codes.as_slice());
        assert_eq!(said, (true, Fit::Unknown, &["PP134"][..]), "{rule}");
        let why = "no chosen rule takes fp8 in the routed layer: they are for mxfp4";
        assert!(found.not_judged[0].why.starts_with(why));
        assert!(found.named_fails, "{rule} runs no part of the model");
    }
}

#[test]
fn historical_rules_count_only_when_named_exactly() {
    let glob = ask(Some("sglang.aiter.fp8.p*"), None);
    let mut narrow = model();
    narrow.activation = crate::terms::Activation::Relu2;
    let found = survey(&narrow, Rules::builtin(), &glob).unwrap();
    assert!(found.plans.iter().any(|p| p.plan.fit == Fit::Wrong));
    assert!(!found.named_fails);
    let exact = ask(Some("sglang.aiter.fp8.published"), None);
    assert!(
        survey(&narrow, Rules::builtin(), &exact)
            .unwrap()
            .named_fails
    );
}

#[test]
fn unknown_backends_name_the_nearest() {
    let error = survey(
        &model(),
        Rules::builtin(),
        &ask(None, Some("flashinfer_cutlas")),
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("did you mean `flashinfer_cutlass`?"),
        "{error}"
    );
    let both = ask(Some("sglang.aiter.*"), Some("triton"));
    assert!(survey(&model(), Rules::builtin(), &both).is_err());
}

#[test]
fn common_degrees_are_in_every_list() {
    let found = survey(&model(), Rules::builtin(), &ask(None, None)).unwrap();
    for tp in found.aligned_by_all() {
        assert!(found.aligned.iter().all(|(_, list)| list.contains(&tp)));
    }
}

/// `vllm.deepep_ht.any` is for spread experts: 8 ranks make 8 groups, though a replica has 1.
#[test]
fn rules_are_chosen_by_the_ranks_of_all_replicas() {
    let query = Query {
        parallel: Parallel { tp: 1, ep: 8 },
        ..ask(None, None)
    };
    let found = survey_replicas(&model(), Rules::builtin(), &query, 8).unwrap();
    for id in ["vllm.deepep_ht.any", "vllm.deepep_ll.any"] {
        let plan = found.plans.iter().find(|p| p.plan.rule == id);
        let plan = &plan.unwrap_or_else(|| panic!("{id} is left out")).plan;
        assert_eq!((plan.parallel.tp, plan.parallel.ep), (8, 8));
    }
}

#[test]
fn a_rule_that_was_asked_for_does_not_vanish() {
    let said = |query: &Query<'_>, dp| {
        survey_replicas(&model(), Rules::builtin(), query, dp)
            .unwrap_err()
            .to_string()
    };
    let arch = Query {
        arch: Some("gfx942"),
        ..ask(Some("aiter.ck.mxfp4.stage-1-only"), None)
    };
    assert!(said(&arch, 1).contains("is for the architecture `gfx942`"));
    // 3 groups of 2 x 2 ranks.
    let groups = Query {
        parallel: Parallel { tp: 2, ep: 3 },
        ..ask(Some("vllm.deepep_ht.any"), None)
    };
    let text = said(&groups, 2);
    assert!(
        text.contains("3 expert-parallel groups do not divide"),
        "{text}"
    );
    let versions = [StackVersion {
        stack: None,
        version: "0.33.0".to_owned(),
    }];
    let version = Query {
        versions: &versions,
        ..ask(Some("vllm.flashinfer_trtllm.nvfp4.align-1*"), None)
    };
    assert!(said(&version, 1).contains("held then"));
}

#[test]
fn parts_that_no_rule_covers_are_named_with_the_cause() {
    let mut model = crate::model::load("DeepSeek-V3").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8Block);
    let clauses = |model: &Model, rule| -> Vec<String> {
        let found = survey(model, Rules::builtin(), &ask(rule, None)).unwrap();
        found.not_judged.into_iter().map(|n| n.why).collect()
    };
    assert_eq!(clauses(&model, Some("sglang.triton.fp8-block")), [""; 0]);
    assert_eq!(
        clauses(&model, Some("vllm.any.fp8-block")),
        [
            "no chosen rule covers the shared layer",
            "no chosen rule covers the dense layer"
        ]
    );
    model.quant.dense_format = crate::terms::WeightFormat::Mxfp8;
    for rule in ["sglang.triton.fp8-block", "sglang.*.fp8-block"] {
        assert_eq!(
            clauses(&model, Some(rule)),
            [
                "no chosen rule takes mxfp8 in the dense layer: they are for fp8-block, fp8-block64, fp8-block32"
            ]
        );
    }
}

#[test]
fn what_is_known_wrong_is_told_of_models_that_it_concerns() {
    let wrong = |activation, intermediate| {
        let mut model = model();
        model.activation = activation;
        model.intermediate = intermediate;
        let id = "sglang.flashinfer_trtllm.fp8.aligner";
        let found = survey(&model, Rules::builtin(), &ask(Some(id), None)).unwrap();
        found.plans[0].wrong.is_some()
    };
    use crate::terms::Activation;
    // 200 a rank is padded to 208 behind both halves; weights without a gate have one.
    assert!(wrong(Activation::Swiglu, 1600));
    assert!(!wrong(Activation::Relu2, 1600));
}

/// One rule of one stack is no word about the others.
#[test]
fn stacks_without_a_rule_for_a_part_are_named() {
    let mut model = crate::model::load("DeepSeek-V3").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Fp8Block);
    let found = survey(&model, Rules::builtin(), &ask(None, None)).unwrap();
    let shared = |why: &&String| why.ends_with("covers the shared layer");
    let why: Vec<&String> = found.not_judged.iter().map(|n| &n.why).collect();
    let said = why.into_iter().find(shared).expect("stacks are silent");
    assert!(said.contains("vllm") && !said.contains("sglang"));
}

#[test]
fn a_backend_that_takes_nothing_is_no_success() {
    let none = Query {
        backend: Some("triton_kernels"),
        ..ask(None, None)
    };
    let found = survey(&model(), Rules::builtin(), &none).unwrap();
    assert!(found.plans.iter().all(|p| p.uncovered) && found.named_fails);
}

fn at(stack: &str, version: &str) -> StackVersion {
    StackVersion {
        stack: Some(stack.to_owned()),
        version: version.to_owned(),
    }
}

#[test]
fn what_was_not_read_gets_no_verdict() {
    let mut narrow = model();
    narrow.activation = crate::terms::Activation::Relu2;
    let versions = [at("sglang", "0.4.0")];
    let old = Query {
        versions: &versions,
        ..ask(Some("sglang.aiter.fp8"), None)
    };
    let found = survey(&narrow, Rules::builtin(), &old).unwrap();
    assert_eq!(found.plans[0].plan.fit, Fit::Unknown);
    let twice = [at("sglang", "0.5.23"), at("sglang", "0.4.0")];
    let asked = Query {
        versions: &twice,
        ..ask(None, None)
    };
    let error = survey(&narrow, Rules::builtin(), &asked).unwrap_err();
    assert!(error.to_string().contains("asked for already"), "{error}");
}

/// facts/upstream-padding.md 1.6 T10: the text of a change that names no backend, beside T2 and T5, which
/// were read in code. It hid them.
#[test]
fn a_pull_request_text_replaces_no_rule_that_was_read() {
    let mut model = model();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Nvfp4);
    let ids = |versions: &[StackVersion]| -> Vec<String> {
        let query = Query {
            versions,
            all: false,
            ..ask(None, Some("cutlass"))
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let plans = found.plans.into_iter().map(|p| p.plan.rule);
        plans.filter(|id| id.starts_with("trtllm.")).collect()
    };
    assert_eq!(ids(&[]), ["trtllm.cutlass.nvfp4"]);
    let since = ids(&[at("trtllm", "pull request 18870")]);
    assert_eq!(since, ["trtllm.cutlass.nvfp4"]);
    assert_eq!(ids(&[at("trtllm", "002366a4")]), ["trtllm.cutlass.nvfp4"]);
}

#[test]
fn an_architecture_leaves_out_rules_of_other_makers() {
    let on = |arch| {
        let query = Query {
            arch: Some(arch),
            ..ask(None, None)
        };
        let found = survey(&model(), Rules::builtin(), &query).unwrap();
        let plans = found.plans.into_iter().map(|p| p.plan.rule);
        plans.collect::<Vec<String>>()
    };
    let none = |rules: &[String], word: &str| rules.iter().all(|id| !id.contains(word));
    assert!(none(&on("cpu"), "flashinfer") && none(&on("gfx950"), "marlin"));
    assert!(none(&on("sm90"), "aiter") && !none(&on("sm90"), "flashinfer"));
    assert!(!none(&on("rocm"), "aiter") && none(&on("cuda"), "aiter"));
}

/// A pattern that drops rules for their checkpoints' method said nothing of them.
#[test]
fn rules_for_other_checkpoints_are_named_where_a_pattern_drops_them() {
    let mut model = crate::model::load("DeepSeek-V3").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Mxfp4);
    model.quant.method = "fp8".to_owned();
    let found = survey(&model, Rules::builtin(), &ask(Some("sglang.*"), None)).unwrap();
    let why: Vec<&str> = found.not_judged.iter().map(|n| n.why.as_str()).collect();
    let wanted = "sglang.aiter.mxfp4 is for checkpoints of quark, not of `fp8`";
    assert!(why.contains(&wanted), "{why:?}");
}

/// `--tp 8 --ep 3` blamed the first rule that it met.
#[test]
fn groups_that_do_not_divide_the_ranks_are_no_rules_fault() {
    let query = Query {
        parallel: Parallel { tp: 8, ep: 3 },
        ..ask(Some("sglang.triton.*"), None)
    };
    let error = survey(&model(), Rules::builtin(), &query).unwrap_err();
    assert_eq!(error.to_string(), "ep=3: must divide tp=8");
}

/// What a kernel asks for is planned, and nobody is told to launch it.
#[test]
fn kernels_are_planned_and_not_advised() {
    let mut model = crate::model::load("Nemotron-3-Nano-30B-A3B").unwrap();
    model.quant = crate::model::Quant::none(crate::terms::WeightFormat::Nvfp4);
    let query = Query {
        advice: true,
        all: false,
        ..ask(None, None)
    };
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    assert!(found.plans.iter().any(|one| one.plan.kernel));
    let kernel = |id: &str| Rules::builtin().get(id).unwrap().kernel;
    for one in &found.advice.rules {
        assert!(!kernel(&one.rule), "{}", one.rule);
        for way in &one.instead {
            assert!(!kernel(&way.rule), "{} instead of {}", way.rule, one.rule);
        }
    }
}

/// facts/upstream-padding.md 1.6 T7, 1.1 S22 (W4AFP8), S23 (GPTQ and AWQ), S9 to S12 (Mxfp4MoEMethod):
/// checkpoints of other methods were told that these fit.
#[test]
fn a_rule_of_one_method_judges_no_checkpoint_of_another() {
    use crate::terms::WeightFormat::{Int4, Mxfp4};
    let judge = |format, method: &str| -> Vec<String> {
        let mut model = model();
        model.quant = crate::model::Quant::none(format);
        method.clone_into(&mut model.quant.method);
        let found = survey(
            &model,
            Rules::builtin(),
            &Query::of(Parallel { tp: 8, ep: 1 }),
        );
        let plans = found.unwrap().plans;
        plans.into_iter().map(|one| one.plan.rule).collect()
    };
    let has = |all: &[String], id: &str| all.iter().any(|rule| rule == id);
    let w4afp8 = ["trtllm.cutlass.int4", "sglang.cutlass.int4"];
    for (method, wna16, own) in [
        ("gptq", true, false),
        ("awq", true, false),
        ("w4afp8", false, true),
        ("compressed-tensors", false, false),
    ] {
        let all = judge(Int4, method);
        assert_eq!(has(&all, "sglang.moe_wna16.int4"), wna16, "{method}");
        assert!(
            w4afp8.iter().all(|id| has(&all, id) == own),
            "{method}: {all:?}"
        );
        assert!(has(&all, "sglang.humming.int4"), "{method}");
    }
    for (method, own) in [("quark", false), ("mxfp4", true), ("gpt_oss_mxfp4", true)] {
        let all = judge(Mxfp4, method);
        for backend in [
            "deep_gemm",
            "triton_kernels",
            "megamoe",
            "flashinfer_trtllm",
        ] {
            assert_eq!(
                has(&all, &format!("sglang.{backend}.mxfp4")),
                own,
                "{method} {backend}"
            );
        }
        assert_eq!(has(&all, "sglang.aiter.mxfp4"), !own);
    }
}
