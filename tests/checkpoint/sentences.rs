//! Goal: what is refused says what is wrong, and not something beside it.
//! Method: the command and the library on checkpoints with one thing changed.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use crate::checkpoint::verified::{change, json};
use crate::checkpoint::{padproof, refused};
use serde_json::{Value, json as value};
use std::path::Path;

const PLAIN: &str = "e=2,h=32,i=44,tp=2,w=bf16,fill=wild";
const ASKED: Asked = Asked::Align { tp: 2, align: 16 };

/// A config was said to be missing where nothing is there at all.
#[test]
fn a_path_where_nothing_is_is_said_to_be_nothing() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let nowhere = scene.path().join("nowhere");
    let shard = scene.path().join("model-00001-of-00003.safetensors");
    for (before, after) in [(&nowhere, &shard), (&shard, &nowhere)] {
        let run = padproof(&["audit", "--layout", "pad=i16"], &[before, after]);
        refused(&run, "nowhere: No such file");
    }
    let out = scene.path().with_file_name("never");
    let run = padproof(&["pad", "--tp", "2", "--align", "16"], &[&nowhere, &out]);
    refused(&run, "nowhere: No such file");
    let run = padproof(&["pad", "--tp", "2", "--align", "16"], &[&shard, &out]);
    refused(&run, "not a folder with config.json and safetensors files");
    refused(&padproof(&["verify"], &[&nowhere]), "nowhere");
}

/// `w` was said to be given twice.
#[test]
fn a_layout_that_says_the_format_is_told_what_layouts_say() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    let shard = scene.path().join("model-00001-of-00003.safetensors");
    let run = padproof(
        &["audit", "--layout", "pad=i16,w=bf16", "--layer", "0"],
        &[scene.path(), &shard],
    );
    refused(
        &run,
        "--layout takes pad, split, order, place, store and nib alone, not pad=i16,w=bf16",
    );
}

#[test]
fn a_recorded_shape_below_zero_is_told_as_it_is_written() {
    let line = "e=2,h=128,i=384,tp=2,w=int4,fill=wild";
    let scene = Scene::new(Made {
        ints: true,
        ..Made::new(line, QWEN)
    });
    let name = "model.layers.0.mlp.experts.1.up_proj.weight_shape";
    change(scene.path(), |tensors| {
        let said = tensors.iter_mut().find(|t| t.name == name).unwrap();
        said.bytes = [-1_i64, 128].map(i64::to_le_bytes).concat();
    });
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 128 };
    let why = scene.pad(&out, &asked).unwrap_err().to_string();
    assert!(
        why.contains("it says [-1, 128], and the weight beside it is [384, 128]"),
        "{why}"
    );
}

/// The config with the language model's part in a `text_config` as well.
fn nest(folder: &Path, change: impl FnOnce(&mut Value)) {
    json(&folder.join("config.json"), |config| {
        let text = config.clone();
        config["text_config"] = text;
        change(config);
    });
}

/// One of both places changed: loaders that read the other one would have allocated the old width.
#[test]
fn a_width_at_two_depths_changes_at_both() {
    let scene = Scene::new(Made {
        shared: 1,
        ..Made::new(PLAIN, QWEN)
    });
    nest(scene.path(), |_| {});
    let (_keep, out) = scene.out();
    scene.padded(&out, &ASKED);
    let text = std::fs::read_to_string(out.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    for part in [&config, &config["text_config"]] {
        assert_eq!(part["moe_intermediate_size"], 64);
    }
    assert_eq!(
        config["padproof"]["before"]["text_config.moe_intermediate_size"],
        44
    );
    assert_eq!(verified(&out).faults, 0);
    // Either place as it was.
    let half = |change: &dyn Fn(&mut Value)| {
        json(&out.join("config.json"), change);
        let found = verified(&out).first;
        let told = |f: &&padproof::pad::Fault| {
            f.kind == "config" && f.why.contains("moe_intermediate_size")
        };
        assert!(found.iter().any(|f| told(&f)), "{found:?}");
        std::fs::write(out.join("config.json"), &text).unwrap();
    };
    half(&|config| config["moe_intermediate_size"] = 44.into());
    half(&|config| config["text_config"]["moe_intermediate_size"] = 44.into());
}

#[test]
fn a_width_that_would_stay_somewhere_is_refused() {
    let stands = |change: &dyn Fn(&mut Value), told: &[&str]| {
        let scene = Scene::new(Made::new(PLAIN, QWEN));
        nest(scene.path(), change);
        let (keep, out) = scene.out();
        let why = scene.pad(&out, &ASKED).unwrap_err().to_string();
        for word in told {
            assert!(why.contains(word), "{why}");
        }
        assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 0, "{why}");
    };
    stands(
        &|config| config["moe_intermediate_size"] = 40.into(),
        &["moe_intermediate_size=40, and text_config.moe_intermediate_size=44 says another width"],
    );
    stands(
        &|config| config["block_configs"] = value!([{"a": 1}, {"moe_intermediate_size": 44}]),
        &["block_configs.1.moe_intermediate_size says a width that would change"],
    );
    stands(
        &|config| config["talker_config"] = value!({"moe_intermediate_size": [44, 44]}),
        &["talker_config.moe_intermediate_size"],
    );
    // Another width of another part stays.
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    nest(scene.path(), |config| {
        config["talker_config"] = value!({"moe_intermediate_size": 20});
    });
    let (_keep, out) = scene.out();
    scene.padded(&out, &ASKED);
}

/// A place that says 0 got the new width.
#[test]
fn a_width_of_zero_stays_zero() {
    let scene = Scene::new(Made::new(PLAIN, QWEN));
    nest(scene.path(), |config| {
        config["moe_intermediate_size"] = 0.into()
    });
    let (_keep, out) = scene.out();
    scene.padded(&out, &ASKED);
    let text = std::fs::read_to_string(out.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["moe_intermediate_size"], 0);
    assert_eq!(config["text_config"]["moe_intermediate_size"], 64);
    assert_eq!(verified(&out).faults, 0);
}
