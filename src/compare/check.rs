//! Compares outputs: shape, NaN pattern, infinities, then distance.
//!
//! It must not allow a share of wrong elements: one is a wrong layout. Layer 6.

use super::types::{Bound, Comparison, Difference, Shape};
use crate::tensor::Output;

/// How one element fares.
enum Element {
    Agrees,
    ZeroSign,
    NanBoth,
    NanOne,
    Differs,
}

/// Compares an output with f64 values of the same shape, for example a reference's.
///
/// Under [`Bound::EqualBits`] a wanted value must be an f32 itself and equal. NaN equals NaN by
/// class; NaN on one side only differs, on either side; infinities must be equal whatever the
/// bound; a bound that is NaN allows nothing.
pub fn compare(wanted: &[f64], actual: &Output, bound: &Bound<'_>) -> Comparison {
    let tokens = wanted.len().checked_div(actual.hidden).unwrap_or(0);
    let shape = Shape {
        tokens,
        hidden: actual.hidden,
    };
    let whole = tokens.checked_mul(actual.hidden) == Some(wanted.len());
    let shape = if whole {
        shape
    } else {
        Shape {
            tokens: 1,
            hidden: wanted.len(),
        }
    };
    walk(shape, wanted.len(), |n| wanted[n], actual, bound)
}

/// Compares two outputs, for example of a padded and of an unpadded run.
pub fn compare_outputs(wanted: &Output, actual: &Output, bound: &Bound<'_>) -> Comparison {
    let shape = Shape {
        tokens: wanted.tokens,
        hidden: wanted.hidden,
    };
    walk(
        shape,
        wanted.values.len(),
        |n| wanted.values[n].into(),
        actual,
        bound,
    )
}

/// Whether two runs of one subject gave the same bits, zeros of either sign alike.
pub fn same_bits(wanted: &Output, actual: &Output) -> Comparison {
    let why = "the same operations in the same order".into();
    compare_outputs(wanted, actual, &Bound::EqualBits { why })
}

fn walk(
    wanted_shape: Shape,
    wanted_len: usize,
    wanted: impl Fn(usize) -> f64,
    actual: &Output,
    bound: &Bound<'_>,
) -> Comparison {
    let actual_shape = Shape {
        tokens: actual.tokens,
        hidden: actual.hidden,
    };
    let mut found = Comparison {
        elements: wanted_len,
        ..Comparison::default()
    };
    let limits_len = match bound {
        Bound::EqualBits { .. } => wanted_len,
        Bound::Derived { limits, .. } => limits.len(),
    };
    if wanted_shape != actual_shape || wanted_len != actual.values.len() || limits_len != wanted_len
    {
        found.shapes = Some((wanted_shape, actual_shape));
        return found;
    }
    for (n, &got) in actual.values.iter().enumerate() {
        let want = wanted(n);
        let limit = match bound {
            Bound::EqualBits { .. } => 0.0,
            Bound::Derived { limits, .. } => limits[n],
        };
        found.zeros += usize::from(want == 0.0);
        match element(want, got, limit) {
            Element::Agrees => continue,
            Element::ZeroSign => {
                found.zero_sign += 1;
                continue;
            }
            Element::NanBoth => {
                found.nan_both += 1;
                continue;
            }
            Element::NanOne => found.nan_one += 1,
            Element::Differs => {}
        }
        found.differing += 1;
        if found.first.len() < Comparison::FIRST_MAX {
            found.first.push(Difference {
                row: n / actual.hidden,
                col: n % actual.hidden,
                wanted: want,
                actual: got,
                bound: limit,
            });
        }
    }
    found.agree = found.differing == 0;
    found
}

fn element(wanted: f64, actual: f32, limit: f64) -> Element {
    let actual = f64::from(actual);
    match (wanted.is_nan(), actual.is_nan()) {
        (true, true) => return Element::NanBoth,
        (true, false) | (false, true) => return Element::NanOne,
        (false, false) => {}
    }
    if wanted == actual {
        let signs = wanted.is_sign_negative() == actual.is_sign_negative();
        return if wanted == 0.0 && !signs {
            Element::ZeroSign
        } else {
            Element::Agrees
        };
    }
    if wanted.is_infinite() || actual.is_infinite() {
        return Element::Differs;
    }
    // The difference is rounded in f64, 2^29 times finer than f32: it cannot hide an error that
    // the derivation counts. A NaN limit is below nothing.
    if (actual - wanted).abs() <= limit {
        Element::Agrees
    } else {
        Element::Differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(tokens: usize, hidden: usize, values: &[f32]) -> Output {
        Output {
            tokens,
            hidden,
            values: values.to_vec(),
            ids: Vec::new(),
            weights: Vec::new(),
        }
    }

    fn derived(limits: &[f64]) -> Bound<'_> {
        Bound::Derived {
            limits,
            derivation: "a test".into(),
        }
    }

    const BITS: Bound<'static> = Bound::EqualBits {
        why: std::borrow::Cow::Borrowed("a test"),
    };

    #[test]
    fn an_error_just_inside_a_derived_bound_agrees_and_just_outside_differs() {
        let limit = 0.25;
        let inside = compare(
            &[1.0, 2.0],
            &output(1, 2, &[1.25, 1.75]),
            &derived(&[limit; 2]),
        );
        assert!(inside.agree);
        for outside in [1.25f32.next_up(), 0.75f32.next_down()] {
            let found = compare(
                &[1.0, 2.0],
                &output(1, 2, &[outside, 2.0]),
                &derived(&[limit; 2]),
            );
            assert!(!found.agree);
            assert_eq!((found.differing, found.first[0].col), (1, 0));
            assert_eq!(found.first[0].bound, limit);
        }
    }

    #[test]
    fn equal_bits_allow_no_ulp() {
        assert!(compare(&[1.5], &output(1, 1, &[1.5]), &BITS).agree);
        for off in [1.5f32.next_up(), 1.5f32.next_down()] {
            assert!(!compare(&[1.5], &output(1, 1, &[off]), &BITS).agree);
            assert!(!compare_outputs(&output(1, 1, &[1.5]), &output(1, 1, &[off]), &BITS).agree);
        }
        // A wanted value that no f32 holds equals none.
        assert!(!compare(&[0.1], &output(1, 1, &[0.1]), &BITS).agree);
    }

    #[test]
    fn each_element_has_its_own_bound() {
        let found = compare(
            &[0.0; 4],
            &output(2, 2, &[0.5; 4]),
            &derived(&[1.0, 1.0, 0.1, 1.0]),
        );
        assert_eq!(found.differing, 1);
        assert_eq!((found.first[0].row, found.first[0].col), (1, 0));
    }

    #[test]
    fn nan_on_one_side_only_differs_on_either_side() {
        for bound in [BITS, derived(&[f64::INFINITY])] {
            let wanted_only = compare(&[f64::NAN], &output(1, 1, &[1.0]), &bound);
            let actual_only = compare(&[1.0], &output(1, 1, &[f32::NAN]), &bound);
            assert_eq!((wanted_only.agree, wanted_only.nan_one), (false, 1));
            assert_eq!((actual_only.agree, actual_only.nan_one), (false, 1));
        }
    }

    #[test]
    fn a_reference_of_nothing_but_nan_agrees_and_says_so() {
        let found = compare(&[f64::NAN; 2], &output(1, 2, &[f32::NAN; 2]), &BITS);
        assert!(found.agree && found.all_nan());
        assert!(!compare(&[1.0], &output(1, 1, &[1.0]), &BITS).all_nan());
    }

    #[test]
    fn infinities_must_be_equal_whatever_the_bound() {
        let wide = [f64::INFINITY];
        let inf = f64::INFINITY;
        assert!(compare(&[inf], &output(1, 1, &[f32::INFINITY]), &derived(&wide)).agree);
        assert!(!compare(&[inf], &output(1, 1, &[f32::NEG_INFINITY]), &derived(&wide)).agree);
        assert!(!compare(&[1.0], &output(1, 1, &[f32::INFINITY]), &derived(&wide)).agree);
        assert!(!compare(&[inf], &output(1, 1, &[1.0]), &derived(&wide)).agree);
    }

    #[test]
    fn a_nan_bound_allows_nothing_but_equality() {
        let limits = [f64::NAN];
        assert!(!compare(&[1.0], &output(1, 1, &[1.5]), &derived(&limits)).agree);
        assert!(compare(&[1.5], &output(1, 1, &[1.5]), &derived(&limits)).agree);
    }

    #[test]
    fn zeros_of_either_sign_agree_and_are_counted() {
        let found = compare_outputs(
            &output(1, 2, &[0.0, -0.0]),
            &output(1, 2, &[-0.0, -0.0]),
            &BITS,
        );
        assert!(found.agree);
        assert_eq!((found.zero_sign, found.zeros), (1, 2));
    }

    #[test]
    fn empty_outputs_agree_and_other_shapes_do_not() {
        assert!(compare(&[], &output(0, 4, &[]), &BITS).agree);
        assert!(compare_outputs(&output(0, 4, &[]), &output(0, 4, &[]), &derived(&[])).agree);
        let found = compare_outputs(&output(2, 1, &[0.0; 2]), &output(1, 2, &[0.0; 2]), &BITS);
        assert!(!found.agree && found.shapes.is_some());
        assert!(!compare(&[0.0; 3], &output(1, 2, &[0.0; 2]), &BITS).agree);
        assert!(!compare(&[0.0; 2], &output(1, 2, &[0.0; 2]), &derived(&[1.0])).agree);
    }

    #[test]
    fn at_most_ten_differences_are_kept_and_all_are_counted() {
        let found = compare(&[0.0; 30], &output(3, 10, &[1.0; 30]), &BITS);
        assert_eq!(
            (found.differing, found.first.len()),
            (30, Comparison::FIRST_MAX)
        );
        assert_eq!((found.first[9].row, found.first[9].col), (0, 9));
    }
}
