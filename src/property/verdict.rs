//! What a property answered, with its evidence.

use crate::subject::SkipReason;

/// What a property answered about one case.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The claim held and something was proved, by a comparison of this strength.
    Pass(Tier),
    /// The claim failed.
    Fail(Box<Finding>),
    /// The case cannot be asked of this subject, or its plan is refused.
    Skip(SkipReason),
    /// It ran and agreed, but proved nothing.
    Vacuous(Vacuous),
    /// The harness itself failed: never folded into Fail.
    Broken(String),
}

/// Why agreement proved nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Vacuous {
    /// Nothing was padded.
    NothingPadded,
    /// The output is mostly zero.
    MostlyZero,
    /// The reference is NaN everywhere.
    AllNan,
    /// No token, or no token reached an expert of the layer.
    NoTokens,
    /// One rank: nothing is summed.
    OneRank,
    /// The derived bound is at least as large as most elements of the output.
    BoundTooWide,
    /// Every token's choice of experts hangs on rounding, and may rightly be another.
    AllAmbiguous,
}

impl Vacuous {
    /// The reason as a fragment.
    pub const fn reason(self) -> &'static str {
        match self {
            Vacuous::NothingPadded => "nothing is padded",
            Vacuous::MostlyZero => "output mostly zero",
            Vacuous::AllNan => "reference all NaN",
            Vacuous::NoTokens => "no tokens",
            Vacuous::OneRank => "tp=1",
            Vacuous::BoundTooWide => "bound as large as the output",
            Vacuous::AllAmbiguous => "every choice of experts hangs on rounding",
        }
    }
}

/// The strength of the comparison that was made (design, "Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Every operation is exact, so any order gives the same bits.
    Exact,
    /// Wild values, same order of summation: equal bits.
    SameOrder,
    /// Within a bound derived from term counts and magnitudes.
    Derived,
    /// The same, of a program whose order of summation was found to be kept, and whose bits are others even so: its
    /// steps are.
    OtherBits,
    /// Integers or bytes, no arithmetic.
    Bytes,
}

impl Tier {
    /// The words printed in findings.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Exact => "equal bits (exact fill)",
            Tier::SameOrder => "equal bits (same order)",
            Tier::Derived => "derived bound",
            Tier::OtherBits => "derived bound (same order, other bits)",
            Tier::Bytes => "equal bytes",
        }
    }
}

/// The evidence of a failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The property's name.
    pub property: &'static str,
    /// The subject's name.
    pub subject: String,
    /// The case, minimal form.
    pub case: String,
    /// Where: tensor and index, output element, token or byte.
    pub place: String,
    /// What was wanted there, in decimal and bits.
    pub wanted: String,
    /// What was found there, in decimal and bits.
    pub actual: String,
    /// What was demanded: equal bits or bytes, or the bound.
    pub bound: String,
    /// How it was derived, at length (`-vv`).
    pub derivation: String,
    /// Differing elements.
    pub differing: u64,
    /// Elements compared; 0 where a subject did not answer with any.
    pub total: u64,
    /// The first ten differences, one line each.
    pub first: Vec<String>,
    /// A sentence that helps: where padding lies, what explains it.
    pub note: Option<String>,
    /// Whether it takes many cases to show it: one alone does not.
    pub many: bool,
}

impl From<Finding> for Verdict {
    fn from(finding: Finding) -> Verdict {
        Verdict::Fail(Box::new(finding))
    }
}

impl Finding {
    /// The command that reproduces it.
    pub fn repro(&self) -> String {
        match self.many {
            true => format!("padproof run -p {} -n 2000 -j 1", self.property),
            false => format!("padproof check {} {}", self.property, self.case),
        }
    }
}
