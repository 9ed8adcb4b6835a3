//! Goal: a checkpoint that is named or stored otherwise than most is padded right, or refused.
//! Method: change headers, indexes and files of invented checkpoints before they are padded.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Family, QWEN, before, made};
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use crate::checkpoint::verified::{Held, change, json, of, resealed};
use padproof::checkpoint::{Checkpoint, Layer, LayerId};
use padproof::pad::CERTIFICATE;
use std::path::Path;

const BLOCKS: &str = "e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild";
const REFINED: Asked = Asked::Rule {
    tp: 2,
    id: "vllm.triton.fp8-block.refined",
};

/// Puts other text of equal length into headers and index: spaces follow what is shorter.
fn reworded(folder: &Path, from: &str, to: &str) {
    let to = format!("{to:width$}", width = from.len());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy();
        if !name.ends_with(".safetensors") && !name.ends_with(".index.json") {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(from.len()).enumerate();
        let found = found.filter(|(_, w)| *w == from.as_bytes());
        let places: Vec<usize> = found.map(|(at, _)| at).collect();
        for at in places {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn block_scales_outside_of_experts_are_refined_under_every_name() {
    for name in ["weight_scale_inv", "weight_scale", "scale"] {
        let scene = Scene::new(Made::new(BLOCKS, QWEN));
        reworded(scene.path(), ".weight_scale_inv\"", &format!(".{name}\""));
        let (_keep, out) = scene.out();
        scene.padded(&out, &REFINED);
        let after = Checkpoint::open(&out).unwrap();
        let scale = format!("model.layers.0.self_attn.o_proj.{name}");
        assert_eq!(after.entry(&scale).unwrap().1.shape, [2, 3], "{name}");
        assert_eq!(verified(&out).faults, 0, "{name}");
        // What was written before this was seen: the coarse grid, and a certificate that agrees.
        change(&out, |tensors| {
            let held = tensors.iter_mut().find(|t| t.name == scale).unwrap();
            held.shape = vec![1, 2];
            held.bytes = [1.5_f32, 0.25].map(f32::to_le_bytes).concat();
        });
        json(&out.join(CERTIFICATE), |value| {
            let notes = value["tensors"].as_array_mut().unwrap();
            let note = notes.iter_mut().find(|n| n["name"] == *scale).unwrap();
            note["output"] = serde_json::Value::Null;
        });
        resealed(&out);
        let first = verified(&out).first;
        assert!(
            first.iter().any(|f| f.place == scale && f.kind == "shape"),
            "{first:?}"
        );
        // A grid that is not that of the blocks.
        reworded(scene.path(), "\"shape\":[1,2]", "\"shape\":[2,1]");
        let error = scene.pad(&out.with_file_name("b"), &REFINED).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("o_proj") && error.contains("[1, 2]"),
            "{error}"
        );
    }
}

const PLAIN: &str = "e=2,h=32,i=44,tp=2,w=bf16,fill=wild";
const ALIGNED: Asked = Asked::Align { tp: 2, align: 32 };

#[test]
fn square_fused_experts_without_a_gate_are_refused() {
    let pad = |line| {
        let scene = Scene::new(Made::new(line, Family::Fused));
        reworded(scene.path(), ".gate_up_proj\"", ".up_proj\"");
        let (_keep, out) = scene.out();
        scene.pad(&out, &ALIGNED).map_err(|e| e.to_string())
    };
    pad("e=2,h=32,i=44,act=relu2,tp=2,w=bf16,fill=wild").unwrap();
    let line = "e=2,h=32,i=32,act=relu2,tp=2,w=bf16,fill=wild";
    let error = pad(line).unwrap_err();
    assert!(
        error.contains("nothing says which axis is which"),
        "{error}"
    );
    // The reader of audits.
    let (case, plan, logical) = made(line);
    let mut file = before(&case, &logical, Family::Fused, "m.layers.3.");
    for tensor in &mut file.tensors {
        tensor.0 = tensor.0.replace("gate_up_proj", "up_proj");
    }
    let file = file.open();
    let error = Layer::find(&file, shape(&plan, Family::Fused), Some(LayerId::Model(3))).err();
    let error = error.unwrap().to_string();
    assert!(
        error.contains("nothing says which axis is which"),
        "{error}"
    );
}

#[test]
fn an_index_that_leaves_out_a_tensor_is_refused_and_one_without_metadata_is_read() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let (_keep, out) = scene.out();
    let index = scene.path().join("model.safetensors.index.json");
    json(&index, |value| value["metadata"] = serde_json::Value::Null);
    scene.padded(&out, &ALIGNED);
    assert_eq!(verified(&out).faults, 0);
    json(&index, |value| {
        let name = "model.layers.0.input_layernorm.weight";
        value["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove(name)
            .unwrap();
    });
    let error = scene.pad(&out.with_file_name("b"), &ALIGNED).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("weight_map leaves out `model.layers.0.input_layernorm.weight`"),
        "{error}"
    );
}

/// As AWQ, GPTQ and compressed-tensors name what is not padded with the weights.
#[test]
fn zero_points_and_listed_groups_stop_a_pad_under_every_name() {
    for (name, says) in [
        (".qzeros", "as AWQ and GPTQ store them"),
        (".scales", "as AWQ and GPTQ store them"),
        (".g_idx", "permuted groups are not padded"),
    ] {
        let scene = Scene::new(Made::new(PLAIN, QWEN));
        let of = |name: &str| format!("experts.0.up_proj{name}\"");
        reworded(scene.path(), &of(".weight"), &of(name));
        let (_keep, out) = scene.out();
        let error = scene.pad(&out, &ALIGNED).err().unwrap().to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
}

#[test]
fn weights_of_other_kinds_are_said_to_be_copied() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let name = "pytorch_model-00001-of-00001.bin";
    std::fs::write(scene.path().join(name), "weights").unwrap();
    let (_keep, out) = scene.out();
    let notes = scene.padded(&out, &ALIGNED).notes;
    assert!(notes.len() == 1 && notes[0].contains(name), "{notes:?}");
}

#[test]
fn outputs_of_another_expert_are_compared_where_one_holds_a_nan() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let spoil = |name: &str| {
        change(scene.path(), |tensors| {
            of(tensors, name).bytes[..2].copy_from_slice(&0x7fc0_u16.to_le_bytes());
        });
    };
    spoil("0.gate_proj.weight");
    let (_keep, out) = scene.out();
    let padded = scene.padded(&out, &ALIGNED);
    let found = &padded.certificate.differential[0];
    assert!(
        found.experts == [1] && found.verdict.starts_with("pass"),
        "{found:?}"
    );
    assert!(padded.notes.is_empty(), "{:?}", padded.notes);
    spoil("1.gate_proj.weight");
    let notes = scene.padded(&out.with_file_name("b"), &ALIGNED).notes;
    assert!(
        notes.len() == 1 && notes[0].contains("outputs prove nothing"),
        "{notes:?}"
    );
}

/// The reference has f64's range: what overflows f32 was called a fault of the padding.
#[test]
fn what_overflows_unpadded_too_is_no_fault_and_proves_nothing() {
    let told = |line, plant: &dyn Fn(&mut Vec<Held>)| {
        let scene = Scene::new(Made::new(line, QWEN));
        change(scene.path(), plant);
        let (_keep, out) = scene.out();
        let padded = scene.padded(&out, &Asked::Align { tp: 2, align: 64 });
        assert_eq!(verified(&out).faults, 0);
        let note = padded.certificate.differential[0].clone();
        (note.vacuous, note.verdict, padded.notes)
    };
    let scales = |tensors: &mut Vec<Held>| {
        for tensor in tensors.iter_mut().filter(|t| t.name.ends_with("_scale")) {
            tensor.bytes.fill(254);
        }
    };
    let (vacuous, verdict, notes) = told("e=2,h=64,i=96,tp=2,w=mxfp4,fill=wild", &scales);
    assert_eq!(vacuous, 4 * 64);
    assert!(verdict.starts_with("vacuous: every output"), "{verdict}");
    assert!(notes.len() == 1 && notes[0].contains("prove nothing"));
    // One output channel near the largest of bf16.
    let large = |tensors: &mut Vec<Held>| {
        for tensor in tensors.iter_mut().filter(|t| t.name.contains("experts")) {
            let row = tensor.bytes.len() / tensor.shape[0];
            match tensor.name.ends_with("down_proj.weight") {
                true => fill(&mut tensor.bytes[..row], 0x7f61),
                false => fill(&mut tensor.bytes, 0x4140),
            }
        }
    };
    let (vacuous, verdict, notes) = told(PLAIN, &large);
    assert_eq!(vacuous, 2);
    let partly = "vacuous for 2 of 128 elements";
    assert!(
        verdict.starts_with("pass") && verdict.contains(partly),
        "{verdict}"
    );
    assert!(
        notes.len() == 1 && notes[0].contains("2 of 128"),
        "{notes:?}"
    );
}

/// One code of two bytes everywhere.
fn fill(bytes: &mut [u8], code: u16) {
    for two in bytes.chunks_exact_mut(2) {
        two.copy_from_slice(&code.to_le_bytes());
    }
}

/// They stopped a run that had begun, and what it left no later run could finish.
#[test]
fn what_no_run_can_finish_is_refused_before_one_begins() {
    let line = "e=2,h=128,i=384,tp=2,w=int4,fill=wild";
    let scene = Scene::new(Made {
        ints: true,
        ..Made::new(line, QWEN)
    });
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 128 };
    let refused = |words: &[&str]| {
        let error = scene.pad(&out, &asked).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(
            !out.exists() && !padproof::pad::partial(&out).exists(),
            "{error}"
        );
    };
    let shard = scene.path().join("model-00001-of-00003.safetensors");
    let whole = std::fs::read(&shard).unwrap();
    let name = "model.layers.0.mlp.experts.1.up_proj.weight_shape";
    change(scene.path(), |tensors| {
        if let Some(said) = tensors.iter_mut().find(|t| t.name == name) {
            said.bytes = [384_i64, 127].map(i64::to_le_bytes).concat();
        }
    });
    refused(&[name, "[384, 127]", "[384, 128]"]);
    std::fs::write(&shard, whole).unwrap();
    let half = scene.path().join("notes.txt.padproof-writing");
    std::fs::write(&half, "mine").unwrap();
    refused(&["notes.txt.padproof-writing", "move it away"]);
    std::fs::remove_file(&half).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let odd = scene.path().join(std::ffi::OsStr::from_bytes(b"\xff.txt"));
        std::fs::write(&odd, "x").unwrap();
        refused(&["its name is no UTF-8"]);
        std::fs::remove_file(&odd).unwrap();
    }
    scene.padded(&out, &asked);
    assert_eq!(verified(&out).faults, 0);
}

/// The reader was sent to gate_proj, which is what the config says.
#[test]
fn of_projections_in_two_formats_the_odd_one_is_named() {
    let line = "e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild";
    let scene = Scene::new(Made::new(line, QWEN));
    // down_proj of the first expert is bf16, without scales.
    let stem = "model.layers.0.mlp.experts.0.down_proj";
    change(scene.path(), |tensors| {
        tensors.retain(|t| t.name != format!("{stem}.weight_scale_inv"));
        for weight in tensors
            .iter_mut()
            .filter(|t| t.name == format!("{stem}.weight"))
        {
            weight.dtype = safetensors::Dtype::BF16;
            weight.bytes = vec![1; 2 * weight.bytes.len()];
        }
    });
    json(
        &scene.path().join("model.safetensors.index.json"),
        |index| {
            index["metadata"] = serde_json::Value::Null;
            let map = index["weight_map"].as_object_mut().unwrap();
            map.remove(&format!("{stem}.weight_scale_inv")).unwrap();
        },
    );
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 128 };
    let error = scene.pad(&out, &asked).unwrap_err().to_string();
    let why = "it is stored as bf16, and most weights of its layer as fp8-block";
    assert!(error.contains(stem) && error.contains(why), "{error}");
}
