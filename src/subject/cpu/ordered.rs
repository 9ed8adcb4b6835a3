//! Dot products in any summation order: for showing what an order promises, not for speed.

use super::matrix::Matrix;
use crate::schedule::Tree;
use pulp::{Simd, WithSimd};

/// out[t * rows + r] = dot(activation t, weight row r), added as `tree` says.
pub(super) struct Ordered<'a, I> {
    pub(super) matrix: &'a Matrix<'a>,
    pub(super) expert: usize,
    pub(super) tree: &'a Tree,
    pub(super) x: I,
    pub(super) out: &'a mut [f32],
}

impl<'r, I: Iterator<Item = &'r [f32]> + Clone> WithSimd for Ordered<'_, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Ordered {
            matrix,
            expert,
            tree,
            x,
            out,
        } = self;
        let (mut weights, mut scales) = (vec![0.0; matrix.cols], Vec::new());
        for r in 0..matrix.rows {
            matrix.read_row(simd, expert, r, &mut weights, &mut scales);
            for (t, x) in x.clone().enumerate() {
                out[t * matrix.rows + r] = tree.dot(&weights, x);
            }
        }
    }
}
