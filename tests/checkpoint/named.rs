//! Goal: what an audit says of ranks, orders, layers and tensors that are not there is the right thing,
//! with the likelier name first.
//! Method: rearrange the plan's own packing, or a dump of the plain loader.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Family, Invented, QWEN, UNGATED, after, before, made};
use crate::checkpoint::padproof;
use crate::checkpoint::plain::{Loader, Slip::Nothing};
use crate::checkpoint::planted::{files, told};
use crate::checkpoint::refused;
use crate::checkpoint::scene::{Made, Scene};
use padproof::audit::{audit_files, diagnose, refined};
use padproof::checkpoint::{Dump, Layer, LayerId};
use padproof::layout::{PackedInputs, pack_layer};
use padproof::plan::{Plan, Role};
use padproof::terms::Order;

/// The names of a dump, as told.
fn names(
    line: &str,
    family: Family,
    mut dump: impl FnMut(&Plan, &PackedInputs) -> Invented,
) -> Vec<String> {
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, family, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, family), None).unwrap();
    let dumped = dump(&plan, &pack_layer(&plan, &logical).unwrap()).open();
    let dump = Dump::find(&dumped, None, None, plan.ranks.len()).unwrap();
    let audit = audit_files(&plan, &layer, &dump).unwrap();
    assert!(!audit.clean(), "{line}");
    let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
    found.iter().map(told).collect()
}

/// Rank 0's tensors under rank 1's name, alone or beside its own.
fn copied(packed: &PackedInputs, both: bool) -> Invented {
    let mut file = after(packed, &[0]);
    let copies = file.tensors.clone();
    if !both {
        file.tensors.clear();
    }
    for (name, dtype, shape, bytes) in copies {
        file.add(name.replace("rank0", "rank1"), dtype, &shape, bytes);
    }
    file
}

/// "Rows interleaved in groups of another size" was said of halves, and of the opposite alike.
#[test]
fn rows_in_every_other_order_are_named_in_the_right_direction() {
    for &read in Order::ALL {
        for &stored in Order::ALL.iter().filter(|&&stored| stored != read) {
            let line = format!("e=2,h=16,i=96,w=bf16,pad=i128,order={read},fill=wild,seed=2");
            let found = names(&line, QWEN, |plan, _| {
                let (_, _, logical) = made(&line);
                let order = stored;
                let wrong = Plan {
                    order,
                    ..plan.clone()
                };
                after(&pack_layer(&wrong, &logical).unwrap(), &[0])
            });
            let wanted = match (stored.interleave(), read.interleave()) {
                (a, b) if a == b => "halves-swapped",
                (0, _) => "halves-for-interleaved, stored: all rows of",
                (_, 0) => "interleaved-for-halves, stored: ",
                _ => "interleaved-in-other-groups, stored: ",
            };
            assert!(
                found.len() == 1 && found[0].starts_with(wanted),
                "{stored} for {read}: {found:?}"
            );
            let turns = match stored {
                Order::Int1Up | Order::UpGate => "up",
                _ => "gate",
            };
            let told = wanted == "halves-swapped" || found[0].contains(turns);
            assert!(told, "{stored} for {read}: {found:?}");
        }
    }
}

/// Scales in tiles for a kernel that reads rows had no name, and others only in buffers of the plan's size.
#[test]
fn scales_in_every_other_layout_are_named_whatever_their_buffers() {
    let layouts = [
        "linear",
        "128x4",
        "8x4",
        "triton-hopper-scale",
        "aiter-256x8",
    ];
    let line = |store: &str| {
        format!("e=1,k=1,h=64,i=224,act=relu2,w=mxfp4,pad=i224,fill=wild,seed=2,store={store}")
    };
    let mut sizes = 0;
    for read in layouts {
        for stored in layouts.into_iter().filter(|stored| *stored != read) {
            let found = names(&line(read), UNGATED, |_, packed| {
                let (_, plan, logical) = made(&line(stored));
                let wrong = pack_layer(&plan, &logical).unwrap();
                let bytes =
                    |p: &PackedInputs| p.ranks[0].get(Role::W13Scale).unwrap().bytes().len();
                sizes += usize::from(bytes(&wrong) != bytes(packed));
                after(&wrong, &[0])
            });
            let wanted = match (stored, read) {
                ("linear", _) => "scales-not-swizzled",
                (_, "linear") => "scales-swizzled",
                _ => "scales-in-other-tiles",
            };
            let wanted = format!("{wanted}, stored: {stored}; read: {read}");
            assert!(found.contains(&wanted), "{stored} for {read}: {found:?}");
        }
    }
    assert!(sizes > 8, "{sizes}");
}

/// One name was said where both explain the bytes, and which one depended on the format.
#[test]
fn a_file_under_another_rank_has_both_names_the_likelier_first() {
    let bf16 = "e=3,h=32,i=44,tp=2,w=bf16,pad=i32,split=floor,fill=wild";
    let nvfp4 = "e=2,h=64,i=96,tp=2,w=nvfp4,pad=i64,split=floor,fill=wild";
    let groups = "e=4,h=64,i=44,tp=2,ep=2,act=relu2,w=bf16,pad=i16,fill=wild";
    let oss = "e=3,h=96,i=192,tp=2,act=swigluoai,w=mxfp4,bias=both,pad=i128,split=floor,fill=wild";
    let other = "ranks-exchanged, rank 1 holds what belongs on rank 0";
    for (line, family, first) in [
        (bf16, QWEN, "ranks-all-first"),
        (nvfp4, QWEN, "ranks-all-first"),
        (groups, UNGATED, "experts-overlap"),
    ] {
        let alone = names(line, family, |_, packed| copied(packed, false));
        assert_eq!(alone, [other, first], "{line}");
        let both = names(line, family, |_, packed| copied(packed, true));
        assert_eq!(both, [first, other], "{line}");
    }
    // w2's bias belongs to one rank: alone, no loader of shares explains it.
    let alone = names(oss, Family::GptOss, |_, packed| copied(packed, false));
    assert_eq!(alone, [other]);
    let both = names(oss, Family::GptOss, |_, packed| copied(packed, true));
    assert_eq!(both, ["ranks-all-first", other]);
}

/// It was called channels-shifted, by as many channels as a share has.
#[test]
fn another_ranks_share_in_one_tensor_is_named_with_that_tensor() {
    let line = "e=3,h=32,i=44,tp=2,w=bf16,pad=i32,split=floor,fill=wild";
    let found = names(line, QWEN, |_, packed| {
        let mut wrong = packed.clone();
        let w2 = packed.ranks[1].get(Role::W2).unwrap().clone();
        wrong.ranks[0].set(Role::W2, w2);
        after(&wrong, &[0])
    });
    let wanted = "ranks-exchanged in w2, rank 0 holds what belongs on rank 1";
    assert_eq!(found, [wanted]);
    let one = names(line, QWEN, |_, packed| {
        let mut wrong = packed.clone();
        for role in [Role::W13, Role::W2] {
            let other = packed.ranks[1].get(role).unwrap().bytes().to_vec();
            let tensor = wrong.ranks[0].get_mut(role).unwrap().bytes_mut();
            let third = tensor.len() / 3;
            tensor[third..2 * third].copy_from_slice(&other[third..2 * third]);
        }
        after(&wrong, &[0])
    });
    assert_eq!(
        one,
        ["ranks-exchanged, rank 0 holds what belongs on rank 1, in expert 1 alone"]
    );
}

/// A size that nobody had asked for was wanted, without a word on why.
#[test]
fn shares_inside_blocks_are_named_however_the_layout_cuts() {
    for split in ["floor", "ceil", "ceil-block"] {
        let line = format!("e=2,h=256,i=384,tp=2,w=fp8-block,pad=i256,split={split},fill=wild");
        let (case, plan, logical) = made(&line);
        let loader = Loader {
            case: &case,
            logical: &logical,
            slot: 256,
            tiled: false,
            up_first: false,
            slip: Nothing,
        };
        for ranks in [&[0, 1][..], &[1]] {
            let mut dumped = loader.dump();
            let of = |name: &str| ranks.iter().any(|r| name.starts_with(&format!("rank{r}.")));
            dumped.tensors.retain(|t| of(&t.0));
            let (_, found) = files(&loader, &plan, QWEN, &dumped);
            let found: Vec<String> = found.iter().map(told).collect();
            let finer = "shares of 192 begin inside scale blocks of 128, so that this layout repeats scales on a grid of 64";
            let (finer, wanted) = match split {
                "ceil-block" => (None, "shares-inside-blocks".to_owned()),
                _ => (Some(finer), format!("shares-inside-blocks, {finer}")),
            };
            assert_eq!(refined(&plan).as_deref(), finer, "{split}");
            assert_eq!(found, [wanted], "{split} {ranks:?}");
        }
    }
}

/// Of a later rank's w2 one column was looked at, which lies on the first rank.
#[test]
fn exchanged_experts_and_layers_are_named_on_every_rank() {
    let line = "e=4,h=32,i=768,tp=8,w=bf16,pad=i128,split=floor,fill=wild,seed=3";
    let (case, plan, logical) = made(line);
    let (_, _, theirs) = made(&format!("{},seed=77", line.trim_end_matches(",seed=3")));
    let mut file = before(&case, &logical, QWEN, "model.layers.0.mlp.");
    let other = before(&case, &theirs, QWEN, "model.layers.1.mlp.");
    file.tensors.extend(other.tensors);
    let file = file.open();
    let layer = Layer::find(&file, shape(&plan, QWEN), Some(LayerId::Model(0))).unwrap();
    for rank in 0..8 {
        let names = |packed: &PackedInputs, swapped: bool| {
            let mut dumped = after(packed, &[rank]);
            for (_, _, _, bytes) in dumped.tensors.iter_mut().filter(|_| swapped) {
                let size = bytes.len() / 4;
                (0..size).for_each(|at| bytes.swap(at, 2 * size + at));
            }
            let dumped = dumped.open();
            let dump = Dump::find(&dumped, None, None, 8).unwrap();
            let audit = audit_files(&plan, &layer, &dump).unwrap();
            let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
            found.iter().map(told).collect::<Vec<String>>()
        };
        let found = names(&pack_layer(&plan, &theirs).unwrap(), false);
        assert_eq!(found, ["layers-exchanged, it is layer 1's"], "rank {rank}");
        // Expert 0 for expert 2.
        let found = names(&pack_layer(&plan, &logical).unwrap(), true);
        assert!(
            found[0].starts_with("experts-exchanged"),
            "rank {rank}: {found:?}"
        );
    }
}

/// It passed, and a right dump failed: the plan has no place for them.
#[test]
fn experts_with_tensors_that_the_plan_has_no_place_for_are_refused() {
    let line = "e=2,h=64,i=96,tp=2,w=bf16,fill=exact,pad=i64,split=floor,seed=1";
    let (case, plan, logical) = made(line);
    // For its config.
    let scene = Scene::new(Made::new("e=2,h=64,i=96,tp=2,w=bf16,fill=exact", QWEN));
    let (model, dump) = ("one.safetensors", "dump.safetensors");
    let (model, dump) = (scene.path().join(model), scene.path().join(dump));
    let packed = pack_layer(&plan, &logical).unwrap();
    std::fs::write(&dump, after(&packed, &[0, 1]).bytes()).unwrap();
    for (name, wanted) in [
        ("experts.0.gate_proj.bias", true),
        ("experts.1.down_proj.weight_scale", true),
        ("experts.01.up_proj.weight", true),
        ("experts.0.up_proj.input_scale", false),
    ] {
        let mut file = before(&case, &logical, QWEN, "model.layers.0.mlp.");
        let name = format!("model.layers.0.mlp.{name}");
        file.add(name.clone(), safetensors::Dtype::F32, &[1], vec![0; 4]);
        std::fs::write(&model, file.bytes()).unwrap();
        let words = ["audit", "--layout", "pad=i64,split=floor", "--tp", "2"];
        let run = padproof(&words, &[&model, &dump]);
        match wanted {
            true => refused(&run, &name),
            false => assert_eq!(run.status.code(), Some(0), "{run:?}"),
        }
        // What has no expert's name is not padded either.
        if name.contains(".01.") {
            let folder = tempfile::tempdir().unwrap();
            let config = folder.path().join("config.json");
            std::fs::copy(scene.path().join("config.json"), config).unwrap();
            std::fs::write(folder.path().join("model.safetensors"), file.bytes()).unwrap();
            let (_keep, out) = scene.out();
            let run = padproof(
                &["pad", "--tp", "2", "--align", "64"],
                &[folder.path(), &out],
            );
            refused(&run, &name);
        }
    }
}

/// Layer 1's dump held against layer 0 had no name.
#[test]
fn another_layers_dump_is_named_with_its_number() {
    for line in [
        "e=3,h=32,i=44,tp=2,w=bf16,pad=i32,fill=wild",
        "e=2,h=64,i=96,tp=2,w=nvfp4,pad=i64,store=128x4,order=up-gate,fill=wild",
    ] {
        let (case, plan, logical) = made(line);
        let mut file = before(&case, &logical, QWEN, "model.layers.0.mlp.");
        let (_, _, theirs) = made(&format!("{line},seed=77"));
        let layers = before(&case, &theirs, QWEN, "model.layers.4.mlp.");
        file.tensors.extend(layers.tensors);
        let file = file.open();
        let layer = Layer::find(&file, shape(&plan, QWEN), Some(LayerId::Model(0))).unwrap();
        let dumped = after(&pack_layer(&plan, &theirs).unwrap(), &[1]).open();
        let dump = Dump::find(&dumped, None, None, 2).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        let found: Vec<String> = found.iter().map(told).collect();
        assert_eq!(found, ["layers-exchanged, it is layer 4's"], "{line}");
    }
}

/// A closing sentence blamed elements where none was compared.
#[test]
fn what_is_missing_or_of_another_size_is_said_and_not_blamed_on_elements() {
    let line = "e=2,h=64,i=96,tp=2,w=nvfp4,fill=exact,pad=i64,split=floor,seed=1";
    let (_, plan, logical) = made(line);
    let scene = Scene::new(Made::new(
        "e=2,h=64,i=96,tp=2,w=nvfp4,fill=exact",
        Family::Compressed,
    ));
    let packed = pack_layer(&plan, &logical).unwrap();
    let path = scene.path().join("dump.safetensors");
    let layout = "pad=i64,split=floor";
    let audit = |layout: &str, change: &dyn Fn(&mut Invented)| {
        let mut file = after(&packed, &[1]);
        change(&mut file);
        std::fs::write(&path, file.bytes()).unwrap();
        let words = ["audit", "--layout", layout, "--tp", "2", "--layer", "0"];
        padproof(&words, &[scene.path(), &path])
    };
    let text = |change: &dyn Fn(&mut Invented)| {
        let run = audit(layout, change);
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    let without = text(&|file| file.tensors.retain(|t| t.0 != "rank1.w2_weight"));
    let end = "not named: w2 is missing; the places above are where it begins";
    assert!(without.contains(end), "{without}");
    // The name is known, and means what divides.
    let divisor = text(&|file| {
        for tensor in &mut file.tensors {
            tensor.0 = tensor
                .0
                .replace("w13_weight_scale_2", "w13_weight_global_scale");
        }
    });
    let note = "w13_scale_2 is missing; `rank1.w13_weight_global_scale` is there, a name that is not taken as it: it divides";
    assert!(divisor.contains(note), "{divisor}");
    assert!(
        divisor.contains("not named: w13_scale_2 is missing;"),
        "{divisor}"
    );
    let size = text(&|file| {
        let w2 = file
            .tensors
            .iter_mut()
            .find(|t| t.0 == "rank1.w2_weight")
            .unwrap();
        w2.3.extend([0; 128]);
        w2.2 = vec![w2.3.len()];
    });
    let end = "not named: w2 is of another size, and none of its elements was compared";
    assert!(size.contains(end), "{size}");
    // A layer in one of two names alone.
    let twice = audit(layout, &|file| {
        let mut more = file.tensors.clone();
        for tensor in &mut more {
            tensor.0 = format!("layers.0.{}", tensor.0);
        }
        file.tensors.extend(more);
    });
    refused(&twice, "its name says no layer");
    // Words that say nothing of the format.
    let idle = |words: &str| audit(&format!("{layout},{words}"), &|_| {});
    assert_eq!(idle("nib=high").status.code(), Some(1));
    let plain = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    for (words, why) in [
        (
            "store=128x4",
            "store=128x4 says how block scales lie, and bf16 has none",
        ),
        ("nib=high", "bf16 has no two elements in one"),
    ] {
        let layout = format!("pad=i32,{words}");
        let words = ["audit", "--layout", &layout, "--tp", "2", "--layer", "0"];
        refused(&padproof(&words, &[plain.path(), &path]), why);
    }
    let ungated = Scene::new(Made::new(
        "e=2,h=32,i=44,tp=2,act=relu2,w=bf16,fill=wild",
        UNGATED,
    ));
    let words = ["audit", "--layout", "pad=i32,order=up-gate", "--tp", "2"];
    let run = padproof(&words, &[ungated.path(), &path]);
    refused(
        &run,
        "order= says how gate and up lie, and these experts have no gate",
    );
    // It was said that --rule is missing.
    let run = padproof(&["audit", "--tp", "2"], &[scene.path(), &path]);
    refused(&run, "--rule <ID>|--layout <SCHEME>");
}

/// What a padded stride leaves for padding explained a scale that was damaged there: any finite one may stand
/// in padding.
#[test]
fn a_damaged_scale_is_no_padding_of_a_fault() {
    let line = "e=2,h=64,i=704,tp=8,w=nvfp4,pad=i128,split=prepad,fill=wild";
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    for at in [6, 7, 8 * 5 + 6] {
        let mut packed = pack_layer(&plan, &logical).unwrap();
        packed.ranks[1].get_mut(Role::W2Scale).unwrap().bytes_mut()[at] ^= 1;
        let dumped = after(&packed, &[0, 1, 2, 3, 4, 5, 6, 7]).open();
        let dump = Dump::find(&dumped, None, None, 8).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        assert_eq!(audit.differing, 1);
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        assert!(
            found.iter().all(|f| f.name != "padded-stride"),
            "{at}: {found:?}"
        );
    }
}

/// One expert's zero tensors were said to be a rank that loaded nothing.
#[test]
fn an_expert_without_weights_is_no_rank_without_weights() {
    let line = "e=4,h=32,i=44,tp=2,w=bf16,pad=i32,fill=wild";
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let right = pack_layer(&plan, &logical).unwrap();
    let named = |experts: std::ops::Range<usize>, roles: &[Role]| {
        let mut packed = right.clone();
        for &role in roles {
            let bytes = packed.ranks[1].get_mut(role).unwrap().bytes_mut();
            let one = bytes.len() / 4;
            bytes[experts.start * one..experts.end * one].fill(0);
        }
        let dumped = after(&packed, &[0, 1]).open();
        let dump = Dump::find(&dumped, None, None, 2).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        found.iter().map(|f| f.name).collect::<Vec<_>>()
    };
    let (w13, w2) = (Role::W13, Role::W2);
    for experts in [0..1, 3..4, 1..3] {
        for roles in [&[w13, w2][..], &[w2], &[w13]] {
            let found = named(experts.clone(), roles);
            assert!(
                !found.contains(&"rank-missing"),
                "{experts:?} {roles:?}: {found:?}"
            );
        }
    }
    assert_eq!(named(0..4, &[w13, w2]), ["rank-missing"]);
    assert_eq!(named(0..4, &[w2]), ["rank-missing"]);
}

/// Of a single tensor one of both names was left out.
#[test]
fn two_faults_that_make_the_same_tensor_are_both_named() {
    let line = "e=2,h=32,i=48,tp=2,w=bf16,fill=wild";
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let mut packed = pack_layer(&plan, &logical).unwrap();
    let role = Role::W2;
    let first = packed.ranks[0].get_mut(role).unwrap().bytes().to_vec();
    packed.ranks[1]
        .get_mut(role)
        .unwrap()
        .bytes_mut()
        .copy_from_slice(&first);
    let named = |ranks: &[usize]| {
        let dumped = after(&packed, ranks).open();
        let dump = Dump::find(&dumped, None, None, 2).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        assert!(found.iter().all(|f| f.tensors == ["w2"]), "{found:?}");
        found.iter().map(|f| f.name).collect::<Vec<_>>()
    };
    // A file alone is more likely of another rank.
    assert_eq!(named(&[1]), ["ranks-exchanged", "ranks-all-first"]);
    assert_eq!(named(&[0, 1]), ["ranks-all-first", "ranks-exchanged"]);
}
