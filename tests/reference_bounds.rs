//! The CPU subject lies within the reference's bound, padded and unpadded, and at the reference's
//! bits where every operation is exact.

#![expect(clippy::print_stdout, reason = "what was measured is told")]

use padproof::case::{Case, PadSpec, Scheme};
use padproof::compare::{Bound, Comparison, compare};
use padproof::fill::fill;
use padproof::r#gen::{Domain, draw};
use padproof::layout::pack_layer;
use padproof::plan::{Fit, plan};
use padproof::reference::{Reference, reference, reference_for};
use padproof::schedule::Schedule;
use padproof::subject::{Cpu, Subject, SubjectChoice};
use padproof::tensor::{Logical, Output};
use padproof::terms::{ActQuant, Arithmetic, WeightFormat};

/// Cases drawn; each is run padded and unpadded.
const CASES: u64 = 2000;
/// Seed of the drawn cases.
const SEED: u64 = 7;

/// What the subject computes under the case's own plan; nothing where the plan is
/// refused.
fn run(case: &Case, logical: &Logical, subject: &mut Cpu) -> Option<Output> {
    let plan = plan(case).ok()?;
    if plan.fit > Fit::Unknown || subject.supports(&plan).is_err() {
        return None;
    }
    let inputs = pack_layer(&plan, logical).expect("a plan that was made can be packed");
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

/// Largest error in units of its bound, where the bound is not zero.
fn worst(case: &Case, wanted: &Reference, actual: &Output) -> f64 {
    let (values, limits, output) = decided(case, wanted, actual);
    let pairs = values.iter().zip(&limits).zip(&output.values);
    pairs
        .filter(|((_, limit), _)| **limit > 0.0)
        .map(|((value, limit), &got)| (f64::from(got) - value).abs() / limit)
        .fold(0.0, f64::max)
}

/// Every error in units of its bound.
fn shares(case: &Case, wanted: &Reference, actual: &Output) -> Vec<f64> {
    let (values, limits, output) = decided(case, wanted, actual);
    let pairs = values.iter().zip(&limits).zip(&output.values);
    pairs
        .filter(|((_, limit), _)| **limit > 0.0)
        .map(|((value, limit), &got)| (f64::from(got) - value).abs() / limit)
        .collect()
}

fn median(shares: &mut [f64]) -> f64 {
    shares.sort_by(f64::total_cmp);
    shares[shares.len() / 2]
}

/// Errors over bounds: every element's, and the largest of each case.
#[derive(Default)]
struct Tightness {
    elements: Vec<f64>,
    cases: Vec<f64>,
}

impl Tightness {
    fn add(&mut self, case: &Case, wanted: &Reference, actual: &Output) {
        let shares = shares(case, wanted, actual);
        self.cases.extend(shares.iter().copied().reduce(f64::max));
        self.elements.extend(shares);
    }

    /// The medians, and how many cases they are of.
    fn medians(&mut self) -> (f64, f64, usize) {
        let cases = self.cases.len();
        (median(&mut self.elements), median(&mut self.cases), cases)
    }
}

#[test]
fn the_bound_is_as_tight_as_it_was_measured_to_be() {
    let mut subject = Cpu::new();
    // Layers of f32 in the order that is promised, whole rows of w2 on a rank and shares of them, and in any order;
    // those quantised on the fly, whole rows on a rank.
    let mut of: [Tightness; 4] = Default::default();
    for index in 0..CASES {
        let mut case = draw(&Domain::FULL, SEED + 1, index);
        case.fill = padproof::terms::Fill::Wild;
        let dynamic = case.qx != ActQuant::None || case.qh != ActQuant::None;
        // Where the intermediate is rounded to bf16, most of it agrees to the bit.
        let plain = match (dynamic, case.w) {
            _ if case.mid_bf16 => continue,
            (false, WeightFormat::F32) => true,
            (true, _) if case.tp == case.ep => false,
            _ => continue,
        };
        let Ok(logical) = fill(&case) else { continue };
        let arithmetic = subject.arithmetic(&case);
        let wanted =
            reference_for(&case, &logical, arithmetic).expect("a drawn case has a reference");
        let Some(actual) = run(&case, &logical, &mut subject).filter(|_| !wanted.exact) else {
            continue;
        };
        let promised = usize::from(case.tp > case.ep);
        of[if plain { promised } else { 3 }].add(&case, &wanted, &actual);
        if plain {
            let wanted = reference(&case, &logical).expect("a drawn case has a reference");
            of[2].add(&case, &wanted, &actual);
        }
    }
    let [whole, shared, any, quantised] = of.each_mut().map(Tightness::medians);
    println!("error over bound, median of elements and of each case's largest, cases:");
    println!(
        "f32, promised order {whole:?}, sums that ranks share {shared:?}; f32, any order {any:?}; quantised {quantised:?}"
    );
    // What is left are signs that cancel; benches/README.md has the figures of more cases.
    assert!(whole.0 > 3e-3 && whole.1 > 0.02, "{whole:?}");
    assert!(shared.0 > 2e-3 && shared.1 > 0.012, "{shared:?}");
    assert!(any.0 > 8e-5 && quantised.0 > 3e-4, "{any:?} {quantised:?}");
}

#[test]
fn partial_sums_bound_f32_weights_alone_and_of_a_subject_that_promises_its_lanes_alone() {
    let case: Case = "t=3,e=4,k=2,h=128,i=256,fill=wild,seed=9"
        .parse()
        .expect("a case");
    let lanes = |choice: &SubjectChoice| choice.subject().arithmetic(&case).lanes;
    assert!(lanes(&SubjectChoice::Cpu) && lanes(&SubjectChoice::Ordered(Schedule::Lanes(16))));
    for order in [
        Schedule::Lanes(8),
        Schedule::LanesTail(16),
        Schedule::Sequential,
    ] {
        assert!(!lanes(&SubjectChoice::Ordered(order)), "{order}");
    }
    for name in SubjectChoice::NAMES
        .iter()
        .filter(|name| **name != SubjectChoice::CPU)
    {
        assert!(
            !lanes(&SubjectChoice::named(name).expect("listed")),
            "{name}"
        );
    }
    let known = Cpu::new().arithmetic(&case);
    let counted = Arithmetic {
        lanes: false,
        evaluation: None,
        ..known
    };
    for &w in WeightFormat::ALL {
        let case = Case { w, ..case.clone() };
        let logical = fill(&case).expect("a case that can be filled");
        let of = |arithmetic| reference_for(&case, &logical, arithmetic).expect("a reference");
        let (known, counted) = (of(known), of(counted));
        match w {
            WeightFormat::F32 => {
                let bounds = known.bound.iter().zip(&counted.bound);
                assert!(bounds.clone().all(|(known, counted)| known < counted));
                let ratio = bounds.map(|(known, counted)| known / counted).sum::<f64>();
                assert!(ratio < 0.6 * known.bound.len() as f64, "{ratio}");
            }
            _ => assert_eq!(known, counted, "{w}"),
        }
    }
}

#[test]
fn the_cpu_subject_lies_within_the_bound_padded_and_unpadded() {
    let mut subject = Cpu::new();
    let (mut runs, mut exact, mut tokens, mut doubtful) = (0, 0, 0, 0);
    let mut largest = 0.0f64;
    for index in 0..CASES {
        let case = draw(&Domain::FULL, SEED, index);
        let logical = fill(&case).expect("a drawn case can be filled");
        let arithmetic = subject.arithmetic(&case);
        let wanted =
            reference_for(&case, &logical, arithmetic).expect("a drawn case has a reference");
        let sound = |bound: &f64| bound.is_finite() && *bound >= 0.0;
        assert!(wanted.bound.iter().all(sound), "{case}");
        exact += usize::from(wanted.exact);
        tokens += wanted.ambiguous.len();
        doubtful += wanted.ambiguous.iter().filter(|a| **a).count();
        for case in [unpadded(&case), case] {
            let Some(actual) = run(&case, &logical, &mut subject) else {
                continue;
            };
            runs += 1;
            assert_routed_alike(&case, &wanted, &actual);
            if !wanted.exact {
                largest = largest.max(worst(&case, &wanted, &actual));
            }
            let found = judge(&case, &wanted, &actual);
            assert!(found.agree, "{case}: {:?}", found.first);
        }
    }
    // Else the test proves little: cases were not run, or the bound is far from any error.
    assert!(runs as u64 > CASES * 19 / 10, "{runs} runs");
    assert!(exact as u64 > CASES / 50, "{exact} exact cases");
    assert!(doubtful * 100 < tokens, "{doubtful} of {tokens} tokens");
    assert!(largest > 0.5 && largest <= 1.0, "{largest}");
}
