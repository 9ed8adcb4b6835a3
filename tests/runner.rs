//! What a run tells its reporters, with properties whose answers are known.

use padproof::case::Case;
use padproof::r#gen::Domain;
use padproof::property::{Finding, Needs, Property, Tier, Trial, Vacuous, Verdict, find};
use padproof::rule::Rules;
use padproof::run::{
    Budget, Ended, Environment, Event, Filter, Job, Kind, Outcome, Reporter, Settings, execute,
    jobs,
};
use padproof::schedule::Schedule;
use padproof::subject::{Cpu, SkipReason, Subject, SubjectChoice, SubjectError};
use padproof::suite::{Suite, parse};
use std::io;
use std::sync::atomic::AtomicBool;

/// What was told: each check, then where to go on.
#[derive(Debug, Default, PartialEq)]
struct Told {
    checks: Vec<(String, &'static str, Kind)>,
    resume: u64,
}

impl Reporter for Told {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::CaseFinished(done) => {
                let kind = Kind::of(&done.verdict);
                self.checks.push((done.case.clone(), done.property, kind));
            }
            Event::RunFinished { resume, .. } => self.resume = *resume,
            _ => {}
        }
        Ok(())
    }
}

struct Asked<'a> {
    suites: &'a [Suite],
    properties: Vec<&'static Property>,
    start: u64,
    cases: u64,
    max_fail: Option<u64>,
    threads: usize,
    filter: &'a str,
}

fn run(asked: &Asked<'_>) -> (Outcome, Told) {
    run_until(asked, &AtomicBool::new(false))
}

fn run_until(asked: &Asked<'_>, stop: &AtomicBool) -> (Outcome, Told) {
    let jobs: Vec<Job> =
        jobs(asked.suites, &asked.properties, true, &Filter::default()).expect("known names");
    let settings = Settings {
        environment: Environment {
            version: "0",
            tier: "smoke".to_owned(),
            seed: "7".to_owned(),
            cases: Some(asked.cases),
            device: "cpu".to_owned(),
        },
        suites: asked.suites,
        judge_coverage: false,
        jobs,
        budget: Budget {
            domain: &Domain::SMALL,
            seed: 7,
            start: asked.start,
            cases: Some(asked.cases),
            time: None,
            properties: asked.properties.clone(),
            filter: Filter::parse(asked.filter),
        },
        max_fail: asked.max_fail,
        subject: SubjectChoice::Cpu,
        rules: Rules::builtin(),
        arguments: String::new(),
        shrink: false,
        threads: asked.threads,
        canonical: true,
        stop,
    };
    let mut told = Told::default();
    let outcome = execute(&settings, &mut [&mut told]).expect("no stream fails");
    (outcome, told)
}

fn suite(entries: &str) -> Suite {
    parse(&format!("[suite]\nname = \"s\"\n{entries}"), "s.toml").unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_foretold_vacuous_verdict_passes_and_a_stale_one_fails() {
    let entry = |line: &str| {
        suite(&format!(
            "[[case]]\nname = \"c\"\nline = \"{line}\"\nproperties = [\"tp-sum\"]\nexpect = \"vacuous\"\nwhy = \"one rank\"\n"
        ))
    };
    let asked = |suite: Suite| {
        run(&Asked {
            suites: &[suite],
            properties: vec![find("tp-sum").expect("listed")],
            start: 0,
            cases: 0,
            max_fail: None,
            threads: 1,
            filter: "",
        })
    };
    let (outcome, told) = asked(entry("i=20,pad=i16"));
    assert_eq!((outcome.counts.passed, outcome.vacuous), (1, false));
    assert_eq!(told.checks.len(), 1);
    let (outcome, told) = asked(entry("i=20,tp=2,pad=i16"));
    assert_eq!(outcome.counts.failed, 1);
    assert_eq!(told.checks[1].1, "expected-vacuous");
}

/// The CPU subject without its promise of an order: only the reference's bound is left.
struct Unordered(Cpu);

impl Subject for Unordered {
    fn name(&self) -> &'static str {
        "unordered"
    }

    fn supports(&self, plan: &padproof::plan::Plan) -> Result<(), SkipReason> {
        self.0.supports(plan)
    }

    fn schedule(&self) -> Option<Schedule> {
        None
    }

    fn run(
        &mut self,
        plan: &padproof::plan::Plan,
        inputs: &padproof::layout::PackedInputs,
    ) -> Result<padproof::tensor::Output, SubjectError> {
        self.0.run(plan, inputs)
    }
}

#[test]
fn a_bound_as_large_as_the_output_proves_nothing() {
    let identity = find("pad-identity").expect("listed");
    let shared: Case = "h=512,i=900,tp=2,qx=token,qh=token,pad=i32,fill=wild,seed=1"
        .parse()
        .expect("a case");
    let plain = Case {
        qh: padproof::terms::ActQuant::None,
        ..shared.clone()
    };
    let mut unordered = Unordered(Cpu::default());
    let mut asked = |case| (identity.check)(case, &mut Trial::new(&mut unordered));
    let wide = Verdict::Vacuous(Vacuous::BoundTooWide);
    assert_eq!(asked(&shared), wide);
    assert_eq!(asked(&plain), Verdict::Pass(Tier::Derived));
    // Equal bits with the same shards unpadded prove that padding changed nothing all the same.
    let ordered = (identity.check)(&shared, &mut Trial::new(&mut Cpu::default()));
    assert_eq!(ordered, Verdict::Pass(Tier::SameOrder));
}

fn every_fifth_fails(case: &Case, _: &mut Trial<'_>) -> Verdict {
    if !case.seed.is_multiple_of(5) {
        return Verdict::Pass(Tier::Bytes);
    }
    Verdict::Fail(Box::new(Finding {
        property: "fifth",
        subject: "-".to_owned(),
        case: case.to_string(),
        place: "seed".to_owned(),
        wanted: "no multiple of 5".to_owned(),
        actual: case.seed.to_string(),
        bound: String::new(),
        derivation: String::new(),
        differing: 1,
        total: 1,
        first: Vec::new(),
        note: None,
        many: false,
    }))
}

static FIFTH: Property = Property {
    name: "fifth",
    meaning: "No seed is a multiple of 5.",
    needs: Needs::Plan,
    check: every_fifth_fails,
};

/// `--start` after `--max-fail`: parts put together are the whole, on any number of threads.
#[test]
fn a_run_stopped_by_failures_goes_on_where_it_stopped() {
    let units = find("plan-units").expect("listed");
    for filter in ["", "w=f32"] {
        let asked = |start, max_fail, threads| {
            run(&Asked {
                suites: &[],
                properties: vec![&FIFTH, units],
                start,
                cases: 400 - start,
                max_fail,
                threads,
                filter,
            })
        };
        let (outcome, whole) = asked(0, None, 1);
        assert_eq!((outcome.ended, whole.resume), (Ended::Whole, 400));
        assert!(outcome.counts.failed > 3, "{filter}");
        for threads in [1, 3] {
            let mut parts = Told::default();
            let mut stops = 0;
            loop {
                let (outcome, told) = asked(parts.resume, Some(2), threads);
                assert!(told.resume > parts.resume || outcome.ended == Ended::Whole);
                parts.checks.extend(told.checks);
                parts.resume = told.resume;
                if outcome.ended == Ended::Whole {
                    break;
                }
                stops += 1;
                assert_eq!(outcome.counts.failed, 2);
            }
            assert!(stops > 1);
            assert_eq!(parts, whole, "{threads} threads, filter `{filter}`");
        }
    }
}

#[test]
fn an_interrupted_run_skips_no_case() {
    let stopped = AtomicBool::new(true);
    let (outcome, told) = run_until(
        &Asked {
            suites: &[],
            properties: vec![&FIFTH],
            start: 10,
            cases: 200,
            max_fail: None,
            threads: 1,
            filter: "",
        },
        &stopped,
    );
    assert_eq!(
        (outcome.ended, told.resume, told.checks.len()),
        (Ended::Interrupted, 10, 0)
    );
}
