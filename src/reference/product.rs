//! Multiplies rows of values with one expert's weights, one weight row at a time.
//!
//! It must not keep decoded weights: a row is used while it lies in the first-level cache.
//! Layer 5.

use super::weights::Projection;
use ndarray::ArrayView2;
use pulp::{Simd, WithSimd};

/// Lanes of a dot product, on every machine.
const LANES: usize = 8;
/// Weight rows decoded at a time: enough sums at once to hide what an addition takes.
const ROWS: usize = 4;
/// What one projection of an expert gives, and what its bound needs.
#[derive(Debug, Default)]
pub(super) struct Product {
    /// Dot products without bias, [n, rows].
    pub(super) values: Vec<f64>,
    /// Sums of |weight| times reach, [n, rows].
    pub(super) reach: Vec<f64>,
    /// Bias of each row; zeros where there is none.
    pub(super) bias: Vec<f64>,
    /// Decoded rows.
    rows: Vec<f64>,
    scales: Vec<f64>,
}

impl Product {
    /// Weight rows.
    pub(super) fn rows(&self) -> usize {
        self.bias.len()
    }

    /// Value `n`'s product with row `r`, with the row's bias.
    pub(super) fn element(&self, n: usize, r: usize) -> f64 {
        self.values[n * self.rows() + r] + self.bias[r]
    }
}

/// Fills a product; run it with `pulp::Arch::dispatch`.
pub(super) struct Multiply<'a> {
    pub(super) projection: &'a Projection<'a>,
    pub(super) expert: usize,
    /// Rows of values, [n, columns], each with zeros up to whole lanes.
    pub(super) values: ArrayView2<'a, f64>,
    /// What a weight of magnitude 1 adds to the bound, of the same shape.
    pub(super) reach: ArrayView2<'a, f64>,
    pub(super) out: &'a mut Product,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (n, width) = self.values.dim();
        let cols = self.projection.cols();
        let rows = self.projection.rows_all();
        let [values, reach] =
            [self.values, self.reach].map(|rows| rows.to_slice().expect("rows in one piece"));
        let out = self.out;
        for sums in [&mut out.values, &mut out.reach] {
            sums.resize(n * rows, 0.0);
        }
        out.bias.clear();
        out.rows.clear();
        out.rows.resize(ROWS * width, 0.0);
        for first in (0..rows).step_by(ROWS) {
            let many = ROWS.min(rows - first);
            for (row, values) in out
                .rows
                .chunks_exact_mut(width.max(1))
                .take(many)
                .enumerate()
            {
                let (expert, row) = (self.expert, first + row);
                self.projection
                    .decode_row(expert, row, &mut values[..cols], &mut out.scales);
                out.bias.push(self.projection.bias(expert, row));
            }
            let weights: [&[f64]; ROWS] =
                std::array::from_fn(|row| &out.rows[row * width..][..width]);
            let pairs = values
                .chunks_exact(width.max(1))
                .zip(reach.chunks_exact(width.max(1)));
            for (token, (values, reach)) in pairs.enumerate() {
                let (sums, magnitudes) = dots(simd, weights, values, reach);
                let to = token * rows + first..token * rows + first + many;
                out.values[to.clone()].copy_from_slice(&sums[..many]);
                out.reach[to].copy_from_slice(&magnitudes[..many]);
            }
        }
    }
}

/// Dot products of each row with `values`, and of its magnitudes with `reach`, all of the same length, whole lanes:
/// lane l adds the products k = l mod 8 with fused multiply-adds, then the lanes are halved to one, so that the
/// bits do not depend on the machine.
#[inline(always)]
fn dots<S: Simd>(
    simd: S,
    rows: [&[f64]; ROWS],
    values: &[f64],
    reach: &[f64],
) -> ([f64; ROWS], [f64; ROWS]) {
    let registers = LANES / S::F64_LANES;
    let values = S::as_simd_f64s(values).0;
    let reach = &S::as_simd_f64s(reach).0[..values.len()];
    let rows = rows.map(|row| &S::as_simd_f64s(row).0[..values.len()]);
    // As many as there are lanes: registers of a machine without vectors hold one each.
    let zero = [[simd.splat_f64s(0.0); LANES]; ROWS];
    let (mut sums, mut magnitudes) = (zero, zero);
    for start in (0..values.len()).step_by(registers) {
        for r in 0..registers {
            let (value, reach) = (values[start + r], reach[start + r]);
            for m in 0..ROWS {
                let row = rows[m][start + r];
                sums[m][r] = simd.mul_add_f64s(row, value, sums[m][r]);
                magnitudes[m][r] = simd.mul_add_f64s(simd.abs_f64s(row), reach, magnitudes[m][r]);
            }
        }
    }
    let (mut values, mut reach) = ([0.0; ROWS], [0.0; ROWS]);
    for m in 0..ROWS {
        values[m] = total(simd, sums[m]);
        reach[m] = total(simd, magnitudes[m]);
    }
    (values, reach)
}

#[inline(always)]
fn total<S: Simd>(simd: S, mut sums: [S::f64s; LANES]) -> f64 {
    let mut registers = LANES / S::F64_LANES;
    while registers > 1 {
        registers /= 2;
        for r in 0..registers {
            sums[r] = simd.add_f64s(sums[r], sums[r + registers]);
        }
    }
    simd.reduce_sum_f64s(sums[0])
}

/// Columns filled up to whole lanes.
pub(super) fn whole(cols: usize) -> usize {
    cols.next_multiple_of(LANES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::Arch;

    struct Dot<'a>(&'a [f64], &'a [f64]);

    impl WithSimd for Dot<'_> {
        type Output = [f64; 2];

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [f64; 2] {
            let ([sum, ..], [reach, ..]) = dots(simd, [self.0; ROWS], self.1, self.1);
            [sum, reach]
        }
    }

    #[test]
    fn every_machine_gives_the_same_bits() {
        let values: Vec<f64> = (0..200).map(|n| (f64::from(n) * 0.7).sin() / 3.0).collect();
        for len in (0..100).step_by(LANES) {
            let (a, b) = (&values[..len], &values[100..][..len]);
            let plain: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            let reach: f64 = a.iter().zip(b).map(|(a, b)| a.abs() * b).sum();
            let scalar = Arch::Scalar.dispatch(Dot(a, b));
            let vectors = Arch::new().dispatch(Dot(a, b));
            assert_eq!(scalar.map(f64::to_bits), vectors.map(f64::to_bits));
            for (sum, plain) in scalar.into_iter().zip([plain, reach]) {
                assert!((sum - plain).abs() < 1e-13, "{len}: {sum} is not {plain}");
            }
        }
    }
}
