//! Goal: a checkpoint that is named or stored otherwise than most is padded right, or refused.
//! Method: change headers, indexes and files of invented checkpoints before they are padded.

use crate::invent::QWEN;
use crate::scene::{Asked, Made, Scene, verified};
use crate::verified::{change, json, resealed};
use padproof::checkpoint::Checkpoint;
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
