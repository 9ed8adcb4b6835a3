//! What ways around cost, which come first, and what they leave as it was.

use super::advice_tests::{asked, way};
use super::survey_tests::advised;
use super::{Instead, Query, Way, survey};
use crate::plan::Fit;
use crate::rule::Rules;
use crate::terms::{LayerKind, WeightFormat};

/// facts/reports.md B08 and upstream-padding.md 1.1 S17: `ep` was advised, and refused when followed.
#[test]
fn a_way_names_the_parts_that_it_leaves_refused() {
    let mut model = crate::model::load("Qwen3-Next-80B-A3B").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Fp8Block);
    let ask = |tp, ep| {
        let query = advised(Some("sglang.triton.fp8-block"), tp, ep);
        survey(&model, Rules::builtin(), &query).unwrap()
    };
    let found = ask(8, 1);
    let ep = way(&found, Way::Ep).unwrap();
    let still: Vec<_> = ep
        .still
        .iter()
        .map(|s| (s.layer, s.verdict, s.width))
        .collect();
    assert_eq!(still, [(LayerKind::Shared, Fit::Refused, 64)]);
    // Both are padded from 64 a rank to a block of 128: a checkpoint whose shared experts stay refused
    // was advised.
    let offline = way(&found, Way::PadOffline).unwrap();
    assert!(offline.still.is_empty());
    let told: Vec<_> = offline
        .changed
        .iter()
        .map(|one| (one.layer, one.size, one.width, one.width_padded))
        .collect();
    let shared = (LayerKind::Shared, 1024, 64, 128);
    assert_eq!(told, [(LayerKind::Routed, 1024, 64, 128), shared]);
    // Where experts are whole `pad` widens them with the shared ones, whose width is a multiple of theirs.
    let spread = ask(8, 8);
    let offline = way(&spread, Way::PadOffline).unwrap();
    assert_eq!((offline.size, offline.changed.len()), (Some(1024), 2));
    assert_eq!(offline.pad.map(|pad| (pad.tp, pad.align)), Some((8, 128)));
    // What the line says is what comes of following it.
    let followed = ask(ep.tp, ep.ep);
    let shared = followed
        .plans
        .iter()
        .find(|p| p.plan.layer == LayerKind::Shared);
    assert_eq!(
        shared.map(|p| (p.plan.fit, p.plan.width)),
        Some((Fit::Refused, 64))
    );
    for found in [&found, &followed] {
        let whole = way(found, Way::Replicate).unwrap();
        assert_eq!((whole.tp, whole.ep, whole.size), (8, 8, Some(512)));
        assert!(whole.still.is_empty());
        // Seven copies more of 3 x 512 x 2048 bytes and 192 scales in each of 48 layers.
        assert_eq!(whole.cost.extra_bytes, 7 * 48 * (3 * 512 * 2048 + 4 * 192));
    }
    let tp = way(&found, Way::Tp).unwrap();
    let followed = ask(tp.tp, tp.ep);
    assert!(tp.still.is_empty() && followed.plans.iter().all(|p| p.plan.fit == Fit::Fits));
}

/// Stacks of which nobody read that they keep shared experts whole are not told to.
#[test]
fn copies_of_shared_experts_are_advised_where_a_stack_keeps_them() {
    let text = |stack: &str, key: &str| {
        format!(
            "[[stack]]\nname = \"{stack}\"\nreplicas = \"unknown\"\n{key}\nsource = \"test\"\n\
             [[rule]]\nid = \"{stack}.a.fp8-block\"\nstack = \"{stack}\"\nversion = \"1\"\nbackend = \"a\"\n\
             formats = [\"fp8-block\"]\nlayers = [\"routed\", \"shared\"]\nsource = \"test\"\n\
             grade = \"derived\"\ntiming = \"creation\"\nsplit = \"error\"\norder = \"gate-up\"\n\
             [[rule.refuse]]\nwhen = {{ width-not-multiple = 128 }}\nverdict = \"refused\"\nwhy = \"w\"\n"
        )
    };
    let mut model = crate::model::load("Qwen3-Next-80B-A3B").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Fp8Block);
    for (key, told) in [("", false), ("shared-whole = true", true)] {
        let rules = Rules::parse(&text("t", key), "test").unwrap();
        let query = advised(None, 8, 8);
        let found = survey(&model, &rules, &query).unwrap();
        assert_eq!(way(&found, Way::Replicate).is_some(), told);
    }
}

/// `tp 1: fits` came first, eight times the memory, and `ep 8`, which costs nothing, after it.
#[test]
fn ways_on_as_many_ranks_come_first_and_the_cheapest_of_them() {
    for (name, format, rule) in [
        (
            "Nemotron-3-Super-120B-A12B",
            WeightFormat::Fp8,
            "sglang.flashinfer_trtllm.fp8",
        ),
        (
            "Nemotron-3-Nano-30B-A3B",
            WeightFormat::Nvfp4,
            "vllm.marlin.nvfp4",
        ),
        (
            "Qwen3-235B-A22B",
            WeightFormat::Fp8Block,
            "sglang.triton.fp8-block",
        ),
    ] {
        let found = asked(name, format, rule, 8);
        let ways = &found.advice.rules[0].instead;
        let same = ways.iter().take_while(|way| way.way != Way::Tp).count();
        assert!(
            same > 0 && ways[same..].iter().all(|way| way.way == Way::Tp),
            "{rule}: {ways:?}"
        );
        let cost = |way: &Instead| way.all_parts.map(|all| all.extra_bytes);
        let costs: Vec<_> = ways[..same].iter().map(cost).collect();
        assert!(costs.is_sorted(), "{rule}: {costs:?}");
        assert!(ways.iter().all(|way| way.cost.rank_bytes > 0));
        // Half the ranks hold twice as much each, or more.
        for tp in &ways[same..] {
            assert!(
                tp.cost.rank_bytes.saturating_mul(tp.tp) >= ways[0].cost.rank_bytes * 7,
                "{rule}"
            );
        }
    }
    // What costs as much as doing nothing is no way around it.
    let model = crate::model::load("gpt-oss-20b").unwrap();
    let query = Query {
        all: false,
        ..advised(None, 8, 1)
    };
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    for one in found
        .advice
        .rules
        .iter()
        .filter(|one| one.verdict == Fit::Padded)
    {
        for way in one.instead.iter().filter(|way| way.way == Way::Backend) {
            assert!(
                way.cost.extra_bytes <= one.cost.extra_bytes,
                "{}: {way:?}",
                one.rule
            );
        }
    }
}

/// With `--rule` or `--backend` the others were never named.
#[test]
fn other_backends_are_named_though_one_was_asked_for() {
    let found = asked(
        "Qwen3-235B-A22B",
        WeightFormat::Fp8Block,
        "sglang.triton.fp8-block",
        8,
    );
    let others = found.advice.rules[0].instead.iter();
    let others = others.filter(|way| way.way == Way::Backend);
    let others: Vec<&str> = others.map(|way| way.rule.as_str()).collect();
    assert!(
        others.iter().any(|rule| rule.starts_with("sglang.")),
        "{others:?}"
    );
    assert!(
        others.contains(&"vllm.triton.fp8-block.refined"),
        "{others:?}"
    );
    let mut model = crate::model::load("Gemma-4-26B-A4B").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Nvfp4);
    let query = Query {
        backend: Some("flashinfer_cutlass"),
        all: false,
        ..advised(None, 2, 1)
    };
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let sglang = found
        .advice
        .rules
        .iter()
        .find(|one| one.rule.starts_with("sglang"));
    let trtllm = |way: &&Instead| way.rule == "sglang.flashinfer_trtllm.nvfp4";
    let trtllm = sglang.unwrap().instead.iter().find(trtllm).unwrap();
    assert_eq!((trtllm.width, trtllm.width_padded), (352, 384));
}

#[test]
fn an_emulation_is_no_backend_to_take_instead() {
    let model = crate::model::load("gpt-oss-20b").unwrap();
    let query = Query {
        all: false,
        ..advised(None, 8, 8)
    };
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let ways = found.advice.rules.iter().flat_map(|one| &one.instead);
    assert!(ways.clone().count() > 0);
    for way in ways {
        assert!(way.rule != "vllm.emulation.mxfp4" || way.way != Way::Backend);
    }
}

/// Of groups of several ranks each nobody read that a stack has them.
#[test]
fn whole_experts_go_over_all_ranks_or_none() {
    for rule in [
        "sglang.triton.fp8-block",
        "vllm.any.fp8-block",
        "trtllm.cutlass.fp8-block",
    ] {
        let found = asked("Qwen3-235B-A22B", WeightFormat::Fp8Block, rule, 8);
        for way in &found.advice.rules[0].instead {
            assert!(way.ep == 1 || way.ep == way.tp, "{rule}: {way:?}");
        }
    }
}

/// AWQ and GPTQ checkpoints were told to be padded, which `pad` refuses.
#[test]
fn no_checkpoint_is_advised_that_pad_refuses() {
    let offline = |method: &str| {
        let mut model = crate::model::load("Qwen3-30B-A3B").unwrap();
        model.quant = crate::model::Quant::none(WeightFormat::Int4);
        method.clone_into(&mut model.quant.method);
        let query = advised(Some("*.marlin.int4"), 16, 1);
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let has = |kind| way(&found, kind).is_some();
        (has(Way::PadOffline), has(Way::Requantise))
    };
    assert_eq!(offline("compressed-tensors"), (true, true));
    for method in ["gptq", "gptq_marlin", "awq", "awq_marlin"] {
        assert_eq!(offline(method), (false, true), "{method}");
    }
}

/// What was said of "experts, shared ones too," was 75 layers of the first and 76 of the others.
#[test]
fn copies_of_shared_experts_are_weighed_against_the_experts_of_as_many_layers() {
    let mut model = crate::model::load("GLM-5").unwrap();
    let format = WeightFormat::Fp8Block;
    model.quant = crate::model::Quant::none(format);
    assert!(model.draft_experts && model.moe_layers == 75 && model.mtp_layers == 1);
    let query = advised(Some("sglang.triton.fp8-block"), 32, 32);
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let whole = way(&found, Way::Replicate).unwrap();
    // One shared expert as wide as each of eight routed ones: 31 copies more in every layer.
    assert_eq!((model.top_k, model.shared), (8, Some(model.intermediate)));
    assert_eq!(whole.cost.extra_arithmetic(), 31 * 1_000_000 / 9);
}

/// A config has one width for experts and draft layers. The advice padded the first and left the second
/// refused; and said of memory what the routed experts alone take.
#[test]
fn experts_and_draft_layers_are_padded_to_one_width() {
    let mut model = crate::model::load("Step-3.7-Flash").unwrap();
    model.quant = crate::model::Quant::none(WeightFormat::Fp8Block);
    // As in names that `pad` reads.
    model.unpaddable = None;
    assert_eq!((model.intermediate, model.shared), (1280, Some(1280)));
    let query = advised(Some("sglang.triton.fp8-block"), 8, 1);
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let offline = way(&found, Way::PadOffline).unwrap();
    assert!(offline.still.is_empty(), "{offline:?}");
    let kinds = offline.changed.iter().map(|one| (one.layer, one.size));
    // 160 channels of a rank to two blocks of 128; the dense layers fit as they are.
    let wanted = [LayerKind::Routed, LayerKind::Shared, LayerKind::Draft].map(|kind| (kind, 2048));
    assert_eq!(kinds.collect::<Vec<_>>(), wanted);
    let finer = way(&found, Way::FinerScales).unwrap();
    assert!(finer.still.is_empty(), "{finer:?}");
    assert_eq!(finer.size, Some(32));
    let all = finer.changed.iter().map(|one| (one.layer, one.size));
    // A checkpoint has one grid for all that it holds: the dense layers' too.
    let (shared, dense) = (LayerKind::Shared, LayerKind::Dense);
    let wanted = [LayerKind::Routed, shared, dense, LayerKind::Draft].map(|kind| (kind, 32));
    assert_eq!(all.collect::<Vec<_>>(), wanted);
}

/// DeepSeek-V3 on eight ranks: 58 layers with 256 experts of 2048 and one shared expert of 2048, three
/// dense ones of 18432, one draft layer, which has a shared expert too; a byte an element, and four for each block of 128 x 128.
#[test]
fn all_parts_are_counted_beside_the_experts() {
    let model = crate::model::load("DeepSeek-V3").unwrap();
    let query = advised(Some("sglang.triton.fp8-block"), 8, 1);
    let found = survey(&model, Rules::builtin(), &query).unwrap();
    let one = &found.advice.rules[0];
    let layer = |experts: u64, width: u64| {
        experts * (3 * 7168 * width + 4 * 3 * (7168 / 128) * (width / 128))
    };
    let routed = 58 * layer(256, 256);
    assert_eq!(one.cost.rank_bytes, routed);
    let beside: Vec<_> = one
        .parts
        .iter()
        .map(|part| (part.layer, part.layers, part.cost.unwrap().rank_bytes))
        .collect();
    let shared = (LayerKind::Shared, 59, 59 * layer(1, 256));
    let dense = (LayerKind::Dense, 3, 3 * layer(1, 2304));
    let draft = (LayerKind::Draft, 1, layer(256, 256));
    assert_eq!(beside, [shared, dense, draft]);
    let all = one.all_parts.unwrap();
    assert_eq!(all.rank_bytes, routed + shared.2 + dense.2 + draft.2);
    assert_eq!((all.extra_bytes, all.extra_arithmetic()), (0, 0));
}

/// What is advised is planned anew: verdict, widths, memory and the other parts are those that were promised.
#[test]
fn advice_that_is_followed_keeps_its_word() {
    use std::collections::BTreeMap;
    let mut followed = 0;
    for (name, format) in [
        ("gpt-oss-20b", None),
        ("Gemma-4-26B-A4B", Some(WeightFormat::Nvfp4)),
        ("DeepSeek-V3", None),
        ("Step-3.7-Flash", None),
    ] {
        let mut model = crate::model::load(name).unwrap();
        model.quant.format = format.unwrap_or(model.quant.format);
        let ask = |tp, ep| {
            let query = Query {
                all: false,
                ..advised(None, tp, ep)
            };
            survey(&model, Rules::builtin(), &query)
                .unwrap()
                .advice
                .rules
        };
        let mut known = BTreeMap::new();
        for (tp, ep) in [(8, 1), (3, 1), (8, 8)] {
            for one in ask(tp, ep) {
                for way in one.instead.iter().chain(&one.cheapest) {
                    if !matches!(way.way, Way::Tp | Way::Ep | Way::Backend) {
                        continue;
                    }
                    let then = known
                        .entry((way.tp, way.ep))
                        .or_insert_with(|| ask(way.tp, way.ep));
                    let then = then.iter().find(|then| then.rule == way.rule).unwrap();
                    assert_eq!(
                        (then.fit, then.cost),
                        (way.verdict, way.cost),
                        "{name} {tp} {ep}: {way:?}"
                    );
                    assert_eq!(then.parts, way.parts, "{name} {tp} {ep}: {way:?}");
                    followed += 1;
                }
            }
        }
    }
    assert!(followed > 200, "{followed}");
}

/// No rule of aiter's stack is for GLM-4.7's shared experts, which the padded checkpoint has wider all the same: their
/// width and their cost were left out.
#[test]
fn padded_checkpoints_cost_what_widens_outside_the_rule_too() {
    let (layers, tp) = (89, 8);
    let found = asked("GLM-4.7", WeightFormat::Bf16, "sglang.aiter.bf16", tp);
    let offline = way(&found, Way::PadOffline).unwrap();
    let told: Vec<_> = offline
        .changed
        .iter()
        .map(|one| (one.layer, one.size, one.width, one.width_padded))
        .collect();
    let shared = (LayerKind::Shared, 2048, 192, 256);
    assert_eq!(told, [(LayerKind::Routed, 2048, 192, 256), shared]);
    assert_eq!(offline.open, [LayerKind::Shared]);
    let part = offline
        .parts
        .iter()
        .find(|one| one.layer == LayerKind::Shared);
    // 512 channels of 5120 in three projections of bf16 each.
    let more = layers * 3 * 512 * 5120 * 2;
    let cost = part.and_then(|one| one.cost).unwrap();
    assert_eq!(
        (part.map(|one| one.verdict), cost.extra_bytes),
        (Some(Fit::Unknown), more)
    );
    let all = offline.all_parts.unwrap();
    assert_eq!(all.extra_bytes, offline.cost.extra_bytes + more);
    assert_eq!(
        all.rank_bytes,
        offline.cost.rank_bytes + layers * 3 * 256 * 5120 * 2
    );
}
