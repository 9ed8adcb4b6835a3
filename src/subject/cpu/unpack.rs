//! Reads stored elements as f32, by arithmetic that vectorises instead of tables.
//!
//! Independent of `num` on purpose: the subject is held against it.

use crate::num::Dtype;

/// E4M3FN: bias 7, step 2^-9 below 2^-6, NaN at 0x7f and 0xff.
#[inline(always)]
pub(super) fn e4m3(code: u8) -> f32 {
    let code = u32::from(code);
    let magnitude = code & 0x7f;
    let normal = (magnitude << 20) + (120 << 23);
    let small = (magnitude as i32 as f32 * (1.0 / 512.0)).to_bits();
    let bits = if magnitude < 8 { small } else { normal };
    let bits = if magnitude == 0x7f { 0x7fc0_0000 } else { bits };
    f32::from_bits(bits | (code & 0x80) << 24)
}

/// E2M1 in the low four bits: bias 1, 0 and 0.5 below 1.
#[inline(always)]
fn e2m1(code: u8) -> f32 {
    let code = u32::from(code);
    let magnitude = code & 7;
    let normal = (magnitude << 22) + (126 << 23);
    let small = (magnitude as i32 as f32 * 0.5).to_bits();
    let bits = if magnitude < 2 { small } else { normal };
    f32::from_bits(bits | (code & 8) << 28)
}

/// INT4 with offset 8 in the low four bits.
#[inline(always)]
fn int4(code: u8) -> f32 {
    (i32::from(code & 15) - 8) as f32
}

#[inline(always)]
fn int8(code: u8) -> f32 {
    i32::from(code as i8) as f32
}

/// 2^(code - 127); 0 is 2^-127, 255 is NaN.
#[inline(always)]
fn e8m0(code: u8) -> f32 {
    let bits = u32::from(code) << 23;
    let bits = if code == 0 { 0x0040_0000 } else { bits };
    f32::from_bits(if code == 255 { 0x7fc0_0000 } else { bits })
}

#[inline(always)]
fn bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

#[inline(always)]
fn f16(bytes: [u8; 2]) -> f32 {
    let code = u32::from(u16::from_le_bytes(bytes));
    let magnitude = code & 0x7fff;
    let normal = (magnitude << 13) + (112 << 23);
    let small = (magnitude as i32 as f32 * (1.0 / 16_777_216.0)).to_bits();
    let bits = if magnitude < 0x400 { small } else { normal };
    let bits = if magnitude >= 0x7c00 {
        (magnitude << 13) | 0x7f80_0000
    } else {
        bits
    };
    f32::from_bits(bits | (code & 0x8000) << 16)
}

/// Reads `out.len()` elements from the start of `bytes`.
///
/// Returns false, with `out` unspecified, when the element type is none that weights, scales or
/// biases have; callers check that beforehand with [`known`].
#[inline(always)]
pub(super) fn read(dtype: Dtype, high_first: bool, bytes: &[u8], out: &mut [f32]) -> bool {
    match dtype {
        Dtype::F32 => wide::<4>(bytes, out, f32::from_le_bytes),
        Dtype::F16 => wide::<2>(bytes, out, f16),
        Dtype::Bf16 => wide::<2>(bytes, out, bf16),
        Dtype::E4m3 => wide::<1>(bytes, out, |[b]| e4m3(b)),
        Dtype::E8m0 => wide::<1>(bytes, out, |[b]| e8m0(b)),
        Dtype::Int8 => wide::<1>(bytes, out, |[b]| int8(b)),
        Dtype::E2m1 => nibbles(bytes, high_first, out, e2m1),
        Dtype::Int4 => nibbles(bytes, high_first, out, int4),
        Dtype::E4m3Fnuz | Dtype::E5m2 => return false,
    }
    true
}

/// Whether [`read`] knows the element type.
pub(super) fn known(dtype: Dtype) -> bool {
    read(dtype, false, &[], &mut [])
}

#[inline(always)]
fn wide<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (elements, _) = bytes.as_chunks::<N>();
    for (o, &b) in out.iter_mut().zip(elements) {
        *o = value(b);
    }
}

#[inline(always)]
fn nibbles(bytes: &[u8], high_first: bool, out: &mut [f32], value: impl Fn(u8) -> f32) {
    let (pairs, last) = out.as_chunks_mut::<2>();
    if high_first {
        for (o, &b) in pairs.iter_mut().zip(bytes) {
            *o = [value(b >> 4), value(b & 15)];
        }
    } else {
        for (o, &b) in pairs.iter_mut().zip(bytes) {
            *o = [value(b & 15), value(b >> 4)];
        }
    }
    if let ([o], Some(&b)) = (last, bytes.get(pairs.len())) {
        *o = value(if high_first { b >> 4 } else { b & 15 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_elements_are_half_crates() {
        for code in 0..=u16::MAX {
            let bytes = code.to_le_bytes();
            let pairs = [
                (bf16(bytes), half::bf16::from_bits(code).to_f32()),
                (f16(bytes), half::f16::from_bits(code).to_f32()),
            ];
            for (actual, wanted) in pairs {
                assert!(
                    actual.to_bits() == wanted.to_bits() || (actual.is_nan() && wanted.is_nan())
                );
            }
        }
    }

    #[test]
    fn small_formats_hold_their_published_values() {
        // facts/upstream-padding.md 0.3.
        let fp4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (code, &wanted) in (0u8..).zip(&fp4) {
            assert_eq!(e2m1(code), wanted);
            assert_eq!(e2m1(code | 8).to_bits(), (-wanted).to_bits());
        }
        assert_eq!(
            (e4m3(0x38), e4m3(0x7e), e4m3(1)),
            (1.0, 448.0, 2.0f32.powi(-9))
        );
        assert_eq!(e4m3(0x80).to_bits(), (-0.0f32).to_bits());
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        assert_eq!(
            (e8m0(127), e8m0(0), e8m0(1)),
            (1.0, 2.0f32.powi(-127), 2.0f32.powi(-126))
        );
        assert_eq!(e8m0(254), 2.0f32.powi(127));
        assert!(e8m0(255).is_nan());
        assert_eq!(
            (int4(0), int4(8), int4(15), int8(0xff)),
            (-8.0, 0.0, 7.0, -1.0)
        );
    }

    #[test]
    fn eight_bit_elements_are_float8_crates() {
        for code in 0..=255u8 {
            let wanted = float8::F8E4M3::from_bits(code).to_f32();
            let actual = e4m3(code);
            assert!(
                actual == wanted || (actual.is_nan() && wanted.is_nan()),
                "{code:#x}"
            );
        }
    }

    #[test]
    fn an_odd_last_nibble_is_read_from_its_own_end() {
        let mut out = [0.0; 3];
        assert!(read(Dtype::Int4, false, &[0x92, 0x0a], &mut out));
        assert_eq!(out, [-6.0, 1.0, 2.0]);
        assert!(read(Dtype::Int4, true, &[0x29, 0xa0], &mut out));
        assert_eq!(out, [-6.0, 1.0, 2.0]);
    }
}
