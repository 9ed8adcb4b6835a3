//! Step 9 of the bound's derivation: sums of which the partial sums are known, against f32 in that order.

use super::bound::U;
use super::product::{Met, ROWS, follow, whole};
use crate::rng;
use crate::schedule::Schedule;
use pulp::{Arch, Simd, WithSimd};

struct Followed<'a> {
    row: &'a [f64],
    values: &'a [f64],
    reach: &'a [f64],
    met: Met,
}

impl WithSimd for Followed<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f64; 2] {
        let rows = [self.row; ROWS];
        let ([sum, ..], [error, ..]) = match self.reach.iter().any(|r| *r != 0.0) {
            true => follow::<S, true>(simd, rows, self.values, self.reach, &self.met),
            false => follow::<S, false>(simd, rows, self.values, self.reach, &self.met),
        };
        [sum, error]
    }
}

/// The sum of products and its error, for values that are off by as much as `reach`.
fn followed(arch: Arch, row: &[f64], values: &[f64], reach: &[f64]) -> [f64; 2] {
    let [row_, values_, reach] = [row, values, reach].map(|v| {
        let mut v = v.to_vec();
        v.resize(whole(row.len()), 0.0);
        v
    });
    arch.dispatch(Followed {
        row: &row_,
        values: &values_,
        reach: &reach,
        met: Met::new(row.len()),
    })
}

/// The same as plainly as it can be said: an absent sum takes part in no rounding.
fn plainly(row: &[f64], values: &[f64], reach: &[f64]) -> [f64; 2] {
    let rounded = |sum: f64, error: f64| {
        let most = sum.abs() + error;
        let power = match most {
            0.0 => 0.0,
            most => 2f64.powi(most.log2().floor() as i32),
        };
        Some((sum, error + U * power))
    };
    let mut lanes = [None; 16];
    for (k, ((w, x), dx)) in row.iter().zip(values).zip(reach).enumerate() {
        let (sum, error) = lanes[k % 16].unwrap_or((0.0, 0.0));
        lanes[k % 16] = rounded(sum + w * x, error + w.abs() * dx);
    }
    for width in [8, 4, 2, 1] {
        for l in 0..width {
            lanes[l] = match (lanes[l], lanes[l + width]) {
                (Some((a, ea)), Some((b, eb))) => rounded(a + b, ea + eb),
                (one, None) | (None, one) => one,
            };
        }
    }
    lanes[0].map_or([0.0; 2], |(sum, error)| [sum, error])
}

/// f32 numbers of many sizes, and now and then a zero.
fn drawn(stream: u64, spread: i32, n: usize) -> Vec<f32> {
    let number = |k: usize| {
        let bits = rng::value(97, stream, k as u64);
        let significand = 1.0 + (bits & 0x7f_ffff) as f32 / 8_388_608.0;
        let sign = if bits >> 23 & 1 == 0 { 1.0 } else { -1.0 };
        match bits >> 24 & 31 {
            0 => 0.0,
            _ => sign * significand * 2f32.powi(-((bits >> 32) as i32 % spread).abs()),
        }
    };
    (0..n).map(number).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

#[test]
fn sums_and_errors_are_those_of_sixteen_lanes_on_every_machine() {
    for n in 1..100 {
        let (row, values) = (drawn(1, 6, n), drawn(2, 6, n));
        let (row, values) = (wide(&row), wide(&values));
        for reach in [
            vec![0.0; n],
            values.iter().map(|v| v.abs() * 1e-6).collect(),
        ] {
            let found = followed(Arch::new(), &row, &values, &reach);
            let scalar = followed(Arch::Scalar, &row, &values, &reach);
            assert_eq!(found.map(f64::to_bits), scalar.map(f64::to_bits), "{n}");
            let order = Schedule::Lanes(16).tree(n);
            let sum = order.dot_f64(&row, &values);
            assert_eq!(found[0].to_bits(), sum.to_bits(), "{n}");
            let wanted = plainly(&row, &values, &reach)[1];
            let near = wanted * (1.0 - 1e-12)..=wanted * 1.000_01;
            assert!(near.contains(&found[1]), "{n}: {} for {wanted}", found[1]);
        }
    }
}

#[test]
fn no_sum_of_f32_leaves_its_bound_however_its_values_are_off() {
    let mut largest = 0.0f64;
    for draw in 0..20_000 {
        let n = 1 + rng::value(98, draw, 0) as usize % 150;
        let spread = [1, 2, 6, 30][draw as usize % 4];
        let (row, values) = (drawn(2 * draw, spread, n), drawn(2 * draw + 1, spread, n));
        // Values off by as much as they may be, to either side.
        let off = [0.0, 3e-7, 1e-4][draw as usize % 3];
        let given: Vec<f32> = (0..n)
            .map(|k| match rng::value(99, draw, k as u64) & 1 {
                0 => values[k] * (1.0 - off),
                _ => values[k] * (1.0 + off),
            })
            .collect();
        let reach: Vec<f64> = given
            .iter()
            .zip(&values)
            .map(|(a, b)| f64::from(a - b).abs())
            .collect();
        let [sum, error] = followed(Arch::new(), &wide(&row), &wide(&values), &reach);
        let actual = Schedule::Lanes(16).tree(n).dot(&row, &given);
        let share = (f64::from(actual) - sum).abs() / error.max(f64::MIN_POSITIVE);
        assert!(share <= 1.0, "{draw}: {share}");
        largest = largest.max(share);
    }
    assert!(largest > 0.5, "{largest}");
}

/// 1, and then in the same lane what half an ulp of 1 just swallows.
fn swallowed(steps: usize) -> (Vec<f32>, Vec<f32>) {
    let mut values = vec![0.0; 16 * steps];
    values
        .iter_mut()
        .step_by(16)
        .for_each(|v| *v = U as f32 * (1.0 - 1.0 / 256.0));
    values[0] = 1.0;
    (vec![1.0; 16 * steps], values)
}

#[test]
fn a_lane_that_swallows_what_it_can_lies_just_inside_and_one_that_is_cut_just_outside() {
    let (row, values) = swallowed(64);
    let [sum, error] = followed(
        Arch::new(),
        &wide(&row),
        &wide(&values),
        &vec![0.0; row.len()],
    );
    let actual = f64::from(Schedule::Lanes(16).tree(row.len()).dot(&row, &values));
    let share = (actual - sum).abs() / error;
    assert!(share > 0.9 && share <= 1.0, "{share}");
    // Rounding toward zero swallows twice as much.
    let twice: Vec<f32> = values
        .iter()
        .map(|v| if *v < 1.0 { v * 2.0 } else { *v })
        .collect();
    let [sum, error] = followed(
        Arch::new(),
        &wide(&row),
        &wide(&twice),
        &vec![0.0; row.len()],
    );
    let share = (1.0 - sum).abs() / error;
    assert!(share > 1.5 && share < 2.0, "{share}");
}

#[test]
fn a_value_beyond_its_error_and_another_order_lie_outside() {
    // Exact products, so that the values' errors are nearly all there is.
    let (row, values) = (vec![1.0; 8], vec![1.0; 8]);
    let [sum, error] = followed(Arch::new(), &row, &values, &[1e-3; 8]);
    let off = |by: f64| (8.0 * (1.0 + by) - sum).abs() / error;
    assert!(off(1e-3) > 0.99 && off(1e-3) <= 1.0 && off(1.1e-3) > 1.0);
    // A chain carries the large product through fifteen small ones; in lanes it meets its opposite at once.
    let mut values = vec![U as f32 * 0.99; 17];
    (values[0], values[16]) = (1.0, -1.0);
    let row = vec![1.0; 17];
    let [sum, error] = followed(Arch::new(), &wide(&row), &wide(&values), &[0.0; 17]);
    let share =
        |order: Schedule| (f64::from(order.tree(17).dot(&row, &values)) - sum).abs() / error;
    let (lanes, chain) = (share(Schedule::Lanes(16)), share(Schedule::Sequential));
    assert!(lanes <= 1.0 && chain > 5.0, "{lanes} {chain}");
}
