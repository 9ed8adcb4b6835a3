//! The CPU subject lies within the reference's bound, padded and unpadded, and at the reference's
//! bits where every operation is exact.

use padproof::case::{Case, PadSpec, Scheme};
use padproof::compare::{Bound, Comparison, compare};
use padproof::fill::fill;
use padproof::r#gen::{Domain, draw};
use padproof::layout::pack_layer;
use padproof::plan::plan;
use padproof::reference::{Reference, reference};
use padproof::subject::{Cpu, Subject};
use padproof::tensor::{Logical, Output};

/// Cases drawn; each is run padded and unpadded.
const CASES: u64 = 2000;
/// Seed of the drawn cases.
const SEED: u64 = 7;

/// What the subject computes under the case's own plan; nothing where the plan is refused.
fn run(case: &Case, logical: &Logical, subject: &mut Cpu) -> Option<Output> {
    let plan = plan(case).ok()?;
    subject.supports(&plan).ok()?;
    let inputs = match pack_layer(&plan, logical) { Ok(i) => i, Err(e) => { eprintln!("PACK {case}: {e}"); return None; } };
    Some(subject.run(&plan, &inputs).expect("plan and tensors match"))
}

/// The same layer on one rank without padding.
fn unpadded(case: &Case) -> Case {
    Case {
        tp: 1,
        ep: 1,
        scheme: Scheme::Spelled(PadSpec::default()),
        ..case.clone()
    }
}

/// Output rows and reference rows of the tokens whose experts are beyond doubt.
fn decided(case: &Case, wanted: &Reference, actual: &Output) -> (Vec<f64>, Vec<f64>, Output) {
    let h = case.h as usize;
    let (mut values, mut limits, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (token, _) in wanted.ambiguous.iter().enumerate().filter(|(_, a)| !**a) {
        let row = token * h..(token + 1) * h;
        values.extend_from_slice(&wanted.values[row.clone()]);
        limits.extend_from_slice(&wanted.bound[row.clone()]);
        rows.extend_from_slice(&actual.values[row]);
    }
    let tokens = rows.len() / h;
    let output = Output {
        tokens,
        values: rows,
        ..actual.clone()
    };
    (values, limits, output)
}

/// Pairs of expert and weight of one token, by expert.
fn sorted<W: Copy>(ids: &[u32], weights: &[W]) -> Vec<(u32, W)> {
    let mut pairs: Vec<_> = ids.iter().copied().zip(weights.iter().copied()).collect();
    pairs.sort_by_key(|&(id, _)| id);
    pairs
}

fn assert_routed_alike(case: &Case, wanted: &Reference, actual: &Output) {
    let k = case.k as usize;
    for token in 0..case.t as usize {
        if wanted.ambiguous[token] {
            continue;
        }
        let places = token * k..(token + 1) * k;
        let limits: Vec<(f64, f64)> = places
            .clone()
            .map(|n| (wanted.weights[n], wanted.weight_bound[n]))
            .collect();
        let wanted = sorted(&wanted.ids[places.clone()], &limits);
        let actual = sorted(&actual.ids[places.clone()], &actual.weights[places]);
        for ((id, (weight, limit)), (got, value)) in wanted.into_iter().zip(actual) {
            assert_eq!(id, got, "token {token} of {case}");
            let error = (f64::from(value) - weight).abs();
            assert!(
                error <= limit,
                "token {token}, expert {id}: weight {value} is {error} off {weight}, limit {limit}: {case}"
            );
        }
    }
}

fn judge(case: &Case, wanted: &Reference, actual: &Output) -> Comparison {
    let (values, limits, output) = decided(case, wanted, actual);
    let bound = if wanted.exact {
        Bound::EqualBits {
            why: "exact".into(),
        }
    } else {
        Bound::Derived {
            limits: &limits,
            derivation: Reference::DERIVATION.into(),
        }
    };
    compare(&values, &output, &bound)
}

#[test]
fn the_cpu_subject_lies_within_the_bound_padded_and_unpadded() {
    let mut subject = Cpu::new();
    let (mut runs, mut exact, mut doubtful, mut tokens) = (0, 0, 0, 0);
    let mut worst = std::collections::BTreeMap::<String, (f64, Vec<f64>)>::new();
    for index in 0..CASES {
        let case = draw(&Domain::FULL, SEED, index);
        let logical = fill(&case).expect("a drawn case can be filled");
        let wanted = reference(&case, &logical).expect("a drawn case has a reference");
        assert!(
            wanted.bound.iter().all(|b| b.is_finite() && *b >= 0.0),
            "{case}"
        );
        exact += u64::from(wanted.exact);
        tokens += wanted.ambiguous.len();
        doubtful += wanted.ambiguous.iter().filter(|a| **a).count();
        for case in [case.clone(), unpadded(&case)] {
            let Some(actual) = run(&case, &logical, &mut subject) else {
                continue;
            };
            runs += 1;
            if case.t == 0 {
                continue;
            }
            assert_routed_alike(&case, &wanted, &actual);
            let (values, limits, output) = decided(&case, &wanted, &actual);
            for ((v, l), o) in values.iter().zip(&limits).zip(&output.values) {
                if *l > 0.0 && !wanted.exact {
                    let r = (f64::from(*o) - v).abs() / l;
                    let key = format!("{} qx={} qh={} mid={}", case.act, case.qx, case.qh, case.mid_bf16);
                    for key in [key, format!("{} {}", case.act, case.fill), "all".to_owned(), format!("{}", case.route), format!("{}", case.w)] {
                        let e = worst.entry(key).or_default();
                        e.0 = e.0.max(r);
                        e.1.push(r);
                    }
                }
            }
            let found = judge(&case, &wanted, &actual);
            if !found.agree { eprintln!("{case}: {:?}", found.first.first()); }
        }
    }
    for (k, (w, mut v)) in worst {
        v.sort_by(f64::total_cmp);
        eprintln!("{k}: worst {w:.3e} median {:.3e} n {}", v[v.len() / 2], v.len());
    }
    eprintln!("runs {runs} exact {exact} doubtful {doubtful} of {tokens}");
}
