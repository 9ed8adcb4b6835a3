//! The plan's numbers as indices, checked against each other.

use crate::plan::Plan;
use crate::subject::error::{SkipReason, SubjectError};

/// Largest size of one axis: far above any layer, far below overflow of a product of two.
const MAX_AXIS: u64 = 1 << 31;
/// Most bytes of working memory.
const MAX_SCRATCH: u64 = 16 << 30;

/// Sizes of one layer. `t`, `h` are logical and cut the output only; everything else is padded.
#[derive(Debug, Clone, Copy)]
pub(in crate::subject) struct Sizes {
    pub(in crate::subject) t: usize,
    pub(in crate::subject) h: usize,
    /// What the router chooses from.
    pub(in crate::subject) choices: u64,
    pub(in crate::subject) k: usize,
    pub(in crate::subject) halves: usize,
    pub(in crate::subject) hidden: usize,
    pub(in crate::subject) width: usize,
}

impl Sizes {
    pub(in crate::subject) fn new(plan: &Plan) -> Result<Sizes, SubjectError> {
        let dims = &plan.dims;
        let halves = plan.activation.halves();
        require(dims.halves == halves, "halves", dims.halves, || {
            format!("{} has {halves}", plan.activation)
        })?;
        let rows = plan.width_padded.checked_mul(halves);
        require(
            rows == Some(plan.w13_rows),
            "w13_rows",
            plan.w13_rows,
            || {
                format!(
                    "the kernel reads {halves} * width_padded={}",
                    plan.width_padded
                )
            },
        )?;
        require(dims.h <= plan.hidden_padded, "h", dims.h, || {
            format!("exceeds hidden_padded={}", plan.hidden_padded)
        })?;
        require(dims.t <= plan.tokens_padded, "t", dims.t, || {
            format!("exceeds tokens_padded={}", plan.tokens_padded)
        })?;
        require(
            dims.k >= 1 && dims.k <= plan.choices(),
            "k",
            dims.k,
            || match plan.numerics.zero {
                0 => format!("must be 1 to e={}", dims.e),
                zero => format!("must be 1 to e={} + zero={zero}", dims.e),
            },
        )?;
        for rank in &plan.ranks {
            let end = rank.expert_start.checked_add(rank.expert_len);
            require(
                end.is_some_and(|e| e <= dims.e),
                "expert_len",
                rank.expert_len,
                || format!("rank {} leaves the {} experts", rank.rank, dims.e),
            )?;
        }
        Ok(Sizes {
            t: axis("t", plan.tokens_padded.min(dims.t))?,
            h: axis("h", dims.h)?,
            choices: plan.choices(),
            k: axis("k", dims.k)?,
            halves: axis("halves", halves)?,
            hidden: axis("hidden_padded", plan.hidden_padded)?,
            width: axis("width_padded", plan.width_padded)?,
        })
    }
}

/// Whether the working memory stays below the ceiling: activations of every routed row.
pub(in crate::subject) fn within_memory(plan: &Plan) -> Result<(), SkipReason> {
    let rows = plan.dims.t.saturating_mul(plan.dims.k);
    let row = [
        plan.w13_rows,
        plan.width_padded,
        plan.hidden_padded,
        plan.hidden_padded,
    ]
    .into_iter()
    .fold(0, u64::saturating_add);
    let bytes = rows.saturating_mul(row).saturating_mul(4);
    if bytes > MAX_SCRATCH {
        return Err(SkipReason::TooLarge {
            what: "activations",
            bytes,
            limit: MAX_SCRATCH,
        });
    }
    Ok(())
}

fn require(
    holds: bool,
    key: &'static str,
    value: u64,
    why: impl FnOnce() -> String,
) -> Result<(), SubjectError> {
    if holds {
        return Ok(());
    }
    Err(SubjectError::Plan {
        key,
        value,
        why: why(),
    })
}

/// A size as an index.
pub(in crate::subject) fn axis(key: &'static str, value: u64) -> Result<usize, SubjectError> {
    require(value <= MAX_AXIS, key, value, || {
        format!("exceeds {MAX_AXIS}")
    })?;
    usize::try_from(value).map_err(|_| SubjectError::Plan {
        key,
        value,
        why: "does not fit this machine's addresses".to_owned(),
    })
}
