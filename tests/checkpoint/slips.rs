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
use padproof::layout::pack_layer;
use padproof::mutant::{self, Stage};
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
    let dumped = after(&packed, &[0, 1]).open();
    let dump = Dump::find(&dumped, None, None, 2).unwrap();
    let audit = audit_files(&plan, &layer, &dump).unwrap();
    let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
    let found: Vec<String> = found.iter().map(told).collect();
    let wanted = [
        "fused-cut-whole in w13 and w13_scale",
        "last-column-lost in w2",
        "scale-pad-nan",
    ];
    assert_eq!(found, wanted);
}
