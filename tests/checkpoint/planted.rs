//! Goal: every fault that a loader can make in files is named, in every family and quantisation.
//! Method: a loader of the tests' own (`plain`), with one slip at a time, writes the files; its clean
//! files pass. The matrix is a snapshot.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Family, Invented, MIXTRAL, QWEN, UNGATED, before, made};
use crate::checkpoint::plain::Loader;
use crate::checkpoint::plain::Slip::{self, *};
use padproof::audit::{Audit, Diagnosis, audit_files, diagnose};
use padproof::case::Case;
use padproof::checkpoint::{Dump, Layer};
use padproof::num::Dtype;
use padproof::plan::{Plan, plan};
use padproof::tensor::Logical;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

const FC: Family = Family::Each(["fc1", "fc3", "fc2"]);

/// Layers: a case without its scheme, the slot that ranks' shares are padded to, and the families.
const FILES: &[(&str, usize, &[Family])] = &[
    (
        "e=3,h=32,i=44,tp=2,w=bf16,bias=both",
        32,
        &[
            QWEN,
            MIXTRAL,
            FC,
            Family::Fused,
            Family::Transposed,
            Family::Bare,
        ],
    ),
    ("e=2,h=32,i=44,tp=2,w=f16", 32, &[QWEN, Family::Fused]),
    (
        "e=2,h=32,i=44,tp=2,w=f32",
        32,
        &[MIXTRAL, Family::Transposed],
    ),
    ("e=3,h=32,i=44,tp=2,w=fp8", 32, &[QWEN, MIXTRAL]),
    (
        "e=2,h=32,i=44,tp=2,w=fp8-channel,bias=both",
        32,
        &[QWEN, FC],
    ),
    (
        "e=2,h=32,i=512,tp=2,w=fp8-block",
        384,
        &[QWEN, Family::Fused],
    ),
    ("e=2,h=64,i=192,tp=2,w=mxfp8", 128, &[QWEN, MIXTRAL]),
    ("e=3,h=64,i=96,tp=2,w=nvfp4", 64, &[QWEN]),
    (
        "e=2,h=32,i=96,tp=2,w=nvfp4",
        64,
        &[MIXTRAL, Family::Fused, Family::Bare],
    ),
    (
        "e=3,h=32,i=96,tp=2,w=nvfp4,fill=exact",
        64,
        &[Family::Compressed],
    ),
    ("e=2,h=96,i=192,tp=2,w=mxfp4,bias=both", 128, &[QWEN]),
    (
        "e=3,h=32,i=192,tp=2,w=mxfp4,bias=both",
        128,
        &[Family::Fused, FC],
    ),
    (
        "e=2,h=96,i=192,tp=2,act=swigluoai,w=mxfp4,bias=both",
        128,
        &[Family::GptOss],
    ),
    ("e=2,h=128,i=256,tp=2,w=int4", 256, &[QWEN]),
    (
        "e=2,h=32,i=192,tp=2,w=int4-g32",
        128,
        &[QWEN, Family::Fused],
    ),
    ("e=2,h=32,i=44,tp=2,w=int8", 32, &[QWEN, MIXTRAL]),
    ("e=3,h=32,i=44,tp=2,act=relu2,w=bf16", 32, &[UNGATED]),
    ("e=2,h=32,i=44,tp=2,act=relu2,w=fp8", 32, &[UNGATED]),
    ("e=3,h=32,i=96,tp=2,act=relu2,w=nvfp4", 64, &[UNGATED]),
];

/// What each slip is called: all of these names must be there. The words beside.
const NAMES: &[(Slip, &str, &[&str])] = &[
    (TailPad, "half boundary", &["tail-pad"]),
    (
        BiasTailPad,
        "half boundary of the bias",
        &["tail-pad in w13_bias"],
    ),
    (Swapped, "order", &["halves-swapped"]),
    (
        SwappedWeights,
        "order of weights, not of scales",
        &["halves-swapped"],
    ),
    (
        SwappedScales,
        "order of scales, not of weights",
        &["halves-swapped in w13_scale"],
    ),
    (InTurn, "interleave", &["interleaved-for-halves"]),
    (
        InTurnUpFirst,
        "interleave, up first",
        &["interleaved-for-halves, stored: rows of up and gate in turn; read: all rows"],
    ),
    (
        WrongAxis,
        "axis",
        &["w2-padded-on-hidden|rows-at-the-real-width"],
    ),
    (
        WrongAxisBoth,
        "axis, of scales too",
        &["w2-padded-on-hidden|rows-at-the-real-width|w2-and-scales-at-the-real-width"],
    ),
    (WrongAxisFirst, "axis, of w13", &["w13-padded-on-hidden"]),
    (Unpadded, "not padded", &["padding-missing"]),
    (ScalesUnpadded, "scales not padded", &["scales-unpadded"]),
    (Nibbles, "nibble", &["nibbles-swapped"]),
    (
        ScaleColumn,
        "scale grid, columns",
        &["scale-columns-shifted"],
    ),
    (ScaleRow, "scale grid, rows", &["scale-rows-shifted"]),
    (
        LastGroup,
        "scale grid, last group",
        &["last-scale-group-lost"],
    ),
    (NotTiled, "swizzle", &["scales-not-swizzled"]),
    (Tiled, "swizzle, where rows are read", &["scales-swizzled"]),
    (Stride, "stride", &["padded-stride"]),
    (Early, "rank offset, a block", &["rank-offset"]),
    (FirstShare, "rank offset, all first", &["ranks-all-first"]),
    (
        LastRankEmpty,
        "a rank without weights",
        &["rank-missing, rank 1 holds nothing"],
    ),
    (
        FirstRankCleared,
        "a rank without weights, scales and biases, the first",
        &["rank-missing, rank 0 holds nothing"],
    ),
    (
        LastRankOfOnes,
        "a rank without weights, and scales of one",
        &["rank-missing, rank 1 holds nothing"],
    ),
    (SecondTransposed, "transposed, w2", &["w2-transposed"]),
    (FirstTransposed, "transposed, w13", &["w13-transposed"]),
    (
        WrongAxisFar,
        "axis, by another count",
        &["w2-padded-on-hidden|rows-at-the-real-width"],
    ),
    (
        SwappedAndTransposed,
        "order, and w2 transposed",
        &["halves-swapped in w13", "w2-transposed in w2"],
    ),
    (
        EarlyAndScaleColumn,
        "rank offset, and the scale grid's columns",
        &["rank-offset", "scale-columns-shifted in w2_scale"],
    ),
    (LastColumn, "the last column", &["last-column-lost"]),
    (DirtyW13, "dirty pad, w13", &["w13-tail-dirty"]),
    (DirtyW2, "dirty pad, w2", &["w2-tail-dirty"]),
    (Uninitialised, "uninitialised", &["tails-uninitialised"]),
    (NanPads, "NaN pad", &["pads-nan"]),
    (NanScales, "scale 255, or NaN", &["scale-pad-nan"]),
    (MinusZero, "-0 pads 0x88", &["minus-zero-pads"]),
    (
        GateScaleForUp,
        "global scale mismatch, gate and up",
        &["gate-global-for-up"],
    ),
    (
        UpScaleForGate,
        "global scale mismatch, up's for gate",
        &["up-global-for-gate"],
    ),
    (
        LargerScale,
        "global scale mismatch, the larger of both",
        &["larger-global-for-both"],
    ),
    (
        ScalesSwapped,
        "global scale mismatch, gate's and up's exchanged",
        &["globals-swapped"],
    ),
    (
        LargestScale,
        "global scale mismatch, the largest of all experts",
        &["largest-global-for-all"],
    ),
    (
        Divisor,
        "global scale mismatch, the divisor for its reciprocal",
        &["global-not-inverted"],
    ),
    (
        ScalesOfOtherExperts,
        "global scale mismatch, another expert's",
        &["global-scale-mismatch, expert 0 has those of expert 1"],
    ),
    (
        FirstExpertsScale,
        "global scale mismatch, experts",
        &["first-experts-global"],
    ),
    (
        ScalesOfFirst,
        "scale not cut, first rank's",
        &["scales-not-cut"],
    ),
    (
        ScalesUncut,
        "scale not cut, whole axis",
        &["scales-not-cut"],
    ),
    (BiasDirty, "bias, dirty pad", &["bias-pad-dirty"]),
    (
        BiasEverywhere,
        "bias, on every rank",
        &["w2-bias-on-every-rank"],
    ),
    (
        FusedCutTail,
        "fused rows cut and padded as one axis",
        &["fused-cut-and-padded-whole"],
    ),
    (FusedCut, "fused rows cut as one axis", &["fused-cut-whole"]),
    (E8m0Bias, "E8M0 bias 125", &["e8m0-bias-125"]),
    (
        E8m0BiasAndDirty,
        "E8M0 bias 125, and a dirty pad",
        &["e8m0-bias-125", "w13-tail-dirty"],
    ),
    (
        SwappedAndDirty,
        "order, and a dirty pad",
        &["halves-swapped", "w13-tail-dirty"],
    ),
    (
        Repacked,
        "repacked for a kernel",
        &["rearranged in w13 and w2"],
    ),
    (
        Exchanged,
        "ranks exchanged",
        &["ranks-exchanged, rank 0 holds what belongs on rank 1"],
    ),
    (
        ThreeEarly,
        "rank offset, less than a block",
        &["channels-shifted, by 3 channels, too early"],
    ),
    (
        FirstExpertsScales,
        "global scale mismatch, experts, both projections",
        &["first-experts-global"],
    ),
    (
        SwappedInOne,
        "order, in the last expert alone",
        &["halves-swapped, in expert"],
    ),
    (
        DirtyInOne,
        "dirty pad, in the last expert alone",
        &["w13-tail-dirty, in expert"],
    ),
    (
        ThreeEarlyInOne,
        "rank offset, in the last expert alone",
        &["channels-shifted, by 3 channels, too early, in expert"],
    ),
    (
        ExchangedInOne,
        "ranks exchanged, in the last expert alone",
        &["ranks-exchanged, rank 0 holds what belongs on rank 1"],
    ),
    (
        ExpertsExchanged,
        "experts exchanged",
        &["experts-exchanged"],
    ),
];

pub(crate) fn told(diagnosis: &Diagnosis) -> String {
    let name = match diagnosis.tensors.as_slice() {
        [] => diagnosis.name.to_owned(),
        tensors => format!("{} in {}", diagnosis.name, tensors.join(" and ")),
    };
    match diagnosis.detail.as_str() {
        "" => name,
        detail => format!("{name}, {detail}"),
    }
}

/// An audit of the loader's dump, and the names.
pub(crate) fn audited(
    loader: &Loader<'_>,
    plan: &Plan,
    family: Family,
    dumped: &Invented,
) -> (Audit, Vec<String>) {
    let (audit, found) = files(loader, plan, family, dumped);
    (audit, found.iter().map(told).collect())
}

/// An audit of a dump, which may be other than what the loader makes.
pub(crate) fn files(
    loader: &Loader<'_>,
    plan: &Plan,
    family: Family,
    dumped: &Invented,
) -> (Audit, Vec<Diagnosis>) {
    let file = before(loader.case, loader.logical, family, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(plan, family), None).unwrap();
    let dumped = dumped.open();
    let dump = Dump::find(&dumped, None, None, plan.ranks.len()).unwrap();
    let audit = audit_files(plan, &layer, &dump).unwrap();
    let found = diagnose(plan, &layer, &dump, &audit).unwrap();
    (audit, found)
}

/// A layer as the plan of a scheme and as the loader have it.
pub(crate) fn scene(line: &str, slot: usize, up_first: bool, tiled: bool) -> (Case, Plan, Logical) {
    let fill = if line.contains("fill=") {
        ""
    } else {
        ",fill=wild"
    };
    let order = if up_first { "up-gate" } else { "gate-up" };
    let store = if tiled { ",store=128x4" } else { "" };
    let line = format!("{line}{fill},pad=i{slot},split=floor,order={order}{store},seed=5");
    let (case, _, logical) = made(&line);
    let plan = plan(&case).unwrap();
    assert_eq!(plan.width_padded, slot as u64, "{line}");
    (case, plan, logical)
}

/// Files of a line and family, in scales that lie in tiles or not, and up first or not.
#[derive(Clone, Copy)]
struct Files {
    line: &'static str,
    slot: usize,
    family: Family,
    tiled: bool,
    up_first: bool,
    /// Among the families of its line.
    number: usize,
}

impl Files {
    fn all() -> Vec<Files> {
        let mut all = Vec::new();
        for &(line, slot, families) in FILES {
            let scaled = ["nvfp4", "mxfp4", "mxfp8"].iter().any(|w| line.contains(w));
            let gated = !line.contains("relu2");
            for (number, &family) in families.iter().enumerate() {
                for tiled in [false, true].into_iter().filter(|tiled| scaled || !tiled) {
                    all.push(Files {
                        line,
                        slot,
                        family,
                        tiled,
                        up_first: gated && (number + usize::from(tiled)) % 2 == 1,
                        number,
                    });
                }
            }
        }
        all
    }

    /// The names of each slip that changes these files, by its row; and what is wrong with them.
    fn named(&self) -> (Vec<(usize, String)>, Vec<String>) {
        let &Files {
            line,
            slot,
            family,
            tiled,
            up_first,
            ..
        } = self;
        let gated = !line.contains("relu2");
        let (case, plan, logical) = scene(line, slot, up_first, tiled);
        let loader = |slip| Loader {
            case: &case,
            logical: &logical,
            slot,
            tiled,
            up_first,
            slip,
        };
        let name = format!("{line} {family:?}{}", if tiled { " 128x4" } else { "" });
        let (mut seen, mut faults) = (Vec::new(), Vec::new());
        let dumped = loader(Nothing).dump();
        let right = dumped.bytes();
        let (audit, names) = audited(&loader(Nothing), &plan, family, &dumped);
        if !audit.clean() || !names.is_empty() {
            faults.push(format!("{name}: clean files: {names:?} {:?}", audit.first));
        }
        for (row, &(slip, _, wanted)) in NAMES.iter().enumerate() {
            // Without a gate there is no order; tiles are filled up, as far as padding would be.
            let e8m0 = case.w.scale().is_some_and(|grid| grid.dtype == Dtype::E8m0);
            let nothing = matches!(slip, SwappedAndDirty | SwappedInOne) && !gated
                || slip == E8m0BiasAndDirty && !e8m0
                || matches!(slip, Unpadded | ScalesUnpadded) && tiled;
            // What costs most, or is alike everywhere, in one family of each line.
            let few = matches!(
                slip,
                FirstRankCleared
                    | LastRankOfOnes
                    | SecondTransposed
                    | FirstTransposed
                    | WrongAxisFar
                    | SwappedAndTransposed
                    | EarlyAndScaleColumn
            );
            let nothing = nothing
                || slip == SwappedAndTransposed && !gated
                || slip == EarlyAndScaleColumn && loader(ScaleColumn).dump().bytes() == right
                || few && (tiled || self.number > 0);
            if nothing {
                continue;
            }
            let dumped = loader(slip).dump();
            if dumped.bytes() == right {
                continue;
            }
            let (audit, names) = audited(&loader(slip), &plan, family, &dumped);
            let is = |wanted: &str, name: &String| {
                name.strip_prefix(wanted)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',']))
            };
            let has = |wanted: &&str| wanted.split('|').any(|w| names.iter().any(|n| is(w, n)));
            if !wanted.iter().all(has) || audit.clean() != (slip == MinusZero) {
                faults.push(format!(
                    "{name}: {slip:?} is named {names:?}; {:?}",
                    audit.regions
                ));
            }
            seen.push((row, names.join(" = ")));
        }
        (seen, faults)
    }
}

#[test]
fn every_slip_of_a_loader_is_named_in_every_family_and_quantisation() {
    let all = Files::all();
    let found: Vec<_> = all.par_iter().map(Files::named).collect();
    // By slip: the names, and how many files they were read in.
    let mut seen: BTreeMap<usize, BTreeMap<String, usize>> = BTreeMap::new();
    let (mut faults, clean) = (Vec::new(), all.len());
    for (names, wrong) in found {
        for (row, names) in names {
            *seen.entry(row).or_default().entry(names).or_default() += 1;
        }
        faults.extend(wrong);
    }
    assert!(
        faults.is_empty(),
        "{} faults\n{}",
        faults.len(),
        faults.join("\n")
    );
    let mut matrix = format!("{clean} files without a fault: clean\n");
    for (row, (_, word, _)) in NAMES.iter().enumerate() {
        let names = seen.remove(&row).unwrap_or_default();
        let files: usize = names.values().sum();
        assert!(files > 0, "{word}: planted in no file");
        writeln!(matrix, "{word} ({files} files)").unwrap();
        for (names, files) in names {
            writeln!(matrix, "    {files:3}  {names}").unwrap();
        }
    }
    crate::checkpoint::snapshot("audit_planted", &matrix);
}
