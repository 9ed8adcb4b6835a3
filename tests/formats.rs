//! Every code of every narrow format, against oracles that share no code with us.

use padproof::num::{
    Dtype, Encode, NibbleOrder, Overflow, ScaleEncode, ScaleRounding, decode_into,
    decode_nibbles_into, encode_into, encode_nibbles_into, fn_to_fnuz, pack_nibbles,
    unpack_nibbles,
};

const DECODE: &str = include_str!("data/ml_dtypes/decode.txt");
const ENCODE: &str = include_str!("data/ml_dtypes/encode.txt");

fn dtype(name: &str) -> Dtype {
    Dtype::ALL
        .into_iter()
        .find(|d| d.name() == name)
        .expect("the vectors name our types")
}

/// Type, input and answer of each line.
fn vectors(text: &'static str) -> impl Iterator<Item = (Dtype, u64, u32)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let input = u64::from_str_radix(words[1], 16).expect("hexadecimal input");
            let answer = u32::from_str_radix(words[2], 16).expect("hexadecimal answer");
            (dtype(words[0]), input, answer)
        })
}

/// Equal bits, or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn ml_dtypes_decodes_every_code_as_we_do() {
    let mut lines = 0;
    for (dtype, code, bits) in vectors(DECODE) {
        let (ours, theirs) = (dtype.decode(code as u32), f32::from_bits(bits));
        assert!(
            same(ours, theirs),
            "{dtype} {code:#04x}: {ours} but ml_dtypes {theirs}"
        );
        lines += 1;
    }
    assert_eq!(lines, 5 * 256 + 2 * 16);
}

#[test]
fn ml_dtypes_encodes_every_vector_as_its_policy_says() {
    let mut wrong = Vec::new();
    let mut lines = 0;
    for (dtype, bits, code) in vectors(ENCODE) {
        let value = f64::from_bits(bits);
        let ours = dtype.encode(value, Encode::ML_DTYPES);
        if ours != code {
            wrong.push(format!(
                "{dtype} {value:e} ({bits:016x}): {ours:#04x} but ml_dtypes {code:#04x}"
            ));
        }
        lines += 1;
    }
    assert!(lines > 2000, "only {lines} vectors");
    assert!(
        wrong.is_empty(),
        "{} of {lines}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

const NARROW: [Dtype; 7] = [
    Dtype::E4m3,
    Dtype::E4m3Fnuz,
    Dtype::E5m2,
    Dtype::E2m1,
    Dtype::E8m0,
    Dtype::Int4,
    Dtype::Int8,
];
const CAMPS: [Encode; 5] = [
    Encode::OCP,
    Encode::ML_DTYPES,
    Encode::TORCH,
    Encode::MODELOPT,
    Encode::AITER,
];

fn codes(dtype: Dtype) -> impl Iterator<Item = u32> {
    0..1u32 << dtype.bits().min(16)
}

/// Both neighbours of a value in f32, and itself: exact in every oracle's input type.
fn around(value: f32) -> [f32; 3] {
    [value.next_down(), value, value.next_up()]
}

#[test]
fn every_code_of_at_most_16_bits_survives_a_round_trip_in_every_camp() {
    for dtype in Dtype::ALL.into_iter().filter(|d| d.bits() <= 16) {
        for camp in CAMPS {
            for code in codes(dtype) {
                let value = dtype.decode(code);
                let back = dtype.encode(f64::from(value), camp);
                let modelopt_zero = dtype == Dtype::E2m1 && camp == Encode::MODELOPT && code == 0;
                let saturated = dtype == Dtype::E5m2 && camp.overflow == Overflow::Saturate;
                if value.is_infinite() && saturated {
                    assert_eq!(back, code - 1, "infinity becomes the largest finite value");
                } else if value.is_nan() {
                    assert!(
                        dtype.decode(back).is_nan(),
                        "{dtype} {code:#x} -> {back:#x}"
                    );
                } else if !modelopt_zero {
                    assert_eq!(back, code, "{dtype} {value:e} in {camp:?}");
                }
            }
        }
    }
}

#[test]
fn half_decodes_every_code_as_we_do() {
    for code in 0..=u16::MAX {
        let (f16, bf16) = (half::f16::from_bits(code), half::bf16::from_bits(code));
        assert!(
            same(Dtype::F16.decode(code.into()), f16.to_f32()),
            "f16 {code:#06x}"
        );
        assert!(
            same(Dtype::Bf16.decode(code.into()), bf16.to_f32()),
            "bf16 {code:#06x}"
        );
    }
}

#[test]
fn half_encodes_every_value_and_tie_as_we_do() {
    // f32 inputs only: half may go through f32, and would then round an f64 twice.
    for code in 0..0x7F80u16 {
        for value in tie_above(Dtype::Bf16, code).into_iter().flat_map(around) {
            let theirs = half::bf16::from_f32(value).to_bits();
            assert_eq!(
                Dtype::Bf16.encode(value.into(), Encode::OCP),
                u32::from(theirs),
                "{value:e}"
            );
        }
    }
    for code in 0..0x7C00u16 {
        for value in tie_above(Dtype::F16, code).into_iter().flat_map(around) {
            let theirs = half::f16::from_f32(-value).to_bits();
            assert_eq!(
                Dtype::F16.encode((-value).into(), Encode::OCP),
                u32::from(theirs),
                "-{value:e}"
            );
        }
    }
}

/// A code's value, and the point halfway to the next one (for the largest: to where it would be).
fn tie_above(dtype: Dtype, code: u16) -> [f32; 2] {
    let value = f64::from(dtype.decode(code.into()));
    let next = f64::from(dtype.decode(u32::from(code) + 1));
    let below = f64::from(dtype.decode(u32::from(code).saturating_sub(1)));
    let step = if next.is_finite() {
        next - value
    } else {
        value - below
    };
    [value as f32, (value + step / 2.0) as f32]
}

#[test]
fn float8_decodes_every_code_as_we_do() {
    for code in 0..=u8::MAX {
        let e4m3 = float8::F8E4M3::from_bits(code).to_f32();
        let e5m2 = float8::F8E5M2::from_bits(code).to_f32();
        assert!(
            same(Dtype::E4m3.decode(code.into()), e4m3),
            "e4m3 {code:#04x}"
        );
        assert!(
            same(Dtype::E5m2.decode(code.into()), e5m2),
            "e5m2 {code:#04x}"
        );
    }
}

#[test]
fn float8_encodes_every_value_and_tie_as_we_do() {
    for code in 0..0x7Fu16 {
        for value in tie_above(Dtype::E4m3, code).into_iter().flat_map(around) {
            for value in [f64::from(value), -f64::from(value)] {
                let theirs = float8::F8E4M3::from_f64(value).to_bits();
                let ours = Dtype::E4m3.encode(value, Encode::OCP);
                assert_eq!(ours, u32::from(theirs), "{value:e}");
            }
        }
    }
    for code in 0..0x7Cu16 {
        for value in tie_above(Dtype::E5m2, code).into_iter().flat_map(around) {
            for value in [f64::from(value), -f64::from(value)] {
                let theirs = float8::F8E5M2::from_f64(value).to_bits();
                let ours = Dtype::E5m2.encode(value, Encode::OCP);
                assert_eq!(ours, u32::from(theirs), "{value:e}");
            }
        }
    }
}

#[test]
fn float4_agrees_on_every_code_and_sixty_fourth() {
    for code in 0..16u8 {
        let theirs = float4::F4E2M1::from_bits(code).to_f64();
        assert_eq!(
            f64::from(Dtype::E2m1.decode(code.into())).to_bits(),
            theirs.to_bits()
        );
    }
    for sixty_fourths in -8 * 64..=8 * 64 {
        let value = f64::from(sixty_fourths) / 64.0;
        let theirs = float4::F4E2M1::from_f64(value).to_bits();
        assert_eq!(
            Dtype::E2m1.encode(value, Encode::OCP),
            u32::from(theirs),
            "{value}"
        );
    }
    let nan = float4::F4E2M1::from_f64(f64::NAN).to_bits();
    assert_eq!(Dtype::E2m1.encode(f64::NAN, Encode::OCP), u32::from(nan));
}

#[test]
fn float4_scales_agree_when_rounded_up() {
    let up = ScaleEncode {
        rounding: ScaleRounding::Ceil,
        ..Encode::OCP.scale
    };
    let policy = Encode {
        scale: up,
        ..Encode::OCP
    };
    for code in 0..=u8::MAX {
        let theirs = float4::E8M0::from_bits(code).to_f64();
        assert!(
            same(Dtype::E8m0.decode(code.into()), theirs as f32),
            "{code:#04x}"
        );
        for factor in [1.0, 1.25, 1.5, 1.75] {
            let value = theirs * factor;
            let theirs = float4::E8M0::from_f64(value).to_bits();
            assert_eq!(
                Dtype::E8m0.encode(value, policy),
                u32::from(theirs),
                "{value:e}"
            );
        }
    }
    assert_eq!(
        Dtype::E8m0.encode(0.0, policy),
        u32::from(float4::E8M0::from_f64(0.0).to_bits())
    );
}

#[test]
fn stated_facts_hold_over_all_codes() {
    for dtype in Dtype::ALL.into_iter().filter(|d| d.bits() <= 16) {
        let values: Vec<f32> = codes(dtype).map(|c| dtype.decode(c)).collect();
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        assert_eq!(finite().fold(0.0, f32::max), dtype.max_finite(), "{dtype}");
        let least = finite().filter(|&v| v > 0.0).fold(f32::INFINITY, f32::min);
        assert_eq!(least, dtype.min_subnormal(), "{dtype}");
        let zero = codes(dtype).find(|&c| dtype.decode(c).to_bits() == 0);
        assert_eq!(zero, dtype.zero_code(), "{dtype}");
        assert_eq!(dtype.decode(dtype.one_code()), 1.0, "{dtype}");
        assert_eq!(
            dtype.nan_code().is_some(),
            values.iter().any(|v| v.is_nan()),
            "{dtype}"
        );
        assert!(
            dtype.nan_code().is_none_or(|c| dtype.decode(c).is_nan()),
            "{dtype}"
        );
        let above_one = finite().filter(|&v| v > 1.0).fold(f32::INFINITY, f32::min);
        assert_eq!(f64::from(above_one - 1.0) / 2.0, dtype.epsilon(), "{dtype}");
    }
    assert_eq!(f64::from(f32::EPSILON) / 2.0, Dtype::F32.epsilon());
    assert!(
        Dtype::F32
            .nan_code()
            .is_some_and(|c| Dtype::F32.decode(c).is_nan())
    );
    assert_eq!(Dtype::F32.decode(Dtype::F32.one_code()), 1.0);
}

#[test]
fn tables_and_bulk_decoding_equal_single_decoding() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for dtype in Dtype::ALL {
        if let Some(table) = dtype.table() {
            for (code, value) in (0..).zip(table) {
                assert!(same(*value, dtype.decode(code)), "{dtype} {code:#04x}");
            }
        }
        if dtype.bits() < 8 {
            continue;
        }
        let size = dtype.bits() as usize / 8;
        let mut out = vec![0.5; bytes.len() / size];
        decode_into(dtype, &bytes, &mut out);
        for (value, chunk) in out.iter().zip(bytes.chunks(size)) {
            let code = chunk
                .iter()
                .rev()
                .fold(0u32, |code, &byte| code << 8 | u32::from(byte));
            assert!(same(*value, dtype.decode(code)), "{dtype} {code:#x}");
        }
        decode_into(dtype, &[], &mut []);
    }
    assert!(NARROW.iter().all(|d| d.table().is_some()));
}

#[test]
fn nibbles_keep_their_order_at_even_and_odd_counts() {
    let codes: Vec<u8> = (0..=255u8).flat_map(|b| [b >> 4, b & 15]).collect();
    for order in [NibbleOrder::LowFirst, NibbleOrder::HighFirst] {
        for count in [0, 1, 2, 3, 511, 512] {
            let packed = pack_nibbles(&codes[..count], order);
            assert_eq!(packed.len(), count.div_ceil(2));
            let unpacked = unpack_nibbles(&packed, order);
            assert_eq!(unpacked[..count], codes[..count]);
            assert!(
                unpacked[count..].iter().all(|&c| c == 0),
                "the spare nibble is 0"
            );
            for dtype in [Dtype::E2m1, Dtype::Int4] {
                let mut out = vec![0.25; count];
                decode_nibbles_into(dtype, &packed, order, &mut out);
                for (value, &code) in out.iter().zip(&codes) {
                    assert_eq!(
                        value.to_bits(),
                        dtype.decode(code.into()).to_bits(),
                        "{dtype}"
                    );
                }
            }
        }
    }
    assert_eq!(
        pack_nibbles(&[1, 2, 3], NibbleOrder::LowFirst),
        [0x21, 0x03]
    );
    assert_eq!(
        pack_nibbles(&[1, 2, 3], NibbleOrder::HighFirst),
        [0x12, 0x30]
    );
}

#[test]
fn rewriting_to_fnuz_keeps_values_but_not_nan_and_pads_of_0x80_must_come_before() {
    let before: Vec<u8> = (0..=255).collect();
    let (mut codes, mut scales) = (before.clone(), [3.0]);
    fn_to_fnuz(&mut codes, &mut scales);
    assert_eq!(scales, [6.0]);
    for (&old, &new) in before.iter().zip(&codes) {
        let old_value = Dtype::E4m3.decode(old.into());
        let new_value = Dtype::E4m3Fnuz.decode(new.into()) * 2.0;
        match old {
            0x7F => assert!(old_value.is_nan() && new_value == 480.0),
            0xFF => assert!(old_value.is_nan() && new_value == -480.0),
            _ => assert_eq!(old_value, new_value, "{old:#04x}"),
        }
    }
    assert_eq!(codes[0x80], 0);
    assert!(
        Dtype::E4m3Fnuz.decode(0x80).is_nan(),
        "a pad written after the rewriting"
    );
}

/// Every tie, value and extreme of every type, whatever the type it was made for.
fn varied() -> Vec<f64> {
    vectors(ENCODE)
        .map(|(_, bits, _)| f64::from_bits(bits))
        .collect()
}

#[test]
fn bulk_encoding_equals_single_encoding() {
    let values = varied();
    for camp in CAMPS {
        for dtype in Dtype::ALL.into_iter().filter(|d| d.bits() >= 8) {
            let size = dtype.bits() as usize / 8;
            let mut bytes = vec![0xAA; values.len() * size];
            encode_into(dtype, &values, camp, &mut bytes);
            for (&value, chunk) in values.iter().zip(bytes.chunks(size)) {
                let code = dtype.encode(value, camp).to_le_bytes();
                assert_eq!(chunk, &code[..size], "{dtype} {value:e}");
            }
        }
        for dtype in [Dtype::E2m1, Dtype::Int4] {
            for count in [0, 1, 2, values.len() - 1, values.len()] {
                for order in [NibbleOrder::LowFirst, NibbleOrder::HighFirst] {
                    let mut packed = vec![0xAA; count.div_ceil(2)];
                    encode_nibbles_into(dtype, &values[..count], camp, order, &mut packed);
                    let codes = values[..count].iter().map(|&v| dtype.encode(v, camp) as u8);
                    assert_eq!(
                        packed,
                        pack_nibbles(&codes.collect::<Vec<_>>(), order),
                        "{dtype}"
                    );
                }
            }
        }
    }
}

#[test]
fn integers_round_to_even_and_saturate_on_every_quarter() {
    for quarters in -600..=600 {
        let value = f64::from(quarters) / 4.0;
        let nearest = value.round_ties_even();
        for dtype in [Dtype::Int4, Dtype::Int8] {
            let (least, most) = if dtype == Dtype::Int4 {
                (-8.0, 7.0)
            } else {
                (-128.0, 127.0)
            };
            let decoded = dtype.decode(dtype.encode(value, Encode::OCP));
            assert_eq!(
                f64::from(decoded),
                nearest.clamp(least, most),
                "{dtype} {value}"
            );
        }
    }
}
