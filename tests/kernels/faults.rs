//! Faults planted in the kernels' source, one at a time: each is seen, and the right kernel is silent.

use super::runs;
use padproof::case::Case;
use padproof::property::{Trial, Verdict, find};
use padproof::subject::{CudaHost, Fault, HostOptions, Paths, Turns};

/// What a check says of a kernel.
#[derive(Debug, PartialEq)]
enum Seen {
    Nothing,
    WrongNumbers,
    Misbehaviour(String),
}

fn check(property: &str, line: &str, options: HostOptions) -> Seen {
    let property = find(property).expect("it is listed");
    let case: Case = line.parse().expect("a case line");
    let mut subject = CudaHost::with(options);
    match (property.check)(&case, &mut Trial::new(&mut subject)) {
        Verdict::Pass(_) => Seen::Nothing,
        Verdict::Fail(_) => Seen::WrongNumbers,
        Verdict::Broken(e) => Seen::Misbehaviour(e),
        other => panic!("{line}: {other:?}"),
    }
}

/// Holds without the fault and is seen with it, whatever the order of turns.
fn caught(fault: Fault, property: &str, line: &str, paths: Paths) -> Vec<Seen> {
    let options = |fault, turns| HostOptions {
        fault,
        turns,
        paths,
        masked: true,
        ..HostOptions::default()
    };
    let turns = [Turns::Forward, Turns::Reverse, Turns::Seeded(7)];
    turns
        .into_iter()
        .map(|turns| {
            let right = check(property, line, options(Fault::None, turns));
            assert_eq!(right, Seen::Nothing, "{line} {turns:?}");
            let wrong = check(property, line, options(fault, turns));
            assert_ne!(wrong, Seen::Nothing, "{fault:?} {line} {turns:?}");
            wrong
        })
        .collect()
}

const UNALIGNED: &str = "t=5,h=64,i=61,act=relu2,route=given,w=f32,pad=h128.i16,fill=wild";
const LONG: &str = "t=5,h=256,i=250,act=relu2,route=given,w=bf16,pad=i64,fill=wild";

#[test]
fn reading_past_the_end_of_a_row_is_seen() {
    if runs() {
        caught(Fault::TailRead, "pad-identity", UNALIGNED, Paths::Auto);
    }
}

#[test]
fn a_missing_barrier_is_seen() {
    if runs() {
        for paths in [Paths::Auto, Paths::General] {
            caught(Fault::NoBarrierBefore, "pad-identity", LONG, paths);
            caught(Fault::NoBarrierAfter, "pad-identity", LONG, paths);
        }
    }
}

#[test]
fn the_wrong_half_is_seen() {
    if runs() {
        for order in ["gate-up", "up-gate", "int8"] {
            let line = format!("t=5,h=64,i=50,pad=i32,order={order},fill=wild");
            caught(Fault::WrongHalf, "pad-identity", &line, Paths::Auto);
        }
    }
}

#[test]
fn reading_scales_past_the_end_of_their_row_is_seen() {
    if runs() {
        // Two columns of scales in a tile of four: what lies beyond is poisoned.
        let line = "t=3,h=32,i=40,act=relu2,route=given,w=nvfp4,pad=i16,store=128x4";
        caught(Fault::ScaleOverRead, "poison-isolated", line, Paths::Auto);
    }
}

#[test]
fn a_sentinel_row_taken_for_an_address_is_seen() {
    if runs() {
        for seen in caught(
            Fault::SentinelAsAddress,
            "pad-identity",
            UNALIGNED,
            Paths::Auto,
        ) {
            let Seen::Misbehaviour(what) = seen else {
                panic!("guards see it: {seen:?}");
            };
            assert!(what.contains("bytes written outside"), "{what}");
        }
    }
}

#[test]
fn an_asynchronous_copy_without_its_wait_is_seen() {
    if runs() {
        caught(Fault::NoWait, "pad-identity", LONG, Paths::Auto);
    }
}

#[test]
fn dirty_shared_memory_is_seen() {
    if runs() {
        caught(
            Fault::DirtyShared,
            "pad-identity",
            UNALIGNED,
            Paths::General,
        );
    }
}

#[test]
fn an_id_of_minus_one_taken_for_an_expert_is_seen() {
    if runs() {
        let line = "t=5,e=8,h=32,i=50,tp=4,ep=2,pad=i16,fill=wild";
        caught(Fault::NegativeId, "pad-identity", line, Paths::Auto);
    }
}

#[test]
fn an_order_that_hangs_on_the_padded_width_is_seen() {
    if runs() {
        let line = "t=5,h=64,i=80,act=relu2,route=given,w=bf16,pad=i32,fill=wild";
        caught(Fault::OrderFromK, "pad-identity", line, Paths::Auto);
        let line = "t=5,h=64,i=80,act=relu2,w=fp8,pad=i32,fill=wild";
        caught(Fault::OrderFromK, "device-pad-identity", line, Paths::Auto);
        let line = "t=5,h=61,i=77,act=relu2,w=fp8,pad=h64.i32,fill=wild";
        caught(Fault::TailRead, "device-pad-identity", line, Paths::Auto);
        caught(Fault::DirtyShared, "device-pad-identity", line, Paths::Auto);
    }
}

#[test]
fn every_planted_fault_has_a_test() {
    let text = include_str!("faults.rs");
    for fault in Fault::ALL {
        let word = format!("Fault::{fault:?},");
        assert!(text.contains(&word), "{fault:?}");
    }
}
