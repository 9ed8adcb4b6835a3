//! One big layer on the CPU subject, beside the same products by ndarray's `dot`.
//!
//! T=64, H=4096, I=1536, E=8, top 2, f32: 4.8 GFLOP over 604 MB of weights. The figures
//! for its reference machine, one core, not measured here: vLLM's CPU kernel 85 ms, torch 107 ms,
//! ndarray's dots alone about 65 ms. The target is 85 ms, the aim 60.

use criterion::{Criterion, criterion_group, criterion_main};
use ndarray::{Array2, ArrayView2, Axis};
use padproof::layout::{PackedInputs, RankInputs};
use padproof::plan::{Dims, Fit, Parallel, Plan, RankPlan, Role};
use padproof::rng;
use padproof::subject::{Cpu, Subject};
use padproof::tensor::{RouterInput, Tensor};
use padproof::terms::{
    Activation, Bias, LayerKind, Nibble, Numerics, Order, Place, Split, Storage, WeightFormat,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

const T: usize = 64;
const H: usize = 4096;
const I: usize = 1536;
const E: usize = 8;
const K: usize = 2;

fn plan() -> Plan {
    let [t, e, k, h, i] = [T, E, K, H, I].map(|n| u64::try_from(n).expect("a small size"));
    Plan {
        rule: "none".to_owned(),
        kernel: false,
        grade: padproof::rule::Grade::Derived,
        arch: Vec::new(),
        layer: LayerKind::Routed,
        fit: Fit::Fits,
        dims: Dims {
            t,
            e,
            k,
            h,
            i,
            halves: 2,
        },
        activation: Activation::Swiglu,
        weight: WeightFormat::F32,
        bias: Bias::None,
        numerics: Numerics::default(),
        parallel: Parallel { tp: 1, ep: 1 },
        width: i,
        width_padded: i,
        width_computed: i,
        w13_rows: 2 * i,
        hidden_padded: h,
        hidden_computed: h,
        w2_width_computed: i,
        w2_hidden_computed: h,
        tokens_padded: t,
        split: Split::Floor,
        order: Order::GateUp,
        place: Place::PerHalf,
        storage: Storage::Linear,
        weight_storage: Storage::Linear,
        nibble: Nibble::Low,
        unread: Vec::new(),
        w2_bias: None,
        zero_points: None,
        weight_pad: 0,
        w13_scale: None,
        w2_scale: None,
        ranks: vec![RankPlan {
            rank: 0,
            start: 0,
            len: i,
            expert_start: 0,
            expert_len: e,
        }],
        tensors: Vec::new(),
        overhead_millionths: 0,
        violations: Vec::new(),
    }
}

/// Values in [-1, 1) times `scale`.
fn values(tensor: &mut [f32], stream: u64, scale: f32) {
    for (n, v) in (0..).zip(tensor) {
        let bits = rng::value(1, stream, n) >> 40;
        *v = (bits as f32 / 8_388_608.0 - 1.0) * scale;
    }
}

fn inputs() -> PackedInputs {
    let mut x = Tensor::zeroed("x", &[T, H], 32);
    values(x.f32s_mut(), 0, 1.0);
    let mut w13 = Tensor::zeroed("w13", &[E, 2 * I, H], 32);
    values(w13.f32s_mut(), 1, 1.0 / 64.0);
    let mut w2 = Tensor::zeroed("w2", &[E, H, I], 32);
    values(w2.f32s_mut(), 2, 1.0 / 40.0);
    let mut logits = vec![0.0; T * E];
    values(&mut logits, 3, 4.0);
    let mut rank = RankInputs::default();
    rank.set(Role::W13, w13);
    rank.set(Role::W2, w2);
    PackedInputs {
        x,
        router: RouterInput::Logits {
            logits,
            bias: Vec::new(),
        },
        ranks: vec![rank],
        x_scale: 1.0,
        h_scale: 1.0,
    }
}

/// The same products by ndarray's two-dimensional `dot`, with the activation left out.
fn by_ndarray(inputs: &PackedInputs, ids: &[u32]) -> f32 {
    let weights = |role, rows: usize, cols: usize, e: usize| {
        let all = inputs.ranks[0].get(role).expect("packed above").f32s();
        let one = &all[e * rows * cols..(e + 1) * rows * cols];
        ArrayView2::from_shape((rows, cols), one).expect("one expert")
    };
    let x = ArrayView2::from_shape((T, H), inputs.x.f32s()).expect("the input");
    let mut sum = 0.0;
    for (e, id) in (0..E).zip(0u32..) {
        let tokens: Vec<usize> = (0..T)
            .filter(|t| ids[t * K..(t + 1) * K].contains(&id))
            .collect();
        let rows: Array2<f32> = x.select(Axis(0), &tokens);
        let first = rows.dot(&weights(Role::W13, 2 * I, H, e).t());
        let half = first.slice(ndarray::s![.., ..I]);
        sum += half.dot(&weights(Role::W2, H, I, e).t())[[0, 0]];
    }
    sum
}

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..7)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[3]
}

#[expect(clippy::print_stderr, reason = "a bench reports its ratio")]
fn layer(c: &mut Criterion) {
    let (plan, inputs) = (plan(), inputs());
    let mut cpu = Cpu::with_threads(1);
    let output = cpu.run(&plan, &inputs).expect("plan and tensors agree");
    let mut group = c.benchmark_group("layer");
    group.sample_size(10);
    group.bench_function("cpu", |b| b.iter(|| black_box(cpu.run(&plan, &inputs))));
    group.bench_function("ndarray-dots", |b| {
        b.iter(|| black_box(by_ndarray(&inputs, &output.ids)));
    });
    group.finish();
    let own = median(|| drop(black_box(cpu.run(&plan, &inputs))));
    let dots = median(|| _ = black_box(by_ndarray(&inputs, &output.ids)));
    let ratio = own.as_secs_f64() / dots.as_secs_f64();
    eprintln!("layer: cpu {own:.1?}, ndarray's dots alone {dots:.1?}, ratio {ratio:.2}");
}

criterion_group!(benches, layer);
criterion_main!(benches);
