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
/// Rows of values that share the reading of these.
const TOKENS: usize = 2;

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
            sums.clear();
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
            let place = Place { rows, first, many };
            with_all::<S, false>(simd, weights, values, place, &mut out.values);
            with_all::<S, true>(simd, weights, reach, place, &mut out.reach);
        }
    }
}

/// Where the sums of some weight rows go.
#[derive(Clone, Copy)]
struct Place {
    /// Weight rows in all.
    rows: usize,
    /// The first of these, and their number.
    first: usize,
    many: usize,
}

/// Dot products of these rows, or of their magnitudes, with every row of `values`.
#[inline(always)]
fn with_all<S: Simd, const MAGNITUDES: bool>(
    simd: S,
    weights: [&[f64]; ROWS],
    values: &[f64],
    place: Place,
    out: &mut [f64],
) {
    let width = weights[0].len();
    let mut write = |token: usize, sums: [f64; ROWS]| {
        out[token * place.rows + place.first..][..place.many].copy_from_slice(&sums[..place.many]);
    };
    let n = values.len() / width.max(1);
    let (pairs, last) = values.split_at(n / TOKENS * TOKENS * width);
    for (pair, values) in pairs.chunks_exact((TOKENS * width).max(1)).enumerate() {
        let (a, b) = values.split_at(width);
        let [a, b] = dots::<S, 2, MAGNITUDES>(simd, weights, [a, b]);
        write(pair * TOKENS, a);
        write(pair * TOKENS + 1, b);
    }
    if !last.is_empty() {
        let [sums] = dots::<S, 1, MAGNITUDES>(simd, weights, [last]);
        write(n - 1, sums);
    }
}

/// Dot products of each row, or of its magnitudes, with each of the others, all of the same length, whole lanes: lane l
/// adds the products k = l mod 8 with fused multiply-adds, then the lanes are halved to one, so
/// that the bits do not depend on the machine.
#[inline(always)]
fn dots<S: Simd, const N: usize, const MAGNITUDES: bool>(
    simd: S,
    rows: [&[f64]; ROWS],
    others: [&[f64]; N],
) -> [[f64; ROWS]; N] {
    let registers = LANES / S::F64_LANES;
    let rows = rows.map(|row| S::as_simd_f64s(row).0);
    let len = rows[0].len();
    let rows = rows.map(|row| &row[..len]);
    let others = others.map(|other| &S::as_simd_f64s(other).0[..len]);
    // As many as there are lanes: registers of a machine without vectors hold one each.
    let mut sums = [[[simd.splat_f64s(0.0); LANES]; ROWS]; N];
    for start in (0..len).step_by(registers) {
        for r in 0..registers {
            for n in 0..N {
                for m in 0..ROWS {
                    let (mut row, other) = (rows[m][start + r], others[n][start + r]);
                    if MAGNITUDES {
                        row = simd.abs_f64s(row);
                    }
                    sums[n][m][r] = simd.mul_add_f64s(row, other, sums[n][m][r]);
                }
            }
        }
    }
    sums.map(|sums| sums.map(total::<S>))
}

#[inline(always)]
fn total<S: Simd>(sums: [S::f64s; LANES]) -> f64 {
    let lanes: &[f64] = bytemuck::cast_slice(&sums[..LANES / S::F64_LANES]);
    let fours: [f64; 4] = std::array::from_fn(|l| lanes[l] + lanes[l + 4]);
    (fours[0] + fours[2]) + (fours[1] + fours[3])
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
        type Output = f64;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f64 {
            let [[sum, ..]] = dots::<S, 1, false>(simd, [self.0; ROWS], [self.1]);
            sum
        }
    }

    #[test]
    fn every_machine_gives_the_same_bits() {
        let values: Vec<f64> = (0..200).map(|n| (f64::from(n) * 0.7).sin() / 3.0).collect();
        for len in (0..100).step_by(LANES) {
            let (a, b) = (&values[..len], &values[100..][..len]);
            let plain: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            let scalar = Arch::Scalar.dispatch(Dot(a, b));
            assert_eq!(scalar.to_bits(), Arch::new().dispatch(Dot(a, b)).to_bits());
            assert!(
                (scalar - plain).abs() < 1e-13,
                "{len}: {scalar} is not {plain}"
            );
        }
    }
}
