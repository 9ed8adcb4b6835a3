//! What a comparison is made under, and what it finds.
//!
//! It must not compare. Layer 6.

use std::borrow::Cow;

/// A tolerance with a derivation.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound<'a> {
    /// Equal bits, up to the sign of zero.
    EqualBits {
        /// Why bits must be equal.
        why: Cow<'static, str>,
    },
    /// |actual - wanted| is at most this, element by element.
    Derived {
        /// One absolute bound for each element.
        limits: &'a [f64],
        /// Where it comes from.
        derivation: Cow<'static, str>,
    },
}

/// Tokens and hidden size of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub tokens: usize,
    /// Columns.
    pub hidden: usize,
}

/// One element that does not agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Token.
    pub row: usize,
    /// Hidden index.
    pub col: usize,
    /// Wanted value.
    pub wanted: f64,
    /// Actual value.
    pub actual: f32,
    /// The bound at this element; 0 for equal bits.
    pub bound: f64,
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// Whether the outputs agree everywhere.
    pub agree: bool,
    /// Elements compared.
    pub elements: usize,
    /// Wanted and actual shape where they differ; nothing else was compared then.
    pub shapes: Option<(Shape, Shape)>,
    /// Elements that do not agree.
    pub differing: usize,
    /// The first of them, at most [`Comparison::FIRST_MAX`].
    pub first: Vec<Difference>,
    /// Elements where one side is NaN and the other is not; part of `differing`.
    pub nan_one: usize,
    /// Elements that are NaN on both sides; they agree.
    pub nan_both: usize,
    /// Elements that are zero on both sides with different signs; they agree. From f64 values
    /// a zero has the sign that f64 gave it.
    pub zero_sign: usize,
    /// Elements wanted to be zero, for judging whether a comparison proved anything.
    pub zeros: usize,
}

impl Comparison {
    /// Most differences kept.
    pub const FIRST_MAX: usize = 10;

    /// Whether every element is NaN on both sides: nothing was proved.
    pub fn all_nan(&self) -> bool {
        self.elements > 0 && self.nan_both == self.elements
    }
}
