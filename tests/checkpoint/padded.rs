//! Goal: every family in every quantisation is padded to what a plain loader cuts, and verified.
//! Method: invented checkpoints; the result is cut over the ranks here, by plain slices, and held
//! against the input by the audit, whose maps are not what wrote it.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Family, Invented, MIXTRAL, QWEN, UNGATED, made};
use crate::checkpoint::scene::{Asked, Made, Scene, verified};
use padproof::audit::{audit_files, layer_shape};
use padproof::checkpoint::{Checkpoint, Dump, Layer, LayerId, LayerShape};
use padproof::layout::logical_of;
use padproof::pad::{Outcome, Padded};
use padproof::plan::{Role, plan};
use padproof::tensor::Logical;
use safetensors::Dtype;
use std::path::Path;

const FC: Family = Family::Each(["fc1", "fc3", "fc2"]);

/// Some elements of an expert's matrix, packed two a byte where codes are nibbles.
fn cut(
    tensor: &padproof::tensor::Tensor,
    rows: std::ops::Range<usize>,
    cols: std::ops::Range<usize>,
    nibbles: bool,
) -> Vec<u8> {
    let all = tensor.shape()[2];
    let wide = tensor.bits() / 8;
    let row =
        |r: usize| &tensor.bytes()[(r * all + cols.start) * wide..(r * all + cols.end) * wide];
    let codes: Vec<u8> = rows.flat_map(|r| row(r).to_vec()).collect();
    match nibbles {
        true => codes.chunks(2).map(|two| two[0] | two[1] << 4).collect(),
        false => codes,
    }
}

/// One rank's parameters as a loader that knows no padding cuts them: equal shares.
fn plainly_cut(
    logical: &[Logical],
    halves: usize,
    tp: usize,
    rank: usize,
    nibbles: bool,
    file: &mut Invented,
) {
    for role in Role::ALL {
        let mut bytes = Vec::new();
        let mut wide = 1;
        for expert in logical {
            let Some(tensor) = logical_of(expert, role) else {
                continue;
            };
            let [rows, cols] = [
                tensor.shape()[1],
                tensor.shape().get(2).copied().unwrap_or(1),
            ];
            let weight = matches!(role, Role::W13 | Role::W2);
            wide = tensor.bits() / 8;
            let share = |n: usize| (rank * n / tp)..((rank + 1) * n / tp);
            if role == Role::W2 || role == Role::W2Scale && cols > 1 {
                bytes.extend(cut(tensor, 0..rows, share(cols), weight && nibbles));
            } else if role == Role::W2Bias && rank > 0 {
                // Added on the first rank alone.
                bytes.extend(vec![0; tensor.bytes().len()]);
            } else if role.is_second() || rows == halves && role != Role::W13 {
                bytes.extend_from_slice(tensor.bytes());
            } else {
                let per = rows / halves;
                for half in 0..halves {
                    let of = share(per);
                    bytes.extend(cut(
                        tensor,
                        half * per + of.start..half * per + of.end,
                        0..cols,
                        weight && nibbles,
                    ));
                }
            }
        }
        if !bytes.is_empty() {
            let dtype = [Dtype::U8, Dtype::U8, Dtype::U16, Dtype::U8, Dtype::F32][wide];
            let name = format!("rank{rank}.{}", crate::checkpoint::invent::parameter(role));
            let len = bytes.len() / wide;
            file.add(name, dtype, &[len], bytes);
        }
    }
}

/// Pads, verifies, and audits the result under the scheme that a plan of the line spells.
fn holds(made_of: Made, asked: Asked, scheme: &str) -> Padded {
    let scene = Scene::new(made_of);
    let (_keep, out) = scene.out();
    let told = format!("{} {:?}", made_of.line, made_of.family);
    let padded = match scene.pad(&out, &asked) {
        Ok(Outcome::Padded(padded)) => *padded,
        Ok(Outcome::Nothing(sentence)) => panic!("{told}: {sentence}"),
        Err(error) => panic!("{told}: {error}"),
    };
    let found = verified(&out);
    assert_eq!((found.faults, &found.first), (0, &Vec::new()), "{told}");
    let audit = padded
        .certificate
        .audit
        .as_ref()
        .unwrap_or_else(|| panic!("{told}: not audited"));
    assert!(
        audit.layers == 2 && (audit.pads > 0) != padded.certificate.plan.routed.width.same(),
        "{told}: {audit:?}"
    );
    for note in &padded.certificate.differential {
        assert!(
            note.verdict.contains("equal bits"),
            "{told}: {}",
            note.verdict
        );
    }
    let shared = padded.certificate.plan.shared.as_ref();
    let kinds = 1 + usize::from(shared.is_some_and(|part| !part.width.same()));
    assert_eq!(padded.certificate.differential.len(), 2 * kinds);
    if padded.certificate.plan.routed.blocks.is_none() {
        audited(&scene, made_of, &out, scheme, &padded);
    }
    padded
}

fn audited(scene: &Scene, made_of: Made, out: &Path, scheme: &str, padded: &Padded) {
    let width = &padded.certificate.plan.routed.width;
    let line = format!("{},pad=i{},split={scheme}", made_of.line, width.slot);
    let (case, _, _) = made(&line);
    let plan = plan(&case).unwrap();
    assert_eq!(plan.width_padded, width.slot, "{line}");
    let (before, after) = (
        Checkpoint::open(scene.path()).unwrap(),
        Checkpoint::open(out).unwrap(),
    );
    let old = shape(&plan, made_of.family);
    let new = LayerShape {
        intermediate: width.to as usize,
        ..layer_shape(&plan, made_of.family == Family::GptOss).unwrap()
    };
    for number in 0..2 {
        let layer = Layer::find(&before, old, Some(LayerId::Model(number))).unwrap();
        let result = Layer::find(&after, new, Some(LayerId::Model(number))).unwrap();
        let experts: Vec<Logical> = (0..old.experts)
            .map(|e| result.read(e..e + 1).unwrap())
            .collect();
        let mut file = Invented::default();
        let (halves, nibbles) = (plan.dims.halves as usize, old.weight.element().bits() == 4);
        for rank in 0..case.tp as usize {
            plainly_cut(&experts, halves, case.tp as usize, rank, nibbles, &mut file);
        }
        let dumped = file.open();
        let dump = Dump::find(&dumped, None, None, plan.ranks.len()).unwrap();
        let found = audit_files(&plan, &layer, &dump).unwrap();
        assert!(
            found.clean(),
            "{line} {:?}: {:?}",
            made_of.family,
            found.first
        );
        assert_eq!(found.pads > 0, !width.same());
    }
}

/// Every family in every quantisation, and what a rank's width must be a multiple of.
pub(crate) fn everything() -> Vec<(Made, u64)> {
    let each: &[(&str, u64)] = &[
        ("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", 16),
        ("e=2,h=64,i=96,tp=2,w=nvfp4,bias=both,fill=wild", 64),
        ("e=2,h=32,i=44,tp=2,w=f16,fill=wild", 32),
        ("e=2,h=32,i=44,tp=2,w=f32,fill=wild", 3),
        ("e=2,h=64,i=44,tp=2,w=fp8,fill=wild", 16),
        ("e=2,h=64,i=44,tp=2,w=fp8-channel,fill=wild", 16),
        ("e=2,h=192,i=320,tp=2,w=fp8-block,fill=wild", 64),
        ("e=2,h=64,i=96,tp=2,w=mxfp8,fill=wild", 64),
        ("e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild", 64),
        ("e=2,h=64,i=96,tp=2,w=mxfp4,fill=wild", 64),
        ("e=2,h=128,i=384,tp=2,w=int4,fill=wild", 128),
        ("e=2,h=64,i=96,tp=2,w=int4-g32,fill=wild", 64),
        ("e=2,h=64,i=44,tp=2,w=int8,fill=wild", 16),
    ];
    let mut all = Vec::new();
    for &(line, align) in each {
        all.extend([QWEN, MIXTRAL, FC].map(|family| (Made::new(line, family), align)));
    }
    for line in [
        "e=3,h=32,i=44,tp=2,w=bf16,fill=wild",
        "e=3,h=32,i=40,tp=2,w=f32,fill=wild",
        "e=3,h=32,i=40,tp=2,w=bf16,bias=both,fill=wild",
    ] {
        all.extend([Family::Fused, Family::Transposed].map(|family| (Made::new(line, family), 32)));
    }
    let mut more = |line, family| all.push((Made::new(line, family), 64));
    for line in [
        "e=3,h=64,i=96,tp=2,w=mxfp4,fill=wild",
        "e=3,h=64,i=96,tp=2,w=nvfp4,fill=wild",
        "e=3,h=256,i=384,tp=2,w=fp8-block,fill=wild",
        "e=3,h=64,i=96,tp=2,w=int4-g32,fill=wild",
        "e=3,h=64,i=44,tp=2,w=f16,fill=wild",
        "e=3,h=64,i=44,tp=2,w=fp8,fill=wild",
        "e=3,h=64,i=44,tp=2,w=fp8-channel,fill=wild",
        "e=3,h=64,i=96,tp=2,w=mxfp8,fill=wild",
        "e=3,h=64,i=44,tp=2,w=int8,fill=wild",
    ] {
        more(line, Family::Fused);
    }
    for line in [
        "e=2,h=32,i=40,tp=2,w=f16,fill=wild",
        "e=2,h=32,i=40,tp=2,w=fp8,fill=wild",
        "e=2,h=32,i=40,tp=2,w=fp8-channel,fill=wild",
        "e=2,h=32,i=40,tp=2,w=int8,fill=wild",
    ] {
        more(line, Family::Transposed);
    }
    for line in [
        "e=2,h=64,i=48,tp=2,act=relu2,w=nvfp4,fill=wild",
        "e=2,h=64,i=44,tp=2,act=relu2,w=fp8,fill=wild",
        "e=2,h=64,i=44,tp=2,act=relu2,w=bf16,fill=wild",
        "e=2,h=64,i=44,tp=2,act=relu2,w=f16,fill=wild",
        "e=2,h=64,i=44,tp=2,act=relu2,w=f32,fill=wild",
        "e=2,h=64,i=44,tp=2,act=relu2,w=fp8-channel,fill=wild",
        "e=2,h=192,i=320,tp=2,act=relu2,w=fp8-block,fill=wild",
        "e=2,h=64,i=96,tp=2,act=relu2,w=mxfp8,fill=wild",
        "e=2,h=64,i=96,tp=2,act=relu2,w=mxfp4,fill=wild",
        "e=2,h=64,i=96,tp=2,act=relu2,w=int4-g32,fill=wild",
        "e=2,h=64,i=44,tp=2,act=relu2,w=int8,fill=wild",
    ] {
        more(line, UNGATED);
    }
    let oai = "e=3,h=64,i=96,tp=2,act=swigluoai,w=mxfp4,bias=both,fill=wild";
    more(oai, Family::GptOss);
    more("e=2,h=64,i=96,tp=2,w=nvfp4,fill=exact", Family::Compressed);
    let words = Made {
        ints: true,
        ..Made::new("e=2,h=64,i=96,tp=2,w=int4-g32,fill=wild", QWEN)
    };
    let native = |native, line| Made {
        native,
        ..Made::new(line, QWEN)
    };
    all.extend([
        (words, 64),
        (native(true, "e=2,h=64,i=96,tp=2,w=mxfp4,fill=wild"), 64),
        (native(false, "e=2,h=64,i=96,tp=2,w=mxfp8,fill=wild"), 64),
    ]);
    all
}

#[test]
fn every_family_in_every_quantisation() {
    for (made_of, align) in everything() {
        holds(made_of, Asked::Align { tp: 2, align }, "prepad");
    }
}

#[test]
fn a_rule_pads_each_ranks_tail_where_its_loader_would() {
    let rule = |id| Asked::Rule { tp: 2, id };
    let plain = "e=3,h=32,i=88,tp=2,w=bf16,fill=wild";
    let padded = holds(
        Made::new(plain, QWEN),
        rule("sglang.flashinfer_trtllm.bf16"),
        "stride",
    );
    assert_eq!(padded.certificate.plan.routed.width.to, 256);
    let fp8 = "e=2,h=64,i=44,tp=2,w=fp8,fill=wild";
    let padded = holds(
        Made::new(fp8, QWEN),
        rule("sglang.flashinfer_cutlass.fp8"),
        "floor",
    );
    let width = &padded.certificate.plan.routed.width;
    assert_eq!((width.slot, &width.pieces), (32, &vec![(0, 22), (22, 22)]));
}

#[test]
fn scales_are_repeated_on_a_finer_grid_where_the_rule_says_so() {
    let made = Made::new("e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild", QWEN);
    let asked = Asked::Rule {
        tp: 2,
        id: "vllm.triton.fp8-block.refined",
    };
    let padded = holds(made, asked, "floor");
    let plan = &padded.certificate.plan;
    assert!(plan.routed.width.same(), "{plan:?}");
    let scene = Scene::new(made);
    let (_keep, out) = scene.out();
    scene.padded(&out, &asked);
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    assert!(
        config.contains("\"weight_block_size\": [64,64]"),
        "{config}"
    );
    // Every FP8 weight of the model follows, attention's too.
    let (before, after) = (
        Checkpoint::open(scene.path()).unwrap(),
        Checkpoint::open(&out).unwrap(),
    );
    let name = "model.layers.0.self_attn.o_proj.weight_scale_inv";
    assert_eq!(before.entry(name).unwrap().1.shape, [1, 2]);
    assert_eq!(after.entry(name).unwrap().1.shape, [2, 3]);
    let data = |c: &Checkpoint, n: u64| c.data(name, 0..n).unwrap();
    let (old, new) = (data(&before, 8), data(&after, 24));
    let row = [&old[..4], &old[..4], &old[4..]].concat();
    assert_eq!(new, [row.clone(), row].concat());
    // Every element finds the scale that it had.
    for (projection, rows, cols) in [("up_proj", 384, 256), ("down_proj", 256, 384)] {
        let name = format!("model.layers.1.mlp.experts.1.{projection}.weight_scale_inv");
        let all = |c: &Checkpoint| {
            let bytes = c.entry(&name).unwrap().1.bytes;
            let bytes = c.data(&name, 0..bytes).unwrap();
            let values = bytes.as_chunks::<4>().0.iter();
            values.map(|v| f32::from_le_bytes(*v)).collect::<Vec<f32>>()
        };
        let (old, new) = (all(&before), all(&after));
        for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
            assert_eq!(
                new[r / 64 * (cols / 64) + c / 64],
                old[r / 128 * (cols / 128) + c / 128]
            );
        }
    }
}

/// 384 over four ranks: 96 begins inside a group of 128, and 32 divides both.
#[test]
fn int4_groups_are_repeated_on_a_finer_grid_where_the_rule_says_so() {
    let made = Made {
        ints: true,
        ..Made::new("e=2,h=256,i=384,tp=4,w=int4,fill=wild", QWEN)
    };
    let id = "sglang.moe_wna16.int4";
    let padded = holds(made, Asked::Rule { tp: 4, id }, "floor");
    let blocks = padded.certificate.plan.routed.blocks.unwrap();
    assert_eq!((blocks.from, blocks.to), (128, 32));
    let scene = Scene::new(made);
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Rule { tp: 4, id });
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    assert!(config.contains("\"group_size\": 32"), "{config}");
    let (before, after) = (
        Checkpoint::open(scene.path()).unwrap(),
        Checkpoint::open(&out).unwrap(),
    );
    for (projection, rows, cols) in [("up_proj", 384, 256), ("down_proj", 256, 384)] {
        let name = format!("model.layers.1.mlp.experts.1.{projection}.weight_scale");
        let all = |c: &Checkpoint, n: u64| c.data(&name, 0..n).unwrap();
        let (coarse, fine) = (cols / 128, cols / 32);
        let (old, new) = (
            all(&before, 2 * rows * coarse),
            all(&after, 2 * rows * fine),
        );
        for (r, c) in (0..rows).flat_map(|r| (0..fine).map(move |c| (r, c))) {
            let at = |n: u64| n as usize * 2..n as usize * 2 + 2;
            let was = &old[at(r * coarse + c / 4)];
            assert_eq!(&new[at(r * fine + c)], was, "{projection} {r} {c}");
        }
    }
}

#[test]
fn shared_experts_become_as_wide_as_the_config_says() {
    for line in [
        "e=3,h=32,i=44,tp=2,w=bf16,fill=wild",
        "e=3,h=128,i=384,tp=2,w=fp8-block,fill=wild",
    ] {
        let made = Made {
            shared: 2,
            ..Made::new(line, QWEN)
        };
        let padded = holds(made, Asked::Align { tp: 2, align: 32 }, "prepad");
        let plan = &padded.certificate.plan;
        let shared = plan.shared.as_ref().unwrap();
        assert_eq!(shared.width.to, 2 * plan.routed.width.to);
        let grown = |t: &&padproof::pad::TensorNote| {
            t.name.contains("shared_experts") && t.output.is_some()
        };
        assert!(padded.certificate.tensors.iter().filter(grown).count() >= 6);
    }
}

#[test]
fn config_and_index_say_the_new_sizes_and_keep_every_other_byte() {
    let scene = Scene::new(Made::new("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let padded = scene.padded(&out, &Asked::Align { tp: 2, align: 16 });
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (old, new) = (read(scene.path(), "config.json"), read(&out, "config.json"));
    let changed = old.replace(
        "\"moe_intermediate_size\": 44",
        "\"moe_intermediate_size\": 64",
    );
    let kept = changed.trim_end_matches("\n}");
    assert!(new.starts_with(kept) && old != changed, "{new}");
    let value: serde_json::Value = serde_json::from_str(&new).unwrap();
    assert_eq!(value["padproof"]["before"]["moe_intermediate_size"], 44);
    let index = |folder| -> serde_json::Value {
        serde_json::from_str(&read(folder, "model.safetensors.index.json")).unwrap()
    };
    let (before, after) = (index(scene.path()), index(&out));
    assert_eq!(before["weight_map"], after["weight_map"]);
    // Twenty channels of 32 inputs, three projections and experts, two layers, two bytes.
    let more = 20 * 32 * 3 * 3 * 2 * 2;
    let total = |v: &serde_json::Value| v["metadata"]["total_size"].as_u64().unwrap();
    assert_eq!(total(&after), total(&before) + more);
    assert_eq!(read(&out, "extra/notes.txt"), "as it was");
    assert_eq!(read(&out, "tokenizer.json"), "{\"a\": 1}");
    // A shard in which nothing changes is the same file.
    let shard = "model-00003-of-00003.safetensors";
    assert_eq!(padded.linked, 1);
    let bytes = |folder: &Path| std::fs::read(folder.join(shard)).unwrap();
    assert_eq!(bytes(scene.path()), bytes(&out));
    assert!(!padproof::pad::partial(&out).exists());
}

#[test]
fn what_no_checkpoint_can_say_is_refused_with_the_reason() {
    let told = |made_of: Made, asked: Asked, change: &dyn Fn(&Path)| {
        let scene = Scene::new(made_of);
        change(scene.path());
        let (keep, out) = scene.out();
        let error = scene.pad(&out, &asked).unwrap_err().to_string();
        assert_eq!(
            std::fs::read_dir(keep.path()).unwrap().count(),
            0,
            "{error}"
        );
        error
    };
    let same = |_: &Path| {};
    let bf16 = Made::new("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN);
    let hidden = Asked::Hidden {
        tp: 2,
        align: 16,
        hidden: 64,
    };
    let why = told(bf16, hidden, &same);
    assert!(
        why.contains("hidden=32 would become 64") && why.contains("attention"),
        "{why}"
    );
    let rule = |id| Asked::Rule { tp: 2, id };
    let why = told(bf16, rule("sglang.flashinfer_cutlass.fp8"), &same);
    assert!(why.contains("is for fp8"), "{why}");
    let block = Made::new("e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild", QWEN);
    let why = told(block, rule("sglang.triton.fp8-block"), &same);
    assert!(why.contains("192"), "{why}");
    let edit = |file: &'static str, from: &'static str, to: &'static str| {
        move |folder: &Path| {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{text}");
            std::fs::write(path, text.replace(from, to)).unwrap();
        }
    };
    let asked = Asked::Align { tp: 2, align: 16 };
    let why = told(
        bf16,
        asked,
        &edit(
            "config.json",
            "\"moe_intermediate_size\": 44",
            "\"moe_intermediate_size\": 45",
        ),
    );
    assert!(why.contains("wanted [32, 45]"), "{why}");
    let why = told(
        bf16,
        asked,
        &edit(
            "config.json",
            "\"num_experts\"",
            "\"n_shared_experts\": 1, \"num_experts\"",
        ),
    );
    assert!(why.contains("no tensor is named as theirs"), "{why}");
    // One key for experts and dense layers.
    let mixtral = Made::new("e=3,h=32,i=128,tp=2,w=bf16,fill=wild", MIXTRAL);
    let both = edit(
        "config.json",
        "\"model_type\": \"qwen3_moe\"",
        "\"model_type\": \"llama4\", \"interleave_moe_layer_step\": 2",
    );
    let alone = |folder: &Path| {
        both(folder);
        edit("config.json", "\"moe_intermediate_size\": 128,", "")(folder);
        edit("config.json", "Qwen3Moe", "Llama4")(folder);
    };
    let why = told(mixtral, Asked::Align { tp: 2, align: 96 }, &alone);
    assert!(why.contains("shared") || why.contains("dense"), "{why}");
}
