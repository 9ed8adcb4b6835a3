//! Real configs and shipped models against the facts.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use padproof::model::{Grade, Model, ModelError, builtin, load};
use padproof::terms::{Activation, Bias, Route, WeightFormat};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// The folder of real configs, if this checkout has it.
pub(super) fn configs() -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/configs"));
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

fn real(name: &str) -> Option<Result<Model, ModelError>> {
    Some(load(configs()?.join(name).to_str().unwrap()))
}

fn row(m: &Model) -> String {
    let some = |x: Option<u64>| x.map_or("-".to_owned(), |x| x.to_string());
    let width = if m.hidden == m.model_hidden {
        m.hidden.to_string()
    } else {
        format!("{} [{}]", m.hidden, m.model_hidden)
    };
    let groups = if m.groups > 1 {
        format!(" {}/{}", m.groups, m.keep)
    } else {
        String::new()
    };
    format!(
        "{width} x {} e {}/{} {} {}{groups} x{} shared {} dense {} layers {}/{} mtp {} heads {}/{} vocab {} | {} {} {} ({})",
        m.intermediate,
        m.experts,
        m.top_k,
        m.activation,
        m.route,
        m.factor,
        some(m.shared),
        some(m.dense),
        m.moe_layers,
        m.layers,
        m.mtp_layers,
        some(m.attention_heads),
        some(m.kv_heads),
        some(m.vocab),
        m.quant.format,
        m.quant.shared_format,
        m.quant.dense_format,
        m.quant.method,
    )
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn real_configs_are_read_or_refused() {
    let Some(folder) = configs() else { return };
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 25);
    let mut table = String::new();
    for name in &names {
        let directory = real(name).unwrap();
        let file = load(folder.join(name).join("config.json").to_str().unwrap());
        match (&directory, file) {
            (Ok(model), Ok(file)) => {
                assert_eq!(model.name, *name);
                assert_eq!(
                    Model {
                        source: model.source.clone(),
                        ..file
                    },
                    *model
                );
                writeln!(table, "{name}\n  {}", row(model)).unwrap();
                for note in &model.notes {
                    writeln!(table, "  note: {note}").unwrap();
                }
            }
            (Err(one), Err(_)) => {
                let text = one.to_string();
                let text = text.split_once("config.json: ").unwrap().1;
                writeln!(table, "{name}\n  refused: {text}").unwrap();
            }
            _ => panic!("{name}: the directory and the file in it differ"),
        }
    }
    snapshot("models@configs", &table);
}

#[test]
fn shipped_models_have_the_facts_sizes() {
    let mut table = String::new();
    for model in builtin() {
        writeln!(
            table,
            "{} ({}: {})\n  {}",
            model.name,
            model.grade.name(),
            model.source,
            row(model)
        )
        .unwrap();
    }
    snapshot("models@builtin", &table);
}

/// Facts of one row, checked by hand against facts/upstream-padding.md 4.1.
struct Row(
    &'static str,
    [u64; 4],
    Activation,
    Route,
    Option<u64>,
    Option<u64>,
    [WeightFormat; 3],
);

#[test]
fn key_rows_are_those_of_the_facts() {
    use Activation::{GegluTanh, Relu2, Situ, Swiglu, SwigluClamp, SwigluOai, SwigluStep};
    use Route::{
        GroupedSigmoidBias, Llama4, SigmoidBias, SoftmaxRenorm, SqrtSoftplusBias, TopkSoftmax,
    };
    use WeightFormat::{Bf16, Fp8, Fp8Block, Mxfp4, Nvfp4};
    let rows = [
        Row(
            "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
            [2688, 1856, 128, 6],
            Relu2,
            SigmoidBias,
            Some(3712),
            None,
            [Nvfp4, Nvfp4, Nvfp4],
        ),
        Row(
            "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
            [1024, 2688, 512, 22],
            Relu2,
            SigmoidBias,
            Some(5376),
            None,
            [Fp8, Fp8, Fp8],
        ),
        Row(
            "Qwen--Qwen3-235B-A22B-FP8",
            [4096, 1536, 128, 8],
            Swiglu,
            SoftmaxRenorm,
            None,
            None,
            [Fp8Block; 3],
        ),
        Row(
            "Qwen--Qwen3-VL-30B-A3B-Instruct",
            [2048, 768, 128, 8],
            Swiglu,
            SoftmaxRenorm,
            None,
            None,
            [Bf16; 3],
        ),
        Row(
            "Qwen--Qwen3.5-35B-A3B",
            [2048, 512, 256, 8],
            Swiglu,
            SoftmaxRenorm,
            Some(512),
            None,
            [Bf16; 3],
        ),
        Row(
            "deepseek-ai--DeepSeek-V3",
            [7168, 2048, 256, 8],
            Swiglu,
            GroupedSigmoidBias,
            Some(2048),
            Some(18432),
            [Fp8Block; 3],
        ),
        Row(
            "nvidia--DeepSeek-V3.1-NVFP4",
            [7168, 2048, 256, 8],
            Swiglu,
            GroupedSigmoidBias,
            Some(2048),
            Some(18432),
            [Nvfp4; 3],
        ),
        Row(
            "deepseek-ai--DeepSeek-V4-Pro",
            [7168, 3072, 384, 6],
            SwigluClamp,
            SqrtSoftplusBias,
            Some(3072),
            None,
            [Mxfp4, Fp8Block, Fp8Block],
        ),
        Row(
            "moonshotai--Kimi-K3",
            [3584, 3072, 896, 16],
            Situ,
            SigmoidBias,
            Some(6144),
            Some(33792),
            [Mxfp4, Bf16, Bf16],
        ),
        Row(
            "google--gemma-4-26B-A4B",
            [2816, 704, 128, 8],
            GegluTanh,
            SoftmaxRenorm,
            None,
            Some(2112),
            [Bf16; 3],
        ),
        Row(
            "nvidia--Gemma-4-26B-A4B-NVFP4",
            [2816, 704, 128, 8],
            GegluTanh,
            SoftmaxRenorm,
            None,
            Some(2112),
            [Nvfp4, Nvfp4, Bf16],
        ),
        Row(
            "openai--gpt-oss-20b",
            [2880, 2880, 32, 4],
            SwigluOai,
            TopkSoftmax,
            None,
            None,
            [Mxfp4, Bf16, Bf16],
        ),
        Row(
            "meta-llama--Llama-4-Scout-17B-16E-Instruct",
            [5120, 8192, 16, 1],
            Swiglu,
            Llama4,
            Some(8192),
            None,
            [Bf16; 3],
        ),
        Row(
            "mistralai--Mixtral-8x7B-v0.1",
            [4096, 14336, 8, 2],
            Swiglu,
            SoftmaxRenorm,
            None,
            None,
            [Bf16; 3],
        ),
        Row(
            "MiniMaxAI--MiniMax-M2.5",
            [3072, 1536, 256, 8],
            Swiglu,
            SigmoidBias,
            None,
            None,
            [Fp8Block; 3],
        ),
        Row(
            "XiaomiMiMo--MiMo-V2-Flash",
            [4096, 2048, 256, 8],
            Swiglu,
            SigmoidBias,
            None,
            Some(16384),
            [Fp8Block; 3],
        ),
        Row(
            "stepfun-ai--Step-3.7-Flash-FP8",
            [4096, 1280, 288, 8],
            SwigluStep,
            SigmoidBias,
            Some(1280),
            Some(11264),
            [Fp8Block; 3],
        ),
        Row(
            "zai-org--GLM-5-FP8",
            [6144, 2048, 256, 8],
            Swiglu,
            SigmoidBias,
            Some(2048),
            Some(12288),
            [Fp8Block; 3],
        ),
    ];
    for Row(name, sizes, act, route, shared, dense, formats) in rows {
        let Some(model) = real(name) else { return };
        let m = model.unwrap();
        assert_eq!(
            [m.hidden, m.intermediate, m.experts, m.top_k],
            sizes,
            "{name}"
        );
        assert_eq!((m.activation, m.route), (act, route), "{name}");
        assert_eq!((m.shared, m.dense), (shared, dense), "{name}");
        assert_eq!(
            [m.quant.format, m.quant.shared_format, m.quant.dense_format],
            formats,
            "{name}"
        );
    }
}

#[test]
fn gpt_oss_is_interleaved_and_has_biases() {
    let Some(model) = real("openai--gpt-oss-20b") else {
        return;
    };
    let model = model.unwrap();
    assert!(model.interleaved && model.bias == Bias::Both);
    assert_eq!(model.quant.group, Some(32));
}

#[test]
fn files_and_shipped_models_agree() {
    for (file, name) in [
        (
            "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "Nemotron-3-Nano-30B-A3B",
        ),
        ("Qwen--Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("deepseek-ai--DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
        ("google--gemma-4-26B-A4B", "google/gemma-4-26b-a4b"),
        ("mistralai--Mixtral-8x7B-v0.1", "Mixtral-8x7B-v0.1"),
        ("openai--gpt-oss-20b", "gpt-oss-20b"),
        ("Qwen--Qwen3.5-35B-A3B", "Qwen/Qwen3.6-35B-A3B"),
        ("deepseek-ai--DeepSeek-V4-Pro", "DeepSeek-V4-Pro"),
        ("moonshotai--Kimi-K2-Instruct", "Kimi-K2"),
        ("moonshotai--Kimi-K3", "Kimi-K3"),
        ("MiniMaxAI--MiniMax-M2.5", "MiniMax-M2"),
        ("XiaomiMiMo--MiMo-V2-Flash", "MiMo-V2-Flash"),
    ] {
        let Some(read) = real(file) else { return };
        let shipped = load(name).unwrap();
        assert_eq!(shipped.grade, Grade::Verified);
        let same = Model {
            name: shipped.name.clone(),
            source: shipped.source.clone(),
            grade: shipped.grade,
            // Of a shipped model it is not recorded which key it is.
            shared_each: shipped.shared_each,
            ..read.unwrap()
        };
        assert_eq!(same, shipped);
    }
}

/// hf_quant_config.json leaves `model.layers.61*` out: the layer behind the 61 numbered ones.
#[test]
fn draft_layers_have_a_format_of_their_own() {
    let Some(model) = real("nvidia--DeepSeek-V3.1-NVFP4") else {
        return;
    };
    let model = model.unwrap();
    assert!(model.draft_experts && model.mtp_layers == 1);
    assert_eq!(model.quant.draft_format, Some(WeightFormat::Bf16));
    let plain = real("deepseek-ai--DeepSeek-V3").unwrap().unwrap();
    assert_eq!(
        (plain.draft_experts, plain.quant.draft_format),
        (true, None)
    );
    // Experts from layer 3 on, says first_k_dense_replace.
    let step = real("stepfun-ai--Step-3.7-Flash-FP8").unwrap().unwrap();
    assert!(step.mtp_layers == 3 && step.draft_experts);
    // mtp_hybrid_override_pattern is "*E".
    let nemotron = real("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8").unwrap();
    assert!(nemotron.unwrap().draft_experts);
}

#[test]
fn what_is_not_verified_says_so() {
    let of = |grade| builtin().iter().filter(move |m| m.grade == grade);
    assert!(of(Grade::Verified).count() >= 57);
    for model in of(Grade::Memory).chain(of(Grade::ClassDefault)) {
        let label = model.grade.name();
        assert!(
            ["memory", "class-default"].contains(&label),
            "{}",
            model.name
        );
    }
    // facts/upstream-padding.md 4.1: a status of "mem", and of a class default only.
    let names = |grade| of(grade).map(|m| m.name.as_str()).collect::<Vec<_>>();
    assert_eq!(
        names(Grade::Memory),
        [
            "Qwen2-57B-A14B",
            "MiniMax-Text-01",
            "Jamba-1.5-Large",
            "Arctic",
            "Ring-1T"
        ]
    );
    assert_eq!(
        names(Grade::ClassDefault),
        [
            "NemotronH-default",
            "Kimi-Linear-48B-A3B",
            "Laguna-XS.2",
            "Mellum-default",
            "Inkling-2-default",
            "privacy-filter-default",
            "DeepSeek-V2-default"
        ]
    );
}

/// facts/upstream-padding.md 4.1, read by hand: hidden, width, experts, top-k.
#[test]
fn sizes_of_shipped_models_are_those_of_the_facts() {
    for (name, sizes) in [
        ("Qwen3-Coder-480B", [6144, 2560, 160, 8]),
        ("Qwen1.5-MoE-A2.7B", [2048, 1408, 60, 4]),
        ("Qwen3-Next-80B-A3B", [2048, 512, 512, 10]),
        ("GLM-4.5-Air", [4096, 1408, 128, 8]),
        ("GLM-4.7-Flash", [2048, 1536, 64, 4]),
        ("DeepSeek-V2-Lite", [2048, 1408, 64, 6]),
        ("DeepSeek-V4-Flash", [4096, 2048, 256, 6]),
        ("Kimi-K3", [3584, 3072, 896, 16]),
        ("MiniMax-M3", [6144, 3072, 128, 4]),
        ("Mixtral-8x22B", [6144, 16384, 8, 2]),
        ("Llama-4-Maverick", [5120, 8192, 128, 1]),
        ("Granite-4.0-H-Small", [4096, 768, 72, 10]),
        ("Phi-3.5-MoE", [4096, 6400, 16, 2]),
        ("DBRX", [6144, 10752, 16, 4]),
        ("Grok-1", [6144, 32768, 8, 2]),
        ("Ernie-4.5-21B-A3B", [2560, 1536, 64, 6]),
        ("Hunyuan-Large", [6400, 18304, 16, 1]),
        ("Hy3", [4096, 1536, 192, 8]),
        ("Step-3", [7168, 5120, 48, 3]),
        ("Step-3.5-Flash", [4096, 1280, 288, 8]),
        ("LongCat-Flash", [6144, 2048, 512, 12]),
        ("Ling-flash-2.0", [4096, 1024, 256, 8]),
        ("dots.llm1", [4096, 1408, 128, 6]),
        ("Laguna-S-2.1", [3072, 1024, 256, 10]),
        ("LFM2-8B-A1B", [2048, 1792, 32, 4]),
        ("K2-Horizon-375B", [6144, 1792, 192, 8]),
        ("DeepSeek-V2-default", [4096, 1407, 64, 1]),
    ] {
        let m = load(name).unwrap();
        assert_eq!(
            [m.hidden, m.intermediate, m.experts, m.top_k],
            sizes,
            "{name}"
        );
    }
}

#[test]
fn dense_models_are_refused_with_the_keys_looked_for() {
    for name in [
        "meta-llama--Meta-Llama-3.1-8B",
        "nvidia--Nemotron-H-56B-Base-8K",
    ] {
        let Some(model) = real(name) else { return };
        let error = model.unwrap_err();
        assert!(matches!(error, ModelError::NotMoe { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("num_experts, n_routed_experts, num_local_experts"),
            "{text}"
        );
        assert!(text.contains(name), "{text}");
    }
}
