//! The tensors of one rank, checked against the plan.

use super::matrix::{Halves, Matrix, Parts, expect_bytes};
use super::sizes::{Sizes, axis};
use super::tiles;
use crate::layout::RankInputs;
use crate::plan::{Plan, RankPlan, Role, ScalePlan};
use crate::subject::error::SubjectError;
use crate::terms::{Bias, Storage};
use std::borrow::Cow;

/// What one rank computes with.
#[derive(Debug, Clone)]
pub(super) struct Rank<'a> {
    pub(super) expert_start: u64,
    pub(super) w13: Matrix<'a>,
    pub(super) w2: Matrix<'a>,
    pub(super) halves: Halves,
    w13_bias: Option<Cow<'a, [f32]>>,
    w2_bias: Option<Cow<'a, [f32]>>,
}

impl<'a> Rank<'a> {
    pub(super) fn new(
        plan: &Plan,
        sizes: &Sizes,
        share: &RankPlan,
        index: usize,
        inputs: &'a RankInputs,
    ) -> Result<Rank<'a>, SubjectError> {
        let of = Source { index, inputs };
        let experts = axis("expert_len", share.expert_len)?;
        let w13_halves = Halves::of_w13(plan.order, sizes.halves, sizes.width);
        let w2_halves = Halves::of_w2(sizes.hidden);
        let (w13_bias, w2_bias) = match plan.bias {
            Bias::None => (None, None),
            Bias::Both => (
                Some(of.bias(plan, Role::W13Bias, experts, sizes.halves * sizes.width)?),
                Some(of.bias(plan, Role::W2Bias, experts, sizes.hidden)?),
            ),
        };
        let matrix = |weight: Role,
                      scale: Role,
                      global: Role,
                      grid: Option<ScalePlan>,
                      halves: Halves,
                      cols| {
            let scales = match grid {
                Some(grid) => Some((scale.name(), of.bytes(scale)?, grid, plan.storage)),
                None => None,
            };
            let globals = if plan.weight.has_global_scale() {
                Some(of.floats(global, &[experts, halves.count])?)
            } else {
                None
            };
            Matrix::new(Parts {
                name: weight.name(),
                bytes: of.bytes(weight)?,
                dtype: plan.weight.element(),
                nibble: plan.nibble,
                storage: plan.weight_storage,
                experts,
                cols,
                halves,
                globals,
                scales,
            })
        };
        Ok(Rank {
            expert_start: share.expert_start,
            w13: matrix(
                Role::W13,
                Role::W13Scale,
                Role::W13Global,
                plan.w13_scale,
                w13_halves,
                sizes.hidden,
            )?,
            w2: matrix(
                Role::W2,
                Role::W2Scale,
                Role::W2Global,
                plan.w2_scale,
                w2_halves,
                sizes.width,
            )?,
            halves: w13_halves,
            w13_bias,
            w2_bias,
        })
    }

    /// One expert's bias of the first projection.
    pub(super) fn w13_bias(&self, expert: usize) -> Option<&[f32]> {
        slice_of(self.w13_bias.as_deref(), expert, self.w13.rows)
    }

    /// One expert's bias of the second projection.
    pub(super) fn w2_bias(&self, expert: usize) -> Option<&[f32]> {
        slice_of(self.w2_bias.as_deref(), expert, self.w2.rows)
    }
}

fn slice_of(bias: Option<&[f32]>, expert: usize, rows: usize) -> Option<&[f32]> {
    bias.map(|b| &b[expert * rows..(expert + 1) * rows])
}

#[derive(Clone, Copy)]
struct Source<'a> {
    index: usize,
    inputs: &'a RankInputs,
}

impl<'a> Source<'a> {
    fn bytes(self, role: Role) -> Result<&'a [u8], SubjectError> {
        self.inputs
            .get(role)
            .map(|t| t.bytes())
            .ok_or(SubjectError::Missing {
                rank: self.index,
                tensor: role.name(),
            })
    }

    /// A bias in the order of the rows: it is permuted with them.
    fn bias(
        self,
        plan: &Plan,
        role: Role,
        experts: usize,
        rows: usize,
    ) -> Result<Cow<'a, [f32]>, SubjectError> {
        let stored = self.floats(role, &[experts, rows])?;
        let storage = tiles::of_weights(plan.weight_storage, plan.weight.element());
        let (granule, _) = tiles::weight_granules(storage);
        Ok(match storage {
            Storage::Rows16 | Storage::Rows32 if rows.is_multiple_of(granule) => {
                Cow::Owned(tiles::in_order(storage, stored, rows))
            }
            _ => Cow::Borrowed(stored),
        })
    }

    fn floats(self, role: Role, factors: &[usize]) -> Result<&'a [f32], SubjectError> {
        let bytes = self.bytes(role)?;
        let size = [factors, &[4]].concat();
        expect_bytes(role.name(), bytes, &size)?;
        Ok(bytemuck::cast_slice(bytes))
    }
}
