//! Holds the lemmas on the arithmetic of shapes, as SMT-LIB text with the functions they are about.
//!
//! It must not run a solver or compute a shape: `tests/proofs.rs` does the one, `plan` and `layout`
//! the other. Layer 1.

#[cfg(test)]
mod formula;
mod list;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::{Arg, Tie};

pub use list::{EXHAUSTIVE, Exhaustive, FILES, Formula, Lemma, Wanted, formulas, lemmas};
