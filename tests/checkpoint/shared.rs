//! Goal: shared experts are audited like routed ones, by files alone.
//! Method: an invented checkpoint with shared experts, cut and padded here by plain slices.

use crate::checkpoint::invent::{Invented, QWEN};
use crate::checkpoint::refused;
use crate::checkpoint::scene::{Asked, Made, Scene};
use crate::checkpoint::verified::{change, of};
use padproof::checkpoint::Checkpoint;
use safetensors::Dtype;
use std::path::Path;
use std::process::{Command, Output};

const P: &str = "model.layers.1.mlp.shared_experts.";
/// Two shared experts of 44 channels, in 48 on each of two ranks.
const MADE: Made = Made {
    shared: 2,
    ..Made::new("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN)
};
const SHARE: usize = 44;
const SLOT: usize = 48;
const HIDDEN: usize = 32;

fn bytes(checkpoint: &Checkpoint, projection: &str) -> Vec<u8> {
    let name = format!("{P}{projection}.weight");
    let bytes = checkpoint.entry(&name).unwrap().1.bytes;
    checkpoint.data(&name, 0..bytes).unwrap()
}

/// The engine's merged parameters of both ranks; `first` and `second` say which half is which.
fn dumped(scene: &Scene, first: &str, second: &str, dirt: u8) -> Invented {
    let checkpoint = Checkpoint::open(scene.path()).unwrap();
    let mut file = Invented::default();
    let row = 2 * HIDDEN;
    for rank in 0..2 {
        let mut w13 = Vec::new();
        for projection in [first, second] {
            let half = bytes(&checkpoint, projection);
            w13.extend_from_slice(&half[rank * SHARE * row..(rank + 1) * SHARE * row]);
            w13.resize(w13.len() + (SLOT - SHARE) * row, dirt);
        }
        let name = format!("rank{rank}.{P}gate_up_proj.weight");
        file.add(name, Dtype::BF16, &[2 * SLOT, HIDDEN], w13);
        let mut w2 = Vec::new();
        for line in bytes(&checkpoint, "down_proj").chunks(2 * 2 * SHARE) {
            w2.extend_from_slice(&line[rank * 2 * SHARE..(rank + 1) * 2 * SHARE]);
            w2.resize(w2.len() + 2 * (SLOT - SHARE), 0);
        }
        let name = format!("rank{rank}.{P}down_proj.weight");
        file.add(name, Dtype::BF16, &[HIDDEN, SLOT], w2);
    }
    file
}

fn audit(scene: &Scene, file: &Invented, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let after = folder.path().join("after.safetensors");
    std::fs::write(&after, file.bytes()).unwrap();
    run(scene.path(), &after, more)
}

fn run(before: &Path, after: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_padproof"))
        .arg("audit")
        .args([before, after])
        .args(["--tp", "2"])
        .args(more)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

const LAYOUT: [&str; 3] = ["--shared", "--layout", "pad=i16,split=floor"];

#[test]
fn shared_experts_are_audited_and_their_faults_named() {
    let scene = Scene::new(MADE);
    let said = |file: &Invented, code| {
        let out = audit(&scene, file, &LAYOUT);
        let text = String::from_utf8(out.stdout.clone()).unwrap();
        assert_eq!(out.status.code(), Some(code), "{out:?}");
        text
    };
    let clean = said(&dumped(&scene, "gate_proj", "up_proj", 0), 0);
    // Twice 88 x 32 of the first, 88 x 32 of the second; four channels of padding beside 44.
    assert!(clean.contains("8 448 elements, 768 pads"), "{clean}");
    assert!(
        clean.contains("layers.1.mlp.shared_experts under"),
        "{clean}"
    );
    let swapped = said(&dumped(&scene, "up_proj", "gate_proj", 0), 1);
    assert!(swapped.contains("halves-swapped"), "{swapped}");
    let dirty = said(&dumped(&scene, "gate_proj", "up_proj", 0x3c), 1);
    assert!(dirty.contains("w13-tail-dirty"), "{dirty}");
}

#[test]
fn what_has_no_shared_experts_is_one_sentence() {
    let plain = Scene::new(Made { shared: 0, ..MADE });
    let scene = Scene::new(MADE);
    let file = dumped(&scene, "gate_proj", "up_proj", 0);
    refused(
        &audit(&plain, &file, &LAYOUT),
        "says nothing of shared experts",
    );
    let rule = ["--shared", "--rule", "sglang.flashinfer_trtllm.bf16"];
    refused(&audit(&scene, &file, &rule), "rule");
    // A dump of shared experts alone is none of routed ones.
    let routed = ["--layout", "pad=i16,split=floor"];
    refused(&audit(&scene, &file, &routed), "no tensor is called w13");
}

/// Found from headers, before the first byte is written: the checks at the end could not say what such experts are.
#[test]
fn experts_in_several_types_are_refused_before_anything_is_written() {
    for expert in ["0", "1", "2"] {
        let scene = Scene::new(Made { shared: 0, ..MADE });
        change(scene.path(), |tensors| {
            let held = of(tensors, &format!("{expert}.up_proj.weight"));
            held.dtype = Dtype::F32;
            held.bytes = held.bytes.repeat(2);
        });
        let (keep, out) = scene.out();
        let asked = Asked::Align { tp: 2, align: 16 };
        let why = scene.pad(&out, &asked).unwrap_err().to_string();
        let odd = format!("experts.{expert}.up_proj.weight`: it is stored as f32");
        assert!(why.contains(&odd), "{why}");
        assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 0, "{why}");
    }
}
