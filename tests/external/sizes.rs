//! Functions of sizes: the published faults are found by black box, each at a small width.

use crate::external::{ends, padproof, python, script, text};
use padproof::case::Case;
use padproof::layout::PackedInputs;
use padproof::mutant::{self, Stage};
use padproof::plan::Plan;
use padproof::property::{Tier, Trial, Verdict, find};
use padproof::schedule::Schedule;
use padproof::subject::{Allocated, SkipReason, Subject, SubjectError};
use padproof::tensor::Output;

/// (fault of facts/peers.md 3, a case of a real width, what the smallest case reads, what it says).
const FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        "not-gated-keeps-its-rows",
        "t=1,e=1,k=1,i=961,act=relu2,w=fp8",
        "i=1,act=relu2,",
        "wanted w13 128 rows: 1 times w2's 128 columns, got 1 rows",
    ),
    (
        "not-gated-packed-doubles",
        "t=1,e=1,k=1,i=256,act=relu2,w=mxfp4",
        "i=1,act=relu2,",
        "got 2 rows",
    ),
    (
        "recovery-factor-skipped",
        "t=1,e=1,k=1,i=192,w=mxfp4",
        "i=1,",
        "wanted w13 512 rows: 2 times w2's 256 columns, got 256 rows",
    ),
    (
        "odd-element-dropped",
        "t=1,e=1,k=1,i=257,w=mxfp4",
        "i=1,",
        "wanted w2 1 columns or more, got 0 columns",
    ),
];

#[test]
fn the_published_faults_of_size_functions_are_found_and_shrunk() {
    let Some(python) = python("numpy") else {
        return;
    };
    for (fault, case, small, said) in FAULTS {
        let subject = script(&python, "tests/external/sizes.py", fault);
        let out = ends(&["shrink", "sizes-agree", case, "--subject", &subject], 0);
        let first = out.lines().next().unwrap();
        assert!(format!("{first},").contains(small), "{fault}: {out}");
        assert!(out.contains(said), "{fault}: {out}");
        // By random cases alone, too.
        let run = ["run", "-n", "200", "--profile", "small", "--no-shrink"];
        let out = padproof(&[&run[..], &["-p", "sizes-agree", "--subject", &subject]].concat());
        assert_eq!(out.status.code(), Some(1), "{fault}: {}", text(&out.stdout));
    }
}

#[test]
fn without_a_fault_every_width_and_format_agrees() {
    let Some(python) = python("numpy") else {
        return;
    };
    let subject = script(&python, "tests/external/sizes.py", "none");
    let run = [
        "run",
        "-n",
        "300",
        "--profile",
        "small",
        "--subject",
        &subject,
    ];
    let said = ends(&run, 0);
    let line = said.lines().find(|l| l.contains("sizes-agree")).unwrap();
    assert!(line.starts_with("PASS"), "{said}");
    // It runs no layers: what needs one is not asked, and named it is a skip.
    assert!(!said.contains("pad-identity"), "{said}");
    let asked = ["check", "pad-identity", "i=33", "--subject", &subject];
    assert!(ends(&asked, 4).contains("runs no layers"));
}

#[test]
fn programs_that_tell_no_sizes_are_not_asked_for_them() {
    let Some(python) = python("numpy") else {
        return;
    };
    let subject = script(&python, "python/subjects/numpy_moe.py", "");
    // Half of the properties have nothing to prove there.
    let said = ends(&["run", "i=33,pad=i32", "--subject", &subject], 3);
    assert!(!said.contains("sizes-agree"), "{said}");
    let asked = ["check", "sizes-agree", "i=33", "--subject", &subject];
    assert!(ends(&asked, 4).contains("tells no sizes"));
}

#[test]
fn the_installed_engines_functions_are_found_out() {
    let Some(python) = python("numpy, importlib.util as u; assert u.find_spec('sglang')") else {
        return;
    };
    for (way, case, said) in [
        // F1: 961 of the FP8 method, not gated.
        (
            "sglang",
            "t=1,e=1,k=1,i=961,act=relu2,w=fp8",
            "wanted w13 1024 rows: 1 times w2's 1024 columns, got 961 rows",
        ),
        // F2: not gated and packed, already aligned.
        (
            "sglang",
            "t=1,e=1,k=1,i=256,act=relu2,w=mxfp4",
            "wanted w13 256 rows: 1 times w2's 256 columns, got 512 rows",
        ),
        // F3: gated and packed on a torch without the FP4 type.
        (
            "sglang-no-fp4",
            "t=1,e=1,k=1,i=192,w=mxfp4",
            "wanted w13 512 rows: 2 times w2's 256 columns, got 256 rows",
        ),
        // F4: packed, one past a multiple of 256.
        (
            "sglang",
            "t=1,e=1,k=1,i=257,w=mxfp4",
            "wanted w2 257 columns or more, got 256 columns",
        ),
    ] {
        let subject = script(&python, "python/subjects/engine_sizes.py", way);
        let out = ends(&["check", "sizes-agree", case, "--subject", &subject], 1);
        assert!(out.contains(said), "{way} {case}: {out}");
    }
    let subject = script(&python, "python/subjects/engine_sizes.py", "sglang");
    let gated = "t=1,e=1,k=1,i=961,w=fp8";
    ends(&["check", "sizes-agree", gated, "--subject", &subject], 0);
}

#[test]
fn vllms_functions_of_sizes_agree_but_where_a_backend_leaves_odd_widths() {
    let Some(python) = python("numpy, importlib.util as u; assert u.find_spec('vllm')") else {
        return;
    };
    let path = "python/subjects/engine_sizes.py";
    for way in ["marlin", "cpu", "triton", "deepgemm_mxfp4", "marlin-int4"] {
        let subject = script(&python, path, &format!("vllm-{way}"));
        let run = [
            "run",
            "-n",
            "300",
            "--profile",
            "small",
            "-p",
            "sizes-agree",
        ];
        let said = ends(&[&run[..], &["--subject", &subject]].concat(), 0);
        assert!(
            said.starts_with("padproof") && said.contains("PASS"),
            "{said}"
        );
    }
    // F15 of facts/peers.md: B12X's widths stay as they are, odd ones too, two elements in a byte.
    let subject = script(&python, path, "vllm-b12x_mxfp4_bf16");
    let odd = ["check", "sizes-agree", "t=1,e=1,k=1,i=257,w=mxfp4"];
    let said = ends(&[&odd[..], &["--subject", &subject]].concat(), 1);
    assert!(
        said.contains("wanted w2 257 columns or more, got 256"),
        "{said}"
    );
}

/// Tells the sizes of a granule of 16, and runs nothing.
struct Sixteen;

impl Subject for Sixteen {
    fn name(&self) -> &str {
        "sixteen"
    }
    fn supports(&self, _: &Plan) -> Result<(), SkipReason> {
        Err(SkipReason::NoSubject)
    }
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    fn tells_sizes(&self) -> bool {
        true
    }
    fn takes_sizes(&self, _: &Plan) -> Result<(), SkipReason> {
        Ok(())
    }
    fn allocated(&mut self, plan: &Plan, width: u64) -> Result<Allocated, SubjectError> {
        let w2_elements = width.next_multiple_of(16);
        Ok(Allocated {
            w13_rows: plan.dims.halves * w2_elements,
            w2_elements,
        })
    }
    fn run(&mut self, _: &Plan, _: &PackedInputs) -> Result<Output, SubjectError> {
        Err(SkipReason::NoSubject.into())
    }
}

#[test]
fn where_the_case_names_a_rule_its_plan_is_held_against_the_function() {
    let property = find("sizes-agree").unwrap();
    let line = "t=2,e=4,h=64,i=961,act=relu2,w=fp8,rule=sglang.flashinfer_cutlass.fp8";
    let case: Case = line.parse().unwrap();
    let verdict = (property.check)(&case, &mut Trial::new(&mut Sixteen));
    assert_eq!(verdict, Verdict::Pass(Tier::Bytes));
    let mut caught = Vec::new();
    for mutant in mutant::ALL {
        if matches!(mutant.stage, Stage::Plan(_)) {
            let mut subject = Sixteen;
            let mut trial = Trial::mutated(&mut subject, mutant);
            if let Verdict::Fail(finding) = (property.check)(&case, &mut trial) {
                assert!(trial.planted, "{}", mutant.name);
                assert!(finding.wanted.contains("flashinfer_cutlass"), "{finding:?}");
                caught.push(mutant.name);
            }
        }
    }
    println!("caught: {}", caught.join(", "));
    assert!(caught.len() >= 3, "{caught:?}");
}
