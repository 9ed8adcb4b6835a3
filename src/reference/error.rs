//! Says why a layer has no reference.
//!
//! It must not decide sizes. Layer 5.

use crate::case::InvalidCase;

/// Why a layer has no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The case makes no layer (facts/peers.md F12, for one).
    #[error(transparent)]
    Invalid(#[from] InvalidCase),
    /// A logical tensor does not have the case's shape.
    #[error("{tensor} has shape {actual:?}, wanted {wanted:?}")]
    Shape {
        /// The tensor.
        tensor: &'static str,
        /// Shape by the case.
        wanted: Vec<usize>,
        /// Its shape.
        actual: Vec<usize>,
    },
    /// A tensor that the case needs is not there.
    #[error("{tensor} is missing")]
    Missing {
        /// The tensor.
        tensor: &'static str,
    },
    /// A given expert id that no expert has, or twice for one token.
    #[error("token {token} is given expert {id}, which {why}")]
    Expert {
        /// The token.
        token: usize,
        /// The id.
        id: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Logits and biases must be finite for their order to be defined.
    #[error("router {what}={value} of expert {expert} is not finite")]
    NotFinite {
        /// `logit` or `bias`.
        what: &'static str,
        /// Its value, as text.
        value: String,
        /// The expert.
        expert: usize,
    },
}
