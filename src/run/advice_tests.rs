//! What is advised, against the reports.

use super::survey_tests::advised;
use super::{Instead, Query, Survey, Way, survey, survey_replicas, usable};
use crate::plan::Fit;
use crate::rule::{Rules, same_arch};
use crate::terms::{LayerKind, WeightFormat};

pub(super) fn asked(name: &str, format: WeightFormat, rule: &str, tp: u64) -> Survey {
    let mut model = crate::model::load(name).unwrap();
    model.quant = crate::model::Quant::none(format);
    let query = advised(Some(rule), tp, 1);
    survey(&model, Rules::builtin(), &query).unwrap()
}

pub(super) fn way(survey: &Survey, way: Way) -> Option<&Instead> {
    survey.advice.rules[0].instead.iter().find(|i| i.way == way)
}

/// facts/reports.md B20: 768 in groups of 128 and 32 heads leave 1 and 2.
/// It said so of models whose heads are not recorded too, and went on to advise the same degree.
#[test]
fn a_degree_that_the_rest_does_not_take_is_told_and_not_advised() {
    let ask = |name: &str, tp| {
        let model = crate::model::load(name).unwrap();
        let query = advised(Some("vllm.aiter.bf16"), tp, 1);
        survey(&model, Rules::builtin(), &query).unwrap().advice
    };
    let three = ask("Qwen3-30B-A3B", 3);
    assert_eq!(
        three.blocked,
        [
            "32 attention heads",
            "4 key-value heads",
            "151936 words of vocabulary"
        ]
    );
    let ways = &three.rules[0].instead;
    assert!(
        !ways.is_empty() && ways.iter().all(|way| way.tp != 3),
        "{ways:?}"
    );
    assert!(ask("Qwen3-30B-A3B", 4).blocked.is_empty());
    // Neither heads nor vocabulary recorded.
    assert!(ask("OLMoE-1B-7B", 3).blocked.is_empty());
}

#[test]
fn degrees_that_do_not_divide_the_heads_are_not_advised() {
    let model = crate::model::load("Qwen3-30B-A3B").unwrap();
    assert_eq!(usable(&model), [1, 2, 4, 8, 16, 32]);
    let found = asked(
        "Qwen3-30B-A3B",
        WeightFormat::Fp8Block,
        "sglang.triton.fp8-block",
        4,
    );
    assert_eq!(found.advice.rules[0].aligned, [1, 2]);
    assert!(found.aligned.iter().any(|(_, list)| list.contains(&3)));
}

#[test]
fn vocabularies_are_rounded_before_they_are_cut() {
    let mut model = crate::model::load("NemotronH-default").unwrap();
    // No head count is recorded: nobody has 61 ranks.
    assert_eq!(usable(&model), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
    model.vocab = Some(100);
    // 128 words after rounding.
    assert_eq!(usable(&model), [1, 2, 4, 8, 16, 32, 64]);
    model.kv_heads = Some(2);
    model.attention_heads = Some(48);
    assert_eq!(usable(&model), [1, 2, 4, 8, 16]);
}

/// facts/reports.md B08: shared experts of 512 stay cut by 8 ranks, into halves of blocks.
#[test]
fn a_refused_shared_layer_is_told_the_ranks_that_take_it() {
    let mut model = crate::model::load("DeepSeek-V3").unwrap();
    (model.intermediate, model.shared, model.dense) = (512, Some(512), None);
    let query = advised(Some("sglang.triton.fp8-block"), 8, 8);
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let routed = found
        .plans
        .iter()
        .find(|p| p.plan.layer == LayerKind::Routed);
    assert_eq!(routed.map(|p| p.plan.fit), Some(Fit::Fits));
    assert_eq!(found.advice.rules[0].verdict, Fit::Refused);
    let tp = way(&found, Way::Tp).unwrap();
    assert_eq!((tp.tp, tp.ep, tp.verdict), (4, 4, Fit::Fits));
}

/// facts/reports.md 0: experts cut over TP x DP. 192 of 256, two of eight ranks empty, and no advice.
#[test]
fn replicas_are_advised_on_the_ranks_that_share_their_experts() {
    let mut model = crate::model::load("Qwen3-235B-A22B").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Fp8Block);
    let query = advised(Some("vllm.any.fp8-block"), 4, 1);
    let found = survey_replicas(&model, Rules::builtin(), &query, 2).unwrap();
    assert_eq!(found.plans[0].plan.width_padded, 256);
    assert_eq!(found.advice.rules[0].aligned, [1, 2]);
    let ep = way(&found, Way::Ep).unwrap();
    assert_eq!(
        (ep.tp, ep.ep, ep.verdict, ep.width),
        (4, 8, Fit::Fits, 1536)
    );
    let tp = way(&found, Way::Tp).unwrap();
    assert_eq!((tp.tp, tp.ep, tp.width), (2, 1, 384));
    let most = survey_replicas(&model, Rules::builtin(), &query, 70_000).unwrap_err();
    assert!(most.to_string().starts_with("dp=70000: "), "{most}");
}

/// A rule of another device is no way out.
#[test]
fn backends_for_other_devices_are_not_advised() {
    for name in ["Nemotron-3-Super-120B-A12B", "Qwen3-235B-A22B", "GLM-4.7"] {
        let model = crate::model::load(name).unwrap();
        for tp in [7, 8] {
            let query = advised(None, tp, 1);
            let found = survey(&model, Rules::builtin(), &query).unwrap();
            for one in &found.advice.rules {
                let arch = |id: &str| &Rules::builtin().get(id).unwrap().arch;
                let others = one.instead.iter().filter(|i| i.way == Way::Backend);
                for other in others {
                    let (ours, theirs) = (arch(&one.rule), arch(&other.rule));
                    let same = |a: &String| theirs.iter().any(|b| same_arch(a, b));
                    let possible = ours.is_empty() || theirs.is_empty() || ours.iter().any(same);
                    assert!(possible, "{}: {}", one.rule, other.rule);
                }
            }
        }
    }
}

/// facts/reports.md B06: 1536 over 8 in blocks of 128: TP 4, EP, or a grid of 64.
#[test]
fn a_straddling_shard_is_told_every_way_out() {
    let found = asked(
        "Qwen3-235B-A22B",
        WeightFormat::Fp8Block,
        "sglang.triton.fp8-block",
        8,
    );
    let tp = way(&found, Way::Tp).unwrap();
    assert_eq!((tp.tp, tp.verdict, tp.cost.extra_bytes), (4, Fit::Fits, 0));
    let ep = way(&found, Way::Ep).unwrap();
    assert_eq!(
        (ep.ep, ep.verdict, ep.cost.extra_arithmetic()),
        (8, Fit::Fits, 0)
    );
    let finer = way(&found, Way::FinerScales).unwrap();
    assert_eq!(
        (finer.size, finer.lossless, finer.cost.extra_arithmetic()),
        (Some(64), true, 0)
    );
    assert!(finer.cost.extra_bytes > 0);
    let offline = way(&found, Way::PadOffline).unwrap();
    assert_eq!(
        (offline.size, offline.cost.extra_arithmetic()),
        (Some(2048), 333_333)
    );
    // 128 experts of 3 x 512 x 4096 bytes more in 94 layers; ranks touch two blocks either way.
    assert_eq!(offline.cost.extra_bytes, 128 * 3 * 512 * 4096 * 94);
    assert!(!way(&found, Way::Requantise).unwrap().lossless);
}

#[test]
fn the_cheapest_padded_degree_is_named() {
    let found = asked(
        "Nemotron-3-Nano-30B-A3B",
        WeightFormat::Fp8,
        "sglang.flashinfer_trtllm.fp8",
        32,
    );
    let advice = &found.advice.rules[0];
    assert_eq!(advice.aligned, Vec::<u64>::new());
    // 1856 = 14.5 * 128: every usable degree above 1 pads to 2048.
    let cheapest = advice.cheapest.as_ref().unwrap();
    assert_eq!(
        (cheapest.tp, cheapest.cost.extra_arithmetic()),
        (16, 103_448)
    );
    let found = asked(
        "Nemotron-3-Nano-30B-A3B",
        WeightFormat::Fp8,
        "sglang.flashinfer_trtllm.fp8",
        8,
    );
    let cheapest = found.advice.rules[0].cheapest.as_ref();
    assert_eq!(cheapest, None, "16 ranks pad as much as 8");
}

#[test]
fn a_plan_that_fits_needs_no_way_around() {
    let found = asked("GLM-4.7", WeightFormat::Bf16, "sglang.triton.bf16", 8);
    assert_eq!(found.advice.rules[0].instead, []);
}

#[test]
fn another_backend_is_named_when_it_pads_less() {
    let found = asked("GLM-4.7", WeightFormat::Bf16, "sglang.*.bf16", 8);
    let trtllm = found
        .advice
        .rules
        .iter()
        .find(|r| r.rule.contains("trtllm"))
        .unwrap();
    let other = trtllm
        .instead
        .iter()
        .find(|i| i.way == Way::Backend)
        .unwrap();
    assert_eq!(
        (other.rule.as_str(), other.verdict),
        ("sglang.flashinfer_cutlass.bf16", Fit::Fits)
    );
}

/// 18432 / 32 = 576 = 4.5 blocks of 128, though 2048 / 32 lies in one.
#[test]
fn degrees_at_which_another_part_does_not_run_are_not_advised() {
    let mut model = crate::model::load("DeepSeek-V3").unwrap();
    let rule = Some("sglang.triton.fp8-block");
    let advised = |model: &crate::model::Model| {
        let query = advised(rule, 16, 1);
        let found = survey(model, Rules::builtin(), &query).unwrap();
        found.advice.rules[0].aligned.clone()
    };
    assert_eq!(advised(&model), [1, 2, 4, 8, 16]);
    // facts/reports.md B08: a shared expert of 512 stays cut by TP.
    model.shared = Some(512);
    assert_eq!(advised(&model), [1, 2, 4]);
}

/// The rest of a model asks every rule that is for it; the one beside may not run it.
#[test]
fn a_backend_that_does_not_run_the_other_parts_is_not_advised() {
    let mut model = crate::model::load("Qwen3-235B-A22B").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Fp8Block);
    let text = |id: &str, width: u64| {
        format!(
            "[[rule]]\nid = \"t.{id}.fp8-block\"\nstack = \"t\"\nversion = \"1\"\nbackend = \"{id}\"\n\
             formats = [\"fp8-block\"]\nlayers = [\"routed\", \"shared\"]\nsource = \"test\"\n\
             grade = \"derived\"\ntiming = \"creation\"\nsplit = \"error\"\norder = \"gate-up\"\n\
             [[rule.refuse]]\nwhen = {{ width-not-multiple = {width} }}\nverdict = \"refused\"\nwhy = \"w\"\n"
        )
    };
    let rules = Rules::parse(&(text("narrow", 256) + &text("wide", 128)), "test").unwrap();
    let advised = |shared: Option<u64>| {
        let mut model = model.clone();
        model.shared = shared;
        let query = advised(None, 4, 1);
        let found = survey(&model, &rules, &query).unwrap();
        way(&found, Way::Backend).map(|way| way.rule.clone())
    };
    assert_eq!(advised(Some(1024)).as_deref(), Some("t.wide.fp8-block"));
    // 192 a rank is no whole block.
    assert_eq!(advised(Some(768)), None);
}

/// facts/upstream-padding.md 1.3 V9, 1.4 F2, 1.3 V15: a finer grid was advised to kernels that want 128
/// of any grid, and counted along one axis. Its memory is that of square blocks of 64.
#[test]
fn scales_are_repeated_where_the_rule_takes_the_finer_grid_and_nowhere_else() {
    let finer = |rule| {
        let found = asked("Qwen3-235B-A22B", WeightFormat::Fp8Block, rule, 8);
        let known = way(&found, Way::FinerScales);
        (
            known.map(|way| (way.size, way.verdict, way.cost.extra_bytes)),
            found.advice.rules[0].cost.extra_bytes,
        )
    };
    let (_, square) = finer("vllm.triton.fp8-block.refined");
    let (offered, _) = finer("sglang.triton.fp8-block");
    assert_eq!(offered, Some((Some(64), Fit::Fits, square)));
    for rule in [
        "sglang.flashinfer_trtllm.fp8-block",
        "sglang.deep_gemm.fp8-block",
        "sglang.hpc_ops.fp8-block",
        "sglang.humming.any",
        "vllm.flashinfer_trtllm.fp8-block",
        "vllm.modelopt.fp8-block",
        "vllm.marlin.fp8",
        "vllm.humming.any",
        "vllm.cpu.fp8-block",
        "trtllm.cutlass.fp8-block",
        "transformers.deepgemm.fp8-block",
    ] {
        assert_eq!(finer(rule).0, None, "{rule}");
    }
}

#[test]
fn advice_is_about_the_architecture_that_is_asked_for() {
    // 3072 / 12 = 256 fits everywhere; 3072 / 8 = 384 only where 128 is enough.
    let mut model = crate::model::load("Kimi-K3").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Mxfp4);
    model.attention_heads = Some(64);
    model.kv_heads = Some(64);
    let aligned = |arch| {
        let query = Query {
            arch,
            ..advised(Some("vllm.triton_unfused.mxfp4"), 8, 1)
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        found.advice.rules[0].aligned_known.clone()
    };
    assert!(aligned(Some("gfx942")).contains(&8));
    assert!(!aligned(Some("gfx950")).contains(&8));
}

/// Elements of weights alone are 823.5 MiB; scales, biases and the buffers' own sizes make 875.
#[test]
fn costs_are_those_of_the_plans_own_tensors() {
    let model = crate::model::load("gpt-oss-20b").unwrap();
    let query = advised(Some("sglang.flashinfer_cutlass.mxfp4.sm90"), 4, 4);
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let (plan, advice) = (&found.plans[0].plan, &found.advice.rules[0]);
    let held: u64 = 4 * plan.tensors[..6].iter().map(|t| t.bytes).sum::<u64>();
    // Rows of w13 and w2 in half bytes, a scale for each 32, two biases in f32.
    let (n, h) = (2880, 2880);
    let needed = 32 * (3 * n * h / 2 + 3 * n * h / 32 + 4 * (2 * n + h));
    assert_eq!(advice.cost.extra_bytes, 24 * (held - needed));
    assert_eq!(advice.cost.extra_bytes >> 20, 875);
}

#[test]
fn a_rule_that_leaves_open_how_bytes_lie_is_advised_last_and_says_so() {
    let text = |id: &str, align: u64, unread: &str| {
        format!(
            "[[rule]]\nid = \"t.{id}.bf16\"\nstack = \"t\"\nversion = \"1\"\nbackend = \"{id}\"\n\
             formats = [\"bf16\"]\nsource = \"test\"\ngrade = \"derived\"\ntiming = \"creation\"\n\
             split = \"floor\"\norder = \"gate-up\"\nunread = [{unread}]\n\
             intermediate = [{{ align = {align} }}]\n"
        )
    };
    let advised = |read: u64| {
        let rules =
            text("asked", 512, "") + &text("open", 1, "\"weights\"") + &text("read", read, "");
        let rules = Rules::parse(&rules, "test").unwrap();
        let model = crate::model::load("Qwen3-235B-A22B").unwrap();
        let query = advised(None, 8, 1);
        let found = survey(&model, &rules, &query).unwrap();
        way(&found, Way::Backend).cloned().unwrap()
    };
    // 192 channels: 256 with multiples of 128, where the open rule would take 192.
    let read = advised(128);
    assert_eq!((read.rule.as_str(), read.unread.len()), ("t.read.bf16", 0));
    let open = advised(512);
    assert_eq!((open.rule.as_str(), open.unread.len()), ("t.open.bf16", 1));
}

/// Some layers in FP8 blocks, the others in bf16: it was about the former alone.
#[test]
fn each_format_of_a_mixed_model_gets_advice() {
    let mut model = crate::model::load("Qwen3-235B-A22B").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Fp8Block);
    model.quant.others = vec![crate::model::Share {
        format: WeightFormat::Bf16,
        layers: 4,
    }];
    let query = advised(Some("sglang.*"), 8, 1);
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let of = |format| {
        let rules = found.advice.rules.iter();
        let rules: Vec<_> = rules.filter(|one| one.format == format).collect();
        let layers: Vec<u64> = rules.iter().map(|one| one.layers).collect();
        assert!(layers.windows(2).all(|pair| pair[0] == pair[1]));
        (rules.len() > 1, layers.first().copied())
    };
    assert_eq!(
        of(WeightFormat::Fp8Block),
        (true, Some(model.moe_layers - 4))
    );
    assert_eq!(of(WeightFormat::Bf16), (true, Some(4)));
}
