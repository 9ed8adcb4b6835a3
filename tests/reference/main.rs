//! The reference against hand-made layers, committed values, and plain f32 in several orders.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod fills;
mod routing;
mod single;

use padproof::case::Case;
use padproof::compare::{Bound, compare};
use padproof::fill::{FillError, fill};
use padproof::r#gen::{Domain, draw};
use padproof::num::Dtype;
use padproof::reference::{Reference, ReferenceError, reference, reference_for};
use padproof::tensor::{Logical, Output, RouterInput, Tensor};
use padproof::terms::{
    ActQuant, Activation, Arithmetic, Extent, Fill, Rounded, Roundings, Route, WeightFormat,
};
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
fn an_identity_expert_adds_its_weight_times_the_input_as_it_came() {
    // relu, all weights 1: the expert gives 3 + 5 for each column. By hand, at a factor of 6:
    // 6 * (1/2 * 8 + 1/4 * 3) = 28.5 and 6 * (1/2 * 8 + 1/4 * 5) = 31.5
    let case = case("t=1,e=1,k=2,h=2,i=1,act=relu,route=given,factor=6,zero=3");
    let mut logical = fill(&case).unwrap();
    logical.x.f32s_mut().copy_from_slice(&[3.0, 5.0]);
    logical.w13.f32s_mut().fill(1.0);
    logical.w2.f32s_mut().fill(1.0);
    logical.router = RouterInput::Given {
        ids: vec![2, 0],
        weights: vec![0.25, 0.5],
    };
    let got = run(&case, &logical);
    assert_eq!((got.values, got.exact), (vec![28.5, 31.5], false));
    // One that quantises the input does not quantise that.
    let quantised = Case {
        qx: ActQuant::Token,
        ..case
    };
    logical.x.f32s_mut()[0] = 3.0078125;
    logical.router = RouterInput::Given {
        ids: vec![2, 1],
        weights: vec![0.25, 0.5],
    };
    let got = run(&quantised, &logical);
    assert_eq!(got.values, [4.5 * 3.0078125, 22.5]);
    assert!(got.bound.iter().all(|bound| *bound > 0.0 && *bound < 1e-4));
}

#[test]
fn the_bound_of_identity_experts_counts_no_columns() {
    // Weights 1/2 and 1/4 of x = 1 + 2^-8 through identity experts alone, among experts of 2048 channels.
    let case = case("t=1,e=1,k=2,h=1,i=2048,route=given,zero=3");
    let mut logical = fill(&case).unwrap();
    let x = 1.0 + 1.0 / 256.0;
    logical.x.f32s_mut().fill(x as f32);
    logical.router = RouterInput::Given {
        ids: vec![2, 1],
        weights: vec![0.25, 0.5],
    };
    let bound = |rounds| {
        let arithmetic = Arithmetic {
            rounds,
            ..Arithmetic::default()
        };
        reference_for(&case, &logical, arithmetic).unwrap().bound[0]
    };
    // k + tp + 8 roundings, and 4 of the weight and its factor.
    let (u, size) = ((-24f64).exp2(), 0.75 * x);
    let plain = 15.0 * u * size;
    let got = bound(Roundings::NONE);
    assert!(got >= plain && got < plain * 1.0001, "{got:e}, {plain:e}");
    // bf16 keeps seven bits behind the point: x lies between two and may lose half of 2^-7, which is within 2^-8 of x.
    let rounded = (-8f64).exp2() * size;
    let got = bound([Rounded::X].into_iter().collect());
    assert!(
        got >= 0.75 * (-8f64).exp2() + plain && got < (rounded + plain) * 1.01,
        "{got:e}, {rounded:e}"
    );
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
                let row = token * h..(token + 1) * h;
                for (n, got) in row.clone().zip(&got[row]) {
                    let (want, limit) = (wanted.values[n], wanted.bound[n]);
                    assert!(
                        want.is_finite() && limit.is_finite(),
                        "{case}: {want}, bound {limit}"
                    );
                    let error = (f64::from(*got) - want).abs();
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

/// facts/upstream-padding.md 2.1, row silu_rounded: the layer itself rounds, so a subject that does not is wrong.
#[test]
fn a_gate_that_is_not_rounded_breaks_the_bound_of_one_that_is() {
    for act in ["swiglu", "swiglu-rounded"] {
        let case = case(&format!("t=8,h=64,i=70,act={act},fill=wild,seed=7"));
        let rounded = Case {
            act: Activation::SwigluRounded,
            ..case.clone()
        };
        let logical = fill(&rounded).unwrap();
        let wanted = run(&rounded, &logical);
        let got = output(&case, single::layer(&case, &logical, Order::Forward, false));
        let bound = Bound::Derived {
            limits: &wanted.bound,
            derivation: Reference::DERIVATION.into(),
        };
        let agrees = compare(&wanted.values, &got, &bound).agree;
        assert_eq!(agrees, act == "swiglu-rounded", "{act}");
    }
}

/// A subject that declares one of these places and keeps more there is held to another layer, so the page must name each.
#[test]
fn the_reference_rounds_at_the_places_that_the_protocol_names() {
    let page = include_str!("../../docs/subject-protocol.md");
    let sentence = page.split("The reference rounds too").nth(1).unwrap();
    let named = sentence.split("and the bound").next().unwrap();
    let case = case("t=4,h=16,i=24,w=bf16,fill=wild,seed=7");
    let logical = fill(&case).unwrap();
    let f32_values = run(&case, &logical).values;
    for &place in Rounded::ALL {
        let arithmetic = Arithmetic {
            rounds: [place].into_iter().collect(),
            ..Arithmetic::default()
        };
        let rounded = reference_for(&case, &logical, arithmetic).unwrap();
        let told = named.contains(&format!("`{}`", place.name()));
        assert_eq!(rounded.values != f32_values, told, "{}", place.name());
    }
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
