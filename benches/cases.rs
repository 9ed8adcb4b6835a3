//! Verified cases per second on one core, on the distribution of the Python peer
//! (`../shared/facts/baseline_hypothesis.py`): drawing, filling, packing, the f64 reference, the padded
//! subject, and its unpadded twin where the tier asks for it. Prints where the time goes, and the
//! ratio to the peer when numpy and the script are there.

#![expect(clippy::print_stdout, reason = "a bench reports its figures")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use padproof::case::Case;
use padproof::r#gen::{Domain, draw};
use padproof::property::{Trial, Verdict, find};
use padproof::subject::{Cpu, Subject};
use padproof::tensor::Pool;
use padproof::{compare, fill, layout, plan, reference};
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

// As the command does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Cases of a round: enough for the mean of the distribution.
const CASES: u64 = 512;

fn cases() -> Vec<Case> {
    (0..CASES)
        .map(|n| draw(&Domain::UNIFORM, 0xbe9c, n))
        .collect()
}

/// Time of a stage over all cases, in microseconds a case.
fn stage(name: &str, cases: &[Case], mut work: impl FnMut(&Case)) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            cases.iter().for_each(&mut work);
            start.elapsed()
        })
        .min()
        .unwrap_or(Duration::ZERO);
    println!(
        "{name:28} {:7.1} us a case",
        best.as_secs_f64() * 1e6 / cases.len() as f64
    );
}

fn stages(cases: &[Case]) {
    stage("draw", cases, |c| {
        black_box(draw(&Domain::UNIFORM, c.seed, 1));
    });
    stage("plan", cases, |c| {
        black_box(plan::plan(c).expect("drawn cases are planned"));
    });
    let mut pool = Pool::default();
    stage("fill (memory used again)", cases, |c| {
        let filled = black_box(fill::fill_in(c, &mut pool).expect("small"));
        pool.keep_layer(filled);
    });
    let filled: Vec<_> = cases
        .iter()
        .map(|c| fill::fill(c).expect("small"))
        .collect();
    let planned: Vec<_> = cases
        .iter()
        .map(|c| plan::plan(c).expect("planned"))
        .collect();
    let mut n = 0..;
    let mut next = |len: usize| n.next().expect("endless") % len;
    let mut pool = Pool::default();
    stage("pack (memory used again)", cases, |_| {
        let at = next(filled.len());
        let packed = layout::pack_layer_in(&planned[at], &filled[at], &mut pool);
        packed.expect("packed").give_back(&mut pool);
    });
    let packed: Vec<_> = planned
        .iter()
        .zip(&filled)
        .map(|(p, l)| layout::pack_layer(p, l).expect("packed"))
        .collect();
    let mut cpu = Cpu::default();
    let mut n = 0usize;
    stage("subject (padded)", cases, |_| {
        let at = n % packed.len();
        n += 1;
        black_box(cpu.run(&planned[at], &packed[at]).expect("runs"));
    });
    let mut n = 0usize;
    stage("reference (f64, with bound)", cases, |c| {
        let at = n % filled.len();
        n += 1;
        black_box(reference::reference(c, &filled[at]).expect("computed"));
    });
    let truth = reference::reference(&cases[0], &filled[0]).expect("computed");
    let output = cpu.run(&planned[0], &packed[0]).expect("runs");
    let bound = compare::Bound::Derived {
        limits: &truth.bound,
        derivation: "".into(),
    };
    stage("compare", cases, |_| {
        black_box(compare::compare(&truth.values, &output, &bound));
    });
}

/// Cases per second of the Python peer, numpy backend, uniform draws, one process.
fn peer() -> Option<f64> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/facts/baseline_hypothesis.py"
    );
    let out = Command::new("python3")
        .args([
            script,
            "--bench",
            "150",
            "--reps",
            "3",
            "--backend",
            "numpy",
        ])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let line = text.lines().find(|l| l.contains("plain"))?;
    line.split("median")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn verified(c: &mut Criterion) {
    let cases = cases();
    stages(&cases);
    let property = find("pad-identity").expect("listed");
    let mut cpu = Cpu::default();
    let mut trial = Trial::new(&mut cpu);
    let mut round = || {
        for case in &cases {
            let verdict = (property.check)(case, &mut trial);
            assert!(
                !matches!(verdict, Verdict::Fail(_) | Verdict::Broken(_)),
                "{case}"
            );
        }
    };
    round();
    let best = (0..5)
        .map(|_| {
            let s = Instant::now();
            round();
            s.elapsed()
        })
        .min()
        .unwrap_or_default();
    let rate = CASES as f64 / best.as_secs_f64();
    println!("pad-identity: {rate:.0} verified cases a second on one core");
    match peer() {
        Some(peer) => println!("numpy peer: {peer:.0}; ratio {:.1}", rate / peer),
        None => println!("numpy peer: not run (python3 with numpy and the script are needed)"),
    }
    let mut group = c.benchmark_group("cases");
    group
        .throughput(Throughput::Elements(CASES))
        .sample_size(10);
    group.bench_function("pad-identity/uniform", |b| b.iter(&mut round));
    group.finish();
}

criterion_group!(benches, verified);
criterion_main!(benches);
