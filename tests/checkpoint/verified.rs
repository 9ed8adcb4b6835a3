//! Goal: what is wrong in the files of a padded checkpoint is found, by files alone, and named.
//! Method: change one thing in a padded checkpoint at a time, sometimes with the certificate
//! rewritten to agree; the answers are a snapshot.

use crate::checkpoint::invent::{Family, QWEN};
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use padproof::checkpoint::{Checkpoint, TensorFile};
use padproof::pad::{CERTIFICATE, Certificate, verify};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub(crate) const SHARD: &str = "model-00001-of-00003.safetensors";
const P: &str = "model.layers.0.mlp.experts.";

/// A tensor of a file under change.
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Rewrites a shard with its tensors changed.
pub(crate) fn change(out: &Path, change: impl FnOnce(&mut Vec<Held>)) {
    let path = out.join(SHARD);
    let file = TensorFile::open(&path).unwrap();
    let held = |name: &str| {
        let entry = file.entry(name).unwrap();
        Held {
            name: name.to_owned(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            bytes: file.data(name, 0..entry.bytes).unwrap(),
        }
    };
    let mut tensors: Vec<Held> = file.in_order().into_iter().map(held).collect();
    change(&mut tensors);
    let view = |t: &Held| {
        let bytes: &'static [u8] = Box::leak(t.bytes.clone().into_boxed_slice());
        (
            t.name.clone(),
            TensorView::new(t.dtype, t.shape.clone(), bytes).unwrap(),
        )
    };
    let beside = file.metadata().clone().into_iter().collect();
    let bytes = serialize(tensors.iter().map(view), Some(beside)).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

pub(crate) fn of<'t>(tensors: &'t mut [Held], name: &str) -> &'t mut Held {
    let name = format!("{P}{name}");
    tensors
        .iter_mut()
        .find(|t| t.name == name)
        .unwrap_or_else(|| panic!("{name}"))
}

pub(crate) fn json(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, serde_json::to_vec(&value).unwrap()).unwrap();
}

/// Makes the certificate say that the bytes that are there are those that were written.
pub(crate) fn resealed(out: &Path) {
    json(&out.join(CERTIFICATE), |value| {
        let Ok(checkpoint) = Checkpoint::open(out) else {
            return;
        };
        for note in value["tensors"].as_array_mut().unwrap() {
            let Ok((file, entry)) = checkpoint.entry(note["name"].as_str().unwrap()) else {
                continue;
            };
            let bytes = file
                .data(note["name"].as_str().unwrap(), 0..entry.bytes)
                .unwrap();
            if note["output"].is_object() {
                note["output"]["blake3"] = blake3::hash(&bytes).to_hex().as_str().into();
            }
        }
    });
    if let Ok(certificate) = Certificate::read(out) {
        let sealed = serde_json::to_vec(&certificate.sealed()).unwrap();
        std::fs::write(out.join(CERTIFICATE), sealed).unwrap();
    }
}

type Step = (&'static str, &'static dyn Fn(&Path));

/// Rows of a matrix.
fn rows(t: &mut Held) -> (usize, &mut [u8]) {
    let row = t.bytes.len() / t.shape[0];
    (row, &mut t.bytes)
}

/// What a faulty loader or writer would have left, and what befalls files.
const FAULTS: &[Step] = &[
    ("nothing", &|_| {}),
    ("a dirty pad row in up", &|out| {
        change(out, |t| {
            let (row, bytes) = rows(of(t, "1.up_proj.weight"));
            let at = bytes.len() - row;
            bytes[at] = 1;
        });
    }),
    ("a dirty pad column in down", &|out| {
        change(out, |t| {
            let (row, bytes) = rows(of(t, "0.down_proj.weight"));
            bytes[row - 1] = 0x11;
        });
    }),
    ("minus zero pads (0x88)", &|out| {
        change(out, |t| {
            let (row, bytes) = rows(of(t, "0.up_proj.weight"));
            let at = bytes.len() - row;
            bytes[at..].fill(0x88);
        });
    }),
    ("a scale pad of 255", &|out| {
        change(out, |t| {
            *of(t, "0.up_proj.weight_scale").bytes.last_mut().unwrap() = 255
        });
    }),
    ("a scale pad of 0", &|out| {
        change(out, |t| {
            *of(t, "0.up_proj.weight_scale").bytes.last_mut().unwrap() = 0
        });
    }),
    ("an element's bit", &|out| {
        change(out, |t| of(t, "2.gate_proj.weight").bytes[0] ^= 1);
    }),
    ("a scale's bit", &|out| {
        change(out, |t| of(t, "2.gate_proj.weight_scale").bytes[0] ^= 1);
    }),
    ("gate and up swapped", &|out| {
        change(out, |t| {
            let gate = of(t, "0.gate_proj.weight").bytes.clone();
            let up = std::mem::replace(&mut of(t, "0.up_proj.weight").bytes, gate);
            of(t, "0.gate_proj.weight").bytes = up;
        });
    }),
    ("nibbles swapped", &|out| {
        change(out, |t| {
            of(t, "0.down_proj.weight")
                .bytes
                .iter_mut()
                .for_each(|b| *b = b.rotate_left(4));
        });
    }),
    ("padding at the front", &|out| {
        change(out, |t| {
            let (row, bytes) = rows(of(t, "0.up_proj.weight"));
            bytes.rotate_right(32 * row);
        });
    }),
    ("rows at the wrong stride", &|out| {
        change(out, |t| {
            let bytes = &mut of(t, "0.down_proj.weight").bytes;
            // 48 bytes of elements in each row of 64, laid end to end.
            let tight: Vec<u8> = bytes
                .chunks(64)
                .flat_map(|row| row[..48].to_vec())
                .collect();
            bytes.fill(0);
            bytes[..tight.len()].copy_from_slice(&tight);
        });
    }),
    ("scales not padded", &|out| {
        change(out, |t| {
            let scale = of(t, "0.up_proj.weight_scale");
            scale.shape[0] = 96;
            scale.bytes.truncate(96 * scale.shape[1]);
        });
    }),
    ("one expert left as it was", &|out| {
        change(out, |t| {
            let up = of(t, "0.up_proj.weight");
            up.shape[0] = 96;
            up.bytes.truncate(96 * up.shape[1]);
        });
    }),
    ("transposed", &|out| {
        change(out, |t| of(t, "0.up_proj.weight").shape.reverse());
    }),
    ("another type", &|out| {
        change(out, |t| of(t, "0.up_proj.weight").dtype = Dtype::I8);
    }),
    ("experts swapped", &|out| {
        change(out, |t| {
            let one = of(t, "1.down_proj.weight").bytes.clone();
            let zero = std::mem::replace(&mut of(t, "0.down_proj.weight").bytes, one);
            of(t, "1.down_proj.weight").bytes = zero;
        });
    }),
    ("another tensor's bit", &|out| {
        change(out, |t| {
            let norm = t
                .iter_mut()
                .find(|t| t.name.ends_with("layernorm.weight"))
                .unwrap();
            norm.bytes[0] ^= 1;
        });
    }),
    ("a tensor gone", &|out| {
        change(out, |t| t.retain(|t| !t.name.ends_with("layernorm.weight")));
        json(&out.join("model.safetensors.index.json"), |v| {
            let map = v["weight_map"].as_object_mut().unwrap();
            map.remove("model.layers.0.input_layernorm.weight");
        });
    }),
    ("a tensor too many", &|out| {
        change(out, |t| {
            t.push(Held {
                name: "more".to_owned(),
                dtype: Dtype::U8,
                shape: vec![2],
                bytes: vec![0; 2],
            });
        });
    }),
    ("the config's old width", &|out| {
        json(&out.join("config.json"), |v| {
            v["moe_intermediate_size"] = 96.into()
        });
    }),
    ("another width before, says the config", &|out| {
        json(&out.join("config.json"), |v| {
            v["padproof"]["before"]["moe_intermediate_size"] = 64.into()
        });
    }),
    ("another total size", &|out| {
        json(&out.join("model.safetensors.index.json"), |v| {
            v["metadata"]["total_size"] = 5.into()
        });
    }),
    ("an index that is no JSON", &|out| {
        std::fs::write(out.join("model.safetensors.index.json"), "{").unwrap()
    }),
    ("an index that is no text", &|out| {
        std::fs::write(out.join("model.safetensors.index.json"), [255; 9]).unwrap()
    }),
    ("the index gone", &|out| {
        std::fs::remove_file(out.join("model.safetensors.index.json")).unwrap()
    }),
    ("a tensor in another shard, says the index", &|out| {
        json(&out.join("model.safetensors.index.json"), |v| {
            v["weight_map"]["lm_head.weight"] = SHARD.into()
        });
    }),
    ("a shard that is not there, says the index", &|out| {
        json(&out.join("model.safetensors.index.json"), |v| {
            v["weight_map"]["more"] = "more.safetensors".into()
        });
    }),
    ("a tensor that is not there, says the index", &|out| {
        json(&out.join("model.safetensors.index.json"), |v| {
            v["weight_map"]["more"] = SHARD.into()
        });
    }),
    ("a shard outside, says the index", &|out| {
        json(&out.join("model.safetensors.index.json"), |v| {
            v["weight_map"]["lm_head.weight"] = "../x".into()
        });
    }),
    ("a shard gone", &|out| {
        std::fs::remove_file(out.join(SHARD)).unwrap()
    }),
    ("a shard that was cut short", &|out| {
        let bytes = std::fs::read(out.join(SHARD)).unwrap();
        std::fs::write(out.join(SHARD), &bytes[..bytes.len() - 1]).unwrap();
    }),
    ("a shard that is a folder", &|out| {
        std::fs::remove_file(out.join(SHARD)).unwrap();
        std::fs::create_dir(out.join(SHARD)).unwrap();
    }),
    ("a tensor in two shards", &|out| {
        change(out, |t| {
            t.push(Held {
                name: "lm_head.weight".to_owned(),
                dtype: Dtype::U8,
                shape: vec![2],
                bytes: vec![0; 2],
            });
        });
    }),
    ("the config gone", &|out| {
        std::fs::remove_file(out.join("config.json")).unwrap()
    }),
    ("a link that leads nowhere", &|out| {
        std::os::unix::fs::symlink("nowhere", out.join("link")).unwrap();
    }),
    ("a tokenizer edited", &|out| {
        std::fs::write(out.join("tokenizer.json"), "{}").unwrap()
    }),
    ("a file gone", &|out| {
        std::fs::remove_file(out.join("extra/notes.txt")).unwrap()
    }),
    ("a file too many", &|out| {
        std::fs::write(out.join("pytorch_model.bin"), "x").unwrap()
    }),
    ("a certificate of other sizes", &|out| {
        json(&out.join(CERTIFICATE), |v| {
            v["plan"]["routed"]["width"]["from"] = 64.into();
            v["plan"]["routed"]["width"]["pieces"] = serde_json::json!([[0, 64], [64, 0]]);
        });
    }),
];

/// What is left when a fault is planted: the scene's folder is kept for links.
pub(crate) fn answer(out: &Path) -> String {
    match verify(out, &mut |_| {}) {
        Err(error) => format!("refused: {error}"),
        Ok(found) if found.faults == 0 => "holds".to_owned(),
        Ok(found) => {
            let first = &found.first[0];
            let mut kinds: Vec<&str> = found.first.iter().map(|f| f.kind).collect();
            kinds.dedup();
            format!(
                "{} ({}): {}: {}",
                kinds.join(", "),
                found.faults,
                first.place.replace(P, ""),
                first.why
            )
        }
    }
    .replace(out.to_str().unwrap(), "OUT")
}

pub(crate) fn copied(from: &Path) -> (tempfile::TempDir, PathBuf) {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = to.join(path.file_name().unwrap());
            match path.is_dir() {
                true => copy(&path, &to),
                false => drop(std::fs::copy(&path, to).unwrap()),
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    copy(from, &out);
    (folder, out)
}

#[test]
fn every_fault_in_files_is_found_and_named() {
    let scene = Scene::new(Made::new("e=3,h=64,i=96,tp=2,w=mxfp4,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align: 64 });
    let mut matrix = String::new();
    for (name, plant) in FAULTS {
        let (_folder, out) = copied(&out);
        plant(&out);
        let plain = answer(&out);
        assert_eq!(plain == "holds", *name == "nothing", "{name}: {plain}");
        resealed(&out);
        let sealed = answer(&out);
        assert_eq!(
            sealed == "holds",
            *name == "nothing",
            "{name}, sealed again: {sealed}"
        );
        // What the system can read is never an error of `verify`.
        let refused = |text: &str| text.starts_with("refused");
        assert!(
            !refused(&plain) && !refused(&sealed),
            "{name}: {plain}, {sealed}"
        );
        writeln!(matrix, "{name}\n    {plain}").unwrap();
        if sealed != plain {
            writeln!(matrix, "    with digests made anew: {sealed}").unwrap();
        }
    }
    crate::checkpoint::snapshot("verify@faults", &matrix);
}

#[test]
fn any_changed_byte_of_a_padded_tensor_is_found() {
    let lines = [
        Made::new("e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild", QWEN),
        Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", Family::Transposed),
        Made::new(
            "e=2,h=64,i=96,tp=2,act=swigluoai,w=mxfp4,bias=both,fill=wild",
            Family::GptOss,
        ),
    ];
    for (n, made) in (0..).zip(lines) {
        let scene = Scene::new(made);
        let (_keep, out) = scene.out();
        scene.padded(&out, &Asked::Align { tp: 2, align: 64 });
        let (_folder, out) = copied(&out);
        let path = out.join(SHARD);
        let whole = std::fs::read(&path).unwrap();
        let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize + 8;
        for draw in 0..40 {
            let at = header + padproof::rng::value(1, n, draw) as usize % (whole.len() - header);
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (draw % 8);
            std::fs::write(&path, bytes).unwrap();
            assert!(verified(&out).faults > 0, "{}: byte {at}", made.line);
        }
        std::fs::write(&path, whole).unwrap();
        assert_eq!(verified(&out).faults, 0);
    }
}

/// Four bits are no unit that bytes are cut into: padding divided by it.
#[test]
fn block_scales_of_half_bytes_are_refused() {
    let scene = Scene::new(Made::new(
        "e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild",
        QWEN,
    ));
    let name = "model.layers.0.self_attn.o_proj.weight_scale_inv";
    change(scene.path(), |all| {
        let scale = all.iter_mut().find(|t| t.name == name).unwrap();
        (scale.dtype, scale.bytes) = (Dtype::F4, vec![0x22]);
    });
    let (_keep, out) = scene.out();
    let id = "vllm.triton.fp8-block.refined";
    let error = scene.pad(&out, &Asked::Rule { tp: 2, id }).unwrap_err();
    let error = error.to_string();
    assert!(error.contains(name) && error.contains("F4"), "{error}");
}
