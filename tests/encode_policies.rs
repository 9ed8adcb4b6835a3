//! What each named encoder camp does at ties, at zero, above the largest value and with NaN.

use padproof::num::{
    Dtype, E8m0Nan, Encode, NibbleOrder, Reader, ScaleEncode, ScaleRounding, Zero, pack_nibbles,
};

const CAMPS: [Encode; 5] = [
    Encode::OCP,
    Encode::ML_DTYPES,
    Encode::TORCH,
    Encode::MODELOPT,
    Encode::AITER,
];

#[test]
fn a_wide_value_is_rounded_once() {
    // Through f32 these would become ties, and then even.
    let tiny = 2f64.powi(-40);
    assert_eq!(
        Dtype::F16.encode(1.0 + 2f64.powi(-11) + tiny, Encode::OCP),
        0x3C01
    );
    assert_eq!(
        Dtype::Bf16.encode(1.0 + 2f64.powi(-8) + tiny, Encode::OCP),
        0x3F81
    );
    assert_eq!(
        Dtype::E4m3.encode(1.0 + 2f64.powi(-4) + tiny, Encode::OCP),
        0x39
    );
    assert_eq!(Dtype::E2m1.encode(2.5 + tiny, Encode::OCP), 5);
    assert_eq!(Dtype::E2m1.encode(2.5 + tiny, Encode::MODELOPT), 5);
}

#[test]
fn scales_round_as_named() {
    let code = |value: f64, rounding| {
        let scale = ScaleEncode {
            rounding,
            ..Encode::OCP.scale
        };
        Dtype::E8m0.encode(
            value,
            Encode {
                scale,
                ..Encode::OCP
            },
        )
    };
    use ScaleRounding::{Ceil, Floor, NearestEven, NearestUp};
    for (value, floor, even, up, ceil) in [
        (1.0, 127, 127, 127, 127),
        (1.25, 127, 127, 127, 128),
        (1.5, 127, 128, 128, 128),
        (1.75, 127, 128, 128, 128),
        (3.0, 128, 128, 129, 129),
        (0.75, 126, 126, 127, 127),
        (f64::MIN_POSITIVE, 0, 0, 0, 0),
        (2f64.powi(128), 254, 254, 254, 254),
    ] {
        assert_eq!(code(value, Floor), floor, "{value} down");
        assert_eq!(code(value, NearestEven), even, "{value} to even");
        assert_eq!(code(value, NearestUp), up, "{value} half up");
        assert_eq!(code(value, Ceil), ceil, "{value} up");
    }
}

#[test]
fn camps_differ_where_the_survey_says() {
    // facts/peers.md 3.2, row by row.
    for (tie, even, toward_zero) in [(0.75, 2, 1), (1.75, 4, 3), (3.5, 6, 5)] {
        for (value, sign) in [(tie, 0), (-tie, 8)] {
            assert_eq!(
                Dtype::E2m1.encode(value, Encode::OCP),
                even | sign,
                "{value}"
            );
            assert_eq!(
                Dtype::E2m1.encode(value, Encode::AITER),
                even | sign,
                "{value}"
            );
            assert_eq!(
                Dtype::E2m1.encode(value, Encode::MODELOPT),
                toward_zero | sign,
                "{value}"
            );
        }
    }
    let differing = (-512..=512).map(|n| f64::from(n) / 64.0).filter(|&v| {
        v != 0.0 && Dtype::E2m1.encode(v, Encode::OCP) != Dtype::E2m1.encode(v, Encode::MODELOPT)
    });
    assert_eq!(differing.count(), 6);
    for value in [464.1, 1e9, f64::INFINITY] {
        assert_eq!(Dtype::E4m3.encode(value, Encode::TORCH), 0x7E);
        assert_eq!(Dtype::E4m3.encode(value, Encode::ML_DTYPES), 0x7F);
    }
    for (value, torch) in [(0.0, 0), (-1.0, 127)] {
        assert_eq!(Dtype::E8m0.encode(value, Encode::TORCH), torch);
        assert_eq!(Dtype::E8m0.encode(value, Encode::ML_DTYPES), 255);
    }
    assert_eq!(Dtype::E2m1.encode(f64::NAN, Encode::ML_DTYPES), 8);
    assert_eq!(Dtype::E2m1.encode(f64::NAN, Encode::AITER), 3);
    assert_eq!(Dtype::E2m1.encode(f64::NAN, Encode::OCP), 7);
}

#[test]
fn modelopt_packs_a_zero_pad_as_0x88() {
    let zero = Dtype::E2m1.encode(0.0, Encode::MODELOPT) as u8;
    assert_eq!(
        pack_nibbles(&[zero; 4], NibbleOrder::LowFirst),
        [0x88, 0x88]
    );
    // Only there: its E4M3 zero scale stays 0, and so does a value that rounds to zero.
    assert_eq!(Dtype::E4m3.encode(0.0, Encode::MODELOPT), 0);
    assert_eq!(Dtype::E2m1.encode(0.1, Encode::MODELOPT), 0);
}

#[test]
fn zeros_keep_or_lose_their_sign_as_named() {
    let positive = Encode {
        zero: Zero::Positive,
        ..Encode::OCP
    };
    for value in [-0.0, -1e-30] {
        for (dtype, code) in [(Dtype::E4m3, 0x80), (Dtype::E5m2, 0x80), (Dtype::E2m1, 8)] {
            assert_eq!(dtype.encode(value, Encode::OCP), code, "{dtype}");
            assert_eq!(dtype.encode(value, positive), 0, "{dtype}");
        }
        // 0x80 would be NaN.
        assert_eq!(Dtype::E4m3Fnuz.encode(value, Encode::OCP), 0);
        assert_eq!(Dtype::Int4.encode(value, Encode::OCP), 8);
    }
    assert_eq!(
        Dtype::Bf16.encode(-0.0, positive),
        0x8000,
        "wide types follow IEEE 754"
    );
}

#[test]
fn wide_types_overflow_to_infinity_in_every_camp() {
    for camp in CAMPS {
        for value in [1e300, f64::INFINITY] {
            assert_eq!(Dtype::F32.encode(value, camp), 0x7F80_0000);
            assert_eq!(Dtype::F16.encode(-value, camp), 0xFC00);
            assert_eq!(Dtype::Bf16.encode(value, camp), 0x7F80);
        }
    }
}

#[test]
fn narrow_types_saturate_or_turn_special_as_named() {
    let special = [
        (Dtype::E4m3, 0x7F),
        (Dtype::E4m3Fnuz, 0x80),
        (Dtype::E5m2, 0x7C),
        (Dtype::E2m1, 7),
    ];
    for (dtype, code) in special {
        for value in [1e300, f64::INFINITY] {
            let saturated = dtype.encode(value, Encode::OCP);
            assert_eq!(dtype.decode(saturated), dtype.max_finite(), "{dtype}");
            assert_eq!(dtype.encode(value, Encode::ML_DTYPES), code, "{dtype}");
        }
    }
    assert_eq!(Dtype::Int4.encode(99.0, Encode::ML_DTYPES), 15);
    assert_eq!(Dtype::Int4.encode(f64::NEG_INFINITY, Encode::OCP), 0);
    assert_eq!(Dtype::Int8.encode(-1e9, Encode::OCP), 0x80);
    assert_eq!(Dtype::Int8.encode(2.5, Encode::OCP), 2);
    assert_eq!(Dtype::Int8.encode(-3.5, Encode::OCP), 0xFC);
}

#[test]
fn readers_of_e8m0_differ_in_the_extreme_codes_only() {
    let policies = [E8m0Nan::Nan, E8m0Nan::Infinity, E8m0Nan::ExponentShift];
    for policy in policies {
        for code in 1..255 {
            assert_eq!(
                Dtype::E8m0.decode_with(code, policy),
                2f64.powi(code as i32 - 127) as f32
            );
        }
        assert_eq!(Dtype::E4m3.decode_with(0, policy), 0.0);
        assert!(Dtype::E4m3.decode_with(255, policy).is_nan());
    }
    let at = |code| policies.map(|p| Dtype::E8m0.decode_with(code, p));
    let smallest = 2f64.powi(-127) as f32;
    assert_eq!(at(0), [smallest, smallest, 0.0]);
    assert!(at(255)[0].is_nan());
    assert_eq!(at(255)[1..], [f32::INFINITY, f32::INFINITY]);
}

#[test]
fn gguf_and_flashinfer_read_single_codes_otherwise_and_no_others() {
    for dtype in Dtype::ALL.into_iter().filter(|d| d.bits() <= 8) {
        for code in 0..1u32 << dtype.bits() {
            let bits = |reader| dtype.decode_as(code, reader).to_bits();
            let ours = dtype.decode(code).to_bits();
            assert_eq!(bits(Reader::Ocp), ours);
            let gguf = (dtype, code) == (Dtype::E4m3, 0x7f);
            assert_eq!(bits(Reader::Gguf) != ours, gguf, "{dtype} {code:#x}");
            let other = [(Dtype::E2m1, 8), (Dtype::E8m0, 255)].contains(&(dtype, code));
            assert_eq!(bits(Reader::Flashinfer) != ours, other, "{dtype} {code:#x}");
        }
    }
    // A pad of either is zero to both camps, with another sign.
    assert_eq!(Dtype::E4m3.decode_as(0x7f, Reader::Gguf).to_bits(), 0);
    assert_eq!(Dtype::E2m1.decode_as(8, Reader::Flashinfer).to_bits(), 0);
    assert_eq!(
        Dtype::E8m0.decode_as(255, Reader::Flashinfer),
        f32::INFINITY
    );
}
