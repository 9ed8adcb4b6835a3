//! An invented checkpoint of a chosen size: the tensors of a Qwen3-MoE (ModelOpt's names for NVFP4,
//! Quark's for MXFP4) whose experts are 704 wide, in shards of about four GiB.
//!
//! The same arguments give the same bytes.

use padproof::checkpoint::{Output, header};
use padproof::rng;
use safetensors::Dtype;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::str::FromStr;

/// Input width of the experts.
pub(crate) const HIDDEN: usize = 2048;
/// Width of the experts.
pub(crate) const WIDTH: usize = 704;
/// Experts of a layer.
pub(crate) const EXPERTS: usize = 64;
/// Bytes of a shard, about.
const SHARD: u64 = 4 << 30;

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// BF16.
    Bf16,
    /// FP4 in pairs, E8M0 scales of 32.
    Mxfp4,
    /// FP4 in pairs, E4M3 scales of 16, and one f32 a projection.
    Nvfp4,
}

impl FromStr for Format {
    type Err = io::Error;

    fn from_str(word: &str) -> io::Result<Format> {
        match word {
            "bf16" => Ok(Format::Bf16),
            "mxfp4" => Ok(Format::Mxfp4),
            "nvfp4" => Ok(Format::Nvfp4),
            _ => Err(io::Error::other(format!(
                "{word} is not nvfp4, mxfp4 or bf16"
            ))),
        }
    }
}

struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: u64,
}

/// The tensors of one layer.
fn layer(number: usize, format: Format) -> Vec<Tensor> {
    let mut all = Vec::new();
    let mut add = |name: String, dtype: Dtype, shape: &[usize]| {
        let elements: usize = shape.iter().product();
        let bytes = (elements * dtype.bitsize() / 8) as u64;
        let shape = shape.to_vec();
        all.push(Tensor {
            name,
            dtype,
            shape,
            bytes,
        });
    };
    let prefix = format!("model.layers.{number}");
    add(
        format!("{prefix}.input_layernorm.weight"),
        Dtype::BF16,
        &[HIDDEN],
    );
    add(
        format!("{prefix}.mlp.gate.weight"),
        Dtype::BF16,
        &[EXPERTS, HIDDEN],
    );
    for e in 0..EXPERTS {
        for (projection, rows, cols) in [
            ("gate_proj", WIDTH, HIDDEN),
            ("up_proj", WIDTH, HIDDEN),
            ("down_proj", HIDDEN, WIDTH),
        ] {
            let stem = format!("{prefix}.mlp.experts.{e}.{projection}");
            let weight = format!("{stem}.weight");
            let scale = format!("{stem}.weight_scale");
            match format {
                Format::Bf16 => add(weight, Dtype::BF16, &[rows, cols]),
                Format::Mxfp4 => {
                    add(weight, Dtype::U8, &[rows, cols / 2]);
                    add(scale, Dtype::U8, &[rows, cols / 32]);
                }
                Format::Nvfp4 => {
                    add(weight, Dtype::U8, &[rows, cols / 2]);
                    add(scale, Dtype::F8_E4M3, &[rows, cols / 16]);
                    add(format!("{stem}.weight_scale_2"), Dtype::F32, &[]);
                }
            }
        }
    }
    all
}

/// Writes a checkpoint of about so many bytes.
///
/// # Errors
/// Those of the file system.
pub(crate) fn invent(folder: &Path, bytes: u64, format: Format) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let one: u64 = layer(0, format).iter().map(|t| t.bytes).sum();
    let layers = usize::try_from(bytes.div_ceil(one))
        .unwrap_or(usize::MAX)
        .max(1);
    let each = usize::try_from((SHARD / one).max(1)).unwrap_or(usize::MAX);
    let shards = layers.div_ceil(each);
    let mut map = Map::new();
    for shard in 0..shards {
        let name = format!("model-{:05}-of-{shards:05}.safetensors", shard + 1);
        let numbers = shard * each..((shard + 1) * each).min(layers);
        let tensors: Vec<Tensor> = numbers.flat_map(|n| layer(n, format)).collect();
        let outputs: Vec<Output<'_>> = tensors.iter().map(output).collect();
        let head = header(&name, &BTreeMap::new(), &outputs).map_err(io::Error::other)?;
        let mut file = BufWriter::with_capacity(1 << 20, File::create(folder.join(&name))?);
        file.write_all(&head)?;
        for (stream, tensor) in (0..).zip(&tensors) {
            data(tensor, stream + shard as u64 * 1_000_000, &mut file)?;
            map.insert(tensor.name.clone(), name.clone().into());
        }
        file.flush()?;
    }
    let total = one * layers as u64;
    let index = json!({"metadata": {"total_size": total}, "weight_map": map});
    std::fs::write(
        folder.join("model.safetensors.index.json"),
        index.to_string(),
    )?;
    let mut config = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
        "hidden_size": HIDDEN, "moe_intermediate_size": WIDTH, "intermediate_size": 4096,
        "num_experts": EXPERTS, "num_experts_per_tok": 8, "num_hidden_layers": layers,
        "norm_topk_prob": true, "torch_dtype": "bfloat16",
    });
    match format {
        Format::Bf16 => {}
        Format::Mxfp4 => config["quantization_config"] = json!({"quant_method": "mxfp4"}),
        Format::Nvfp4 => {
            config["quantization_config"] =
                json!({"quant_method": "modelopt", "quant_algo": "NVFP4"});
        }
    }
    std::fs::write(folder.join("config.json"), config.to_string())
}

fn output(tensor: &Tensor) -> Output<'_> {
    Output {
        name: &tensor.name,
        dtype: tensor.dtype,
        shape: &tensor.shape,
        bytes: tensor.bytes,
    }
}

/// Random bytes, of which scales and BF16 numbers are tame: no NaN, nothing huge.
fn data(tensor: &Tensor, stream: u64, file: &mut impl Write) -> io::Result<()> {
    let mut left = tensor.bytes;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while left > 0 {
        let part = usize::try_from(left).map_or(buffer.len(), |n| n.min(buffer.len()));
        let bytes = &mut buffer[..part];
        rng::fill_bytes(7, stream, at, bytes);
        at += (part as u64).div_ceil(8);
        if tensor.dtype == Dtype::F32 {
            bytes.copy_from_slice(&0.01_f32.to_le_bytes());
        } else if tensor.dtype == Dtype::BF16 {
            // A sign, an exponent from 0x70 to 0x7f.
            bytes
                .chunks_exact_mut(2)
                .for_each(|b| b[1] = b[1] & 0x87 | 0x38);
        } else if tensor.name.ends_with("scale") {
            bytes.iter_mut().for_each(|b| *b = *b & 0x07 | 0x30);
        }
        file.write_all(bytes)?;
        left -= part as u64;
    }
    Ok(())
}
