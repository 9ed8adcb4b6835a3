//! What a launch may not be told is a sentence before anything is allocated, whatever machine runs it;
//! and the smallest sizes there are run.

use super::{ask, of_outputs, runs};
use padproof::case::Case;
use padproof::plan::{Plan, plan};
use padproof::property::find;
use padproof::subject::{CudaHost, HostOptions, Paths, Subject, host_far_apart};

fn planned(line: &str) -> Plan {
    let case: Case = line.parse().expect("a case line");
    plan(&case).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn every_limit_is_a_sentence_before_a_launch() {
    if !runs() {
        return;
    }
    for (line, sentence) in [
        (
            "h=67108865,i=4",
            "hidden_padded, bits of a row=2147483680 exceeds 2147483647",
        ),
        (
            "i=67108865,act=relu2",
            "width_padded, bits of a row=2147483680 exceeds 2147483647",
        ),
        (
            "t=1073741824,k=2",
            "t * k, with a block of threads=2147483904 exceeds 2147483647",
        ),
        (
            "t=1099511627776,e=9,k=9",
            "t * k, with a block of threads=9895604650240 exceeds 2147483647",
        ),
        ("e=1229,k=1", "experts of a rank=1229 exceeds 1228"),
        ("t=600000,k=2", "blocks of rows=75004 exceeds 65535"),
        (
            "t=8192,k=8,e=64,h=16384,i=4096",
            "workspace needs 5368709120 bytes; at most 4294967296",
        ),
        (
            "qh=token,w=fp8",
            "qh=token: the kernels do not quantise activations",
        ),
        ("zero=3", "zero=3: the kernels have no identity experts"),
        (
            "w=bf16,store=shuffle-16x16,pad=h64.i64",
            "weights in the layout shuffle-16x16: the kernels read rows",
        ),
    ] {
        let why = CudaHost::new()
            .supports(&planned(line))
            .map_err(|e| e.to_string());
        let why = why.expect_err(line);
        assert!(why.contains(sentence), "{line}: {why}");
    }
}

/// A limit of a rank's experts is none of the layer's.
#[test]
fn experts_of_all_ranks_may_be_more_than_one_holds() {
    if !runs() {
        return;
    }
    let line = "t=4,e=1232,k=2,h=32,i=20,tp=4,ep=4,act=relu2,w=bf16,pad=i16";
    let property = [find("pad-identity").expect("it is listed")];
    let cases = [line.parse().expect("a case line")];
    let tally = ask(&cases, &property, 1, |_| HostOptions::default());
    tally.tell("many experts");
    assert_eq!(tally.passed, 1);
}

#[test]
fn rows_experts_and_tokens_beyond_2_gib_are_found() {
    if !runs() {
        return;
    }
    match host_far_apart() {
        Some(same) => assert!(same, "an offset is cut"),
        None => println!("skipped: no address space for tensors of 2 GiB and more"),
    }
}

#[test]
fn a_subject_told_to_keep_to_the_general_path_is_left_there_by_who_asks_for_both() {
    let plan = planned("t=3,h=64,i=50,act=relu2,w=fp8,pad=i64,mid=bf16");
    for (paths, fast) in [(Paths::Auto, true), (Paths::General, false)] {
        let mut subject = CudaHost::with(HostOptions {
            paths,
            ..HostOptions::default()
        });
        subject.keep_general(true);
        assert!(!subject.fast(&plan), "{paths:?}");
        subject.keep_general(false);
        assert_eq!(subject.fast(&plan), fast, "{paths:?}");
    }
}

#[test]
fn the_smallest_and_the_oddest_sizes_hold() {
    if !runs() {
        return;
    }
    let mut cases: Vec<Case> = Vec::new();
    for (h, i) in [
        (1, 1),
        (1, 2),
        (2, 1),
        (3, 7),
        (13, 17),
        (31, 127),
        (257, 131),
    ] {
        for t in [0, 1, 17] {
            for w in [
                "f32",
                "bf16",
                "fp8",
                "int8",
                "int4",
                "mxfp4",
                "nvfp4",
                "fp8-block",
            ] {
                for act in ["swiglu", "relu2"] {
                    for pad in ["h1.i1", "h16.i16"] {
                        // What the format cannot hold, the planner refuses.
                        let line = format!(
                            "t={t},e=3,k=2,h={h},i={i},act={act},w={w},pad={pad},fill=wild"
                        );
                        cases.push(line.parse().expect("a case line"));
                    }
                }
            }
        }
    }
    for line in [
        "t=1,e=1,k=1,h=1,i=1",
        "t=2,e=5,k=5,tp=5,i=3,h=7",
        "t=2,e=6,k=6,tp=6,ep=6,i=5,h=3",
    ] {
        cases.push(line.parse().expect("a case line"));
    }
    let tally = ask(&cases, &of_outputs(), 3, |_| HostOptions::default());
    tally.tell("small");
    assert!(tally.passed_of_all() > 2000, "{} passed", tally.passed);
}
