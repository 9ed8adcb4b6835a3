//! The kernels' numbers, compiled for the host, against `num` and against f64.

use super::runs;
use padproof::num::Dtype;
use padproof::subject::HostNumber;
use padproof::terms::Activation;

fn value(number: HostNumber) -> f32 {
    number.value().expect("the kernels know it")
}

#[test]
fn every_code_of_every_element_type_decodes_as_num_says() {
    if !runs() {
        return;
    }
    for (dtype, codes) in [
        (Dtype::E2m1, 16),
        (Dtype::Int4, 16),
        (Dtype::E4m3, 256),
        (Dtype::E8m0, 256),
        (Dtype::Int8, 256),
        (Dtype::F16, 1 << 16),
        (Dtype::Bf16, 1 << 16),
    ] {
        for code in 0..codes {
            let (wanted, actual) = (dtype.decode(code), value(HostNumber::Code(dtype, code)));
            let same = wanted.to_bits() == actual.to_bits() || wanted.is_nan() && actual.is_nan();
            assert!(same, "{dtype} {code:#x}: wanted {wanted}, got {actual}");
        }
    }
}

/// Every pair of codes, in both places of two pairs.
#[test]
fn every_pair_of_codes_decodes_as_num_says() {
    if !runs() {
        return;
    }
    for (dtype, bits) in [
        (Dtype::E2m1, 4),
        (Dtype::Int4, 4),
        (Dtype::E4m3, 8),
        (Dtype::Int8, 8),
        (Dtype::Bf16, 16),
    ] {
        let codes = 1u32 << bits;
        let firsts = if bits == 16 { 3 } else { codes };
        let pairs = (0..codes).flat_map(|a| (0..firsts).map(move |b| (a, b)));
        for ((a, b), high_first) in pairs.flat_map(|pair| [(pair, false), (pair, true)]) {
            let swapped = high_first && bits == 4;
            let both = if swapped {
                a << bits | b
            } else {
                b << bits | a
            };
            // The pair beside it is another one.
            let other = both ^ ((1u64 << (2 * bits)) - 1) as u32;
            for (place, pairs) in [(0, [both, other]), (2, [other, both])] {
                for (at, code) in [(place, a), (place + 1, b)] {
                    let number = HostNumber::Paired {
                        dtype,
                        pairs,
                        at,
                        high_first,
                    };
                    let (wanted, actual) = (dtype.decode(code), value(number));
                    let same =
                        wanted.to_bits() == actual.to_bits() || wanted.is_nan() && actual.is_nan();
                    assert!(
                        same,
                        "{dtype} {pairs:x?} at {at}: wanted {wanted}, got {actual}"
                    );
                }
            }
        }
    }
}

#[test]
fn rounding_to_bf16_is_half_crates() {
    if !runs() {
        return;
    }
    // Every exponent, with tails around a tie.
    for high in 0..1u32 << 16 {
        for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let x = f32::from_bits(high << 16 | low);
            let wanted = half::bf16::from_f32(x).to_f32();
            let actual = value(HostNumber::Bf16(x));
            let same = wanted.to_bits() == actual.to_bits() || wanted.is_nan() && actual.is_nan();
            assert!(same, "{:#x}: wanted {wanted}, got {actual}", x.to_bits());
        }
    }
}

#[test]
fn activations_of_zero_are_zero_and_let_nan_pass() {
    if !runs() {
        return;
    }
    for &act in Activation::ALL {
        let at = |gate, up| value(HostNumber::Activation(act, gate, up));
        for up in [0.0, 3.0, -1e30] {
            assert_eq!(at(0.0, up), 0.0, "{act}");
        }
        assert!(at(f32::NAN, 1.0).is_nan(), "{act}");
        if act.gated() {
            assert!(at(1.0, f32::NAN).is_nan(), "{act}");
        }
    }
}

#[test]
fn activations_are_those_of_the_formulas() {
    if !runs() {
        return;
    }
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gelu = |x: f64| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    let tanh_gelu = |x: f64| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        0.5 * x * (1.0 + inner.tanh())
    };
    let wanted = |act, g: f64, u: f64| match act {
        Activation::Swiglu | Activation::SwigluRounded => g * sigmoid(g) * u,
        Activation::Geglu => gelu(g) * u,
        Activation::GegluTanh => tanh_gelu(g) * u,
        Activation::SwigluOai => {
            let g = g.min(7.0);
            g * sigmoid(f64::from(1.702f32) * g) * (u.clamp(-7.0, 7.0) + 1.0)
        }
        Activation::SwigluClamp => g.min(10.0) * sigmoid(g.min(10.0)) * u.clamp(-10.0, 10.0),
        Activation::SwigluStep => (g * sigmoid(g)).min(7.0) * u.clamp(-7.0, 7.0),
        Activation::Situ => 4.0 * (g / 4.0).tanh() * sigmoid(g) * 25.0 * (u / 25.0).tanh(),
        Activation::Powlu if g > 0.0 => g.powf(2.5 / (g.sqrt() + 1.0)) * sigmoid(g) * u,
        Activation::Powlu => g * sigmoid(g) * u,
        Activation::Relu2 => g.max(0.0) * g.max(0.0),
        Activation::Relu2Clamped => (7.0 * (g.max(0.0) / 7.0).tanh()).powi(2),
        Activation::Silu => g * sigmoid(g),
        Activation::Gelu => gelu(g),
        Activation::GeluTanh => tanh_gelu(g),
        Activation::Relu => g.max(0.0),
        Activation::Identity => g,
    };
    for &act in Activation::ALL {
        let bound = if act == Activation::SwigluRounded {
            1.0 / 128.0
        } else {
            // 32 u of the reference's bound (src/reference/bound.rs, step 3).
            32.0 / 16_777_216.0
        };
        for step in -200..=200 {
            let gate = step as f32 * 0.0613;
            for up in [-30.0f32, -1.5, 0.25, 8.0] {
                let want = wanted(act, gate.into(), up.into());
                let got = f64::from(value(HostNumber::Activation(act, gate, up)));
                let scale = f64::from(gate).abs().max(1e-3) * f64::from(up).abs().max(1.0);
                let limit = bound * want.abs().max(scale * 1e-2);
                assert!(
                    (got - want).abs() <= limit,
                    "{act}({gate}, {up}): {want}, got {got}"
                );
            }
        }
    }
}
