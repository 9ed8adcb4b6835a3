//! Goal: what `pad` writes is what Python's safetensors reads, element by element; and what the documented
//! snippet dumps is what `audit` reads. Method: a script that knows nothing of padproof compares the files.
//!
//! Without a Python (`PADPROOF_PYTHON`, else `python3`), or without its safetensors, these say so and pass.

use crate::checkpoint::command::Scene as Audited;
use crate::checkpoint::padded::everything;
use crate::checkpoint::scene::{Asked, Scene};
use padproof::plan::Role;
use std::process::{Command, Output, Stdio};

/// A Python that has safetensors, and numpy where that is asked for.
#[expect(clippy::print_stdout, reason = "a skip says why")]
fn python(modules: &str) -> Option<String> {
    let named = std::env::var("PADPROOF_PYTHON").ok();
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        there || named.is_none(),
        "PADPROOF_PYTHON={python} cannot import {modules}"
    );
    if !there {
        println!("skipped: {python} cannot import {modules} (PADPROOF_PYTHON names one that can)");
    }
    there.then_some(python)
}

#[track_caller]
fn ended(out: &Output) -> String {
    let complained = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{complained}");
    String::from_utf8(out.stdout.clone()).unwrap()
}

#[test]
fn every_padded_checkpoint_is_its_input_and_padding_to_pythons_safetensors() {
    let Some(python) = python("safetensors") else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/checkpoint/pads.py");
    let mut command = Command::new(python);
    command.args(["-B", script]);
    let mut kept = Vec::new();
    for (made, align) in everything() {
        let scene = Scene::new(made);
        let (folder, out) = scene.out();
        scene.padded(&out, &Asked::Align { tp: 2, align });
        command.arg(scene.path()).arg(&out);
        kept.push((scene, folder));
    }
    let said = ended(&command.output().unwrap());
    let grown: usize = said
        .lines()
        .map(|line| line.split(", ").nth(1).unwrap())
        .map(|words| words.split(' ').next().unwrap().parse::<usize>().unwrap())
        .inspect(|&grown| assert!(grown > 0, "nothing was padded: {said}"))
        .sum();
    assert_eq!(said.lines().count(), kept.len());
    assert!(grown > 500, "{grown} tensors grew");
}

/// A script that could not fail would prove nothing.
#[test]
fn the_script_sees_one_changed_byte() {
    let Some(python) = python("safetensors") else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/checkpoint/pads.py");
    let (made, align) = everything().swap_remove(0);
    let scene = Scene::new(made);
    let (_folder, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align });
    let path = out.join("model-00001-of-00003.safetensors");
    let whole = std::fs::read(&path).unwrap();
    for at in [whole.len() - 1, whole.len() - 7000] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let out = Command::new(&python)
            .args(["-B", script])
            .args([scene.path(), &*out])
            .output()
            .unwrap();
        assert!(!out.status.success(), "byte {at}");
    }
}

/// The snippet of docs/audit.md, with arrays for tensors: two ranks, each dumped by itself.
#[test]
fn the_documented_dump_is_read() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/audit.md");
    let page = std::fs::read_to_string(page).unwrap();
    let snippet = page.split("```python\n").nth(1).unwrap();
    let snippet = snippet.split("```").next().unwrap();
    assert!(snippet.lines().count() <= 10 && snippet.contains("safetensors.torch"));
    let Some(python) = python("safetensors.numpy, numpy") else {
        return;
    };
    let scene = Audited::new();
    for rank in 0..2 {
        for (role, name) in [(Role::W13, "w13"), (Role::W2, "w2")] {
            let bytes = scene.packed.ranks[rank].get(role).unwrap().bytes();
            std::fs::write(scene.path(name), bytes).unwrap();
        }
        let script = format!(
            r#"
import numpy, pathlib, sys
{}
class Tensor:
    def __init__(self, name): self.name = name
    def detach(self): return self
    def cpu(self): return self
    def contiguous(self):
        return numpy.frombuffer((pathlib.Path(sys.argv[1]) / self.name).read_bytes(), dtype=numpy.uint16)
class Layer:
    def named_parameters(self):
        return [("w13_weight", Tensor("w13")), ("w2_weight", Tensor("w2")), ("bias", Tensor("w2"))]
dump(Layer(), pathlib.Path(sys.argv[1]) / "after.safetensors", 1, {rank}, 2)
"#,
            snippet.replace("safetensors.torch", "safetensors.numpy")
        );
        let mut command = Command::new(&python);
        command.args(["-c", &script]).arg(scene.folder.path());
        ended(&command.output().unwrap());
        let after = scene.path("after.safetensors");
        let out = scene.audit(&after, &["--rule", crate::checkpoint::command::RULE]);
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(said.contains(&format!("tp 2, rank {rank}")), "{said}");
    }
}
