//! Goal: the kernels hold the same claims on a device as on the CPU. Method: one list of checks, asked of `cuda-host`
//! and of `cuda`, with the same verdicts case by case. Without a device the second half says why it is skipped, or
//! fails where PADPROOF_DEVICE=required; `.ci/emulated` builds a driver that runs it on the CPU, so that all of it
//! is executed code. Under compute-sanitizer: `.ci/compute-sanitizer`.

#![expect(clippy::print_stdout, reason = "what ran is told when a test fails")]

mod refusals;
mod tensor_core;

use padproof::case::Case;
use padproof::compare::same_bits;
use padproof::fill::fill;
use padproof::layout::pack_layer;
use padproof::num::Dtype;
use padproof::plan::{Fit, plan};
use padproof::property::{ALL, Needs, Property, Tier, Trial, Verdict, find};
use padproof::subject::{
    Cuda, CudaHost, HostOptions, KernelOptions, Launched, Paths, SkipReason, Subject, SubjectError,
};
use padproof::suite::{builtin, parse};
use padproof::terms::{ActQuant, Activation, WeightFormat};
use rayon::prelude::*;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// Cases of a suite that `cuda-host` is asked here where there is no device: tests/kernels asks it all of them.
const SHARE: usize = 16;

/// Whether there is a device; says why not, which is a failure where PADPROOF_DEVICE=required.
fn device() -> bool {
    static SEEK: Once = Once::new();
    SEEK.call_once(|| {
        if let Some(folder) = std::env::var_os("PADPROOF_NVRTC") {
            padproof::subject::seek_nvrtc(Path::new(&folder));
        }
    });
    match (Cuda::facts(), Cuda::compiler()) {
        (Ok(facts), Ok(compiler)) => {
            let (major, minor) = compiler.version;
            println!(
                "device: {} ({}), NVRTC {major}.{minor}",
                facts.name, facts.arch
            );
            true
        }
        (Err(why), _) | (_, Err(why)) => missing(&why.to_string()),
    }
}

/// Whether the kernels run on the CPU; says why not, as `device`.
fn host() -> bool {
    match CudaHost::available() {
        Ok(()) => true,
        Err(why) => missing(&why.to_string()),
    }
}

fn missing(why: &str) -> bool {
    let asked = std::env::var("PADPROOF_DEVICE").unwrap_or_default();
    assert_ne!(asked, "required", "PADPROOF_DEVICE=required: {why}");
    println!("skipped: {why}");
    false
}

/// The kernels on the device; where a tool watches addresses (`.ci/compute-sanitizer`), with nothing around and
/// nothing in what they may not read.
fn cuda(options: KernelOptions) -> Cuda {
    let subject = Cuda::with(options);
    match std::env::var_os("PADPROOF_DEVICE_BARE") {
        Some(_) => subject.bare(),
        None => subject,
    }
}

fn suite(name: &str, share: usize) -> Vec<Case> {
    let suite = parse(builtin(name).expect("it is shipped"), name).expect("it parses");
    let cases = suite.cases.into_iter().map(|entry| entry.case);
    cases.step_by(share).collect()
}

/// What a check said, but for the evidence.
#[derive(Debug, PartialEq)]
enum Said {
    Passed,
    Vacuous,
    Skipped(String),
}

/// The verdicts of a case; none is a fault.
fn said(subject: &mut dyn Subject, case: &Case, properties: &[&Property]) -> Vec<Said> {
    let one = |property: &&Property| {
        let verdict = (property.check)(case, &mut Trial::new(subject));
        match verdict {
            Verdict::Pass(_) => Said::Passed,
            Verdict::Vacuous(_) => Said::Vacuous,
            Verdict::Skip(why) => Said::Skipped(why.to_string()),
            Verdict::Fail(f) => panic!(
                "{} of {} on {}: {} wanted {}, got {} ({}; {} of {})",
                property.name,
                case,
                subject.name(),
                f.place,
                f.wanted,
                f.actual,
                f.bound,
                f.differing,
                f.total
            ),
            Verdict::Broken(e) => {
                panic!("{} of {} on {}: {e}", property.name, case, subject.name())
            }
        }
    };
    properties.iter().map(one).collect()
}

/// Every claim holds on the CPU, over a share of the suite; and on a device, over all that it is asked, each case
/// with the same kind of verdict as there: nothing is left out.
fn hold(name: &str, properties: &[&Property]) {
    let on_device = device();
    let share = std::env::var("PADPROOF_DEVICE_SHARE").ok();
    let share = share.and_then(|n| n.parse().ok()).unwrap_or(1);
    let cases = suite(name, if on_device { share } else { SHARE });
    if !host() {
        return;
    }
    let wanted: Vec<Vec<Said>> = cases
        .par_iter()
        .map(|case| said(&mut CudaHost::new(), case, properties))
        .collect();
    let passed = wanted
        .iter()
        .flatten()
        .filter(|s| **s == Said::Passed)
        .count();
    println!("{name}: {passed} passed over {} cases", cases.len());
    assert!(passed > cases.len() / 2, "{passed} of {}", cases.len());
    if !on_device {
        return;
    }
    let mut subject = cuda(KernelOptions::default());
    for (case, wanted) in cases.iter().zip(&wanted) {
        let actual = said(&mut subject, case, properties);
        assert_eq!(&actual, wanted, "{case} on {}", subject.name());
    }
}

#[test]
fn the_smoke_suite_holds() {
    let of = |p: &&Property| matches!(p.needs, Needs::Subject | Needs::Paths);
    let properties: Vec<&Property> = ALL.iter().filter(of).collect();
    hold("smoke", &properties);
}

#[test]
fn the_boundary_suite_holds_with_equal_bits_on_both_paths() {
    let claims = ["pad-identity", "device-pad-identity"];
    hold(
        "boundary",
        &claims.map(|name| find(name).expect("it is listed")),
    );
}

#[test]
fn a_device_that_is_required_and_missing_fails_the_tests() {
    let ran = Command::new(std::env::current_exe().expect("it runs"))
        .args(["the_smoke_suite_holds", "--exact", "--nocapture"])
        .env("PADPROOF_DEVICE", "required")
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("PP_EMULATED_FAIL", "cuInit")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success(), "{text}");
    assert!(
        text.contains("PADPROOF_DEVICE=required: no device: "),
        "{text}"
    );
}

/// Which kernels a case takes: the fast path where rows allow it, else the general one, with the types of both
/// products.
#[test]
fn the_kernels_that_a_case_asks_for_are_those_that_are_launched() {
    let bf16 = Dtype::Bf16;
    let on_device = device();
    for (line, paths, fast, mid) in [
        (
            "t=3,h=64,i=50,w=fp8,pad=i64,mid=bf16",
            Paths::Auto,
            true,
            bf16,
        ),
        ("t=3,h=64,i=50,w=fp8,pad=i64", Paths::Auto, true, Dtype::F32),
        (
            "t=3,h=64,i=50,w=fp8,pad=i64,mid=bf16",
            Paths::General,
            false,
            bf16,
        ),
        (
            "t=3,h=61,i=53,w=bf16,pad=h1.i1,mid=bf16",
            Paths::Auto,
            false,
            bf16,
        ),
    ] {
        let case: Case = line.parse().expect("a case line");
        let plan = plan(&case).expect("it is planned");
        let mut logical = fill(&case).expect("it is filled");
        for v in logical.x.f32s_mut() {
            *v = f32::from_bits(v.to_bits() & 0xffff_0000);
        }
        let packed = pack_layer(&plan, &logical).expect("it is laid out");
        let weights = plan.weight.element();
        let product = |kernel, inputs| Launched {
            kernel,
            fast,
            inputs,
            weights,
        };
        let wanted = [
            Launched {
                fast: false,
                ..product("pp_align", bf16)
            },
            product("pp_gemm1", bf16),
            product("pp_gemm2", mid),
        ];
        if host() {
            let mut subject = CudaHost::with(HostOptions {
                paths,
                ..HostOptions::default()
            });
            subject.run(&plan, &packed).expect("it runs");
            assert_eq!(subject.launched(), wanted, "{line} on cuda-host");
        }
        if on_device {
            let mut subject = cuda(KernelOptions {
                paths,
                ..KernelOptions::default()
            });
            subject.run(&plan, &packed).expect("it runs");
            assert_eq!(subject.launched(), wanted, "{line} on cuda");
        }
    }
}

/// Whether no step of the case leaves what all machines compute alike, whatever the values: one fused
/// multiply-add after the other (an f32 input keeps the tensor core out), and activations of one step.
fn same_everywhere(case: &Case) -> bool {
    matches!(
        case.act,
        Activation::Relu2 | Activation::Relu | Activation::Identity
    ) && case.qx == ActQuant::None
        && case.qh == ActQuant::None
        && !case.mid_bf16
}

/// device-agrees: against the reference within the derived bound (that is in pad-identity), and bit
/// for bit with the same source on the CPU where only exact arithmetic is involved.
#[test]
fn the_device_agrees_with_the_same_source_on_the_cpu() {
    let identity = find("pad-identity").expect("it is listed");
    let mut lines: Vec<String> = Vec::new();
    for w in WeightFormat::ALL {
        for (act, fill) in [("relu2", "wild"), ("relu2", "exact"), ("swiglu", "wild")] {
            lines.push(format!(
                "t=7,e=4,h=160,i=100,act={act},route=given,w={w},pad=h64.i32,fill={fill}"
            ));
        }
    }
    let options = KernelOptions {
        inputs: Some(Dtype::F32),
        ..KernelOptions::default()
    };
    let others: Vec<Box<dyn Subject>> = if device() {
        vec![Box::new(cuda(options))]
    } else {
        Vec::new()
    };
    // Without a device, the other path stands in for it.
    let general = || -> Box<dyn Subject> {
        let mut host = CudaHost::new();
        host.keep_general(true);
        Box::new(host)
    };
    if !host() {
        return;
    }
    let mut equal = 0;
    for mut other in others.into_iter().chain([general()]) {
        for line in &lines {
            let case: Case = line.parse().expect("a case line");
            let plan = plan(&case).expect("it is planned");
            let exact = match (identity.check)(&case, &mut Trial::new(other.as_mut())) {
                Verdict::Pass(tier) => tier == Tier::Exact,
                Verdict::Vacuous(_) => false,
                verdict => panic!("{line} on {}: {verdict:?}", other.name()),
            };
            if !(exact || same_everywhere(&case)) || plan.fit > Fit::Unknown {
                continue;
            }
            let packed =
                pack_layer(&plan, &fill(&case).expect("it is filled")).expect("it is laid out");
            let mut host = CudaHost::with(HostOptions {
                inputs: Some(Dtype::F32),
                ..Default::default()
            });
            let wanted = host.run(&plan, &packed).expect("it runs");
            let actual = other.run(&plan, &packed).expect("it runs");
            let found = same_bits(&wanted, &actual);
            assert!(found.agree, "{line} on {}: {found:?}", other.name());
            equal += 1;
        }
    }
    assert!(equal >= 20, "{equal} compared");
}

#[test]
fn options_move_no_bit_on_the_device() {
    if !device() {
        return;
    }
    let case: Case = "t=33,e=8,k=3,h=256,i=300,tp=2,ep=2,w=fp8,pad=i64,fill=wild"
        .parse()
        .expect("a case line");
    let plan = plan(&case).expect("it is planned");
    let packed = pack_layer(&plan, &fill(&case).expect("it is filled")).expect("it is laid out");
    let run = |options| cuda(options).run(&plan, &packed).expect("it runs");
    let first = run(KernelOptions::default());
    for paths in [Paths::Auto, Paths::General] {
        for masked in [false, true] {
            let again = run(KernelOptions {
                paths,
                masked,
                ..KernelOptions::default()
            });
            assert!(same_bits(&first, &again).agree, "{paths:?} {masked}");
        }
    }
    let bare = Cuda::new().bare().run(&plan, &packed).expect("it runs");
    assert!(same_bits(&first, &bare).agree);
    let (timed, seconds) = Cuda::new().time(&plan, &packed, 3).expect("it runs");
    assert!(same_bits(&first, &timed).agree);
    assert_eq!(seconds.len(), 3 * plan.ranks.len());
    assert!(seconds.iter().all(|s| *s > 0.0), "{seconds:?}");
}

#[test]
fn without_a_device_everything_is_skipped_with_a_reason() {
    if device() {
        return;
    }
    let case: Case = "i=100,pad=i64".parse().expect("a case line");
    let plan = plan(&case).expect("it is planned");
    let why = Cuda::new().supports(&plan).unwrap_err();
    assert!(
        matches!(&why, SkipReason::NoDevice(_) | SkipReason::NoCompiler(_)),
        "{why}"
    );
    for property in ALL.iter().filter(|p| p.needs == Needs::Subject) {
        let verdict = (property.check)(&case, &mut Trial::new(&mut Cuda::new()));
        assert!(
            matches!(verdict, Verdict::Skip(_) | Verdict::Vacuous(_)),
            "{}: {verdict:?}",
            property.name
        );
    }
    let packed = pack_layer(&plan, &fill(&case).expect("it is filled")).expect("it is laid out");
    let error = Cuda::new().time(&plan, &packed, 1).unwrap_err();
    assert!(error.to_string().starts_with("no "), "{error}");
}

#[test]
fn mutants_without_a_device_end_with_a_sentence_and_as_nothing_ran() {
    if device() {
        return;
    }
    let (ended, text) = refusals::padproof(&["run", "--mutants", "-s", "cuda"], []);
    let said = "nothing ran: subject cuda runs none of the cases: no ";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(ended, Some(4), "{text}");
}

#[test]
fn what_the_compiler_refuses_is_an_error_that_names_the_source() {
    device();
    let error = Cuda::compile("sm_80", Dtype::E5m2, Dtype::E4m3).unwrap_err();
    assert_eq!(error.to_string(), "moe.cu: compile: no kernel for e5m2");
    let error = Cuda::compile("sm_12", Dtype::Bf16, Dtype::E4m3).unwrap_err();
    if matches!(error, SubjectError::Skipped(SkipReason::NoCompiler(_))) {
        println!("skipped: {error}");
        return;
    }
    let text = error.to_string();
    let start = "moe.cu: nvrtcCompileProgram: sm_12 -DPP_A=2 -DPP_W=3: error ";
    assert!(text.starts_with(start), "{text}");
    // The compiler's own words, not a number alone.
    assert!(text.contains("gpu-architecture"), "{text}");
    let code = Cuda::compile("sm_80", Dtype::Bf16, Dtype::E4m3).expect("it compiles");
    assert_eq!(&code[..4], b"\x7fELF");
    let holds = |name: &[u8]| code.windows(name.len()).any(|at| at == name);
    assert!(holds(b"\0pp_gemm2_fast_2_3\0") && holds(b"\0pp_gemm1_general_2_3\0"));
}
