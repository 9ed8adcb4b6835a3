//! Checks how many bytes a layer's logical tensors take, before any is allocated.
//!
//! It must not allocate. Layer 4.

use super::error::FillError;
use crate::case::Case;
use crate::terms::{Bias, Extent, Route};

/// Most bytes that one layer may take before padding: 640 MiB, so that the largest layer that the
/// benches run (604 MB of f32 weights) still fits, and a check with its packed copies (768 MiB
/// each, `layout`) stays near 2 GiB.
pub const BYTES_MAX: u64 = 640 << 20;
/// Most scores that routing may look at, tokens times experts times choices: choosing compares
/// each with each. 64 tokens of 512 experts, 22 chosen, are 720,896.
const CHOICES_MAX: u64 = 1 << 22;
/// Bytes of what is computed for an element of the output: the output, a rank's part and the
/// unpadded output in f32; value, bound and limit in f64, with a spare.
const OUTPUT_BYTES: u64 = 48;
/// Bytes of what is kept for a choice of a token: ids, weights, bounds and sorted places on both
/// sides, measured as 320 with one choice a token.
const CHOICE_BYTES: u64 = 320;

/// A tensor, the keys and values of its sizes, and the bytes of an element.
type Wanted = (&'static str, [(&'static str, u64); 3], u64);

/// Blocks of an axis of `n` elements.
pub(super) fn blocks(extent: Extent, n: u64) -> u64 {
    match extent {
        Extent::All => 1,
        Extent::Block(b) => n.div_ceil(b),
    }
}

/// Refuses a layer whose tensors would exceed [`BYTES_MAX`], naming the size to blame.
pub(super) fn check(case: &Case) -> Result<(), FillError> {
    let Case { t, e, k, h, i, .. } = *case;
    let halves = case.act.halves();
    let element = case.w.element().bits().div_ceil(8);
    let mut wanted: Vec<Wanted> = vec![
        ("w13", [("e", e), ("h", h), ("i", i)], halves * element),
        ("w2", [("e", e), ("h", h), ("i", i)], element),
        ("x", [("t", t), ("h", h), ("", 1)], 4),
        ("the output", [("t", t), ("h", h), ("", 1)], OUTPUT_BYTES),
        ("routing", [("t", t), ("k", k), ("", 1)], CHOICE_BYTES),
    ];
    wanted.push(match case.route {
        Route::Given => ("router", [("t", t), ("k", k), ("", 1)], 8),
        _ => ("router", [("t", t), ("e", e), ("", 1)], 4),
    });
    // Identity experts have no weights that would limit their number: their biases, and the order that given ones are drawn
    // in.
    wanted.push(("router", [("zero", case.zero), ("", 1), ("", 1)], 8));
    if case.route != Route::Given {
        wanted.push(("router", [("t", t), ("zero", case.zero), ("", 1)], 4));
    }
    if case.bias == Bias::Both {
        wanted.push(("w13_bias", [("e", e), ("i", i), ("", 1)], halves * 4));
        wanted.push(("w2_bias", [("e", e), ("h", h), ("", 1)], 4));
    }
    if let Some(grid) = case.w.scale() {
        let bytes = grid.dtype.bits().div_ceil(8);
        let w13 = [("h", blocks(grid.cols, h)), ("i", blocks(grid.rows, i))];
        let w2 = [("h", blocks(grid.rows, h)), ("i", blocks(grid.cols, i))];
        wanted.push(("w13_scale", [("e", e), w13[0], w13[1]], halves * bytes));
        wanted.push(("w2_scale", [("e", e), w2[0], w2[1]], bytes));
    }
    let mut sum: u128 = 0;
    for (tensor, sizes, width) in wanted {
        // Saturating: sizes up to 2^40 each leave even 128 bits when all meet in one product.
        let product = sizes
            .iter()
            .fold(u128::from(width), |a, &(_, n)| a.saturating_mul(n.into()));
        sum = sum.saturating_add(product);
        if sum > u128::from(BYTES_MAX) {
            let own = |key| {
                [
                    ("t", t),
                    ("e", e),
                    ("k", k),
                    ("h", h),
                    ("i", i),
                    ("zero", case.zero),
                ]
                .into_iter()
                .find(|(name, _)| *name == key)
            };
            let (key, value) = sizes
                .iter()
                .filter_map(|&(key, _)| own(key))
                .max_by_key(|&(_, n)| n)
                .unwrap_or(("h", h));
            return Err(FillError::TooLarge {
                key,
                value,
                tensor,
                bytes: sum,
            });
        }
    }
    if t.saturating_mul(case.choices()).saturating_mul(k) > CHOICES_MAX {
        let (e, zero) = (case.e, case.zero);
        return Err(FillError::TooManyChoices { t, k, e, zero });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let case: Case = line.parse().expect("a case");
        check(&case).expect_err(line).to_string()
    }

    #[test]
    fn what_a_check_computes_counts_as_well_as_what_is_drawn() {
        assert!(refusal("t=20000000,h=1,i=1,e=1,k=1").starts_with("t=20000000 is too large"));
        assert!(refusal("t=5000000,h=1,i=1,e=1,k=1").contains("with routing"));
        assert!(
            refusal("t=1,e=10000,k=10000,h=1,i=1").starts_with("t=1, k=10000, e=10000: choosing")
        );
        // What has no weights is counted too, with no tokens to choose for.
        for route in ["given", "softmax-bias"] {
            let line = format!("t=0,zero=1099511627776,route={route}");
            assert!(refusal(&line).starts_with("zero=1099511627776 is too large to fill"));
        }
    }

    #[test]
    fn the_largest_layer_of_the_benches_is_not_too_large() {
        let case: Case = "t=64,h=4096,i=1536,e=8,k=2,w=f32".parse().expect("a case");
        assert_eq!(check(&case), Ok(()));
    }
}
