//! The experts' input: router weight where it belongs there, quantisation on the fly.

use super::math::{E4M3_MAX, round_e4m3};
use crate::terms::{ACT_QUANT_GROUP, ActQuant};
use pulp::{Simd, WithSimd};

/// Least amax that sets a scale, so that a row of zeros gives 0 and not 0/0.
pub(super) const AMAX_FLOOR: f32 = 1e-12;
/// [`ACT_QUANT_GROUP`] as an index.
const GROUP: usize = ACT_QUANT_GROUP as usize;

/// Rounds activations to E4M3 times a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantiser {
    pub(super) mode: ActQuant,
    /// The scale of static quantisation.
    pub(super) scale: f32,
}

impl Quantiser {
    /// Quantises one padded row: padding takes part in the amax, as in a kernel.
    #[inline(always)]
    pub(super) fn apply(self, row: &mut [f32]) {
        match self.mode {
            ActQuant::None => {}
            ActQuant::Static => round_to(row, self.scale),
            ActQuant::Token => {
                let scale = scale_of(row);
                round_to(row, scale);
            }
            ActQuant::Group => {
                for group in row.chunks_mut(GROUP) {
                    let scale = scale_of(group);
                    round_to(group, scale);
                }
            }
        }
    }
}

#[inline(always)]
fn round_to(values: &mut [f32], scale: f32) {
    for v in values {
        *v = round_e4m3(*v / scale) * scale;
    }
}

/// amax / 448; a NaN makes the scale NaN.
#[inline(always)]
fn scale_of(values: &[f32]) -> f32 {
    // Magnitudes order like their bits, and NaN is the largest.
    let amax = values.iter().fold(0, |m, v| v.abs().to_bits().max(m));
    let amax = f32::from_bits(amax);
    let amax = if amax < AMAX_FLOOR { AMAX_FLOOR } else { amax };
    amax / E4M3_MAX
}

/// Scales and quantises the rows of the input.
pub(super) struct Prepare<'a> {
    pub(super) cols: usize,
    pub(super) rows: &'a mut [f32],
    /// One factor a row, or none.
    pub(super) factors: Option<&'a [f32]>,
    pub(super) quantiser: Quantiser,
}

impl WithSimd for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (t, row) in self.rows.chunks_exact_mut(self.cols.max(1)).enumerate() {
            if let Some(&factor) = self.factors.and_then(|f| f.get(t)) {
                for v in row.iter_mut() {
                    *v *= factor;
                }
            }
            self.quantiser.apply(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_zeros_stay_zero_in_every_mode() {
        for &mode in ActQuant::ALL {
            let mut row = [0.0; 70];
            Quantiser { mode, scale: 0.5 }.apply(&mut row);
            assert!(row.iter().all(|&v| v == 0.0), "{mode}");
        }
    }

    #[test]
    fn a_dirty_pad_raises_its_groups_amax_and_moves_real_values() {
        let clean = {
            let mut row = [0.3f32; 40];
            row[33..].fill(0.0);
            row
        };
        let mut dirty = clean;
        dirty[39] = 1000.0;
        let quantised = |mut row: [f32; 40], mode| {
            Quantiser { mode, scale: 1.0 }.apply(&mut row);
            row
        };
        let (a, b) = (
            quantised(clean, ActQuant::Group),
            quantised(dirty, ActQuant::Group),
        );
        assert_eq!(a[..32], b[..32], "another group keeps its scale");
        assert_ne!(a[32], b[32]);
        assert_ne!(
            quantised(clean, ActQuant::Token)[0],
            quantised(dirty, ActQuant::Token)[0]
        );
    }

    #[test]
    fn the_largest_value_survives_and_static_scales_saturate() {
        let mut row = [3.0, -7.0, 0.1];
        Quantiser {
            mode: ActQuant::Token,
            scale: 1.0,
        }
        .apply(&mut row);
        assert!((row[1] + 7.0).abs() < 1e-6);
        let mut row = [1e6, 1.0];
        Quantiser {
            mode: ActQuant::Static,
            scale: 0.5,
        }
        .apply(&mut row);
        assert_eq!(row, [224.0, 1.0]);
    }
}
