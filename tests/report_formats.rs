//! Every report format, from one fixed list of events; help texts and plans as users see them.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use padproof::property::{Finding, Tier, Vacuous, Verdict};
use padproof::report::{
    Concise, Human, Json, Jsonl, Junit, Verbosity, plan_human, plan_markdown, plan_tensors,
    table_csv,
};
use padproof::rule::Rules;
use padproof::run::{
    Counts, Coverage, Ended, Environment, Event, Finished, Group, Query, Reporter, Table, survey,
};
use padproof::subject::SkipReason;
use std::process::Command;
use std::time::Duration;

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

const CASE: &str = "t=17,e=8,k=2,h=96,i=200,w=mxfp4,pad=i128,seed=1b2c";

fn finished(
    property: &'static str,
    subject: &'static str,
    case: &str,
    verdict: Verdict,
) -> Finished {
    Finished {
        case: case.to_owned(),
        name: None,
        place: None,
        word: None,
        property,
        subject: subject.into(),
        arguments: String::new(),
        verdict,
        time: Duration::from_millis(2),
    }
}

fn finding() -> Finding {
    Finding {
        property: "pad-identity",
        subject: "cpu".to_owned(),
        case: "t=1,e=1,k=1,h=32,i=1,w=mxfp4".to_owned(),
        place: "out[3,40]".to_owned(),
        wanted: "1.5 (0x3fc00000)".to_owned(),
        actual: "1.75 (0x3fe00000)".to_owned(),
        bound: "equal bits (exact fill)".to_owned(),
        derivation: "every partial sum is a multiple of 2^-4 below 2^20".to_owned(),
        differing: 7,
        total: 1632,
        first: vec!["out[3,40] wanted 1.5 (0x3fc00000), got 1.75 (0x3fe00000)".to_owned()],
        note: Some("intermediate 200..256 of rank 0 is padding".to_owned()),
        many: false,
    }
}

/// One check of each kind.
fn checks() -> Vec<Finished> {
    let mut entry = finished(
        "tp-sum",
        "cpu",
        "t=4,tp=2",
        Verdict::Vacuous(Vacuous::OneRank),
    );
    entry.name = Some("smoke/ranks/tp=2".to_owned());
    entry.place = Some(("smoke.toml".to_owned(), 12));
    let too_large = SkipReason::TooLarge {
        what: "w13",
        bytes: 1 << 40,
        limit: 1 << 30,
    };
    vec![
        finished("pack-round-trip", "-", "t=4", Verdict::Pass(Tier::Bytes)),
        finished("pack-round-trip", "-", CASE, Verdict::Pass(Tier::Bytes)),
        finished(
            "pad-identity",
            "cpu",
            CASE,
            Verdict::Fail(Box::new(finding())),
        ),
        finished(
            "pad-identity",
            "cpu",
            "i=1099511627776",
            Verdict::Skip(too_large),
        ),
        entry,
        finished(
            "token-pad",
            "cpu",
            "t=5,pad=t8",
            Verdict::Broken("a <plan> & its tensors".to_owned()),
        ),
    ]
}

fn play(reporter: &mut dyn Reporter) {
    let environment = Environment {
        version: "0.1.0",
        tier: "smoke".to_owned(),
        seed: "9f3c21aa".to_owned(),
        cases: Some(64),
        device: "cpu".to_owned(),
    };
    let mut counts = Counts::default();
    let mut groups: Vec<Group> = Vec::new();
    let mut send = |event: &Event<'_>| reporter.event(event).unwrap();
    send(&Event::RunStarted {
        environment: &environment,
    });
    for done in &checks() {
        send(&Event::CaseStarted { case: &done.case });
        if let Verdict::Fail(finding) = &done.verdict {
            send(&Event::Shrunk {
                property: done.property,
                from: &done.case,
                to: &finding.case,
            });
        }
        counts.add(&done.verdict);
        if groups.last().is_none_or(|g| g.property != done.property) {
            groups.push(Group::new(done.property, done.subject.clone(), 0.5));
        }
        groups.last_mut().unwrap().add(done);
        send(&Event::CaseFinished(done));
    }
    send(&Event::RunFinished {
        counts: &counts,
        groups: &groups,
        coverage: &Coverage::of(&CASE.parse().unwrap(), Rules::builtin()),
        shortfalls: &["suite smoke: padded 20% of cases, at least 80% wanted".to_owned()],
        ended: Ended::Interrupted,
        resume: 64,
        time: Duration::from_millis(1900),
    });
}

fn plain(bytes: Vec<u8>) -> String {
    anstream::adapter::strip_bytes(&bytes)
        .into_vec()
        .try_into()
        .map(|text: String| text)
        .unwrap_or_default()
}

fn human(verbosity: Verbosity) -> String {
    let mut out = Vec::new();
    play(&mut Human::new(&mut out, verbosity, true));
    plain(out)
}

#[test]
fn the_human_format_at_every_verbosity() {
    snapshot("report@human", &human(Verbosity::Normal));
    snapshot("report@human-quiet", &human(Verbosity::Quiet));
    snapshot("report@human-full", &human(Verbosity::Full));
}

#[test]
fn the_formats_for_programs() {
    let mut out = Vec::new();
    play(&mut Concise::new(&mut out));
    snapshot("report@concise", &plain(std::mem::take(&mut out)));
    play(&mut Json::new(&mut out));
    snapshot("report@json", &plain(std::mem::take(&mut out)));
    play(&mut Jsonl::new(&mut out));
    snapshot("report@jsonl", &plain(std::mem::take(&mut out)));
    play(&mut Junit::new(&mut out));
    snapshot("report@junit", &plain(out));
}

#[test]
fn plans_for_people() {
    let model = padproof::model::load("NemotronH-default").unwrap();
    let query = Query {
        advice: true,
        ..Query::of(padproof::plan::Parallel { tp: 8, ep: 1 })
    };
    // Rules of other stacks come and go; this one's look is what counts here.
    let only = Query {
        rule: Some("sglang.flashinfer_trtllm.*"),
        ..query
    };
    let found = survey(&model, Rules::builtin(), &only).unwrap();
    let mut out = Vec::new();
    plan_human(&found, None, &mut out).unwrap();
    snapshot("plan@human", &plain(std::mem::take(&mut out)));
    plan_human(&found, Some(72), &mut out).unwrap();
    let narrow = plain(std::mem::take(&mut out));
    let table = narrow.lines().skip_while(|line| !line.starts_with("tp "));
    assert!(table.take(12).all(|line| line.len() <= 72), "{narrow}");
    snapshot("plan@narrow", &narrow);
    plan_markdown(&found, &mut out).unwrap();
    snapshot("plan@markdown", &plain(std::mem::take(&mut out)));
    table_csv(&Table::of(&[found]), &mut out).unwrap();
    snapshot("plan@csv", &plain(std::mem::take(&mut out)));
    // Packed, cut in whole blocks, padded on both axes, up rows first: the last rank is short.
    let gpt = padproof::model::load("gpt-oss-120b").unwrap();
    let one = Query {
        rule: Some("vllm.cutlass.mxfp4"),
        advice: false,
        ..query
    };
    let found = survey(&gpt, Rules::builtin(), &one).unwrap();
    plan_tensors(&found, 7, None, &mut out).unwrap();
    snapshot("plan@tensors", &plain(out));
}

#[test]
fn help_names_only_what_works() {
    let help = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_padproof"))
            .args(args)
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    snapshot("help@padproof", &help(&["--help"]));
    for command in [
        "plan", "audit", "pad", "verify", "diff", "run", "check", "list", "explain", "show",
        "shrink", "replay", "doctor", "reveal",
    ] {
        snapshot(&format!("help@{command}"), &help(&[command, "-h"]));
    }
}
