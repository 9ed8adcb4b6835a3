//! Goal: every mutant of layout or loader is found in files and named, alone or with its twins.
//! Method: apply each to invented files, audit, diagnose; the matrix is a snapshot. That a fault of
//! another make is named too is for `planted`.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{Family, MIXTRAL, QWEN, UNGATED, after, before, made};
use padproof::audit::{Diagnosis, Evidence, audit_files, diagnose};
use padproof::case::Case;
use padproof::checkpoint::{Dump, Layer};
use padproof::layout::{PackedInputs, pack_layer};
use padproof::mutant::{self, Mutant, Stage, repack};
use padproof::plan::Plan;
use padproof::tensor::Logical;
use rayon::prelude::*;
use std::fmt::Write;

/// Layers that between them give every mutant something to do, each in a family of checkpoints.
const LINES: &[(Family, &str)] = &[
    (
        MIXTRAL,
        "e=3,h=32,i=44,tp=2,w=bf16,pad=i16,order=up-gate,fill=wild,seed=1",
    ),
    (
        Family::Fused,
        "e=3,h=32,i=44,tp=2,w=bf16,pad=i16,order=int8,bias=both,fill=wild,seed=2",
    ),
    (
        QWEN,
        "e=2,h=24,i=44,tp=2,w=fp8,pad=h32.i16,order=up-gate,fill=wild,seed=3",
    ),
    (
        MIXTRAL,
        "e=2,h=32,i=448,tp=2,w=fp8-block,pad=i128,fill=wild,seed=4",
    ),
    (
        QWEN,
        "e=3,h=64,i=96,tp=2,w=nvfp4,pad=i64,order=up-gate,store=128x4,fill=wild,seed=5",
    ),
    (
        Family::Fused,
        "e=2,h=64,i=208,tp=2,w=nvfp4,pad=i64,order=int64,fill=wild,seed=6",
    ),
    (
        Family::GptOss,
        "e=2,h=96,i=160,tp=2,act=swigluoai,w=mxfp4,bias=both,pad=h128.i64,fill=wild,seed=7",
    ),
    (
        Family::GptOss,
        "e=2,h=96,i=160,tp=2,act=swigluoai,w=mxfp4,bias=both,pad=i64,order=int1,store=triton-blackwell-scale,fill=wild,seed=8",
    ),
    (
        QWEN,
        "e=2,h=64,i=96,tp=2,w=int4-g32,pad=i64,fill=wild,seed=9",
    ),
    (
        UNGATED,
        "e=4,h=64,i=44,tp=4,ep=2,act=relu2,w=bf16,pad=i16,fill=wild,seed=a",
    ),
    (
        Family::Transposed,
        "e=2,h=64,i=96,tp=2,w=bf16,pad=i64,split=prepad,fill=wild,seed=b",
    ),
    (
        Family::Bare,
        "e=2,h=128,i=160,w=mxfp4,pad=i128,store=aiter-256x8+shuffle-16x16,fill=wild,seed=c",
    ),
    (
        QWEN,
        "e=2,h=128,i=160,w=nvfp4,pad=i128,store=128x4+shuffle-rows-32,fill=wild,seed=d",
    ),
    (
        Family::Fused,
        "e=2,h=32,i=512,tp=8,w=fp8-block,pad=i128,split=floor,fill=wild,seed=e",
    ),
    (QWEN, "e=2,h=64,i=320,w=fp8-block,pad=i512,fill=wild,seed=f"),
    (
        Family::Compressed,
        "e=2,h=64,i=96,tp=2,w=nvfp4,pad=i64,order=up-gate,fill=exact,seed=11",
    ),
    (
        QWEN,
        "e=2,h=64,i=192,tp=2,w=mxfp8,pad=i128,fill=wild,seed=12",
    ),
    (QWEN, "e=2,h=32,i=64,tp=2,w=bf16,pad=i32,fill=wild,seed=13"),
    (
        QWEN,
        "e=2,h=32,i=160,w=fp8-block,split=floor,pad=i64,fill=wild,seed=14",
    ),
    (
        QWEN,
        "e=2,h=32,i=66,tp=2,w=int4-channel,pad=i64,fill=wild,seed=15",
    ),
    (
        QWEN,
        "e=2,h=32,i=45,tp=2,w=f16,pad=i32,split=floor,fill=wild,seed=16",
    ),
    (
        QWEN,
        "e=2,k=3,h=32,i=44,zero=2,route=given,w=bf16,pad=i32,fill=wild,seed=17",
    ),
];

/// What a mutant does to files.
enum Planted {
    Bytes(PackedInputs),
    /// Its plan describes no layout: a loader's file of such a size is for `planted`, and `by_size`.
    NoLayout,
    /// What it changes is no byte of a parameter.
    Same,
    Nothing,
}

/// What a mutant leaves.
fn planted(mutant: &Mutant, plan: &Plan, logical: &Logical) -> Planted {
    let right = pack_layer(plan, logical).unwrap();
    let packed = match mutant.stage {
        Stage::Layout(change) => change(plan).map(|wrong| pack_layer(&wrong, logical)),
        Stage::LayoutOf(change, roles) => change(plan).map(|wrong| {
            let mut packed = right.clone();
            repack(&wrong, roles, logical, &mut packed);
            Ok(packed)
        }),
        Stage::Bytes(change) => {
            let mut wrong = right.clone();
            change(plan, &mut wrong).then_some(Ok(wrong))
        }
        Stage::Plan(change) => {
            let mut wrong = plan.clone();
            change(&mut wrong).then(|| pack_layer(&wrong, logical))
        }
        Stage::Reload(_) | Stage::Output(_) => None,
    };
    match packed {
        Some(Ok(packed)) if packed.ranks != right.ranks => Planted::Bytes(packed),
        Some(Ok(_)) => Planted::Same,
        Some(Err(_)) => Planted::NoLayout,
        None => Planted::Nothing,
    }
}

/// A layer in a family of checkpoints.
type Made = (Family, (Case, Plan, Logical));

/// A mutant's row of the matrix, and what is wrong with it.
fn row(mutant: &Mutant, layers: &[Made]) -> (String, Vec<String>) {
    let (mut cases, mut inert, mut none, mut same) = (0, 0, 0, 0);
    let mut named: Vec<String> = Vec::new();
    let mut faults = Vec::new();
    for (family, (case, plan, logical)) in layers {
        let packed = match planted(mutant, plan, logical) {
            Planted::Bytes(packed) => packed,
            other => {
                none += usize::from(matches!(other, Planted::NoLayout));
                same += usize::from(matches!(other, Planted::Same));
                continue;
            }
        };
        cases += 1;
        let file = before(case, logical, *family, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(plan, *family), None).unwrap();
        let all: Vec<usize> = (0..plan.ranks.len()).collect();
        let dumped = after(&packed, &all).open();
        let dump = Dump::find(&dumped, None, None, all.len()).unwrap();
        let audit = audit_files(plan, &layer, &dump).unwrap();
        if audit.clean() {
            inert += 1;
            continue;
        }
        let found = diagnose(plan, &layer, &dump, &audit).unwrap();
        let names: Vec<&str> = found.iter().map(|d| d.name).collect();
        if !names.contains(&mutant.name)
            || found[0].by != Evidence::Elements && mutant.name != "storage-pads-dirty"
        {
            faults.push(format!("{case}: {} is named {names:?}", mutant.name));
        }
        let names = names.join(" = ");
        if !named.contains(&names) {
            named.push(names);
        }
    }
    let mut seen = format!("{cases} files");
    if inert > 0 {
        write!(seen, ", {inert} inert").unwrap();
    }
    if cases == 0 {
        // What reaches no file says why, and applies somewhere.
        let why = match (none, same) {
            (0, 0) => {
                faults.push(format!("{} applies to no layer", mutant.name));
                String::new()
            }
            (0, same) => format!("no byte of a parameter changes in {same} layers"),
            (none, 0) => format!("a plan of no layout in {none} layers"),
            (none, same) => format!("a plan of no layout in {none} layers, no byte in {same}"),
        };
        named.push(why);
    }
    let line = format!("{:32} {seen:20} {}", mutant.name, named.join("; "));
    (line, faults)
}

#[test]
fn every_planted_fault_is_named() {
    let layers = LINES.iter().map(|(family, line)| (*family, made(line)));
    let layers: Vec<_> = layers.collect();
    let mutants = mutant::ALL.iter();
    let mutants = mutants.filter(|m| !matches!(m.stage, Stage::Reload(_) | Stage::Output(_)));
    let mutants: Vec<&Mutant> = mutants.collect();
    let of_mutant = |mutant: &&Mutant| row(mutant, &layers);
    let found: Vec<_> = mutants.par_iter().map(of_mutant).collect();
    let mut matrix = String::new();
    let mut faults: Vec<String> = Vec::new();
    for (line, wrong) in found {
        writeln!(matrix, "{line}").unwrap();
        faults.extend(wrong);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    crate::checkpoint::snapshot("audit_faults", &matrix);
}

/// What `change` does to a dump of that line, named.
fn named(line: &str, change: impl Fn(&Plan, &mut PackedInputs)) -> Vec<String> {
    let (case, plan, logical) = made(line);
    let mut packed = pack_layer(&plan, &logical).unwrap();
    change(&plan, &mut packed);
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let all: Vec<usize> = (0..plan.ranks.len()).collect();
    let dumped = after(&packed, &all).open();
    let dump = Dump::find(&dumped, None, None, all.len()).unwrap();
    let audit = audit_files(&plan, &layer, &dump).unwrap();
    let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
    let exact = |d: &Diagnosis| if d.by == Evidence::Elements { "" } else { "?" };
    found
        .iter()
        .map(|d| format!("{}{}", d.name, exact(d)))
        .collect()
}

/// Fills a role's pads with what memory happened to hold.
fn garbage(role: padproof::plan::Role) -> impl Fn(&Plan, &mut PackedInputs) {
    move |plan, packed| {
        for (n, rank) in packed.ranks.iter_mut().enumerate() {
            let map = padproof::layout::map(plan, role, n).unwrap();
            let tensor = rank.get_mut(role).unwrap();
            let mut code = 0x41;
            padproof::layout::for_each(&map, |_, at, logical| {
                if logical.is_none() {
                    code = code % 0x3f + 1;
                    map.grid.write(tensor.bytes_mut(), at, code);
                }
            });
        }
    }
}

#[test]
fn garbage_that_no_mutant_holds_is_told_by_where_it_lies() {
    use padproof::plan::Role;
    let line = "e=2,h=24,i=44,tp=2,w=fp8,pad=h32.i16,bias=both,fill=wild";
    assert_eq!(named(line, garbage(Role::W13)), ["w13-tail-dirty?"]);
    assert_eq!(named(line, garbage(Role::W2)), ["w2-tail-dirty?"]);
    assert_eq!(named(line, garbage(Role::W13Bias)), ["bias-pad-dirty?"]);
    let both = |plan: &Plan, packed: &mut PackedInputs| {
        garbage(Role::W13)(plan, packed);
        garbage(Role::W2)(plan, packed);
    };
    assert_eq!(named(line, both), ["tails-uninitialised?"]);
}

#[test]
fn one_changed_element_is_found_and_honestly_unnamed() {
    use padproof::plan::Role;
    let line = "e=2,h=24,i=44,tp=2,w=fp8,pad=h32.i16,fill=wild";
    let flip = |_: &Plan, packed: &mut PackedInputs| {
        packed.ranks[1].get_mut(Role::W2).unwrap().bytes_mut()[0] ^= 1;
    };
    assert_eq!(named(line, flip), Vec::<String>::new());
}

/// A mutant that changes only what is missing would explain what is there.
#[test]
fn a_missing_tensor_is_not_named_as_another_fault() {
    let (case, plan, logical) = made("e=3,h=64,i=64,tp=2,w=nvfp4,pad=i64,fill=wild");
    let packed = pack_layer(&plan, &logical).unwrap();
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    for missing in ["w2_weight_scale", "w2_weight", "w2_weight_scale_2"] {
        let mut dumped = after(&packed, &[0, 1]);
        let all = dumped.tensors.len();
        dumped.tensors.retain(|t| !t.0.ends_with(missing));
        assert!(dumped.tensors.len() < all, "{missing}");
        let dumped = dumped.open();
        let dump = Dump::find(&dumped, None, None, 2).unwrap();
        let audit = audit_files(&plan, &layer, &dump).unwrap();
        assert!(!audit.clean());
        assert_eq!(
            diagnose(&plan, &layer, &dump, &audit).unwrap(),
            [],
            "{missing}"
        );
    }
}

#[test]
fn a_missing_or_cut_tensor_is_a_fault_and_no_error() {
    let (case, plan, logical) = made("e=2,h=24,i=44,tp=2,w=fp8,pad=h32.i16,fill=wild");
    let packed = pack_layer(&plan, &logical).unwrap();
    let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
    let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
    let mut dumped = after(&packed, &[1]);
    dumped.tensors.retain(|t| !t.0.ends_with("w2_weight_scale"));
    let cut = dumped
        .tensors
        .iter_mut()
        .find(|t| t.0.ends_with("w13_weight"))
        .unwrap();
    cut.3.pop();
    cut.2[0] -= 1;
    dumped.add("rank1.w2_bias", safetensors::Dtype::F32, &[1], vec![0; 4]);
    let dumped = dumped.open();
    let dump = Dump::find(&dumped, None, None, 2).unwrap();
    let audit = audit_files(&plan, &layer, &dump).unwrap();
    let told: Vec<String> = audit.first.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "w2_bias rank 1: tensor is not in the plan",
            "w13 rank 1: tensor has another size, wanted 4096, got 4095 bytes",
            "w2_scale rank 1: tensor is missing",
        ]
    );
    assert!(diagnose(&plan, &layer, &dump, &audit).unwrap().is_empty());
}
