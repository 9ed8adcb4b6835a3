//! Goal: layers that are stored in several formats, and tensors that change what others mean, are done
//! right or refused by name; none is left out in silence.
//! Method: rewrite shards of invented checkpoints.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Invented, QWEN, after, before, made};
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use crate::checkpoint::verified::{Held, change, json};
use crate::checkpoint::{padproof, refused};
use padproof::checkpoint::{Dump, Layer};
use safetensors::Dtype;
use serde_json::{Value, json as value};
use std::path::Path;

const SECOND: &str = "model-00002-of-00003.safetensors";
const NVFP4: &str = "e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild";
const ASKED: Asked = Asked::Align { tp: 2, align: 64 };

/// Stores the second layer as another case has it, and what the config says of it.
fn second_layer(folder: &Path, line: &str, quantised: Option<Value>) {
    let (case, _, logical) = made(line);
    let mut file = before(&case, &logical, QWEN, "model.layers.1.mlp.");
    file.metadata.insert("format".to_owned(), "pt".to_owned());
    std::fs::write(folder.join(SECOND), file.bytes()).unwrap();
    json(&folder.join("model.safetensors.index.json"), |index| {
        index["metadata"] = Value::Null;
        let map = index["weight_map"].as_object_mut().unwrap();
        map.retain(|_, shard| *shard != SECOND);
        for (name, ..) in &file.tensors {
            map.insert(name.clone(), SECOND.into());
        }
    });
    if let Some(entry) = quantised {
        json(&folder.join("config.json"), |config| {
            config["quantization_config"] = entry;
        });
    }
}

fn mixed_precision(second: Value) -> Value {
    value!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "model.layers.0.mlp.experts.0.gate_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.0.mlp.experts*": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.1.mlp.experts*": second}})
}

fn pad_refused(scene: &Scene, asked: &Asked) -> String {
    let (keep, out) = scene.out();
    let error = scene.pad(&out, asked).unwrap_err().to_string();
    let left = std::fs::read_dir(keep.path()).unwrap().count();
    assert!(left == 0 && error.lines().count() == 1, "{error}");
    error
}

#[test]
fn layers_in_other_formats_are_refused_by_number_and_unquantised_ones_padded() {
    let same = "e=2,h=64,i=96,tp=2,fill=wild";
    for (w, what) in [
        ("fp8", "F8_E4M3"),
        ("mxfp4", "weight_scale"),
        ("fp8-channel", "F8_E4M3"),
    ] {
        let scene = Scene::new(Made::new(NVFP4, QWEN));
        second_layer(scene.path(), &format!("{same},w={w}"), None);
        let why = pad_refused(&scene, &ASKED);
        let told = "layer 1 of 2 with experts is not stored as the others, and pad takes nvfp4";
        assert!(why.contains(told) && why.contains(what), "{why}");
    }
    let scene = Scene::new(Made::new(NVFP4, QWEN));
    second_layer(scene.path(), &format!("{same},w=bf16"), None);
    let (_keep, out) = scene.out();
    let padded = scene.padded(&out, &ASKED);
    assert_eq!(padded.certificate.audit.map(|a| a.layers), Some(2));
    assert_eq!(verified(&out).faults, 0);
}

/// Any fault of some layers was said to be another format, and a draft's layer 0 counted as the model's.
#[test]
fn only_other_formats_are_told_by_layers_and_drafts_are_layers_of_their_own() {
    // Narrower, in the format that all layers have.
    let scene = Scene::new(Made::new(NVFP4, QWEN));
    second_layer(scene.path(), "e=2,h=64,i=64,tp=2,fill=wild,w=nvfp4", None);
    let why = pad_refused(&scene, &ASKED);
    assert!(
        why.contains("down_proj.weight`: U8 [64, 32], wanted [64, 96] in elements")
            && !why.contains("not stored as the others"),
        "{why}"
    );
    // Layer 0 is as it should be, a draft's layer 0 is not.
    let scene = Scene::new(Made::new(NVFP4, QWEN));
    let (case, _, logical) = made("e=2,h=64,i=96,tp=2,fill=wild,w=fp8");
    let mut file = before(&case, &logical, QWEN, "mtp.layers.0.mlp.");
    file.metadata.insert("format".to_owned(), "pt".to_owned());
    std::fs::write(scene.path().join("draft.safetensors"), file.bytes()).unwrap();
    json(
        &scene.path().join("model.safetensors.index.json"),
        |index| {
            index["metadata"] = Value::Null;
            for (name, ..) in &file.tensors {
                index["weight_map"][name] = "draft.safetensors".into();
            }
        },
    );
    let why = pad_refused(&scene, &ASKED);
    let told = "layer mtp.layers.0.mlp.experts of 3 with experts is not stored as the others";
    assert!(why.contains(told), "{why}");
}

/// Scales that no channel has were copied whatever their shape: a grid of blocks kept the old width.
#[test]
fn scales_of_another_grid_than_the_whole_tensors_are_refused() {
    let scene = Scene::new(Made::new("e=2,h=64,i=96,tp=2,w=fp8,fill=wild", QWEN));
    // Of a draft's layer, which the checks at the end do not reach.
    change(scene.path(), |tensors| {
        let draft = "mtp.layers.0.mlp.experts.";
        let ours = "model.layers.0.mlp.experts.";
        let more: Vec<Held> = tensors
            .iter()
            .filter(|t| t.name.starts_with(ours))
            .map(|t| {
                let scale = t.name.ends_with("_scale");
                Held {
                    name: t.name.replace(ours, draft),
                    dtype: t.dtype,
                    shape: if scale { vec![3, 2] } else { t.shape.clone() },
                    bytes: if scale { vec![0; 24] } else { t.bytes.clone() },
                }
            })
            .collect();
        tensors.extend(more);
    });
    json(
        &scene.path().join("model.safetensors.index.json"),
        |index| {
            index["metadata"] = Value::Null;
            let map = index["weight_map"].as_object_mut().unwrap();
            let ours: Vec<String> = map
                .keys()
                .filter(|n| n.contains("layers.0.mlp.experts."))
                .cloned()
                .collect();
            for name in ours {
                let draft = name.replace("model.", "mtp.");
                map.insert(draft, "model-00001-of-00003.safetensors".into());
            }
        },
    );
    let why = pad_refused(&scene, &Asked::Align { tp: 2, align: 64 });
    assert!(
        why.contains("mtp.layers.0") && why.contains("wanted [1, 1] scales of fp8"),
        "{why}"
    );
}

/// Every layer was planned in the format that most have.
#[test]
fn an_audit_goes_by_the_format_of_its_layer() {
    let scene = Scene::new(Made::new(NVFP4, QWEN));
    let second = "e=2,h=64,i=96,tp=2,w=fp8,fill=wild,pad=i64";
    let entry = mixed_precision(value!({"quant_algo": "FP8"}));
    second_layer(scene.path(), second, Some(entry));
    for (layer, line) in [
        ("0", "e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild,pad=i64,seed=1"),
        ("1", second),
    ] {
        let (_, plan, logical) = made(line);
        let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
        let dumped = scene.path().join(format!("dump{layer}.safetensors"));
        std::fs::write(&dumped, after(&packed, &[0, 1]).bytes()).unwrap();
        let run = padproof(
            &[
                "audit", "--layout", "pad=i64", "--tp", "2", "--layer", layer,
            ],
            &[scene.path(), &dumped],
        );
        let text = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.code(), Some(0), "layer {layer}: {run:?}");
        assert!(
            text.contains(&format!("layers.{layer}.mlp.experts")),
            "{text}"
        );
    }
}

/// What beside a weight changes what its codes mean, under every maker's name.
const MEANINGS: &[(&str, &[&str])] = &[
    ("AWQ", &["qweight", "scales", "qzeros"]),
    ("GPTQ", &["qweight", "scales", "qzeros", "g_idx"]),
    (
        "compressed-tensors",
        &["weight_packed", "weight_scale", "weight_zero_point"],
    ),
    (
        "permuted groups",
        &["weight_packed", "weight_scale", "weight_g_idx"],
    ),
    (
        "zero points of one expert",
        &["weight", "weight_scale", "qzeros"],
    ),
];

#[test]
fn zero_points_and_permuted_groups_are_refused_by_name() {
    for (maker, names) in MEANINGS {
        let line = "e=2,h=128,i=384,tp=2,w=int4,fill=wild";
        let (case, plan, logical) = made(line);
        let mut file = before(&case, &logical, QWEN, "model.layers.0.mlp.");
        renamed(&mut file, names);
        // The reader of audits.
        let opened = file.open();
        let error = Layer::find(&opened, shape(&plan, QWEN), None).err();
        let error = error.unwrap_or_else(|| panic!("{maker}: read")).to_string();
        let known = ["zero points and permuted groups", "AWQ and GPTQ"];
        assert!(known.iter().any(|k| error.contains(k)), "{maker}: {error}");
        // The reader of paddings.
        let scene = Scene::new(Made::new(line, QWEN));
        let shard = scene.path().join("model-00001-of-00003.safetensors");
        std::fs::write(shard, file.bytes()).unwrap();
        json(
            &scene.path().join("model.safetensors.index.json"),
            |index| {
                index["metadata"] = Value::Null;
                let map = index["weight_map"].as_object_mut().unwrap();
                map.retain(|name, _| !name.contains("layers.0."));
                for (name, ..) in &file.tensors {
                    map.insert(name.clone(), "model-00001-of-00003.safetensors".into());
                }
            },
        );
        let why = pad_refused(&scene, &Asked::Align { tp: 2, align: 128 });
        let known = ["zero points and permuted groups", "AWQ and GPTQ"];
        assert!(known.iter().any(|k| why.contains(k)), "{maker}: {why}");
        assert!(
            why.contains("model.layers.0.mlp.experts.0."),
            "{maker}: {why}"
        );
    }
}

/// Gives each expert's tensors other names, and what lies beside them.
fn renamed(file: &mut Invented, names: &[&str]) {
    let mut more = Vec::new();
    for (name, ..) in &mut file.tensors {
        let (stem, last) = name.rsplit_once('.').unwrap();
        let stem = stem.to_owned();
        match last {
            "weight" => {
                more.extend(names[2..].iter().map(|n| format!("{stem}.{n}")));
                *name = format!("{stem}.{}", names[0]);
            }
            _ => *name = format!("{stem}.{}", names[1]),
        }
    }
    for name in more {
        file.add(name, Dtype::I32, &[4], vec![7; 16]);
    }
}

#[test]
fn a_config_and_a_dump_with_zero_points_are_refused() {
    let line = "e=2,h=128,i=384,tp=2,w=int4,fill=wild,pad=i256,split=floor";
    let (case, plan, logical) = made(line);
    let scene = Scene::new(Made::new("e=2,h=128,i=384,tp=2,w=int4,fill=wild", QWEN));
    let symmetric = |yes: bool| {
        json(&scene.path().join("config.json"), |config| {
            let group = &mut config["quantization_config"]["config_groups"]["group_0"];
            group["weights"]["symmetric"] = yes.into();
        });
    };
    symmetric(false);
    let why = pad_refused(&scene, &Asked::Align { tp: 2, align: 128 });
    assert!(
        why.contains("have zero points, which are not padded"),
        "{why}"
    );
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let mut dumped = after(&packed, &[0, 1]);
    let path = scene.path().join("dump.safetensors");
    std::fs::write(&path, dumped.bytes()).unwrap();
    let run = || {
        padproof(
            &["audit", "--layout", "pad=i256", "--tp", "2", "--layer", "0"],
            &[scene.path(), &path],
        )
    };
    refused(&run(), "have zero points, which are not audited");
    symmetric(true);
    // Groups that are permuted passed where no tensor says so.
    let ordered = |word: Value| {
        json(&scene.path().join("config.json"), |config| {
            config["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"] = word;
        });
    };
    ordered("group".into());
    let why = pad_refused(&scene, &Asked::Align { tp: 2, align: 128 });
    assert!(
        why.contains("are permuted (desc_act, actorder), which are not padded"),
        "{why}"
    );
    refused(
        &run(),
        "are permuted (desc_act, actorder), which are not audited",
    );
    ordered(Value::Null);
    // An engine that permutes nothing keeps an empty index.
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    dumped.add("rank0.w13_weight_g_idx", Dtype::I32, &[2, 0], Vec::new());
    let opened = dumped.open();
    let dump = Dump::find(&opened, None, None, 2).unwrap();
    let found = padproof::audit::audit_files(&plan, &layer, &dump).unwrap();
    assert!(found.clean(), "{:?}", found.first);
    for name in [
        "w13_qzeros",
        "w2_weight_zero_point",
        "w13_g_idx",
        "w13_g_idx_sort_indices",
    ] {
        let mut with = after(&packed, &[0, 1]);
        with.add(format!("rank1.{name}"), Dtype::I32, &[2], vec![0; 8]);
        std::fs::write(&path, with.bytes()).unwrap();
        refused(&run(), name);
    }
}
