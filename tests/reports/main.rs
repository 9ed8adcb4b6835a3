//! Goal: every public report of facts/reports.md is held to its right answer, or says why not yet.
//! Method: a table of all reports; those with plans and cases are in tests/suites/reports.toml,
//! the integer facts that no plan expresses are below, what only a run shows in `runs`, faults are
//! planted as mutants.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod runs;

use padproof::model::ZeroPoints;
use padproof::num::{Dtype, E8m0Nan, Encode, NibbleOrder, pack_nibbles, unpack_nibbles};
use padproof::plan::{Role, Violation, plan, plan_under};
use padproof::property::{Trial, Verdict, find, invariants};
use padproof::rule::{Rule, Rules};
use padproof::run::{hold, hold_file};
use padproof::subject::Cpu;
use padproof::suite::{Expect, PlanRules, Suite, builtin, parse};
use padproof::{case::Case, layout, mutant};
use std::collections::BTreeSet;

/// How a report is held.
enum Held {
    /// By entries of tests/suites/reports.toml.
    Suite,
    /// By entries, and this mutant is caught on the entry's cases.
    Mutant(&'static str),
    /// By entries, this mutant caught on them, and the test of this name in these files.
    Both(&'static str, &'static str),
    /// By entries, but a part needs what the numbered issue brings.
    Part(u32, &'static str),
    /// By entries and the test of this name in these files.
    Beside(&'static str),
    /// By the test of this name in these files.
    Test(&'static str),
    /// Not yet: needs what the numbered issue brings.
    Needs(u32, &'static str),
}

use Held::{Beside, Both, Mutant, Needs, Part, Suite as Entries, Test};

const TABLE: &[(&str, Held)] = &[
    ("B01", Entries),
    ("B02", Entries),
    ("B04", Entries),
    ("B06", Entries),
    ("B08", Entries),
    ("B10", Entries),
    ("B12", Entries),
    ("B14", Entries),
    ("B16", Mutant("prepad-as-floor")),
    ("B18", Entries),
    ("B20", Entries),
    ("B22", Entries),
    ("B24", Entries),
    ("B26", Entries),
    ("B28", Test("every_check_of_a_width_tests_the_shard")),
    ("B30", Entries),
    ("B32", Entries),
    ("B34", Beside("padding_a_row_costs_less_than_a_wider_type")),
    ("B36", Entries),
    ("B38", Entries),
    ("B41", Mutant("halves-swapped")),
    ("B43", Mutant("interleaved-for-halves")),
    ("B45", Beside("a_fused_tensor_is_cut_by_halves")),
    ("B47", Beside("the_first_element_is_in_the_low_nibble")),
    (
        "B49",
        Beside("a_word_of_zero_points_tells_its_order_if_they_differ"),
    ),
    ("B51", Mutant("scales-not-swizzled")),
    ("B53", Mutant("last-scale-group-lost")),
    (
        "B55",
        Both("sliced-wrong", "an_output_of_the_padded_size_is_no_output"),
    ),
    ("B57", Beside("equal_shares_take_wrong_scales_by_quarters")),
    ("B60", Beside("a_padded_stride_leaves_ranks_empty")),
    ("B62", Entries),
    ("B64", Mutant("ranks-all-first")),
    ("B66", Mutant("scale-tiles-by-rank")),
    ("B68", Mutant("halves-not-swapped-on-reload")),
    ("B71", Mutant("tails-kept-on-reload")),
    (
        "B73",
        Both("scale-pad-nan", "no_byte_in_a_scale_pad_changes_a_bit"),
    ),
    (
        "B75",
        Both("pad-row-reduced", "stale_rows_change_no_row_before_them"),
    ),
    ("B77", Mutant("rank-offset")),
    (
        "B79",
        Both("w2-tail-dirty", "a_dirty_tail_is_seen_by_the_amax"),
    ),
    ("B81", Mutant("hidden-decides-order")),
    ("B83", Test("a_bias_of_125_quarters_every_value")),
    ("B85", Test("negative_extremes_keep_their_sign")),
    ("B87", Mutant("stray-write")),
    ("B89", Needs(6, "a sorted-token table of a kernel")),
    (
        "B91",
        Needs(6, "expert ids of -1, which kernels mark pad rows with"),
    ),
    ("B93", Test("expert_windows_stay_inside_the_table")),
    ("B94", Part(5, "a subject that is told the valid width")),
    ("B96", Entries),
    ("B98", Entries),
];

fn reports() -> Suite {
    let text = builtin("reports").expect("shipped");
    parse(text, "reports.toml").unwrap_or_else(|e| panic!("{e}"))
}

fn link(id: &str) -> Option<String> {
    Some(format!("facts/reports.md {id}"))
}

fn parsed(line: &str) -> Case {
    line.parse().unwrap_or_else(|e| panic!("{line}: {e}"))
}

#[test]
fn the_table_has_every_report_and_says_where_it_is_held() {
    let ids: Vec<&str> = TABLE.iter().map(|(id, _)| *id).collect();
    assert!(ids.is_sorted(), "in order, none twice");
    match std::fs::read_to_string("../shared/facts/reports.md") {
        Err(e) => println!("skipped the comparison with facts/reports.md: {e}"),
        Ok(text) => {
            let id = |line: &str| Some(line.strip_prefix("| B")?.split(' ').next()?.to_owned());
            let told: BTreeSet<String> = text.lines().filter_map(id).collect();
            let listed = ids.iter().map(|id| id[1..].to_owned()).collect();
            assert_eq!(told, listed);
        }
    }
    let (suite, source) = (
        reports(),
        [include_str!("main.rs"), include_str!("runs.rs")].concat(),
    );
    let links: BTreeSet<_> = suite.plans.iter().map(|p| p.link.clone()).collect();
    let links: BTreeSet<_> = links
        .into_iter()
        .chain(suite.cases.iter().map(|c| c.link.clone()))
        .chain(suite.files.iter().map(|f| f.link.clone()))
        .collect();
    for (id, held) in TABLE {
        let entries = links.contains(&link(id));
        match held {
            Entries | Mutant(_) => assert!(entries, "{id} has no entry"),
            Part(issue, why) => assert!(entries && *issue > 2 && !why.is_empty(), "{id}"),
            Test(name) => assert!(source.contains(&format!("fn {name}()")), "{id}: no {name}"),
            Both(_, name) | Beside(name) => {
                assert!(entries, "{id} has no entry");
                assert!(source.contains(&format!("fn {name}()")), "{id}: no {name}");
            }
            Needs(issue, why) => assert!(!entries && *issue > 2 && !why.is_empty(), "{id}"),
        }
    }
    for known in links {
        let known = known.expect("every entry has a link");
        assert!(
            ids.iter().any(|id| link(id).as_ref() == Some(&known)),
            "{known}"
        );
    }
}

/// B34: a row that is no whole number of 256-element super-blocks is stored in a type of 5.5 bits
/// instead of 4.5, without a word.
#[test]
fn padding_a_row_costs_less_than_a_wider_type() {
    let wider = (5.5 / 4.5 - 1.0) * 100.0;
    let suite = reports();
    let entries = suite.plans.iter().filter(|p| p.link == link("B34"));
    let padded: Vec<f64> = entries.filter_map(|p| p.expect.overhead).collect();
    assert_eq!(padded.len(), 5);
    assert!(
        padded.iter().all(|cost| *cost < wider),
        "{padded:?} {wider}"
    );
}

#[test]
fn every_plan_of_the_shipped_suites_is_as_expected() {
    for name in ["models", "reports"] {
        let text = builtin(name).expect("shipped");
        let suite = parse(text, name).unwrap_or_else(|e| panic!("{e}"));
        assert!(suite.plans.len() > 80, "{name}: {}", suite.plans.len());
        let faults: Vec<String> = suite
            .plans
            .iter()
            .filter_map(|entry| match hold(entry, Rules::builtin()) {
                Verdict::Pass(_) => None,
                Verdict::Fail(finding) => Some(format!("{}: {:#?}", entry.name, finding.first)),
                other => Some(format!("{}: {other:?}", entry.name)),
            })
            .collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

/// The reports on layouts, loaders and pads, but for B49 (zero points), B55 (an output) and B75 (activations).
const IN_FILES: &[&str] = &[
    "B41", "B43", "B45", "B47", "B51", "B53", "B57", "B60", "B62", "B64", "B66", "B68", "B71",
    "B73", "B77",
];

#[test]
fn every_report_on_files_is_an_audit_of_files() {
    let suite = reports();
    for id in IN_FILES {
        assert!(suite.files.iter().any(|f| f.link == link(id)), "{id}");
    }
    let faults: Vec<String> = suite
        .files
        .iter()
        .filter_map(|entry| match hold_file(entry, Rules::builtin()) {
            Verdict::Pass(_) => None,
            Verdict::Fail(finding) => Some(format!("{}: {:#?}", entry.name, finding.first)),
            other => Some(format!("{}: {other:?}", entry.name)),
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_reported_case_passes_and_proves_something() {
    let mut cpu = Cpu::default();
    let mut faults = Vec::new();
    for entry in reports().cases {
        assert_eq!(entry.expect, Expect::Pass);
        assert!(!entry.properties.is_empty(), "{} names none", entry.name);
        let mut passed = 0;
        for name in &entry.properties {
            let property = find(name).unwrap_or_else(|| panic!("{}: {name}", entry.name));
            match (property.check)(&entry.case, &mut Trial::new(&mut cpu)) {
                Verdict::Pass(_) => passed += 1,
                Verdict::Vacuous(_) => {}
                other => faults.push(format!("{} {name}: {other:?}", entry.name)),
            }
        }
        if passed == 0 {
            faults.push(format!("{} proves nothing", entry.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_reported_faults_are_caught_on_the_reported_cases() {
    let suite = reports();
    let mut cpu = Cpu::default();
    let mut faults = Vec::new();
    for (id, held) in TABLE {
        let (Mutant(name) | Both(name, _)) = held else {
            continue;
        };
        let found = mutant::ALL.iter().find(|m| m.name == *name);
        let planted = found.unwrap_or_else(|| panic!("{id}: no mutant {name}"));
        let cases = suite.cases.iter().filter(|c| c.link == link(id));
        let mut seen = Vec::new();
        let caught = cases
            .flat_map(|c| c.properties.iter().map(move |p| (c, p)))
            .any(|(c, p)| {
                let property = find(p).expect("checked above");
                let mut trial = Trial::mutated(&mut cpu, planted);
                let verdict = (property.check)(&c.case, &mut trial);
                seen.push(format!(
                    "{} {p}, planted {}: {verdict:?}",
                    c.name, trial.planted
                ));
                matches!(verdict, Verdict::Fail(_))
            });
        if !caught {
            faults.push(format!("{id}: {name} is not caught\n{}", seen.join("\n")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// B45: F = 8 on two ranks, 16 fused rows.
#[test]
fn a_fused_tensor_is_cut_by_halves() {
    let made = plan(&parsed("h=32,i=8,tp=2,w=f32,split=floor")).expect("planned");
    for rank in 0..2 {
        let map = layout::map(&made, Role::W13, rank).expect("mapped");
        let rows: Vec<usize> = (0..8)
            .map(|row| map.logical(0, row, 0).expect("no padding").1)
            .collect();
        let r = 4 * rank;
        assert_eq!(rows, [r, r + 1, r + 2, r + 3, r + 8, r + 9, r + 10, r + 11]);
    }
}

/// B47: +1.0 is code 2, -0.5 is code 9.
#[test]
fn the_first_element_is_in_the_low_nibble() {
    let codes = [1.0, -0.5].map(|v| Dtype::E2m1.encode(v, Encode::default()) as u8);
    assert_eq!(codes, [2, 9]);
    assert_eq!(pack_nibbles(&codes, NibbleOrder::LowFirst), [0x92]);
    assert_eq!(pack_nibbles(&codes, NibbleOrder::HighFirst), [0x29]);
    // An odd row ends in a zero high nibble, and padding it moves nothing.
    assert_eq!(
        pack_nibbles(&[2, 9, 7], NibbleOrder::LowFirst),
        [0x92, 0x07]
    );
    let padded = pack_nibbles(&[2, 9, 7, 0, 0, 0], NibbleOrder::LowFirst);
    assert_eq!(padded, [0x92, 0x07, 0]);
    assert_eq!(
        unpack_nibbles(&padded, NibbleOrder::LowFirst)[..3],
        [2, 9, 7]
    );
}

/// B49: eight columns with zero points 0 to 7; symmetric ones, all 8, hide a forgotten order.
#[test]
fn a_word_of_zero_points_tells_its_order_if_they_differ() {
    let word = |points: [u32; 8], order: [u32; 8]| {
        let nibbles = order.map(|column| points[column as usize]);
        (0..8).fold(0, |word, place| word | nibbles[place] << (4 * place))
    };
    let (awq, plain) = (ZeroPoints::AWQ_ORDER, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(awq, [0, 2, 4, 6, 1, 3, 5, 7]);
    assert_eq!(word(plain, awq), 0x7531_6420);
    assert_ne!(word(plain, awq), word(plain, plain));
    assert_eq!(word([8; 8], awq), word([8; 8], plain));
}

/// B57: shares of 360 whose scales are cut at whole blocks are 0, 25, 50, 75 % wrong.
#[test]
fn equal_shares_take_wrong_scales_by_quarters() {
    let line = "h=32,i=2880,tp=8,w=mxfp4,split=floor";
    let made = plan(&parsed(line)).expect("planned");
    assert!(made.violations.iter().any(|v| v.code == "PP103"));
    let percent: Vec<u64> = made.ranks.iter().map(|r| r.start % 32 * 100 / 32).collect();
    assert_eq!(percent, [0, 25, 50, 75, 0, 25, 50, 75]);
    let blocks = plan(&parsed("h=32,i=2880,tp=8,w=mxfp4,split=ceil-block")).expect("planned");
    assert!(blocks.ranks.iter().all(|r| r.start % 32 == 0));
    assert_eq!(blocks.ranks[7].len, 192);
}

/// B60: offsets taken from the padded buffer. Ranks hold [0, 1536) once each, or rank 6 is empty.
#[test]
fn a_padded_stride_leaves_ranks_empty() {
    for (tp, padded, first_empty) in [(8, 256, 6), (4, 512, 3)] {
        let right = plan(&parsed(&format!(
            "i=1536,tp={tp},w=mxfp4,pad=i256,split=rank-chunk"
        )));
        let right = right.expect("planned");
        assert_eq!(right.width_padded, padded);
        let mut next = 0;
        for rank in &right.ranks {
            assert_eq!((rank.start, rank.len), (next, 1536 / tp));
            next += rank.len;
        }
        assert_eq!(next, 1536);
        let stride = plan(&parsed(&format!(
            "i=1536,tp={tp},w=mxfp4,pad=i256,split=stride"
        )));
        let empty = stride
            .expect("planned")
            .ranks
            .iter()
            .position(|r| r.len == 0);
        assert_eq!(empty, Some(first_empty));
    }
}

/// B83: a scale 2^e stored as 125 + e reads as a quarter; bytes 0 and 255 are the ends.
#[test]
fn a_bias_of_125_quarters_every_value() {
    for e in -100..=100_i32 {
        let value = Dtype::E8m0.decode((125 + e) as u32);
        assert_eq!(value * 4.0, 2f32.powi(e));
    }
    assert_eq!(f64::from(Dtype::E8m0.decode(0)), 2f64.powi(-127));
    assert!(Dtype::E8m0.decode_with(255, E8m0Nan::Nan).is_nan());
}

/// B85: -8 has no positive twin in INT4, nor -128 in INT8: a lost sign cannot hide.
#[test]
fn negative_extremes_keep_their_sign() {
    for (dtype, extreme) in [
        (Dtype::Int4, -8.0),
        (Dtype::Int8, -128.0),
        (Dtype::E2m1, -6.0),
    ] {
        let code = dtype.encode(f64::from(extreme), Encode::default());
        assert_eq!(dtype.decode(code), extreme, "{}", dtype.name());
    }
    // A negative scale times a negative code is positive; its absolute value is not.
    let (scale, code) = (-0.5_f32, Dtype::Int4.decode(0));
    assert_eq!((scale * code, scale.abs() * code), (4.0, -4.0));
}

/// B93: 128 experts in windows of 32 begin at 0, 32, 64, 96; 112 + 32 would leave the table.
#[test]
fn expert_windows_stay_inside_the_table() {
    let made = plan(&parsed("e=128,k=8,h=32,i=32,tp=4,ep=4")).expect("planned");
    let windows: Vec<_> = made
        .ranks
        .iter()
        .map(|r| (r.expert_start, r.expert_len))
        .collect();
    assert_eq!(windows, [(0, 32), (32, 32), (64, 32), (96, 32)]);
    // The report's window, 112 and 32 more, names itself; 96 and 32 more does not.
    let rule = Rules::builtin().get("sglang.triton.bf16").unwrap();
    let case = parsed("e=128,k=8,h=32,i=32,tp=4,ep=4,w=bf16");
    let mut made = plan_under(&case, rule).unwrap();
    assert_eq!(invariants(rule, &made), [""; 0]);
    made.ranks[3].expert_start = 112;
    let wanted = "rank 3 holds 32 experts from 112 on, of 128";
    assert_eq!(invariants(rule, &made), [wanted]);
    let uneven = plan(&parsed("e=128,k=8,h=32,i=32,tp=3,ep=3"));
    assert!(uneven.is_ok_and(|p| p.violations.iter().any(|v| v.code == "PP106")));
}

/// B28: what a check says of I on TP ranks it says of I / TP on one; 512 % 256 = 0 hid 128 % 256.
#[test]
fn every_check_of_a_width_tests_the_shard() {
    // Whether the whole divides by the ranks, and where shards begin, is no check of a width.
    const OF_THE_WHOLE: &[&str] = &["PP101", "PP103", "PP121"];
    let own = reports().plans.into_iter().filter_map(|p| match p.rules {
        PlanRules::Own(rule) => Some(*rule),
        _ => None,
    });
    let rules: Vec<Rule> = Rules::builtin().iter().cloned().chain(own).collect();
    let mut refused = 0;
    // A rule may ask outright whether ranks share the axis.
    let asks = |rule: &&Rule| {
        let refusals = rule.refuse.iter().map(|r| &r.when);
        let mut whens = refusals.chain(rule.valid.iter().map(|v| &v.when));
        whens.any(|when| when.sharded.is_some())
    };
    for rule in rules.iter().filter(|rule| !asks(rule)) {
        for (w, act) in rule
            .formats
            .iter()
            .flat_map(|w| [(*w, "swiglu"), (*w, "relu2")])
        {
            let checks = |i: u64, tp: u64| {
                let case = parsed(&format!("e=8,h=512,i={i},tp={tp},act={act},w={w}"));
                let made = plan_under(&case, rule).unwrap_or_else(|e| panic!("{case}: {e}"));
                // A rank's scales may be repeated until its width is whole groups, a checkpoint's not.
                let of_width = |v: &&Violation| {
                    v.axis == "intermediate"
                        && !OF_THE_WHOLE.contains(&v.code)
                        && !(rule.scale.refine && v.code == "PP104")
                };
                let all = made.violations.iter().filter(of_width);
                all.map(|v| (v.code, v.value, v.granule))
                    .collect::<Vec<_>>()
            };
            for shard in [64, 128, 192, 256, 384] {
                let alone = checks(shard, 1);
                refused += usize::from(alone.iter().any(|(code, ..)| *code == "PP102"));
                for tp in [2, 4, 8] {
                    let cut = checks(shard * tp, tp);
                    assert_eq!(
                        cut, alone,
                        "{}: {shard} on each of {tp}, {w} {act}",
                        rule.id
                    );
                }
            }
        }
    }
    assert!(refused > 10, "{refused} refusals by width");
}
