//! The reference against hand-made layers, committed values, and plain f32 in several orders.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod single;

use padproof::case::Case;
use padproof::compare::{Bound, compare};
use padproof::fill::{FillError, fill};
use padproof::r#gen::{Domain, draw};
use padproof::num::Dtype;
use padproof::reference::{Reference, ReferenceError, reference};
use padproof::tensor::{Logical, Output, RouterInput, Tensor};
use padproof::terms::{ActQuant, Activation, Extent, Fill, Route, WeightFormat};
use single::Order;

fn case(line: &str) -> Case {
    line.parse().unwrap()
}

fn run(case: &Case, logical: &Logical) -> Reference {
    reference(case, logical).unwrap_or_else(|e| panic!("{case}: {e}"))
}

/// Output as if a subject had computed it.
fn output(case: &Case, values: Vec<f32>) -> Output {
    let (tokens, hidden) = (case.t as usize, case.h as usize);
    Output {
        tokens,
        hidden,
        values,
        ids: Vec::new(),
        weights: Vec::new(),
    }
}

// ---------------------------------------------------------------- hand-made layers

/// One token, one expert, one channel: w13 holds gate (and up), x and w2 are 1.
fn one_channel(act: Activation, gate: f32, up: f32) -> f64 {
    let case = Case {
        act,
        ..case("t=1,e=1,k=1,h=1,i=1,route=given")
    };
    let mut logical = fill(&case).unwrap();
    logical.x.f32s_mut()[0] = 1.0;
    let halves = [gate, up];
    logical
        .w13
        .f32s_mut()
        .copy_from_slice(&halves[..act.halves() as usize]);
    logical.w2.f32s_mut()[0] = 1.0;
    logical.router = RouterInput::Given {
        ids: vec![0],
        weights: vec![1.0],
    };
    run(&case, &logical).values[0]
}

#[test]
fn activations_equal_values_computed_elsewhere() {
    let text = include_str!("../data/activations.json");
    let rows: serde_json::Value = serde_json::from_str(text).unwrap();
    for &act in Activation::ALL {
        let rows = rows[act.name()]
            .as_array()
            .unwrap_or_else(|| panic!("{act} has no values"));
        assert!(rows.len() >= 15, "{act}");
        for row in rows {
            let [g, u, wanted] = [0, 1, 2].map(|n| row[n].as_f64().unwrap());
            let got = one_channel(act, g as f32, u as f32);
            // gelu's 1 + erf cancels in both at large negative gates: absolute there.
            let near = (got - wanted).abs() <= 1e-13 * wanted.abs() + 1e-13 * g.abs();
            assert!(near, "{act}({g}, {u}) = {got}, wanted {wanted}");
        }
    }
}

#[test]
fn a_layer_small_enough_for_paper_comes_out_right() {
    // Two experts, two channels, two columns, both chosen; relu. By hand:
    // expert 0: y = [1*1+2*2, -1] = [5, -1], h = [5, 0], z = [5, 10] + bias [1, 0] = [6, 10]
    // expert 1: y = [2, 1] + bias [0, 3] = [2, 4], h = [2, 4], z = [2+4, -4] + [0, 1] = [6, -3]
    // factor 2.5, weights 1/2 and 1/4: 2.5 * ([3, 5] + [1.5, -0.75]) = [11.25, 10.625]
    let case = case("t=1,e=2,k=2,h=2,i=2,act=relu,route=given,bias=both,factor=2.5");
    let mut logical = fill(&case).unwrap();
    logical.x.f32s_mut().copy_from_slice(&[1.0, 2.0]);
    logical
        .w13
        .f32s_mut()
        .copy_from_slice(&[1., 2., -1., 0., 0., 1., 1., 0.]);
    logical
        .w2
        .f32s_mut()
        .copy_from_slice(&[1., 7., 2., 9., 1., 1., 0., -1.]);
    logical
        .w13_bias
        .as_mut()
        .unwrap()
        .f32s_mut()
        .copy_from_slice(&[0., 0., 0., 3.]);
    logical
        .w2_bias
        .as_mut()
        .unwrap()
        .f32s_mut()
        .copy_from_slice(&[1., 0., 0., 1.]);
    logical.router = RouterInput::Given {
        ids: vec![1, 0],
        weights: vec![0.25, 0.5],
    };
    let got = run(&case, &logical);
    assert_eq!(got.values, [11.25, 10.625]);
    assert_eq!(got.ids, [1, 0]);
    assert_eq!(got.weights, [0.625, 1.25]);
}

#[test]
fn llama4_multiplies_the_input_and_not_the_output() {
    // relu2 of a halved input is a quarter: 0.25 * 3^2, where output weighting gives 4.5.
    let case = case("t=1,e=2,k=1,h=1,i=1,act=relu2,route=llama4");
    let mut logical = fill(&case).unwrap();
    logical.x.f32s_mut()[0] = 3.0;
    logical.w13.f32s_mut().fill(1.0);
    logical.w2.f32s_mut().fill(1.0);
    logical.router = RouterInput::Logits {
        logits: vec![-1.0, 0.0],
        bias: Vec::new(),
    };
    let got = run(&case, &logical);
    assert_eq!((got.ids[0], got.weights[0], got.values[0]), (1, 0.5, 2.25));
}

#[test]
fn each_scale_multiplies_its_own_block() {
    // Every code is 1, so a weight is its scale; identity with x one-hot reads one column.
    for &w in WeightFormat::ALL {
        let Some(grid) = w.scale() else { continue };
        let case = Case {
            w,
            ..case("t=1,e=2,k=1,h=160,i=144,act=identity,route=given")
        };
        let mut logical = fill(&Case {
            fill: Fill::Wild,
            ..case.clone()
        })
        .unwrap();
        let one = w.element().one_code() as u8;
        logical.w13.bytes_mut().fill(one);
        logical
            .w2
            .bytes_mut()
            .fill(w.element().zero_code().unwrap() as u8);
        // Column 150 of the input, channel 140, output row 131, expert 1.
        let (col, channel, row) = (150, 140, 131);
        logical.x.f32s_mut().fill(0.0);
        logical.x.f32s_mut()[col] = 1.0;
        let at = (160 + row) * 144 + channel;
        logical.w2.bytes_mut()[at] = one;
        logical.router = RouterInput::Given {
            ids: vec![1],
            weights: vec![1.0],
        };
        let block = |e: Extent, n: usize| match e {
            Extent::All => 0,
            Extent::Block(b) => n / b as usize,
        };
        let scale = |t: &Tensor, r: usize, c: usize| {
            let (shape, width) = (t.shape(), t.bits() / 8);
            let n = (shape[1] + block(grid.rows, r)) * shape[2] + block(grid.cols, c);
            let code = t.bytes()[n * width..][..width].iter().rev();
            f64::from(
                grid.dtype
                    .decode(code.fold(0, |c, &b| c << 8 | u32::from(b))),
            )
        };
        let global = |t: &Option<Tensor>| t.as_ref().map_or(1.0, |t| f64::from(t.f32s()[1]));
        let first = scale(logical.w13_scale.as_ref().unwrap(), channel, col);
        let second = scale(logical.w2_scale.as_ref().unwrap(), row, channel);
        let wanted = first * global(&logical.w13_global) * second * global(&logical.w2_global);
        let got = run(&case, &logical).values[row];
        assert!(
            (got - wanted).abs() <= 1e-14 * wanted,
            "{w}: {got}, wanted {wanted}"
        );
    }
}

// ---------------------------------------------------------------- routing

fn routed(line: &str, logits: &[f32], bias: &[f32]) -> (Vec<u32>, Vec<f64>, Reference) {
    let case = case(line);
    let mut logical = fill(&case).unwrap();
    logical.router = RouterInput::Logits {
        logits: logits.to_vec(),
        bias: bias.to_vec(),
    };
    let got = run(&case, &logical);
    (got.ids.clone(), got.weights.clone(), got)
}

fn close(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (g, w) in got.iter().zip(wanted) {
        assert!((g - w).abs() < 1e-12, "{got:?}, wanted {wanted:?}");
    }
}

/// Logits of which softmax gives 1/10, 2/10, 3/10, 4/10 up to f32.
fn tenths() -> (Vec<f32>, Vec<f64>) {
    let logits: Vec<f32> = (1..5).map(|n| (n as f32).ln()).collect();
    let p: Vec<f64> = logits.iter().map(|&l| f64::from(l).exp()).collect();
    let sum: f64 = p.iter().sum();
    (logits, p.iter().map(|p| p / sum).collect())
}

#[test]
fn softmax_routers_weigh_as_they_say() {
    let (logits, p) = tenths();
    let two = p[3] + p[2];
    for (route, wanted) in [
        ("softmax", [p[3], p[2]]),
        ("softmax-renorm", [p[3] / two, p[2] / two]),
        ("topk-softmax", [p[3] / two, p[2] / two]),
    ] {
        let (ids, weights, _) = routed(&format!("t=1,route={route}"), &logits, &[]);
        assert_eq!(ids, [3, 2], "{route}");
        close(&weights, &wanted);
    }
    let (_, weights, _) = routed("t=1,route=softmax,factor=2.5", &logits, &[]);
    close(&weights, &[2.5 * p[3], 2.5 * p[2]]);
    let (_, capped, _) = routed("t=1,e=2,k=1,route=tanh-capped", &[300.0, 0.0], &[]);
    // 30 tanh(10) is just below 30.
    close(&capped, &[1.0 / (1.0 + (-30.0 * 10f64.tanh()).exp())]);
}

#[test]
fn a_bias_takes_part_in_the_choice_and_never_in_the_weight() {
    let (logits, p) = tenths();
    let bias = [1.0, 0.0, 0.0, 0.0];
    let two = p[0] + p[3];
    let (ids, weights, _) = routed("t=1,route=softmax-bias", &logits, &bias);
    assert_eq!(ids, [0, 3]);
    close(&weights, &[p[0], p[3]]);
    let (_, weights, _) = routed("t=1,route=softmax-bias-renorm", &logits, &bias);
    close(&weights, &[p[0] / two, p[3] / two]);
    // sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4; the bias lifts expert 2 over both.
    let ln3 = 3f32.ln();
    let three = 1.0 / (1.0 + (-f64::from(ln3)).exp());
    let logits = [0.0, ln3, 0.0];
    let (ids, weights, _) = routed("t=1,e=3,route=sigmoid-bias", &logits, &[0.0, 0.0, 0.5]);
    assert_eq!(ids, [2, 1]);
    close(&weights, &[0.5 / (0.5 + three), three / (0.5 + three)]);
    let (ids, weights, _) = routed("t=1,e=3,route=sigmoid", &logits, &[]);
    assert_eq!(ids, [1, 0]);
    close(&weights, &[three, 0.5]);
    let (_, weights, _) = routed("t=1,e=3,route=sigmoid-renorm", &logits, &[]);
    close(&weights, &[three / (three + 0.5), 0.5 / (three + 0.5)]);
    let soft = |l: f64| l.exp().ln_1p().sqrt();
    let (ids, weights, _) = routed(
        "t=1,e=3,route=sqrtsoftplus-bias",
        &[0.0, 2.0, -1.0],
        &[0.0, 0.0, 5.0],
    );
    assert_eq!(ids, [2, 1]);
    let sum = soft(-1.0) + soft(2.0);
    close(&weights, &[soft(-1.0) / sum, soft(2.0) / sum]);
}

#[test]
fn dropped_groups_are_out_even_when_kept_scores_underflow() {
    // facts/peers.md F13: {0, 1}, never an expert of the other group.
    let line = "t=1,e=4,k=2,route=grouped-softmax,groups=2,keep=1";
    let (ids, weights, _) = routed(line, &[200.0, 0.0, 0.0, 0.0], &[]);
    assert_eq!(ids, [0, 1]);
    assert_eq!(weights[0], 1.0);
    // Negative biased scores must beat a dropped group's masked zero.
    let line = "t=1,e=4,k=2,route=grouped-sigmoid-bias,groups=2,keep=1";
    let (ids, _, _) = routed(line, &[0.0; 4], &[-2.0, -3.0, -4.0, -5.0]);
    assert_eq!(ids, [0, 1]);
}

#[test]
fn groups_rank_by_their_maximum_or_by_their_two_best() {
    let logits = [2.0, -9.0, 1.5, 1.5];
    let (ids, ..) = routed(
        "t=1,e=4,k=1,route=grouped-softmax,groups=2,keep=1",
        &logits,
        &[],
    );
    assert_eq!(ids, [0]);
    let line = "t=1,e=4,k=1,route=grouped-sigmoid-bias,groups=2,keep=1";
    let (ids, ..) = routed(line, &logits, &[0.0; 4]);
    assert_eq!(ids, [2]);
}

#[test]
fn more_experts_than_the_kept_groups_hold_are_refused() {
    let mut case = case("t=1,e=4,k=2,route=grouped-softmax,groups=2,keep=1");
    let logical = fill(&case).unwrap();
    case.k = 3;
    assert!(matches!(
        reference(&case, &logical),
        Err(ReferenceError::Invalid(_))
    ));
    assert!(matches!(fill(&case), Err(FillError::Invalid(_))));
}

#[test]
fn ties_go_to_the_lower_id_and_near_ties_are_called_ambiguous() {
    let (ids, _, got) = routed("t=1,e=4,route=softmax-renorm", &[1.0; 4], &[]);
    assert_eq!((ids, got.ambiguous[0]), (vec![0, 1], false));
    let near = [1.0f32, 2.0, 1.0f32.next_up(), 0.0];
    let (ids, _, got) = routed("t=1,e=4,route=softmax-renorm", &near, &[]);
    assert_eq!((ids, got.ambiguous[0]), (vec![1, 2], true));
    // Both saturate to 1 in f32; f64 tells them apart.
    let (_, _, got) = routed("t=1,e=2,k=1,route=sigmoid", &[40.0, 41.0], &[]);
    assert!(got.ambiguous[0]);
    // A router that compares logits sees every ulp.
    let (_, _, got) = routed("t=1,e=4,route=topk-softmax", &near, &[]);
    assert!(!got.ambiguous[0]);
    let (_, _, got) = routed("t=1,e=4,route=softmax-renorm", &[1.0, 2.0, 1.01, 0.0], &[]);
    assert!(!got.ambiguous[0]);
    // Groups within an ulp of each other are ambiguous too.
    let line = "t=1,e=4,k=1,route=grouped-sigmoid-bias,groups=2,keep=1";
    let (_, _, got) = routed(line, &[1.0, 0.0, 1.0f32.next_up(), 0.0], &[0.0; 4]);
    assert!(got.ambiguous[0]);
}

#[test]
fn senseless_router_inputs_are_refused() {
    let case = case("t=1,e=2,k=2,route=given");
    let logical = fill(&case).unwrap();
    for (ids, why) in [
        (vec![0, 2], "does not exist"),
        (vec![1, 1], "it already has"),
    ] {
        let router = RouterInput::Given {
            ids,
            weights: vec![1.0; 2],
        };
        let error = reference(
            &case,
            &Logical {
                router,
                ..logical.clone()
            },
        )
        .unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let softmax = self::case("t=1,e=2,k=1,route=softmax");
    let logical = fill(&softmax).unwrap();
    let router = RouterInput::Logits {
        logits: vec![0.0, f32::NAN],
        bias: vec![],
    };
    assert!(
        reference(
            &softmax,
            &Logical {
                router,
                ..logical.clone()
            }
        )
        .is_err()
    );
    let wider = self::case("t=1,e=2,k=1,h=65,route=softmax");
    assert!(matches!(
        reference(&wider, &logical),
        Err(ReferenceError::Shape { .. })
    ));
}

// ---------------------------------------------------------------- fill

#[test]
fn a_value_depends_on_its_own_index_alone() {
    for fill_kind in ["exact", "wild", "paint", "edge"] {
        let line = |t| format!("t={t},e=4,k=2,h=40,i=24,w=bf16,fill={fill_kind},seed=5");
        let (few, many) = (
            fill(&case(&line(3))).unwrap(),
            fill(&case(&line(9))).unwrap(),
        );
        assert_eq!(few.w13, many.w13);
        assert_eq!(few.x.f32s()[..], many.x.f32s()[..3 * 40], "{fill_kind}");
        let (RouterInput::Logits { logits: a, .. }, RouterInput::Logits { logits: b, .. }) =
            (&few.router, &many.router)
        else {
            panic!("logits")
        };
        assert_eq!(a[..], b[..a.len()]);
    }
    let given = |t| {
        fill(&case(&format!("t={t},e=8,k=3,route=given")))
            .unwrap()
            .router
    };
    let (RouterInput::Given { ids: a, .. }, RouterInput::Given { ids: b, .. }) =
        (given(2), given(7))
    else {
        panic!("ids")
    };
    assert_eq!(a[..], b[..a.len()]);
}

#[test]
fn padding_sharding_and_the_rule_change_no_value() {
    let plain = fill(&case("w=nvfp4,fill=wild")).unwrap();
    assert_eq!(
        plain,
        fill(&case("w=nvfp4,fill=wild,tp=4,pad=h128.i256.t8,order=int8")).unwrap()
    );
    assert_ne!(plain, fill(&case("w=nvfp4,fill=wild,seed=1")).unwrap());
}

#[test]
fn no_fill_draws_a_nan_code_and_wild_uses_every_other_code() {
    for &w in WeightFormat::ALL {
        for &kind in Fill::ALL {
            let case = Case {
                w,
                fill: kind,
                ..case("t=2,e=4,k=2,h=128,i=128")
            };
            let logical = fill(&case).unwrap();
            let width = logical.w13.bits() / 8;
            let mut seen = std::collections::BTreeSet::new();
            for code in logical.w13.bytes().chunks(width) {
                let code = code.iter().rev().fold(0, |c, &b| c << 8 | u32::from(b));
                assert!(
                    w.element().decode(code).is_finite(),
                    "{w} {kind} code {code:#x}"
                );
                seen.insert(code);
            }
            // Narrow formats draw all their finite codes; wide ones 256 of very many, some twice.
            let least = match w.element() {
                Dtype::E4m3 => 254,
                Dtype::E2m1 | Dtype::Int4 => 16,
                Dtype::Int8 => 256,
                _ => 200,
            };
            if kind == Fill::Wild {
                assert!(seen.len() >= least, "{w} draws {} codes", seen.len());
            }
            for scale in [&logical.w13_scale, &logical.w2_scale]
                .into_iter()
                .flatten()
            {
                let dtype = w.scale().unwrap().dtype;
                for code in scale.bytes().chunks(scale.bits() / 8) {
                    let code = code.iter().rev().fold(0, |c, &b| c << 8 | u32::from(b));
                    let value = dtype.decode(code);
                    assert!(value.is_finite() && value > 0.0, "{w} {kind} scale {value}");
                }
            }
        }
    }
}

#[test]
fn paint_repeats_after_251_elements_and_not_before() {
    let logical = fill(&case("t=1,e=1,k=1,h=256,i=8,fill=paint")).unwrap();
    let w = logical.w13.f32s();
    let distinct: std::collections::BTreeSet<u32> = w[..251].iter().map(|v| v.to_bits()).collect();
    assert_eq!(distinct.len(), 251);
    assert_eq!(w[..251], w[251..502]);
}

#[test]
fn given_ids_are_distinct_and_experts_are_often_empty() {
    let mut empty = 0;
    for seed in 0..200 {
        let case = Case {
            seed,
            ..case("t=16,e=8,k=3,route=given")
        };
        let RouterInput::Given { ids, weights } = fill(&case).unwrap().router else {
            panic!("ids")
        };
        for ids in ids.chunks(3) {
            assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        }
        assert!(weights.iter().all(|w| [1.0, 0.5, 0.25].contains(w)));
        empty += usize::from((0..8).any(|e| !ids.contains(&e)));
    }
    assert!(
        (60..180).contains(&empty),
        "{empty} of 200 cases have an empty expert"
    );
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    for (line, key, value) in [
        ("h=1099511627776", "h", 1u64 << 40),
        ("i=1099511627776", "i", 1 << 40),
        ("e=1099511627776,h=1,i=1", "e", 1 << 40),
        ("t=1099511627776,h=1,i=1", "t", 1 << 40),
        (
            "t=1099511627776,e=1099511627776,h=1099511627776,i=1099511627776",
            "e",
            1 << 40,
        ),
        (
            "t=1,e=1099511627776,k=1099511627776,h=1,i=1,route=given",
            "e",
            1 << 40,
        ),
    ] {
        let error = fill(&case(line)).unwrap_err();
        let FillError::TooLarge {
            key: named,
            value: at,
            ..
        } = &error
        else {
            panic!("{line}: {error}")
        };
        assert_eq!(*at, value, "{line}");
        assert!(
            line.contains(&format!("{named}={value}")),
            "{line}: {error}"
        );
        assert!(
            error.to_string().starts_with(&format!("{named}={value}")),
            "{key}: {error}"
        );
    }
}

// ---------------------------------------------------------------- exactness and bounds

#[test]
fn exact_cases_give_the_same_bits_in_every_order() {
    let (mut exact, mut nonzero) = (0, 0);
    for index in 0..300 {
        let mut case = draw(&Domain::FULL, 11, index);
        case.fill = Fill::Exact;
        case.t = case.t.min(6);
        case.h = case.h.min(160);
        case.i = case.i.min(160);
        // Two thirds are made such that only quantisation can spoil them.
        if index % 3 != 0 {
            let acts = [Activation::Relu2, Activation::Relu, Activation::Identity];
            case.act = acts[index as usize % 3];
            (case.route, case.groups, case.keep) = (Route::Given, 1, 1);
        }
        let logical = fill(&case).unwrap();
        let wanted = run(&case, &logical);
        if !wanted.exact {
            continue;
        }
        exact += 1;
        nonzero += usize::from(wanted.values.iter().any(|&v| v != 0.0));
        for order in Order::ALL {
            let got = output(&case, single::layer(&case, &logical, order, false));
            let bound = Bound::EqualBits {
                why: "exact fill".into(),
            };
            let found = compare(&wanted.values, &got, &bound);
            assert!(found.agree, "{case} in order {order:?}: {:?}", found.first);
        }
    }
    assert!(exact >= 80, "only {exact} of 300 cases were exact");
    assert!(
        nonzero * 2 > exact,
        "{nonzero} of {exact} exact cases have an output but 0"
    );
}

#[test]
fn large_exact_layers_stay_exact() {
    for line in [
        "t=2,e=2,k=2,h=4096,i=600,act=relu2,w=nvfp4,route=given,bias=both,factor=2.5,tp=4",
        "t=2,e=2,k=1,h=700,i=3000,act=relu2,w=f32,route=given,tp=2",
        "t=2,e=2,k=2,h=2048,i=700,act=identity,w=fp8-block,route=given",
    ] {
        let case = case(line);
        let logical = fill(&case).unwrap();
        let wanted = run(&case, &logical);
        assert!(wanted.exact, "{line}");
        for order in Order::ALL {
            let got = output(&case, single::layer(&case, &logical, order, false));
            let found = compare(
                &wanted.values,
                &got,
                &Bound::EqualBits {
                    why: "exact".into(),
                },
            );
            assert!(found.agree, "{line} in order {order:?}: {:?}", found.first);
        }
    }
}

/// Cases of both domains with every fill, cut down so that plain f32 can follow.
fn some_cases(seed: u64, count: u64) -> impl Iterator<Item = Case> {
    (0..count).map(move |index| {
        let domain = if index % 4 == 0 {
            &Domain::UNIFORM
        } else {
            &Domain::FULL
        };
        let mut case = draw(domain, seed, index);
        case.t = case.t.min(4);
        case.h = case.h.min(96);
        case.i = case.i.min(160);
        case.fill = Fill::ALL[index as usize / 4 % 4];
        case
    })
}

#[test]
fn every_order_stays_within_the_bound() {
    let (mut tokens, mut ambiguous, mut worst) = (0usize, 0usize, 0f64);
    for case in some_cases(3, 400) {
        let logical = fill(&case).unwrap();
        let wanted = run(&case, &logical);
        let h = case.h as usize;
        for order in Order::ALL {
            let got = single::layer(&case, &logical, order, false);
            for token in 0..case.t as usize {
                tokens += 1;
                if wanted.ambiguous[token] {
                    ambiguous += 1;
                    continue;
                }
                for (n, &got) in got.iter().enumerate().skip(token * h).take(h) {
                    let (want, limit) = (wanted.values[n], wanted.bound[n]);
                    assert!(
                        want.is_finite() && limit.is_finite(),
                        "{case}: {want}, bound {limit}"
                    );
                    let error = (f64::from(got) - want).abs();
                    assert!(
                        error <= limit,
                        "{case} in order {order:?}, element {n}: {got} against {want}, off by {error:e}, bound {limit:e}"
                    );
                    worst = worst.max(error / limit);
                }
            }
        }
    }
    assert!(
        ambiguous * 20 < tokens,
        "{ambiguous} of {tokens} tokens are ambiguous"
    );
    // The bound must be of use: somewhere an honest error comes near it.
    assert!(worst > 0.02, "largest error is {worst} of its bound");
}

#[test]
fn a_forgotten_channel_breaks_the_bound() {
    let (mut caught, mut wild) = (0, 0);
    for mut case in some_cases(5, 200) {
        case.fill = Fill::Wild;
        case.qx = ActQuant::None;
        case.qh = case.qx;
        case.mid_bf16 = false;
        if case.t == 0 {
            continue;
        }
        let logical = fill(&case).unwrap();
        let wanted = run(&case, &logical);
        let got = output(&case, single::layer(&case, &logical, Order::Forward, true));
        let bound = Bound::Derived {
            limits: &wanted.bound,
            derivation: Reference::DERIVATION.into(),
        };
        wild += 1;
        caught += usize::from(!compare(&wanted.values, &got, &bound).agree);
    }
    assert!(
        caught * 10 >= wild * 8,
        "{caught} of {wild} forgotten channels were seen"
    );
}

#[test]
fn no_tokens_give_an_empty_reference() {
    let case = case("t=0");
    let got = run(&case, &fill(&case).unwrap());
    assert!(got.values.is_empty() && got.bound.is_empty() && got.ids.is_empty());
}
