//! What a driver or a compiler refuses, and how the command says it: asked of the driver of `.ci/emulated`, which
//! fails when it is told to.

use super::device;
use padproof::subject::Cuda;
use std::process::Command;

/// What a call that fails becomes, asked of the command: it is a skip before a device is chosen, and then an
/// error that names kernel and call.
#[test]
fn what_a_driver_refuses_names_the_call_and_the_kernel() {
    if !emulated() {
        return;
    }
    for (call, code, sentence) in [
        ("cuInit", 4, "no device: cuInit: CUDA_ERROR_NO_DEVICE"),
        (
            "cuDriverGetVersion",
            4,
            "no device: the driver knows CUDA 11.8; it must know 12.0",
        ),
        ("cuDeviceGetCount", 4, "no device: the driver shows none"),
        (
            "cuMemAllocAsync",
            2,
            "moe.cu: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY",
        ),
        (
            "cuModuleLoadData",
            2,
            "moe.cu: cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE",
        ),
        (
            "cuLaunchKernel",
            2,
            "pp_align: cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED",
        ),
        ("cuStreamSynchronize", 2, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ] {
        let (ended, text) = check([("PP_EMULATED_FAIL", call)]);
        assert!(text.contains(sentence), "{call}: {text}");
        assert_eq!(ended, Some(code), "{call}: {text}");
    }
}

/// Whether the device is `.ci/emulated`'s, which fails when asked to.
fn emulated() -> bool {
    let found = device() && Cuda::facts().is_ok_and(|facts| facts.name == "emulated");
    if !found {
        println!("skipped: only the emulated driver fails when asked to");
    }
    found
}

/// How the command ends and what it says.
pub(super) fn padproof<const N: usize>(
    args: &[&str],
    variables: [(&str, &str); N],
) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_padproof"))
        .args(args)
        .envs(variables)
        .output()
        .expect("it starts");
    let text = [ran.stdout, ran.stderr].concat();
    (
        ran.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn check<const N: usize>(variables: [(&str, &str); N]) -> (Option<i32>, String) {
    let case = "i=100,w=bf16,pad=i64";
    padproof(&["check", "pad-identity", case, "-s", "cuda"], variables)
}

#[test]
fn memory_that_is_not_free_is_a_skip_with_its_size_before_anything_is_taken() {
    if !emulated() {
        return;
    }
    let (ended, text) = check([("PP_EMULATED_FREE", "10000")]);
    assert!(text.contains("device memory needs "), "{text}");
    assert!(text.contains(" bytes; at most 10000"), "{text}");
    assert_eq!(ended, Some(4), "{text}");
}

/// The driver says so to whoever waits next, and to all after: only the case that faulted is broken.
#[test]
fn a_fault_is_of_its_own_kernel_and_case_however_many_threads_ask() {
    if !emulated() {
        return;
    }
    let of = |t: u64| format!("t={t},i=100,act=relu2,w=bf16,pad=i64");
    let mut args = vec!["run".to_owned()];
    args.extend((2..20).map(of));
    args.extend(["-s", "cuda", "-n", "0", "-p", "pad-identity", "-v"].map(str::to_owned));
    args.extend(["-j", "8", "--max-fail", "all"].map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (ended, text) = padproof(&args, [("PP_EMULATED_FAULT", "7")]);
    assert_eq!(ended, Some(2), "{text}");
    let fault = "pp_align: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (see above)";
    let broken: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("BROKEN "))
        .collect();
    assert!(text.contains(fault), "{text}");
    assert!(!broken.is_empty(), "{text}");
    let named = |line: &&str| (2..20).any(|t| t != 7 && line.contains(&format!("{},", of(t))));
    assert!(!broken.iter().any(named), "{text}");
    let lost = format!(
        "no device: it was lost to an earlier fault: {fault} in {}",
        of(7)
    );
    assert!(text.contains(&lost), "{text}");
}

#[test]
fn a_device_without_a_compiler_is_told_from_no_device() {
    if !emulated() {
        return;
    }
    let nowhere = ("PADPROOF_NVRTC", "/nowhere");
    let said = "no compiler for the device: no NVRTC below /nowhere";
    let (ended, text) = check([nowhere]);
    assert!(text.contains(said), "{text}");
    assert_eq!(ended, Some(4), "{text}");
    let (_, text) = padproof(&["doctor"], [nowhere]);
    let line = text
        .lines()
        .find(|line| line.starts_with("device "))
        .unwrap_or_default();
    assert!(
        line.contains("emulated, sm_90a") && line.contains(said),
        "{text}"
    );
}

#[test]
fn a_compiler_of_a_newer_major_version_than_the_driver_is_a_skip_with_what_to_install() {
    if !emulated() {
        return;
    }
    let (major, minor) = Cuda::compiler().expect("there is one").version;
    let old = ("PP_EMULATED_CUDA", "12000");
    let said = format!(
        "no compiler for the device: NVRTC {major}.{minor} makes code that the driver, of CUDA 12.0, does not load: install nvidia-cuda-nvrtc-cu12"
    );
    let (_, text) = padproof(&["doctor"], [old]);
    assert!(text.contains(&said), "{text}");
    let (ended, text) = check([old]);
    assert!(text.contains(&said), "{text}");
    assert_eq!(ended, Some(4), "{text}");
}

#[test]
fn a_device_that_the_compiler_does_not_know_is_a_skip_and_one_that_it_knows_runs() {
    if !emulated() {
        return;
    }
    let (ended, text) = check([("PP_EMULATED_SM", "150")]);
    assert!(text.contains(" does not know sm_150: "), "{text}");
    assert_eq!(ended, Some(4), "{text}");
    let (ended, text) = check([("PP_EMULATED_SM", "80")]);
    assert_eq!(ended, Some(0), "{text}");
}

#[test]
fn machine_code_of_another_architecture_than_the_device_s_is_refused() {
    if !emulated() {
        return;
    }
    let (ended, text) = check([("PP_EMULATED_LOADS", "80")]);
    let said = "moe.cu: cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE";
    assert!(text.contains(said), "{text}");
    assert_eq!(ended, Some(2), "{text}");
}
