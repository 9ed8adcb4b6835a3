//! Routers: who is chosen, with which weight, and what is refused.

use super::*;
use padproof::layout::pack_layer;
use padproof::plan::plan;
use padproof::subject::{Cpu, Subject};

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

/// Rows of tests/data/mixer.json: logits, ids, weights.
fn mixed() -> Vec<(Vec<f32>, Vec<u32>, Vec<f64>)> {
    serde_json::from_str(include_str!("../data/mixer.json")).unwrap()
}

#[test]
fn the_sparse_mixer_gives_values_computed_elsewhere() {
    let rows = mixed();
    assert!(rows.len() >= 100, "{}", rows.len());
    let survived = rows.iter().filter(|(.., w)| w[0] < 1.0 && w[1] < 1.0);
    assert!(survived.count() >= 20);
    for (logits, ids, weights) in rows {
        let line = format!("t=1,e={},k=2,route=sparse-mixer", logits.len());
        let (got, gave, reference) = routed(&line, &logits, &[]);
        assert_eq!((got, reference.ambiguous[0]), (ids, false), "{logits:?}");
        close(&gave, &weights);

        // The CPU subject writes the router down on its own.
        let case = case(&line);
        let mut logical = fill(&case).unwrap();
        let bias = Vec::new();
        logical.router = RouterInput::Logits { logits, bias };
        let plan = plan(&case).unwrap();
        let output = Cpu::new().run(&plan, &pack_layer(&plan, &logical).unwrap());
        let output = output.unwrap();
        assert_eq!(output.ids, reference.ids);
        let limits = weights.iter().zip(&reference.weight_bound);
        for (got, (wanted, limit)) in output.weights.iter().zip(limits) {
            let error = (f64::from(*got) - wanted).abs();
            assert!(error <= *limit, "{case}: {got}, wanted {wanted}");
        }
    }
}

#[test]
fn logits_on_the_edge_of_the_sparse_mixers_band_are_ambiguous() {
    let line = "t=1,e=4,route=sparse-mixer";
    // 1/50 is 0.02, which f32 holds as a little less.
    let (largest, edge) = (50.0 / 32.0, 49.0f32 / 32.0);
    let (ids, _, got) = routed(line, &[largest, edge, -3.0, 0.5], &[]);
    assert_eq!((ids, got.ambiguous[0]), (vec![0, 1], true));
    for (edge, survives) in [(edge.next_up(), true), (edge.next_down(), false)] {
        let (_, weights, got) = routed(line, &[largest, edge, -3.0, 0.5], &[]);
        let found = (weights[0] < 1.0, got.ambiguous[0]);
        assert_eq!(found, (survives, false), "{edge}");
    }
    // The second choice has a band of its own.
    let (_, _, got) = routed(line, &[9.0, largest, edge, 0.0], &[]);
    assert!(got.ambiguous[0]);
    // What a device flushes to zero survives there.
    let tiny = f32::MIN_POSITIVE;
    let (_, _, got) = routed(line, &[tiny, tiny / 2.0, -1.0, -1.0], &[]);
    assert!(got.ambiguous[0]);
}

/// The fill draws tokens on both sides of the mask: some keep one expert, some several.
#[test]
fn drawn_logits_let_several_survive_the_sparse_mixer() {
    let case = case("t=200,e=8,h=8,i=8,route=sparse-mixer,seed=5");
    let got = run(&case, &fill(&case).unwrap());
    let alone = got.weights.iter().filter(|w| **w == 1.0).count();
    let doubtful = got.ambiguous.iter().filter(|a| **a).count();
    assert!((100..300).contains(&alone), "{alone} of 400");
    assert!(doubtful <= 2, "{doubtful} of 200");
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
