//! The layer in plain f32, summed in a chosen order: what bounds are held against.
//!
//! Written for the tests alone: no padding, no packing, every sum in one of three orders.

use padproof::case::Case;
use padproof::num::{Dtype, Encode};
use padproof::tensor::{Logical, RouterInput, Tensor};
use padproof::terms::{ActQuant, Activation, Extent, Route};

/// In which order terms are added.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// First to last, products fused.
    Forward,
    /// Last to first, products rounded.
    Reverse,
    /// Eight lanes by index, then the lanes first to last.
    Lanes,
}

impl Order {
    pub(crate) const ALL: [Order; 3] = [Order::Forward, Order::Reverse, Order::Lanes];

    fn dot(self, a: &[f32], b: &[f32]) -> f32 {
        let terms = a.iter().zip(b);
        match self {
            Order::Forward => terms.fold(0.0, |s, (a, b)| a.mul_add(*b, s)),
            Order::Reverse => terms.rev().fold(0.0, |s, (a, b)| s + a * b),
            Order::Lanes => {
                let mut lanes = [0.0f32; 8];
                terms
                    .enumerate()
                    .for_each(|(n, (a, b))| lanes[n % 8] += a * b);
                lanes.iter().sum()
            }
        }
    }

    fn sum(self, terms: &[f32]) -> f32 {
        self.dot(terms, &vec![1.0; terms.len()])
    }
}

struct Weights<'a> {
    codes: &'a Tensor,
    scale: Option<&'a Tensor>,
    global: Option<&'a Tensor>,
    halves: usize,
    rows: usize,
}

fn code(t: &Tensor, n: usize) -> u32 {
    let w = t.bits() / 8;
    t.bytes()[n * w..][..w]
        .iter()
        .rev()
        .fold(0, |c, &b| c << 8 | u32::from(b))
}

impl Weights<'_> {
    fn row(&self, case: &Case, expert: usize, row: usize) -> Vec<f32> {
        let cols = self.codes.shape()[2];
        let element = case.w.element();
        let start = (expert * self.halves * self.rows + row) * cols;
        let (half, inner) = (row / self.rows, row % self.rows);
        (0..cols)
            .map(|c| {
                let value = element.decode(code(self.codes, start + c));
                let Some((grid, scale)) = case.w.scale().zip(self.scale) else {
                    return value;
                };
                let block = |e: Extent, n: usize| match e {
                    Extent::All => 0,
                    Extent::Block(b) => n / b as usize,
                };
                let shape = scale.shape();
                let r = half * (shape[1] / self.halves) + block(grid.rows, inner);
                let n = (expert * shape[1] + r) * shape[2] + block(grid.cols, c);
                let mut s = grid.dtype.decode(code(scale, n));
                if let Some(global) = self.global {
                    s *= global.f32s()[expert * self.halves + half];
                }
                value * s
            })
            .collect()
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn bf16(x: f32) -> f32 {
    Dtype::Bf16.decode(Dtype::Bf16.encode(x.into(), Encode::OCP))
}

fn activation(act: Activation, g: f32, u: f32) -> f32 {
    let silu = |x: f32| x * sigmoid(x);
    let gelu = |x: f32| 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2));
    let tanh = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044715 * x * x * x)).tanh());
    match act {
        Activation::Swiglu => silu(g) * u,
        Activation::SwigluRounded => bf16(silu(g)) * u,
        Activation::Geglu => gelu(g) * u,
        Activation::GegluTanh => tanh(g) * u,
        Activation::SwigluOai => {
            let g = g.min(7.0);
            g * sigmoid(1.702 * g) * (u.clamp(-7.0, 7.0) + 1.0)
        }
        Activation::SwigluClamp => silu(g.min(10.0)) * u.clamp(-10.0, 10.0),
        Activation::SwigluStep => silu(g).min(7.0) * u.clamp(-7.0, 7.0),
        Activation::Situ => 4.0 * (g / 4.0).tanh() * sigmoid(g) * (25.0 * (u / 25.0).tanh()),
        Activation::Powlu if g > 0.0 => g.powf(2.5 / (g.sqrt() + 1.0)) * sigmoid(g) * u,
        Activation::Powlu => silu(g) * u,
        Activation::Relu2 => g.max(0.0) * g.max(0.0),
        Activation::Relu2Clamped => (7.0 * (g.max(0.0) / 7.0).tanh()).powi(2),
        Activation::Silu => silu(g),
        Activation::Gelu => gelu(g),
        Activation::GeluTanh => tanh(g),
        Activation::Relu => g.max(0.0),
        Activation::Identity => g,
    }
}

fn quantise(mode: ActQuant, fixed: f32, values: &mut [f32]) {
    let round = |values: &mut [f32], scale: f32| {
        for v in values {
            let code = Dtype::E4m3.encode((*v / scale).into(), Encode::OCP);
            *v = Dtype::E4m3.decode(code) * scale;
        }
    };
    let dynamic = |values: &mut [f32]| {
        let amax = values.iter().fold(1e-12, |m: f32, v| m.max(v.abs()));
        round(values, amax / 448.0);
    };
    match mode {
        ActQuant::None => {}
        ActQuant::Static => round(values, fixed),
        ActQuant::Token => dynamic(values),
        ActQuant::Group => values.chunks_mut(32).for_each(dynamic),
    }
}

/// (id, weight) of the chosen experts of one token.
fn choose(case: &Case, logits: &[f32], bias: &[f32]) -> Vec<(usize, f32)> {
    let softmax = |l: &[f32]| -> Vec<f32> {
        let top = l.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let p: Vec<f32> = l.iter().map(|l| (l - top).exp()).collect();
        let sum: f32 = p.iter().sum();
        p.iter().map(|p| p / sum).collect()
    };
    let base: Vec<f32> = match case.route {
        Route::TopkSoftmax | Route::Llama4 | Route::SparseMixer => logits.to_vec(),
        Route::Sigmoid | Route::SigmoidRenorm | Route::SigmoidBias | Route::GroupedSigmoidBias => {
            logits.iter().map(|&l| sigmoid(l)).collect()
        }
        Route::SqrtSoftplusBias => {
            let softplus = |l: f32| l.max(0.0) + (-l.abs()).exp().ln_1p();
            logits.iter().map(|&l| softplus(l).sqrt()).collect()
        }
        Route::TanhCapped => softmax(
            &logits
                .iter()
                .map(|l| 30.0 * (l / 30.0).tanh())
                .collect::<Vec<_>>(),
        ),
        _ => softmax(logits),
    };
    let mut score: Vec<f32> = base.clone();
    score.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
    if case.route.grouped() {
        let size = score.len() / case.groups as usize;
        let mut groups: Vec<(usize, f32)> = score
            .chunks(size)
            .map(|g| {
                let mut g = g.to_vec();
                g.sort_by(|a, b| b.total_cmp(a));
                g.truncate(if bias.is_empty() { 1 } else { 2 });
                g.iter().sum()
            })
            .enumerate()
            .collect();
        groups.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (dropped, _) in &groups[case.keep as usize..] {
            score[dropped * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
    let mut ids: Vec<usize> = (0..score.len()).collect();
    ids.sort_by(|&a, &b| score[b].total_cmp(&score[a]));
    ids.truncate(case.k as usize);
    let mut weights: Vec<f32> = ids.iter().map(|&n| base[n]).collect();
    match case.route {
        Route::TopkSoftmax => weights = softmax(&weights),
        Route::SparseMixer => {
            for (n, weight) in weights.iter_mut().enumerate() {
                let top = *weight;
                let masked = |x: f32| (top - x) / x.abs().max(top) > 0.02;
                let left = (0..logits.len()).filter(|id| !ids[..n].contains(id));
                let sum: f32 = left
                    .map(|id| logits[id])
                    .filter(|&x| !masked(x))
                    .map(|x| (x - top).exp())
                    .sum();
                *weight = 1.0 / sum;
            }
        }
        Route::Llama4 => weights.iter_mut().for_each(|w| *w = sigmoid(*w)),
        Route::SoftmaxRenorm
        | Route::SigmoidRenorm
        | Route::SigmoidBias
        | Route::SqrtSoftplusBias
        | Route::SoftmaxBiasRenorm
        | Route::GroupedSigmoidBias => {
            let sum: f32 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        _ => {}
    }
    ids.into_iter().zip(weights).collect()
}

/// The layer's output [t, h]; `drop_last` forgets the last intermediate channel, a planted fault.
pub(crate) fn layer(case: &Case, logical: &Logical, order: Order, drop_last: bool) -> Vec<f32> {
    let (t, e, k) = (case.t as usize, case.e as usize, case.k as usize);
    let (h, i) = (case.h as usize, case.i as usize);
    let halves = case.act.halves() as usize;
    let factor = case.factor as f32 / 1000.0;
    let w13 = Weights {
        codes: &logical.w13,
        scale: logical.w13_scale.as_ref(),
        global: logical.w13_global.as_ref(),
        halves,
        rows: i,
    };
    let w2 = Weights {
        codes: &logical.w2,
        scale: logical.w2_scale.as_ref(),
        global: logical.w2_global.as_ref(),
        halves: 1,
        rows: h,
    };
    // Only experts that some token may choose are worth decoding: each on first use.
    let decode = |w: &Weights<'_>, expert: usize, rows: usize| -> Vec<Vec<f32>> {
        (0..rows).map(|r| w.row(case, expert, r)).collect()
    };
    let mut experts: Vec<Option<[Vec<Vec<f32>>; 2]>> = vec![None; e];
    let bias = |t: &Option<Tensor>, n: usize| t.as_ref().map_or(0.0, |b| b.f32s()[n]);
    let shard = i.div_ceil((case.tp / case.ep) as usize);
    let mut out = Vec::new();
    for token in 0..t {
        let chosen: Vec<(usize, f32)> = match &logical.router {
            RouterInput::Given { ids, weights } => (token * k..(token + 1) * k)
                .map(|n| (ids[n] as usize, weights[n]))
                .collect(),
            RouterInput::Logits { logits, bias } => {
                let experts = case.choices() as usize;
                choose(case, &logits[token * experts..][..experts], bias)
            }
        };
        // [slot][rank][column]
        let mut parts = Vec::new();
        for &(expert, weight) in &chosen {
            if expert >= e {
                let x = &logical.x.f32s()[token * h..][..h];
                let mut ranks = vec![vec![0.0; h]; i.div_ceil(shard)];
                ranks[0] = x.iter().map(|x| weight * factor * x).collect();
                parts.push(ranks);
                continue;
            }
            let [w13, w2] = experts[expert]
                .get_or_insert_with(|| [decode(&w13, expert, halves * i), decode(&w2, expert, h)]);
            let mut weight = weight * factor;
            let mut x = logical.x.f32s()[token * h..][..h].to_vec();
            if case.route.weights_input() {
                x.iter_mut().for_each(|v| *v *= weight);
                weight = 1.0;
            }
            quantise(case.qx, logical.x_scale, &mut x);
            let row = |r: usize| {
                order.dot(&x, &w13[r]) + bias(&logical.w13_bias, expert * halves * i + r)
            };
            let mut mid: Vec<f32> = (0..i)
                .map(|j| activation(case.act, row(j), if halves == 2 { row(i + j) } else { 0.0 }))
                .map(|v| if case.mid_bf16 { bf16(v) } else { v })
                .collect();
            if drop_last {
                mid[i - 1] = 0.0;
            }
            mid.chunks_mut(shard)
                .for_each(|m| quantise(case.qh, logical.h_scale, m));
            let ranks: Vec<Vec<f32>> = (0..i.div_ceil(shard))
                .map(|rank| {
                    let span = rank * shard..((rank + 1) * shard).min(i);
                    (0..h)
                        .map(|c| {
                            let b = if rank == 0 {
                                bias(&logical.w2_bias, expert * h + c)
                            } else {
                                0.0
                            };
                            weight * (order.dot(&mid[span.clone()], &w2[c][span.clone()]) + b)
                        })
                        .collect()
                })
                .collect();
            parts.push(ranks);
        }
        for c in 0..h {
            let ranks: Vec<f32> = (0..parts[0].len())
                .map(|r| order.sum(&parts.iter().map(|p| p[r][c]).collect::<Vec<_>>()))
                .collect();
            out.push(order.sum(&ranks));
        }
    }
    out
}
