//! Checked 64-bit arithmetic of shapes.

use super::PlanError;

/// The least multiple of `a` that is at least `n`; None when it leaves 64 bits. `a` is at least 1.
pub(super) fn round_up(n: u64, a: u64) -> Option<u64> {
    n.div_ceil(a).checked_mul(a)
}

/// The product of `factors`, or which quantity overflowed.
pub(super) fn product(what: &'static str, factors: &[u64]) -> Result<u64, PlanError> {
    factors
        .iter()
        .try_fold(1u64, |a, &b| a.checked_mul(b))
        .ok_or_else(|| PlanError::Overflow {
            what,
            terms: factors
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(" * "),
        })
}

/// [`round_up`] with an error that names the quantity.
pub(super) fn padded(what: &'static str, n: u64, a: u64) -> Result<u64, PlanError> {
    round_up(n, a).ok_or_else(|| PlanError::Overflow {
        what,
        terms: format!("{n} rounded up to {a}"),
    })
}

/// Greatest common divisor; gcd(0, n) is n.
pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Least common multiple of two positive numbers, None when it leaves 64 bits.
pub(super) fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_up_is_the_least_multiple(n in 0u64..1 << 40, a in 1u64..1 << 20) {
            let up = round_up(n, a).unwrap();
            prop_assert!(up >= n && up - n < a && up.is_multiple_of(a));
        }

        #[test]
        fn lcm_is_a_common_multiple_and_divides_the_product(a in 1u64..1 << 20, b in 1u64..1 << 20) {
            let l = lcm(a, b).unwrap();
            prop_assert!(l.is_multiple_of(a) && l.is_multiple_of(b) && (a * b) % l == 0);
        }
    }

    #[test]
    fn overflow_is_an_error_not_a_wrap() {
        assert_eq!(round_up(u64::MAX, 128), None);
        assert_eq!(round_up(u64::MAX - 127, 128), Some(u64::MAX - 127));
        assert!(product("w13 bytes", &[1 << 40, 1 << 40]).is_err());
    }
}
