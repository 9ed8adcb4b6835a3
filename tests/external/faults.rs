//! Faults planted in a Python subject: each is caught by a case that is padded as its victims were,
//! and shrinks to a small one.

use crate::external::{ends, python, script};

/// (fault, property, case on which it shows).
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "split-at-real-width",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,pad=i64,seed=1",
    ),
    (
        "halves-swapped",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,pad=i64",
    ),
    (
        "interleave-16-for-8",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,order=int8,pad=i64",
    ),
    (
        "scale-block-from-floor",
        "pad-identity",
        "t=9,e=6,k=3,h=200,i=200,w=fp8-block,fill=wild,pad=i16",
    ),
    (
        "scale-rows-shifted",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,w=mxfp4,fill=wild,pad=i64",
    ),
    (
        "first-experts-global",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,w=nvfp4,fill=wild,pad=i64",
    ),
    (
        "last-column-lost",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,pad=i64",
    ),
    (
        "w2-bias-on-every-rank",
        "tp-sum",
        "t=9,e=6,k=3,h=64,i=200,tp=2,bias=both,fill=wild,pad=i64",
    ),
    (
        "up-plus-one-forgotten",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,act=swigluoai,fill=wild,pad=i64",
    ),
    (
        "stale-workspace",
        "poison-isolated",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,pad=i64",
    ),
    (
        "intermediate-in-bf16",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,pad=i64",
    ),
    (
        "e8m0-bias-125",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,w=mxfp4,fill=wild,pad=i64",
    ),
    (
        "fnuz-for-fn",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,w=fp8,fill=wild,pad=i64",
    ),
    (
        "nibbles-swapped",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,w=nvfp4,fill=wild,pad=i64",
    ),
    (
        "int4-offset-forgotten",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,w=int4-g32,fill=wild,pad=i64",
    ),
    (
        "sliced-at-padded-stride",
        "hidden-pad",
        "t=9,e=6,k=3,h=60,i=200,fill=wild,pad=h64.i64",
    ),
    (
        "pad-rows-reduced",
        "token-pad",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,pad=i64.t4",
    ),
    (
        "experts-miscounted",
        "tp-sum",
        "t=9,e=6,k=3,h=64,i=200,tp=2,ep=2,fill=wild,pad=i64",
    ),
    (
        "not-a-number",
        "pad-identity",
        "t=9,e=6,k=3,h=64,i=200,fill=wild,pad=i64",
    ),
];

fn number(line: &str, key: &str, plain: u64) -> u64 {
    let pair = |p: &str| p.strip_prefix(key)?.strip_prefix('=')?.parse().ok();
    line.split(',').find_map(pair).unwrap_or(plain)
}

/// Elements of one projection of every expert, times tokens.
fn size(line: &str) -> u64 {
    ["t", "e", "h", "i"]
        .iter()
        .zip([4, 4, 64, 64])
        .map(|(key, plain)| number(line, key, plain))
        .product()
}

#[test]
fn each_planted_fault_is_caught_and_shrunk_to_a_small_case() {
    let Some(python) = python("numpy") else {
        return;
    };
    let mut missed = Vec::new();
    for (fault, property, case) in FAULTS {
        let command = script(&python, "tests/external/faulty.py", fault);
        let out = crate::external::padproof(&["shrink", property, case, "--subject", &command]);
        let said = crate::external::text(&out.stdout);
        if out.status.code() != Some(0) {
            missed.push(format!(
                "{fault}: {said}{}",
                crate::external::text(&out.stderr)
            ));
            continue;
        }
        let small = said.lines().next().unwrap().split("  ").last().unwrap();
        println!("{fault}: {property} {small}");
        assert!(
            said.contains("repro: padproof check") && said.contains(fault),
            "{said}"
        );
        if size(small) * 50 > size(case) {
            missed.push(format!("{fault}: shrunk to {small} only"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn the_first_stage_that_differs_is_named() {
    let Some(python) = python("numpy") else {
        return;
    };
    let case = "t=9,e=6,k=3,h=64,i=200,w=mxfp4,fill=wild,order=up-gate,tp=2,pad=i64";
    for (fault, wanted) in [
        (
            "e8m0-bias-125",
            "first stage that differs: fc1, token 0 choice 0 (expert ",
        ),
        (
            "intermediate-in-bf16",
            "first stage that differs: act, token 0 choice 0",
        ),
        (
            "last-column-lost",
            "first stage that differs: fc2, token 0 choice 0",
        ),
        ("not-a-number", "no stage differs"),
    ] {
        let command = script(&python, "tests/external/faulty.py", fault);
        let said = ends(&["check", "pad-identity", case, "--subject", &command], 1);
        assert!(said.contains(wanted), "{fault}: {said}");
    }
}

#[test]
fn without_a_fault_the_same_cases_pass() {
    let Some(python) = python("numpy") else {
        return;
    };
    let command = script(&python, "tests/external/faulty.py", "none");
    for (_, property, case) in FAULTS {
        ends(&["check", property, case, "--subject", &command], 0);
    }
}

/// The line of the property in a run in which it passes.
#[track_caller]
fn passes(property: &str, run: &[&str], command: &str) -> String {
    let said = ends(&[&["run"], run, &["--subject", command]].concat(), 0);
    let line = said.lines().find(|line| line.contains(property)).unwrap();
    assert!(line.starts_with("PASS"), "{said}");
    line.to_owned()
}

/// Sums of three experts mostly agree by chance: asking once more does not tell them from what poison did.
#[test]
fn what_adds_in_any_order_is_held_to_the_bound() {
    let Some(python) = python("numpy") else {
        return;
    };
    let command = script(&python, "tests/external/faulty.py", "any-order");
    let asked = ["-p", "poison-isolated,token-pad", "-j", "1"];
    let run = [&["-n", "120", "--profile", "small"][..], &asked].concat();
    passes("poison-isolated", &run, &command);
}

#[test]
fn the_example_holds_in_every_format_and_activation() {
    let Some(python) = python("numpy") else {
        return;
    };
    let command = script(&python, "python/subjects/numpy_moe.py", "");
    // The full profile draws every word there is; the small one is quick.
    for (profile, cases) in [("small", "200"), ("full", "150")] {
        let asked = ["-p", "pad-identity,tp-sum,token-pad", "--max-fail", "3"];
        let run = [&["-n", cases, "--profile", profile][..], &asked].concat();
        let line = passes("pad-identity", &run, &command);
        assert!(line.contains("  numpy "), "{line}");
    }
}

/// A kernel that keeps its activations in bfloat16 holds where it says so, and its faults show.
#[test]
fn a_bf16_kernel_holds_where_it_declares_its_roundings() {
    let Some(python) = python("numpy") else {
        return;
    };
    let command = script(&python, "python/subjects/numpy_moe.py", "--bf16");
    let asked = ["-p", "pad-identity,tp-sum,token-pad", "--max-fail", "3"];
    let run = [&["-n", "150", "--profile", "small"][..], &asked].concat();
    passes("pad-identity", &run, &command);
    let folder = tempfile::tempdir().unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("python/subjects/numpy_moe.py")).unwrap();
    let case = "t=4,e=4,h=64,i=33,w=bf16,pad=i32,seed=5";
    // Looking for its order forgets none of them.
    let reveal = ["--reveal", "--subject", &command];
    ends(&[&["check", "pad-identity", case][..], &reveal].concat(), 0);
    for (from, to) in [
        // Undeclared, the same roundings are outside the bound.
        (
            "\"rounds\": [\"x\", \"fc1\", \"act\", \"fc2\", \"weighted\", \"sum\"]",
            "\"rounds\": []",
        ),
        // Up's half taken for gate's.
        (
            "activate(layer, *layer.halves(rows))",
            "activate(layer, *layer.halves(rows)[::-1])",
        ),
    ] {
        assert!(page.contains(from), "{from}");
        let file = folder.path().join("kernel.py");
        let helpers = root.join("python");
        let there = format!("sys.path.insert(0, {:?})", helpers.display().to_string());
        let line = page
            .lines()
            .find(|l| l.starts_with("sys.path.insert"))
            .unwrap();
        std::fs::write(&file, page.replace(from, to).replace(line, &there)).unwrap();
        let command = format!("{python} -B {} --bf16", file.display());
        ends(&["check", "pad-identity", case, "--subject", &command], 1);
    }
}
