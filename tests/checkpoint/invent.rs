//! Invented checkpoints: a case's logical tensors under a family's names, and padded parameters.

use padproof::case::Case;
use padproof::checkpoint::{Checkpoint, TensorFile};
use padproof::layout::PackedInputs;
use padproof::plan::{Plan, Role, plan};
use padproof::tensor::{Logical, Tensor};
use padproof::terms::WeightFormat;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use std::collections::HashMap;

/// How a checkpoint names and shapes a layer's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `experts.0.gate_proj.weight`, or another triple of names: gate, up, down.
    Each([&'static str; 3]),
    /// The same in the words of compressed-tensors: packed, and divided by the global scale.
    Compressed,
    /// `experts.gate_up_proj` of all experts, [E, out, in].
    Fused,
    /// The same as [E, in, out].
    Transposed,
    /// gpt-oss: rows of gate and up in turn, blocks of sixteen bytes.
    GptOss,
    /// `w13` and `w2` as handed over by hand.
    Bare,
}

pub(crate) const QWEN: Family = Family::Each(["gate_proj", "up_proj", "down_proj"]);
pub(crate) const MIXTRAL: Family = Family::Each(["w1", "w3", "w2"]);
/// NemotronH: no gate.
pub(crate) const UNGATED: Family = Family::Each(["none", "up_proj", "down_proj"]);

/// Tensors of a file: name, type, shape, bytes.
#[derive(Default)]
pub(crate) struct Invented {
    pub(crate) tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
    pub(crate) metadata: HashMap<String, String>,
}

impl Invented {
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        dtype: Dtype,
        shape: &[usize],
        bytes: Vec<u8>,
    ) {
        self.tensors
            .push((name.into(), dtype, shape.to_vec(), bytes));
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        // A view borrows its tensor's bytes.
        let views: Vec<(String, TensorView<'_>)> = self.tensors.iter().map(view).collect();
        let metadata =
            (!self.metadata.is_empty()).then(|| self.metadata.clone().into_iter().collect());
        serialize(views, metadata).unwrap()
    }

    pub(crate) fn open(&self) -> Checkpoint {
        Checkpoint::of_file(TensorFile::from_bytes("invented.safetensors", self.bytes()).unwrap())
    }
}

fn view(
    (name, dtype, shape, bytes): &(String, Dtype, Vec<usize>, Vec<u8>),
) -> (String, TensorView<'_>) {
    let view = TensorView::new(*dtype, shape.clone(), bytes);
    (name.clone(), view.unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// What the stored element of a weight format is called, and elements of it in one.
fn stored(weight: WeightFormat) -> (Dtype, usize) {
    match weight.element().bits() {
        4 => (Dtype::U8, 2),
        32 => (Dtype::F32, 1),
        16 if weight == WeightFormat::F16 => (Dtype::F16, 1),
        16 => (Dtype::BF16, 1),
        _ if weight == WeightFormat::Int8 => (Dtype::I8, 1),
        _ => (Dtype::F8_E4M3, 1),
    }
}

fn scale_dtype(weight: WeightFormat) -> Dtype {
    match weight {
        WeightFormat::Nvfp4 => Dtype::F8_E4M3,
        WeightFormat::Mxfp4 | WeightFormat::Mxfp8 => Dtype::U8,
        WeightFormat::Int4
        | WeightFormat::Int4G64
        | WeightFormat::Int4G32
        | WeightFormat::Int4Channel => Dtype::BF16,
        _ => Dtype::F32,
    }
}

/// Rows `from..to` of one expert of a logical tensor, nibbles packed low first.
fn rows(tensor: &Tensor, packed: bool, e: usize, from: usize, to: usize) -> Vec<u8> {
    let shape = tensor.shape();
    let (all, cols) = (shape[1], shape.get(2).copied().unwrap_or(1));
    let row = cols * tensor.bits() / 8;
    let bytes = &tensor.bytes()[(e * all + from) * row..(e * all + to) * row];
    match packed {
        true => bytes.chunks(2).map(|two| two[0] | two[1] << 4).collect(),
        false => bytes.to_vec(),
    }
}

/// The checkpoint of a case's layer, below `prefix`.
pub(crate) fn before(case: &Case, logical: &Logical, family: Family, prefix: &str) -> Invented {
    let mut file = Invented::default();
    match family {
        Family::Each(names) => each(case, logical, prefix, names, false, &mut file),
        Family::Compressed => each(case, logical, prefix, NAMES, true, &mut file),
        _ => fused(case, logical, prefix, family, &mut file),
    }
    file
}

const NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

fn each(
    case: &Case,
    logical: &Logical,
    prefix: &str,
    names: [&str; 3],
    compressed: bool,
    file: &mut Invented,
) {
    let (dtype, units) = stored(case.w);
    let halves = usize::try_from(case.act.halves()).unwrap();
    for e in 0..usize::try_from(case.e).unwrap() {
        let firsts: &[&str] = if halves == 2 {
            &names[..2]
        } else {
            &names[1..2]
        };
        let projections = firsts.iter().enumerate().chain([(0, &names[2])]);
        for (half, name) in projections {
            let second = *name == names[2];
            let pick = |first: &'_ Tensor| {
                let per = first.shape()[1] / if second { 1 } else { halves };
                (half * per, (half + 1) * per)
            };
            let stem = format!("{prefix}experts.{e}.{name}");
            let weight = if second { &logical.w2 } else { &logical.w13 };
            let (from, to) = pick(weight);
            let bytes = rows(weight, units == 2, e, from, to);
            let suffix = if compressed {
                "weight_packed"
            } else {
                "weight"
            };
            let shape = [to - from, weight.shape()[2] / units];
            file.add(format!("{stem}.{suffix}"), dtype, &shape, bytes);
            let scale = if second {
                &logical.w2_scale
            } else {
                &logical.w13_scale
            };
            if let Some(scale) = scale {
                let (from, to) = pick(scale);
                let bytes = rows(scale, false, e, from, to);
                let (dtype, suffix) = match case.w {
                    WeightFormat::Fp8Block => (Dtype::F32, "weight_scale_inv"),
                    w => (scale_dtype(w), "weight_scale"),
                };
                let shape: Vec<usize> = match case.w {
                    WeightFormat::Fp8 => vec![],
                    _ => vec![to - from, scale.shape()[2]],
                };
                file.add(format!("{stem}.{suffix}"), dtype, &shape, bytes);
            }
            let global = if second {
                &logical.w2_global
            } else {
                &logical.w13_global
            };
            if let Some(global) = global {
                let per = if second { 1 } else { halves };
                let value = global.f32s()[e * per + half];
                let (suffix, value) = match compressed {
                    true => ("weight_global_scale", value.recip()),
                    false => ("weight_scale_2", value),
                };
                let bytes = value.to_le_bytes().to_vec();
                file.add(format!("{stem}.{suffix}"), Dtype::F32, &[], bytes);
                let one = 1_f32.to_le_bytes().to_vec();
                file.add(format!("{stem}.input_scale"), Dtype::F32, &[], one);
            }
            let bias = if second {
                &logical.w2_bias
            } else {
                &logical.w13_bias
            };
            if let Some(bias) = bias {
                let (from, to) = pick(bias);
                let bytes = rows(bias, false, e, from, to);
                file.add(format!("{stem}.bias"), Dtype::F32, &[to - from], bytes);
            }
        }
    }
}

fn fused(case: &Case, logical: &Logical, prefix: &str, family: Family, file: &mut Invented) {
    let (dtype, units) = stored(case.w);
    let halves = usize::try_from(case.act.halves()).unwrap();
    let experts = usize::try_from(case.e).unwrap();
    for second in [false, true] {
        let stem = match (family, second) {
            (Family::Bare, false) => "w13".to_owned(),
            (Family::Bare, true) => "w2".to_owned(),
            (_, false) => format!("{prefix}experts.gate_up_proj"),
            (_, true) => format!("{prefix}experts.down_proj"),
        };
        let turns = if second || family != Family::GptOss {
            1
        } else {
            halves
        };
        let whole = |tensor: &Tensor, packed| {
            let count = tensor.shape()[1];
            let row = |r: usize| (r % turns) * (count / turns) + r / turns;
            let rows = (0..experts).flat_map(|e| (0..count).map(move |r| (e, row(r))));
            rows.flat_map(|(e, r)| rows_of(tensor, packed, e, r))
                .collect::<Vec<u8>>()
        };
        let weight = if second { &logical.w2 } else { &logical.w13 };
        let (count, cols) = (weight.shape()[1], weight.shape()[2]);
        let bytes = whole(weight, units == 2);
        match family {
            Family::GptOss => {
                let shape = [experts, count, cols / 32, 16];
                file.add(format!("{stem}_blocks"), dtype, &shape, bytes);
            }
            Family::Transposed => {
                let shape = [experts, cols, count];
                file.add(
                    stem.clone(),
                    dtype,
                    &shape,
                    turned(&bytes, count, cols, weight.bits() / 8),
                );
            }
            _ => file.add(stem.clone(), dtype, &[experts, count, cols / units], bytes),
        }
        let scale = if second {
            &logical.w2_scale
        } else {
            &logical.w13_scale
        };
        if let Some(scale) = scale {
            let suffix = if family == Family::GptOss {
                "_scales"
            } else {
                "_scale"
            };
            let shape = [experts, scale.shape()[1], scale.shape()[2]];
            file.add(
                format!("{stem}{suffix}"),
                scale_dtype(case.w),
                &shape,
                whole(scale, false),
            );
        }
        let global = if second {
            &logical.w2_global
        } else {
            &logical.w13_global
        };
        if let Some(global) = global {
            let shape = [experts, global.shape()[1]];
            file.add(
                format!("{stem}_scale_2"),
                Dtype::F32,
                &shape,
                global.bytes().to_vec(),
            );
        }
        let bias = if second {
            &logical.w2_bias
        } else {
            &logical.w13_bias
        };
        if let Some(bias) = bias {
            let shape = [experts, bias.shape()[1]];
            file.add(
                format!("{stem}_bias"),
                Dtype::F32,
                &shape,
                whole(bias, false),
            );
        }
    }
}

fn rows_of(tensor: &Tensor, packed: bool, e: usize, r: usize) -> Vec<u8> {
    rows(tensor, packed, e, r, r + 1)
}

/// Each expert's matrix transposed.
fn turned(bytes: &[u8], rows: usize, cols: usize, wide: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for expert in bytes.chunks(rows * cols * wide) {
        for c in 0..cols {
            for r in 0..rows {
                out.extend(&expert[(r * cols + c) * wide..][..wide]);
            }
        }
    }
    out
}

/// What an engine calls a role's parameter.
pub(crate) fn parameter(role: Role) -> &'static str {
    match role {
        Role::W13 => "w13_weight",
        Role::W2 => "w2_weight",
        Role::W13Scale => "w13_weight_scale",
        Role::W2Scale => "w2_weight_scale",
        Role::W13Global => "w13_weight_scale_2",
        Role::W2Global => "w2_weight_scale_2",
        Role::W13Bias => "w13_bias",
        Role::W2Bias => "w2_bias",
    }
}

/// The padded parameters of some ranks as a dump: `rank0.w13_weight` and so on, bytes as U8.
pub(crate) fn after(packed: &PackedInputs, ranks: &[usize]) -> Invented {
    let mut file = Invented::default();
    for &rank in ranks {
        for (role, tensor) in packed.ranks[rank].iter() {
            let name = format!("rank{rank}.{}", parameter(role));
            let bytes = tensor.bytes().to_vec();
            let (dtype, wide) = match (tensor.bits(), role) {
                (32, _) => (Dtype::F32, 4),
                (16, _) => (Dtype::U16, 2),
                _ => (Dtype::U8, 1),
            };
            file.add(name, dtype, &[bytes.len() / wide], bytes);
        }
    }
    file
}

/// A case of that line with its plan and logical tensors.
pub(crate) fn made(line: &str) -> (Case, Plan, Logical) {
    let case: Case = line.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
    let plan = plan(&case).unwrap();
    let logical = padproof::fill::fill(&case).unwrap();
    (case, plan, logical)
}
