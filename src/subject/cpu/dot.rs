//! Dot products of packed weight rows with activations, in the order `Lanes(16)`.
//!
//! Lane l adds the products k = l mod 16 by ascending k with fused multiply-add from +0; a
//! missing tail is +0 products; the lanes are halved to one. No boundary depends on the number
//! of rows, tokens or threads, so neither do the bits (facts/feasibility.md 5.4, 5.5).

use super::matrix::Matrix;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Lanes of the summation order, on every machine.
pub(super) const LANES: usize = 16;
/// Products k..k+16, one a lane.
type Lanes = [f32; LANES];
/// Steps of 16 products between visits to the stored sums: activations of a block stay in L1.
const BLOCK: usize = 16;
/// Weight rows read (and decoded) at a time; divisible by every tile height below.
const ROWS: usize = 12;
/// Activation rows at a time.
const TOKENS: usize = 32;

/// Activation rows, cut in blocks of `BLOCK` steps, with the rows of a block side by side.
#[derive(Debug, Default)]
pub(super) struct Activations {
    data: Vec<Lanes>,
    rows: usize,
    steps: usize,
}

impl Activations {
    /// Takes rows of `cols` elements; the last step is filled up with +0.
    pub(super) fn fill<'r>(&mut self, cols: usize, rows: impl ExactSizeIterator<Item = &'r [f32]>) {
        self.rows = rows.len();
        self.steps = cols.div_ceil(LANES);
        self.data.resize(self.rows * self.steps, [0.0; LANES]);
        for (t, row) in rows.enumerate() {
            for (n, block) in row[..cols].chunks(BLOCK * LANES).enumerate() {
                let len = BLOCK.min(self.steps - n * BLOCK);
                let start = n * BLOCK * self.rows + t * len;
                let to = self.data[start..start + len].as_flattened_mut();
                to[..block.len()].copy_from_slice(block);
                to[block.len()..].fill(0.0);
            }
        }
    }

    fn block(&self, start: usize, len: usize, tokens: Range<usize>) -> &[Lanes] {
        let base = start * self.rows;
        &self.data[base + tokens.start * len..base + tokens.end * len]
    }
}

/// Memory that products reuse.
#[derive(Debug, Default)]
pub(super) struct DotScratch {
    weights: Vec<Lanes>,
    sums: Vec<Lanes>,
    scales: Vec<f32>,
}

/// out[t * stride + (r - rows.start)] = dot(activation t, weight row r).
pub(super) struct Dots<'a> {
    pub(super) matrix: &'a Matrix<'a>,
    pub(super) expert: usize,
    pub(super) rows: Range<usize>,
    pub(super) x: &'a Activations,
    pub(super) out: &'a mut [f32],
    pub(super) stride: usize,
    pub(super) scratch: &'a mut DotScratch,
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Dots {
            matrix,
            expert,
            rows,
            x,
            out,
            stride,
            scratch,
        } = self;
        let DotScratch {
            weights: decoded,
            sums,
            scales,
        } = scratch;
        let (cols, steps) = (matrix.cols, x.steps);
        let plain = matrix.in_place(expert).filter(|_| cols % LANES == 0);
        if plain.is_none() {
            decoded.clear();
            decoded.resize(ROWS * steps, [0.0; LANES]);
        }
        let mut first = rows.start;
        while first < rows.end {
            let count = ROWS.min(rows.end - first);
            let weights: &[Lanes] = match plain {
                Some(plain) => bytemuck::cast_slice(&plain[first * cols..(first + count) * cols]),
                None => {
                    for n in 0..count {
                        let row = decoded[n * steps..(n + 1) * steps].as_flattened_mut();
                        matrix.read_row(expert, first + n, &mut row[..cols], scales);
                    }
                    &decoded[..]
                }
            };
            let mut token = 0;
            while token < x.rows {
                let many = TOKENS.min(x.rows - token);
                sums.clear();
                sums.resize(count * many, [0.0; LANES]);
                let mut start = 0;
                while start < steps {
                    let len = BLOCK.min(steps - start);
                    let tile = Tiles {
                        weights: &weights[start..],
                        stride: steps,
                        len,
                        count,
                        x: x.block(start, len, token..token + many),
                        many,
                    };
                    tile.add(simd, sums);
                    start += len;
                }
                let column = first - rows.start;
                for t in 0..many {
                    let to = (token + t) * stride + column;
                    lane_sums(sums, t, many, &mut out[to..to + count]);
                }
                token += many;
            }
            first += count;
        }
    }
}

/// One block of steps of `count` weight rows and `many` activation rows.
#[derive(Clone, Copy)]
struct Tiles<'a> {
    weights: &'a [Lanes],
    stride: usize,
    len: usize,
    count: usize,
    x: &'a [Lanes],
    many: usize,
}

impl Tiles<'_> {
    /// Adds the block's products to `sums`, twelve sums in registers at a time.
    #[inline(always)]
    fn add<S: Simd>(self, simd: S, sums: &mut [Lanes]) {
        let mut t = 0;
        while t < self.many {
            match self.many - t {
                1 => self.strip::<S, 12, 4, 1>(simd, t, sums),
                2 => self.strip::<S, 6, 3, 2>(simd, t, sums),
                3 => self.strip::<S, 4, 2, 3>(simd, t, sums),
                _ => self.strip::<S, 3, 1, 4>(simd, t, sums),
            }
            t += 4;
        }
    }

    #[inline(always)]
    fn strip<S: Simd, const HIGH: usize, const LOW: usize, const T: usize>(
        self,
        simd: S,
        t: usize,
        sums: &mut [Lanes],
    ) {
        let mut r = 0;
        while r + HIGH <= self.count {
            self.tile::<S, HIGH, T>(simd, r, t, sums);
            r += HIGH;
        }
        while r + LOW <= self.count {
            self.tile::<S, LOW, T>(simd, r, t, sums);
            r += LOW;
        }
        while r < self.count {
            self.tile::<S, 1, T>(simd, r, t, sums);
            r += 1;
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const T: usize>(
        self,
        simd: S,
        r0: usize,
        t0: usize,
        sums: &mut [Lanes],
    ) {
        let len = self.len;
        let mut w: [&[Lanes]; R] = [&[]; R];
        for (r, w) in w.iter_mut().enumerate() {
            *w = &self.weights[(r0 + r) * self.stride..][..len];
        }
        let mut x: [&[Lanes]; T] = [&[]; T];
        for (t, x) in x.iter_mut().enumerate() {
            *x = &self.x[(t0 + t) * len..][..len];
        }
        for part in 0..LANES / S::F32_LANES {
            let mut acc = [[simd.splat_f32s(0.0); T]; R];
            for r in 0..R {
                for t in 0..T {
                    acc[r][t] = load::<S>(&sums[(r0 + r) * self.many + t0 + t], part);
                }
            }
            // Twelve sums, the smaller side held, one of the other: sixteen registers.
            for s in 0..len {
                if T <= R {
                    let mut xs = [simd.splat_f32s(0.0); T];
                    for t in 0..T {
                        xs[t] = load::<S>(&x[t][s], part);
                    }
                    for r in 0..R {
                        let ws = load::<S>(&w[r][s], part);
                        for t in 0..T {
                            acc[r][t] = simd.mul_add_f32s(ws, xs[t], acc[r][t]);
                        }
                    }
                } else {
                    let mut ws = [simd.splat_f32s(0.0); R];
                    for r in 0..R {
                        ws[r] = load::<S>(&w[r][s], part);
                    }
                    for t in 0..T {
                        let xs = load::<S>(&x[t][s], part);
                        for r in 0..R {
                            acc[r][t] = simd.mul_add_f32s(ws[r], xs, acc[r][t]);
                        }
                    }
                }
            }
            for r in 0..R {
                for t in 0..T {
                    let to = &mut sums[(r0 + r) * self.many + t0 + t];
                    bytemuck::cast_slice_mut::<f32, S::f32s>(to)[part] = acc[r][t];
                }
            }
        }
    }
}

#[inline(always)]
fn load<S: Simd>(lanes: &Lanes, part: usize) -> S::f32s {
    bytemuck::cast_slice::<f32, S::f32s>(lanes)[part]
}

/// Sums the lanes of activation row `t`'s sums: 0 + 8, 1 + 9, …, then 0 + 4, …, to one.
#[inline(always)]
fn lane_sums(sums: &[Lanes], t: usize, many: usize, out: &mut [f32]) {
    let (fours, rest) = out.as_chunks_mut::<4>();
    for (n, four) in fours.iter_mut().enumerate() {
        let mut quarter = [[0.0f32; 4]; 4];
        for (r, q) in quarter.iter_mut().enumerate() {
            *q = to_quarter(&sums[(n * 4 + r) * many + t]);
        }
        for (r, o) in four.iter_mut().enumerate() {
            let q = &quarter[r];
            *o = (q[0] + q[2]) + (q[1] + q[3]);
        }
    }
    let done = fours.len() * 4;
    for (r, o) in rest.iter_mut().enumerate() {
        let q = to_quarter(&sums[(done + r) * many + t]);
        *o = (q[0] + q[2]) + (q[1] + q[3]);
    }
}

#[inline(always)]
fn to_quarter(lanes: &Lanes) -> [f32; 4] {
    let mut half = [0.0f32; 8];
    for (l, h) in half.iter_mut().enumerate() {
        *h = lanes[l] + lanes[l + 8];
    }
    let mut quarter = [0.0f32; 4];
    for (l, q) in quarter.iter_mut().enumerate() {
        *q = half[l] + half[l + 4];
    }
    quarter
}
