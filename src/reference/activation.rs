//! The activations, each as a function of the gate times a function of the up projection.
//!
//! Formulas and constants: facts/upstream-padding.md 2.1 and 2.2. It must not round. Layer 5.

use crate::terms::{
    Activation, GELU_TANH_CUBIC, GELU_TANH_SCALE, POWLU_M, RELU2_LIMIT, SITU_GATE, SITU_UP,
    SWIGLU_CLAMP_LIMIT, SWIGLUOAI_ALPHA, SWIGLUOAI_LIMIT, SWIGLUSTEP_LIMIT,
};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = GELU_TANH_SCALE * (x + GELU_TANH_CUBIC * x * x * x);
    0.5 * x * (1.0 + libm::tanh(inner))
}

fn powlu(x: f64) -> f64 {
    if x > 0.0 {
        libm::pow(x, f64::from(POWLU_M) / (x.sqrt() + 1.0)) * sigmoid(x)
    } else {
        silu(x)
    }
}

/// Lowers `x` to `limit`; NaN stays NaN.
fn at_most(x: f64, limit: f32) -> f64 {
    if x > f64::from(limit) {
        f64::from(limit)
    } else {
        x
    }
}

/// The factor that depends on the gate, or the whole activation if there is no gate.
pub(super) fn gate(act: Activation, g: f64) -> f64 {
    match act {
        Activation::Swiglu | Activation::SwigluRounded | Activation::Silu => silu(g),
        Activation::Geglu | Activation::Gelu => gelu(g),
        Activation::GegluTanh | Activation::GeluTanh => gelu_tanh(g),
        Activation::SwigluOai => {
            let g = at_most(g, SWIGLUOAI_LIMIT);
            g * sigmoid(f64::from(SWIGLUOAI_ALPHA) * g)
        }
        Activation::SwigluClamp => silu(at_most(g, SWIGLU_CLAMP_LIMIT)),
        Activation::SwigluStep => at_most(silu(g), SWIGLUSTEP_LIMIT),
        Activation::Situ => {
            let b = f64::from(SITU_GATE);
            b * libm::tanh(g / b) * sigmoid(g)
        }
        Activation::Powlu => powlu(g),
        Activation::Relu2 => relu(g) * relu(g),
        Activation::Relu2Clamped => relu_capped(g) * relu_capped(g),
        Activation::Relu => relu(g),
        Activation::Identity => g,
    }
}

/// max(x, 0), NaN for NaN.
fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// L tanh(max(x, 0) / L): the root of the clamped squared ReLU.
fn relu_capped(x: f64) -> f64 {
    let limit = f64::from(RELU2_LIMIT);
    limit * libm::tanh(relu(x) / limit)
}

/// The factor that depends on the up projection; 1 if there is none.
pub(super) fn up(act: Activation, u: f64) -> f64 {
    let clamp = |limit: f32| u.clamp(-f64::from(limit), f64::from(limit));
    match act {
        Activation::SwigluOai => clamp(SWIGLUOAI_LIMIT) + 1.0,
        Activation::SwigluClamp => clamp(SWIGLU_CLAMP_LIMIT),
        Activation::SwigluStep => clamp(SWIGLUSTEP_LIMIT),
        Activation::Situ => f64::from(SITU_UP) * libm::tanh(u / f64::from(SITU_UP)),
        _ if act.gated() => u,
        _ => 1.0,
    }
}

/// [`gate`], and the most that it changes when its argument changes by at most `e`.
///
/// A Lipschitz constant times `e`; the largest slopes are 1.0998 (silu, and its scaled, clamped
/// forms), 1.1290 (GELU, both forms), below 1.224 (SiTU: 1 from the tanh, 0.224 from the
/// sigmoid, since g s(g)(1 - s(g)) <= 0.224), 1.12 (PowLU); a test scans them. A square r^2 of an
/// r with slope at most 1 changes by 2 r e + e^2. Plain silu changes by its slope there, s + g s (1 - s), and half
/// its largest second derivative, 1/2 at 0, times e^2.
pub(super) fn gate_and_change(act: Activation, g: f64, e: f64) -> (f64, f64) {
    let value = match act {
        Activation::Swiglu | Activation::SwigluRounded | Activation::Silu => {
            // One sigmoid for both.
            let s = sigmoid(g);
            let value = g * s;
            let slope = (s + value * (1.0 - s)).abs();
            return (value, (slope * e + 0.25 * e * e).min(1.1 * e));
        }
        _ => gate(act, g),
    };
    let change = match act {
        Activation::Relu | Activation::Identity => e,
        Activation::Relu2 => 2.0 * relu(g) * e + e * e,
        Activation::Relu2Clamped => 2.0 * relu_capped(g) * e + e * e,
        Activation::Geglu | Activation::Gelu | Activation::GegluTanh | Activation::GeluTanh => {
            1.13 * e
        }
        Activation::Situ | Activation::Powlu => 1.25 * e,
        _ => 1.1 * e,
    };
    (value, change)
}

/// Magnitude on which the rounding errors of evaluating [`gate`] in f32 are relative: every
/// transcendental form is bounded by the gate itself (PowLU by 4.1 times it); polynomials and
/// clamps by their value.
pub(super) fn gate_scale(act: Activation, g: f64, value: f64) -> f64 {
    if act.exact() {
        value.abs()
    } else {
        g.abs().max(value.abs())
    }
}

/// The same where it is known that a sigmoid is off by some u of itself, so that what is the gate times a sigmoid of
/// the gate as it is, is off by some u of its own value.
pub(super) fn known_scale(act: Activation, g: f64, value: f64) -> f64 {
    match act {
        Activation::Swiglu
        | Activation::SwigluRounded
        | Activation::SwigluClamp
        | Activation::SwigluStep
        | Activation::Silu => value.abs(),
        _ => gate_scale(act, g, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_activation_is_steeper_than_its_slope() {
        let step = 1.0 / 1024.0;
        for &act in Activation::ALL {
            for n in -60 * 1024..60 * 1024 {
                let (x, step) = (f64::from(n) * step, step);
                for e in [step, -step, 40.0 * step, -40.0 * step] {
                    let change = (gate(act, x + e) - gate(act, x)).abs();
                    // Both sides are rounded.
                    let (value, most) = gate_and_change(act, x, e.abs());
                    assert_eq!(value.to_bits(), gate(act, x).to_bits(), "{act} at {x}");
                    assert!(change <= most + 1e-13, "{act} at {x}: {change}");
                }
                let e = step;
                if act.gated() {
                    assert!((up(act, x + e) - up(act, x)).abs() <= e, "{act} at {x}");
                }
            }
        }
    }

    #[test]
    fn every_activation_of_zero_is_zero_whatever_the_up_half() {
        for &act in Activation::ALL {
            assert_eq!(gate(act, 0.0) * up(act, 5.0), 0.0, "{act}");
        }
    }
}
