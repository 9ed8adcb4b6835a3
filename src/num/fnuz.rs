//! Rewrites E4M3FN codes as E4M3FNUZ codes, the way the stacks do for AMD MI300.
//!
//! It must not repair what that rewriting breaks: the faults are what padproof looks for. Layer 0.

/// Rewrites E4M3FN codes as E4M3FNUZ: byte 0x80 becomes 0, every scale is doubled
/// (facts/upstream-padding.md 0.3).
///
/// The same byte means half as much in FNUZ, so code times doubled scale keeps its value.
///
/// Two traps. Byte 0x80 is -0 before and **NaN** after, so a tensor padded with 0x80 *after*
/// this rewriting is poisoned (mutant M42), while one padded before is not. And the FN NaN codes
/// 0x7F and 0xFF are left alone, so they come out as the finite numbers 240 and -240.
pub fn fn_to_fnuz(codes: &mut [u8], scales: &mut [f32]) {
    for code in codes.iter_mut().filter(|code| **code == 0x80) {
        *code = 0;
    }
    for scale in scales {
        *scale *= 2.0;
    }
}
