//! Goal: what is stored in another type or the other way round than most is read as what it is, and what is
//! stored twice is not.
//! Method: relabelled headers in shards of invented checkpoints, padded, audited and verified.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Family, QWEN, after, before, made};
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use crate::checkpoint::verified::{Held, SHARD, change, json};
use crate::checkpoint::{padproof, refused};
use padproof::audit::audit_files;
use padproof::checkpoint::{Checkpoint, Dump, Layer, LayerShape};
use padproof::layout::pack_layer;
use safetensors::Dtype;

/// bf16 was wanted, in words that say the file is wrong.
#[test]
fn int4_scales_are_of_the_models_own_type() {
    let line = "e=2,h=128,i=384,tp=2,w=int4,fill=wild";
    let asked = Asked::Align { tp: 2, align: 128 };
    for (stored, wide) in [(Dtype::F16, 2), (Dtype::F32, 4)] {
        let scene = Scene::new(Made {
            ints: true,
            ..Made::new(line, QWEN)
        });
        change(scene.path(), |tensors| {
            for scale in tensors
                .iter_mut()
                .filter(|t| t.name.ends_with("weight_scale"))
            {
                scale.dtype = stored;
                // 1.0 and 1 + 2^-10, which bf16 has not.
                let codes: [&[u8]; 2] = match wide {
                    2 => [&[0x00, 0x3c], &[0x01, 0x3c]],
                    _ => [&[0, 0, 0x80, 0x3f], &[0, 0x20, 0x80, 0x3f]],
                };
                let many = scale.bytes.len() / 2;
                scale.bytes = (0..many).flat_map(|n| codes[n % 2].to_vec()).collect();
            }
        });
        let (_keep, out) = scene.out();
        let padded = scene.padded(&out, &asked);
        let found = &padded.certificate.differential;
        assert!(
            found.iter().all(|d| d.verdict.starts_with("pass")),
            "{found:?}"
        );
        assert_eq!(padded.certificate.audit.map(|a| a.layers), Some(2));
        assert_eq!(verified(&out).faults, 0);
        // Padding scales are 1.0 in the file's own type.
        let after = Checkpoint::open(&out).unwrap();
        let name = "model.layers.0.mlp.experts.0.up_proj.weight_scale";
        let (_, entry) = after.entry(name).unwrap();
        assert_eq!(entry.shape, [512, 1]);
        let last = after
            .data(name, entry.bytes - wide as u64..entry.bytes)
            .unwrap();
        let one = if wide == 2 {
            vec![0x00, 0x3c]
        } else {
            vec![0, 0, 0x80, 0x3f]
        };
        assert_eq!(last, one);
        // A dump of the checkpoint's own type, and one that the engine cast.
        let dumped = |dtype: Dtype, bytes: &dyn Fn(&[u8]) -> Vec<u8>| {
            let (_, plan, logical) = made(&format!("{line},seed=1,pad=i128"));
            let mut file = after_of(scene.path(), &plan, &logical, stored);
            for scale in file
                .tensors
                .iter_mut()
                .filter(|t| t.0.ends_with("weight_scale"))
            {
                (scale.1, scale.3) = (dtype, bytes(&scale.3));
                scale.2 = vec![scale.3.len() / dtype.bitsize() * 8];
            }
            let path = scene.path().join("dump.st");
            std::fs::write(&path, file.bytes()).unwrap();
            let given = ["audit", "--layout", "pad=i128", "--tp", "2", "--layer", "0"];
            padproof(&given, &[scene.path(), &path])
        };
        let run = dumped(stored, &<[u8]>::to_vec);
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        // One that the engine cast: values of f32 show it, codes of f16 mean nothing.
        let cast = dumped(Dtype::BF16, &|bytes| vec![0x80; bytes.len() * 2 / wide]);
        match stored {
            Dtype::F16 => refused(
                &cast,
                "BF16 where f16 is wanted, as the checkpoint stores it",
            ),
            _ => assert_eq!(cast.status.code(), Some(1), "{cast:?}"),
        }
    }
}

/// The padded parameters of the checkpoint's first layer, with the scales that are stored.
fn after_of(
    folder: &std::path::Path,
    plan: &padproof::plan::Plan,
    logical: &padproof::tensor::Logical,
    stored: Dtype,
) -> crate::checkpoint::invent::Invented {
    let scale = match stored {
        Dtype::F16 => padproof::num::Dtype::F16,
        _ => padproof::num::Dtype::F32,
    };
    let checkpoint = Checkpoint::open(folder).unwrap();
    let shape = LayerShape {
        scale: Some(scale),
        ..shape(plan, QWEN)
    };
    let layer = Layer::find(&checkpoint, shape, None).unwrap();
    let read = layer.read(0..2).unwrap();
    let scaled = padproof::tensor::Logical {
        w13_scale: read.w13_scale,
        w2_scale: read.w2_scale,
        ..logical.clone()
    };
    let packed = pack_layer(&plan.clone().with_scales_of(scale), &scaled).unwrap();
    after(&packed, &[0, 1])
}

/// Scales of [experts, inputs, outputs] lie as a row, which was refused.
#[test]
fn scales_of_channels_lie_as_a_row_where_weights_are_transposed() {
    for line in [
        "e=3,h=64,i=44,tp=2,w=fp8-channel,fill=wild",
        // Where 2 i = h only the second projection says which axis is which.
        "e=3,h=64,i=32,tp=2,w=fp8-channel,fill=wild",
        "e=3,h=64,i=44,tp=2,w=int8,fill=wild",
        // One block along an axis.
        "e=3,h=128,i=256,tp=2,w=fp8-block,fill=wild",
        "e=3,h=128,i=128,tp=1,w=fp8-block,fill=wild",
    ] {
        let scene = Scene::new(Made::new(line, Family::Transposed));
        let turn = |shape: &mut Vec<usize>| shape[1..].reverse();
        change(scene.path(), |tensors| {
            for scale in tensors.iter_mut().filter(|t| t.name.ends_with("_scale")) {
                turn(&mut scale.shape);
                let (rows, cols) = (scale.shape[2], scale.shape[1]);
                assert!(
                    rows == 1 || cols == 1,
                    "of a line the order of bytes is the same"
                );
            }
        });
        let (case, _, _) = made(line);
        let (_keep, out) = scene.out();
        let align = case.i.next_multiple_of(128) + 128;
        let padded = scene.padded(&out, &Asked::Align { tp: case.tp, align });
        assert_eq!(
            padded.certificate.audit.map(|a| a.layers),
            Some(2),
            "{line}"
        );
        assert_eq!(verified(&out).faults, 0, "{line}");
        let after = Checkpoint::open(&out).unwrap();
        let prefix = "model.layers.0.mlp.experts.gate_up_proj";
        let of = |name: &str| {
            after
                .entry(&format!("{prefix}{name}"))
                .unwrap()
                .1
                .shape
                .clone()
        };
        assert_eq!(of("")[1], case.h as usize, "{line}");
        assert_eq!(
            of("_scale")[1],
            usize::max(
                1,
                case.h as usize / 128 * usize::from(line.contains("block"))
            ),
            "{line}"
        );
    }
}

/// Without a gate, and as many inputs as outputs, the scales' shape alone says which axis is which.
#[test]
fn square_experts_without_a_gate_are_settled_by_their_scales() {
    for (w, turned) in [
        ("fp8-channel", false),
        ("fp8-channel", true),
        ("mxfp8", false),
    ] {
        let line = &format!("e=2,h=64,i=64,tp=2,act=relu2,w={w},fill=wild,pad=i64");
        let (case, plan, logical) = made(line);
        let family = if turned {
            Family::Transposed
        } else {
            Family::Fused
        };
        let mut file = before(&case, &logical, family, "m.layers.3.");
        for tensor in &mut file.tensors {
            tensor.0 = tensor.0.replace("gate_up_proj", "up_proj");
            if turned && tensor.0.ends_with("_scale") {
                tensor.2[1..].reverse();
            }
        }
        let file = file.open();
        let layer = Layer::find(&file, shape(&plan, family), None);
        let layer = layer.unwrap_or_else(|e| panic!("{line} {turned}: {e}"));
        let dumped = after(&pack_layer(&plan, &logical).unwrap(), &[0, 1]).open();
        let dump = Dump::find(&dumped, None, None, 2).unwrap();
        let found = audit_files(&plan, &layer, &dump).unwrap();
        assert!(found.clean(), "{line} {turned}: {:?}", found.first);
    }
}

/// Both were padded, and the checks at the end looked at one of them.
#[test]
fn weights_that_are_there_twice_are_refused() {
    let line = "e=2,h=32,i=44,tp=2,w=bf16,fill=wild";
    for (name, shape_of) in [
        ("gate_up_proj", vec![2, 88, 32]),
        ("0.w1.weight", vec![44, 32]),
        ("1.up_proj.weight_packed", vec![44, 32]),
    ] {
        let scene = Scene::new(Made::new(line, QWEN));
        let name = format!("model.layers.0.mlp.experts.{name}");
        change(scene.path(), |tensors| {
            let bytes = vec![0; 2 * shape_of.iter().product::<usize>()];
            tensors.push(Held {
                name: name.clone(),
                dtype: Dtype::BF16,
                shape: shape_of.clone(),
                bytes,
            });
        });
        let index = scene.path().join("model.safetensors.index.json");
        json(&index, |index| {
            index["metadata"] = serde_json::Value::Null;
            index["weight_map"][&name] = SHARD.into();
        });
        let told = format!("`{name}`: the experts have their weights twice");
        let (_keep, out) = scene.out();
        let asked = Asked::Align { tp: 2, align: 32 };
        let why = scene.pad(&out, &asked).unwrap_err().to_string();
        assert!(why.contains(&told), "{why}");
        let (_, plan, _) = made(line);
        let checkpoint = Checkpoint::open(scene.path()).unwrap();
        let error = Layer::find(&checkpoint, shape(&plan, QWEN), None).err();
        assert!(error.unwrap().to_string().contains(&told), "{name}");
    }
}
