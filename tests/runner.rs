//! What a run tells its reporters, with properties whose answers are known.

use padproof::case::Case;
use padproof::r#gen::Domain;
use padproof::property::{Property, Tier, Trial, Vacuous, Verdict, find};
use padproof::run::{
    Budget, Environment, Event, Filter, Job, Kind, Outcome, Reporter, Settings, execute, jobs,
};
use padproof::schedule::Schedule;
use padproof::subject::{Cpu, SkipReason, Subject, SubjectError};
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
}

fn run(asked: &Asked<'_>) -> (Outcome, Told) {
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
            filter: Filter::default(),
        },
        max_fail: asked.max_fail,
        shrink: false,
        threads: asked.threads,
        canonical: true,
        stop: &AtomicBool::new(false),
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
    let saturated: Case = "h=128,i=200,tp=2,act=relu2,qh=static,pad=i32,fill=wild"
        .parse()
        .expect("a case");
    let plain = Case {
        qh: padproof::terms::ActQuant::None,
        ..saturated.clone()
    };
    let mut unordered = Unordered(Cpu::default());
    let mut asked = |case| (identity.check)(case, &mut Trial::new(&mut unordered));
    let wide = Verdict::Vacuous(Vacuous::BoundTooWide);
    assert_eq!(asked(&saturated), wide);
    assert_eq!(asked(&plain), Verdict::Pass(Tier::Derived));
    // Equal bits with the same shards unpadded prove that padding changed nothing all the same.
    let ordered = (identity.check)(&saturated, &mut Trial::new(&mut Cpu::default()));
    assert_eq!(ordered, Verdict::Pass(Tier::SameOrder));
}
