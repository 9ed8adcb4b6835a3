//! Goal: what a loader does with sizes of its own is named as that.
//! Method: the loader of `plain`, beside the matrix of `planted`.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{QWEN, after, before, made};
use crate::checkpoint::plain::Loader;
use crate::checkpoint::plain::Slip::{self, Nothing, ScalesUnpadded};
use crate::checkpoint::planted::{audited, scene, told};
use padproof::audit::{audit_files, diagnose};
use padproof::case::Case;
use padproof::checkpoint::{Dump, Layer};
use padproof::layout::{self, PackedInputs, pack_layer};
use padproof::mutant::{self, Stage};
use padproof::plan::{Plan, Role};
use padproof::tensor::Logical;

/// A loader of linear tensors, gate first.
fn plain<'a>(case: &'a Case, logical: &'a Logical, slot: usize, slip: Slip) -> Loader<'a> {
    Loader {
        case,
        logical,
        slot,
        tiled: false,
        up_first: false,
        slip,
    }
}

/// The names of what ranks hold, as told.
fn named(plan: &Plan, layer: &Layer<'_>, packed: &PackedInputs, ranks: &[usize]) -> Vec<String> {
    let dumped = after(packed, ranks).open();
    let dump = Dump::find(&dumped, None, None, plan.ranks.len()).unwrap();
    let audit = audit_files(plan, layer, &dump).unwrap();
    let found = diagnose(plan, layer, &dump, &audit).unwrap();
    found.iter().map(told).collect()
}

/// Where a rank's share is the whole axis, nothing is to be cut: such scales were told as not cut.
#[test]
fn unpadded_scales_of_one_rank_are_told_as_that() {
    for line in ["e=2,h=64,i=96,w=nvfp4", "e=2,h=128,i=256,w=fp8-block"] {
        let slot = if line.contains("fp8") { 384 } else { 128 };
        let (case, plan, logical) = scene(line, slot, false, false);
        let loader = plain(&case, &logical, slot, ScalesUnpadded);
        let (audit, names) = audited(&loader, &plan, QWEN, &loader.dump());
        assert!(!audit.clean(), "{line}");
        assert_eq!(names, ["scales-unpadded"], "{line}");
    }
}

/// Equal shares that are rounded down leave the last channels to no rank: it was told as a rank offset, or not at all.
#[test]
fn a_remainder_that_no_rank_holds_is_named() {
    for (line, slot) in [
        ("e=2,h=32,i=45,tp=2,w=bf16,bias=both", 32),
        ("e=2,h=32,i=193,tp=2,w=fp8", 128),
        ("e=2,h=32,i=46,tp=3,w=f32", 32),
    ] {
        let (case, plan, logical) = scene(line, slot, false, false);
        let loader = plain(&case, &logical, slot, Nothing);
        let (audit, names) = audited(&loader, &plan, QWEN, &loader.dump());
        assert!(!audit.clean(), "{line}");
        assert_eq!(names, ["remainder-dropped"], "{line}");
        // A file alone may as well be of a rank that begins a channel early.
        let mut alone = loader.dump();
        alone.tensors.retain(|t| t.0.starts_with("rank1."));
        let (_, names) = audited(&loader, &plan, QWEN, &alone);
        assert!(
            names.iter().any(|n| n == "remainder-dropped"),
            "{line}: {names:?}"
        );
    }
}

/// Dirt beside two faults was told of the tensors that one of them is in.
#[test]
fn dirt_beside_two_faults_is_told_by_itself() {
    let line = "e=2,h=64,i=192,tp=2,w=mxfp8,pad=i128,fill=wild,seed=9";
    let (case, plan, logical) = made(line);
    let mut packed = pack_layer(&plan, &logical).unwrap();
    for name in ["fused-cut-whole", "last-column-lost", "scale-pad-nan"] {
        let mutant = mutant::ALL.iter().find(|m| m.name == name).unwrap();
        let Stage::Bytes(change) = mutant.stage else {
            panic!("{name}")
        };
        assert!(change(&plan, &mut packed));
    }
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let found = named(&plan, &layer, &packed, &[0, 1]);
    let wanted = [
        "fused-cut-whole in w13 and w13_scale",
        "last-column-lost in w2",
        "scale-pad-nan",
    ];
    assert_eq!(found, wanted);
}

/// One dirty element of the code that stands for 1 was told as padding that is planned with that code.
#[test]
fn one_pad_of_the_code_of_one_is_dirt_and_all_of_them_are_planned_so() {
    for (line, of_one) in [
        ("e=2,h=64,i=96,tp=2,w=mxfp4,pad=i128", 2),
        ("e=2,h=64,i=96,tp=2,w=fp8,pad=i128", 0x38),
    ] {
        let (case, plan, logical) = made(line);
        let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
        for (role, most, wanted) in [
            (Role::W2, 1, "w2-tail-dirty, in expert 0 alone"),
            (Role::W13, 1, "w13-tail-dirty, in expert 0 alone"),
            (Role::W2, usize::MAX, "pad-code-not-zero"),
        ] {
            let mut packed = pack_layer(&plan, &logical).unwrap();
            let mut left = most;
            for rank in 0..2 {
                let map = layout::map(&plan, role, rank).unwrap();
                let tensor = packed.ranks[rank].get_mut(role).unwrap();
                layout::for_each(&map, |_, at, logical| {
                    if logical.is_none() && left > 0 {
                        left -= 1;
                        map.grid.write(tensor.bytes_mut(), at, of_one);
                    }
                });
            }
            let found = named(&plan, &layer, &packed, &[0, 1]);
            assert_eq!(found, [wanted], "{line} {most}");
        }
    }
}

/// Scales in reverse were told as that beside padding of zeros, and by no name where the padding is of other finite ones.
#[test]
fn scales_in_reverse_are_rearranged_whatever_their_padding_holds() {
    let line = "e=2,h=64,i=96,tp=2,w=mxfp4,pad=i128,fill=wild";
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    for pad in [None, Some(127)] {
        let mut packed = pack_layer(&plan, &logical).unwrap();
        for rank in 0..2 {
            let map = layout::map(&plan, Role::W13Scale, rank).unwrap();
            let bytes = packed.ranks[rank]
                .get_mut(Role::W13Scale)
                .unwrap()
                .bytes_mut();
            let (mut own, mut pads) = (Vec::new(), Vec::new());
            layout::for_each(&map, |_, at, logical| match logical {
                Some(_) => own.push((at, map.grid.read(bytes, at))),
                None => pads.push(at),
            });
            for ((at, _), (_, code)) in own.iter().zip(own.iter().rev()) {
                map.grid.write(bytes, *at, *code);
            }
            for at in pads {
                if let Some(code) = pad {
                    map.grid.write(bytes, at, code);
                }
            }
        }
        let found = named(&plan, &layer, &packed, &[0, 1]);
        assert_eq!(found, ["rearranged in w13_scale"], "{pad:?}");
    }
}

/// The second half right after a short share of the first, as a loader that pads once at the end leaves it: it was told
/// as rows that were rearranged, on the ranks with whole shares too.
#[test]
fn a_tail_pad_of_short_shares_is_named() {
    for line in [
        "e=2,h=128,i=288,tp=2,w=mxfp4,pad=i64,order=gate-up,split=ceil-block",
        "e=2,h=64,i=176,tp=2,w=bf16,bias=both,pad=i128,order=up-gate,split=stride",
    ] {
        let (case, plan, logical) = made(line);
        let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
        let mut packed = pack_layer(&plan, &logical).unwrap();
        for (rank, of) in packed.ranks.iter_mut().zip(&plan.ranks) {
            let (slot, len) = (plan.width_padded as usize, of.len as usize);
            for role in [Role::W13, Role::W13Bias, Role::W13Scale] {
                let Some(tensor) = rank.get_mut(role) else {
                    continue;
                };
                let row = tensor.bytes().len() / 2 / (2 * slot);
                for expert in tensor.bytes_mut().chunks_exact_mut(2 * slot * row) {
                    expert.copy_within(slot * row..(slot + len) * row, len * row);
                    expert[2 * len * row..].fill(0);
                }
            }
        }
        for ranks in [vec![1], vec![0, 1]] {
            let found = named(&plan, &layer, &packed, &ranks);
            let wanted = "tail-pad-of-short-shares";
            assert!(
                found.len() == 1 && found[0].starts_with(wanted),
                "{line} {ranks:?}: {found:?}"
            );
        }
    }
}

/// Global scales that are all twice what they should be had no name; one alone that is anything has none still, and
/// none that were inverted twice, some of them a rounding off.
#[test]
fn global_scales_times_one_factor_are_named_with_it() {
    let line = "e=2,h=64,i=96,tp=2,w=nvfp4,pad=i128,fill=wild";
    let (case, plan, logical) = made(line);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let twice = "global-scale-mismatch in w13_scale_2, 2 times";
    let rounding = 1.0 + f32::EPSILON;
    for (most, factor, wanted) in [
        (usize::MAX, 2.0, Some(twice)),
        (1, 2.0, None),
        (usize::MAX, rounding, None),
    ] {
        let mut packed = pack_layer(&plan, &logical).unwrap();
        for rank in &mut packed.ranks {
            let scales = rank.get_mut(Role::W13Global).unwrap();
            for scale in scales.f32s_mut().iter_mut().take(most) {
                *scale *= factor;
            }
        }
        let ranks: &[usize] = if most == 1 { &[0] } else { &[0, 1] };
        let found = named(&plan, &layer, &packed, ranks);
        assert_eq!(found, wanted.as_slice(), "{most}");
    }
}
