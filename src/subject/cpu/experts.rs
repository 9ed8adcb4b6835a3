//! One expert of one rank over the tokens routed to it.

use super::activation::Activate;
use super::dot::{Activations, DotScratch, Dots};
use super::input::Quantiser;
use super::matrix::Matrix;
use super::ordered::Ordered;
use super::rank::Rank;
use super::sizes::Sizes;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::terms::Numerics;
use pulp::Arch;
use rayon::prelude::*;

/// Fused multiply-adds of one projection from which cutting it pays for the threads' wake-up.
const PARALLEL_FROM: usize = 1 << 24;
/// Weight rows a thread takes at a time: whole read blocks.
const ROWS_A_TASK: usize = 96;

/// Memory that experts reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    dots: DotScratch,
    x: Activations,
    first: Vec<f32>,
    middle: Vec<f32>,
    second: Vec<f32>,
    pair: Vec<f32>,
}

/// A token that an expert serves, with the weight of its output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Routed {
    pub(super) token: usize,
    pub(super) weight: f32,
}

/// What experts of all ranks share.
pub(super) struct Layer<'a> {
    pub(super) arch: Arch,
    pub(super) threads: usize,
    pub(super) plan: &'a Plan,
    pub(super) sizes: Sizes,
    /// Prepared input rows, `hidden` wide.
    pub(super) x: &'a [f32],
    pub(super) h_scale: f32,
    /// The summation order, where it is not the fast one.
    pub(super) order: Option<Schedule>,
}

impl Layer<'_> {
    /// Adds weight * (w2 act(w13 x + bias) + bias) to the tokens' rows of `out`, [t, h].
    pub(super) fn expert(
        &self,
        rank: &Rank<'_>,
        expert: usize,
        tokens: &[Routed],
        scratch: &mut Scratch,
        out: &mut [f32],
    ) {
        let Sizes {
            h, hidden, width, ..
        } = self.sizes;
        let Scratch {
            dots,
            x,
            first,
            middle,
            second,
            pair,
        } = scratch;
        let n = tokens.len();

        let row = |r: &Routed| &self.x[r.token * hidden..(r.token + 1) * hidden];
        let rows = tokens.iter().map(row);
        self.project(&rank.w13, expert, rows, x, dots, first);

        middle.resize(n * width, 0.0);
        let Numerics { qh, mid_bf16, .. } = self.plan.numerics;
        self.arch.dispatch(Activate {
            activation: self.plan.activation,
            halves: rank.halves,
            bias: rank.w13_bias(expert),
            mid_bf16,
            quantiser: Quantiser {
                mode: qh,
                scale: self.h_scale,
            },
            rows: first,
            out: middle,
            scratch: pair,
        });

        let row = |t| &middle[t * width..(t + 1) * width];
        self.project(&rank.w2, expert, (0..n).map(row), x, dots, second);

        let bias = rank.w2_bias(expert);
        for (n, routed) in tokens.iter().enumerate() {
            let y = &second[n * hidden..][..h];
            let to = &mut out[routed.token * h..][..h];
            match bias {
                None => to
                    .iter_mut()
                    .zip(y)
                    .for_each(|(o, y)| *o += routed.weight * y),
                Some(bias) => {
                    for ((o, y), b) in to.iter_mut().zip(y).zip(bias) {
                        *o += routed.weight * (y + b);
                    }
                }
            }
        }
    }

    /// out[n, rows] = x times the rows of one expert's matrix.
    fn project<'r>(
        &self,
        matrix: &Matrix<'_>,
        expert: usize,
        x: impl ExactSizeIterator<Item = &'r [f32]> + Clone,
        packed: &mut Activations,
        scratch: &mut DotScratch,
        out: &mut Vec<f32>,
    ) {
        let n = x.len();
        out.resize(n * matrix.rows, 0.0);
        if let Some(order) = self.order {
            self.arch.dispatch(Ordered {
                matrix,
                expert,
                tree: &order.tree(matrix.cols),
                x,
                out,
            });
            return;
        }
        packed.fill(matrix.cols, x);
        let x = &*packed;
        let work = matrix.rows.saturating_mul(matrix.cols).saturating_mul(n);
        if self.threads < 2 || work < PARALLEL_FROM {
            self.arch.dispatch(Dots {
                matrix,
                expert,
                rows: 0..matrix.rows,
                x,
                out,
                stride: matrix.rows,
                scratch,
            });
            return;
        }
        let starts: Vec<usize> = (0..matrix.rows).step_by(ROWS_A_TASK).collect();
        let tasks: Vec<Vec<f32>> = starts
            .par_iter()
            .map_init(DotScratch::default, |scratch, &start| {
                let rows = start..matrix.rows.min(start + ROWS_A_TASK);
                let stride = rows.len();
                let mut part = vec![0.0; n * stride];
                self.arch.dispatch(Dots {
                    matrix,
                    expert,
                    rows,
                    x,
                    out: &mut part,
                    stride,
                    scratch,
                });
                part
            })
            .collect();
        for (start, part) in starts.into_iter().zip(tasks) {
            let stride = part.len() / n.max(1);
            for (to, row) in out
                .chunks_exact_mut(matrix.rows)
                .zip(part.chunks_exact(stride.max(1)))
            {
                to[start..start + stride].copy_from_slice(row);
            }
        }
    }
}
