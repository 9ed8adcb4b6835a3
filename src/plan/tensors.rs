//! The tensors of one rank: shape, logical extent, bytes.

use super::arith::{padded, product};
use super::{Plan, PlanError, Role, ScalePlan, TensorPlan};
use crate::num::Dtype;
use crate::terms::Bias;

/// Bytes of `rows` rows of `cols` elements, each row in whole bytes.
pub(super) fn bytes(
    what: &'static str,
    rows: &[u64],
    cols: u64,
    dtype: Dtype,
) -> Result<u64, PlanError> {
    let row_bytes = product(what, &[cols, dtype.bits()])?.div_ceil(8);
    let rows = product(what, rows)?;
    product(what, &[rows, row_bytes])
}

/// Element type of a zero point, of four bits without a sign.
pub const ZERO_POINT: &str = "uint4";

fn tensor(
    name: &'static str,
    dtype: Dtype,
    shape: [u64; 3],
    logical: [u64; 3],
    stride: u64,
) -> Result<TensorPlan, PlanError> {
    let [e, r, c] = shape;
    let cols = c.checked_add(stride).ok_or(PlanError::Overflow {
        what: name,
        terms: format!("{c} + {stride}"),
    })?;
    Ok(TensorPlan {
        name,
        dtype: dtype.name(),
        shape,
        logical,
        bytes: bytes(name, &[e, r], cols, dtype)?,
    })
}

fn scale_tensor(
    name: &'static str,
    e: u64,
    s: &ScalePlan,
    logical: [u64; 2],
) -> Result<TensorPlan, PlanError> {
    tensor(
        name,
        s.dtype,
        [e, s.rows_stored, s.cols_stored],
        [e, logical[0], logical[1]],
        0,
    )
}

/// Blocks that `len` elements touch; 1 where one scale covers the axis.
fn blocks(len: u64, block: u64) -> u64 {
    if block == 0 { 1 } else { len.div_ceil(block) }
}

/// Every tensor of the fullest rank of `plan`; `stride` elements are added to each row of K of
/// w13 and of w2.
pub(super) fn tensors(plan: &Plan, stride: [u64; 2]) -> Result<Vec<TensorPlan>, PlanError> {
    let d = plan.dims;
    let e = plan.ranks.iter().map(|r| r.expert_len).max().unwrap_or(0);
    let width = plan.ranks.iter().map(|r| r.len).max().unwrap_or(0);
    let element = plan.weight.element();
    let (rows, hp, wp) = (plan.w13_rows, plan.hidden_padded, plan.width_padded);
    let logical_rows = product("w13 rows", &[d.halves, width])?;
    let stored = |rows, cols| {
        let (row_tile, col_tile) = plan.weight_storage.of(element).tile();
        let units = if element.bits() == 4 { 2 } else { 1 };
        let col_tile = if col_tile == 1 { 1 } else { col_tile * units };
        Ok::<_, PlanError>((
            padded("weight rows", rows, row_tile)?,
            padded("weight columns", cols, col_tile)?,
        ))
    };
    let (w13, w2) = (stored(rows, hp)?, stored(hp, wp)?);
    let mut all = vec![
        tensor(
            Role::W13.name(),
            element,
            [e, w13.0, w13.1],
            [e, logical_rows, d.h],
            stride[0],
        )?,
        tensor(
            Role::W2.name(),
            element,
            [e, w2.0, w2.1],
            [e, d.h, width],
            stride[1],
        )?,
    ];
    if let (Some(s13), Some(s2)) = (&plan.w13_scale, &plan.w2_scale) {
        let logical13 = [
            d.halves.saturating_mul(blocks(width, s13.row_block)),
            blocks(d.h, s13.col_block),
        ];
        let logical2 = [blocks(d.h, s2.row_block), blocks(width, s2.col_block)];
        all.push(scale_tensor(Role::W13Scale.name(), e, s13, logical13)?);
        all.push(scale_tensor(Role::W2Scale.name(), e, s2, logical2)?);
    }
    if let (Some(_), Some(s13), Some(s2)) = (plan.zero_points, &plan.w13_scale, &plan.w2_scale) {
        // One for each scale, unsigned and of four bits.
        let mut zero_points = |name, s: &ScalePlan, logical| {
            let shape = [e, s.rows_padded, s.cols_padded];
            let plain = tensor(name, Dtype::Int4, shape, logical, 0)?;
            all.push(TensorPlan {
                dtype: ZERO_POINT,
                ..plain
            });
            Ok::<_, PlanError>(())
        };
        zero_points(
            "w13_qzeros",
            s13,
            [e, logical_rows, blocks(d.h, s13.col_block)],
        )?;
        let cols = blocks(width, s2.col_block);
        zero_points("w2_qzeros", s2, [e, s2.rows_logical, cols])?;
    }
    if plan.weight.has_global_scale() {
        let f32 = Dtype::F32;
        all.push(tensor(
            Role::W13Global.name(),
            f32,
            [e, d.halves, 1],
            [e, d.halves, 1],
            0,
        )?);
        all.push(tensor(Role::W2Global.name(), f32, [e, 1, 1], [e, 1, 1], 0)?);
    }
    if plan.bias == Bias::Both {
        let f32 = Dtype::F32;
        all.push(tensor(
            Role::W13Bias.name(),
            f32,
            [e, rows, 1],
            [e, logical_rows, 1],
            0,
        )?);
        all.push(tensor(
            Role::W2Bias.name(),
            f32,
            [e, hp, 1],
            [e, d.h, 1],
            0,
        )?);
    }
    let active = product("routed rows", &[d.t, d.k])?;
    let f32 = Dtype::F32;
    all.push(tensor(
        "x",
        f32,
        [1, plan.tokens_padded, hp],
        [1, d.t, d.h],
        0,
    )?);
    all.push(tensor(
        "intermediate",
        f32,
        [1, active, wp],
        [1, active, width],
        0,
    )?);
    all.push(tensor(
        "y",
        f32,
        [1, plan.tokens_padded, hp],
        [1, d.t, d.h],
        0,
    )?);
    Ok(all)
}
