//! Measures the distance of two f32 values in units in the last place.
//!
//! It must not judge: bounds belong to `compare`. Layer 0.

/// How many f32 steps lie between `a` and `b`.
///
/// The zeros of both signs are one point, so they are 0 apart and the smallest subnormals of
/// both signs 2. Infinity is one step past the largest finite value. Two NaNs are 0 apart
/// whatever their bits (NaN equals NaN by class); NaN and anything else are `u64::MAX` apart.
pub fn ulp_distance(a: f32, b: f32) -> u64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0,
        (false, false) => rank(a).abs_diff(rank(b)),
        _ => u64::MAX,
    }
}

/// The position of a value among all f32, counted from zero.
fn rank(value: f32) -> i64 {
    let magnitude = i64::from(value.abs().to_bits());
    if value.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::ulp_distance;

    #[test]
    fn zeros_of_both_signs_are_one_point() {
        assert_eq!(ulp_distance(0.0, -0.0), 0);
        let least = f32::from_bits(1);
        assert_eq!(ulp_distance(0.0, least), 1);
        assert_eq!(ulp_distance(-0.0, -least), 1);
        assert_eq!(ulp_distance(-least, least), 2);
    }

    #[test]
    fn distance_counts_steps_across_exponents() {
        assert_eq!(ulp_distance(1.0, 1.0), 0);
        assert_eq!(ulp_distance(1.0, 1f32.next_up()), 1);
        assert_eq!(ulp_distance(1f32.next_down(), 1f32.next_up()), 2);
        assert_eq!(ulp_distance(1.0, 2.0), 1 << 23);
        assert_eq!(ulp_distance(-1.0, 1.0), 2 * 0x3F80_0000);
        assert_eq!(ulp_distance(f32::MAX, f32::INFINITY), 1);
        assert_eq!(
            ulp_distance(f32::NEG_INFINITY, f32::INFINITY),
            2 * 0x7F80_0000
        );
    }

    #[test]
    fn nan_is_near_nan_only() {
        assert_eq!(ulp_distance(f32::NAN, -f32::NAN), 0);
        assert_eq!(ulp_distance(f32::NAN, f32::INFINITY), u64::MAX);
        assert_eq!(ulp_distance(0.0, f32::NAN), u64::MAX);
    }
}
