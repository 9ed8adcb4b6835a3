//! Every family's names give the logical tensors back, bit for bit, and audit clean.

use crate::checkpoint::invent::{Family, MIXTRAL, QWEN, after, before, made};
use padproof::audit::{audit_files, diagnose, layer_shape};
use padproof::checkpoint::{Checkpoint, Dump, Layer, LayerId, LayerShape};
use padproof::layout::{logical_of, pack_layer, roles};
use padproof::plan::Plan;
use safetensors::Dtype;

const PREFIX: &str = "model.layers.3.mlp.";

pub(crate) fn shape(plan: &Plan, family: Family) -> LayerShape {
    layer_shape(plan, family == Family::GptOss).unwrap()
}

/// Reads the family's file back, whole and in parts, and audits the packed layer.
fn holds(line: &str, family: Family) {
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, family, PREFIX).open();
    let layer = Layer::find(&file, shape(&plan, family), Some(LayerId::Model(3)))
        .unwrap_or_else(|e| panic!("{line} {family:?}: {e}"));
    let experts = usize::try_from(case.e).unwrap();
    let read = layer
        .read(0..experts)
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    let last = layer.read(experts - 1..experts).unwrap();
    for role in roles(&plan) {
        let (wanted, actual) = (logical_of(&logical, role), logical_of(&read, role));
        let (wanted, actual) = (wanted.unwrap().bytes(), actual.unwrap().bytes());
        assert_eq!(wanted, actual, "{line} {family:?}: {}", role.name());
        let last = logical_of(&last, role).unwrap().bytes();
        assert!(wanted.ends_with(last) && last.len() * experts == wanted.len());
    }
    let packed = pack_layer(&plan, &logical).unwrap();
    let all: Vec<usize> = (0..plan.ranks.len()).collect();
    let dumped = after(&packed, &all).open();
    let dump = Dump::find(&dumped, Some(LayerId::Model(3)), None, plan.ranks.len()).unwrap();
    let audit = audit_files(&plan, &layer, &dump).unwrap();
    assert!(audit.clean(), "{line} {family:?}: {:?}", audit.first);
    let bytes: usize = all
        .iter()
        .flat_map(|&r| packed.ranks[r].iter())
        .map(|(_, t)| t.bytes().len())
        .sum();
    assert_eq!(audit.checked_bytes, bytes as u64);
    assert!(diagnose(&plan, &layer, &dump, &audit).unwrap().is_empty());
}

#[test]
fn one_tensor_a_projection_and_expert() {
    for line in [
        "e=3,h=32,i=44,tp=2,w=bf16,pad=i16,fill=wild",
        "e=2,h=32,i=44,w=f16,pad=h64.i32,order=up-gate,fill=wild",
        "e=2,h=256,i=384,tp=2,w=fp8-block,pad=i256,fill=wild",
        "e=2,h=64,i=44,tp=2,w=fp8,rule=sglang.flashinfer_cutlass.fp8,fill=wild",
        "e=2,h=64,i=44,w=fp8-channel,pad=i16,fill=wild",
        "e=4,h=64,i=96,tp=4,ep=2,w=nvfp4,bias=both,pad=i64,order=up-gate,store=128x4,fill=wild",
        "e=2,h=64,i=96,w=mxfp4,pad=i128,order=int1,fill=wild",
        "e=2,h=64,i=96,w=mxfp8,pad=i128,fill=wild",
        "e=2,h=64,i=96,w=int4-g32,pad=i64,fill=wild",
        "e=2,h=64,i=44,w=int8,pad=i16,bias=both,fill=wild",
    ] {
        holds(line, QWEN);
        holds(line, MIXTRAL);
    }
}

#[test]
fn up_and_down_alone_where_there_is_no_gate() {
    let names = Family::Each(["none", "up_proj", "down_proj"]);
    for line in [
        "e=2,h=64,i=48,act=relu2,w=nvfp4,pad=i128,fill=wild",
        "e=2,h=64,i=44,act=relu2,w=fp8,pad=i16,fill=wild",
        "e=2,h=64,i=44,act=relu2,w=bf16,pad=i16,fill=wild",
    ] {
        holds(line, names);
    }
}

#[test]
fn all_experts_in_one_tensor_either_way_round() {
    for family in [Family::Fused, Family::Transposed, Family::Bare] {
        holds("e=3,h=32,i=44,tp=2,w=bf16,pad=i16,fill=wild", family);
        // Where 2 i = h, gate_up reads both ways; down does not.
        holds("e=3,h=32,i=16,w=bf16,pad=i32,bias=both,fill=wild", family);
        // Where i = h, down reads both ways; gate_up does not.
        holds("e=3,h=32,i=32,w=f32,pad=i64,fill=wild", family);
    }
    for line in [
        "e=3,h=64,i=96,w=mxfp4,pad=i128,fill=wild",
        "e=3,h=64,i=96,w=nvfp4,pad=i128,fill=wild",
        "e=3,h=256,i=256,w=fp8-block,pad=i256,fill=wild",
    ] {
        holds(line, Family::Fused);
        holds(line, Family::Bare);
    }
}

#[test]
fn gpt_oss_blocks_scales_and_biases() {
    for order in ["int1", "up-gate"] {
        let line = format!(
            "e=3,h=64,i=96,tp=2,act=swigluoai,w=mxfp4,bias=both,pad=h128.i64,order={order},fill=wild"
        );
        holds(&line, Family::GptOss);
    }
}

#[test]
fn compressed_tensors_divide_by_their_global_scale() {
    // Exact fills have powers of two there, whose reciprocals are exact.
    holds(
        "e=2,h=64,i=96,w=nvfp4,pad=i128,fill=exact",
        Family::Compressed,
    );
}

#[test]
fn a_layer_is_found_by_number_or_is_the_first_with_experts() {
    let (case, plan, logical) = made("e=2,h=32,i=44,w=bf16,pad=i16,fill=wild");
    let mut file = before(&case, &logical, QWEN, "model.layers.10.mlp.");
    file.tensors
        .extend(before(&case, &logical, QWEN, "model.layers.2.mlp.").tensors);
    file.tensors
        .extend(before(&case, &logical, QWEN, "mtp.layers.0.mlp.").tensors);
    file.add(
        "model.layers.0.mlp.gate_proj.weight",
        Dtype::BF16,
        &[1],
        vec![0; 2],
    );
    file.add(
        "model.layers.2.mlp.shared_experts.gate_proj.weight",
        Dtype::BF16,
        &[1],
        vec![0; 2],
    );
    let file = file.open();
    let at = |number: Option<u64>| {
        Layer::find(&file, shape(&plan, QWEN), number.map(LayerId::Model))
            .map(|l| l.prefix().to_owned())
    };
    assert_eq!(at(None).unwrap(), "model.layers.2.mlp.experts.");
    assert_eq!(at(Some(10)).unwrap(), "model.layers.10.mlp.experts.");
    let error = at(Some(5)).unwrap_err().to_string();
    assert!(error.contains("no experts in layer 5"), "{error}");
}

#[test]
fn a_directory_of_shards_is_read_through_its_index() {
    let (case, plan, logical) = made("e=2,h=32,i=44,w=bf16,pad=i16,fill=wild");
    let mut whole = before(&case, &logical, QWEN, PREFIX);
    let folder = tempfile::tempdir().unwrap();
    let mut map = serde_json::Map::new();
    let cut = whole.tensors.len() / 2;
    let rest = whole.tensors.split_off(cut);
    for (name, tensors) in [("a.safetensors", whole.tensors), ("b.safetensors", rest)] {
        for (tensor, ..) in &tensors {
            map.insert(tensor.clone(), name.into());
        }
        let shard = crate::checkpoint::invent::Invented {
            tensors,
            ..Default::default()
        };
        std::fs::write(folder.path().join(name), shard.bytes()).unwrap();
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    let index_path = folder.path().join("model.safetensors.index.json");
    std::fs::write(&index_path, index.to_string()).unwrap();
    let read = |checkpoint: &Checkpoint| {
        let layer = Layer::find(checkpoint, shape(&plan, QWEN), None).unwrap();
        layer.read(0..2).unwrap()
    };
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(read(&checkpoint).w13.bytes(), logical.w13.bytes());
    assert_eq!(read(&checkpoint).w2.bytes(), logical.w2.bytes());
    std::fs::remove_file(index_path).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(read(&checkpoint).w13.bytes(), logical.w13.bytes());
}

#[test]
fn what_is_not_of_the_models_sizes_is_one_sentence() {
    let (case, plan, logical) = made("e=2,h=64,i=48,w=nvfp4,pad=i64,fill=wild");
    let told = |change: &dyn Fn(&mut crate::checkpoint::invent::Invented)| {
        let mut file = before(&case, &logical, QWEN, PREFIX);
        change(&mut file);
        let file = file.open();
        let found = Layer::find(&file, shape(&plan, QWEN), None);
        found
            .and_then(|l| l.read(0..2).map(|_| ()))
            .unwrap_err()
            .to_string()
    };
    let remove = |word: &'static str| {
        move |f: &mut crate::checkpoint::invent::Invented| f.tensors.retain(|t| !t.0.contains(word))
    };
    let missing = told(&remove("experts.1.up_proj.weight_scale"));
    assert!(
        missing.contains("no tensor `model.layers.3.mlp.experts.1.up_proj.weight_scale"),
        "{missing}"
    );
    let none = told(&remove("weight_scale_2"));
    assert!(none.contains("weight_scale_2"), "{none}");
    let shape_of = |name: &'static str, shape: &'static [usize]| {
        move |f: &mut crate::checkpoint::invent::Invented| {
            f.tensors
                .iter_mut()
                .find(|t| t.0.ends_with(name))
                .unwrap()
                .2 = shape.to_vec();
        }
    };
    let turned = told(&shape_of("experts.0.down_proj.weight", &[24, 64]));
    assert!(turned.contains("[24, 64], wanted [64, 24]"), "{turned}");
    let typed = told(&|f| {
        f.tensors
            .iter_mut()
            .find(|t| t.0.ends_with("1.down_proj.weight_scale"))
            .unwrap()
            .1 = Dtype::F8_E5M2
    });
    assert!(typed.contains("F8_E5M2 where e4m3 is wanted"), "{typed}");
    let extra = told(&|f| {
        f.add(
            format!("{PREFIX}experts.2.up_proj.weight"),
            Dtype::U8,
            &[1],
            vec![0],
        )
    });
    assert!(extra.contains("the model has 2 experts"), "{extra}");
    let zeros = told(&|f| {
        f.add(
            format!("{PREFIX}experts.0.up_proj.weight_zero_point"),
            Dtype::U8,
            &[1],
            vec![0],
        )
    });
    assert!(zeros.contains("zero points"), "{zeros}");
    let named = told(&|f| {
        f.tensors
            .iter_mut()
            .for_each(|t| t.0 = t.0.replace("up_proj", "hoch"))
    });
    assert!(named.contains("no known family of gated layers"), "{named}");
    let packed = told(&|f| {
        f.tensors
            .iter_mut()
            .filter(|t| t.0.contains("experts.") && t.0.ends_with(".weight"))
            .for_each(|t| t.0 = t.0.replace(".weight", ".qweight"))
    });
    assert!(
        packed.contains("stored as AWQ and GPTQ store them"),
        "{packed}"
    );
}

#[test]
fn one_scale_an_expert_may_stand_for_equal_scales_of_gate_and_up() {
    for line in [
        "e=3,h=64,i=96,tp=2,w=nvfp4,pad=i64,fill=wild",
        "e=3,h=64,i=96,tp=2,w=fp8,pad=i64,fill=wild",
    ] {
        let (case, plan, mut logical) = made(line);
        let scale = |l: &mut padproof::tensor::Logical| match l.w13_global.take() {
            Some(global) => (padproof::plan::Role::W13Global, global),
            None => (padproof::plan::Role::W13Scale, l.w13_scale.take().unwrap()),
        };
        let (role, mut values) = scale(&mut logical);
        values
            .f32s_mut()
            .copy_from_slice(&[0.5, 0.5, 2.0, 2.0, 4.0, 8.0]);
        match role {
            padproof::plan::Role::W13Global => logical.w13_global = Some(values),
            _ => logical.w13_scale = Some(values),
        }
        let packed = pack_layer(&plan, &logical).unwrap();
        let mut dumped = after(&packed, &[0]);
        let name = crate::checkpoint::invent::parameter(role);
        let one = dumped
            .tensors
            .iter_mut()
            .find(|t| t.0.ends_with(name))
            .unwrap();
        (one.2, one.3) = (vec![3], [0.5_f32, 2.0, 4.0].map(f32::to_le_bytes).concat());
        let dumped = dumped.open();
        let file = before(&case, &logical, QWEN, PREFIX).open();
        let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
        let dump = Dump::find(&dumped, None, None, 2).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let told: Vec<String> = audit.first.iter().map(ToString::to_string).collect();
        // Only the last expert's up has a scale of its own, which is lost.
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("(logical [2,1,0])") && told[0].contains("0x41000000, got 0x40800000"),
            "{told:?}"
        );
    }
}
