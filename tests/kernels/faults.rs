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

const UNALIGNED: &str = "t=5,h=64,i=61,act=relu2,route=given,w=f32,pad=h128.i16,fill=wild";
const LONG: &str = "t=5,h=256,i=250,act=relu2,route=given,w=bf16,pad=i64,fill=wild";
const ODD: &str = "t=5,h=61,i=77,act=relu2,w=fp8,pad=h64.i32,fill=wild";
/// Choices of a token lie in several blocks, and every block has all channels.
const SHARED: &str = "t=5,e=4,k=3,h=64,i=50,act=relu2,route=given,w=bf16,pad=i32,fill=wild";

/// The checks that see a fault: property, case, paths. There is no fault without one.
fn checks(fault: Fault) -> Vec<(&'static str, &'static str, Paths)> {
    let (auto, general) = (Paths::Auto, Paths::General);
    let identity = |line, paths| ("pad-identity", line, paths);
    let both_paths = |line| ("device-pad-identity", line, Paths::Auto);
    match fault {
        Fault::None => vec![],
        Fault::TailRead => vec![identity(UNALIGNED, auto), both_paths(ODD)],
        Fault::NoBarrierBefore | Fault::NoBarrierAfter => {
            vec![identity(LONG, auto), identity(LONG, general)]
        }
        Fault::WrongHalf => vec![
            identity("t=5,h=64,i=50,pad=i32,order=gate-up,fill=wild", auto),
            identity("t=5,h=64,i=50,pad=i32,order=up-gate,fill=wild", auto),
            identity("t=5,h=64,i=50,pad=i32,order=int8,fill=wild", auto),
        ],
        // Two columns of scales in a tile of four: what lies beyond is poisoned.
        Fault::ScaleOverRead => vec![(
            "poison-isolated",
            "t=3,h=32,i=40,act=relu2,route=given,w=nvfp4,pad=i16,store=128x4",
            auto,
        )],
        Fault::SentinelAsAddress => vec![identity(UNALIGNED, auto)],
        Fault::NoWait => vec![identity(LONG, auto)],
        Fault::DirtyShared => vec![identity(UNALIGNED, general), both_paths(ODD)],
        Fault::NegativeId => vec![identity(
            "t=5,e=8,h=32,i=50,tp=4,ep=2,pad=i16,fill=wild",
            auto,
        )],
        Fault::OrderFromK => vec![
            identity(
                "t=5,h=64,i=80,act=relu2,route=given,w=bf16,pad=i32,fill=wild",
                auto,
            ),
            both_paths("t=5,h=64,i=80,act=relu2,w=fp8,pad=i32,fill=wild"),
        ],
        Fault::CountEarly | Fault::CombineEarly => {
            vec![identity(SHARED, auto), identity(SHARED, general)]
        }
        Fault::TurnForgotten => vec![identity(
            "t=60,e=16,k=6,h=32,i=20,act=relu2,route=given,w=bf16,pad=i16,fill=wild",
            auto,
        )],
        Fault::ScanNoCarry => vec![identity(
            "t=60,e=40,k=6,h=32,i=20,act=relu2,route=given,w=bf16,pad=i16,fill=wild",
            auto,
        )],
        // A thread sanitizer alone sees the one, a fixed answer the other (`sanitizers`, `promises`).
        Fault::NoWarpSync | Fault::ChoicesReversed => vec![],
    }
}

/// Whether it is of those that a property sees within a block.
fn within_a_block(fault: Fault) -> bool {
    !between_blocks(fault) && !matches!(fault, Fault::NoWarpSync | Fault::ChoicesReversed)
}

/// Whether it is one between blocks, which must be under way at the same time to show it.
fn between_blocks(fault: Fault) -> bool {
    matches!(fault, Fault::CountEarly | Fault::CombineEarly)
}

fn options(fault: Fault, turns: Turns, paths: Paths) -> HostOptions {
    HostOptions {
        fault,
        turns,
        paths,
        masked: true,
        ..HostOptions::default()
    }
}

const ORDERS: [Turns; 3] = [Turns::Forward, Turns::Reverse, Turns::Seeded(7)];

#[test]
fn every_planted_fault_within_a_block_is_seen_in_any_order_and_the_right_kernel_is_silent() {
    if !runs() {
        return;
    }
    for fault in Fault::ALL
        .into_iter()
        .filter(|fault| within_a_block(*fault))
    {
        let checks = checks(fault);
        assert!(!checks.is_empty(), "{fault:?}");
        for (property, line, paths) in checks {
            for turns in ORDERS {
                let right = check(property, line, options(Fault::None, turns, paths));
                assert_eq!(right, Seen::Nothing, "{line} {turns:?}");
                let wrong = check(property, line, options(fault, turns, paths));
                assert_ne!(wrong, Seen::Nothing, "{fault:?} {line} {turns:?}");
                if fault == Fault::SentinelAsAddress {
                    let Seen::Misbehaviour(what) = wrong else {
                        panic!("guards see it: {wrong:?}");
                    };
                    assert!(what.contains("bytes written outside"), "{what}");
                }
            }
        }
    }
}

/// Block after block, nothing shows that one spoke too early.
#[test]
fn every_planted_fault_between_blocks_is_seen_where_they_interleave_and_only_there() {
    if !runs() {
        return;
    }
    const SEEDS: u64 = 32;
    for fault in Fault::ALL
        .into_iter()
        .filter(|fault| between_blocks(*fault))
    {
        let checks = checks(fault);
        assert!(!checks.is_empty(), "{fault:?}");
        for (property, line, paths) in checks {
            for turns in ORDERS {
                let seen = check(property, line, options(fault, turns, paths));
                assert_eq!(seen, Seen::Nothing, "{fault:?} {line} {turns:?}");
            }
            let mut seen = 0;
            for turns in (0..SEEDS).map(Turns::Interleaved) {
                let right = check(property, line, options(Fault::None, turns, paths));
                assert_eq!(right, Seen::Nothing, "{line} {turns:?}");
                let wrong = check(property, line, options(fault, turns, paths));
                seen += u64::from(wrong != Seen::Nothing);
            }
            println!("{fault:?} {paths:?}: {seen} of {SEEDS} seeds");
            assert!(seen > 0, "{fault:?} {line}: no seed of {SEEDS}");
        }
    }
}
