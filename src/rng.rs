//! Gives random value number `n` of stream `stream` for a seed.
//!
//! It must not keep state: a value depends on its three coordinates alone, never on what was
//! drawn before, so padding, sharding and threads cannot change the data. Layer 0.

use pulp::{Arch, Simd, WithSimd};

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
    Arch::new().dispatch(Fill {
        key: Key::new(seed, stream),
        start,
        out,
    });
}

/// The loop of [`fill_bytes`], compiled for the machine's vector unit.
struct Fill<'a> {
    key: Key,
    start: u64,
    out: &'a mut [u8],
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Fill { key, start, out } = self;
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

#[cfg(test)]
mod tests {
    use super::{fill_bytes, value};

    #[test]
    fn values_are_frozen() {
        // Computed by a Python transcription of the formula, not by this code.
        for ((seed, stream, n), wanted) in [
            ((0, 0, 0), 0xf7ec_deec_862c_2081),
            ((0, 0, 1), 0x4e99_6e0d_43a9_8271),
            ((1, 0, 0), 0xc243_874f_0a2c_98ce),
            ((0, 1, 0), 0x751e_26db_2c00_463d),
            ((0x1b2c, 7, 1 << 40), 0xa1b4_2e6e_dd64_ba10),
            ((u64::MAX, u64::MAX, u64::MAX), 0xa1f7_2a8b_dc27_023f),
        ] {
            assert_eq!(
                value(seed, stream, n),
                wanted,
                "{seed:#x} {stream:#x} {n:#x}"
            );
        }
    }

    #[test]
    fn bytes_are_the_values_in_sequence_at_every_length() {
        for start in [0, 5, u64::MAX - 2] {
            let wanted: Vec<u8> = (0..9)
                .flat_map(|i| value(3, 4, start.wrapping_add(i)).to_le_bytes())
                .collect();
            for length in 0..=wanted.len() {
                let mut out = vec![0; length];
                fill_bytes(3, 4, start, &mut out);
                assert_eq!(out, wanted[..length], "start {start}, length {length}");
            }
        }
    }

    /// Chi-square of byte counts; 255 degrees of freedom give 255 +- 23, so 400 is six sigma.
    fn chi_square(values: impl Iterator<Item = u64>) -> f64 {
        let mut counts = [0u32; 256];
        values
            .flat_map(u64::to_le_bytes)
            .for_each(|byte| counts[usize::from(byte)] += 1);
        let mean = f64::from(counts.iter().sum::<u32>()) / 256.0;
        counts
            .iter()
            .map(|&count| (f64::from(count) - mean).powi(2) / mean)
            .sum()
    }

    #[test]
    fn bytes_are_even_along_numbers_streams_and_seeds() {
        let count = 1 << 14;
        for x in [0, 1, 0x1b2c, u64::MAX - (1 << 20)] {
            let along = |i: u64| x.wrapping_add(i);
            assert!(chi_square((0..count).map(|i| value(x, 0, along(i)))) < 400.0);
            assert!(chi_square((0..count).map(|i| value(x, along(i), 0))) < 400.0);
            assert!(chi_square((0..count).map(|i| value(along(i), 0, x))) < 400.0);
            // Differences of neighbours, and of the same number in neighbouring streams and seeds.
            let pairs = |a: fn(u64, u64) -> u64, i| a(x, along(i)) ^ a(x, along(i).wrapping_add(1));
            assert!(chi_square((0..count).map(|i| pairs(|x, i| value(x, 0, i), i))) < 400.0);
            assert!(chi_square((0..count).map(|i| pairs(|x, i| value(x, i, 0), i))) < 400.0);
            assert!(chi_square((0..count).map(|i| pairs(|x, i| value(i, x, 0), i))) < 400.0);
        }
    }

    #[test]
    fn one_flipped_input_bit_flips_half_the_output() {
        let mut flipped = [0u32; 3];
        let bases = 64u64;
        for base in 0..bases {
            let before = value(base, base, base);
            for bit in 0..64 {
                let other = base ^ (1 << bit);
                let after = [
                    value(other, base, base),
                    value(base, other, base),
                    value(base, base, other),
                ];
                for (total, after) in flipped.iter_mut().zip(after) {
                    *total += (before ^ after).count_ones();
                }
            }
        }
        for total in flipped {
            let mean = f64::from(total) / (bases * 64) as f64;
            assert!((31.5..32.5).contains(&mean), "{mean} of 64 bits");
        }
    }

    #[test]
    fn seeds_and_streams_do_not_meet() {
        let mut firsts: Vec<u64> = (0..64)
            .flat_map(|seed| (0..64).map(move |stream| value(seed, stream, 0)))
            .collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 64 * 64);
    }
}
