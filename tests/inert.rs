//! Goal: every code of four and eight bits is inert or not exactly as padding relies on. Method:
//! all codes, times all scales of the formats' scale types, times activations up to the largest.

use padproof::num::{Dtype, E8m0Nan};

/// Element types that weights, scales and activations are stored in at up to eight bits, with the
/// codes that stand for zero.
const ZEROS: &[(Dtype, &[u32])] = &[
    (Dtype::E4m3, &[0x00, 0x80]),
    (Dtype::E4m3Fnuz, &[0x00]),
    (Dtype::E5m2, &[0x00, 0x80]),
    (Dtype::E2m1, &[0x0, 0x8]),
    (Dtype::E8m0, &[]),
    (Dtype::Int4, &[0x8]),
    (Dtype::Int8, &[0x00]),
];

/// Scale types with every code that makes even a zero something else.
const HARMFUL: &[(Dtype, &[u32])] = &[
    (Dtype::E8m0, &[0xff]),
    (Dtype::E4m3, &[0x7f, 0xff]),
    // Exponent all ones: infinities and NaN.
    (Dtype::Bf16, &[]),
];

const ACTIVATIONS: [f32; 6] = [0.0, -0.0, 1.0, -3.5, f32::MAX, f32::MIN_POSITIVE];

fn codes(dtype: Dtype) -> std::ops::Range<u32> {
    0..1 << dtype.bits()
}

fn harmful(scale: Dtype, listed: &[u32], code: u32) -> bool {
    match scale {
        Dtype::Bf16 => code & 0x7f80 == 0x7f80,
        _ => listed.contains(&code),
    }
}

/// Whether an element adds nothing to a sum, whatever finite activation it meets. In f64, where no
/// product underflows.
fn inert(element: f32, scale: f32) -> bool {
    let weight = f64::from(element) * f64::from(scale);
    ACTIVATIONS.iter().all(|&x| weight * f64::from(x) == 0.0)
}

#[test]
fn zero_codes_are_inert() {
    let mut checked = 0;
    for (element, zeros) in ZEROS {
        for zero in *zeros {
            let value = element.decode(*zero);
            for (scale, listed) in HARMFUL {
                for code in codes(*scale) {
                    let wanted = !harmful(*scale, listed, code);
                    let actual = inert(value, scale.decode(code));
                    assert_eq!(
                        actual, wanted,
                        "{element} {zero:#x} times {scale} {code:#x}"
                    );
                    checked += 1;
                }
            }
            // Scales of 32 bits: the sign and exponent of every binade, and both ends of each.
            for top in 0..1u32 << 9 {
                for scale in [top << 23, top << 23 | 1, top << 23 | 0x7f_ffff] {
                    let scale = f32::from_bits(scale);
                    assert_eq!(
                        inert(value, scale),
                        scale.is_finite(),
                        "{element} times {scale}"
                    );
                }
            }
        }
    }
    assert_eq!(checked, 9 * (256 + 256 + 65536));
}

#[test]
fn only_listed_codes_are_zero() {
    for (dtype, zeros) in ZEROS {
        let found: Vec<u32> = codes(*dtype).filter(|&c| dtype.decode(c) == 0.0).collect();
        assert_eq!(found, *zeros, "{dtype}");
        let all_bits_zero = dtype.decode(0);
        match dtype {
            Dtype::Int4 => assert_eq!(all_bits_zero, -8.0),
            Dtype::E8m0 => assert_eq!(all_bits_zero, 2.0f32.powi(-127)),
            _ => assert_eq!(all_bits_zero, 0.0),
        }
    }
    assert!(Dtype::E4m3Fnuz.decode(0x80).is_nan());
    let narrow = Dtype::ALL.iter().filter(|d| d.bits() <= 8).count();
    assert_eq!(
        narrow,
        ZEROS.len(),
        "a type of at most eight bits is not listed"
    );
}

#[test]
fn zero_scales_are_inert() {
    for (element, _) in ZEROS {
        for code in codes(*element) {
            let value = element.decode(code);
            for (scale, zero) in [(Dtype::E4m3, 0x00), (Dtype::E4m3, 0x80), (Dtype::Bf16, 0)] {
                let actual = inert(value, scale.decode(zero));
                assert_eq!(
                    actual,
                    value.is_finite(),
                    "{element} {code:#x} times {scale} zero"
                );
            }
            // E8M0 has no zero but to readers that shift its code into the exponent.
            let least = [E8m0Nan::Nan, E8m0Nan::Infinity].map(|p| Dtype::E8m0.decode_with(0, p));
            for scale in least {
                assert_eq!(inert(value, scale), value == 0.0, "{element} {code:#x}");
            }
            let shifted = Dtype::E8m0.decode_with(0, E8m0Nan::ExponentShift);
            assert_eq!(
                inert(value, shifted),
                value.is_finite(),
                "{element} {code:#x}"
            );
        }
    }
}
