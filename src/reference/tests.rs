//! The reference against numbers from elsewhere: Python's math, and layers small enough to
//! compute by hand.

use super::activation::{gate, gate_change, up};
use super::bound::{U, gamma};
use super::quantise;
use super::{Reference, ReferenceError, reference};
use crate::case::Case;
use crate::tensor::{Logical, RouterInput, Tensor};
use crate::terms::{ActQuant, Activation, Bias, Fill, Route, WeightFormat};
use std::collections::BTreeMap;

/// Made by tests/data/activations.py.
const ACTIVATIONS: &str = include_str!("../../tests/data/activations.json");

#[test]
fn activations_are_those_of_an_independent_computation() {
    let table: BTreeMap<String, Vec<[f64; 3]>> =
        serde_json::from_str(ACTIVATIONS).expect("rows of gate, up and value");
    for &act in Activation::ALL {
        for &[g, u, wanted] in &table[act.name()] {
            let actual = gate(act, g) * up(act, u);
            // f64 libraries differ by some ulp, of the gate where erf or tanh cancels.
            let slack = 1e-14 * wanted.abs().max(g.abs() * u.abs().max(1.0));
            assert!(
                (actual - wanted).abs() <= slack,
                "{act}({g}, {u}) = {actual}"
            );
        }
    }
}

#[test]
fn no_activation_changes_more_than_its_slope_allows() {
    for &act in Activation::ALL {
        for step in -8000..8000 {
            let g = f64::from(step) / 400.0;
            for e in [1e-6, 1e-2, 0.5] {
                let change = gate_change(act, g, e);
                for near in [g - e, g - e / 2.0, g + e / 2.0, g + e] {
                    let moved = (gate(act, near) - gate(act, g)).abs();
                    assert!(
                        moved <= change * (1.0 + 1e-9) + 1e-12,
                        "{act} at {g} by {e}"
                    );
                }
            }
        }
    }
}

/// The smallest layer: everything f32, no scales, one rank.
fn tiny(act: Activation, h: u64, i: u64) -> Case {
    Case {
        t: 1,
        e: 1,
        k: 1,
        h,
        i,
        act,
        route: Route::Given,
        ..Case::default()
    }
}

fn logical(case: &Case, x: &[f32], w13: &[f32], w2: &[f32]) -> Logical {
    let [t, e, h, i] = [case.t, case.e, case.h, case.i].map(|n| n as usize);
    let rows = case.act.halves() as usize * i;
    let chosen = t * case.k as usize;
    Logical {
        x: Tensor::from_f32("x", &[t, h], x),
        router: RouterInput::Given {
            ids: vec![0; chosen],
            weights: vec![1.0; chosen],
        },
        w13: Tensor::from_f32("w13", &[e, rows, h], w13),
        w2: Tensor::from_f32("w2", &[e, h, i], w2),
        w13_scale: None,
        w2_scale: None,
        w13_global: None,
        w2_global: None,
        w13_bias: None,
        w2_bias: None,
        x_scale: 1.0,
        h_scale: 1.0,
    }
}

fn computed(case: &Case, logical: &Logical) -> Reference {
    reference(case, logical).expect("a layer of matching tensors")
}

#[test]
fn a_gated_layer_is_what_a_hand_computes() {
    // Two inputs, two channels: gates 3 and -2, ups 1 and 2.
    let case = tiny(Activation::SwigluOai, 2, 2);
    let tensors = logical(
        &case,
        &[1.0, 2.0],
        &[1.0, 1.0, 0.0, -1.0, -1.0, 1.0, 0.0, 1.0],
        &[1.0, 0.0, 1.0, 2.0],
    );
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let alpha = f64::from(1.702f32);
    let first = 3.0 * logistic(3.0 * alpha) * 2.0;
    let second = -2.0 * logistic(-2.0 * alpha) * 3.0;
    let actual = computed(&case, &tensors).values;
    assert!((actual[0] - first).abs() < 1e-12);
    assert!((actual[1] - (first + 2.0 * second)).abs() < 1e-12);
}

#[test]
fn biases_weights_and_factor_enter_where_they_belong() {
    let case = Case {
        bias: Bias::Both,
        factor: 2500,
        ..tiny(Activation::Relu2, 1, 1)
    };
    let mut tensors = logical(&case, &[2.0], &[3.0], &[0.5]);
    tensors.w13_bias = Some(Tensor::from_f32("w13_bias", &[1, 1], &[-1.0]));
    tensors.w2_bias = Some(Tensor::from_f32("w2_bias", &[1, 1], &[4.0]));
    tensors.router = RouterInput::Given {
        ids: vec![0],
        weights: vec![0.25],
    };
    // (2 * 3 - 1)^2 / 2 + 4 = 16.5, times 0.25 * 2.5.
    let actual = computed(&case, &tensors);
    assert_eq!(actual.values, [16.5 * 0.625]);
    assert_eq!(actual.weights, [0.625]);
}

#[test]
fn scales_multiply_the_blocks_and_halves_they_belong_to() {
    // One row a half, 32 columns: two blocks of 16 a row, one second-level scale a half.
    let case = Case {
        w: WeightFormat::Nvfp4,
        ..tiny(Activation::SwigluStep, 32, 1)
    };
    let mut tensors = logical(&case, &[1.0; 32], &[0.0; 64], &[0.0; 32]);
    // E2M1 code 2 is 1; E4M3 codes 0x38, 0x40 and 0x48 are 1, 2 and 4.
    let codes = |name, shape: &[usize], code: u8| {
        let mut tensor = Tensor::zeroed(name, shape, 8);
        tensor.bytes_mut().fill(code);
        tensor
    };
    tensors.w13 = codes("w13", &[1, 2, 32], 2);
    tensors.w2 = codes("w2", &[1, 32, 1], 2);
    let mut scale = codes("w13_scale", &[1, 2, 2], 0x38);
    scale.bytes_mut().copy_from_slice(&[0x38, 0x40, 0x40, 0x48]);
    tensors.w13_scale = Some(scale);
    tensors.w2_scale = Some(codes("w2_scale", &[1, 32, 1], 0x38));
    let globals = [0.25, 0.03125];
    tensors.w13_global = Some(Tensor::from_f32("w13_scale_2", &[1, 2], &globals));
    tensors.w2_global = Some(Tensor::from_f32("w2_scale_2", &[1, 1], &[0.5]));
    // Gate 16 (1 + 2) / 4 = 12, clamped to 7 after silu; up 16 (2 + 4) / 32 = 3.
    assert_eq!(computed(&case, &tensors).values, [7.0 * 3.0 * 0.5; 32]);
}

/// The routing of one token with these logits.
fn routed(case: &Case, logits: &[f32], bias: &[f32]) -> Reference {
    let (e, k) = (logits.len() as u64, case.k);
    let case = Case {
        e,
        k,
        ..case.clone()
    };
    let n = e as usize;
    let mut tensors = logical(&case, &[1.0], &vec![1.0; n], &vec![1.0; n]);
    tensors.router = RouterInput::Logits {
        logits: logits.to_vec(),
        bias: bias.to_vec(),
    };
    computed(&case, &tensors)
}

fn router(route: Route, k: u64) -> Case {
    Case {
        k,
        route,
        ..tiny(Activation::Identity, 1, 1)
    }
}

fn close(actual: &[f64], wanted: &[f64]) {
    assert_eq!(actual.len(), wanted.len());
    for (a, w) in actual.iter().zip(wanted) {
        assert!((a - w).abs() < 1e-12, "{actual:?} is not {wanted:?}");
    }
}

#[test]
fn routers_weigh_as_the_facts_say() {
    // ln 1, ln 2, ln 3, ln 4: softmax is 0.1, 0.2, 0.3, 0.4; sigmoid is 1/2, 2/3, 3/4, 4/5.
    let logits = [1.0f32, 2.0, 3.0, 4.0].map(f32::ln);
    let near = |actual: &[f64], wanted: &[f64]| {
        for (a, w) in actual.iter().zip(wanted) {
            // The logits are rounded to f32.
            assert!((a - w).abs() < 1e-6, "{actual:?} is not {wanted:?}");
        }
    };
    let zero = [0.0; 4];
    let root = |l: f64| (1.0 + l).ln().sqrt();
    let roots = [root(4.0), root(3.0)];
    let sum = roots[0] + roots[1];
    let cap = |l: f64| (30.0 * (l.ln() / 30.0).tanh()).exp();
    let capped: f64 = [1.0, 2.0, 3.0, 4.0].into_iter().map(cap).sum();
    for (route, bias, wanted) in [
        (Route::Softmax, &[][..], [0.4, 0.3]),
        (Route::SoftmaxRenorm, &[], [4.0 / 7.0, 3.0 / 7.0]),
        (Route::TopkSoftmax, &[], [4.0 / 7.0, 3.0 / 7.0]),
        (Route::Sigmoid, &[], [0.8, 0.75]),
        (Route::SigmoidRenorm, &[], [0.8 / 1.55, 0.75 / 1.55]),
        (Route::SigmoidBias, &zero, [0.8 / 1.55, 0.75 / 1.55]),
        (Route::SqrtSoftplusBias, &zero, roots.map(|r| r / sum)),
        (Route::SoftmaxBias, &zero, [0.4, 0.3]),
        (Route::SoftmaxBiasRenorm, &zero, [4.0 / 7.0, 3.0 / 7.0]),
        (Route::GroupedSoftmax, &[], [0.4, 0.3]),
        (Route::GroupedSigmoidBias, &zero, [0.8 / 1.55, 0.75 / 1.55]),
        (
            Route::TanhCapped,
            &[],
            [cap(4.0) / capped, cap(3.0) / capped],
        ),
    ] {
        let found = routed(&router(route, 2), &logits, bias);
        assert_eq!(found.ids, [3, 2], "{route}");
        near(&found.weights, &wanted);
        assert!(!found.ambiguous[0], "{route}");
    }
}

#[test]
fn a_bias_chooses_experts_and_never_weighs_them() {
    let found = routed(&router(Route::SoftmaxBias, 1), &[0.0, 0.0], &[0.0, 0.5]);
    assert_eq!((found.ids, found.weights), (vec![1], vec![0.5]));
}

#[test]
fn dropped_groups_never_come_back_through_underflow() {
    // facts/peers.md F13: the kept group's second expert has probability 0, as all others have.
    let case = Case {
        groups: 2,
        keep: 1,
        ..router(Route::GroupedSoftmax, 2)
    };
    assert_eq!(routed(&case, &[200.0, 0.0, 0.0, 0.0], &[]).ids, [0, 1]);
}

#[test]
fn more_experts_than_the_kept_groups_hold_are_refused() {
    // facts/peers.md F12: stacks give three different answers, so there is no reference.
    let case = Case {
        e: 4,
        groups: 2,
        keep: 1,
        ..router(Route::GroupedSoftmax, 3)
    };
    let tensors = logical(&case, &[1.0], &[1.0; 4], &[1.0; 4]);
    assert!(matches!(
        reference(&case, &tensors),
        Err(ReferenceError::Invalid(_))
    ));
}

#[test]
fn groups_of_a_biased_router_rank_by_their_two_best() {
    let case = Case {
        groups: 2,
        keep: 1,
        ..router(Route::GroupedSigmoidBias, 2)
    };
    // One strong expert in the first group, two good ones in the second.
    let found = routed(&case, &[3.0, -9.0, 1.0, 1.0], &[0.0; 4]);
    assert_eq!(found.ids, [2, 3]);
    close(&found.weights, &[0.5, 0.5]);
}

#[test]
fn llama4_weighs_the_input_and_not_the_output() {
    let case = Case {
        e: 2,
        act: Activation::Relu2,
        ..router(Route::Llama4, 1)
    };
    let mut tensors = logical(&case, &[2.0], &[1.0, 3.0], &[1.0, 1.0]);
    tensors.router = RouterInput::Logits {
        logits: vec![-1.0, 0.0],
        bias: vec![],
    };
    // sigmoid(0) = 1/2: (3 * 2 / 2)^2 = 9; on the output it would be 18.
    close(&computed(&case, &tensors).values, &[9.0]);
}

#[test]
fn exact_ties_go_to_the_lower_id_and_near_ties_are_ambiguous() {
    let score = 0.3f32;
    let tie = routed(&router(Route::Softmax, 1), &[score, score], &[]);
    assert_eq!((tie.ids, tie.ambiguous), (vec![0], vec![false]));
    let logits = [score, score.next_up()];
    let near = routed(&router(Route::Softmax, 1), &logits, &[]);
    assert_eq!((near.ids, near.ambiguous), (vec![1], vec![true]));
    let bare = routed(&router(Route::TopkSoftmax, 1), &logits, &[]);
    assert_eq!((bare.ids, bare.ambiguous), (vec![1], vec![false]));
    let apart = routed(&router(Route::Softmax, 1), &[score, 0.301], &[]);
    assert!(!apart.ambiguous[0] && apart.route_gap[0] > 10.0);
}

#[test]
fn tensors_that_are_not_the_cases_are_named() {
    let case = tiny(Activation::Relu, 2, 2);
    let good = logical(&case, &[1.0; 2], &[1.0; 4], &[1.0; 4]);
    let message = |change: &dyn Fn(&mut Logical)| {
        let mut bad = good.clone();
        change(&mut bad);
        match reference(&case, &bad) {
            Ok(_) => panic!("computed"),
            Err(error) => error.to_string(),
        }
    };
    let wide = Tensor::zeroed("w2", &[1, 2, 3], 32);
    assert_eq!(
        message(&|l| l.w2 = wide.clone()),
        "w2 has shape [1, 2, 3], wanted [1, 2, 2]"
    );
    let given = |id| RouterInput::Given {
        ids: vec![id],
        weights: vec![1.0],
    };
    assert_eq!(
        message(&|l| l.router = given(7)),
        "token 0 is given expert 7, which does not exist"
    );
    let logits = RouterInput::Logits {
        logits: vec![0.0],
        bias: vec![],
    };
    assert_eq!(message(&|l| l.router = logits.clone()), "router is missing");
    let case = router(Route::Softmax, 1);
    let mut tensors = logical(&case, &[1.0], &[1.0], &[1.0]);
    tensors.router = RouterInput::Logits {
        logits: vec![f32::NAN],
        bias: vec![],
    };
    let error = reference(&case, &tensors).expect_err("NaN has no place in an order");
    assert_eq!(
        error.to_string(),
        "router logit=NaN of expert 0 is not finite"
    );
}

#[test]
fn the_bound_holds_for_the_worst_order_and_is_not_far_above_it() {
    // Sums of h ones and one large value, f32, adversarial order: each addition rounds.
    let h = 64u64;
    let case = tiny(Activation::Identity, h, 1);
    let mut x = vec![1.0f32 + 2.0 * f32::EPSILON; h as usize];
    x[0] = 1.0;
    let tensors = logical(&case, &x, &vec![1.0; h as usize], &vec![1.0; h as usize]);
    let found = computed(&case, &tensors);
    let sequential = x.iter().fold(0.0f32, |sum, v| sum + v);
    let error = (f64::from(sequential) - found.values[0]).abs();
    assert!(error > 0.0 && error <= found.bound[0], "{error}");
    // n u of the sum of magnitudes, twice, at most.
    let terms = gamma(2.0 * (h as f64 + 32.0)) * found.values[0];
    assert!(found.bound[0] < terms, "{} against {terms}", found.bound[0]);
    assert!(found.bound[0] > U * found.values[0]);
}

#[test]
fn every_quantised_value_lies_within_what_widening_adds() {
    // Round to E4M3 by hand: three mantissa bits, steps of 2^-9 below 2^-6, at most 448.
    let e4m3 = |v: f64| {
        let exponent = v.abs().max(1.0 / 64.0).log2().floor();
        let step = 2f64.powf(exponent - 3.0);
        ((v / step).round() * step).clamp(-448.0, 448.0)
    };
    let values: Vec<f64> = (-3000..3000)
        .map(|n| f64::from(n) * f64::from(n).abs().sqrt() / 190.0)
        .collect();
    let amax = values.iter().fold(0.0, |m, v| f64::max(m, v.abs()));
    for (mode, scale) in [
        (ActQuant::Static, 0.5),
        (ActQuant::Static, 4.0),
        (ActQuant::Token, amax / 448.0),
        (ActQuant::Group, amax / 448.0),
    ] {
        let mut errors = vec![0.0; values.len()];
        quantise::widen(mode, scale as f32, &values, &mut errors);
        let mut largest = 0.0f64;
        for (v, error) in values.iter().zip(&errors) {
            let off = (e4m3(v / scale) * scale - v).abs();
            assert!(
                off <= *error,
                "{mode}: {v} is off by {off}, allowed {error}"
            );
            largest = largest.max(off / error);
        }
        assert!(largest > 0.5, "{mode}: the allowance is twice too large");
        assert!(!quantise::keeps(mode, scale as f32, &values));
    }
}

#[test]
fn no_tokens_give_an_empty_reference() {
    let case = Case {
        t: 0,
        fill: Fill::Wild,
        ..Case::default()
    };
    let tensors = crate::fill::fill(&case).expect("no tokens are legal");
    let found = computed(&case, &tensors);
    assert!(found.values.is_empty() && found.ids.is_empty() && found.ambiguous.is_empty());
}
