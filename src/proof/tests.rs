//! Ties every formula of `proofs/` to the function it stands for, and the lists to the files.

use super::formula::{Formulas, Value};
use super::{EXHAUSTIVE, FILES, formulas, lemmas};
use crate::layout::Grid;
use crate::plan::lemmas as plan;
use crate::rng;
use crate::terms::{Nibble, Storage};
use std::collections::BTreeSet;

/// The sizes that an argument takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    /// From 0 up to this, most of them small, some next to the end.
    UpTo(u64),
    /// From 1 up to this.
    From1(u64),
    /// Multiples of the first up to the second.
    Multiple(u64, u64),
    /// One of these.
    OneOf(&'static [u64]),
}

impl Arg {
    fn draw(self, bits: u64) -> u64 {
        let (kind, bits) = (bits % 4, bits / 4);
        let below = |end: u64| match kind {
            0 => bits % end.clamp(1, 40),
            1 => bits % end.clamp(1, 5000),
            2 => bits % end.max(1),
            _ => end.saturating_sub(1 + bits % end.clamp(1, 300)),
        };
        match self {
            Arg::UpTo(max) => below(max.saturating_add(1)),
            Arg::From1(max) => 1 + below(max),
            Arg::Multiple(of, max) => below(max / of) * of,
            Arg::OneOf(all) => all[usize::try_from(bits % all.len() as u64).unwrap()],
        }
    }
}

/// A formula and what the program computes: None where it says that the result leaves 64 bits.
pub(crate) struct Tie {
    /// File and formula.
    pub(crate) formula: (&'static str, &'static str),
    /// Its arguments.
    pub(crate) arguments: &'static [Arg],
    /// The program's value.
    pub(crate) function: fn(&[u64]) -> Option<u64>,
}

/// Tiles that columns fill, of any layout here.
const TILED: &[Arg] = &[
    Arg::UpTo(1 << 20),
    Arg::UpTo(1 << 20),
    Arg::Multiple(16, 1 << 24),
];

fn grid(storage: Storage, bits: usize, nibble: Nibble, cols: u64) -> Grid {
    Grid {
        rows: 1 << 21,
        cols: usize::try_from(cols).unwrap(),
        bits,
        nibble,
        storage,
    }
}

fn index(storage: Storage, at: &[u64]) -> Option<u64> {
    let [r, c] = [at[0], at[1]].map(|n| usize::try_from(n).unwrap());
    Some(grid(storage, 8, Nibble::Low, at[2]).index(0, r, c) as u64)
}

fn shift(nibble: Nibble, at: &[u64]) -> Option<u64> {
    let address = grid(Storage::Linear, 4, nibble, 8).address(usize::try_from(at[0]).unwrap());
    Some(u64::from(address.shift))
}

const OF_LAYOUT: &[Tie] = &[
    Tie {
        formula: ("packing.smt2", "byte"),
        arguments: &[Arg::UpTo(1 << 58), Arg::OneOf(&[4, 8, 16, 32])],
        function: |v| {
            let [index, bits] = [v[0], v[1]].map(|n| usize::try_from(n).unwrap());
            let grid = grid(Storage::Linear, bits, Nibble::Low, 8);
            Some(grid.address(index).byte as u64)
        },
    },
    Tie {
        formula: ("packing.smt2", "low-shift"),
        arguments: &[Arg::UpTo(1 << 40)],
        function: |v| shift(Nibble::Low, v),
    },
    Tie {
        formula: ("packing.smt2", "high-shift"),
        arguments: &[Arg::UpTo(1 << 40)],
        function: |v| shift(Nibble::High, v),
    },
    Tie {
        formula: ("places.smt2", "linear"),
        arguments: TILED,
        function: |v| index(Storage::Linear, v),
    },
    Tie {
        formula: ("places.smt2", "tiled-128x4"),
        arguments: TILED,
        function: |v| index(Storage::Tiled128x4, v),
    },
    Tie {
        formula: ("places.smt2", "tiled-8x4"),
        arguments: TILED,
        function: |v| index(Storage::Tiled8x4, v),
    },
    Tie {
        formula: ("places.smt2", "n32k4"),
        arguments: TILED,
        function: |v| index(Storage::AiterN32k4, v),
    },
    Tie {
        formula: ("places.smt2", "shuffle"),
        arguments: TILED,
        function: |v| index(Storage::Shuffle16x16, v),
    },
];

fn text(file: &str) -> &'static str {
    let found = FILES.iter().find(|(name, _)| *name == file);
    found.unwrap_or_else(|| panic!("no file {file}")).1
}

/// The first arguments of 2000 at which formula and function differ.
fn difference(tie: &Tie, text: &str) -> Option<String> {
    let (_, name) = tie.formula;
    let formulas = Formulas::of(text);
    assert_eq!(formulas.arity(name), tie.arguments.len(), "{name}");
    (0..2000u64).find_map(|n| {
        let streams = (0..).zip(tie.arguments);
        let values: Vec<u64> = streams
            .map(|(stream, argument)| argument.draw(rng::value(n, stream, 0)))
            .collect();
        let wide: Vec<Value> = values.iter().map(|&v| Value::from(v)).collect();
        let formula = formulas.value(name, &wide);
        let function = (tie.function)(&values);
        let agree = match function {
            Some(value) => Value::from(value) == formula,
            None => formula > Value::from(u64::MAX),
        };
        (!agree).then(|| format!("{name} {values:?}: formula {formula}, function {function:?}"))
    })
}

#[test]
fn every_formula_is_the_function_it_names() {
    let ties: Vec<&Tie> = plan::TIES.iter().chain(OF_LAYOUT).collect();
    for tie in &ties {
        assert_eq!(difference(tie, text(tie.formula.0)), None);
    }
    let tied: BTreeSet<_> = ties.iter().map(|t| t.formula).collect();
    let named: BTreeSet<_> = formulas().iter().map(|f| (f.file, f.name)).collect();
    assert_eq!(tied, named, "tied, and named in proofs/");
}

#[test]
fn a_formula_that_is_wrong_at_an_edge_is_noticed() {
    let faults = [
        ("round-up", "(ceil-div n a)", "(div n a)"),
        ("ceil-div", "(+ (div n a) 1)", "(div n a)"),
        ("rows", "(* halves width)", "(* 2 width)"),
        (
            "row-bytes",
            "(mod (* cols bits) 8)",
            "(mod (* cols bits) 4)",
        ),
        ("byte", "(* index bits)", "(* index 8)"),
        ("low-shift", "(mod index 2)", "(- 1 (mod index 2))"),
        ("aiter-width", "(div width 2)", "(div (+ width 1) 2)"),
        ("blocks", "(+ (div n g) 1)", "(div n g)"),
        ("straddles", "(> (+", "(>= (+"),
        ("straddles", "(not (= (mod start g) 0))", "(>= start 0)"),
        ("start", "(* r step)", "(* (+ r 1) step)"),
        ("len", "(least step (- i (start r step i)))", "step"),
        ("stride-step", "(ceil-div i ranks)", "(div i ranks)"),
        ("block-step", "(ceil-div i block)", "(div i block)"),
        ("prepad-step", "(* unit ranks)", "unit"),
        ("tiled-128x4", "(div (mod r 128) 32)", "(div r 32)"),
        ("tiled-8x4", "(mod r 8)", "(mod r 4)"),
        ("n32k4", "(div c 4)", "(div c 8)"),
        ("shuffle", "(mod c 16)", "c"),
    ];
    for (name, right, wrong) in faults {
        let mut ties = plan::TIES.iter().chain(OF_LAYOUT);
        let tie = ties.find(|t| t.formula.1 == name).unwrap();
        let whole = text(tie.formula.0);
        let (before, after) = whole.split_at(whole.find(&format!("(define-fun {name} ")).unwrap());
        assert!(after.contains(right), "{name}: {right}");
        let text = format!("{before}{}", after.replacen(right, wrong, 1));
        assert!(difference(tie, &text).is_some(), "{name}: {wrong}");
    }
}

#[test]
fn lemmas_and_formulas_are_spelled_as_the_list_reads_them() {
    let all = lemmas();
    let names: BTreeSet<_> = all.iter().map(|l| l.name).collect();
    assert_eq!(names.len(), all.len(), "a name is given twice");
    for lemma in &all {
        let name = lemma.name;
        assert!(lemma.claim.ends_with('.'), "{name}: {}", lemma.claim);
        assert!(!lemma.functions.is_empty(), "{name} uses no tied formula");
    }
    for (file, text) in FILES {
        let count = |word: &str| text.matches(word).count();
        let here = all.iter().filter(|l| l.file == *file).count();
        let answers = count("(check-sat) ; unsat\n") + count("(check-sat) ; sat\n");
        for (what, number) in [
            ("checks", count("(check-sat)")),
            ("answers", answers),
            ("begins", count("(push)\n")),
            ("ends", count("(pop)\n")),
        ] {
            assert_eq!(number, here, "{file}: {what}");
        }
    }
    for formula in formulas() {
        let (module, function) = formula.function.rsplit_once("::").unwrap();
        let path = format!("src/{}.rs", module.replace("::", "/"));
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        let there = source.contains(&format!("fn {function}("));
        assert!(there, "{}: no such function", formula.function);
    }
}

#[test]
fn exhaustive_claims_name_their_tests() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inert.rs");
    let source = std::fs::read_to_string(path).unwrap();
    for claim in EXHAUSTIVE {
        let test = format!("fn {}()", claim.name.replace('-', "_"));
        assert!(source.contains(&test), "{}", claim.name);
    }
}
