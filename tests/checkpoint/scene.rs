//! Invented checkpoints on disk, whole: config, index, shards, and files of other kinds.

use crate::checkpoint::invent::{Family, Invented, before, made};
use padproof::pad::{Outcome, PadError, Padded, Progress, Request, Verified, pad, verify};
use padproof::rule::Rules;
use padproof::tensor::Logical;
use padproof::terms::WeightFormat;
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A checkpoint of two layers with experts.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

/// How a scene differs from the plainest.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) line: &'static str,
    pub(crate) family: Family,
    /// Number of shared experts, as wide as a routed one each, in `shared_experts.`.
    pub(crate) shared: usize,
    /// INT4 as compressed-tensors packs it: eight in an I32, with `weight_shape`.
    pub(crate) ints: bool,
    /// F4 and F8_E8M0 in place of U8.
    pub(crate) native: bool,
}

impl Made {
    pub(crate) const fn new(line: &'static str, family: Family) -> Made {
        Made {
            line,
            family,
            shared: 0,
            ints: false,
            native: false,
        }
    }
}

/// The quantisation entry that means a format.
fn quantisation(weight: WeightFormat, compressed: bool) -> Option<Value> {
    let group = |bits, size: u64| {
        json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": bits, "type": "int", "strategy": "group", "group_size": size, "symmetric": true}}}})
    };
    Some(match weight {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => return None,
        WeightFormat::Fp8 => json!({"quant_method": "modelopt", "quant_algo": "FP8"}),
        WeightFormat::Fp8Channel => json!({"quant_method": "fbgemm_fp8"}),
        WeightFormat::Fp8Block => {
            json!({"quant_method": "fp8", "weight_block_size": [128, 128]})
        }
        WeightFormat::Mxfp8 => json!({"quant_method": "mxfp8"}),
        WeightFormat::Nvfp4 if compressed => {
            json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {
                "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}})
        }
        WeightFormat::Nvfp4 => json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}),
        WeightFormat::Mxfp4 => json!({"quant_method": "mxfp4"}),
        WeightFormat::Int4 => group(4, 128),
        WeightFormat::Int4G64 => group(4, 64),
        WeightFormat::Int4G32 => group(4, 32),
        WeightFormat::Int4Channel => {
            json!({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": true})
        }
        WeightFormat::Int8 => json!({"quant_method": "w8a8_int8"}),
        other => panic!("no config says {other}"),
    })
}

impl Scene {
    pub(crate) fn new(made_of: Made) -> Scene {
        let (case, plan, _) = made(made_of.line);
        let gated = plan.dims.halves == 2;
        let prefix = |layer: usize| match (made_of.family, gated) {
            (Family::GptOss, _) => format!("model.layers.{layer}.mlp."),
            (_, false) => format!("backbone.layers.{layer}.mixer."),
            _ => format!("model.layers.{layer}.mlp."),
        };
        let folder = tempfile::tempdir().unwrap();
        let mut map = Map::new();
        let mut total = 0;
        for layer in 0..2 {
            let (case, _, logical) = made(&format!("{},seed={:x}", made_of.line, layer + 1));
            let mut file = before(&case, &logical, made_of.family, &prefix(layer));
            file.metadata.insert("format".to_owned(), "pt".to_owned());
            if made_of.ints {
                packed_in_words(&mut file);
            }
            if made_of.native {
                native(&mut file);
            }
            add_shared(&mut file, made_of.shared, &case, &logical, &prefix(layer));
            if case.w == WeightFormat::Fp8Block {
                let stem = format!("model.layers.{layer}.self_attn.o_proj");
                let weight = vec![0x38; 100 * 160];
                file.add(
                    format!("{stem}.weight"),
                    Dtype::F8_E4M3,
                    &[100, 160],
                    weight,
                );
                let scales = [1.5_f32, 0.25].map(f32::to_le_bytes).concat();
                let name = format!("{stem}.weight_scale_inv");
                file.add(name, Dtype::F32, &[1, 2], scales);
            }
            let name = format!("model.layers.{layer}.input_layernorm.weight");
            file.add(name, Dtype::BF16, &[3], vec![7; 6]);
            let shard = format!("model-{:05}-of-00003.safetensors", layer + 1);
            total += Scene::write(folder.path(), &shard, &file, &mut map);
        }
        let mut rest = Invented::default();
        rest.add("lm_head.weight", Dtype::BF16, &[4, 2], (0..16).collect());
        let shard = "model-00003-of-00003.safetensors";
        total += Scene::write(folder.path(), shard, &rest, &mut map);
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        let pretty = serde_json::to_string_pretty(&index).unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("model.safetensors.index.json"), pretty).unwrap();
        let mut config = json!({
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
            "hidden_size": case.h, "moe_intermediate_size": case.i, "intermediate_size": 128, "torch_dtype": "bfloat16",
            "num_experts": case.e, "num_experts_per_tok": case.k, "num_hidden_layers": 2, "norm_topk_prob": true,
            "rms_norm_eps": 1e-06,
        });
        let set = |config: &mut Value, more: Value| {
            for (key, value) in more.as_object().unwrap() {
                config[key] = value.clone();
            }
        };
        match (made_of.family, gated) {
            (Family::GptOss, _) => set(
                &mut config,
                json!({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
                    "moe_intermediate_size": null, "intermediate_size": case.i, "num_local_experts": case.e, "num_experts": null}),
            ),
            (_, false) => set(
                &mut config,
                json!({"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h",
                    "hybrid_override_pattern": "EE", "mlp_hidden_act": "relu2", "n_routed_experts": case.e, "num_experts": null}),
            ),
            _ => {}
        }
        if made_of.shared > 0 {
            set(
                &mut config,
                json!({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "first_k_dense_replace": 0,
                    "n_shared_experts": made_of.shared, "n_routed_experts": case.e, "num_experts": null}),
            );
        }
        if let Some(entry) = quantisation(case.w, made_of.family == Family::Compressed) {
            config["quantization_config"] = entry;
        }
        if case.w == WeightFormat::F16 {
            config["torch_dtype"] = json!("float16");
        }
        if case.w == WeightFormat::F32 {
            config["torch_dtype"] = json!("float32");
        }
        let text = serde_json::to_string_pretty(&config).unwrap();
        std::fs::write(path("config.json"), text).unwrap();
        std::fs::write(path("tokenizer.json"), "{\"a\": 1}").unwrap();
        std::fs::create_dir(path("extra")).unwrap();
        std::fs::write(path("extra/notes.txt"), "as it was").unwrap();
        Scene { folder }
    }

    fn write(folder: &Path, shard: &str, file: &Invented, map: &mut Map<String, Value>) -> usize {
        for (name, ..) in &file.tensors {
            map.insert(name.clone(), shard.into());
        }
        std::fs::write(folder.join(shard), file.bytes()).unwrap();
        file.tensors.iter().map(|t| t.3.len()).sum()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A place for outputs, in the same temporary folder's parent.
    pub(crate) fn out(&self) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        (folder, out)
    }

    pub(crate) fn pad(&self, out: &Path, asked: &Asked) -> Result<Outcome, PadError> {
        pad_with(self.path(), out, asked)
    }

    pub(crate) fn padded(&self, out: &Path, asked: &Asked) -> Padded {
        match self.pad(out, asked) {
            Ok(Outcome::Padded(padded)) => *padded,
            Ok(Outcome::Nothing(sentence)) => panic!("{sentence}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// What a padding is asked for.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    Align { tp: u64, align: u64 },
    Hidden { tp: u64, align: u64, hidden: u64 },
    Rule { tp: u64, id: &'static str },
}

pub(crate) fn pad_with(folder: &Path, out: &Path, asked: &Asked) -> Result<Outcome, PadError> {
    pad_told(folder, out, asked, &mut |_| {})
}

pub(crate) fn pad_told(
    folder: &Path,
    out: &Path,
    asked: &Asked,
    progress: &mut Progress<'_>,
) -> Result<Outcome, PadError> {
    let (tp, rule, align, hidden) = match *asked {
        Asked::Align { tp, align } => (tp, None, Some(align), None),
        Asked::Hidden { tp, align, hidden } => (tp, None, Some(align), Some(hidden)),
        Asked::Rule { tp, id } => (tp, Some(Rules::builtin().get(id).unwrap()), None, None),
    };
    let request = Request::new(tp, rule, align, hidden, &[]);
    pad(folder, out, &request, rule, &[], progress)
}

pub(crate) fn verified(out: &Path) -> Verified {
    verify(out, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// INT4 weights as I32 words of eight, with their shapes.
fn packed_in_words(file: &mut Invented) {
    let mut shapes = Vec::new();
    for (name, dtype, shape, _) in &mut file.tensors {
        if *dtype != Dtype::U8 || !name.ends_with(".weight") {
            continue;
        }
        let stem = name.strip_suffix(".weight").unwrap().to_owned();
        let sizes = [shape[0] as i64, shape[1] as i64 * 2];
        let bytes = sizes.iter().flat_map(|n| n.to_le_bytes()).collect();
        shapes.push((format!("{stem}.weight_shape"), bytes));
        *name = format!("{stem}.weight_packed");
        (*dtype, shape[1]) = (Dtype::I32, shape[1] / 4);
    }
    for (name, bytes) in shapes {
        file.add(name, Dtype::I64, &[2], bytes);
    }
}

/// The types that mean FP4 and E8M0 themselves.
fn native(file: &mut Invented) {
    for (name, dtype, shape, _) in &mut file.tensors {
        if *dtype != Dtype::U8 {
            continue;
        }
        if name.contains("scale") {
            *dtype = Dtype::F8_E8M0;
        } else {
            *dtype = Dtype::F4;
            *shape.last_mut().unwrap() *= 2;
        }
    }
}

/// Shared experts side by side: the first routed ones' tensors again, plain BF16 or FP8 blocks.
fn add_shared(
    file: &mut Invented,
    shared: usize,
    case: &padproof::case::Case,
    logical: &Logical,
    prefix: &str,
) {
    if shared == 0 {
        return;
    }
    let one = before(case, logical, crate::checkpoint::invent::QWEN, prefix);
    for projection in ["gate_proj", "up_proj", "down_proj"] {
        for suffix in [".weight", ".weight_scale_inv"] {
            let parts: Vec<_> = (0..shared)
                .filter_map(|e| {
                    let name = format!("{prefix}experts.{e}.{projection}{suffix}");
                    one.tensors.iter().find(|t| t.0 == name)
                })
                .collect();
            let Some(first) = parts.first() else { continue };
            let name = format!("{prefix}shared_experts.{projection}{suffix}");
            let rows = first.2[0];
            let (shape, bytes) = if projection == "down_proj" {
                let row = first.3.len() / rows;
                let bytes = (0..rows).flat_map(|r| {
                    let of = |t: &&(String, Dtype, Vec<usize>, Vec<u8>)| {
                        t.3[r * row..(r + 1) * row].to_vec()
                    };
                    parts.iter().flat_map(of).collect::<Vec<u8>>()
                });
                ([rows, first.2[1] * shared], bytes.collect())
            } else {
                let bytes = parts.iter().flat_map(|t| t.3.clone()).collect();
                ([rows * shared, first.2[1]], bytes)
            };
            file.add(name, first.1, &shape, bytes);
        }
    }
}
