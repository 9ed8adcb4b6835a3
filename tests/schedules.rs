//! Goal: pad-stable is a statement about bits. Method: where trees are equal, wild data gives equal
//! bits; where they are not, the counterexample's data gives different ones.

use padproof::case::Case;
use padproof::layout::PackedInputs;
use padproof::plan::Plan;
use padproof::property::{self, Needs, Tier, Trial, Verdict};
use padproof::rng;
use padproof::schedule::Schedule;
use padproof::subject::{Cpu, SkipReason, Subject, SubjectError};
use padproof::tensor::Output;

/// Sums of wild data in all.
const SUMS: u64 = 1_000_000;
/// Sums of each tree, which costs more than they do.
const DRAWS: u64 = 100;

const ORDERS: &[Schedule] = &[
    Schedule::Sequential,
    Schedule::Lanes(8),
    Schedule::Lanes(16),
    Schedule::Lanes(5),
    Schedule::LanesTail(8),
    Schedule::LanesTail(16),
    Schedule::Blocked(32),
    Schedule::Blocked(128),
    Schedule::SplitK(2),
    Schedule::SplitK(7),
    Schedule::SplitTiles { parts: 4, tile: 32 },
    Schedule::SplitTiles { parts: 5, tile: 16 },
    Schedule::Pairwise,
    Schedule::PowerOfTwo,
    Schedule::Mma(4),
    Schedule::Mma(16),
];

/// A width, and one that it is padded to.
fn widths(seed: u64) -> (usize, usize) {
    let draw = |stream, below: u64| rng::value(seed, stream, 0) % below;
    let n = 1 + draw(1, 200) as usize;
    let granule = [2, 3, 8, 16, 32, 64, 128, 256][draw(2, 8) as usize];
    (n, n.next_multiple_of(granule))
}

/// Finite values over sixty binades, of both signs.
fn wild(seed: u64, stream: u64, n: usize) -> Vec<f32> {
    let value = |k: usize| {
        let bits = rng::value(seed, stream, k as u64);
        let exponent = 97 + (bits >> 32) % 60;
        f32::from_bits((bits as u32 & 0x807f_ffff) | (exponent as u32) << 23)
    };
    (0..n).map(value).collect()
}

fn padded(values: &[f32], to: usize) -> Vec<f32> {
    let mut values = values.to_vec();
    values.resize(to, 0.0);
    values
}

#[test]
fn stable_orders_give_equal_bits_on_wild_data() {
    let (mut stable, mut seed) = (0, 0);
    while stable < SUMS {
        seed += 1;
        let order = ORDERS[rng::value(seed, 0, 0) as usize % ORDERS.len()];
        let (n, to) = widths(seed);
        if n == to || !order.pad_stable(n, to) {
            continue;
        }
        let (small, large) = (order.tree(n), order.tree(to));
        for draw in 0..DRAWS {
            let (a, b) = (wild(seed, 2 * draw + 10, n), wild(seed, 2 * draw + 11, n));
            let bare = small.dot(&a, &b);
            let with = large.dot(&padded(&a, to), &padded(&b, to));
            assert_eq!(
                bare.to_bits(),
                with.to_bits(),
                "{order} {n} to {to}, seed {seed}"
            );
            stable += 1;
        }
    }
}

#[test]
fn unstable_orders_have_a_witness_with_other_bits() {
    let mut unstable = 0;
    for &order in ORDERS {
        for n in (1..=70usize).chain([96, 127, 128, 129, 961]) {
            for granule in [2, 3, 16, 32, 128, 256] {
                let to = n.next_multiple_of(granule) + if granule == 3 { 3 } else { 0 };
                let moved = order.moved(n, to);
                assert_eq!(
                    moved.is_none(),
                    order.pad_stable(n, to),
                    "{order} {n} to {to}"
                );
                let Some(moved) = moved else { continue };
                let (a, b) = moved.witness(n);
                let bare = order.tree(n).dot(&a, &b);
                let with = order.tree(to).dot(&padded(&a, to), &padded(&b, to));
                assert_ne!(
                    bare.to_bits(),
                    with.to_bits(),
                    "{order} {n} to {to}: {moved:?}"
                );
                if moved.terms != moved.terms_other {
                    let outside = |terms: usize| (n - terms) as f32;
                    assert_eq!(
                        (bare, with),
                        (outside(moved.terms), outside(moved.terms_other))
                    );
                }
                unstable += 1;
            }
        }
    }
    assert!(unstable > 1000, "{unstable}");
}

#[test]
fn every_order_computes_the_same_sum_in_exact_arithmetic() {
    for &order in ORDERS {
        for n in [1, 2, 17, 100, 961] {
            let values: Vec<f32> = (0..n).map(|k| (k % 37) as f32 - 18.0).collect();
            let wanted: f32 = values.iter().sum();
            let wide: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
            let tree = order.tree(n);
            assert_eq!(tree.leaves(), n, "{order}");
            assert_eq!(tree.sum(&values), wanted, "{order} {n}");
            assert_eq!(tree.sum_f64(&wide), f64::from(wanted), "{order} {n}");
            let squares: f32 = values.iter().map(|v| v * v).sum();
            assert_eq!(tree.dot(&values, &values), squares, "{order} {n}");
            assert_eq!(
                tree.dot_f64(&wide, &wide),
                f64::from(squares),
                "{order} {n}"
            );
        }
    }
}

/// Cases whose widths are padded; hidden too in the second.
const LAYERS: &[&str] = &[
    "t=3,e=4,k=2,h=48,i=45,act=relu2,pad=i16,fill=wild,seed=7",
    "t=2,e=4,k=2,h=41,i=39,act=swiglu,w=fp8-channel,pad=h16.i32,fill=wild,seed=8",
    "t=2,e=2,k=1,h=32,i=90,tp=2,act=silu,w=mxfp8,pad=i32,fill=wild,seed=9",
];

#[test]
fn every_property_holds_under_every_order_and_says_by_which_tier() {
    for &order in ORDERS {
        let mut tiers = Vec::new();
        for line in LAYERS {
            let case: Case = line.parse().unwrap();
            let plan = padproof::plan::plan(&case).unwrap();
            for property in property::ALL.iter().filter(|p| p.needs == Needs::Subject) {
                let mut cpu = Cpu::under(order);
                let verdict = (property.check)(&case, &mut Trial::new(&mut cpu));
                match verdict {
                    Verdict::Fail(finding) => panic!("{order} {}: {finding:?}", property.name),
                    Verdict::Broken(why) => panic!("{order} {}: {why}", property.name),
                    Verdict::Pass(tier) if property.name == "pad-identity" => {
                        let (n, to) = (plan.width as usize, plan.width_padded as usize);
                        let hidden = (plan.dims.h as usize, plan.hidden_padded as usize);
                        let stable =
                            order.pad_stable(n, to) && order.pad_stable(hidden.0, hidden.1);
                        tiers.push((stable, tier));
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(tiers.len(), LAYERS.len(), "{order}");
        for (stable, tier) in tiers {
            let wanted = if stable {
                Tier::SameOrder
            } else {
                Tier::Derived
            };
            assert_eq!(tier, wanted, "{order}");
        }
    }
}

#[test]
fn a_subject_that_promises_an_order_it_does_not_keep_is_caught() {
    struct Liar(Cpu);
    impl Subject for Liar {
        fn name(&self) -> &'static str {
            "liar"
        }
        fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
            self.0.supports(plan)
        }
        fn schedule(&self) -> Option<Schedule> {
            Some(Schedule::Sequential)
        }
        fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
            self.0.run(plan, inputs)
        }
    }
    let case: Case = LAYERS[0].parse().unwrap();
    let identity = property::find("pad-identity").unwrap();
    let mut caught = 0;
    for order in [
        Schedule::LanesTail(16),
        Schedule::Pairwise,
        Schedule::SplitK(2),
    ] {
        let mut liar = Liar(Cpu::under(order));
        let verdict = (identity.check)(&case, &mut Trial::new(&mut liar));
        caught +=
            usize::from(matches!(verdict, Verdict::Fail(f) if f.bound == Tier::SameOrder.name()));
    }
    assert_eq!(caught, 3);
}

#[test]
fn the_slow_order_of_sixteen_lanes_is_the_fast_one() {
    // Seventeen lanes would be another order; the fast one is recognised and kept.
    let own = Cpu::new().schedule();
    assert_eq!(Cpu::under(Schedule::Lanes(16)).schedule(), own);
    assert_eq!(
        Cpu::under(Schedule::Mma(16)).schedule(),
        Some(Schedule::Mma(16))
    );
}
