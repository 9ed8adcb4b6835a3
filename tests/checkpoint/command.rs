//! `padproof audit` as a user meets it.

use crate::checkpoint::invent::{Family, Invented, QWEN, after, before, made, parameter};
use crate::checkpoint::{refused, snapshot};
use padproof::layout::{PackedInputs, pack_layer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LINE: &str =
    "e=3,h=32,i=88,tp=2,w=bf16,rule=sglang.flashinfer_trtllm.bf16,fill=wild,seed=1b2c";
pub(crate) const RULE: &str = "sglang.flashinfer_trtllm.bf16";

/// A checkpoint on disk, and what an engine makes of it.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) packed: PackedInputs,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let (case, plan, logical) = made(LINE);
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
            "hidden_size": 32, "moe_intermediate_size": 88, "intermediate_size": 128, "torch_dtype": "bfloat16",
            "num_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2, "norm_topk_prob": true,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let mut file = before(&case, &logical, QWEN, "model.layers.1.mlp.");
        file.add("lm_head.weight", safetensors::Dtype::BF16, &[4], vec![0; 8]);
        std::fs::write(folder.path().join("model.safetensors"), file.bytes()).unwrap();
        let packed = pack_layer(&plan, &logical).unwrap();
        Scene { folder, packed }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, file: &Invented) -> PathBuf {
        std::fs::write(self.path(name), file.bytes()).unwrap();
        self.path(name)
    }

    pub(crate) fn audit(&self, after: &Path, more: &[&str]) -> Output {
        audit(self.folder.path(), after, more)
    }

    /// Standard output without the folder's name.
    fn text(&self, out: &Output) -> String {
        let text = String::from_utf8(out.stdout.clone()).unwrap();
        text.replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }
}

fn audit(before: &Path, after: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_padproof"))
        .arg("audit")
        .args([before, after])
        .args(more)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

#[test]
fn a_clean_dump_of_every_rank_passes() {
    let scene = Scene::new();
    let mut file = after(&scene.packed, &[0, 1]);
    file.add(
        "rank0.w13_input_scale",
        safetensors::Dtype::F32,
        &[1],
        vec![0; 4],
    );
    let path = scene.write("after.safetensors", &file);
    let out = scene.audit(&path, &["--rule", RULE, "--tp", "2"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    snapshot("audit@pass", &scene.text(&out));
    let layout = [
        "--layout",
        "pad=i128,split=stride,order=up-gate",
        "--tp",
        "2",
    ];
    assert_eq!(scene.audit(&path, &layout).status.code(), Some(0));
    // The same from a file.
    let named = scene.path("layout.txt");
    let told = |text: &str| {
        std::fs::write(&named, text).unwrap();
        scene.audit(&path, &["--layout", named.to_str().unwrap(), "--tp", "2"])
    };
    let right = "# as the engine pads\npad=i128, split=stride\norder=up-gate # up first\n";
    assert_eq!(told(right).status.code(), Some(0));
    assert_eq!(told("pad=i128,split=stride").status.code(), Some(1));
    let place = named.to_str().unwrap();
    refused(&told("pad=i128,tp=2"), &format!("{place} takes"));
}

/// It was cut after 64 KiB, in silence, and a wrong word in it named no file.
#[test]
fn a_layout_file_is_read_whole_or_refused_by_name() {
    let scene = Scene::new();
    let path = scene.write("after.safetensors", &after(&scene.packed, &[0, 1]));
    let named = scene.path("layout.txt");
    let place = named.to_str().unwrap();
    let told = |text: &str| {
        std::fs::write(&named, text).unwrap();
        scene.audit(&path, &["--layout", place, "--tp", "2"])
    };
    let words = "pad=i128,split=stride,order=up-gate\n";
    let comment = |bytes: usize| format!("#{}\n{words}", "x".repeat(bytes - words.len() - 2));
    assert_eq!(told(&comment(1 << 16)).status.code(), Some(0));
    // The words would have been cut off, and the layout been without them.
    let why = format!("{place}: 65537 bytes, and a file with a layout has at most 65536");
    refused(&told(&comment((1 << 16) + 1)), &why);
    refused(
        &told("pad=i128\nsplt=stride"),
        &format!("{place}: unknown key `splt`"),
    );
    let words = scene.audit(&path, &["--layout", "splt=stride", "--tp", "2"]);
    refused(&words, "--layout: unknown key `splt`");
}

#[test]
fn a_fault_is_named_with_its_first_places() {
    let scene = Scene::new();
    let mut file = after(&scene.packed, &[0]);
    // Up and gate in each other's place, as for a kernel that wants gate first.
    let w13 = &mut file
        .tensors
        .iter_mut()
        .find(|t| t.0.ends_with("w13_weight"))
        .unwrap()
        .3;
    let half = w13.len() / 6;
    for expert in w13.chunks_mut(2 * half) {
        expert.rotate_left(half);
    }
    let path = scene.write("after.safetensors", &file);
    let out = scene.audit(&path, &["--rule", RULE, "--tp", "2"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    snapshot("audit@fail", &scene.text(&out));
    let out = scene.audit(&path, &["--rule", RULE, "--tp", "2", "--format", "json"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    snapshot("audit@json", &scene.text(&out));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found["faults"][0]["name"], "halves-swapped");
}

#[test]
fn metadata_say_rank_ranks_and_layer() {
    let scene = Scene::new();
    let mut file = Invented::default();
    for (role, tensor) in scene.packed.ranks[1].iter() {
        let bytes = tensor.bytes().to_vec();
        let shape = [bytes.len() / 2];
        file.add(parameter(role), safetensors::Dtype::BF16, &shape, bytes);
    }
    let rank1 = file.bytes();
    for (key, value) in [("rank", "1"), ("tp", "2"), ("layer", "1")] {
        file.metadata.insert(key.to_owned(), value.to_owned());
    }
    let path = scene.write("after.safetensors", &file);
    let out = scene.audit(&path, &["--rule", RULE]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert!(scene.text(&out).contains("tp 2, rank 1"));
    refused(&scene.audit(&path, &["--rule", RULE, "--tp", "4"]), "tp=2");
    refused(
        &scene.audit(&path, &["--rule", RULE, "--layer", "7"]),
        "layer 7",
    );
    let path = scene.path("bare.safetensors");
    std::fs::write(&path, rank1).unwrap();
    refused(
        &scene.audit(&path, &["--rule", RULE, "--tp", "2"]),
        "--rank",
    );
    refused(
        &scene.audit(&path, &["--rule", RULE, "--tp", "2", "--rank", "2"]),
        "rank 2 of 2",
    );
    let out = scene.audit(&path, &["--rule", RULE, "--tp", "2", "--rank", "0"]);
    assert_eq!(out.status.code(), Some(1), "rank 1 is not rank 0");
}

/// A file of both ranks whose metadata say rank 1 passed, and nobody looked at rank 0.
#[test]
fn names_say_whose_tensors_are_whatever_metadata_say() {
    let scene = Scene::new();
    let mut file = after(&scene.packed, &[0, 1]);
    let w13 = file.tensors.iter_mut().find(|t| t.0 == "rank0.w13_weight");
    w13.unwrap().3.fill(0);
    for (key, value) in [("rank", "1"), ("tp", "2")] {
        file.metadata.insert(key.to_owned(), value.to_owned());
    }
    let path = scene.write("after.safetensors", &file);
    let out = scene.audit(&path, &["--rule", RULE]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(
        scene.text(&out).contains("tp 2, ranks 0 to 1"),
        "{}",
        scene.text(&out)
    );
}

#[test]
fn a_rank_or_layer_that_is_not_metadata_s_is_refused() {
    let scene = Scene::new();
    let mut file = after(&scene.packed, &[0, 1]);
    for (key, value) in [("rank", "0"), ("tp", "2"), ("layer", "7")] {
        file.metadata.insert(key.to_owned(), value.to_owned());
    }
    let path = scene.write("after.safetensors", &file);
    for (option, value, said) in [("--rank", "1", "rank=0"), ("--layer", "1", "layer=7")] {
        let out = scene.audit(&path, &["--rule", RULE, option, value]);
        refused(&out, said);
        refused(&out, &format!("{option} {value}, but"));
    }
}

/// It was said that no tensor is called w13.
#[test]
fn tensors_of_another_rank_or_layer_alone_are_said_to_be() {
    let scene = Scene::new();
    let mut file = after(&scene.packed, &[0]);
    let path = scene.write("after.safetensors", &file);
    let more = ["--rule", RULE, "--tp", "2"];
    let out = scene.audit(&path, &[&more[..], &["--rank", "1"]].concat());
    refused(&out, "no tensor is of rank 1: `rank0.w");
    refused(&out, "is of rank 0");
    for tensor in &mut file.tensors {
        tensor.0 = format!("layers.3.{}", tensor.0);
    }
    let path = scene.write("after.safetensors", &file);
    let out = scene.audit(&path, &[&more[..], &["--layer", "1"]].concat());
    refused(&out, "no tensor is of layer 1: `layers.3.rank0.w");
}

/// Infinity was said to be a NaN, and INT4 padding under scales of zero to be under others.
#[test]
fn what_is_said_of_loud_padding_holds() {
    let scene = Scene::new();
    let mut file = after(&scene.packed, &[0, 1]);
    let w13 = file.tensors.iter_mut().find(|t| t.0 == "rank1.w13_weight");
    let bytes = &mut w13.unwrap().3;
    let last = bytes.len() - 2;
    bytes[last..].copy_from_slice(&0x7f80_u16.to_le_bytes());
    let path = scene.write("after.safetensors", &file);
    let said = scene.text(&scene.audit(&path, &["--rule", RULE, "--tp", "2"]));
    assert!(said.contains("not finite: NaN, or infinity"), "{said}");
    let out = Command::new(env!("CARGO_BIN_EXE_padproof"))
        .args(["explain", "int4-pad-is-minus-eight"])
        .output()
        .unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.contains("decodes to -8"), "{said}");
    assert!(!said.contains("not zero"), "{said}");
}

/// Tensors of other layers and ranks were passed over without a word.
#[test]
fn what_is_not_audited_is_said() {
    let scene = Scene::new();
    let mut file = Invented::default();
    for (prefix, rank) in [
        ("layers.0.rank0.", 0),
        ("layers.0.rank1.", 1),
        ("layers.1.rank0.", 0),
    ] {
        for (role, tensor) in scene.packed.ranks[rank].iter() {
            let bytes = tensor.bytes().to_vec();
            let shape = [bytes.len() / 2];
            let name = format!("{prefix}{}", parameter(role));
            file.add(name, safetensors::Dtype::BF16, &shape, bytes);
        }
    }
    let path = scene.write("after.safetensors", &file);
    let more = ["--rule", RULE, "--tp", "2"];
    refused(
        &scene.audit(&path, &more),
        "holds layers 0, 1: --layer says",
    );
    let one = [&more[..], &["--layer", "1", "--rank", "0"]].concat();
    let said = scene.text(&scene.audit(&path, &one));
    assert!(said.contains("not looked at"), "{said}");
}

#[test]
fn both_sides_may_lie_in_one_file() {
    let scene = Scene::new();
    let (case, _, logical) = made(LINE);
    let mut file = after(&scene.packed, &[0, 1]);
    for (name, dtype, shape, bytes) in before(&case, &logical, Family::Bare, "").tensors {
        file.add(format!("before.{name}"), dtype, &shape, bytes);
    }
    let path = scene.write("both.safetensors", &file);
    let out = audit(&path, &path, &["--rule", RULE, "--tp", "2"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
}

#[test]
fn what_does_not_fit_together_is_one_sentence() {
    let scene = Scene::new();
    let path = scene.write("after.safetensors", &after(&scene.packed, &[0, 1]));
    let with = |more: &[&str]| scene.audit(&path, more);
    refused(
        &with(&["--rule", "sglang.triton.bf61"]),
        "sglang.triton.bf16",
    );
    refused(
        &with(&["--rule", "sglang.flashinfer_cutlass.fp8"]),
        "is for fp8",
    );
    refused(
        &with(&["--rule", "sglang.triton.bf16", "--tp", "3"]),
        "refused",
    );
    refused(&with(&["--layout", "pad=i128,tp=2"]), "--layout takes");
    refused(&with(&["--layout", "pad=i0"]), "pad");
    refused(&with(&["--rule", RULE, "--tp", "1"]), "rank 1 of 1");
    refused(
        &with(&["--rule", RULE, "--tp", "2", "--model", "Mixtral-8x7B"]),
        "wanted [14336, 4096]",
    );
    refused(
        &audit(&path, &path, &["--rule", RULE, "--tp", "2"]),
        "no tensor",
    );
    refused(
        &audit(Path::new("gone"), &path, &["--rule", RULE, "--tp", "2"]),
        "",
    );
    refused(
        &scene.audit(&scene.path("config.json"), &["--rule", RULE]),
        "config.json",
    );
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    refused(
        &with(&["--rule", RULE, "--tp", "2"]),
        "after.safetensors: tensor `rank1.w2_weight`",
    );
}
