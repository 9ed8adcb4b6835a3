//! What the CPU subject promises.

use super::Cpu;
use super::samples::{Sample, at};
use crate::layout::PackedInputs;
use crate::plan::Role;
use crate::rng;
use crate::schedule::Schedule;
use crate::subject::{SkipReason, Subject, SubjectError};
use crate::tensor::{Output, RouterInput, Tensor};
use crate::terms::*;

fn run(sample: &Sample) -> Output {
    run_with(&mut Cpu::with_threads(1), sample, &sample.inputs())
}

fn run_with(cpu: &mut Cpu, sample: &Sample, inputs: &PackedInputs) -> Output {
    cpu.run(&sample.plan, inputs).unwrap()
}

fn bits(output: &Output) -> Vec<u32> {
    output.values.iter().map(|v| v.to_bits()).collect()
}

/// Layers over formats, activations, routers, splits and quantisations.
fn varied(n: u64) -> Sample {
    let pick = |stream: u64, of: usize| at(rng::value(99, stream, n) % of as u64);
    let weight = WeightFormat::ALL[pick(0, WeightFormat::ALL.len())];
    let act = Activation::ALL[pick(1, Activation::ALL.len())];
    let route = Route::ALL[1 + pick(2, Route::ALL.len() - 1)];
    let (tp, ep) = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)][pick(3, 5)];
    let k = route.chooses().unwrap_or(1 + pick(4, 2) as u64);
    let dims = [
        1 + pick(5, 9) as u64,
        4,
        k,
        1 + pick(6, 80) as u64,
        1 + pick(7, 150) as u64,
    ];
    let mut sample = Sample::new(dims, tp, ep, act, weight);
    let plan = &mut sample.plan;
    plan.numerics = Numerics {
        route,
        groups: if route.grouped() { 2 } else { 1 },
        keep: 1,
        factor: 2500,
        zero: pick(15, 3) as u64 * u64::from(route.takes_identity()),
        qx: ActQuant::ALL[pick(8, 4)],
        qh: ActQuant::ALL[pick(9, 4)],
        mid_bf16: pick(10, 2) == 0,
    };
    plan.bias = Bias::ALL[pick(11, 2)];
    plan.nibble = Nibble::ALL[pick(12, 2)];
    plan.storage = Storage::ALL[pick(13, 2)];
    let whole = weight
        .scale()
        .is_none_or(|s| matches!(s.rows, Extent::All | Extent::Block(1)));
    plan.order = Order::ALL[if whole {
        pick(14, Order::ALL.len())
    } else {
        pick(14, 2)
    }];
    sample.seed = n;
    let plan = &sample.plan;
    let (h, width, t) = (plan.dims.h, plan.width, plan.dims.t);
    sample.pad(h, width, t);
    sample
}

#[test]
fn padding_changes_no_bits() {
    for n in 0..250 {
        let mut sample = varied(n);
        let (h, width, t) = (sample.plan.dims.h, sample.plan.width, sample.plan.dims.t);
        let wanted = run(&sample);
        assert!(
            wanted.values.iter().any(|&v| v != 0.0),
            "sample {n} is all zero"
        );
        for (hidden, channels, tokens) in [
            (h, width.next_multiple_of(16), t),
            (h + 1, width + 3, t + 1),
            (h.next_multiple_of(128), width.next_multiple_of(128), 16),
        ] {
            sample.pad(hidden, channels, tokens.max(t));
            let actual = run(&sample);
            let same = wanted
                .values
                .iter()
                .zip(&actual.values)
                .all(|(a, b)| a == b);
            assert!(
                same,
                "sample {n} padded to {hidden}, {channels}: {:?}",
                sample.plan
            );
            assert_eq!(
                (wanted.ids.clone(), wanted.weights.clone()),
                (actual.ids, actual.weights)
            );
        }
    }
}

#[test]
fn every_format_agrees_with_plain_f64() {
    for &weight in WeightFormat::ALL {
        for (act, order, tp) in [
            (Activation::Swiglu, Order::UpGate, 2),
            (Activation::Relu2, Order::GateUp, 4),
            (Activation::Swiglu, Order::GateUp, 1),
        ] {
            let mut sample = Sample::new([5, 4, 3, 70, 300], tp, 1, act, weight);
            sample.plan.numerics.zero = 2;
            sample.plan.order = order;
            sample.plan.bias = Bias::Both;
            sample.plan.storage = Storage::Tiled128x4;
            sample.pad(96, sample.plan.width.next_multiple_of(32) + 32, 8);
            let out = run(&sample);
            assert!(out.ids.iter().any(|id| *id >= 4));
            let plain = sample.plainly(&out.ids, &out.weights);
            let most = plain.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (n, (&actual, wanted)) in out.values.iter().zip(plain).enumerate() {
                let error = (f64::from(actual) - wanted).abs();
                assert!(
                    error <= 2e-5 * most,
                    "{weight} {act} {order} [{n}]: {actual} for {wanted}"
                );
            }
        }
    }
}

#[test]
fn every_row_order_gives_the_same_bits() {
    for weight in [WeightFormat::F32, WeightFormat::Nvfp4, WeightFormat::Fp8] {
        let mut sample = Sample::new([3, 4, 2, 64, 128], 2, 1, Activation::SwigluOai, weight);
        sample.plan.bias = Bias::Both;
        let mut seen: Option<Vec<u32>> = None;
        for &order in Order::ALL {
            sample.plan.order = order;
            sample.pad(64, 64, 3);
            let actual = bits(&run(&sample));
            assert_eq!(
                seen.get_or_insert(actual.clone()),
                &actual,
                "{weight} {order}"
            );
        }
    }
}

#[test]
fn threads_and_vector_units_change_no_bits() {
    let mut sample = Sample::new(
        [32, 2, 2, 600, 700],
        1,
        1,
        Activation::Swiglu,
        WeightFormat::F32,
    );
    sample.pad(640, 704, 32);
    let inputs = sample.inputs();
    let wanted = run_with(&mut Cpu::with_threads(1), &sample, &inputs);
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let actual = pool.install(|| run_with(&mut Cpu::new(), &sample, &inputs));
        assert_eq!(bits(&wanted), bits(&actual), "{threads} threads");
    }
    for n in 0..24 {
        let sample = varied(n);
        let wanted = bits(&run(&sample));
        for mut cpu in Cpu::all_units() {
            let actual = run_with(&mut cpu, &sample, &sample.inputs());
            assert_eq!(wanted, bits(&actual), "sample {n} on {cpu:?}");
        }
    }
}

#[test]
fn a_rows_bits_do_not_depend_on_its_batch() {
    let mut all = Sample::new(
        [9, 4, 2, 40, 70],
        2,
        1,
        Activation::Swiglu,
        WeightFormat::Bf16,
    );
    let together = run(&all);
    let mut inputs = all.inputs();
    for t in 1..9 {
        (all.plan.dims.t, all.plan.tokens_padded) = (t, 9);
        if let RouterInput::Logits { logits, .. } = &mut inputs.router {
            logits.resize(at(t) * 4, 0.0);
            logits.copy_from_slice(match all.inputs().router {
                RouterInput::Logits { ref logits, .. } => &logits[..at(t) * 4],
                RouterInput::Given { .. } => &[],
            });
        }
        let some = run_with(&mut Cpu::new(), &all, &inputs);
        assert_eq!(some.values[..], together.values[..at(t) * 40], "{t} tokens");
    }
}

/// One expert, w2 the identity on channel 0: the output is a dot product of w13.
#[test]
fn the_stated_schedule_is_the_order_of_the_sums() {
    let mut told_apart = 0;
    for h in [1, 15, 16, 17, 100, 961, 4100] {
        let mut sample = Sample::new(
            [1, 1, 1, h, 1],
            1,
            1,
            Activation::Identity,
            WeightFormat::F32,
        );
        sample.pad(h, 1, 1);
        let mut inputs = sample.inputs();
        let rank = &mut inputs.ranks[0];
        rank.get_mut(Role::W2).unwrap().f32s_mut().fill(1.0);
        inputs.router = RouterInput::Given {
            ids: vec![0],
            weights: vec![1.0],
        };
        let out = run_with(&mut Cpu::new(), &sample, &inputs);
        let order = Cpu::new().schedule().unwrap();
        let w13 = inputs.ranks[0].get(Role::W13).unwrap();
        let wanted = order.tree(at(h)).dot(w13.f32s(), inputs.x.f32s());
        assert_eq!(out.values[0].to_bits(), wanted.to_bits(), "h={h}");
        let other = Schedule::Sequential
            .tree(at(h))
            .dot(w13.f32s(), inputs.x.f32s());
        told_apart += usize::from(wanted.to_bits() != other.to_bits());
    }
    assert!(
        told_apart > 0,
        "another order must give other bits to prove anything"
    );
}

/// A padded layer: 40 of 64 channels, 24 of 32 hidden are real.
fn padded() -> (Sample, PackedInputs) {
    let mut sample = Sample::new(
        [4, 2, 2, 24, 40],
        1,
        1,
        Activation::Relu2,
        WeightFormat::F32,
    );
    sample.pad(32, 64, 4);
    let inputs = sample.inputs();
    (sample, inputs)
}

fn dirty(tensor: &mut Tensor, value: f32, pad: impl Fn(usize, usize) -> bool) {
    let (rows, cols) = (tensor.shape()[1], tensor.shape()[2]);
    for (n, v) in tensor.f32s_mut().iter_mut().enumerate() {
        if pad(n / cols % rows, n % cols) {
            *v = value;
        }
    }
}

#[test]
fn finite_dirt_shows_only_when_both_tails_are_dirty() {
    let (sample, inputs) = padded();
    let clean = bits(&run(&sample));
    let with = |w13: bool, w2: bool, value: f32| {
        let mut inputs = inputs.clone();
        if w13 {
            dirty(
                inputs.ranks[0].get_mut(Role::W13).unwrap(),
                value,
                |row, _| row >= 40,
            );
        }
        if w2 {
            dirty(
                inputs.ranks[0].get_mut(Role::W2).unwrap(),
                value,
                |_, col| col >= 40,
            );
        }
        run_with(&mut Cpu::new(), &sample, &inputs)
    };
    assert_eq!(bits(&with(true, false, 3.0)), clean);
    assert_eq!(bits(&with(false, true, 3.0)), clean);
    assert_ne!(bits(&with(true, true, 3.0)), clean);
    assert!(
        with(true, false, f32::NAN)
            .values
            .iter()
            .all(|v| v.is_nan())
    );
    assert!(
        with(false, true, f32::NAN)
            .values
            .iter()
            .all(|v| v.is_nan())
    );
}

#[test]
fn poison_in_any_multiplied_pad_reaches_the_output() {
    let (sample, inputs) = padded();
    let nan = f32::NAN;
    let mut hidden = inputs.clone();
    dirty(
        hidden.ranks[0].get_mut(Role::W13).unwrap(),
        nan,
        |_, col| col >= 24,
    );
    assert!(
        run_with(&mut Cpu::new(), &sample, &hidden)
            .values
            .iter()
            .all(|v| v.is_nan())
    );
    let mut input = inputs.clone();
    dirty(&mut input.x, nan, |_, col| col >= 24);
    assert!(
        run_with(&mut Cpu::new(), &sample, &input)
            .values
            .iter()
            .all(|v| v.is_nan())
    );
    // Rows of w2 beyond h are computed and cut off.
    let mut cut = inputs.clone();
    dirty(cut.ranks[0].get_mut(Role::W2).unwrap(), nan, |row, _| {
        row >= 24
    });
    assert_eq!(
        bits(&run_with(&mut Cpu::new(), &sample, &cut)),
        bits(&run(&sample))
    );
}

#[test]
fn a_dirty_pad_acts_through_the_amax_even_where_w2_is_zero() {
    let (mut sample, mut inputs) = padded();
    sample.plan.numerics.qh = ActQuant::Token;
    let clean = run_with(&mut Cpu::new(), &sample, &inputs);
    dirty(
        inputs.ranks[0].get_mut(Role::W13).unwrap(),
        9.0,
        |row, _| row == 63,
    );
    let actual = run_with(&mut Cpu::new(), &sample, &inputs);
    assert_ne!(bits(&clean), bits(&actual));
}

#[test]
fn a_nan_scale_of_a_zero_weight_reaches_the_output() {
    let mut sample = Sample::new(
        [2, 2, 2, 32, 32],
        1,
        1,
        Activation::Relu2,
        WeightFormat::Mxfp4,
    );
    sample.pad(32, 64, 2);
    let mut inputs = sample.inputs();
    assert!(
        run_with(&mut Cpu::new(), &sample, &inputs)
            .values
            .iter()
            .all(|v| v.is_finite())
    );
    let scales = inputs.ranks[0].get_mut(Role::W2Scale).unwrap();
    scales
        .bytes_mut()
        .iter_mut()
        .skip(1)
        .step_by(2)
        .for_each(|b| *b = 255);
    assert!(
        run_with(&mut Cpu::new(), &sample, &inputs)
            .values
            .iter()
            .all(|v| v.is_nan())
    );
}

#[test]
fn empty_batches_and_empty_ranks_are_legal() {
    let out = run(&Sample::new(
        [0, 4, 2, 32, 32],
        2,
        1,
        Activation::Swiglu,
        WeightFormat::F32,
    ));
    assert_eq!(
        (out.tokens, out.hidden, out.values.len(), out.ids.len()),
        (0, 32, 0, 0)
    );
    // 40 channels in blocks of 32 over 4 ranks: two ranks hold nothing.
    let sample = Sample::new(
        [3, 4, 2, 32, 40],
        4,
        1,
        Activation::Swiglu,
        WeightFormat::Mxfp4,
    );
    assert_eq!(sample.plan.ranks[3].len, 0);
    let out = run(&sample);
    let plain = sample.plainly(&out.ids, &out.weights);
    for (a, w) in out.values.iter().zip(plain) {
        assert!((f64::from(*a) - w).abs() < 1e-3 * (1.0 + w.abs()));
    }
}

#[test]
fn mismatched_sizes_are_errors_that_name_tensor_and_numbers() {
    let (sample, inputs) = padded();
    let error = |change: &dyn Fn(&mut Sample, &mut PackedInputs)| {
        let (mut sample, mut inputs) = (sample.clone(), inputs.clone());
        change(&mut sample, &mut inputs);
        Cpu::new()
            .run(&sample.plan, &inputs)
            .unwrap_err()
            .to_string()
    };
    let short = || Tensor::zeroed("w2", &[2, 32, 60], 32);
    assert_eq!(
        error(&|_, i| i.ranks[0].set(Role::W2, short())),
        "w2: 15360 bytes, wanted 16384"
    );
    assert_eq!(error(&|_, i| i.ranks.clear()), "ranks: 0 ranks, wanted 1");
    assert_eq!(
        error(&|_, i| i.ranks[0] = Default::default()),
        "rank 0: no tensor w13"
    );
    assert_eq!(
        error(&|s, _| s.plan.w13_rows = 63),
        "plan: w13_rows=63: the kernel reads 1 * width_padded=64"
    );
    assert_eq!(
        error(&|s, _| s.plan.dims.t = 5),
        "plan: t=5: exceeds tokens_padded=4"
    );
    assert_eq!(
        error(&|s, _| s.plan.dims.halves = 2),
        "plan: halves=2: relu2 has 1"
    );
    assert_eq!(
        error(&|s, _| s.plan.numerics.route = Route::Llama4),
        "plan: k=2: llama4 chooses 1"
    );
    assert_eq!(
        error(&|s, _| (s.plan.numerics.route, s.plan.dims.k) = (Route::SparseMixer, 1)),
        "plan: k=1: sparse-mixer chooses 2"
    );
    assert!(error(&|s, _| s.plan.width_padded = u64::MAX).contains("activations needs"));
    assert!(error(&|s, _| s.plan.bias = Bias::Both).contains("no tensor w13_bias"));
    assert_eq!(
        error(&|_, i| i.router = RouterInput::Given {
            ids: vec![9; 8],
            weights: vec![1.0; 8]
        }),
        "ids: token 0 wants expert 9 of 2"
    );
    assert_eq!(
        error(&|_, i| i.router = RouterInput::Logits {
            logits: vec![],
            bias: vec![]
        }),
        "logits: 0 elements, wanted 8"
    );
    assert_eq!(
        error(&|_, i| i.x = Tensor::zeroed("x", &[4, 31], 32)),
        "x: 496 bytes, wanted 512"
    );
}

#[test]
fn interleaves_that_do_not_divide_the_width_are_skipped_with_a_reason() {
    let mut sample = Sample::new(
        [1, 2, 1, 32, 40],
        1,
        1,
        Activation::Swiglu,
        WeightFormat::F32,
    );
    let inputs = sample.inputs();
    sample.plan.order = Order::Int16;
    let reason = Cpu::new().supports(&sample.plan).unwrap_err();
    assert!(
        matches!(&reason, SkipReason::Unsupported(why) if why.contains("40")),
        "{reason}"
    );
    let error = Cpu::new().run(&sample.plan, &inputs).unwrap_err();
    assert_eq!(error, SubjectError::Skipped(reason));
}
