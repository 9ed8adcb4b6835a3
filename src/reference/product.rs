//! Multiplies rows of values with one expert's weights, one weight row at a time.
//!
//! It must not keep decoded weights: a row is used while it lies in the first-level cache.
//! Layer 5.

use super::weights::Projection;
use ndarray::ArrayView2;
use pulp::{Simd, WithSimd};

/// Lanes of a dot product, on every machine.
const LANES: usize = 8;
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
    /// Rows of values, [n, columns], each with zeros up to whole lanes.
    pub(super) values: ArrayView2<'a, f64>,
    pub(super) out: &'a mut Product,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (n, width) = self.values.dim();
        let cols = self.projection.cols();
        let rows = self.projection.rows_all();
        let values = self.values.to_slice().expect("rows in one piece");
        let out = self.out;
        out.values.clear();
        out.values.resize(n * rows, 0.0);
        out.norms.clear();
        out.bias.clear();
        out.row.clear();
        out.row.resize(width, 0.0);
        for row in 0..rows {
            self.projection
                .decode_row(self.expert, row, &mut out.row[..cols]);
            let weights = &out.row[..];
            let [squares] = dots(simd, weights, [weights]);
            out.norms.push(squares.sqrt());
            out.bias.push(self.projection.bias(self.expert, row));
            let mut first = 0;
            let input = |n: usize| &values[n * width..][..width];
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

/// Dot products of one row with several of the same length, whole lanes: lane l adds the products
/// k = l mod 8 with fused multiply-adds, then the lanes are halved to one, so that the bits do not
/// depend on the machine.
#[inline(always)]
fn dots<S: Simd, const N: usize>(simd: S, row: &[f64], others: [&[f64]; N]) -> [f64; N] {
    let registers = LANES / S::F64_LANES;
    let row = S::as_simd_f64s(row).0;
    let others = others.map(|other| &S::as_simd_f64s(other).0[..row.len()]);
    // As many as there are lanes: registers of a machine without vectors hold one each.
    let mut sums = [[simd.splat_f64s(0.0); LANES]; N];
    for start in (0..row.len()).step_by(registers) {
        for r in 0..registers {
            for n in 0..N {
                sums[n][r] = simd.mul_add_f64s(row[start + r], others[n][start + r], sums[n][r]);
            }
        }
    }
    sums.map(|sums| {
        let lanes: &[f64] = bytemuck::cast_slice(&sums[..registers]);
        let fours: [f64; 4] = std::array::from_fn(|l| lanes[l] + lanes[l + 4]);
        (fours[0] + fours[2]) + (fours[1] + fours[3])
    })
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
            let [sum] = dots(simd, self.0, [self.1]);
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
