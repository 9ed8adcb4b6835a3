//! Goal: the kernels hold the same claims on a device as on the CPU. Method: one list of checks, asked of
//! `cuda-host` over a share of the cases and of `cuda` over all of them. Without a device the second half
//! says why it is skipped; `.ci/emulated` builds a driver that runs it on the CPU, so that all of it is
//! executed code. Under compute-sanitizer: `.ci/compute-sanitizer`.

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
    Cuda, CudaHost, HostOptions, KernelOptions, Paths, SkipReason, Subject, SubjectError,
};
use padproof::suite::{builtin, parse};
use padproof::terms::{ActQuant, Activation, WeightFormat};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

/// Cases of a suite that `cuda-host` is asked here: tests/kernels asks it all of them.
const SHARE: usize = 16;

/// Whether there is a device; says why not.
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
        (Err(why), _) | (_, Err(why)) => {
            println!("skipped: {why}");
            false
        }
    }
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

/// The kernels where they run here: each with which share of the cases.
fn subjects() -> Vec<(Box<dyn Subject>, usize)> {
    let mut all: Vec<(Box<dyn Subject>, usize)> = Vec::new();
    if CudaHost::available().is_ok() {
        all.push((Box::new(CudaHost::new()), SHARE));
    }
    if device() {
        let share = std::env::var("PADPROOF_DEVICE_SHARE").ok();
        let share = share.and_then(|n| n.parse().ok()).unwrap_or(1);
        all.push((Box::new(cuda(KernelOptions::default())), share));
    }
    all
}

fn suite(name: &str, share: usize) -> Vec<Case> {
    let suite = parse(builtin(name).expect("it is shipped"), name).expect("it parses");
    let cases = suite.cases.into_iter().map(|entry| entry.case);
    cases.step_by(share).collect()
}

/// Every verdict holds; answers how many passed.
fn hold(subject: &mut dyn Subject, cases: &[Case], properties: &[&Property]) -> u64 {
    let mut passed = 0;
    let mut skips: BTreeMap<String, u64> = BTreeMap::new();
    for case in cases {
        for property in properties {
            match (property.check)(case, &mut Trial::new(subject)) {
                Verdict::Pass(_) => passed += 1,
                Verdict::Vacuous(_) => {}
                Verdict::Skip(why) => *skips.entry(why.to_string()).or_default() += 1,
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
        }
    }
    println!("{}: {passed} passed, skipped {skips:?}", subject.name());
    assert!(
        !skips.keys().any(|why| why.contains("no device")),
        "{skips:?}"
    );
    passed
}

#[test]
fn the_smoke_suite_holds() {
    let of = |p: &&Property| matches!(p.needs, Needs::Subject | Needs::Paths);
    let properties: Vec<&Property> = ALL.iter().filter(of).collect();
    for (mut subject, share) in subjects() {
        let cases = suite("smoke", share);
        let passed = hold(subject.as_mut(), &cases, &properties);
        assert!(
            passed as usize >= cases.len(),
            "{passed} of {}",
            cases.len()
        );
    }
}

#[test]
fn the_boundary_suite_holds_with_equal_bits_on_both_paths() {
    let claims = ["pad-identity", "device-pad-identity"];
    let claims = claims.map(|name| find(name).expect("it is listed"));
    for (mut subject, share) in subjects() {
        let cases = suite("boundary", share);
        let passed = hold(subject.as_mut(), &cases, &claims);
        assert!(
            passed as usize > cases.len() / 2,
            "{passed} of {}",
            cases.len()
        );
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
    if CudaHost::available().is_err() {
        println!("skipped: the kernels were not compiled for this machine");
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
