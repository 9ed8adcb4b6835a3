//! Goal: the CUDA kernels' own source, on the CPU, holds every claim about outputs. Method: the suites
//! and drawn cases through the same properties as the CPU subject, in every order of turns; planted
//! faults, each seen by a claim; every stored code against `num`.

#![expect(clippy::print_stdout, reason = "what ran is told when a test fails")]

mod benches;
mod faults;
mod limits;
mod mma;
mod mutants;
mod numbers;
mod promises;
mod sanitizers;

use padproof::case::Case;
use padproof::r#gen::{Domain, draw};
use padproof::num::Dtype;
use padproof::plan::{Fit, plan};
use padproof::property::{ALL, Needs, Property, Trial, Verdict, find};
use padproof::run::row;
use padproof::subject::{CudaHost, HostOptions, Paths, Subject, Turns};
use padproof::suite::{builtin, parse};
use padproof::terms::WeightFormat;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Whether the kernels run here; says why not.
fn runs() -> bool {
    match CudaHost::available() {
        Ok(()) => true,
        Err(why) => {
            assert!(option_env!("PP_CUDA_HOST_BROKEN").is_none(), "{why}");
            println!("skipped: {why}");
            false
        }
    }
}

/// Verdicts by kind, and the reasons of skips.
#[derive(Default)]
struct Tally {
    /// One of how many properties each case was asked.
    every: u64,
    passed: u64,
    vacuous: u64,
    skips: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Tally {
    fn add(&mut self, property: &Property, case: &Case, verdict: Verdict) {
        let name = property.name;
        match verdict {
            Verdict::Pass(_) => self.passed += 1,
            Verdict::Vacuous(_) => self.vacuous += 1,
            Verdict::Skip(reason) => *self.skips.entry(reason.to_string()).or_default() += 1,
            Verdict::Fail(f) => self.faults.push(format!(
                "{name} {case}: {} wanted {}, got {} ({}; {} of {})",
                f.place, f.wanted, f.actual, f.bound, f.differing, f.total
            )),
            Verdict::Broken(e) => self.faults.push(format!("{name} {case}: broken: {e}")),
        }
    }

    /// How many would have passed, had all been asked of every case.
    fn passed_of_all(&self) -> u64 {
        self.passed * self.every
    }

    fn tell(&self, name: &str) {
        let skipped: u64 = self.skips.values().sum();
        let Tally {
            passed, vacuous, ..
        } = self;
        println!("{name}: passed {passed} vacuous {vacuous} skipped {skipped}");
        for (why, n) in &self.skips {
            println!("  {n:6}  {why}");
        }
        let shown = self.faults[..self.faults.len().min(20)].join("\n");
        assert!(
            self.faults.is_empty(),
            "{} faults\n{shown}",
            self.faults.len()
        );
    }
}

/// Whether every property of every case is asked: where the environment says `KERNELS_WHOLE=1`.
fn whole() -> bool {
    std::env::var_os("KERNELS_WHOLE").is_some_and(|word| word == "1")
}

/// Asks the properties of the cases over all threads, each case of a subject run as `options` says: of every case
/// every `every`th, each case others, so that each case and each property has its part. Emulated threads take
/// most of the time that the tests take: `.ci/run` asks all of every case, by a word in the environment.
fn ask(
    cases: &[Case],
    properties: &[&Property],
    every: usize,
    options: impl Fn(usize) -> HostOptions + Sync,
) -> Tally {
    let every = if whole() { 1 } else { every };
    let one = |(n, case): (usize, &Case)| -> Vec<(usize, Verdict)> {
        let mut subject = CudaHost::with(options(n));
        let mine = (0..properties.len()).filter(|p| (n + p) % every == 0);
        mine.map(|p| {
            let verdict = (properties[p].check)(case, &mut Trial::new(&mut subject));
            (p, verdict)
        })
        .collect()
    };
    let verdicts: Vec<_> = cases.par_iter().enumerate().map(one).collect();
    let mut tally = Tally {
        every: every as u64,
        ..Tally::default()
    };
    for (case, verdicts) in cases.iter().zip(verdicts) {
        for (p, verdict) in verdicts {
            tally.add(properties[p], case, verdict);
        }
    }
    tally
}

fn suite(name: &str) -> Vec<Case> {
    let text = builtin(name).expect("it is shipped");
    let suite = parse(text, name).expect("it parses");
    suite.cases.into_iter().map(|entry| entry.case).collect()
}

fn of_outputs() -> Vec<&'static Property> {
    let of = |p: &&Property| matches!(p.needs, Needs::Subject | Needs::Paths);
    ALL.iter().filter(of).collect()
}

/// Forward, reverse and drawn turns, block after block and with blocks interleaved.
fn turns(n: usize) -> Turns {
    let seed = n as u64;
    let drawn = [Turns::Seeded(seed), Turns::Interleaved(seed)];
    [Turns::Forward, Turns::Reverse, drawn[0], drawn[1]][n % 4]
}

#[test]
fn the_smoke_suite_holds() {
    if runs() {
        let tally = ask(&suite("smoke"), &of_outputs(), 3, |_| {
            HostOptions::default()
        });
        tally.tell("smoke");
        assert!(tally.passed_of_all() > 1200, "{} passed", tally.passed);
    }
}

#[test]
fn the_boundary_suite_holds_with_equal_bits_padded_and_unpadded() {
    if runs() {
        let claims = ["pad-identity", "device-pad-identity"];
        let claims = claims.map(|name| find(name).expect("it is listed"));
        let tally = ask(&suite("boundary"), &claims, 2, |n| HostOptions {
            turns: turns(n / 2),
            ..HostOptions::default()
        });
        tally.tell("boundary");
        // Every format, gating and split runs; storage layouts beside rows and 128x4 do not.
        for why in tally.skips.keys() {
            let narrow = why == "the fast path does not take these rows";
            assert!(narrow || why.contains(" in the layout "), "{why}");
        }
        assert!(tally.passed_of_all() > 2000, "{} passed", tally.passed);
    }
}

#[test]
fn the_boundary_suite_has_every_format_gated_and_not_whole_and_split_that_the_kernels_run() {
    if !runs() {
        return;
    }
    let subject = CudaHost::new();
    let mut seen = BTreeSet::new();
    for case in suite("boundary") {
        let plan = plan(&case).expect("it is planned");
        if plan.fit <= Fit::Unknown && subject.supports(&plan).is_ok() {
            seen.insert((case.w.to_string(), case.act.gated(), case.tp > 1));
        }
    }
    for w in WeightFormat::ALL {
        for gated in [false, true] {
            for split in [false, true] {
                let wanted = (w.to_string(), gated, split);
                assert!(seen.contains(&wanted), "{wanted:?}");
            }
        }
    }
}

/// Padded to what the fast path takes, in every format, gated and not, on one rank and on more.
#[test]
fn both_paths_give_the_same_bits_padded_and_unpadded_in_every_format() {
    if !runs() {
        return;
    }
    let property = [find("device-pad-identity").expect("it is listed")];
    let mut cases = Vec::new();
    for w in WeightFormat::ALL {
        for act in ["swiglu", "relu2"] {
            for (tp, i) in [(1, 150), (2, 330), (3, 500)] {
                for fill in ["exact", "wild"] {
                    let line = format!(
                        "t=19,e=3,h=160,i={i},tp={tp},act={act},w={w},pad=h256.i128,fill={fill}"
                    );
                    cases.push(line.parse().expect("a case line"));
                }
            }
        }
    }
    let tally = ask(&cases, &property, 1, |n| HostOptions {
        turns: turns(n),
        ..HostOptions::default()
    });
    tally.tell("both paths");
    assert!(tally.passed >= 150, "{} of {}", tally.passed, cases.len());
}

#[test]
fn a_mutant_that_claims_both_paths_is_caught_on_them() {
    if !runs() {
        return;
    }
    let cases: Vec<Case> = suite("smoke");
    for mutant in padproof::mutant::ALL {
        if mutant.caught_by.contains(&"device-pad-identity") {
            let row = row(mutant, &cases, 0, &mut CudaHost::new());
            assert_eq!(row.unmet, Vec::<&str>::new(), "{}", mutant.name);
        }
    }
}

#[test]
fn drawn_cases_hold_in_any_order_of_turns_and_on_any_path() {
    if runs() {
        let draws = 0..120;
        let domain = |n: u64| [Domain::FULL, Domain::UNIFORM][(n % 2) as usize];
        let cases: Vec<Case> = draws.map(|n| draw(&domain(n), 0x5eed, n)).collect();
        let tally = ask(&cases, &of_outputs(), 3, |n| HostOptions {
            turns: turns(n),
            paths: [Paths::Auto, Paths::General][n / 3 % 2],
            inputs: [None, Some(Dtype::F16), Some(Dtype::F32)][n / 6 % 3],
            masked: n % 5 == 0,
            ..HostOptions::default()
        });
        tally.tell("drawn");
    }
}
