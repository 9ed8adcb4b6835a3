//! mma.sync on the CPU: its fragments against a plain product, its ways of adding against what is known of
//! devices, and the claims about outputs where it adds as devices do.

use super::{Tally, ask, of_outputs, runs, suite, turns};
use padproof::case::Case;
use padproof::compare::same_bits;
use padproof::fill::fill;
use padproof::layout::pack_layer;
use padproof::num::Dtype;
use padproof::plan::plan;
use padproof::property::{Tier, Trial, Verdict, find};
use padproof::subject::{Adder, CudaHost, HostMma, HostOptions, Subject};
use padproof::terms::WeightFormat;

const ADDERS: [Adder; 3] = [Adder::Chain, Adder::AMPERE, Adder::HOPPER];

/// Whether every code is a bfloat16, so that a tensor core takes it.
fn by_tensor_core(w: WeightFormat) -> bool {
    !matches!(w.element(), Dtype::F32 | Dtype::F16)
}

fn bf16(x: f32) -> u32 {
    assert_eq!(x.to_bits() & 0xffff, 0, "{x} is no bfloat16");
    x.to_bits() >> 16
}

/// Matrices [16, 16], [16, 8] and [16, 8] into a warp's registers, as the PTX manual places the elements of
/// mma.m16n8k16 with .bf16 (ISA 9.7.14, "Matrix Fragments for mma.m16n8k16"): lane = 4 group + thread.
fn scatter(a: &[[f32; 16]; 16], b: &[[f32; 8]; 16], d: &[[f32; 8]; 16]) -> HostMma {
    let mut all = HostMma::default();
    for lane in 0..32 {
        let (group, thread) = (lane >> 2, lane & 3);
        for i in 0..8 {
            let row = if i < 2 || (4..6).contains(&i) {
                group
            } else {
                group + 8
            };
            let col = thread * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
            all.a[lane][i / 2] |= bf16(a[row][col]) << (16 * (i & 1));
        }
        for i in 0..4 {
            let row = thread * 2 + (i & 1) + if i < 2 { 0 } else { 8 };
            all.b[lane][i / 2] |= bf16(b[row][group]) << (16 * (i & 1));
            let row = if i < 2 { group } else { group + 8 };
            all.d[lane][i] = d[row][thread * 2 + (i & 1)];
        }
    }
    all
}

fn gather(all: &HostMma) -> [[f32; 8]; 16] {
    let mut d = [[f32::NAN; 8]; 16];
    for lane in 0..32 {
        let (group, thread) = (lane >> 2, lane & 3);
        for i in 0..4 {
            d[if i < 2 { group } else { group + 8 }][thread * 2 + (i & 1)] = all.d[lane][i];
        }
    }
    d
}

#[test]
fn fragments_lie_as_the_manual_says_and_multiply_as_matrices_do() {
    if !runs() {
        return;
    }
    let number =
        |row: usize, col: usize, prime: usize| ((row * 31 + col * prime) % 17) as f32 - 8.0;
    let mut a = [[0.0; 16]; 16];
    let (mut b, mut d) = ([[0.0; 8]; 16], [[0.0; 8]; 16]);
    for row in 0..16 {
        (0..16).for_each(|col| a[row][col] = number(row, col, 7));
        (0..8).for_each(|col| {
            (b[row][col], d[row][col]) = (number(row, col, 5), number(row, col, 11))
        });
    }
    for adder in ADDERS {
        let mut all = scatter(&a, &b, &d);
        assert!(all.run(adder));
        let actual = gather(&all);
        for row in 0..16 {
            for col in 0..8 {
                let product: f32 = (0..16).map(|k| a[row][k] * b[k][col]).sum();
                let wanted = d[row][col] + product;
                assert_eq!(actual[row][col], wanted, "{adder:?} [{row}, {col}]");
            }
        }
    }
}

/// The sum of `products`, each times one, and an accumulator.
fn sum(adder: Adder, accumulator: f32, products: [f32; 16]) -> f32 {
    let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    a[3] = products;
    b.iter_mut().for_each(|row| row[5] = 1.0);
    let mut d = [[0.0; 8]; 16];
    d[3][5] = accumulator;
    let mut all = scatter(&a, &b, &d);
    assert!(all.run(adder));
    gather(&all)[3][5]
}

#[test]
fn aligned_adders_cut_what_lies_below_their_fraction_and_round_toward_zero() {
    if !runs() {
        return;
    }
    let ulp = f32::EPSILON;
    let with = |first: f32, others: f32| {
        let mut products = [others; 16];
        products[0] = first;
        products
    };
    // Fifteen halves of an ulp: seven whole ones and a rest that is cut; a chain rounds each to even, away.
    let halves = with(1.0, ulp / 2.0);
    assert_eq!(sum(Adder::Chain, 0.0, halves), 1.0);
    assert_eq!(sum(Adder::AMPERE, 0.0, halves), 1.0 + 7.0 * ulp);
    assert_eq!(sum(Adder::HOPPER, 0.0, halves), 1.0 + 7.0 * ulp);
    // Quarters lie below 2^-24, not below 2^-25.
    let quarters = with(1.0, ulp / 4.0);
    assert_eq!(sum(Adder::AMPERE, 0.0, quarters), 1.0);
    assert_eq!(sum(Adder::HOPPER, 0.0, quarters), 1.0 + 3.0 * ulp);
    // Volta kept 23 bits, four products at a time.
    let volta = Adder::Aligned {
        fraction: 23,
        terms: 4,
    };
    assert_eq!(sum(volta, 0.0, halves), 1.0);
    // Toward zero on both sides, where a chain rounds to nearest.
    let most = with(1.0, 0.0);
    for adder in [Adder::AMPERE, Adder::HOPPER] {
        let mut products = most;
        products[1] = ulp * 0.75;
        assert_eq!(sum(adder, 0.0, products), 1.0, "{adder:?}");
        assert_eq!(sum(adder, 0.0, products.map(|p| -p)), -1.0, "{adder:?}");
    }
    let mut products = most;
    products[1] = ulp * 0.75;
    assert_eq!(sum(Adder::Chain, 0.0, products), 1.0 + ulp);
    // The accumulator counts for the largest exponent, and is cut by it.
    assert_eq!(sum(Adder::HOPPER, 1.0, [ulp / 4.0; 16]), 1.0 + 4.0 * ulp);
    assert_eq!(sum(Adder::AMPERE, 1.0, [ulp / 4.0; 16]), 1.0);
    assert_eq!(sum(Adder::HOPPER, ulp, with(16.0, 0.0)), 16.0);
    // A zero beside a huge factor counts with the exponents of both (docs/not-a-bug.md).
    let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    (a[0][0], b[0][0]) = (2f32.powi(-20), 2f32.powi(-20));
    (a[0][15], b[15][0]) = (2f32.powi(127), 0.0);
    for (adder, wanted) in [(Adder::Chain, 2f32.powi(-40)), (Adder::HOPPER, 0.0)] {
        let mut all = scatter(&a, &b, &[[0.0; 8]; 16]);
        assert!(all.run(adder));
        assert_eq!(gather(&all)[0][0], wanted, "{adder:?}");
    }
    // Infinities and NaN pass, and opposite ones meet in NaN.
    for adder in ADDERS {
        assert_eq!(sum(adder, 0.0, with(f32::INFINITY, 1.0)), f32::INFINITY);
        assert!(sum(adder, f32::NEG_INFINITY, with(f32::INFINITY, 1.0)).is_nan());
        assert!(sum(adder, 0.0, with(f32::NAN, 1.0)).is_nan());
        assert_eq!(sum(adder, 0.0, [0.0; 16]), 0.0);
    }
}

/// Every claim about outputs over a share of the smoke suite, and that padding moves no bit over one of the
/// boundary suite: adding as devices do is slow on a CPU.
#[test]
fn the_suites_hold_where_products_are_added_as_on_devices() {
    if !runs() {
        return;
    }
    let claims = ["pad-identity", "device-pad-identity"];
    let claims = claims.map(|name| find(name).expect("it is listed"));
    for adder in [Adder::AMPERE, Adder::HOPPER] {
        let options = |n| HostOptions {
            adder,
            turns: turns(n / 2),
            ..HostOptions::default()
        };
        let of = |name: &str, share: usize, claims: &[_]| -> Tally {
            let cases: Vec<Case> = suite(name).into_iter().step_by(share).collect();
            ask(&cases, claims, 2, options)
        };
        of("smoke", 4, &of_outputs()).tell("smoke");
        of("boundary", 16, &claims).tell("boundary");
    }
}

/// Lines whose every operation is exact with a bfloat16 intermediate, and the same with other values.
fn lines(w: WeightFormat, fill: &str) -> Vec<String> {
    let acts = ["relu", "identity"].into_iter();
    acts.flat_map(|act| {
        [(48, 40), (96, 100)].map(|(h, i)| {
            format!(
                "t=7,e=4,h={h},i={i},act={act},route=given,w={w},mid=bf16,pad=h64.i32,fill={fill}"
            )
        })
    })
    .collect()
}

#[test]
fn exact_sums_have_the_same_bits_in_both_products_however_they_are_added() {
    if !runs() {
        return;
    }
    let identity = find("pad-identity").expect("it is listed");
    let output = |line: &str, options| {
        let case: Case = line.parse().expect("a case line");
        let plan = plan(&case).expect("it is planned");
        let packed =
            pack_layer(&plan, &fill(&case).expect("it is filled")).expect("it is laid out");
        CudaHost::with(options)
            .run(&plan, &packed)
            .expect("it runs")
    };
    let with = |adder, inputs| HostOptions {
        adder,
        inputs,
        ..HostOptions::default()
    };
    for &w in WeightFormat::ALL {
        let mut exact = 0;
        for line in lines(w, "exact") {
            let case: Case = line.parse().expect("a case line");
            let verdict = (identity.check)(&case, &mut Trial::new(&mut CudaHost::new()));
            if verdict != Verdict::Pass(Tier::Exact) {
                continue;
            }
            exact += 1;
            let chain = output(&line, with(Adder::Chain, None));
            for adder in [Adder::AMPERE, Adder::HOPPER] {
                let other = output(&line, with(adder, None));
                assert!(same_bits(&chain, &other).agree, "{line} {adder:?}");
            }
        }
        assert!(exact >= 2, "{w}: {exact} exact cases");
        // That the second product takes mma.sync: an f32 input keeps the first from it, and bits move.
        let moved = lines(w, "wild").iter().any(|line| {
            let [chain, hopper] = [Adder::Chain, Adder::HOPPER]
                .map(|adder| output(line, with(adder, Some(Dtype::F32))));
            !same_bits(&chain, &hopper).agree
        });
        // Products of 4-bit codes lie so close together that nothing is cut.
        let must = matches!(w.element(), Dtype::Bf16 | Dtype::E4m3 | Dtype::Int8);
        assert!(moved || !must, "{w}: no bit moved");
        assert!(!moved || by_tensor_core(w), "{w}: bits moved");
    }
}
