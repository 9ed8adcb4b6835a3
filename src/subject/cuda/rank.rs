//! The tensors of one rank as the kernels' matrices, every size checked against the plan.
//!
//! It must not know where kernels see them: `layer` adds that. Layer 5.

use super::params::{Matrix, element};
use crate::layout::RankInputs;
use crate::num::Dtype;
use crate::plan::{Plan, RankPlan, Role, ScalePlan};
use crate::subject::cpu::{Sizes, axis, expect_bytes, size_error};
use crate::subject::error::SubjectError;
use crate::terms::{Bias, Storage};
use std::ffi::{c_int, c_longlong};
use std::ptr::null;

/// A rank's two projections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank<'a> {
    pub(super) experts: usize,
    pub(super) expert_first: usize,
    pub(super) w13: Projection<'a>,
    pub(super) w2: Projection<'a>,
}

/// One projection: what a kernel is told but where the tensors are, and their bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Projection<'a> {
    pub(super) matrix: Matrix,
    pub(super) weights: &'a [u8],
    pub(super) scales: Option<&'a [u8]>,
    pub(super) globals: Option<&'a [u8]>,
    pub(super) bias: Option<&'a [u8]>,
    /// Bytes of a row, as stored.
    pub(super) row_bytes: usize,
    /// Columns that are multiplied.
    pub(super) computed: usize,
}

/// Sizes of one projection.
#[derive(Debug, Clone, Copy)]
struct Shape {
    experts: usize,
    halves: usize,
    /// Rows of a half, as stored.
    width: usize,
    /// Columns, as stored.
    cols: usize,
    /// Columns that are multiplied.
    computed: usize,
}

/// The roles of one projection.
struct Roles {
    weight: Role,
    scale: Role,
    global: Role,
    bias: Role,
}

impl<'a> Rank<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        sizes: &Sizes,
        share: &RankPlan,
        index: usize,
        inputs: &'a RankInputs,
    ) -> Result<Rank<'a>, SubjectError> {
        let experts = axis("expert_len", share.expert_len)?;
        let of = Source {
            plan,
            index,
            inputs,
        };
        let first = Shape {
            experts,
            halves: sizes.halves,
            width: sizes.width,
            cols: sizes.hidden,
            computed: computed(plan.hidden_computed, sizes.hidden)?,
        };
        let second = Shape {
            experts,
            halves: 1,
            width: sizes.hidden,
            cols: sizes.width,
            computed: computed(plan.width_computed, sizes.width)?,
        };
        Ok(Rank {
            experts,
            expert_first: axis("expert_start", share.expert_start)?,
            w13: of.projection(
                Roles {
                    weight: Role::W13,
                    scale: Role::W13Scale,
                    global: Role::W13Global,
                    bias: Role::W13Bias,
                },
                plan.w13_scale,
                first,
            )?,
            w2: of.projection(
                Roles {
                    weight: Role::W2,
                    scale: Role::W2Scale,
                    global: Role::W2Global,
                    bias: Role::W2Bias,
                },
                plan.w2_scale,
                second,
            )?,
        })
    }
}

impl Rank<'_> {
    /// Bytes of its tensors.
    pub(super) fn bytes(&self) -> usize {
        let of = |p: &Projection<'_>| {
            let others = [p.scales, p.globals, p.bias].into_iter().flatten();
            others.map(<[u8]>::len).sum::<usize>() + p.weights.len()
        };
        of(&self.w13) + of(&self.w2)
    }
}

struct Source<'a> {
    plan: &'a Plan,
    index: usize,
    inputs: &'a RankInputs,
}

impl<'a> Source<'a> {
    /// A tensor's bytes, `factors` long and aligned for its elements.
    fn bytes(&self, role: Role, factors: &[usize], align: usize) -> Result<&'a [u8], SubjectError> {
        let tensor = self.inputs.get(role).ok_or(SubjectError::Missing {
            rank: self.index,
            tensor: role.name(),
        })?;
        let bytes = tensor.bytes();
        expect_bytes(role.name(), bytes, factors)?;
        let off = bytes.as_ptr().addr() % align;
        if off != 0 {
            return Err(size_error(role.name(), "bytes off its alignment", 0, off));
        }
        Ok(bytes)
    }

    fn projection(
        &self,
        roles: Roles,
        grid: Option<ScalePlan>,
        shape: Shape,
    ) -> Result<Projection<'a>, SubjectError> {
        let dtype = self.plan.weight.element();
        let rows = shape.halves * shape.width;
        let row_bytes = row_bytes(shape.cols, dtype);
        let weights = self.bytes(
            roles.weight,
            &[shape.experts, rows, row_bytes],
            (dtype.bits() as usize / 8).max(1),
        )?;
        let matrix = Matrix {
            weights: null(),
            scales: null(),
            globals: null(),
            bias: null(),
            expert_bytes: long(rows * row_bytes)?,
            expert_scale_bytes: 0,
            rows: int(rows)?,
            cols: int(shape.computed)?,
            row_bytes: int(row_bytes)?,
            unit: 0,
            scale_element: 0,
            scale_cols: 0,
            row_block: 0,
            col_block: 0,
            tiled: 0,
            reserved: 0,
        };
        let mut made = Projection {
            matrix,
            weights,
            scales: None,
            globals: None,
            bias: None,
            row_bytes,
            computed: shape.computed,
        };
        if let Some(grid) = grid {
            made.scales = Some(self.scale(roles.scale, &grid, shape, &mut made.matrix)?);
        }
        if self.plan.weight.has_global_scale() {
            made.globals = Some(self.bytes(roles.global, &[shape.experts, shape.halves, 4], 4)?);
        }
        if self.plan.bias == Bias::Both {
            made.bias = Some(self.bytes(roles.bias, &[shape.experts, rows, 4], 4)?);
        }
        Ok(made)
    }

    /// Adds the scales, after checking that no row and no column lies outside them.
    fn scale(
        &self,
        role: Role,
        grid: &ScalePlan,
        shape: Shape,
        matrix: &mut Matrix,
    ) -> Result<&'a [u8], SubjectError> {
        let rows = axis("rows_stored", grid.rows_stored)?;
        let cols = axis("cols_stored", grid.cols_stored)?;
        let row_block = axis("row_block", grid.row_block)?;
        let col_block = match axis("col_block", grid.col_block)? {
            block if block >= shape.cols => 0,
            block => block,
        };
        let size = axis("bits", grid.dtype.bits())? / 8;
        let bytes = self.bytes(role, &[shape.experts, rows, cols, size], size)?;
        let storage = self.plan.storage.of(grid.dtype);
        let tiled = matches!(storage, Storage::Tiled128x4 | Storage::TritonBlackwell);
        let needed_rows = match row_block {
            0 => shape.halves,
            1 => shape.halves * shape.width,
            block => shape.halves * shape.width.div_ceil(block),
        };
        let needed_cols = match col_block {
            0 => 1.min(shape.cols),
            block => shape.cols.div_ceil(block),
        };
        let granules = if tiled { (128, 4) } else { (1, 1) };
        for (unit, needed, there, granule) in [
            ("scale rows", needed_rows, rows, granules.0),
            ("scale columns", needed_cols, cols, granules.1),
        ] {
            if there < needed || !there.is_multiple_of(granule) {
                let wanted = needed.next_multiple_of(granule);
                return Err(size_error(role.name(), unit, wanted, there));
            }
        }
        matrix.expert_scale_bytes = long(rows * cols * size)?;
        matrix.scale_element = element(grid.dtype).ok_or(SubjectError::Plan {
            key: "scale",
            value: grid.dtype.bits(),
            why: format!("no kernel reads scales of {}", grid.dtype),
        })?;
        matrix.scale_cols = int(cols)?;
        matrix.row_block = int(row_block)?;
        matrix.col_block = int(col_block)?;
        matrix.tiled = tiled.into();
        Ok(bytes)
    }
}

/// What a kernel is told to multiply, of `stored` channels.
pub(super) fn computed(told: u64, stored: usize) -> Result<usize, SubjectError> {
    Ok(axis("computed", told)?.min(stored))
}

/// Bytes that `cols` elements take.
pub(super) const fn row_bytes(cols: usize, dtype: Dtype) -> usize {
    (cols * dtype.bits() as usize).div_ceil(8)
}

/// Bytes that a load may take at a time: the largest power of two up to 16 that divides the address,
/// the distance of rows and what is read of a row.
pub(super) fn unit(start: *const u8, pitch: usize, read: usize) -> usize {
    1 << (start.addr() | pitch | read | 16).trailing_zeros()
}

/// A size as the kernels count it.
pub(super) fn int(n: usize) -> Result<c_int, SubjectError> {
    c_int::try_from(n).map_err(|_| too_large(n))
}

/// An offset as the kernels count it.
pub(super) fn long(n: usize) -> Result<c_longlong, SubjectError> {
    c_longlong::try_from(n).map_err(|_| too_large(n))
}

fn too_large(n: usize) -> SubjectError {
    SubjectError::Plan {
        key: "size",
        value: u64::try_from(n).unwrap_or(u64::MAX),
        why: "exceeds what a kernel counts with".to_owned(),
    }
}
