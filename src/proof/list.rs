//! The shipped files, and what their comments say.
//!
//! A file holds formulas, each under a line `; formula NAME of FUNCTION: meaning`, then lemmas, each
//! from a line `; lemma NAME: claim.` to a `(check-sat)` with the answer that is wanted.

/// The shipped files: (name, text).
pub const FILES: &[(&str, &str)] = &[
    ("round-up.smt2", include_str!("../../proofs/round-up.smt2")),
    ("halves.smt2", include_str!("../../proofs/halves.smt2")),
    ("packing.smt2", include_str!("../../proofs/packing.smt2")),
    (
        "scale-blocks.smt2",
        include_str!("../../proofs/scale-blocks.smt2"),
    ),
    ("split.smt2", include_str!("../../proofs/split.smt2")),
    ("places.smt2", include_str!("../../proofs/places.smt2")),
];

/// A formula that stands for a function of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formula {
    /// The file.
    pub file: &'static str,
    /// Its name in the file.
    pub name: &'static str,
    /// The function, as `plan::arith::round_up`.
    pub function: &'static str,
}

/// What the solver must answer to a lemma's negation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// `unsat`: the claim holds for all sizes.
    Holds,
    /// `sat`: the claim says that an example exists.
    Example,
}

impl Wanted {
    /// The solver's word.
    pub const fn answer(self) -> &'static str {
        match self {
            Wanted::Holds => "unsat",
            Wanted::Example => "sat",
        }
    }
}

/// A lemma.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lemma {
    /// The file.
    pub file: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it says, one sentence.
    pub claim: &'static str,
    /// What the solver must answer.
    pub wanted: Wanted,
    /// The functions that its formulas stand for, each once.
    pub functions: Vec<&'static str>,
}

/// A claim about small formats that a test goes through code by code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhaustive {
    /// Its name, and with underscores the test's in `tests/inert.rs`.
    pub name: &'static str,
    /// What it says, one sentence.
    pub claim: &'static str,
}

/// The claims of `tests/inert.rs`.
pub const EXHAUSTIVE: &[Exhaustive] = &[
    Exhaustive {
        name: "zero-codes-are-inert",
        claim: "A zero code of 4 or 8 bits times any scale times any finite activation is zero, but for \
                scales that are NaN or infinite.",
    },
    Exhaustive {
        name: "only-listed-codes-are-zero",
        claim: "No other code of 4 or 8 bits is inert: all bits zero is -8 in int4 and 2^-127 in e8m0, \
                and the sign alone is NaN in e4m3fnuz.",
    },
    Exhaustive {
        name: "zero-scales-are-inert",
        claim: "A scale of zero makes every code inert but NaN and infinity; e8m0 has no such scale.",
    },
];

/// Every formula that is tied to a function, in the order of the files.
pub fn formulas() -> Vec<Formula> {
    let of = |&(file, text): &(&'static str, &'static str)| {
        text.lines().filter_map(move |line| {
            let (name, rest) = line.strip_prefix("; formula ")?.split_once(" of ")?;
            let (function, _) = rest.split_once(": ")?;
            Some(Formula {
                file,
                name,
                function,
            })
        })
    };
    FILES.iter().flat_map(of).collect()
}

/// Every lemma, in the order of the files.
pub fn lemmas() -> Vec<Lemma> {
    let all = formulas();
    let mut found = Vec::new();
    for &(file, text) in FILES {
        let tied: Vec<&Formula> = all.iter().filter(|f| f.file == file).collect();
        for part in text.split("; lemma ").skip(1) {
            let (head, body) = part.split_once('\n').unwrap_or((part, ""));
            let (name, claim) = head.split_once(": ").unwrap_or((head, ""));
            let wanted = match body.split_once("(check-sat) ; ").map(|(_, answer)| answer) {
                Some(answer) if answer.starts_with("sat") => Wanted::Example,
                _ => Wanted::Holds,
            };
            let mut functions = Vec::new();
            for formula in &tied {
                let used = body.contains(&format!("({} ", formula.name));
                if used && !functions.contains(&formula.function) {
                    functions.push(formula.function);
                }
            }
            found.push(Lemma {
                file,
                name,
                claim,
                wanted,
                functions,
            });
        }
    }
    found
}
