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
