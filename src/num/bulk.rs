//! Decodes and encodes runs of whole-byte elements, stored little endian.
//!
//! It must not know where an element lies or what its scale is; its callers do. Layer 0.

use super::decode::{e8m0_value, float_value};
use super::{Dtype, Encode, spec};

/// Decodes `bytes`, little-endian elements of at least 8 bits, into `out`.
///
/// # Panics
///
/// If `dtype` has fewer than 8 bits (those need a nibble order, see
/// [`decode_nibbles_into`](super::decode_nibbles_into)), or the lengths do not match.
pub fn decode_into(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    assert!(
        dtype.bits() >= 8,
        "{dtype} is packed two per byte and needs a nibble order"
    );
    let wanted = (out.len() as u64).checked_mul(dtype.bits() / 8);
    assert!(
        wanted == Some(bytes.len() as u64),
        "{} bytes do not hold {} elements of {dtype}",
        bytes.len(),
        out.len()
    );
    decode_codes(dtype, bytes, out);
}

/// Decodes little-endian codes of whole bytes (those of 4 bits one a byte) into `out`, as many as
/// there are of both.
///
/// Made of arithmetic and inlined: in a function compiled for a vector unit it uses that.
#[inline(always)]
pub fn decode_codes<V: From<f32>>(dtype: Dtype, bytes: &[u8], out: &mut [V]) {
    match dtype {
        Dtype::F32 => codes::<4, V>(bytes, out, f32::from_le_bytes),
        Dtype::F16 => codes::<2, V>(bytes, out, |b| {
            float_value(spec::F16, u16::from_le_bytes(b).into())
        }),
        Dtype::Bf16 => codes::<2, V>(bytes, out, |b| {
            f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)
        }),
        Dtype::E4m3 => codes::<1, V>(bytes, out, |[b]| float_value(spec::E4M3, b.into())),
        Dtype::E4m3Fnuz => codes::<1, V>(bytes, out, |[b]| float_value(spec::E4M3_FNUZ, b.into())),
        Dtype::E5m2 => codes::<1, V>(bytes, out, |[b]| float_value(spec::E5M2, b.into())),
        Dtype::E2m1 => codes::<1, V>(bytes, out, |[b]| float_value(spec::E2M1, b.into())),
        Dtype::E8m0 => codes::<1, V>(bytes, out, |[b]| e8m0_value(b.into())),
        Dtype::Int4 => codes::<1, V>(bytes, out, |[b]| (i32::from(b & 15) - 8) as f32),
        Dtype::Int8 => codes::<1, V>(bytes, out, |[b]| i32::from(b as i8) as f32),
    }
}

#[inline(always)]
fn codes<const SIZE: usize, V: From<f32>>(
    bytes: &[u8],
    out: &mut [V],
    value: impl Fn([u8; SIZE]) -> f32,
) {
    for (out, &code) in out.iter_mut().zip(bytes.as_chunks::<SIZE>().0) {
        *out = value(code).into();
    }
}

/// Encodes values into `bytes` as little-endian elements of at least 8 bits, each as
/// [`Dtype::encode`] does.
///
/// # Panics
///
/// As [`decode_into`].
pub fn encode_into<V>(dtype: Dtype, values: &[V], policy: Encode, bytes: &mut [u8])
where
    V: Copy + Into<f64>,
{
    check(dtype, bytes.len(), values.len());
    // Each arm is compiled for its own type: twice as fast as asking for the type per element.
    match dtype {
        Dtype::F32 => encode_all::<V, 4>(Dtype::F32, values, policy, bytes),
        Dtype::F16 => encode_all::<V, 2>(Dtype::F16, values, policy, bytes),
        Dtype::Bf16 => encode_all::<V, 2>(Dtype::Bf16, values, policy, bytes),
        Dtype::E4m3 => encode_all::<V, 1>(Dtype::E4m3, values, policy, bytes),
        Dtype::E4m3Fnuz => encode_all::<V, 1>(Dtype::E4m3Fnuz, values, policy, bytes),
        Dtype::E5m2 => encode_all::<V, 1>(Dtype::E5m2, values, policy, bytes),
        Dtype::E8m0 => encode_all::<V, 1>(Dtype::E8m0, values, policy, bytes),
        Dtype::Int8 => encode_all::<V, 1>(Dtype::Int8, values, policy, bytes),
        Dtype::E2m1 | Dtype::Int4 => unreachable!("checked to have at least 8 bits"),
    }
}

#[inline(always)]
fn encode_all<V, const SIZE: usize>(dtype: Dtype, values: &[V], policy: Encode, bytes: &mut [u8])
where
    V: Copy + Into<f64>,
{
    let (elements, _) = bytes.as_chunks_mut::<SIZE>();
    for (element, &value) in elements.iter_mut().zip(values) {
        let code = dtype.encode(value.into(), policy).to_le_bytes();
        element.copy_from_slice(&code[..SIZE]);
    }
}

fn check(dtype: Dtype, bytes: usize, elements: usize) {
    assert!(
        dtype.bits() >= 8,
        "{dtype} is packed two per byte and needs a nibble order"
    );
    let wanted = (elements as u64).checked_mul(dtype.bits() / 8);
    assert!(
        wanted == Some(bytes as u64),
        "{bytes} bytes do not hold {elements} elements of {dtype}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_decodes_to_the_bits_of_its_value() {
        let codes: Vec<u8> = (0..=255).collect();
        for &dtype in Dtype::ALL.iter().filter(|d| d.bits() <= 8) {
            let mut out = [0f32; 256];
            decode_codes(dtype, &codes, &mut out);
            for (&code, value) in codes.iter().zip(out) {
                let wanted = dtype.decode(code.into());
                assert_eq!(value.to_bits(), wanted.to_bits(), "{dtype} {code:#x}");
            }
        }
        let wide: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let mut out = vec![0f32; 1 << 16];
            decode_codes(dtype, &wide, &mut out);
            for (code, value) in out.iter().enumerate() {
                let wanted = dtype.decode(code as u32);
                assert_eq!(value.to_bits(), wanted.to_bits(), "{dtype} {code:#x}");
            }
        }
    }
}
