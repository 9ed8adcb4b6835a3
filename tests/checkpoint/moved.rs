//! Goal: faults that no slip of the plain loader makes are named, and names of engines are known.
//! Method: change a dump of the plain loader, or of the plan's own packing.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{QWEN, UNGATED, before, made};
use crate::checkpoint::plain::Loader;
use crate::checkpoint::plain::Slip::*;
use crate::checkpoint::planted::{files, scene, told};
use padproof::audit::{Evidence, audit_files, diagnose, too_large};
use padproof::case::Case;
use padproof::checkpoint::{Dump, Layer};
use padproof::mutant::Stage;
use padproof::plan::{Plan, plan};
use padproof::tensor::Logical;

/// facts/reports.md B57 and B77: 96 channels a rank, groups of 64 in the plan's cut, 48 in the loader's.
#[test]
fn shares_that_begin_inside_scale_blocks_are_named() {
    for (w, i, slot) in [("mxfp4", 288, 128), ("nvfp4", 80, 64)] {
        // The plan gives each rank whole blocks, the loader equal shares; scales of w2 go by blocks.
        let line = format!("e=2,h=64,i={i},tp=2,w={w},pad=i{slot},split=ceil-block,fill=wild");
        let line = if w == "mxfp4" {
            line.replace("tp=2", "tp=4")
        } else {
            line
        };
        let (case, _, logical) = made(&line);
        let plan = plan(&case).unwrap();
        let right = padproof::layout::pack_layer(&plan, &logical).unwrap();
        let loader = |slip| Loader {
            case: &case,
            logical: &logical,
            slot: plan.width_padded as usize,
            tiled: false,
            up_first: false,
            slip,
        };
        let mut dumped = loader(Nothing).dump();
        let by_blocks =
            crate::checkpoint::invent::after(&right, &(0..case.tp as usize).collect::<Vec<_>>());
        for tensor in &mut dumped.tensors {
            if tensor.0.ends_with("w2_weight_scale") {
                *tensor = by_blocks
                    .tensors
                    .iter()
                    .find(|t| t.0 == tensor.0)
                    .unwrap()
                    .clone();
            }
        }
        let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
        let dumped = dumped.open();
        let dump = Dump::find(&dumped, None, None, plan.ranks.len()).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        let names: Vec<_> = found.iter().map(told).collect();
        assert_eq!(
            names,
            ["shares-inside-blocks"],
            "{line}: {:?}",
            audit.regions
        );
    }
}

/// facts/reports.md B66: 64 channels a rank, so that two ranks share a tile of 128. It was called `padded-stride`.
#[test]
fn scale_tiles_that_are_taken_by_rank_are_named() {
    let (case, plan, logical) = scene("e=1,k=1,h=256,i=512,tp=8,w=fp8-block", 128, false, false);
    let loader = |slip| Loader {
        case: &case,
        logical: &logical,
        slot: 128,
        tiled: false,
        up_first: false,
        slip,
    };
    let wrong = loader(TilesByRank).dump();
    let named = |ranks: &[usize]| {
        let mut dumped = loader(TilesByRank).dump();
        let of = |name: &str| ranks.iter().any(|r| name.starts_with(&format!("rank{r}.")));
        dumped.tensors.retain(|t| of(&t.0));
        let (audit, found) = files(&loader(Nothing), &plan, QWEN, &dumped);
        assert!(!audit.clean(), "{ranks:?}");
        found.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(wrong.tensors.len(), 8 * 4);
    assert_eq!(named(&[0, 1, 2, 3, 4, 5, 6, 7]), ["scale-tiles-by-rank"]);
    for rank in 1..4 {
        assert_eq!(named(&[rank]), ["scale-tiles-by-rank"], "rank {rank}");
    }
    // Its tile is beyond the last: it has none, which any loader may have left out.
    assert_eq!(named(&[5]), Vec::<String>::new());
}

/// ModelOpt FP8: the larger of gate's and up's scale for both, codes made anew under it.
#[test]
fn weights_that_were_requantised_are_told_by_their_values() {
    let (case, plan, logical) = scene("e=2,h=64,i=44,tp=2,w=fp8", 32, false, false);
    let mut after = logical.clone();
    let (rows, cols) = (after.w13.shape()[1], after.w13.shape()[2]);
    let scales = after.w13_scale.clone().unwrap();
    for e in 0..2 {
        let pair = &scales.f32s()[2 * e..2 * e + 2];
        let larger = pair[0].max(pair[1]);
        for r in 0..rows {
            let old = pair[usize::from(r >= rows / 2)];
            for code in &mut after.w13.bytes_mut()[(e * rows + r) * cols..(e * rows + r + 1) * cols]
            {
                let value = decode(*code) * old / larger;
                let off = |c: &u8| (decode(*c) - value).abs();
                *code = (0..=255)
                    .filter(|c| decode(*c).is_finite())
                    .min_by(|a, b| off(a).total_cmp(&off(b)))
                    .unwrap();
            }
        }
        after.w13_scale.as_mut().unwrap().f32s_mut()[2 * e..2 * e + 2].fill(larger);
    }
    let named = |after: &Logical| requantised((&case, &plan), &logical, after);
    assert_eq!(named(&after), ["requantised in w13"]);
    // One element two steps off is damage.
    after.w13.bytes_mut()[7] ^= 0x10;
    assert_eq!(named(&after), Vec::<String>::new());
    // Weights of zero under scales so large that any value is within a step.
    after.w13.bytes_mut().fill(0);
    after.w13_scale.as_mut().unwrap().f32s_mut().fill(1e9);
    assert_eq!(named(&after), Vec::<String>::new());
}

/// The names of a dump of `after` beside the checkpoint `logical`.
fn requantised((case, plan): (&Case, &Plan), logical: &Logical, after: &Logical) -> Vec<String> {
    let loader = |logical| Loader {
        case,
        logical,
        slot: 32,
        tiled: false,
        up_first: false,
        slip: Nothing,
    };
    let (audit, found) = files(&loader(logical), plan, QWEN, &loader(after).dump());
    assert!(!audit.clean());
    found.iter().map(told).collect()
}

/// It was said of w13 alone, as if of every rank's.
#[test]
fn a_fault_of_one_rank_is_named_with_that_rank() {
    let (case, plan, logical) = scene("e=3,h=32,i=44,tp=2,w=bf16", 32, false, false);
    let loader = |slip| Loader {
        case: &case,
        logical: &logical,
        slot: 32,
        tiled: false,
        up_first: false,
        slip,
    };
    let (mut dumped, wrong) = (loader(Nothing).dump(), loader(Swapped).dump());
    let of = |t: &(String, _, _, _)| t.0 == "rank0.w13_weight";
    let at = dumped.tensors.iter().position(of).unwrap();
    dumped.tensors[at] = wrong.tensors[at].clone();
    let (_, found) = files(&loader(Nothing), &plan, QWEN, &dumped);
    let [found] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(told(found), "halves-swapped in w13");
    assert_eq!(found.ranks, [0]);
}

/// Codes of negative integers grow towards zero: no step was as long as one.
#[test]
fn int8_weights_that_were_requantised_are_told_by_their_values() {
    let (case, plan, logical) = scene("e=2,h=64,i=44,tp=2,w=int8", 32, false, false);
    let mut after = logical.clone();
    for byte in after.w13.bytes_mut() {
        *byte = (f32::from(byte.cast_signed()) / 1.25).round() as i8 as u8;
    }
    for scale in after.w13_scale.as_mut().unwrap().f32s_mut() {
        *scale *= 1.25;
    }
    let names = requantised((&case, &plan), &logical, &after);
    assert_eq!(names, ["requantised in w13"]);
}

/// SGLang's NVFP4 for CUTLASS deletes `w13_weight_scale`; DeepGEMM holds four E8M0 in an int32.
#[test]
fn scales_are_known_by_the_names_and_types_that_engines_give_them() {
    let (case, plan, logical) = scene("e=3,h=64,i=96,tp=2,w=nvfp4", 64, false, true);
    let loader = Loader {
        case: &case,
        logical: &logical,
        slot: 64,
        tiled: true,
        up_first: false,
        slip: Nothing,
    };
    let mut dumped = loader.dump();
    let mut renamed = 0;
    for (name, ..) in &mut dumped.tensors {
        if let Some(stem) = name.strip_suffix("_weight_scale") {
            *name = format!("{stem}_blockscale_swizzled");
            renamed += 1;
        }
    }
    assert_eq!(renamed, 4);
    assert!(files(&loader, &plan, QWEN, &dumped).0.clean());

    // SGLang's NVFP4 for trtllm-gen, before its parameters went back to their old names.
    let line = "e=2,h=128,i=160,w=nvfp4,pad=i128,store=128x4+shuffle-rows-32,fill=wild";
    let (case, plan, logical) = made(line);
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let mut dumped = crate::checkpoint::invent::after(&packed, &[0]);
    for (name, ..) in &mut dumped.tensors {
        for (ours, theirs) in [
            ("w13_weight", "gemm1_weights_fp4_shuffled"),
            ("w2_weight", "gemm2_weights_fp4_shuffled"),
            ("w13_weight_scale", "gemm1_scales_fp4_shuffled"),
            ("w2_weight_scale", "gemm2_scales_fp4_shuffled"),
        ] {
            if name.ends_with(&format!(".{ours}")) {
                *name = format!("rank0.{theirs}");
            }
        }
    }
    let trtllm = Loader {
        case: &case,
        logical: &logical,
        ..loader
    };
    let found = files(&trtllm, &plan, QWEN, &dumped).0;
    assert!(found.clean(), "{:?}", found.first);

    let line = "e=2,h=128,i=256,tp=2,w=mxfp8,pad=i128,split=floor,store=deepgemm-mn-major";
    let (case, plan, logical) = made(line);
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let mut dumped = crate::checkpoint::invent::after(&packed, &[0, 1]);
    for (name, dtype, shape, bytes) in &mut dumped.tensors {
        if name.ends_with("_scale") {
            (*dtype, *shape) = (safetensors::Dtype::I32, vec![bytes.len() / 4]);
        }
    }
    let loader = Loader {
        case: &case,
        logical: &logical,
        ..loader
    };
    assert!(files(&loader, &plan, QWEN, &dumped).0.clean());
}

/// One group's file in the place of the other's: each rank held other experts than its own.
#[test]
fn groups_of_experts_that_were_exchanged_are_named() {
    let line = "e=4,h=64,i=44,tp=4,ep=2,act=relu2,w=bf16,pad=i16,fill=wild,seed=a";
    let (case, plan, logical) = made(line);
    let mut packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    packed.ranks.swap(0, 2);
    packed.ranks.swap(1, 3);
    let file = before(&case, &logical, UNGATED, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, UNGATED), None).unwrap();
    let named = |ranks: &[usize]| {
        let dumped = crate::checkpoint::invent::after(&packed, ranks).open();
        let dump = Dump::find(&dumped, None, None, 4).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        found.iter().map(told).collect::<Vec<_>>()
    };
    let all =
        "ranks-exchanged, rank 0 holds what belongs on rank 2, rank 1 holds what belongs on rank 3";
    assert!(
        named(&[0, 1, 2, 3])[0].starts_with(all),
        "{:?}",
        named(&[0, 1, 2, 3])
    );
    // One rank's file by itself.
    let one = "ranks-exchanged, rank 1 holds what belongs on rank 3";
    assert_eq!(named(&[1]), [one]);
}

/// A padded stride leaves the last ranks no channel, and any finite scale is an inert pad: it explained
/// whatever befell scales there.
#[test]
fn a_fault_that_leaves_a_rank_only_padding_explains_no_damage() {
    let line = "e=2,h=64,i=768,tp=8,w=nvfp4,pad=i128,split=floor,fill=wild,seed=d";
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let named = |packed: &padproof::layout::PackedInputs, rank| {
        let dumped = crate::checkpoint::invent::after(packed, &[rank]).open();
        let dump = Dump::find(&dumped, None, None, 8).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        assert!(!audit.clean());
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        found.iter().map(told).collect::<Vec<_>>()
    };
    let right = padproof::layout::pack_layer(&plan, &logical).unwrap();
    for rank in [1, 6, 7] {
        let mut packed = right.clone();
        let scales = packed.ranks[rank].get_mut(padproof::plan::Role::W13Scale);
        scales.unwrap().bytes_mut()[0] ^= 1;
        assert_eq!(named(&packed, rank), Vec::<String>::new(), "rank {rank}");
    }
    // Nor what is all zero beside scales that are right.
    for rank in [6, 7] {
        let mut packed = right.clone();
        for role in [padproof::plan::Role::W13, padproof::plan::Role::W2] {
            let weights = packed.ranks[rank].get_mut(role).unwrap();
            weights.bytes_mut().fill(0);
        }
        let wanted = format!("rank-missing, rank {rank} holds nothing");
        assert_eq!(named(&packed, rank), [wanted]);
    }
    // The fault itself still has its name there.
    let is = |m: &&padproof::mutant::Mutant| m.name == "padded-stride";
    let mutant = padproof::mutant::ALL.iter().find(is).unwrap();
    let Stage::Plan(change) = mutant.stage else {
        panic!("{}", mutant.name)
    };
    let mut wrong = plan.clone();
    assert!(change(&mut wrong));
    let packed = padproof::layout::pack_layer(&wrong, &logical).unwrap();
    let nothing = "rank-missing, rank 7 holds nothing";
    assert_eq!(named(&packed, 7), ["padded-stride", nothing]);
}

/// It was said to explain every element of no experts, and above 64 ranks nothing was said.
#[test]
fn exchanged_ranks_are_told_by_what_was_compared() {
    for (e, mark) in [
        (64_usize, None),
        (
            65,
            Some("ranks-exchanged was not looked for: 65 ranks, of at most 64"),
        ),
    ] {
        let line = format!("e={e},h=16,i=8,tp={e},ep={e},k=1,act=relu2,w=bf16,fill=wild,seed=b");
        let (case, plan, logical) = made(&line);
        let mut packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
        packed.ranks.swap(0, 1);
        let file = before(&case, &logical, UNGATED, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(&plan, UNGATED), None).unwrap();
        let dumped = crate::checkpoint::invent::after(&packed, &[0, 1]).open();
        let dump = Dump::find(&dumped, None, None, e).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
        let named: Vec<_> = found.iter().map(|f| (f.name, f.by)).collect();
        let wanted: &[_] = match mark {
            None => &[("ranks-exchanged", Evidence::Ends)],
            Some(_) => &[],
        };
        assert_eq!(named, wanted, "{line}");
        assert_eq!(
            too_large(&plan)
                .unwrap()
                .map(|why| why.to_string())
                .as_deref(),
            mark
        );
    }
}

/// Rows of large tensors are read a few MiB at a time: the place of what differs must not move.
#[test]
fn places_in_large_tensors_are_counted_from_their_beginning() {
    let line = "e=2,h=2048,i=4400,w=bf16,pad=i4480,fill=wild,seed=3";
    let (case, plan, logical) = made(line);
    let mut packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let w13 = packed.ranks[0].get_mut(padproof::plan::Role::W13).unwrap();
    // Of the second expert: its last element of up, and the last pad.
    let (row, expert) = (2048 * 2, 2 * 4480 * 2048 * 2);
    let places = [expert + (4480 + 4400) * row - 2, 2 * expert - 2];
    for at in places {
        w13.bytes_mut()[at] ^= 1;
    }
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let dumped = crate::checkpoint::invent::after(&packed, &[0]).open();
    let dump = Dump::find(&dumped, None, None, 1).unwrap();
    let audit = audit_files(&plan, &layer, &dump).unwrap();
    let found: Vec<_> = audit
        .first
        .iter()
        .map(|d| (d.byte, d.physical, d.logical))
        .collect();
    let wanted = [
        (places[0], Some((1, 8879, 2047)), Some((1, 8799, 2047))),
        (places[1], Some((1, 8959, 2047)), None),
    ];
    assert_eq!(found, wanted);
    let bytes = dumped
        .names()
        .map(|n| dumped.entry(n).unwrap().1.bytes)
        .sum::<u64>();
    assert_eq!(audit.checked_bytes, bytes);
    assert_eq!(audit.elements, 2 * 3 * 4400 * 2048);
}

/// The same of padding of one byte: its place was counted from the expert's beginning, past the rows read.
#[test]
fn padding_in_large_tensors_of_bytes_is_read_where_it_lies() {
    let line = "e=1,h=2048,i=4400,k=1,w=fp8,pad=i4480,fill=wild,seed=3";
    let (case, plan, logical) = made(line);
    let mut packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let audited = |packed: &padproof::layout::PackedInputs| {
        let dumped = crate::checkpoint::invent::after(packed, &[0]).open();
        let dump = Dump::find(&dumped, None, None, 1).unwrap();
        audit_files(&plan, &layer, &dump).unwrap()
    };
    assert!(audited(&packed).clean());
    let w13 = packed.ranks[0].get_mut(padproof::plan::Role::W13).unwrap();
    let last = w13.bytes().len() - 1;
    w13.bytes_mut()[last] = 0x38;
    let found: Vec<_> = audited(&packed)
        .first
        .iter()
        .map(|d| (d.byte, d.physical))
        .collect();
    assert_eq!(found, [(last, Some((0, 8959, 2047)))]);
}

/// Every rank of every mutant was packed whole, so that a large expert took gigabytes, and larger ones
/// went without a name.
#[test]
fn faults_of_large_experts_are_named_from_a_part_of_them() {
    for (line, names) in [
        (
            "e=1,k=1,h=2048,i=1360,tp=2,w=bf16,pad=i704,fill=wild,seed=3",
            ["halves-swapped", "tail-pad", "last-column-lost"],
        ),
        (
            "e=1,k=1,h=4096,i=1792,tp=2,w=mxfp4,pad=i960,store=128x4,order=up-gate,fill=wild,seed=4",
            ["halves-swapped", "last-column-lost", "rank-offset"],
        ),
    ] {
        let (case, plan, logical) = made(line);
        let right = padproof::layout::pack_layer(&plan, &logical).unwrap();
        let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
        let named = |packed: &padproof::layout::PackedInputs| {
            let dumped = crate::checkpoint::invent::after(packed, &[0, 1]).open();
            let dump = Dump::find(&dumped, None, None, 2).unwrap();
            let audit = audit_files(&plan, &layer, &dump).unwrap();
            let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
            assert!(
                found.iter().all(|f| f.sample.contains("hidden units 0 to")),
                "{found:?}"
            );
            found.iter().map(told).collect::<Vec<_>>().join(" = ")
        };
        for name in names {
            let mutant = padproof::mutant::ALL
                .iter()
                .find(|m| m.name == name)
                .unwrap();
            let packed = match mutant.stage {
                Stage::Layout(change) => {
                    padproof::layout::pack_layer(&change(&plan).unwrap(), &logical).unwrap()
                }
                Stage::Bytes(change) => {
                    let mut packed = right.clone();
                    assert!(change(&plan, &mut packed));
                    packed
                }
                _ => panic!("{name}"),
            };
            assert_eq!(named(&packed), name, "{line}");
        }
        let mut packed = right.clone();
        packed.ranks.swap(0, 1);
        assert!(named(&packed).starts_with("ranks-exchanged"), "{line}");
    }
}

/// E4M3 by its definition.
fn decode(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let value = match exponent {
        15 if code & 7 == 7 => f32::NAN,
        0 => mantissa * 2_f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2_f32.powi(exponent - 7),
    };
    if code & 0x80 > 0 { -value } else { value }
}
