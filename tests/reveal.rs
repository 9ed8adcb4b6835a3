//! Goal: the order of any black box is found from its outputs. Method: every order that padproof
//! knows, and trees drawn at random, as boxes that are asked through floats alone.

use padproof::rng;
use padproof::schedule::{Ask, Probe, RevealError, Schedule, Tree, reveal};

/// What a box computes in.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// f32 products and sums.
    F32,
    /// f64 sums.
    F64,
    /// bf16 inputs, f32 sums, output rounded to bf16.
    Bf16,
}

struct Order(Tree, usize, Kind);

impl Ask for Order {
    type Error = String;

    fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, String> {
        let Order(tree, n, kind) = self;
        let sum = |probe: &Probe| {
            let values: Vec<f32> = (0..*n).map(|k| probe.value(k)).collect();
            let wide: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
            let narrow = |v: f32| half::bf16::from_f32(v).to_f32();
            match kind {
                Kind::F32 => f64::from(tree.sum(&values)),
                Kind::F64 => tree.sum_f64(&wide),
                Kind::Bf16 => {
                    assert!(
                        values.iter().all(|&v| narrow(v) == v),
                        "bf16 holds every input"
                    );
                    let ones = vec![1.0; *n];
                    f64::from(narrow(tree.dot(&values, &ones)))
                }
            }
        };
        Ok(probes.iter().map(sum).collect())
    }

    fn exact(&self) -> usize {
        match self.2 {
            Kind::Bf16 => 256,
            _ => 1 << 24,
        }
    }
}

const ORDERS: &[&str] = &[
    "sequential",
    "lanes-4",
    "lanes-8",
    "lanes-16",
    "lanes-3",
    "lanes-8-tail",
    "lanes-16-tail",
    "blocked-32",
    "blocked-128",
    "split-k-2",
    "split-k-7",
    "split-k-4x32",
    "split-k-5x16",
    "pairwise",
    "power-of-two",
    "mma-4",
    "mma-8",
    "mma-16",
];

#[test]
fn every_built_in_order_is_recovered() {
    for word in ORDERS {
        let order: Schedule = word.parse().unwrap();
        for n in [1, 2, 3, 16, 17, 100, 300, 961] {
            let kinds = [Kind::F32, Kind::F64, Kind::Bf16];
            for kind in kinds.into_iter().take(if n > 300 { 1 } else { 3 }) {
                let tree = order.tree(n);
                let found = reveal(n, &mut Order(tree.clone(), n, kind)).unwrap();
                assert!(found.tree.same_order(&tree), "{order} {n} {kind:?}");
                assert_eq!(found.tree.leaves(), n, "{order} {n}");
            }
        }
        // What it says of padding is what the order says.
        let of = |n: usize| {
            reveal(n, &mut Order(order.tree(n), n, Kind::F32))
                .unwrap()
                .tree
        };
        for (n, to) in [(300, 304), (96, 128), (100, 112), (128, 256)] {
            let stable = of(to).pruned(n).same_order(&of(n));
            assert_eq!(stable, order.pad_stable(n, to), "{order} {n} to {to}");
        }
    }
}

#[test]
fn typical_orders_take_few_calls() {
    for word in ORDERS {
        let order: Schedule = word.parse().unwrap();
        let found = reveal(976, &mut Order(order.tree(976), 976, Kind::F32)).unwrap();
        assert!(found.calls <= 100, "{order}: {} calls", found.calls);
        assert!(found.probes <= 30_000, "{order}: {} probes", found.probes);
    }
}

/// A box that adds a list of nested lists: a tree with sums of any number of terms, in any order.
struct Nested(Vec<Vec<usize>>, usize);

impl Nested {
    /// Merges random parts until one is left; each node holds numbers of parts, products first.
    fn draw(seed: u64, n: usize) -> Nested {
        let mut open: Vec<usize> = (0..n).collect();
        let mut nodes: Vec<Vec<usize>> = Vec::new();
        let mut turn = 0;
        while open.len() > 1 {
            let mut draw = |below: usize| {
                turn += 1;
                rng::value(seed, 5, turn) as usize % below
            };
            let count = [2, 2, 2, 3, 5][draw(5)].min(open.len());
            let node = (0..count)
                .map(|_| open.swap_remove(draw(open.len())))
                .collect();
            nodes.push(node);
            open.push(n + nodes.len() - 1);
        }
        Nested(nodes, n)
    }
}

impl Ask for Nested {
    type Error = String;

    fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, String> {
        let sum = |probe: &Probe| {
            let mut values: Vec<f64> = (0..self.1).map(|k| f64::from(probe.value(k))).collect();
            for node in &self.0 {
                let terms: Vec<f64> = node.iter().map(|&t| values[t]).collect();
                // As a matrix unit: aligned to the largest, what is far below is lost.
                let largest = terms.iter().fold(0.0f64, |m, t| m.max(t.abs()));
                let kept = |t: &&f64| t.abs() > largest * 1e-20;
                values.push(terms.iter().filter(kept).sum());
            }
            values[values.len() - 1]
        };
        Ok(probes.iter().map(sum).collect())
    }
}

#[test]
fn trees_of_any_shape_with_adders_of_many_terms_are_recovered() {
    for seed in 0..100 {
        let n = 2 + rng::value(seed, 6, 0) as usize % 90;
        let mut nested = Nested::draw(seed, n);
        let found = reveal(n, &mut nested).unwrap();
        assert_eq!(found.tree.leaves(), n);
        // The tree answers every pair as the box does.
        for plus in 0..n {
            let pairs: Vec<Probe> = (0..n)
                .filter(|&minus| minus != plus)
                .map(|minus| Probe {
                    plus,
                    minus,
                    ones: 0..n,
                })
                .collect();
            let wanted = nested.ask(&pairs).unwrap();
            let actual = Order(found.tree.clone(), n, Kind::F32).ask(&pairs).unwrap();
            assert_eq!(
                actual,
                wanted,
                "seed {seed}, {plus}: {}",
                found.tree.describe()
            );
        }
    }
}

#[test]
fn what_is_no_tree_is_an_error() {
    struct Exact(usize);
    impl Ask for Exact {
        type Error = String;
        fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, String> {
            // Compensated: nothing is ever lost.
            Ok(probes.iter().map(|_| (self.0 - 2) as f64).collect())
        }
    }
    let error = reveal(20, &mut Exact(20)).unwrap_err();
    assert!(matches!(error, RevealError::NoTree { .. }), "{error}");

    struct Fickle(u64);
    impl Ask for Fickle {
        type Error = String;
        fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, String> {
            self.0 += 1;
            let word = ["sequential", "lanes-4"][self.0 as usize % 2];
            let order: Schedule = word.parse().unwrap();
            Order(order.tree(50), 50, Kind::F32).ask(probes)
        }
    }
    let error = reveal(50, &mut Fickle(0)).unwrap_err();
    assert!(matches!(error, RevealError::NoTree { .. }), "{error}");

    struct Odd(f64);
    impl Ask for Odd {
        type Error = String;
        fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, String> {
            Ok(vec![self.0; probes.len()])
        }
    }
    for value in [f64::NAN, f64::INFINITY, -3.0, 0.5, 1e30] {
        let error = reveal(20, &mut Odd(value)).unwrap_err();
        assert!(
            matches!(error, RevealError::NoCount { .. }),
            "{value}: {error}"
        );
    }

    struct Mute;
    impl Ask for Mute {
        type Error = String;
        fn ask(&mut self, _: &[Probe]) -> Result<Vec<f64>, String> {
            Ok(Vec::new())
        }
    }
    let error = reveal(3, &mut Mute).unwrap_err();
    assert_eq!(error.to_string(), "0 answers to 3 probes");
}
