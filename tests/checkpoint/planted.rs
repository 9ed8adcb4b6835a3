//! Goal: every fault that a loader can make in files is named, in every family and quantisation.
//! Method: a loader of the tests' own (`plain`), with one slip at a time, writes the files; its clean
//! files pass. The matrix is a snapshot.

use crate::families::shape;
use crate::invent::{Family, Invented, MIXTRAL, QWEN, before, made};
use crate::plain::Loader;
use crate::plain::Slip::{self, *};
use padproof::audit::{Audit, Diagnosis, audit_files, diagnose};
use padproof::case::Case;
use padproof::checkpoint::{Dump, Layer};
use padproof::plan::{Plan, plan};
use padproof::tensor::Logical;
use std::collections::BTreeMap;
use std::fmt::Write;

const FC: Family = Family::Each(["fc1", "fc3", "fc2"]);
const UNGATED: Family = Family::Each(["none", "up_proj", "down_proj"]);

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
        "e=3,h=32,i=44,tp=2,w=f32",
        32,
        &[MIXTRAL, Family::Transposed],
    ),
    ("e=3,h=64,i=44,tp=2,w=fp8", 32, &[QWEN, MIXTRAL]),
    (
        "e=2,h=64,i=44,tp=2,w=fp8-channel,bias=both",
        32,
        &[QWEN, FC],
    ),
    (
        "e=2,h=128,i=512,tp=2,w=fp8-block",
        384,
        &[QWEN, Family::Fused],
    ),
    ("e=3,h=64,i=192,tp=2,w=mxfp8", 128, &[QWEN, MIXTRAL]),
    (
        "e=3,h=64,i=96,tp=2,w=nvfp4",
        64,
        &[QWEN, MIXTRAL, Family::Fused, Family::Bare],
    ),
    (
        "e=3,h=64,i=96,tp=2,w=nvfp4,fill=exact",
        64,
        &[Family::Compressed],
    ),
    (
        "e=3,h=96,i=192,tp=2,w=mxfp4,bias=both",
        128,
        &[QWEN, Family::Fused, FC],
    ),
    (
        "e=3,h=96,i=192,tp=2,act=swigluoai,w=mxfp4,bias=both",
        128,
        &[Family::GptOss],
    ),
    ("e=2,h=128,i=256,tp=2,w=int4", 256, &[QWEN]),
    (
        "e=3,h=64,i=192,tp=2,w=int4-g32",
        128,
        &[QWEN, Family::Fused],
    ),
    ("e=2,h=64,i=44,tp=2,w=int8", 32, &[QWEN, MIXTRAL]),
    ("e=3,h=64,i=44,tp=2,act=relu2,w=bf16", 32, &[UNGATED]),
    ("e=2,h=64,i=44,tp=2,act=relu2,w=fp8", 32, &[UNGATED]),
    ("e=3,h=64,i=96,tp=2,act=relu2,w=nvfp4", 64, &[UNGATED]),
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
    (InTurn, "interleave", &["interleave-mixed-up"]),
    (
        WrongAxis,
        "axis",
        &["w2-padded-on-hidden|rows-at-the-real-width"],
    ),
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
    (Stride, "stride", &["padded-stride"]),
    (Early, "rank offset, a block", &["rank-offset"]),
    (FirstShare, "rank offset, all first", &["ranks-all-first"]),
    (
        LastRankEmpty,
        "a rank without weights",
        &["last-rank-missing"],
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
    (FusedCut, "fused rows cut as one axis", &["fused-cut-whole"]),
    (E8m0Bias, "E8M0 bias 125", &["e8m0-bias-125"]),
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
];

fn told(diagnosis: &Diagnosis) -> String {
    match diagnosis.tensors.as_slice() {
        [] => diagnosis.name.to_owned(),
        tensors => format!("{} in {}", diagnosis.name, tensors.join(" and ")),
    }
}

/// An audit of the loader's files, and the names.
fn audited(loader: &Loader<'_>, plan: &Plan, family: Family) -> (Audit, Vec<String>) {
    let (audit, found) = files(loader, plan, family, &loader.dump());
    (audit, found.iter().map(told).collect())
}

/// The same of a dump that is not just what the loader makes.
fn files(
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
fn scene(line: &str, slot: usize, up_first: bool, tiled: bool) -> (Case, Plan, Logical) {
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

#[test]
fn every_slip_of_a_loader_is_named_in_every_family_and_quantisation() {
    // By slip: the names, and how many files they were read in.
    let mut seen: BTreeMap<usize, BTreeMap<String, usize>> = BTreeMap::new();
    let (mut faults, mut clean) = (Vec::new(), 0);
    for &(line, slot, families) in FILES {
        let scaled = ["nvfp4", "mxfp4", "mxfp8"].iter().any(|w| line.contains(w));
        let gated = !line.contains("relu2");
        for (number, &family) in families.iter().enumerate() {
            for tiled in [false, true] {
                if tiled && !scaled {
                    continue;
                }
                let up_first = gated && (number + usize::from(tiled)) % 2 == 1;
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
                let (audit, names) = audited(&loader(Nothing), &plan, family);
                if !audit.clean() || !names.is_empty() {
                    faults.push(format!("{name}: clean files: {names:?} {:?}", audit.first));
                    continue;
                }
                clean += 1;
                let right = loader(Nothing).dump().bytes();
                for (row, &(slip, _, wanted)) in NAMES.iter().enumerate() {
                    let nothing = slip == SwappedAndDirty && !gated;
                    if nothing || loader(slip).dump().bytes() == right {
                        continue;
                    }
                    let (audit, names) = audited(&loader(slip), &plan, family);
                    let has = |wanted: &&str| {
                        wanted.split('|').any(|w| {
                            names
                                .iter()
                                .any(|n| n == w || n.starts_with(&format!("{w} in ")))
                        })
                    };
                    if !wanted.iter().all(has) || audit.clean() != (slip == MinusZero) {
                        faults.push(format!(
                            "{name}: {slip:?} is named {names:?}; {:?}",
                            audit.regions
                        ));
                    }
                    *seen
                        .entry(row)
                        .or_default()
                        .entry(names.join(" = "))
                        .or_default() += 1;
                }
            }
        }
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
    crate::snapshot("audit_planted", &matrix);
}

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
        let by_blocks = crate::invent::after(&right, &(0..case.tp as usize).collect::<Vec<_>>());
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

    let line = "e=2,h=128,i=256,tp=2,w=mxfp8,pad=i128,split=floor,store=deepgemm-mn-major";
    let (case, plan, logical) = made(line);
    let packed = padproof::layout::pack_layer(&plan, &logical).unwrap();
    let mut dumped = crate::invent::after(&packed, &[0, 1]);
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
