//! What the fills promise: the same values for ever, finite layers, and exact sums where said.

use padproof::case::Case;
use padproof::fill::{FillError, fill, is_exact};
use padproof::r#gen::{Domain, draw};
use padproof::num::Dtype;
use padproof::reference::reference;
use padproof::tensor::{Logical, RouterInput, Tensor};
use padproof::terms::{Activation, Extent, ScaleGrid};

/// Cases drawn from the full domain.
const CASES: u64 = 400;

fn drawn() -> impl Iterator<Item = Case> {
    (0..CASES).map(|index| draw(&Domain::FULL, 11, index))
}

fn codes(tensor: &Tensor) -> Vec<u32> {
    let width = tensor.bits() / 8;
    let little = |code, byte: &u8| code << 8 | u32::from(*byte);
    let elements = tensor.bytes().chunks_exact(width);
    elements.map(|e| e.iter().rev().fold(0, little)).collect()
}

#[test]
fn a_case_is_filled_the_same_way_every_time_and_another_seed_is_not() {
    for case in drawn().take(50) {
        let first = fill(&case).expect("a drawn case can be filled");
        assert_eq!(fill(&case), Ok(first.clone()), "{case}");
        let other = Case {
            seed: case.seed ^ 1,
            ..case.clone()
        };
        let other = fill(&other).expect("seeds do not matter to sizes");
        // The paint fill encodes indices; tiny layers may coincide.
        if case.fill.name() != "paint" && first.w13.bytes().len() > 64 {
            assert_ne!(other.w13.bytes(), first.w13.bytes(), "{case}");
        }
    }
}

#[test]
fn values_depend_on_their_index_and_not_on_padding_or_ranks() {
    for case in drawn().take(50) {
        let plain = Case {
            tp: 1,
            ep: 1,
            scheme: Case::default().scheme,
            ..case.clone()
        };
        assert_eq!(fill(&plain), fill(&case), "{case}");
    }
}

#[test]
fn no_code_is_a_nan_or_infinite_and_every_layer_is_finite() {
    for case in drawn() {
        let logical = fill(&case).expect("a drawn case can be filled");
        let element = case.w.element();
        let mut tensors = vec![(&logical.w13, element), (&logical.w2, element)];
        for scale in [&logical.w13_scale, &logical.w2_scale]
            .into_iter()
            .flatten()
        {
            tensors.push((scale, case.w.scale().expect("scaled").dtype));
        }
        for tensor in [
            &logical.w13_global,
            &logical.w2_global,
            &logical.w13_bias,
            &logical.w2_bias,
        ] {
            tensors.extend(tensor.iter().map(|t| (t, Dtype::F32)));
        }
        tensors.push((&logical.x, Dtype::F32));
        for (tensor, dtype) in tensors {
            let bad = codes(tensor)
                .into_iter()
                .find(|&c| !dtype.decode(c).is_finite());
            assert_eq!(bad, None, "{} of {case}", tensor.name());
        }
        let found = reference(&case, &logical).expect("a filled case has a reference");
        let largest = found
            .values
            .iter()
            .zip(&found.bound)
            .fold(0.0, |m, (v, b)| f64::max(m, v.abs() + b));
        assert!(largest < f64::from(f32::MAX), "{case}");
    }
}

#[test]
fn layers_too_large_to_hold_are_refused_before_anything_is_allocated() {
    let case: Case = "e=4,h=1048576,i=1024".parse().expect("a case");
    match fill(&case) {
        Err(error @ FillError::TooLarge { key: "h", .. }) => {
            let message = error.to_string();
            assert!(
                message.starts_with("h=1048576 is too large to fill"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// In which order a sum is taken.
#[derive(Debug, Clone, Copy)]
enum Order {
    Forward,
    Backward,
    Halves,
}

fn sum(order: Order, terms: &[f32]) -> f32 {
    match (order, terms) {
        (Order::Forward, _) => terms.iter().fold(0.0, |a, b| a + b),
        (Order::Backward, _) => terms.iter().rev().fold(0.0, |a, b| a + b),
        (Order::Halves, []) => 0.0,
        (Order::Halves, [one]) => *one,
        (Order::Halves, _) => {
            let (left, right) = terms.split_at(terms.len() / 2);
            sum(order, left) + sum(order, right)
        }
    }
}

/// One projection's weights in f32, [experts * rows, cols].
fn weights(
    element: Dtype,
    grid: Option<ScaleGrid>,
    tensors: [Option<&Tensor>; 3],
    halves: usize,
) -> Vec<f32> {
    let [tensor, scale, global] = tensors;
    let tensor = tensor.expect("a weight");
    let &[_, rows_all, cols] = tensor.shape() else {
        panic!("a weight has three axes");
    };
    let rows = rows_all / halves;
    let scale = scale.map(|s| (codes(s), s.shape()[1] / halves, s.shape()[2]));
    let block = |extent, n: usize| match extent {
        Extent::All => 0,
        Extent::Block(b) => n / b as usize,
    };
    let value = |(n, code): (usize, u32)| {
        let (row, col) = (n / cols % rows, n % cols);
        let half = n / cols / rows;
        let mut value = element.decode(code);
        if let (Some(grid), Some((scales, grid_rows, grid_cols))) = (grid, &scale) {
            let at = half * grid_rows + block(grid.rows, row);
            value *= grid
                .dtype
                .decode(scales[at * grid_cols + block(grid.cols, col)]);
        }
        value * global.map_or(1.0, |g| g.f32s()[half])
    };
    codes(tensor).into_iter().enumerate().map(value).collect()
}

/// The layer in f32, every sum in one order.
fn layer(case: &Case, logical: &Logical, order: Order) -> Vec<f32> {
    let [t, k, h, i] = [case.t, case.k, case.h, case.i].map(|n| n as usize);
    let (element, grid) = (case.w.element(), case.w.scale());
    let first = [
        Some(&logical.w13),
        logical.w13_scale.as_ref(),
        logical.w13_global.as_ref(),
    ];
    let second = [
        Some(&logical.w2),
        logical.w2_scale.as_ref(),
        logical.w2_global.as_ref(),
    ];
    let first = weights(element, grid, first, 1);
    let second = weights(element, grid, second, 1);
    let RouterInput::Given { ids, weights } = &logical.router else {
        panic!("exact cases are given their experts");
    };
    let bias = |tensor: &Option<Tensor>, n: usize| tensor.as_ref().map_or(0.0, |b| b.f32s()[n]);
    let dot = |a: &[f32], b: &[f32]| {
        let terms: Vec<f32> = a.iter().zip(b).map(|(a, b)| a * b).collect();
        sum(order, &terms)
    };
    let mut out = Vec::new();
    for token in 0..t {
        let x = &logical.x.f32s()[token * h..][..h];
        let mids: Vec<Vec<f32>> = (0..k)
            .map(|slot| {
                let start = ids[token * k + slot] as usize * i;
                let row = |r: usize| {
                    let y = dot(&first[r * h..][..h], x) + bias(&logical.w13_bias, r);
                    match case.act {
                        Activation::Relu => y.max(0.0),
                        Activation::Relu2 => y.max(0.0) * y.max(0.0),
                        _ => y,
                    }
                };
                (start..start + i).map(row).collect()
            })
            .collect();
        for col in 0..h {
            let terms: Vec<f32> = (0..k)
                .map(|slot| {
                    let r = ids[token * k + slot] as usize * h + col;
                    let z = dot(&second[r * i..][..i], &mids[slot]) + bias(&logical.w2_bias, r);
                    weights[token * k + slot] * (case.factor as f32 / 1000.0) * z
                })
                .collect();
            out.push(sum(order, &terms));
        }
    }
    out
}

#[test]
fn exact_cases_give_the_bits_of_f64_in_any_order_of_summation() {
    let (mut seen, mut nonzero) = (0, 0);
    for index in 0..4000 {
        let case = draw(&Domain::FULL, 12, index);
        if !is_exact(&case) || case.t * case.k * case.h * case.i > 1 << 20 {
            continue;
        }
        let logical = fill(&case).expect("a drawn case can be filled");
        let wanted = reference(&case, &logical).expect("a filled case has a reference");
        if !wanted.exact {
            continue;
        }
        seen += 1;
        nonzero += usize::from(wanted.values.iter().any(|v| *v != 0.0));
        for order in [Order::Forward, Order::Backward, Order::Halves] {
            for (n, actual) in layer(&case, &logical, order).into_iter().enumerate() {
                let wanted = wanted.values[n];
                assert_eq!(f64::from(actual), wanted, "element {n}, {order:?}: {case}");
            }
        }
    }
    assert!(
        seen >= 100 && nonzero * 4 > seen * 3,
        "{nonzero} of {seen} say something"
    );
}
