//! What about a plan is too large for faults to be named.
//!
//! It must not read files. Layer 7.

use super::AuditError;
use super::files::expert_bytes;
use super::sample::Sample;
use crate::plan::Plan;
use std::fmt;

/// Above this, what is looked at of one expert is not packed again and again.
const EXPERT_BYTES_MAX: u64 = 48 << 20;
/// Above this no mutant is tried: each packs every rank.
const RANKS_MAX: usize = 1 << 10;
/// Above this it is not looked up whose share a rank holds: each is held against all.
pub(super) const EXCHANGE_RANKS_MAX: usize = 64;

/// Why no fault is looked for in the elements, or one fault is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TooLarge {
    /// The part of an expert that is looked at takes so many bytes, logical and on all ranks.
    Expert(u64),
    /// So many ranks.
    Ranks(usize),
    /// So many ranks that shares are not looked for on other ranks; everything else is.
    Exchange(usize),
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing = "no fault was looked for in the elements:";
        match self {
            TooLarge::Expert(bytes) => write!(
                f,
                "{nothing} what it would be looked for in takes {bytes} bytes of one expert, before and on all ranks after, and at most {EXPERT_BYTES_MAX} are looked at"
            ),
            TooLarge::Ranks(ranks) => {
                write!(f, "{nothing} {ranks} ranks, of at most {RANKS_MAX}")
            }
            TooLarge::Exchange(ranks) => write!(
                f,
                "ranks-exchanged was not looked for: {ranks} ranks, of at most {EXCHANGE_RANKS_MAX}"
            ),
        }
    }
}

/// What about a plan is too large for faults to be named, if anything is.
///
/// # Errors
/// When the plan describes no layout.
pub fn too_large(plan: &Plan) -> Result<Option<TooLarge>, AuditError> {
    let ranks = plan.ranks.len();
    let bytes = expert_bytes(&Sample::of(plan)?.plan(plan))?;
    Ok(if bytes > EXPERT_BYTES_MAX {
        Some(TooLarge::Expert(bytes))
    } else if ranks > RANKS_MAX {
        Some(TooLarge::Ranks(ranks))
    } else if ranks > EXCHANGE_RANKS_MAX {
        Some(TooLarge::Exchange(ranks))
    } else {
        None
    })
}
