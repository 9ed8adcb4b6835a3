//! Goal: a rule is one entry of one file, every row of the survey is in one, and each entry can be
//! read as data. Method: the folder of rule files against what the program ships.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use padproof::model::{Quant, load};
use padproof::plan::{Fit, Parallel, Plan, layers, plan_layer};
use padproof::rule::{Release, Rules, Status, Verdict};
use padproof::run::{Query, survey};
use padproof::terms::{LayerKind, Split, WeightFormat};
use std::collections::BTreeSet;
use std::path::Path;

fn folder() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rule/data");
    let files = std::fs::read_dir(root).expect("the folder of rule files");
    let mut all: Vec<(String, String)> = files
        .map(|file| {
            let file = file.expect("readable").path();
            let name = file
                .file_name()
                .expect("named")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read_to_string(&file).expect("text"))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_file_of_the_folder_is_shipped_and_holds_one_stack() {
    let mut entries = 0;
    for (name, text) in folder() {
        let rules = Rules::parse(&text, &name).unwrap_or_else(|e| panic!("{e}"));
        let stack = name
            .strip_suffix(".toml")
            .expect("only rule files are there");
        for rule in rules.iter() {
            assert_eq!(rule.stack, stack, "{}", rule.id);
            assert_eq!(Rules::builtin().get(&rule.id).ok(), Some(rule));
            entries += 1;
        }
    }
    assert_eq!(entries, Rules::builtin().iter().count());
    assert!(entries > 120, "{entries}");
}

/// Ids of the rows of facts/upstream-padding.md 1.1 to 1.7, as (prefix, last number).
const ROWS: &[(&str, u32)] = &[
    ("S", 26),
    ("A", 9),
    ("V", 19),
    ("F", 8),
    ("AI", 5),
    ("T", 10),
    ("D", 4),
    ("K", 2),
    ("H", 2),
];

#[test]
fn every_row_of_the_survey_is_cited_and_no_other() {
    let wanted: BTreeSet<String> = ROWS
        .iter()
        .flat_map(|(prefix, last)| (1..=*last).map(move |n| format!("{prefix}{n}")))
        .collect();
    let path = "../shared/facts/upstream-padding.md";
    match std::fs::read_to_string(path) {
        Err(e) => println!("skipped the comparison with {path}: {e}"),
        Ok(text) => {
            let section = text.split("\n## 2.").next().unwrap_or_default();
            let told: BTreeSet<String> = section
                .lines()
                .filter_map(|line| line.strip_prefix("| ")?.split(' ').next())
                .filter(|word| wanted.contains(*word) || row_like(word))
                .map(str::to_owned)
                .collect();
            assert_eq!(told, wanted, "the survey's rows");
        }
    }
    let mut cited = BTreeSet::new();
    for rule in Rules::builtin().iter() {
        // Findings of facts/peers.md are F1 to F15 too.
        for part in rule.source.split(';').filter(|p| !p.contains("peers.md")) {
            let words = part.split(|c: char| !c.is_ascii_alphanumeric());
            cited.extend(words.filter(|w| row_like(w)).map(str::to_owned));
        }
    }
    let missing: Vec<_> = wanted.difference(&cited).collect();
    assert!(missing.is_empty(), "no rule cites {missing:?}");
    for known in cited.difference(&wanted) {
        assert!(
            ["B", "M", "SM", "W"].iter().any(|p| known.starts_with(p)),
            "{known} is no row"
        );
    }
}

/// One or two capitals and then digits.
fn row_like(word: &str) -> bool {
    let capitals = word.bytes().take_while(u8::is_ascii_uppercase).count();
    let digits = &word[capitals..];
    (1..=2).contains(&capitals)
        && !word.starts_with("FP")
        && (1..=2).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
}

#[test]
fn what_is_wrong_or_open_says_why() {
    for rule in Rules::builtin().iter() {
        for refusal in &rule.refuse {
            assert!(refusal.why.len() > 12, "{}: {}", rule.id, refusal.why);
            let unread = refusal.why.contains("not read")
                || refusal.why.contains("later")
                || refusal.why.contains("where ");
            assert!(
                refusal.verdict != Verdict::Unknown || unread,
                "{}: {}",
                rule.id,
                refusal.why
            );
        }
        let dated = rule.until.is_some() || rule.version.contains(',') || rule.wrong.is_some();
        assert!(rule.status != Status::Historical || dated, "{}", rule.id);
        assert!(
            !rule.version.is_empty() && rule.source.len() > 10,
            "{}",
            rule.id
        );
    }
}

#[test]
fn the_newest_release_of_a_stack_is_one() {
    for (name, text) in folder() {
        let rules = Rules::parse(&text, &name).unwrap_or_else(|e| panic!("{e}"));
        let current = rules.iter().filter(|r| r.status == Status::Current);
        let read: BTreeSet<_> = current
            .filter_map(|r| Release::parse(&r.version).map(|_| r.version.clone()))
            .collect();
        assert!(read.len() <= 1, "{name}: {read:?}");
    }
}

fn planned(id: &str, name: &str, format: WeightFormat, tp: u64) -> Plan {
    let model = padproof::model::load(name).expect("built in");
    let mut part = layers(&model, 1).swap_remove(0);
    part.weight = format;
    let rule = Rules::builtin().get(id).expect("shipped");
    plan_layer(&part, Parallel { tp, ep: 1 }, rule, &[]).expect("sizes that can be planned")
}

/// facts/upstream-padding.md 1.0: whole blocks to a rank is what the loaders of gpt-oss do.
#[test]
fn only_the_loaders_of_gpt_oss_cut_at_whole_blocks() {
    let other = planned(
        "sglang.triton_kernels.mxfp4",
        "Qwen3-30B-A3B",
        WeightFormat::Mxfp4,
        16,
    );
    assert_eq!((other.fit, other.width), (Fit::Unrepresentable, 48));
    let own = planned(
        "sglang.triton_kernels.mxfp4",
        "gpt-oss-20b",
        WeightFormat::Mxfp4,
        8,
    );
    assert_eq!((own.fit, own.width), (Fit::Padded, 384));
}

/// S23: the group is halved until it divides the width: 192 in groups of 64, 96 of 32; at 48 it stops.
#[test]
fn a_group_that_is_halved_needs_no_padding() {
    for (tp, fit) in [(4, Fit::Fits), (8, Fit::Fits), (16, Fit::Refused)] {
        let plan = planned(
            "sglang.moe_wna16.int4",
            "Qwen3-30B-A3B",
            WeightFormat::Int4,
            tp,
        );
        assert_eq!(plan.fit, fit, "{tp}: {:?}", plan.violations);
    }
}

/// S17: the check at start is left out for aiter alone.
#[test]
fn blocks_of_fp8_are_refused_by_every_cuda_backend_of_sglang() {
    let format = WeightFormat::Fp8Block;
    for rule in Rules::builtin().iter() {
        let one = rule.stack == "sglang" && rule.formats.contains(&format);
        if !one || rule.status != Status::Current || ["aiter", "cpu"].contains(&&*rule.backend) {
            continue;
        }
        let plan = planned(&rule.id, "Qwen3-Next-80B-A3B", format, 8);
        assert_eq!(plan.fit, Fit::Refused, "{}: 64 is half a block", rule.id);
    }
}

/// S10: columns of scales for Hopper are filled to whole blocks of 128 channels (B87 reads beyond).
#[test]
fn scales_for_hopper_have_whole_blocks_of_columns() {
    let plan = planned(
        "sglang.triton_kernels.mxfp4.sm90",
        "gpt-oss-20b",
        WeightFormat::Mxfp4,
        1,
    );
    let scale = plan.w13_scale.expect("mxfp4 has scales");
    assert_eq!((scale.cols_logical, scale.cols_stored), (90, 92));
}

/// Kernel libraries load nothing: no split of gpt-oss's loaders (facts/upstream-padding.md 1.0) is
/// theirs, and their rules are marked, so that nobody is told to launch one.
#[test]
fn kernel_libraries_cut_nothing_of_their_own() {
    const KERNELS: [&str; 4] = ["aiter", "deepgemm", "flashinfer", "triton_kernels"];
    let whole = |split: Split| split == Split::CeilBlock;
    for rule in Rules::builtin().iter() {
        let kernel = KERNELS.contains(&rule.stack.as_str());
        assert_eq!(rule.kernel, kernel, "{}", rule.id);
        assert!(!kernel || !whole(rule.split), "{}", rule.id);
    }
    // 1856 over 8 ranks: the callers cut 232, which padding cannot mend. A split of the kernel's own
    // made 240 of it, and advised it.
    let model = padproof::model::load("Nemotron-3-Nano-30B-A3B").expect("built in");
    let mut layer = layers(&model, 1).swap_remove(0);
    layer.weight = WeightFormat::Nvfp4;
    let plan = |id: &str| {
        let rule = Rules::builtin().get(id).expect("shipped");
        plan_layer(&layer, Parallel { tp: 8, ep: 1 }, rule, &[]).expect("a plan")
    };
    let (kernel, caller) = (
        plan("flashinfer.trtllm_gen.nvfp4"),
        plan("vllm.flashinfer_trtllm.nvfp4"),
    );
    assert_eq!((kernel.width, kernel.fit), (232, Fit::Unrepresentable));
    assert_eq!((caller.width, caller.fit), (kernel.width, kernel.fit));
    assert!(kernel.kernel && !caller.kernel);
}

/// facts/upstream-padding.md 1.1: S15 is a CUDA path, S9 says of trtllm-gen's MXFP4 that it is SM100's.
#[test]
fn architectures_that_the_survey_names_are_kept() {
    let of = |id: &str| Rules::builtin().get(id).expect("shipped").arch.clone();
    assert_eq!(of("sglang.marlin.mxfp4.deepseek-v4"), ["cuda"]);
    for stack in ["sglang.flashinfer_trtllm", "vllm.flashinfer_trtllm"] {
        assert_eq!(of(&format!("{stack}.mxfp4")), ["sm100"]);
    }
    for stack in ["trtllm", "flashinfer"] {
        assert_eq!(of(&format!("{stack}.trtllm_gen.mxfp4")), ["sm100"]);
    }
}

/// facts/reports.md B38, facts/peers.md F15: the check comes later, and wants 128 and 256. They were said to
/// fit at any 32, on any device.
#[test]
fn backends_that_check_later_are_unknown_below_what_they_are_said_to_want() {
    let format = WeightFormat::Mxfp4;
    let fit = |id: &str, name: &str, tp| planned(id, name, format, tp).fit;
    let b12x = "vllm.b12x.mxfp4";
    assert_eq!(fit(b12x, "Qwen3-30B-A3B", 2), Fit::Fits);
    assert_eq!(fit(b12x, "Qwen3-30B-A3B", 4), Fit::Unknown, "192");
    assert_eq!(
        fit(b12x, "Nemotron-3-Nano-30B-A3B", 1),
        Fit::Unknown,
        "1856"
    );
    assert_eq!(fit(b12x, "gpt-oss-20b", 4), Fit::Unknown, "H 2880");
    for tp in [1, 2, 4, 8] {
        assert_eq!(fit("vllm.mega_ep.mxfp4", "Qwen3-30B-A3B", tp), Fit::Unknown);
    }
    for id in [b12x, "vllm.b12x.nvfp4"] {
        let arch = &Rules::builtin().get(id).expect("shipped").arch;
        assert!(arch.iter().all(|a| a.starts_with("sm12")) && !arch.is_empty());
    }
}

/// facts/upstream-padding.md 1.3: vLLM's layer asserts that the width divides by the ranks, whatever loads it;
/// of SGLang's padded loading nobody read it. Both were "padded".
#[test]
fn widths_that_do_not_divide_are_refused_by_vllm_and_open_in_sglang() {
    let (block, mxfp4) = (WeightFormat::Fp8Block, WeightFormat::Mxfp4);
    let plan = planned("vllm.any.fp8-block", "Qwen3-30B-A3B", block, 10);
    assert_eq!(plan.fit, Fit::Refused);
    let said = plan
        .violations
        .iter()
        .find(|v| v.code == "PP102")
        .expect("a refusal");
    assert!(
        said.message.starts_with("768 % 10 = 8: "),
        "{}",
        said.message
    );
    let sglang = planned("sglang.aiter.fp8", "Qwen3-30B-A3B", block, 10);
    assert_eq!(sglang.fit, Fit::Unknown);
    for rule in Rules::builtin().iter() {
        let one = rule.stack == "vllm" && rule.formats.contains(&mxfp4) && !rule.dispatch;
        if one && rule.status == Status::Current {
            let plan = planned(&rule.id, "gpt-oss-20b", mxfp4, 7);
            assert_eq!(plan.fit, Fit::Refused, "{}", rule.id);
        }
    }
}

/// facts/upstream-padding.md 1.5 AI1: with biases AITER is told no padding, and multiplies all of it. It was
/// said to multiply 384 of 512.
#[test]
fn biases_make_aiter_multiply_all_padding() {
    for (id, width) in [
        ("vllm.aiter.mxfp4", 512),
        ("vllm.aiter.mxfp4.bf16", 512),
        ("vllm.aiter.mxfp4.w4a4", 384),
    ] {
        let plan = planned(id, "gpt-oss-20b", WeightFormat::Mxfp4, 8);
        let computed = (
            plan.width_computed,
            plan.w2_width_computed,
            plan.hidden_computed,
        );
        assert_eq!(computed, (width, width, 3072), "{id}");
    }
    let without = planned(
        "vllm.aiter.mxfp4",
        "Qwen3-235B-A22B",
        WeightFormat::Mxfp4,
        8,
    );
    assert!(without.width_computed < without.width_padded);
}

/// facts/upstream-padding.md 1.4 F1: MXFP atoms are 128 by 128; widths of 96 and 192 were said to fit.
#[test]
fn mxfp8_that_leaves_scale_atoms_open_is_unknown() {
    let fit = |format, tp| planned("flashinfer.cutlass.fp8", "Qwen3-30B-A3B", format, tp).fit;
    let (mxfp8, fp8) = (WeightFormat::Mxfp8, WeightFormat::Fp8);
    assert_eq!(
        [2, 4, 8].map(|tp| fit(mxfp8, tp)),
        [Fit::Fits, Fit::Unknown, Fit::Unknown]
    );
    assert_eq!([2, 4, 8].map(|tp| fit(fp8, tp)), [Fit::Fits; 3]);
}

/// facts/upstream-padding.md 1.0: gpt-oss's loaders cut whole blocks whatever multiplies them. 360 of a rank were
/// said to straddle.
#[test]
fn the_loaders_of_gpt_oss_are_its_own_under_humming_too() {
    for stack in ["sglang", "vllm"] {
        let plan = planned(
            &format!("{stack}.humming.any"),
            "gpt-oss-20b",
            WeightFormat::Mxfp4,
            8,
        );
        assert_eq!(
            (plan.fit, plan.width, plan.width_padded),
            (Fit::Padded, 384, 512)
        );
    }
}

/// The rows of facts/upstream-padding.md 1.1 and 1.2 name the file that was read, and with it whose checkpoints
/// take the path: ModelOpt's NVFP4 (S1, S4, S5), the model's own FP8 (S13 to S17, A2), MXFP4's own (S8). Others
/// were planned by them too.
#[test]
fn checkpoints_of_methods_that_nobody_read_are_left_open() {
    let planned = |model: &str, format, method: &str| {
        let mut model = load(model).expect("shipped");
        model.quant = Quant::none(format);
        model.quant.method = method.to_owned();
        let asked = Query {
            rule: Some("sglang.*"),
            all: false,
            layer: Some(LayerKind::Routed),
            ..Query::of(Parallel { tp: 8, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &asked).expect("a survey");
        let current = found
            .plans
            .iter()
            .filter(|one| one.status == Status::Current);
        let ids = current.map(|one| one.plan.rule.trim_start_matches("sglang.").to_owned());
        ids.collect::<Vec<String>>()
    };
    let nvfp4 = |method| planned("Qwen3-235B-A22B", WeightFormat::Nvfp4, method);
    let modelopt = nvfp4("modelopt");
    for id in [
        "flashinfer_trtllm.nvfp4",
        "flashinfer_cutlass.nvfp4",
        "marlin.nvfp4",
    ] {
        assert!(modelopt.iter().any(|one| one == id), "{id}: {modelopt:?}");
    }
    assert_eq!(nvfp4("modelopt_fp4"), modelopt);
    let other = nvfp4("compressed-tensors");
    assert!(
        other
            .iter()
            .any(|one| one == "marlin.nvfp4.compressed-tensors")
    );
    assert!(
        !other.iter().any(|one| one.starts_with("flashinfer")),
        "{other:?}"
    );
    let v4 = |method| planned("DeepSeek-V4-Flash", WeightFormat::Mxfp4, method);
    let own = v4("fp8");
    assert_eq!(
        own.iter()
            .filter(|one| one.ends_with("deepseek-v4"))
            .count(),
        3,
        "{own:?}"
    );
    for method in ["quark", "mxfp4"] {
        assert!(
            !v4(method).iter().any(|one| one.ends_with("deepseek-v4")),
            "{method}"
        );
    }
    let block = |method| planned("Qwen3-235B-A22B", WeightFormat::Fp8Block, method);
    assert!(block("fp8").iter().any(|one| one == "triton.fp8-block"));
    for method in ["compressed-tensors", "modelopt"] {
        let others = block(method);
        assert!(
            others
                .iter()
                .all(|one| ["humming.any", "cpu.any"].contains(&one.as_str())),
            "{method}: {others:?}"
        );
    }
}

/// What one rule makes of a model in a format.
fn judged(name: &str, format: WeightFormat, rule: &str, tp: u64) -> (Fit, Vec<&'static str>) {
    let mut model = padproof::model::load(name).expect("shipped");
    model.quant = Quant::none(format);
    if rule == "trtllm.trtllm_gen.mxfp4" {
        model.intermediate = 17_408;
    }
    let asked = Query {
        rule: Some(rule),
        layer: Some(LayerKind::Routed),
        ..Query::of(Parallel { tp, ep: 1 })
    };
    let found = survey(&model, Rules::builtin(), &asked).expect("a survey");
    let plan = &found.plans[0].plan;
    (plan.fit, plan.violations.iter().map(|v| v.code).collect())
}

/// T5 says nothing of the call that T4 says passes the wrong number; of DeepSeek-V4's clamped SwiGLU V1 does not say
/// whether it is SILU; K1's SwiGLU is gpt-oss's. Each was decided all the same.
#[test]
fn what_a_row_leaves_open_is_unknown() {
    let trtllm = |tp| {
        judged(
            "Mixtral-8x7B-v0.1",
            WeightFormat::Mxfp4,
            "trtllm.trtllm_gen.mxfp4",
            tp,
        )
    };
    assert_eq!(trtllm(2), (Fit::Unknown, vec!["PP138"]));
    assert_eq!(trtllm(1).0, Fit::Fits);
    for rule in ["vllm.aiter.mxfp4.bf16", "vllm.triton_unfused.mxfp4"] {
        let clamped = |tp| judged("DeepSeek-V4-Pro", WeightFormat::Mxfp4, rule, tp).0;
        // 384 is a multiple of 128 alone, 768 of both.
        assert_eq!(
            [clamped(8), clamped(4)],
            [Fit::Unknown, Fit::Fits],
            "{rule}"
        );
    }
    for arch in ["sm90", "sm100"] {
        let rule = format!("triton_kernels.matmul.mxfp4.{arch}");
        let of = |name| judged(name, WeightFormat::Mxfp4, &rule, 1).0;
        assert_eq!(
            [of("Kimi-K3"), of("gpt-oss-20b")],
            [Fit::Unknown, Fit::Fits],
            "{rule}"
        );
    }
}
