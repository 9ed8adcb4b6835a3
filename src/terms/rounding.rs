//! Where a subject rounds to bfloat16 on its way, and how often it rounds a sum.
//!
//! Words and a set of them; it must not compute. Layer 1.

use super::word::{UnknownWord, words};
use std::fmt;
use std::str::FromStr;

words! {
    /// A place where a subject that computes in f32 rounds to bfloat16, to nearest even.
    Rounded, "place of rounding" {
        /// The experts' input, after a router's weight where that multiplies it.
        X = "x",
        /// The first projection with its bias.
        Fc1 = "fc1",
        /// The gate after its function, before up's factor.
        Gate = "gate",
        /// The result of the activation.
        Act = "act",
        /// An expert's output with its bias.
        Fc2 = "fc2",
        /// That times its routing weight.
        Weighted = "weighted",
        /// Each step of the sum over a token's experts.
        Sum = "sum",
        /// A rank's output.
        Y = "y",
    }
}

/// A set of places; empty for a subject that computes in f32 throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Roundings(u8);

impl Roundings {
    /// Nowhere.
    pub const NONE: Roundings = Roundings(0);

    /// Whether it holds the place.
    pub const fn has(self, place: Rounded) -> bool {
        self.0 >> place as u8 & 1 == 1
    }
}

/// What is known of a subject's arithmetic; by default f32 throughout, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Arithmetic {
    /// Where it rounds to bfloat16.
    pub rounds: Roundings,
    /// Additions that a product of the first projection (over `hidden`) and of the second (over `intermediate`) goes
    /// through at the most, where an order is promised.
    pub additions: Option<(u64, u64)>,
    /// Whether it is known which partial sums it rounds: over a rank's columns of f32 weights lane l adds the products
    /// k = l mod 16 by ascending k with fused multiply-adds from +0, then lanes l and l + 8, l + 4, l + 2, l + 1.
    pub lanes: bool,
    /// How far it is off at the most in evaluating an activation, where that is known, in u = 2^-24: of the gate's value
    /// where that is the gate (clamped or not) times its sigmoid, else of the larger of the gate and that value; a
    /// tanh of the up projection of itself. A tanh that is squared is off by that before it is squared.
    pub evaluation: Option<u8>,
}

impl FromIterator<Rounded> for Roundings {
    fn from_iter<I: IntoIterator<Item = Rounded>>(places: I) -> Self {
        Roundings(places.into_iter().fold(0, |all, p| all | 1 << p as u8))
    }
}
