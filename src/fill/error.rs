//! Says why a case cannot be filled.
//!
//! It must not decide sizes. Layer 4.

use super::size::BYTES_MAX;
use crate::case::InvalidCase;

/// Why a case cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The layer's tensors would take more than [`BYTES_MAX`].
    #[error(
        "{key}={value} is too large to fill: with {tensor} the layer takes {bytes} bytes, at most {BYTES_MAX}"
    )]
    TooLarge {
        /// The largest size that the tensor at fault depends on.
        key: &'static str,
        /// Its value.
        value: u64,
        /// The tensor at which the sum leaves the limit.
        tensor: &'static str,
        /// The sum so far, in bytes.
        bytes: u128,
    },
    /// Choosing experts would take too many comparisons.
    #[error("t={t}, k={k}, e={e}{}: choosing k of so many experts for t tokens is too much work", identity(*.zero))]
    TooManyChoices {
        /// Tokens.
        t: u64,
        /// Chosen experts.
        k: u64,
        /// Experts.
        e: u64,
        /// Identity experts.
        zero: u64,
    },
    /// Values of the case that make no layer.
    #[error(transparent)]
    Invalid(#[from] InvalidCase),
}

/// `, zero=Z`, where there are any.
fn identity(zero: u64) -> String {
    match zero {
        0 => String::new(),
        _ => format!(", zero={zero}"),
    }
}
