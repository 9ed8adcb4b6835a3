//! Goal: the order of any black box is found from its outputs. Method: every order that padproof
//! knows, and trees drawn at random, as boxes that are asked through floats alone.
//!
//! Long because each way to ask a subject has its own stand-in beside its tests.

use padproof::case::Case;
use padproof::layout::PackedInputs;
use padproof::plan::Plan;
use padproof::property::{Tier, Trial, Verdict, find};
use padproof::rng;
use padproof::rule::Rules;
use padproof::run::Worker;
use padproof::schedule::{Ask, Probe, RevealError, Schedule, Tree, reveal};
use padproof::subject::{
    Axis, Cpu, Known, Revealed, Setup, SkipReason, Subject, SubjectChoice, SubjectError, orders,
};
use padproof::tensor::Output;
use padproof::terms::{Activation, Route, WeightFormat};

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

#[test]
fn the_cpu_subjects_order_is_found_from_whole_layers_on_both_axes() {
    for (word, weights) in [
        ("lanes-16", WeightFormat::F32),
        ("lanes-8-tail", WeightFormat::Bf16),
        ("pairwise", WeightFormat::F32),
        ("split-k-3", WeightFormat::Bf16),
        ("mma-16", WeightFormat::F32),
        ("blocked-32", WeightFormat::F32),
    ] {
        let order: Schedule = word.parse().unwrap();
        for axis in [Axis::Intermediate, Axis::Hidden] {
            let setup = Setup {
                axis,
                n: 77,
                padded: 80,
                tokens: 3,
                rows: 40,
                rows_padded: 40,
                weights,
            };
            let found = orders(&mut Cpu::under(order), setup).unwrap();
            assert_eq!(found.named, Some(order), "{axis}");
            assert!(
                found.bare.tree.same_order(&order.tree(77)),
                "{order} {axis}"
            );
            let stable = order.pad_stable(77, 80);
            assert_eq!(
                found.moved.is_none(),
                stable,
                "{order} {axis}: {:?}",
                found.moved
            );
        }
    }
}

/// The CPU subject with something of its own done to its output.
struct Odd(Cpu, fn(&mut Output));

impl Subject for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }
    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        match plan.activation {
            Activation::SwigluOai => self.0.supports(plan),
            _ => Err(SkipReason::Unsupported("one activation".to_owned())),
        }
    }
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        let mut output = self.0.run(plan, inputs)?;
        (self.1)(&mut output);
        Ok(output)
    }
}

#[test]
fn a_subject_of_one_activation_and_narrow_outputs_is_read_in_its_own_units() {
    let narrow: fn(&mut Output) = |output| {
        for v in &mut output.values {
            *v = half::bf16::from_f32(*v).to_f32();
        }
    };
    let setup = |axis| Setup {
        axis,
        n: 603,
        padded: 608,
        tokens: 2,
        rows: 64,
        rows_padded: 64,
        weights: WeightFormat::F32,
    };
    let mut odd = Odd(Cpu::under(Schedule::LanesTail(8)), narrow);
    let found = orders(&mut odd, setup(Axis::Intermediate)).unwrap();
    assert_eq!(found.case.act, Activation::SwigluOai);
    assert_eq!(found.named, Some(Schedule::LanesTail(8)));
    // Its clamp hides sums of the first projection: no layer for them.
    let error = orders(&mut odd, setup(Axis::Hidden)).unwrap_err();
    assert!(
        error.to_string().contains("takes none of the layers"),
        "{error}"
    );
}

#[test]
fn subjects_whose_sums_are_no_counts_are_errors() {
    type Fault = (fn(&mut Output), &'static str);
    let faults: [Fault; 3] = [
        (|o| o.values[o.hidden] += 1.0, "an order for each token"),
        (
            |o| o.values.fill(0.0),
            "a single product of 1 came out as 0",
        ),
        (|o| o.values.fill(f32::NAN), "came out as NaN"),
    ];
    for (fault, said) in faults {
        let setup = Setup {
            axis: Axis::Intermediate,
            n: 20,
            padded: 20,
            tokens: 2,
            rows: 8,
            rows_padded: 8,
            weights: WeightFormat::F32,
        };
        let error = orders(&mut Odd(Cpu::new(), fault), setup).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn formats_that_do_not_hold_large_numbers_are_asked_through_the_input() {
    for (word, weights) in [
        ("lanes-16", WeightFormat::Mxfp4),
        ("split-k-3", WeightFormat::Nvfp4),
        ("blocked-32", WeightFormat::Fp8Block),
        ("pairwise", WeightFormat::Int8),
        ("lanes-8-tail", WeightFormat::Int4G32),
        ("mma-16", WeightFormat::F16),
    ] {
        let order: Schedule = word.parse().unwrap();
        for axis in [Axis::Intermediate, Axis::Hidden] {
            let setup = Setup {
                axis,
                n: 96,
                padded: 128,
                tokens: 5,
                rows: 32,
                rows_padded: 32,
                weights,
            };
            let found = orders(&mut Cpu::under(order), setup).unwrap();
            let tree = order.tree(96);
            assert!(
                found.bare.tree.same_order(&tree),
                "{order} {weights} {axis}"
            );
            let stable = order.pad_stable(96, 128);
            assert_eq!(found.moved.is_none(), stable, "{order} {weights} {axis}");
        }
    }
}

/// A size within the block that the bare one ends in pads nothing; one beyond it pads to whole blocks and no further.
#[test]
fn sizes_of_half_blocks_are_run_as_whole_ones() {
    let order = Schedule::SplitK(2);
    for (padded, wide) in [(80, 96), (96, 96), (130, 160)] {
        let setup = Setup {
            axis: Axis::Intermediate,
            n: 65,
            padded,
            tokens: 5,
            rows: 32,
            rows_padded: 32,
            weights: WeightFormat::Mxfp4,
        };
        let found = orders(&mut Cpu::under(order), setup).unwrap();
        assert_eq!(found.sizes, [96, wide], "{padded}");
        assert_eq!(found.moved.is_none(), wide == 96, "{padded}");
    }
}

/// The CPU subject, which promises nothing and takes what its predicate lets through.
struct Unpromised(Cpu, fn(&Plan) -> bool, fn(&Plan, &mut Output));

impl Subject for Unpromised {
    fn name(&self) -> &str {
        "unpromised"
    }
    fn supports(&self, plan: &Plan) -> Result<(), SkipReason> {
        match (self.1)(plan) {
            true => self.0.supports(plan),
            false => Err(SkipReason::Unsupported("not that".to_owned())),
        }
    }
    fn schedule(&self) -> Option<Schedule> {
        None
    }
    fn run(&mut self, plan: &Plan, inputs: &PackedInputs) -> Result<Output, SubjectError> {
        let mut output = self.0.run(plan, inputs)?;
        (self.2)(plan, &mut output);
        Ok(output)
    }
}

const AS_IT_IS: fn(&Plan, &mut Output) = |_, _| {};

#[test]
fn a_subject_that_routes_by_itself_is_asked_with_one_expert_and_logits() {
    let logits = |plan: &Plan| plan.numerics.route == Route::SoftmaxRenorm;
    let order = Schedule::Lanes(8);
    for axis in [Axis::Intermediate, Axis::Hidden] {
        let setup = Setup {
            axis,
            n: 40,
            padded: 48,
            tokens: 3,
            rows: 32,
            rows_padded: 32,
            weights: WeightFormat::F32,
        };
        let mut subject = Unpromised(Cpu::under(order), logits, AS_IT_IS);
        let found = orders(&mut subject, setup).unwrap();
        assert_eq!(found.named, Some(order), "{axis}");
        assert_eq!(found.case.route, Route::SoftmaxRenorm);
    }
}

#[test]
fn layers_and_probes_beyond_reason_are_refused_with_a_sentence() {
    let setup = Setup {
        axis: Axis::Intermediate,
        n: 65_536,
        padded: 65_536,
        tokens: 4,
        rows: 65_536,
        rows_padded: 65_536,
        weights: WeightFormat::F32,
    };
    let error = orders(&mut Cpu::new(), setup).unwrap_err().to_string();
    assert!(error.contains("fewer --rows"), "{error}");

    /// Counts to four only.
    struct Coarse;
    impl Ask for Coarse {
        type Error = String;
        fn ask(&mut self, _: &[Probe]) -> Result<Vec<f64>, String> {
            unreachable!("refused before it is asked")
        }
        fn exact(&self) -> usize {
            4
        }
    }
    let error = reveal(65_536, &mut Coarse).unwrap_err();
    assert!(matches!(error, RevealError::TooMany { .. }), "{error}");
    assert!(error.to_string().contains("too coarsely"), "{error}");
}

#[test]
fn probes_are_asked_in_calls_of_bounded_size() {
    struct Bounded(usize);
    impl Ask for Bounded {
        type Error = String;
        fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, String> {
            assert!(probes.len() <= 1 << 16, "{} at once", probes.len());
            self.0 += 1;
            let sequential = |p: &Probe| {
                let meets = p.plus.max(p.minus) + 1;
                p.ones.end.saturating_sub(meets.max(p.ones.start)) as f64
            };
            Ok(probes.iter().map(sequential).collect())
        }
        fn exact(&self) -> usize {
            1000
        }
    }
    let mut asked = Bounded(0);
    let found = reveal(20_000, &mut asked).unwrap();
    assert!(found.tree.same_order(&Schedule::Sequential.tree(20_000)));
    assert!(asked.0 > 5 && found.probes > 400_000);
}

fn checked(subject: Box<dyn Subject + Send>, line: &str) -> Verdict {
    asked("pad-identity", subject, line)
}

fn asked(property: &str, subject: Box<dyn Subject + Send>, line: &str) -> Verdict {
    let case: Case = line.parse().expect("a case line");
    let property = find(property).expect("listed");
    let mut subject = Revealed::new(subject, &Known::default());
    let mut trial = Trial::new(&mut subject).about(property.name, &case);
    (property.check)(&case, &mut trial)
}

#[test]
fn bits_are_asked_for_where_the_order_found_is_pad_stable_and_the_bound_elsewhere() {
    let every = |_: &Plan| true;
    let of = |order| Box::new(Unpromised(Cpu::under(order), every, AS_IT_IS));
    let line = "t=5,e=3,k=2,h=40,i=33,fill=wild,pad=h16.i16";
    for (order, wanted) in [
        (Schedule::Lanes(8), Tier::SameOrder),
        (Schedule::Sequential, Tier::SameOrder),
        (Schedule::SplitK(3), Tier::Derived),
        (Schedule::Pairwise, Tier::Derived),
    ] {
        let verdict = checked(of(order), line);
        assert_eq!(verdict, Verdict::Pass(wanted), "{order}");
    }
    // Formats whose own layers cannot be asked are held to the bound.
    let verdict = checked(
        of(Schedule::Sequential),
        "t=5,h=64,i=40,w=mxfp4,fill=wild,pad=i64",
    );
    assert_eq!(verdict, Verdict::Pass(Tier::Derived));
}

#[test]
fn other_bits_from_an_order_found_stable_are_held_to_the_bound() {
    // A product may be fused into its sum in one shape and not in the other: an order tells nothing
    // of it. One unit in the last place, where the layer is padded, is within every bound; half as
    // much again is within none.
    let nudged: fn(&Plan, &mut Output) = |plan, output| {
        if plan.dims.e > 1 && plan.hidden_padded > 40 {
            for v in &mut output.values {
                *v = f32::from_bits(v.to_bits() ^ 1);
            }
        }
    };
    let grown: fn(&Plan, &mut Output) = |plan, output| {
        if plan.dims.e > 1 && plan.hidden_padded > 40 {
            for v in &mut output.values {
                *v *= 1.5;
            }
        }
    };
    let line = "t=5,e=3,k=2,h=40,i=33,fill=wild,pad=h16.i16";
    for property in ["pad-identity", "hidden-pad"] {
        let of = |done| {
            let subject = Unpromised(Cpu::under(Schedule::Sequential), |_| true, done);
            asked(property, Box::new(subject), line)
        };
        assert_eq!(of(AS_IT_IS), Verdict::Pass(Tier::SameOrder), "{property}");
        assert_eq!(of(nudged), Verdict::Pass(Tier::OtherBits), "{property}");
        let Verdict::Fail(finding) = of(grown) else {
            panic!("{property}: must fail");
        };
        assert!(
            finding.bound.starts_with(Tier::Derived.name()),
            "{property}"
        );
    }
}

#[test]
fn the_cpu_subject_is_chosen_in_any_order() {
    let line: Case = "t=5,h=40,i=33,fill=wild,pad=h16.i16".parse().unwrap();
    for (word, wanted) in [
        ("sequential", Tier::SameOrder),
        ("lanes-4", Tier::SameOrder),
        ("split-k-3", Tier::Derived),
    ] {
        let choice = SubjectChoice::Ordered(word.parse().unwrap());
        assert_eq!(choice.name(), format!("cpu:{word}"));
        assert_eq!(choice.arguments(), format!(" --subject cpu:{word}"));
        let mut worker = Worker::new(&choice, Rules::builtin());
        for (name, wanted) in [("pad-identity", wanted), ("hidden-pad", wanted)] {
            let verdict = worker.check(find(name).unwrap(), &line);
            assert_eq!(verdict, Verdict::Pass(wanted), "{word} {name}");
        }
    }
}
