//! Picks a palette's code for each byte of a run.
//!
//! It must not draw bytes. Palettes that repeat after eight or sixteen codes, and that of all
//! finite E4M3 codes, are picked from in vectors: what they give is what the table says. Layer 4.

use pulp::{Arch, Simd, WithSimd};

/// All E4M3 codes, the two NaNs replaced by their lower neighbours.
pub(super) const FINITE_E4M3: [u8; 256] = {
    let mut codes = [0; 256];
    let mut n = 0;
    while n < 256 {
        codes[n] = finite_e4m3(n as u8);
        n += 1;
    }
    codes
};

const fn finite_e4m3(byte: u8) -> u8 {
    byte - (byte & 127 == 127) as u8
}

/// The first `N` codes, if the others repeat them.
fn period<T: Copy + PartialEq, const N: usize>(codes: &[T; 256]) -> Option<&[T; N]> {
    let (first, rest) = codes.split_first_chunk::<N>()?;
    rest.chunks(N).all(|r| r == first).then_some(first)
}

/// Replaces each byte by its code.
pub(super) fn pick8(arch: Arch, codes: &[u8; 256], bytes: &mut [u8]) {
    if *codes == FINITE_E4M3 {
        return arch.dispatch(Finite(bytes));
    }
    if let Some(codes) = period::<_, 16>(codes) {
        return arch.dispatch(Sixteen { codes, bytes });
    }
    for byte in bytes {
        *byte = codes[usize::from(*byte)];
    }
}

/// Writes each byte's code.
pub(super) fn pick32(arch: Arch, codes: &[u32; 256], bytes: &[u8], out: &mut [u32]) {
    match period::<_, 8>(codes) {
        Some(codes) => arch.dispatch(Eight { codes, bytes, out }),
        None => pick(codes, bytes, out),
    }
}

/// Writes each byte's code.
pub(super) fn pick16(arch: Arch, codes: &[u16; 256], bytes: &[u8], out: &mut [u16]) {
    match period::<_, 8>(codes) {
        Some(codes) => arch.dispatch(Eight16 { codes, bytes, out }),
        None => pick(codes, bytes, out),
    }
}

#[inline(always)]
fn pick<T: Copy>(codes: &[T; 256], bytes: &[u8], out: &mut [T]) {
    for (out, &byte) in out.iter_mut().zip(bytes) {
        *out = codes[usize::from(byte)];
    }
}

struct Finite<'a>(&'a mut [u8]);

impl WithSimd for Finite<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for byte in self.0 {
            *byte = finite_e4m3(*byte);
        }
    }
}

struct Sixteen<'a> {
    codes: &'a [u8; 16],
    bytes: &'a mut [u8],
}

impl WithSimd for Sixteen<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let mut bytes = self.bytes;
        #[cfg(target_arch = "x86_64")]
        if let Some(avx) = pulp::core_arch::x86::Avx2::try_new() {
            use std::arch::x86_64::__m256i;
            let codes: __m256i = bytemuck::cast([*self.codes; 2]);
            let low: __m256i = bytemuck::cast([15u8; 32]);
            let (whole, rest) = bytes.as_chunks_mut::<32>();
            for chunk in whole {
                let picked = avx._mm256_and_si256(bytemuck::cast(*chunk), low);
                *chunk = bytemuck::cast(avx._mm256_shuffle_epi8(codes, picked));
            }
            bytes = rest;
        }
        for byte in bytes {
            *byte = self.codes[usize::from(*byte & 15)];
        }
    }
}

struct Eight<'a> {
    codes: &'a [u32; 8],
    bytes: &'a [u8],
    out: &'a mut [u32],
}

impl WithSimd for Eight<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Eight { codes, bytes, out } = self;
        let (mut bytes, mut out) = (bytes, out);
        #[cfg(target_arch = "x86_64")]
        if let Some(avx) = pulp::core_arch::x86::Avx2::try_new() {
            use std::arch::x86_64::__m256i;
            // The permutation takes the low three bits of each index.
            let codes: __m256i = bytemuck::cast(*codes);
            let (from, last) = bytes.as_chunks::<16>();
            let (to, rest) = out.as_chunks_mut::<16>();
            for (to, from) in to.iter_mut().zip(from) {
                let from = bytemuck::cast(*from);
                let low = avx._mm256_cvtepu8_epi32(from);
                let high =
                    avx._mm256_cvtepu8_epi32(bytemuck::cast(bytemuck::cast::<_, u128>(from) >> 64));
                *to = bytemuck::cast([
                    avx._mm256_permutevar8x32_epi32(codes, low),
                    avx._mm256_permutevar8x32_epi32(codes, high),
                ]);
            }
            (bytes, out) = (last, rest);
        }
        for (out, &byte) in out.iter_mut().zip(bytes) {
            *out = codes[usize::from(byte & 7)];
        }
    }
}

struct Eight16<'a> {
    codes: &'a [u16; 8],
    bytes: &'a [u8],
    out: &'a mut [u16],
}

impl WithSimd for Eight16<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Eight16 { codes, bytes, out } = self;
        let (mut bytes, mut out) = (bytes, out);
        #[cfg(target_arch = "x86_64")]
        if let Some(avx) = pulp::core_arch::x86::Avx2::try_new() {
            use std::arch::x86_64::__m256i;
            // Code n lies at bytes 2n and 2n + 1 of a shuffle's table.
            let codes: __m256i = bytemuck::cast([*codes; 2]);
            let seven: __m256i = bytemuck::cast([7u16; 16]);
            let twice: __m256i = bytemuck::cast([0x0100u16; 16]);
            let (from, last) = bytes.as_chunks::<16>();
            let (to, rest) = out.as_chunks_mut::<16>();
            for (to, from) in to.iter_mut().zip(from) {
                let n =
                    avx._mm256_and_si256(avx._mm256_cvtepu8_epi16(bytemuck::cast(*from)), seven);
                let two_n = avx._mm256_add_epi16(n, n);
                let both = avx._mm256_or_si256(two_n, avx._mm256_slli_epi16::<8>(two_n));
                let places = avx._mm256_or_si256(both, twice);
                *to = bytemuck::cast(avx._mm256_shuffle_epi8(codes, places));
            }
            (bytes, out) = (last, rest);
        }
        for (out, &byte) in out.iter_mut().zip(bytes) {
            *out = codes[usize::from(byte & 7)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte, at every length of the last vector.
    fn every_run() -> impl Iterator<Item = Vec<u8>> {
        (0..70).map(|more| (0..256 + more).map(|n| (n * 7 % 256) as u8).collect())
    }

    #[test]
    fn vectors_pick_what_the_table_says() {
        let scrambled = |n: usize| ((n * 2_654_435_761) >> 3) as u32;
        let tables: [[u32; 256]; 5] = [
            std::array::from_fn(scrambled),
            std::array::from_fn(|n| scrambled(n % 16)),
            std::array::from_fn(|n| scrambled(n % 8)),
            std::array::from_fn(|n| scrambled(n % 2)),
            FINITE_E4M3.map(u32::from),
        ];
        for (table, arch) in tables
            .iter()
            .flat_map(|t| [(t, Arch::new()), (t, Arch::Scalar)])
        {
            for run in every_run() {
                let wanted: Vec<u32> = run.iter().map(|&b| table[usize::from(b)]).collect();
                let mut out = vec![0; run.len()];
                pick32(arch, table, &run, &mut out);
                assert_eq!(out, wanted);
                let mut out = vec![0; run.len()];
                pick16(arch, &table.map(|c| c as u16), &run, &mut out);
                assert!(out.iter().zip(&wanted).all(|(&o, &w)| o == w as u16));
                let mut out = run.clone();
                pick8(arch, &table.map(|c| c as u8), &mut out);
                assert!(out.iter().zip(&wanted).all(|(&o, &w)| o == w as u8));
            }
        }
    }

    #[test]
    fn the_formula_leaves_out_nan_alone() {
        for (byte, code) in (0..=255u8).zip(FINITE_E4M3) {
            let wanted = if matches!(byte, 0x7f | 0xff) {
                byte - 1
            } else {
                byte
            };
            assert_eq!(code, wanted);
        }
    }
}
