//! Goal: what of a checkpoint is not there, or would not be read by all, is said.
//! Method: take a scene's files apart.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::scene::{Made, Scene};
use crate::checkpoint::verified::json;
use crate::checkpoint::{padproof, refused};
use padproof::pad::partial;

const LINE: &str = "e=2,h=32,i=44,tp=2,w=bf16,fill=wild";
const ALIGN: &[&str] = &["pad", "--tp", "2", "--align", "32"];

/// Shards were padded that only readers of whole folders load, and the page says that they are refused.
#[test]
fn experts_that_no_index_names_are_refused() {
    let scene = Scene::new(Made::new(LINE, QWEN));
    let index = scene.path().join("model.safetensors.index.json");
    std::fs::remove_file(&index).unwrap();
    let (_keep, out) = scene.out();
    let shard = "model-00001-of-00003.safetensors";
    refused(
        &padproof(ALIGN, &[scene.path(), &out]),
        &format!("{shard} holds experts"),
    );
    // One file alone, under another name than that of the only one.
    for n in [2, 3] {
        let other = format!("model-0000{n}-of-00003.safetensors");
        std::fs::remove_file(scene.path().join(other)).unwrap();
    }
    json(&scene.path().join("config.json"), |config| {
        config["num_hidden_layers"] = 1.into()
    });
    refused(
        &padproof(ALIGN, &[scene.path(), &out]),
        &format!("{shard} holds experts"),
    );
    // Moved away, it would have been lost.
    refused(
        &padproof(ALIGN, &[scene.path(), &out]),
        "name the file model.safetensors if it is all there is",
    );
    assert!(!out.exists() && !partial(&out).exists());
    let single = scene.path().join("model.safetensors");
    std::fs::rename(scene.path().join(shard), single).unwrap();
    let run = padproof(ALIGN, &[scene.path(), &out]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(!text.contains("missing"), "{text}");
}

/// Half of a checkpoint was padded and audited without a word.
#[test]
fn layers_that_are_not_there_are_told() {
    let scene = Scene::new(Made::new(LINE, QWEN));
    json(&scene.path().join("config.json"), |config| {
        config["num_hidden_layers"] = 5.into()
    });
    let (_keep, out) = scene.out();
    let run = padproof(ALIGN, &[scene.path(), &out]);
    let told = "counts 5 layers with experts, and ";
    let has = "has those of 2 (0 to 1): the others are missing";
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert!(text.contains(told) && text.contains(has), "{text}");
    let layout = ["audit", "--layout", "pad=i32,split=floor"];
    let dump = scene.path().join("dump.safetensors");
    let (_, plan, logical) =
        crate::checkpoint::invent::made(&format!("{LINE},pad=i32,split=floor,seed=1"));
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    std::fs::write(
        &dump,
        crate::checkpoint::invent::after(&packed, &[0, 1]).bytes(),
    )
    .unwrap();
    let audit = |more: &[&str]| {
        let words = [&layout[..], &["--tp", "2"], more].concat();
        let run = padproof(&words, &[scene.path(), &dump]);
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    let text = audit(&[]);
    assert!(text.contains(told) && text.contains(has), "{text}");
    // Of a layer that was asked for nothing is missing.
    assert!(!audit(&["--layer", "0"]).contains(told));
}
