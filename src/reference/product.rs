//! Multiplies rows of values with one expert's weights, one weight row at a time.
//!
//! It must not keep decoded weights: a row is used while it lies in the first-level cache.
//! Layer 5.

use super::bound::{SLACK, U};
use super::weights::Projection;
use ndarray::ArrayView2;
use pulp::{Simd, WithSimd};

/// Lanes of a dot product, on every machine.
const LANES: usize = 8;
/// Lanes where a subject's partial sums are followed: those of [`Arithmetic::lanes`](crate::terms::Arithmetic::lanes).
const FOLLOWED: usize = 16;
/// What a rounding of a partial sum adds, and what its magnitude is taken by: step 9 of the bound's derivation.
const ROUNDED: f64 = U * SLACK;
const MORE: f64 = 1.0 + 1.0 / (1u64 << 30) as f64;
/// Every bit but the sign: what a number is cut by to its magnitude. One operation where `abs_f64s` is two, and a call
/// wherever it is not inlined.
const UNSIGNED: f64 = f64::from_bits(!(1 << 63));
/// Weight rows decoded at a time: enough sums at once to hide what an addition takes.
pub(super) const ROWS: usize = 4;
/// What one projection of an expert gives, and what its bound needs.
#[derive(Debug, Default)]
pub(super) struct Product {
    /// Dot products without bias, [n, rows].
    pub(super) values: Vec<f64>,
    /// Sums of |weight| times reach, or the errors of what was followed, [n, rows].
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
    /// Where partial sums are followed: what multiplies the error of each row of values, which `reach` then holds the
    /// errors of. Empty elsewhere.
    pub(super) followed: &'a [f64],
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
        let (out, met) = (self.out, Met::new(cols));
        // The first projection's values seldom have errors.
        let reaches = reach.iter().any(|r| *r != 0.0);
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
            let at = |token: usize| token * rows + first..token * rows + first + many;
            if self.followed.is_empty() {
                for (token, (values, reach)) in pairs.enumerate() {
                    let (sums, magnitudes) = dots(simd, weights, values, reach);
                    out.values[at(token)].copy_from_slice(&sums[..many]);
                    out.reach[at(token)].copy_from_slice(&magnitudes[..many]);
                }
                continue;
            }
            for ((token, (values, reach)), factor) in pairs.enumerate().zip(self.followed) {
                let (sums, errors) = match reaches {
                    true => follow::<S, true>(simd, weights, values, reach, &met),
                    false => follow::<S, false>(simd, weights, values, reach, &met),
                };
                out.values[at(token)].copy_from_slice(&sums[..many]);
                let to = out.reach[at(token)].iter_mut().zip(errors);
                to.for_each(|(to, error)| *to = factor * error);
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
    let unsigned = simd.splat_f64s(UNSIGNED);
    for start in (0..values.len()).step_by(registers) {
        for r in 0..registers {
            let (value, reach) = (values[start + r], reach[start + r]);
            for m in 0..ROWS {
                let row = rows[m][start + r];
                sums[m][r] = simd.mul_add_f64s(row, value, sums[m][r]);
                magnitudes[m][r] =
                    simd.mul_add_f64s(simd.and_f64s(row, unsigned), reach, magnitudes[m][r]);
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

/// Which partial sums of so many columns are rounded: those that a product joins, and that two sums meet in.
pub(super) struct Met {
    /// Whole steps of all lanes.
    steps: usize,
    /// `ROUNDED` for each lane that has a product in the last step, else 0; zeros where all steps are whole.
    last: [f64; FOLLOWED],
    /// `ROUNDED` at width + l where lanes l and l + width meet, else 0.
    halved: [f64; FOLLOWED],
}

impl Met {
    pub(super) fn new(cols: usize) -> Met {
        let mut halved = [0.0; FOLLOWED];
        let (mut live, mut width) = (cols.min(FOLLOWED), FOLLOWED / 2);
        while width > 0 {
            halved[width..][..live.saturating_sub(width)].fill(ROUNDED);
            live = live.min(width);
            width /= 2;
        }
        let mut last = [0.0; FOLLOWED];
        last[..cols % FOLLOWED].fill(ROUNDED);
        Met {
            steps: cols / FOLLOWED,
            last,
            halved,
        }
    }
}

/// As [`dots`], in the order of [`Arithmetic::lanes`](crate::terms::Arithmetic::lanes): the dot products of each row
/// with `values`, and how far a subject may be from them whose values are off by as much as `reach` (all 0 unless
/// `REACH`), by step 9 of the bound's derivation.
#[inline(always)]
pub(super) fn follow<S: Simd, const REACH: bool>(
    simd: S,
    rows: [&[f64]; ROWS],
    values: &[f64],
    reach: &[f64],
    met: &Met,
) -> ([f64; ROWS], [f64; ROWS]) {
    let registers = FOLLOWED / S::F64_LANES;
    let values = S::as_simd_f64s(values).0;
    let reach = &S::as_simd_f64s(reach).0[..values.len()];
    let rows = rows.map(|row| &S::as_simd_f64s(row).0[..values.len()]);
    let zero = [[simd.splat_f64s(0.0); FOLLOWED]; ROWS];
    let (mut sums, mut errors) = (zero, zero);
    // Infinity is what `leading` cuts a number by.
    let [exponent, more, once, unsigned] =
        [f64::INFINITY, MORE, ROUNDED, UNSIGNED].map(|v| simd.splat_f64s(v));
    let whole = met.steps * registers;
    for start in (0..whole).step_by(registers) {
        for r in 0..registers {
            let at = start + r;
            for m in 0..ROWS {
                let row = rows[m][at];
                let mut error = errors[m][r];
                if REACH {
                    error = simd.mul_add_f64s(simd.and_f64s(row, unsigned), reach[at], error);
                }
                let sum = simd.mul_add_f64s(row, values[at], sums[m][r]);
                let most = simd.mul_add_f64s(simd.and_f64s(sum, unsigned), more, error);
                let power = simd.and_f64s(most, exponent);
                (sums[m][r], errors[m][r]) = (sum, simd.mul_add_f64s(power, once, error));
            }
        }
    }
    // A last step of some of the lanes.
    let last = S::as_simd_f64s(&met.last).0;
    for r in 0..registers {
        let at = whole + r;
        // No index that is not known when this is compiled: the sums stay in registers.
        if at >= values.len() {
            break;
        }
        for m in 0..ROWS {
            let row = rows[m][at];
            let error = simd.mul_add_f64s(simd.and_f64s(row, unsigned), reach[at], errors[m][r]);
            let sum = simd.mul_add_f64s(row, values[at], sums[m][r]);
            let most = simd.mul_add_f64s(simd.and_f64s(sum, unsigned), more, error);
            let power = simd.and_f64s(most, exponent);
            (sums[m][r], errors[m][r]) = (sum, simd.mul_add_f64s(power, last[r], error));
        }
    }
    // Lanes are halved in registers, and what one register holds in all rows at once.
    let halved = S::as_simd_f64s(&met.halved).0;
    let (mut sum, mut error) = ([[0.0f64; ROWS]; LANES], [[0.0f64; ROWS]; LANES]);
    for m in 0..ROWS {
        let mut live = registers;
        while live > 1 {
            live /= 2;
            for r in 0..live {
                let sum = simd.add_f64s(sums[m][r], sums[m][r + live]);
                let error = simd.add_f64s(errors[m][r], errors[m][r + live]);
                let most = simd.mul_add_f64s(simd.and_f64s(sum, unsigned), more, error);
                let power = simd.and_f64s(most, exponent);
                let met = halved[live + r];
                (sums[m][r], errors[m][r]) = (sum, simd.mul_add_f64s(power, met, error));
            }
        }
        let [sums, errors] =
            [&sums[m][..1], &errors[m][..1]].map(bytemuck::cast_slice::<S::f64s, f64>);
        for l in 0..S::F64_LANES.min(LANES) {
            (sum[l][m], error[l][m]) = (sums[l], errors[l]);
        }
    }
    for width in [4, 2, 1] {
        if width < S::F64_LANES {
            for l in 0..width {
                for m in 0..ROWS {
                    sum[l][m] += sum[l + width][m];
                    let error_ = error[l][m] + error[l + width][m];
                    let power = leading(sum[l][m].abs().mul_add(MORE, error_));
                    error[l][m] = power.mul_add(met.halved[width + l], error_);
                }
            }
        }
    }
    (sum[0], error[0])
}

/// The largest power of two that a magnitude holds.
#[inline(always)]
fn leading(magnitude: f64) -> f64 {
    f64::from_bits(magnitude.to_bits() & f64::INFINITY.to_bits())
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
