//! Gives random value number `n` of stream `stream` for a seed.
//!
//! It must not keep state: a value depends on its three coordinates alone, never on what was
//! drawn before, so padding, sharding and threads cannot change the data. Layer 0.

/// 2^64 divided by the golden ratio, made odd: successive multiples are spread evenly.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Random value number `n` of stream `stream` for `seed`: 64 even bits.
///
/// Not for cryptography. The values are frozen: case lines must draw the same data for ever.
#[inline]
pub fn value(seed: u64, stream: u64, n: u64) -> u64 {
    Key::new(seed, stream).value(n)
}

/// Fills `out` with the little-endian bytes of `value(seed, stream, start)`, of number
/// `start + 1`, and so on (numbers wrap); the last value may be cut short.
pub fn fill_bytes(seed: u64, stream: u64, start: u64, out: &mut [u8]) {
    let key = Key::new(seed, stream);
    let mut n = start;
    let (words, rest) = out.as_chunks_mut::<8>();
    for word in words {
        *word = key.value(n).to_le_bytes();
        n = n.wrapping_add(1);
    }
    let last = key.value(n).to_le_bytes();
    for (byte, value) in rest.iter_mut().zip(last) {
        *byte = value;
    }
}

/// What a seed and a stream contribute to each of their values.
#[derive(Clone, Copy)]
struct Key {
    origin: u64,
    inner: u64,
}

impl Key {
    #[inline]
    fn new(seed: u64, stream: u64) -> Key {
        // The stream is mixed first, so that seed + 1 and stream + 1 do not meet.
        let origin = mix(mix(stream.wrapping_add(STEP)) ^ seed);
        Key {
            origin,
            inner: mix(origin.wrapping_add(STEP)),
        }
    }

    /// A bijection of `n` for each key, so a stream never repeats itself.
    ///
    /// `inner` goes in between the two multiplications: with `origin` alone all streams would be
    /// shifted copies of one sequence.
    #[inline(always)]
    fn value(self, n: u64) -> u64 {
        let mut x = n.wrapping_mul(STEP).wrapping_add(self.origin);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= self.inner;
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

/// Stafford's variant 13 of the MurmurHash3 finaliser, as in SplitMix64.
#[inline]
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
