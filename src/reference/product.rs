//! Multiplies rows of values with one expert's weights, one weight row at a time.
//!
//! It must not keep decoded weights: a row is used while it lies in the first-level cache.
//! Layer 5.

use super::weights::Projection;
use ndarray::ArrayView2;
use pulp::{Simd, WithSimd};

/// Rows of values that share the reading of a weight row.
const TOGETHER: usize = 4;

/// What one projection of an expert gives, and what its bound needs.
#[derive(Debug, Default)]
pub(super) struct Product {
    /// Dot products without bias, [n, rows].
    pub(super) values: Vec<f64>,
    /// 2-norm of each weight row.
    pub(super) norms: Vec<f64>,
    /// Bias of each row; zeros where there is none.
    pub(super) bias: Vec<f64>,
    /// One decoded row.
    row: Vec<f64>,
}

/// Fills a product; run it with `pulp::Arch::dispatch`.
pub(super) struct Multiply<'a> {
    pub(super) projection: &'a Projection<'a>,
    pub(super) expert: usize,
    /// Rows of values, [n, columns].
    pub(super) values: ArrayView2<'a, f64>,
    pub(super) out: &'a mut Product,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (n, cols) = self.values.dim();
        let rows = self.projection.rows_all();
        let values = self.values.to_slice().expect("rows in one piece");
        let out = self.out;
        out.values.clear();
        out.values.resize(n * rows, 0.0);
        out.norms.clear();
        out.bias.clear();
        out.row.resize(cols, 0.0);
        for row in 0..rows {
            let weights = &mut out.row[..cols];
            self.projection.decode_row(self.expert, row, weights);
            let [squares] = dots(simd, weights, [&*weights]);
            out.norms.push(squares.sqrt());
            out.bias.push(self.projection.bias(self.expert, row));
            let mut first = 0;
            let input = |n: usize| &values[n * cols..][..cols];
            while first + TOGETHER <= n {
                let sums =
                    dots::<S, TOGETHER>(simd, weights, std::array::from_fn(|k| input(first + k)));
                for (k, sum) in sums.into_iter().enumerate() {
                    out.values[(first + k) * rows + row] = sum;
                }
                first += TOGETHER;
            }
            for n in first..n {
                [out.values[n * rows + row]] = dots(simd, weights, [input(n)]);
            }
        }
    }
}

/// Dot products of one row with several of the same length.
#[inline(always)]
fn dots<S: Simd, const N: usize>(simd: S, row: &[f64], others: [&[f64]; N]) -> [f64; N] {
    let (chunks, rest) = S::as_simd_f64s(row);
    let cut = row.len() - rest.len();
    let others_chunks = others.map(|other| &S::as_simd_f64s(other).0[..chunks.len()]);
    let mut sums = [[simd.splat_f64s(0.0); 2]; N];
    let mut c = 0;
    while c + 2 <= chunks.len() {
        for n in 0..N {
            sums[n][0] = simd.mul_add_f64s(chunks[c], others_chunks[n][c], sums[n][0]);
            sums[n][1] = simd.mul_add_f64s(chunks[c + 1], others_chunks[n][c + 1], sums[n][1]);
        }
        c += 2;
    }
    if c < chunks.len() {
        for n in 0..N {
            sums[n][0] = simd.mul_add_f64s(chunks[c], others_chunks[n][c], sums[n][0]);
        }
    }
    std::array::from_fn(|n| {
        let tail = rest.iter().zip(&others[n][cut..]);
        let lanes = simd.reduce_sum_f64s(simd.add_f64s(sums[n][0], sums[n][1]));
        lanes + tail.map(|(a, b)| a * b).sum::<f64>()
    })
}
