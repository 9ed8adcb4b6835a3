//! From the element types and shapes that files use to the codes that a layer is made of.
//!
//! It must not round: every conversion is exact. Layer 4.

use crate::num::{Dtype, Encode};
use safetensors::Dtype as Stored;

/// Codes of a wanted type that one stored element holds; none where the one does not mean the other.
///
/// Most checkpoints store packed FP4 and E8M0 as U8 (facts/peers.md 5), and scales and biases as
/// bf16 where the engine computes with f32.
pub fn codes_in(wanted: Dtype, stored: Stored) -> Option<usize> {
    let same = |yes: bool| yes.then_some(1);
    match (wanted, stored) {
        (Dtype::E2m1, Stored::F4) => Some(1),
        (Dtype::E2m1 | Dtype::Int4, Stored::U8 | Stored::I8) => Some(2),
        (Dtype::Int4, Stored::I32 | Stored::U32) => Some(8),
        (Dtype::F32, s) => same(matches!(
            s,
            Stored::F32 | Stored::F16 | Stored::BF16 | Stored::F8_E8M0
        )),
        (Dtype::F16, s) => same(matches!(s, Stored::F16 | Stored::U16 | Stored::I16)),
        (Dtype::Bf16, s) => same(matches!(s, Stored::BF16 | Stored::U16 | Stored::I16)),
        (Dtype::E4m3, s) => same(matches!(s, Stored::F8_E4M3 | Stored::U8 | Stored::I8)),
        (Dtype::E4m3Fnuz, s) => same(matches!(s, Stored::F8_E4M3FNUZ | Stored::U8 | Stored::I8)),
        (Dtype::E5m2, s) => same(matches!(s, Stored::F8_E5M2 | Stored::U8 | Stored::I8)),
        (Dtype::E8m0, s) => same(matches!(s, Stored::F8_E8M0 | Stored::U8 | Stored::I8)),
        (Dtype::Int8, s) => same(matches!(s, Stored::I8 | Stored::U8)),
        _ => None,
    }
}

/// Bytes in the wanted type, packed as stored: only what is wider than stored is rewritten.
pub(super) fn widened(wanted: Dtype, stored: Stored, bytes: Vec<u8>) -> Vec<u8> {
    let from = match (wanted, stored) {
        (Dtype::F32, Stored::BF16) => Dtype::Bf16,
        (Dtype::F32, Stored::F16) => Dtype::F16,
        (Dtype::F32, Stored::F8_E8M0) => Dtype::E8m0,
        _ => return bytes,
    };
    let wide = bytes_of(from);
    let mut out = Vec::with_capacity(bytes.len() / wide * 4);
    for code in bytes.chunks_exact(wide) {
        let code = code.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
        out.extend(from.decode(code).to_le_bytes());
    }
    out
}

/// The bytes in which a file of type `stored` keeps a code of a scale or bias; none where it cannot.
/// Scales of INT4 are of the model's own type: those of bf16 may lie in f16 and f32.
pub fn stored_code(wanted: Dtype, stored: Stored, code: u32) -> Option<Vec<u8>> {
    let narrow = match (wanted, stored) {
        (Dtype::F32, Stored::BF16) => Dtype::Bf16,
        (Dtype::F32 | Dtype::Bf16, Stored::F16) => Dtype::F16,
        (Dtype::F32, Stored::F8_E8M0) => Dtype::E8m0,
        (Dtype::Bf16, Stored::F32) => Dtype::F32,
        _ => {
            codes_in(wanted, stored).filter(|&codes| codes == 1)?;
            return Some(code.to_le_bytes()[..bytes_of(wanted)].to_vec());
        }
    };
    let value = wanted.decode(code);
    let code = narrow.encode(f64::from(value), Encode::default());
    let exact = narrow.decode(code).to_bits() == value.to_bits();
    exact.then(|| code.to_le_bytes()[..bytes_of(narrow)].to_vec())
}

/// Bytes that [`widened`] makes of `bytes` stored ones.
pub(super) fn widened_len(wanted: Dtype, stored: Stored, bytes: u64) -> u64 {
    match (wanted, stored) {
        (Dtype::F32, Stored::BF16 | Stored::F16) => bytes.saturating_mul(2),
        (Dtype::F32, Stored::F8_E8M0) => bytes.saturating_mul(4),
        _ => bytes,
    }
}

/// Whether [`codes`] gives the bytes as they are stored.
pub(super) fn keeps_bytes(wanted: Dtype, stored: Stored) -> bool {
    wanted.bits() >= 8 && widened_len(wanted, stored, 1) == 1
}

/// One code an element, as `tensor::Logical` holds them: packed ones a byte each, low nibble first.
pub(super) fn codes(wanted: Dtype, stored: Stored, bytes: Vec<u8>) -> Vec<u8> {
    if wanted.bits() == 4 {
        return bytes.iter().flat_map(|b| [b & 0xf, b >> 4]).collect();
    }
    widened(wanted, stored, bytes)
}

/// Bytes of one code in `tensor::Logical`.
pub(super) fn bytes_of(dtype: Dtype) -> usize {
    usize::try_from(dtype.bits().div_ceil(8)).expect("an element has at most 32 bits")
}

/// Each f32 replaced by its reciprocal.
pub(super) fn reciprocal(bytes: &mut [u8]) {
    for four in bytes.as_chunks_mut::<4>().0 {
        *four = f32::from_le_bytes(*four).recip().to_le_bytes();
    }
}

/// Whether a shape is [lead, rows, cols / codes...], trailing axes flattened; a single row or column may
/// be left out or lie the other way, and a single element may have any shape of ones.
pub(super) fn shape_fits(
    shape: &[usize],
    lead: Option<usize>,
    rows: usize,
    cols: usize,
    codes: usize,
) -> bool {
    let rest = match (lead, shape.split_first()) {
        (None, _) => shape,
        (Some(experts), Some((&first, rest))) if first == experts => rest,
        _ => return false,
    };
    let product = |axes: &[usize]| axes.iter().try_fold(1_usize, |n, &a| n.checked_mul(a));
    let units = product(rest).and_then(|n| n.checked_mul(codes));
    if units != rows.checked_mul(cols) {
        return false;
    }
    match rest {
        _ if rows == 1 && cols == 1 => true,
        [] => false,
        // A row of scales, or a column of biases, may be flat.
        [_] => rows == 1 || cols == 1,
        [1, row] if cols == 1 => *row == rows,
        [column, 1] if rows == 1 && codes == 1 => *column == cols,
        [first, ..] => *first == rows,
    }
}
