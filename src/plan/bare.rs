//! The plan of the same shards without padding: what a padded plan is compared with.

use super::arith::padded;
use super::derive::set_grids;
use super::tensors::tensors;
use super::violations::group_needed;
use super::{Plan, PlanError};
use crate::rule::PadValue;
use crate::terms::{Order, Place, Storage};

/// `plan` with the same ranks and channels, but no padding beyond what the format itself needs
/// to store whole scale groups, halves in checkpoint order and row-major scales.
///
/// # Errors
/// [`PlanError::Overflow`]; cannot happen for a plan that was made.
pub fn unpadded(plan: &Plan) -> Result<Plan, PlanError> {
    unpadded_in(plan, Order::GateUp)
}

/// The same with w13's rows in an order, where its runs fit the unpadded width: for a subject that
/// takes no other.
///
/// # Errors
/// As [`unpadded`].
pub fn unpadded_in(plan: &Plan, order: Order) -> Result<Plan, PlanError> {
    let group = group_needed(plan.weight);
    let fullest = plan.ranks.iter().map(|r| r.len).max().unwrap_or(1).max(1);
    let mut bare = plan.clone();
    bare.width = fullest;
    bare.width_padded = padded("width", fullest, group)?;
    bare.width_computed = bare.width_padded;
    bare.w2_width_computed = bare.width_padded;
    bare.w13_rows = bare.dims.halves.saturating_mul(bare.width_padded);
    bare.hidden_padded = padded("hidden", bare.dims.h, group)?;
    bare.hidden_computed = bare.hidden_padded;
    bare.w2_hidden_computed = bare.hidden_padded;
    bare.tokens_padded = bare.dims.t;
    let run = order.interleave().max(1);
    bare.order = match bare.width_padded.is_multiple_of(run) {
        true => order,
        false => Order::GateUp,
    };
    bare.place = Place::PerHalf;
    bare.storage = Storage::Linear;
    bare.weight_storage = Storage::Linear;
    let block = |s: Option<super::ScalePlan>, rows: bool| {
        s.map(|s| if rows { s.row_block } else { s.col_block })
            .filter(|&b| b > 1)
    };
    let across = plan.w13_scale.filter(|s| s.col_block < s.col_block_source);
    let local = (
        block(plan.w13_scale, true),
        block(plan.w2_scale, false),
        across.map(|s| s.col_block),
    );
    set_grids(&mut bare, local, PadValue::Zero)?;
    bare.violations.clear();
    bare.tensors = tensors(&bare, [0, 0])?;
    Ok(bare)
}
