//! The bits of four E2M1 codes in two bytes, as triton_kernels' Hopper values have them.
//!
//! It must not know rows or columns. Layer 4.
//!
//! Of four consecutive bytes the low nibbles share the first sixteen bits of a little-endian word
//! of 32, the high nibbles the others. In its sixteen bits the code of byte 0, 1 or 2 has its sign
//! at bit 15, 12 or 9 and its magnitude from bit 6, 3 or 0 on; that of byte 3 has its sign at bit
//! 14, its lowest bit at 13 and the other two from 10 on (hopper_value.py at 000df03e).

use super::grid::Address;
use crate::terms::Nibble;

/// The place of an element: two for each byte, the first one in the nibble that comes first.
pub(super) fn address(index: usize, nibble: Nibble) -> Address {
    let (byte, second) = (index / 2, index % 2);
    let half = match nibble {
        Nibble::Low => second,
        Nibble::High => 1 - second,
    };
    let slots = [0, 1, 2, 3];
    Address {
        byte: byte / 4 * 4 + half * 2,
        shift: slots[byte % 4],
    }
}

/// The code in a slot of sixteen bits.
pub(super) fn get(word: u32, slot: u32) -> u32 {
    match slot {
        3 => word >> 11 & 8 | word >> 9 & 6 | word >> 13 & 1,
        n => {
            let word = word << (3 * n);
            word >> 12 & 8 | word >> 6 & 7
        }
    }
}

/// The sixteen bits with a code put into a slot.
pub(super) fn put(word: u32, slot: u32, code: u32) -> u32 {
    let of = |code: u32| match slot {
        3 => (code & 8) << 11 | (code & 6) << 9 | (code & 1) << 13,
        n => ((code & 8) << 12 | (code & 7) << 6) >> (3 * n),
    };
    word & !of(0xf) | of(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_codes_fill_sixteen_bits_as_the_source_draws_them() {
        let masks = [
            0b1000_0001_1100_0000,
            0b0001_0000_0011_1000,
            0b0000_0010_0000_0111,
            0b0110_1100_0000_0000,
        ];
        for (slot, mask) in (0..).zip(masks) {
            assert_eq!(put(0, slot, 0xf), mask);
            for code in 0..16 {
                assert_eq!(get(put(0xffff, slot, code), slot), code);
                assert_eq!(put(0xffff, slot, code) | mask, 0xffff, "the others stay");
            }
        }
        assert_eq!(masks.iter().fold(0, |all, m| all ^ m), 0xffff);
        // -6 is 1111, 0.5 is 0001: where the fourth code's lowest bit goes.
        assert_eq!(put(0, 3, 1), 1 << 13);
        assert_eq!(put(0, 0, 1), 1 << 6);
    }
}
