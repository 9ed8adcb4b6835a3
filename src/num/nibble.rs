//! Packs, unpacks, decodes and encodes 4-bit codes, two per byte in a declared order.
//!
//! It must not guess the order: it is an input everywhere. Layer 0.

use super::decode::narrow_value;
use super::{Dtype, Encode};

/// Which half of a byte holds the element with the even index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NibbleOrder {
    /// The low nibble: every stack read so far (facts/upstream-padding.md 0.3).
    LowFirst,
    /// The high nibble.
    HighFirst,
}

impl NibbleOrder {
    /// The codes of a byte in the order of their elements.
    #[inline]
    pub const fn split(self, byte: u8) -> [u8; 2] {
        match self {
            NibbleOrder::LowFirst => [byte & 15, byte >> 4],
            NibbleOrder::HighFirst => [byte >> 4, byte & 15],
        }
    }

    /// The byte that holds two codes in the order of their elements. High bits are ignored.
    #[inline]
    pub const fn join(self, [first, second]: [u8; 2]) -> u8 {
        match self {
            NibbleOrder::LowFirst => first & 15 | second << 4,
            NibbleOrder::HighFirst => first << 4 | second & 15,
        }
    }
}

/// Packs codes, one per byte, two per byte. With an odd count the last byte's other nibble is 0.
pub fn pack_nibbles(codes: &[u8], order: NibbleOrder) -> Vec<u8> {
    let (pairs, rest) = codes.as_chunks::<2>();
    let mut packed = Vec::with_capacity(codes.len().div_ceil(2));
    packed.extend(pairs.iter().map(|&pair| order.join(pair)));
    packed.extend(rest.iter().map(|&last| order.join([last, 0])));
    packed
}

/// The codes of packed bytes, one per byte: two per byte given, so after an odd count one more.
pub fn unpack_nibbles(packed: &[u8], order: NibbleOrder) -> Vec<u8> {
    packed.iter().flat_map(|&byte| order.split(byte)).collect()
}

/// Decodes packed 4-bit elements into `out`, whose length may be odd.
///
/// # Panics
///
/// If `dtype` is not a 4-bit type, or `packed` is not `out.len().div_ceil(2)` bytes.
pub fn decode_nibbles_into(dtype: Dtype, packed: &[u8], order: NibbleOrder, out: &mut [f32]) {
    check(dtype, packed.len(), out.len());
    let table = match (dtype, order) {
        (Dtype::E2m1, NibbleOrder::LowFirst) => &E2M1_LOW,
        (Dtype::E2m1, NibbleOrder::HighFirst) => &E2M1_HIGH,
        (_, NibbleOrder::LowFirst) => &INT4_LOW,
        (_, NibbleOrder::HighFirst) => &INT4_HIGH,
    };
    let (pairs, rest) = out.as_chunks_mut::<2>();
    for (pair, &byte) in pairs.iter_mut().zip(packed) {
        *pair = table[usize::from(byte)];
    }
    if let ([last], Some(&byte)) = (rest, packed.last()) {
        *last = table[usize::from(byte)][0];
    }
}

/// Encodes values as packed 4-bit elements, each as [`Dtype::encode`] does. After an odd count
/// the last byte's other nibble is 0.
///
/// # Panics
///
/// As [`decode_nibbles_into`].
pub fn encode_nibbles_into<V>(
    dtype: Dtype,
    values: &[V],
    policy: Encode,
    order: NibbleOrder,
    packed: &mut [u8],
) where
    V: Copy + Into<f64>,
{
    check(dtype, packed.len(), values.len());
    // Each arm is compiled for its own type: twice as fast as asking for the type per element.
    match dtype {
        Dtype::E2m1 => encode_all(|v| Dtype::E2m1.encode(v, policy), values, order, packed),
        _ => encode_all(|v| Dtype::Int4.encode(v, policy), values, order, packed),
    }
}

#[inline(always)]
fn encode_all<V>(code: impl Fn(f64) -> u32, values: &[V], order: NibbleOrder, packed: &mut [u8])
where
    V: Copy + Into<f64>,
{
    let (pairs, rest) = values.as_chunks::<2>();
    let (whole, last) = packed.split_at_mut(pairs.len());
    for (byte, &[first, second]) in whole.iter_mut().zip(pairs) {
        *byte = order.join([code(first.into()) as u8, code(second.into()) as u8]);
    }
    for (byte, &value) in last.iter_mut().zip(rest) {
        *byte = order.join([code(value.into()) as u8, 0]);
    }
}

fn check(dtype: Dtype, bytes: usize, elements: usize) {
    assert!(dtype.bits() == 4, "{dtype} is not packed two per byte");
    assert!(
        bytes == elements.div_ceil(2),
        "{bytes} bytes do not hold {elements} elements of {dtype}"
    );
}

// Both values of a byte at once: one load per two elements, 2 KiB a table.
static E2M1_LOW: [[f32; 2]; 256] = build(Dtype::E2m1, NibbleOrder::LowFirst);
static E2M1_HIGH: [[f32; 2]; 256] = build(Dtype::E2m1, NibbleOrder::HighFirst);
static INT4_LOW: [[f32; 2]; 256] = build(Dtype::Int4, NibbleOrder::LowFirst);
static INT4_HIGH: [[f32; 2]; 256] = build(Dtype::Int4, NibbleOrder::HighFirst);

const fn build(dtype: Dtype, order: NibbleOrder) -> [[f32; 2]; 256] {
    let mut table = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        let [first, second] = order.split(byte as u8);
        table[byte] = [
            narrow_value(dtype, first as u32),
            narrow_value(dtype, second as u32),
        ];
        byte += 1;
    }
    table
}
