//! What happens between the two projections, in f32.
//!
//! Formulas and constants: facts/upstream-padding.md 2.1, 2.2. Every comparison lets NaN pass, so
//! that poison reaches the output.

use super::input::Quantiser;
use super::math::{round_bf16, sigmoid, silu};
use super::matrix::Halves;
use crate::terms::{
    Activation, GELU_TANH_CUBIC, GELU_TANH_SCALE, POWLU_M, RELU2_LIMIT, SITU_GATE, SITU_UP,
    SWIGLU_CLAMP_LIMIT, SWIGLUOAI_ALPHA, SWIGLUOAI_LIMIT, SWIGLUSTEP_LIMIT,
};
use pulp::{Simd, WithSimd};

/// How far an activation is off at the most, as [`Arithmetic::evaluation`](crate::terms::Arithmetic::evaluation) counts.
///
/// A sigmoid is off by 2 u at the most in exp, 1 u in the addition and 1 u in the division; what takes a tanh, a power or an
/// erfc of libm was off by 4.2 u at the most over every 7th number, looked at once. A test looks at every 4093rd.
pub(super) const EVALUATION: u8 = 6;

/// Turns rows of the first projection into rows of the intermediate.
pub(super) struct Activate<'a> {
    pub(super) activation: Activation,
    pub(super) halves: Halves,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) mid_bf16: bool,
    pub(super) quantiser: Quantiser,
    /// [n, halves * width], overwritten.
    pub(super) rows: &'a mut [f32],
    /// [n, width].
    pub(super) out: &'a mut [f32],
    /// Gate and up of one row, side by side.
    pub(super) scratch: &'a mut Vec<f32>,
}

impl WithSimd for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.halves.width;
        if width == 0 {
            return;
        }
        let rows = self.rows.chunks_exact_mut(self.halves.count * width);
        for (row, out) in rows.zip(self.out.chunks_exact_mut(width)) {
            if let Some(bias) = self.bias {
                for (v, b) in row.iter_mut().zip(bias) {
                    *v += b;
                }
            }
            if self.halves.count == 1 {
                single(self.activation, row, out);
            } else {
                let run = self.halves.run();
                let (first, second) = if run == width {
                    row.split_at(width)
                } else {
                    self.scratch.resize(2 * width, 0.0);
                    let (a, b) = self.scratch.split_at_mut(width);
                    for ((pair, a), b) in row
                        .chunks(2 * run)
                        .zip(a.chunks_mut(run))
                        .zip(b.chunks_mut(run))
                    {
                        let (left, right) = pair.split_at(a.len());
                        a.copy_from_slice(left);
                        b.copy_from_slice(right);
                    }
                    (&*a, &*b)
                };
                if self.halves.up_first() {
                    gated(self.activation, second, first, out);
                } else {
                    gated(self.activation, first, second, out);
                }
            }
            if self.mid_bf16 {
                map(out, round_bf16);
            }
            self.quantiser.apply(out);
        }
    }
}

#[inline(always)]
fn gated(activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::Swiglu => both(gate, up, out, |g, u| silu(g) * u),
        Activation::SwigluRounded => both(gate, up, out, |g, u| round_bf16(silu(g)) * u),
        Activation::Geglu => both(gate, up, out, |g, u| gelu(g) * u),
        Activation::GegluTanh => both(gate, up, out, |g, u| gelu_tanh(g) * u),
        Activation::SwigluOai => both(gate, up, out, |g, u| {
            let g = at_most(g, SWIGLUOAI_LIMIT);
            g * sigmoid(SWIGLUOAI_ALPHA * g) * (clamp(u, SWIGLUOAI_LIMIT) + 1.0)
        }),
        Activation::SwigluClamp => both(gate, up, out, |g, u| {
            silu(at_most(g, SWIGLU_CLAMP_LIMIT)) * clamp(u, SWIGLU_CLAMP_LIMIT)
        }),
        Activation::SwigluStep => both(gate, up, out, |g, u| {
            at_most(silu(g), SWIGLUSTEP_LIMIT) * clamp(u, SWIGLUSTEP_LIMIT)
        }),
        Activation::Situ => both(gate, up, out, |g, u| situ_gate(g) * situ_up(u)),
        Activation::Powlu => both(gate, up, out, |g, u| powlu(g) * u),
        // Not gated: `Sizes` has checked the number of halves.
        _ => single(activation, gate, out),
    }
}

#[inline(always)]
fn single(activation: Activation, x: &[f32], out: &mut [f32]) {
    out.copy_from_slice(x);
    match activation {
        Activation::Relu2 => map(out, |v| at_least_zero(v) * at_least_zero(v)),
        Activation::Relu2Clamped => map(out, |v| {
            let v = RELU2_LIMIT * libm::tanhf(at_least_zero(v) / RELU2_LIMIT);
            v * v
        }),
        Activation::Silu => map(out, silu),
        Activation::Gelu => map(out, gelu),
        Activation::GeluTanh => map(out, gelu_tanh),
        Activation::Relu => map(out, at_least_zero),
        _ => {}
    }
}

#[inline(always)]
fn both(gate: &[f32], up: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((o, &g), &u) in out.iter_mut().zip(gate).zip(up) {
        *o = f(g, u);
    }
}

#[inline(always)]
fn map(values: &mut [f32], f: impl Fn(f32) -> f32) {
    for v in values {
        *v = f(*v);
    }
}

/// g * Phi(g), by erfc, so that no digits cancel for negative g.
#[inline(always)]
fn gelu(g: f32) -> f32 {
    0.5 * g * libm::erfcf(-g * std::f32::consts::FRAC_1_SQRT_2)
}

/// 0.5 g (1 + tanh z) = g * sigmoid(2 z): the same function without cancellation.
#[inline(always)]
fn gelu_tanh(g: f32) -> f32 {
    let cubic = (GELU_TANH_CUBIC as f32 * g * g).mul_add(g, g);
    g * sigmoid(2.0 * GELU_TANH_SCALE as f32 * cubic)
}

#[inline(always)]
fn situ_gate(g: f32) -> f32 {
    SITU_GATE * libm::tanhf(g / SITU_GATE) * sigmoid(g)
}

#[inline(always)]
fn situ_up(u: f32) -> f32 {
    SITU_UP * libm::tanhf(u / SITU_UP)
}

#[inline(always)]
fn powlu(g: f32) -> f32 {
    let base = if g > 0.0 {
        libm::powf(g, POWLU_M / (g.sqrt() + 1.0))
    } else {
        g
    };
    base * sigmoid(g)
}

#[inline(always)]
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

#[inline(always)]
fn at_least_zero(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn clamp(x: f32, limit: f32) -> f32 {
    let x = at_most(x, limit);
    if x < -limit { -limit } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gate's part of an activation, in f64.
    fn wide(act: Activation, g: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
        match act {
            Activation::Swiglu | Activation::Silu => g * sigmoid(g),
            Activation::SwigluClamp => g.min(10.0) * sigmoid(g.min(10.0)),
            Activation::SwigluStep => (g * sigmoid(g)).min(7.0),
            Activation::Geglu | Activation::Gelu => {
                0.5 * g * libm::erfc(-g * std::f64::consts::FRAC_1_SQRT_2)
            }
            Activation::GegluTanh | Activation::GeluTanh => {
                let inner = GELU_TANH_SCALE * (g + GELU_TANH_CUBIC * g * g * g);
                g * sigmoid(2.0 * inner)
            }
            Activation::SwigluOai => g.min(7.0) * sigmoid(f64::from(SWIGLUOAI_ALPHA) * g.min(7.0)),
            Activation::Situ => 4.0 * libm::tanh(g / 4.0) * sigmoid(g),
            Activation::Powlu if g > 0.0 => {
                libm::pow(g, f64::from(POWLU_M) / (g.sqrt() + 1.0)) * sigmoid(g)
            }
            Activation::Powlu => g * sigmoid(g),
            Activation::Relu2 => g.max(0.0) * g.max(0.0),
            Activation::Relu2Clamped => (7.0 * libm::tanh(g.max(0.0) / 7.0)).powi(2),
            Activation::Relu => g.max(0.0),
            _ => g,
        }
    }

    /// The same as the subject computes it.
    fn narrow(act: Activation, g: f32) -> f32 {
        let mut out = [0.0];
        match act {
            Activation::Situ => out[0] = situ_gate(g),
            Activation::SwigluOai => gated(act, &[g], &[0.0], &mut out),
            _ if act.gated() => gated(act, &[g], &[1.0], &mut out),
            _ => single(act, &[g], &mut out),
        }
        out[0]
    }

    /// Largest error in u, and where, over every 4093rd number from 2^-40 to 2^60 of both signs.
    fn worst(wanted: impl Fn(f64) -> (f64, f64), got: impl Fn(f32) -> f32) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for bits in (0x2b80_0000..0x5d80_0000u32).step_by(4093) {
            for g in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let (value, scale) = wanted(f64::from(g));
                // What may be flushed to zero is counted apart.
                let off = (f64::from(got(g)) - value).abs() - 2f64.powi(-117);
                let share = off / (scale / 16_777_216.0);
                if share > worst.0 {
                    worst = (share, g);
                }
            }
        }
        worst
    }

    #[test]
    fn no_activation_is_off_by_more_than_is_promised() {
        let promised = f64::from(EVALUATION);
        for &act in Activation::ALL {
            let most = match act {
                Activation::SwigluRounded => continue, // silu, before it is rounded to bf16
                Activation::Relu2Clamped => 2.0 * promised + 1.0,
                _ => promised,
            };
            let own = matches!(
                act,
                Activation::Swiglu
                    | Activation::Silu
                    | Activation::SwigluClamp
                    | Activation::SwigluStep
            );
            let wanted = |g: f64| {
                let value = wide(act, g);
                let scale = if own { 0.0 } else { g.abs() };
                (value, scale.max(value.abs()))
            };
            let (off, at) = worst(wanted, |g| narrow(act, g));
            assert!(off < most, "{act}: {off} u at {at:e}");
        }
        let up = |u: f64| {
            (
                25.0 * libm::tanh(u / 25.0),
                (25.0 * libm::tanh(u / 25.0)).abs(),
            )
        };
        let (off, at) = worst(up, situ_up);
        assert!(off < promised, "{off} u at {at:e}");
    }
}
