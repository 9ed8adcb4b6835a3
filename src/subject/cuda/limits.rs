//! What the kernels cannot take, as sentences, before anything is allocated or launched.
//!
//! It must not look at tensors. Layer 5.

use super::params::{ALIGN_INTS, ALIGN_THREADS, BLOCK_ROWS, GROUP, element, shared_bytes};
use crate::num::Dtype;
use crate::plan::{Plan, ScalePlan};
use crate::subject::error::SkipReason;
use crate::terms::{ActQuant, Storage};

/// Largest index that a kernel counts with an `int`.
const MAX_INT: u64 = (1 << 31) - 1;
/// Most blocks along the second axis of a grid.
const MAX_GRID_Y: u64 = 65_535;
/// Shared memory that a block has without asking for more.
const MAX_SHARED: u64 = 48 << 10;
/// Most bytes of workspace.
const MAX_WORKSPACE: u64 = 4 << 30;

fn unsupported<T>(what: String) -> Result<T, SkipReason> {
    Err(SkipReason::Unsupported(what))
}

/// Whether the kernels take the plan.
pub(super) fn check(plan: &Plan) -> Result<(), SkipReason> {
    formats(plan)?;
    for (name, grid, cols) in [
        ("w13_scale", plan.w13_scale, plan.hidden_padded),
        ("w2_scale", plan.w2_scale, plan.width_padded),
    ] {
        if let Some(grid) = grid {
            scales(plan, name, &grid, cols)?;
        }
    }
    sizes(plan)
}

fn formats(plan: &Plan) -> Result<(), SkipReason> {
    let dtype = plan.weight.element();
    if element(dtype).is_none() {
        return unsupported(format!("element type {dtype}"));
    }
    if plan.weight_storage.of(dtype) != Storage::Linear {
        return unsupported(format!(
            "weights in the layout {}: the kernels read rows",
            plan.weight_storage
        ));
    }
    let zero = plan.numerics.zero;
    if zero > 0 {
        return unsupported(format!("zero={zero}: the kernels have no identity experts"));
    }
    let quantised = [("qx", plan.numerics.qx), ("qh", plan.numerics.qh)];
    for (key, mode) in quantised {
        if mode != ActQuant::None {
            return unsupported(format!(
                "{key}={mode}: the kernels do not quantise activations"
            ));
        }
    }
    if plan.weight.scale().is_some() != (plan.w13_scale.is_some() && plan.w2_scale.is_some()) {
        return unsupported(format!("{} with other scales than its own", plan.weight));
    }
    let group = plan.order.interleave();
    if plan.dims.halves == 2 && group > 0 {
        if !plan.width_padded.is_multiple_of(group) {
            return unsupported(format!(
                "width_padded={} is no multiple of the interleave {group}",
                plan.width_padded
            ));
        }
        if plan.w13_scale.is_some_and(|s| s.row_block > 1) {
            return unsupported("interleaved rows with scales of several rows".to_owned());
        }
    }
    Ok(())
}

fn scales(plan: &Plan, name: &str, grid: &ScalePlan, cols: u64) -> Result<(), SkipReason> {
    if !matches!(
        grid.dtype,
        Dtype::F32 | Dtype::Bf16 | Dtype::E4m3 | Dtype::E8m0
    ) {
        return unsupported(format!("{name} of type {}", grid.dtype));
    }
    match plan.storage.of(grid.dtype) {
        Storage::Linear | Storage::Tiled128x4 | Storage::TritonBlackwell => {}
        other => {
            return unsupported(format!(
                "{name} in the layout {other}: the kernels read rows, or tiles of 128x4"
            ));
        }
    }
    if !whole_groups(grid, cols) {
        return unsupported(format!(
            "{name}: blocks of {} columns; the kernels scale {GROUP} at a time",
            grid.col_block
        ));
    }
    Ok(())
}

/// Whether no group of columns is cut by the scale grid.
pub(super) fn whole_groups(grid: &ScalePlan, cols: u64) -> bool {
    grid.col_block == 0 || grid.col_block >= cols || grid.col_block.is_multiple_of(GROUP as u64)
}

fn sizes(plan: &Plan) -> Result<(), SkipReason> {
    let dims = &plan.dims;
    let most = |what: &'static str, value: u64, limit: u64| {
        if value > limit {
            return unsupported(format!("{what}={value} exceeds {limit}"));
        }
        Ok(())
    };
    let slots = dims.t.saturating_mul(dims.k);
    let row = |cols: u64| cols.saturating_mul(32);
    most(
        "hidden_padded, bits of a row",
        row(plan.hidden_padded),
        MAX_INT,
    )?;
    most(
        "width_padded, bits of a row",
        row(plan.width_padded),
        MAX_INT,
    )?;
    if plan.hidden_computed < dims.h {
        return unsupported(format!(
            "hidden_computed={} leaves out columns of h={}",
            plan.hidden_computed, dims.h
        ));
    }
    most("w13_rows", plan.w13_rows, MAX_INT)?;
    most(
        "t * k, with a block of threads",
        slots.saturating_add(ALIGN_THREADS.into()),
        MAX_INT,
    )?;
    let experts = plan.ranks.iter().map(|rank| rank.expert_len).max();
    let experts = experts.unwrap_or(dims.e);
    most(
        "experts of a rank",
        experts,
        MAX_SHARED / (4 * ALIGN_INTS as u64),
    )?;
    most("blocks of rows", blocks(slots, experts), MAX_GRID_Y)?;
    for scale in [plan.w13_scale, plan.w2_scale].into_iter().flatten() {
        most("scale rows", scale.rows_stored, MAX_INT)?;
        most("scale columns", scale.cols_stored, MAX_INT)?;
    }
    let shared = shared_bytes(Dtype::F32, plan.weight.element()) as u64;
    most("shared memory of a block", shared, MAX_SHARED)?;
    let bytes = slots
        .saturating_mul(plan.hidden_padded.saturating_add(plan.width_padded))
        .saturating_mul(4);
    if bytes > MAX_WORKSPACE {
        return Err(SkipReason::TooLarge {
            what: "workspace",
            bytes,
            limit: MAX_WORKSPACE,
        });
    }
    Ok(())
}

/// Most blocks of rows that `slots` chosen experts can need on a rank with `experts`.
pub(super) fn blocks(slots: u64, experts: u64) -> u64 {
    let rows = BLOCK_ROWS as u64;
    slots.min(slots.div_ceil(rows).saturating_add(experts))
}
