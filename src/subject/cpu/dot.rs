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
/// Weights of an expert from which on they are fetched ahead: below, caches hold them anyway.
const FETCH_FROM: usize = 1 << 20;
/// Steps of 16 products between visits to the stored sums: activations of a block stay in L1.
const BLOCK: usize = 32;
/// Weight rows read (and decoded) at a time; divisible by every tile height below.
const ROWS: usize = 12;
/// Activation rows of one tile, at most.
const GROUP: usize = 4;
/// Activation rows at a time: whole groups.
const TOKENS: usize = 16;

/// Activation rows in the order in which tiles read them: blocks of `BLOCK` steps, in a block
/// groups of `GROUP` rows (the last one smaller), in a group step by step, row beside row.
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
            let group = GROUP.min(self.rows - t / GROUP * GROUP);
            let (whole, rest) = row[..cols].as_chunks::<LANES>();
            let mut start = 0;
            while start < self.steps {
                let len = BLOCK.min(self.steps - start);
                let base = start * self.rows + t / GROUP * GROUP * len + t % GROUP;
                let to = self.data[base..].iter_mut().step_by(group);
                for (to, lanes) in to.zip(whole[start.min(whole.len())..].iter().take(len)) {
                    *to = *lanes;
                }
                start += len;
            }
            if !rest.is_empty() {
                let last = (self.steps - 1) / BLOCK * BLOCK;
                let len = self.steps - last;
                let base = last * self.rows + t / GROUP * GROUP * len + t % GROUP;
                let to = &mut self.data[base + (len - 1) * group];
                *to = [0.0; LANES];
                to[..rest.len()].copy_from_slice(rest);
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
    totals: Vec<f32>,
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
            totals,
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
                        matrix.read_row(simd, expert, first + n, &mut row[..cols], scales);
                    }
                    &decoded[..]
                }
            };
            // The rows of the next round, to be on their way while these are multiplied.
            let next: &[Lanes] = match plain {
                Some(plain) if x.rows > GROUP && plain.len() >= FETCH_FROM => {
                    let end = (first + count + ROWS).min(rows.end) * cols;
                    bytemuck::cast_slice(&plain[(first + count) * cols..end])
                }
                _ => &[],
            };
            let mut token = 0;
            while token < x.rows {
                let many = TOKENS.min(x.rows - token);
                sums.resize(count * many, [0.0; LANES]);
                if steps == 0 {
                    sums.fill([0.0; LANES]);
                }
                let mut start = 0;
                while start < steps {
                    let len = BLOCK.min(steps - start);
                    let tile = Tiles {
                        begins: start == 0,
                        ahead: next.get(start..).unwrap_or(&[]),
                        turn: token / GROUP,
                        turns: x.rows.div_ceil(GROUP),
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
                lane_sums(sums, totals);
                for t in 0..many {
                    let to = &mut out[(token + t) * stride + column..][..count];
                    to.copy_from_slice(&totals[t * count..][..count]);
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
    /// Whether sums start here, at +0.
    begins: bool,
    /// Weight rows to fetch from memory meanwhile.
    ahead: &'a [Lanes],
    /// Which group of activation rows comes first, of how many: each fetches its share.
    turn: usize,
    turns: usize,
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
            t += GROUP;
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
        let (x, _) = self.x[t0 * len..(t0 + T) * len].as_chunks::<T>();
        let x = &x[..len];
        if !self.ahead.is_empty() {
            for r in r0..r0 + R {
                for s in (self.turn + t0 / GROUP..len).step_by(self.turns) {
                    if let Some(lanes) = self.ahead.get(r * self.stride + s) {
                        fetch(lanes);
                    }
                }
            }
        }
        for part in 0..LANES / S::F32_LANES {
            let mut acc = [[simd.splat_f32s(0.0); T]; R];
            if !self.begins {
                for r in 0..R {
                    for t in 0..T {
                        acc[r][t] = load::<S>(&sums[(t0 + t) * self.count + r0 + r], part);
                    }
                }
            }
            // Twelve sums, the smaller side held, one of the other: sixteen registers.
            for s in 0..len {
                if T <= R {
                    let mut xs = [simd.splat_f32s(0.0); T];
                    for t in 0..T {
                        xs[t] = load::<S>(&x[s][t], part);
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
                        let xs = load::<S>(&x[s][t], part);
                        for r in 0..R {
                            acc[r][t] = simd.mul_add_f32s(ws[r], xs, acc[r][t]);
                        }
                    }
                }
            }
            for r in 0..R {
                for t in 0..T {
                    let to = &mut sums[(t0 + t) * self.count + r0 + r];
                    bytemuck::cast_slice_mut::<f32, S::f32s>(to)[part] = acc[r][t];
                }
            }
        }
    }
}

/// Asks for a line of memory ahead of its use; never changes a result.
#[inline(always)]
fn fetch(lanes: &Lanes) {
    #[cfg(target_arch = "x86_64")]
    if let Some(sse) = pulp::core_arch::x86::Sse::try_new() {
        const SECOND_LEVEL: i32 = 2;
        sse._mm_prefetch::<SECOND_LEVEL>(lanes.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = lanes;
}

#[inline(always)]
fn load<S: Simd>(lanes: &Lanes, part: usize) -> S::f32s {
    bytemuck::cast_slice::<f32, S::f32s>(lanes)[part]
}

/// Sums the lanes of every sum: 0 + 8, 1 + 9, …, then 0 + 4, …, to one.
#[inline(always)]
fn lane_sums(sums: &[Lanes], totals: &mut Vec<f32>) {
    totals.resize(sums.len(), 0.0);
    let (eights, rest) = sums.as_chunks::<8>();
    let (to, to_rest) = totals.as_chunks_mut::<8>();
    for (to, sums) in to.iter_mut().zip(eights) {
        *to = eight_totals(sums);
    }
    for (to, lanes) in to_rest.iter_mut().zip(rest) {
        *to = total(lanes);
    }
}

#[inline(always)]
fn total(lanes: &Lanes) -> f32 {
    let mut sums = *lanes;
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for l in 0..width {
            sums[l] += sums[l + width];
        }
    }
    sums[0]
}

/// The same for eight sums at once, by transposing while adding.
#[inline(always)]
fn eight_totals(sums: &[Lanes; 8]) -> [f32; 8] {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx) = pulp::core_arch::x86::Avx::try_new() {
        // No closures: they would not be compiled for the vector unit.
        let halves: [[std::arch::x86_64::__m256; 2]; 8] = bytemuck::cast(*sums);
        let mut quarters = [halves[0][0]; 4];
        for n in 0..4 {
            // Of sums n and n + 4: lanes 0 to 3 plus lanes 4 to 7, side by side.
            let a = avx._mm256_add_ps(halves[n][0], halves[n][1]);
            let b = avx._mm256_add_ps(halves[n + 4][0], halves[n + 4][1]);
            quarters[n] = avx._mm256_add_ps(
                avx._mm256_permute2f128_ps::<0x20>(a, b),
                avx._mm256_permute2f128_ps::<0x31>(a, b),
            );
        }
        let [a, b, c, d] = quarters;
        let ab = avx._mm256_add_ps(
            avx._mm256_shuffle_ps::<0x44>(a, b),
            avx._mm256_shuffle_ps::<0xee>(a, b),
        );
        let cd = avx._mm256_add_ps(
            avx._mm256_shuffle_ps::<0x44>(c, d),
            avx._mm256_shuffle_ps::<0xee>(c, d),
        );
        return bytemuck::cast(avx._mm256_add_ps(
            avx._mm256_shuffle_ps::<0x88>(ab, cd),
            avx._mm256_shuffle_ps::<0xdd>(ab, cd),
        ));
    }
    sums.each_ref().map(total)
}
