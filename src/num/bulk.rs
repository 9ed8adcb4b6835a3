//! Decodes runs of whole-byte elements, stored little endian.
//!
//! It must not know where an element lies or what its scale is; `layout` does. Layer 0.

use super::Dtype;
use super::decode::f16_value;

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
    match dtype.table() {
        Some(table) => {
            for (value, &byte) in out.iter_mut().zip(bytes) {
                *value = table[usize::from(byte)];
            }
        }
        None => decode_wide(dtype, bytes, out),
    }
}

fn decode_wide(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    let (pairs, _) = bytes.as_chunks::<2>();
    match dtype {
        Dtype::F16 => {
            for (value, &pair) in out.iter_mut().zip(pairs) {
                *value = f16_value(u16::from_le_bytes(pair));
            }
        }
        Dtype::Bf16 => {
            for (value, &pair) in out.iter_mut().zip(pairs) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16);
            }
        }
        _ => {
            let (words, _) = bytes.as_chunks::<4>();
            for (value, &word) in out.iter_mut().zip(words) {
                *value = f32::from_le_bytes(word);
            }
        }
    }
}
