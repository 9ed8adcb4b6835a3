//! The boundary suite's launches again, every buffer of its exact size, in a program that a sanitizer
//! watches. `.ci/run` builds it and names it in the environment; without it this says so.

use super::{runs, suite};
use padproof::case::Case;
use padproof::fill::fill;
use padproof::layout::pack_layer;
use padproof::num::Dtype;
use padproof::plan::{Fit, Plan, plan, unpadded};
use padproof::subject::{CudaHost, Fault, HostOptions, Paths, Subject, SubjectError, Turns};
use rayon::prelude::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Block after block: a sanitizer that looks for races would take those that the kernels order by a count for some.
fn turns(n: usize) -> Turns {
    [Turns::Forward, Turns::Reverse, Turns::Seeded(n as u64)][n % 3]
}

/// A program built for one sanitizer.
fn program(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable);
    if path.is_none() {
        println!("skipped: {variable} names no program; .ci/sanitizers builds one");
    }
    path.filter(|_| runs()).map(PathBuf::from)
}

/// The launches of a case as planned and, where that differs, of the same shards unpadded.
fn records(case: &Case, options: HostOptions, fault: Fault) -> Vec<u8> {
    let mut subject = CudaHost::with(options);
    let mut all = Vec::new();
    let mut add = |plan: &Plan, logical| {
        if plan.fit > Fit::Unknown || subject.supports(plan).is_err() {
            return;
        }
        let packed = pack_layer(plan, logical).expect("it is laid out");
        match subject.record(plan, &packed, fault) {
            Ok(record) => all.extend(record),
            Err(SubjectError::Skipped(_)) => {}
            Err(e) => panic!("{case}: {e}"),
        }
    };
    let (Ok(padded), Ok(logical)) = (plan(case), fill(case)) else {
        return all;
    };
    add(&padded, &logical);
    if let Ok(bare) = unpadded(&padded) {
        add(&bare, &logical);
    }
    all
}

fn watched(program: &PathBuf, records: &[u8]) -> Output {
    let mut child = Command::new(program)
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env(
            "TSAN_OPTIONS",
            "halt_on_error=1 exitcode=66 atexit_sleep_ms=0",
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("it is piped");
    std::thread::scope(|scope| {
        // A program that ends early closes its input.
        scope.spawn(move || drop(input.write_all(records)));
        child.wait_with_output().expect("it ends")
    })
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Cases are taken in sevens, of which the first few are run: seven has no factor in common with the 2, 3, 4 and 5 after
/// which the cases' options repeat.
const ALL: usize = 7;

/// The boundary suite, a hundred cases a program, as many of them at a time as there are cores.
fn silent(variable: &str, of_seven: usize) {
    let Some(program) = program(variable) else {
        return;
    };
    let cases = suite("boundary");
    let chunks: Vec<(usize, &[Case])> = cases.chunks(100).enumerate().collect();
    let launches = |(n, chunk): &(usize, &[Case])| {
        let records = |(m, case): (usize, &Case)| {
            let n = n + m;
            let options = HostOptions {
                turns: turns(n),
                paths: [Paths::Auto, Paths::General][n / 2 % 2],
                inputs: [None, None, Some(Dtype::F16), Some(Dtype::F32)][n / 3 % 4],
                masked: n % 5 == 0,
                ..HostOptions::default()
            };
            // The tensor cores' engine of the second product takes only such rows.
            let mut case = case.clone();
            case.mid_bf16 |= n % 2 == 0;
            records(&case, options, Fault::None)
        };
        let cases = chunk.iter().enumerate();
        let all: Vec<u8> = cases
            .filter(|(m, _)| (n + m) % ALL < of_seven)
            .flat_map(records)
            .collect();
        let output = watched(&program, &all);
        assert!(output.status.success(), "{}", errors(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        count.expect("it says how many")
    };
    let ran: u64 = chunks.par_iter().map(launches).sum();
    println!("{variable}: {ran} launches of a rank");
    assert!(ran > 9000 * of_seven as u64 / ALL as u64, "{ran}");
}

/// A planted fault ends the program with the sanitizer's words.
fn loud(variable: &str, fault: Fault, line: &str, paths: Paths, words: &str) {
    let Some(program) = program(variable) else {
        return;
    };
    let case: Case = line.parse().expect("a case line");
    let options = HostOptions {
        paths,
        turns: Turns::Forward,
        ..HostOptions::default()
    };
    let right = watched(&program, &records(&case, options, Fault::None));
    assert!(right.status.success(), "{}", errors(&right));
    let output = watched(&program, &records(&case, options, fault));
    let text = errors(&output);
    assert!(!output.status.success(), "{fault:?} is not seen");
    assert!(text.contains(words), "{fault:?}: {text}");
}

const ASAN: &str = "PADPROOF_KERNELS_ASAN";
const TSAN: &str = "PADPROOF_KERNELS_TSAN";

#[test]
fn no_address_is_out_of_bounds_over_the_boundary_suite() {
    silent(ASAN, ALL);
}

#[test]
fn nothing_races_over_the_boundary_suite() {
    // Whether threads race turns on the path that is taken, not on every size.
    silent(TSAN, 3);
}

#[test]
fn addresses_out_of_bounds_are_seen() {
    let tail = "t=5,h=64,i=61,act=relu2,route=given,w=f32,pad=h128.i16,fill=wild";
    let scales = "t=5,e=2,h=96,i=40,act=relu2,route=given,w=mxfp4,pad=i32,fill=wild";
    let out = "heap-buffer-overflow";
    loud(ASAN, Fault::TailRead, tail, Paths::General, out);
    loud(ASAN, Fault::SentinelAsAddress, tail, Paths::Auto, out);
    // facts/reports.md B87: the last row's scales, past the end of the tensor.
    loud(ASAN, Fault::ScaleOverRead, scales, Paths::Auto, out);
}

#[test]
fn missing_barriers_are_seen_as_races() {
    // More slots than a turn of alignment takes.
    let slots = "t=60,e=16,k=6,h=32,i=20,act=relu2,route=given,w=bf16,pad=i16,fill=wild";
    loud(TSAN, Fault::NoWarpSync, slots, Paths::Auto, "data race");
    let line = "t=5,h=256,i=250,act=relu2,route=given,w=bf16,pad=i64,fill=wild";
    for paths in [Paths::Auto, Paths::General] {
        loud(TSAN, Fault::NoBarrierBefore, line, paths, "data race");
        loud(TSAN, Fault::NoBarrierAfter, line, paths, "data race");
    }
}
