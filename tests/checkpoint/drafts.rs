//! Goal: layers of drafts, biases that no config speaks of, shared and large experts are chosen, padded and
//! checked like the model's own.
//! Method: tensors of another layer, or other headers, in the shards of invented checkpoints.

use crate::checkpoint::invent::{QWEN, after, before, made};
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use crate::checkpoint::verified::{change, json};
use crate::checkpoint::{padproof, refused};
use serde_json::{Value, json as value};
use std::path::{Path, PathBuf};
use std::process::Output;

const DRAFT: &str = "draft.safetensors";
const PLAIN: &str = "e=3,h=32,i=44,tp=2,w=bf16,fill=wild";
const ASKED: Asked = Asked::Align { tp: 2, align: 32 };

/// Adds a shard with one more layer, as a case has it, below a prefix.
fn add_layer(folder: &Path, line: &str, prefix: &str) {
    let (case, _, logical) = made(line);
    let mut file = before(&case, &logical, QWEN, prefix);
    file.metadata.insert("format".to_owned(), "pt".to_owned());
    std::fs::write(folder.join(DRAFT), file.bytes()).unwrap();
    json(&folder.join("model.safetensors.index.json"), |index| {
        index["metadata"] = Value::Null;
        for (name, ..) in &file.tensors {
            index["weight_map"][name] = DRAFT.into();
        }
    });
}

/// The padded parameters of a case, as an engine has them.
fn dump(folder: &Path, line: &str, layer: Option<&str>) -> PathBuf {
    let (_, plan, logical) = made(line);
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let mut file = after(&packed, &[0, 1]);
    if let Some(layer) = layer {
        file.metadata.insert("layer".to_owned(), layer.to_owned());
    }
    let path = folder.join("dump.st");
    std::fs::write(&path, file.bytes()).unwrap();
    path
}

fn audit(before: &Path, after: &Path, layout: &str, more: &[&str]) -> Output {
    let given = ["audit", "--layout", layout, "--tp", "2"];
    padproof(&[&given, more].concat(), &[before, after])
}

#[track_caller]
fn passes(run: &Output, prefix: &str) {
    let text = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert!(text.contains(prefix), "{text}");
}

/// A draft's layer could not be chosen: its number is the model's as well, and that one came first.
#[test]
fn a_drafts_layer_is_audited_by_its_name() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let line = &format!("{PLAIN},seed=77,pad=i32,split=floor");
    let layout = "pad=i32,split=floor";
    for (prefix, word, other) in [
        ("mtp.layers.0.mlp.", "mtp.0", "mtp.1"),
        ("mtp.layers.0.mlp.", "mtp", "mtp.1"),
        ("model.mtp_layers.3.mlp.", "mtp.3", "mtp.0"),
        // As DeepSeek counts them: behind the model's layers.
        ("model.layers.2.mlp.", "2", "mtp"),
    ] {
        let scene = Scene::new(Made::new(PLAIN, QWEN));
        add_layer(scene.path(), line, prefix);
        let dumped = dump(scene.path(), line, None);
        let run = |word| audit(scene.path(), &dumped, layout, &["--layer", word]);
        passes(&run(word), &format!("{prefix}experts"));
        refused(&run(other), &format!("no experts in layer {other}"));
        // The model's own layer of that number is another one.
        assert_eq!(run("0").status.code(), Some(1), "{prefix}");
        // The file says it.
        let dumped = dump(scene.path(), line, Some(word));
        passes(&audit(scene.path(), &dumped, layout, &[]), prefix);
    }
    let dumped = dump(scene.path(), line, None);
    for word in ["mtp0", "00", "+1", "x"] {
        refused(
            &audit(scene.path(), &dumped, layout, &["--layer", word]),
            "no layer: a number",
        );
    }
    let dumped = dump(scene.path(), line, Some("01"));
    refused(
        &audit(scene.path(), &dumped, layout, &[]),
        "metadata layer=`01`: no layer",
    );
}

/// `--layer 0` of a model whose layer 0 has no experts was the draft's.
#[test]
fn a_number_alone_is_no_drafts() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    std::fs::copy(
        scene.path().join("config.json"),
        folder.path().join("config.json"),
    )
    .unwrap();
    let (case, _, logical) = made(PLAIN);
    let file = before(&case, &logical, QWEN, "mtp.layers.0.mlp.");
    std::fs::write(folder.path().join("model.safetensors"), file.bytes()).unwrap();
    let dumped = dump(scene.path(), &format!("{PLAIN},pad=i32"), None);
    let run = |more: &[&str]| audit(folder.path(), &dumped, "pad=i32", more);
    refused(
        &run(&["--layer", "0"]),
        "no experts in layer 0; layer mtp.0 has some",
    );
    passes(&run(&[]), "mtp.layers.0.mlp.experts");
}

/// A draft stored in another format than the model's layers.
#[test]
fn a_drafts_layer_is_audited_in_its_own_format() {
    let line = "e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild";
    let scene = Scene::new(Made {
        shared: 1,
        ..Made::new(line, QWEN)
    });
    json(&scene.path().join("config.json"), |config| {
        config["num_nextn_predict_layers"] = 1.into();
        config["quantization_config"]["ignore"] = value!(["mtp*"]);
    });
    let plain = "e=2,h=64,i=96,tp=2,w=bf16,fill=wild,seed=5";
    add_layer(scene.path(), plain, "mtp.layers.0.mlp.");
    let dumped = dump(scene.path(), &format!("{plain},pad=i64"), None);
    let run = audit(scene.path(), &dumped, "pad=i64", &["--layer", "mtp.0"]);
    passes(&run, "mtp.layers.0.mlp.experts");
}

/// The checks at the end went by numbers: a draft's layer that has the number of one of the model's was
/// passed over, and shared experts were.
#[test]
fn what_is_padded_is_checked_a_draft_and_shared_experts_too() {
    let scene = Scene::new(Made {
        shared: 2,
        ..Made::new(PLAIN, QWEN)
    });
    add_layer(
        scene.path(),
        &format!("{PLAIN},seed=9"),
        "mtp.layers.0.mlp.",
    );
    let (_keep, out) = scene.out();
    let padded = scene.padded(&out, &ASKED);
    let audit = padded.certificate.audit.unwrap();
    assert_eq!((audit.layers, audit.shared, audit.differing), (3, 2, 0));
    let prefixes: Vec<&str> = padded
        .certificate
        .differential
        .iter()
        .map(|d| &*d.prefix)
        .collect();
    assert_eq!(
        prefixes,
        [
            "model.layers.0.mlp.experts.",
            "model.layers.1.mlp.experts.",
            "model.layers.0.mlp.shared_experts.",
            "model.layers.1.mlp.shared_experts.",
            "mtp.layers.0.mlp.experts.",
        ]
    );
    assert!(
        padded
            .certificate
            .differential
            .iter()
            .all(|d| d.verdict.starts_with("pass"))
    );
    assert_eq!(verified(&out).faults, 0);
    // Experts of the draft in several types: nothing looked at them.
    std::fs::remove_dir_all(&out).unwrap();
    let path = scene.path().join(DRAFT);
    let (case, _, logical) = made(&format!("{PLAIN},seed=9"));
    let mut file = before(&case, &logical, QWEN, "mtp.layers.0.mlp.");
    let odd = file
        .tensors
        .iter_mut()
        .find(|t| t.0.contains("experts.1.up_proj"))
        .unwrap();
    (odd.1, odd.3) = (safetensors::Dtype::F32, odd.3.repeat(2));
    std::fs::write(&path, file.bytes()).unwrap();
    let why = scene.pad(&out, &ASKED).unwrap_err().to_string();
    assert!(why.contains("mtp.layers.0.mlp.experts.1.up_proj"), "{why}");
}

/// Of two models in one checkpoint, each with a layer 0, the first by name was taken.
#[test]
fn of_two_models_that_number_their_layers_the_one_of_these_sizes_is_taken() {
    let line = &format!("{PLAIN},seed=1,pad=i32");
    let small = "e=3,h=16,i=20,tp=2,w=bf16,fill=wild";
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    add_layer(scene.path(), small, "a.talker.layers.0.mlp.");
    let dumped = dump(scene.path(), line, None);
    let run = || audit(scene.path(), &dumped, "pad=i32", &["--layer", "0"]);
    passes(&run(), "model.layers.0.mlp.experts");
    add_layer(scene.path(), PLAIN, "a.talker.layers.0.mlp.");
    refused(
        &run(),
        "`a.talker.layers.0.mlp.experts.` and `model.layers.0.mlp.experts.` are of one number",
    );
}

/// Only gpt-oss' configs say that there are biases; of all others the tensors do.
#[test]
fn biases_are_taken_where_the_experts_have_them() {
    let line = "e=3,h=32,i=44,tp=2,w=bf16,bias=both,fill=wild";
    let scene = Scene::new(Made::new(line, QWEN));
    let (_keep, out) = scene.out();
    let padded = scene.padded(&out, &ASKED);
    // Per expert 3 x 44 x 32 weights, and 44 + 44 + 32 biases, those of w2 on the first rank.
    let elements = padded.certificate.audit.unwrap().elements;
    assert_eq!(elements, 2 * 3 * (3 * 44 * 32 + 44 + 44 + 32));
    assert_eq!(verified(&out).faults, 0);
    let dumped = dump(scene.path(), &format!("{line},seed=1,pad=i32"), None);
    let layer = ["--layer", "0"];
    passes(
        &audit(scene.path(), &dumped, "pad=i32", &layer),
        "layers.0.mlp.experts",
    );
    // An engine that leaves them out.
    let bare = dump(scene.path(), &format!("{PLAIN},seed=1,pad=i32"), None);
    let run = audit(scene.path(), &bare, "pad=i32", &layer);
    let text = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(
        text.contains("w13_bias") && text.contains("tensor is missing"),
        "{text}"
    );
}

#[test]
fn biases_of_some_projections_or_experts_alone_are_refused_by_name() {
    let line = "e=3,h=32,i=44,tp=2,w=bf16,bias=both,fill=wild";
    for lost in [
        "0.up_proj.bias",
        "2.gate_proj.bias",
        "0.gate_proj.bias",
        "1.down_proj.bias",
    ] {
        let scene = Scene::new(Made::new(line, QWEN));
        change(scene.path(), |tensors| {
            tensors.retain(|t| t.name != format!("model.layers.0.mlp.experts.{lost}"));
        });
        json(
            &scene.path().join("model.safetensors.index.json"),
            |index| {
                index["metadata"] = Value::Null;
                let map = index["weight_map"].as_object_mut().unwrap();
                map.remove(&format!("model.layers.0.mlp.experts.{lost}"))
                    .unwrap();
            },
        );
        let (keep, out) = scene.out();
        let why = scene.pad(&out, &ASKED).unwrap_err().to_string();
        let told = format!("experts.{lost}`: it is not there, though");
        assert!(why.contains(&told), "{lost}: {why}");
        assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 0);
        let dumped = dump(scene.path(), &format!("{line},seed=1,pad=i32"), None);
        refused(
            &audit(scene.path(), &dumped, "pad=i32", &["--layer", "0"]),
            &told,
        );
    }
}

/// Readers differ in whether `layers.00` is `layers.0`: both were taken.
#[test]
fn numbers_of_layers_are_taken_as_written_only() {
    let line = &format!("{PLAIN},seed=1,pad=i32");
    let told = "`00` is no number as names of layers have it";
    for prefix in ["model.layers.00.mlp.", "mtp.layers.00.mlp."] {
        let scene = Scene::new(Made::new(PLAIN, QWEN));
        add_layer(scene.path(), &format!("{PLAIN},seed=9"), prefix);
        let (_keep, out) = scene.out();
        let why = scene.pad(&out, &ASKED).unwrap_err().to_string();
        assert!(why.contains(told) && why.contains(prefix), "{why}");
        let dumped = dump(scene.path(), line, None);
        refused(
            &audit(scene.path(), &dumped, "pad=i32", &["--layer", "0"]),
            told,
        );
    }
    // In the dump.
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let (_, plan, logical) = made(line);
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let mut file = after(&packed, &[0, 1]);
    for tensor in &mut file.tensors {
        tensor.0 = format!("layers.00.{}", tensor.0);
    }
    let dumped = scene.path().join("dump.st");
    std::fs::write(&dumped, file.bytes()).unwrap();
    refused(
        &audit(scene.path(), &dumped, "pad=i32", &["--layer", "0"]),
        told,
    );
}

/// Each expert was held whole a few times: 1.9 GB for one of 600 MB, in tensors of 200.
#[test]
fn of_large_experts_a_part_is_looked_at_and_told() {
    let made = Made::new("e=1,h=4096,i=6976,tp=2,k=1,w=fp8-block,fill=wild", QWEN);
    let scene = Scene::new(made);
    let (_keep, out) = scene.out();
    let padded = scene.padded(&out, &Asked::Align { tp: 2, align: 128 });
    let audit = padded.certificate.audit.unwrap();
    let told = "all channels of hidden units 0 to ";
    assert!(audit.part.starts_with(told), "{audit:?}");
    assert!(
        audit.checked_bytes < 2 * 3 * 7168 * 4096 / 2 && audit.pads > 0,
        "{audit:?}"
    );
    for note in &padded.certificate.differential {
        let verdict = &note.verdict;
        assert!(
            verdict.starts_with("pass") && verdict.contains(told),
            "{verdict}"
        );
    }
    assert_eq!(verified(&out).faults, 0);
}
