//! Fills the logical tensors of one layer.
//!
//! It must not depend on anything but seed, tensor and logical index. Layer 4.

use super::error::FillError;
use super::exact::{BIAS_MAX, Exact};
use super::palette::{self, PERIOD, Palette, pow2};
use super::pick::{pick8, pick16, pick32};
use super::router;
use super::size;
use crate::case::Case;
use crate::num::{Dtype, Encode};
use crate::rng;
use crate::tensor::{Logical, Pool, Tensor};
use crate::terms::{Activation, Bias, Fill, WeightFormat};
use pulp::Arch;

/// Streams of random values, one per tensor: frozen, for case lines must draw the same for ever.
pub(super) mod stream {
    pub(in crate::fill) const X: u64 = 1;
    pub(in crate::fill) const ROUTER: u64 = 2;
    pub(in crate::fill) const ROUTER_BIAS: u64 = 3;
    pub(in crate::fill) const FAVOURED: u64 = 4;
    pub(in crate::fill) const TIES: u64 = 5;
    pub(in crate::fill) const EXACT: u64 = 6;
    pub(in crate::fill) const W13: u64 = 16;
    pub(in crate::fill) const W2: u64 = 17;
    pub(in crate::fill) const W13_SCALE: u64 = 18;
    pub(in crate::fill) const W2_SCALE: u64 = 19;
    pub(in crate::fill) const W13_GLOBAL: u64 = 20;
    pub(in crate::fill) const W2_GLOBAL: u64 = 21;
    pub(in crate::fill) const W13_BIAS: u64 = 22;
    pub(in crate::fill) const W2_BIAS: u64 = 23;
}

/// Fixed scale of the input under static quantisation: 16 with E4M3's 448 reaches 28, beyond
/// every value that the wild fill draws.
const X_SCALE: f32 = 0.0625;
/// Fixed scale of the intermediate: reaches 224, which wild squares exceed now and then, so that
/// saturation happens too.
const H_SCALE: f32 = 0.5;

/// Draws every logical tensor of the case's layer.
///
/// Weights are drawn as stored codes and scales; nothing is quantised.
///
/// # Errors
/// When the case is not valid, or its tensors are larger than [`size::BYTES_MAX`].
pub fn fill(case: &Case) -> Result<Logical, FillError> {
    fill_in(case, &mut Pool::default())
}

/// [`fill`] in memory of a pool.
///
/// # Errors
/// As [`fill`].
pub fn fill_in(case: &Case, pool: &mut Pool) -> Result<Logical, FillError> {
    case.validate()?;
    size::check(case)?;
    let exact = Exact::choose(case);
    let halves = case.act.halves();
    let (e, h, i) = (case.e, case.h, case.i);
    let mut draw = Draw {
        case,
        arch: Arch::new(),
        pool,
    };
    let w13 = draw.projection(&exact, Projection::First);
    let w2 = draw.projection(&exact, Projection::Second);
    let (x, w13_bias, w2_bias) = match case.fill {
        Fill::Exact => {
            let squared = if case.act == Activation::Relu2 { 2 } else { 1 };
            let bias = BIAS_MAX as u32;
            (
                palette::integers(Dtype::F32, exact.x_max, 0),
                palette::integers(Dtype::F32, bias, exact.shift13),
                palette::integers(Dtype::F32, bias, exact.shift13 * squared + exact.shift2),
            )
        }
        _ => {
            let floats = |stream| palette::floats(case.fill, Dtype::F32, case.seed, stream, 0);
            (
                x_palette(case),
                floats(stream::W13_BIAS),
                floats(stream::W2_BIAS),
            )
        }
    };
    let biases = case.bias == Bias::Both;
    Ok(Logical {
        x: draw.tensor("x", &[case.t, h], 32, stream::X, &x),
        router: router::router(case),
        w13: w13.codes,
        w2: w2.codes,
        w13_scale: w13.scale,
        w2_scale: w2.scale,
        w13_global: w13.global,
        w2_global: w2.global,
        w13_bias: biases.then(|| {
            draw.tensor(
                "w13_bias",
                &[e, halves * i],
                32,
                stream::W13_BIAS,
                &w13_bias,
            )
        }),
        w2_bias: biases.then(|| draw.tensor("w2_bias", &[e, h], 32, stream::W2_BIAS, &w2_bias)),
        x_scale: X_SCALE,
        h_scale: H_SCALE,
    })
}

/// Inputs of the edge fill stop at 64, so that squares of sums of 64 times a format's largest
/// value stay finite.
fn x_palette(case: &Case) -> Palette {
    let mut x = palette::floats(case.fill, Dtype::F32, case.seed, stream::X, 0);
    if case.fill == Fill::Edge {
        for code in &mut x {
            *code = f32::from_bits(*code).clamp(-64.0, 64.0).to_bits();
        }
    }
    x
}

#[derive(Clone, Copy, PartialEq)]
enum Projection {
    First,
    Second,
}

/// One weight tensor with its scales.
struct Weights {
    codes: Tensor,
    scale: Option<Tensor>,
    global: Option<Tensor>,
}

/// Picks codes from palettes by seed, stream and index.
struct Draw<'a> {
    case: &'a Case,
    arch: Arch,
    pool: &'a mut Pool,
}

/// Elements picked at a time: their bytes stay in the first-level cache.
const CHUNK: usize = 4096;

impl Draw<'_> {
    /// The codes and scales of a projection.
    fn projection(&mut self, exact: &Exact, which: Projection) -> Weights {
        let case = self.case;
        let Case { e, h, i, w, .. } = *case;
        let first = which == Projection::First;
        let (halves, rows, cols) = if first {
            (case.act.halves(), i, h)
        } else {
            (1, h, i)
        };
        let (stream, stride, shift) = if first {
            (stream::W13, exact.stride13, exact.shift13)
        } else {
            (stream::W2, exact.stride2, exact.shift2)
        };
        let element = w.element();
        // Weights times this have sums of about 1 over the reduction axis.
        let size = |palette: &Palette| {
            1.0 / (palette::rms(element, palette).max(pow2(-20)) * (cols as f64).sqrt())
        };
        let (codes, target) = match (case.fill, w.scale()) {
            (Fill::Exact, None) => (palette::integers(element, exact.code_max, shift), 1.0),
            (Fill::Exact, Some(_)) => (palette::integers(element, exact.code_max, 0), 1.0),
            (_, None) => {
                let shift = -((cols as f64).log2() / 2.0).floor() as i32;
                (
                    palette::floats(case.fill, element, case.seed, stream, shift),
                    1.0,
                )
            }
            (_, Some(_)) => {
                let palette = palette::weights(case.fill, element, case.seed, stream);
                let target = size(&palette);
                (palette, target)
            }
        };
        let bits = element.bits().max(8) as usize;
        let names = if first {
            ["w13", "w13_scale", "w13_scale_2"]
        } else {
            ["w2", "w2_scale", "w2_scale_2"]
        };
        let mut tensor = self.tensor(names[0], &[e, halves * rows, cols], bits, stream, &codes);
        if case.fill == Fill::Exact {
            let zero = element.encode(0.0, Encode::OCP);
            thin(&mut tensor, stride as usize, zero);
        }
        let scale = w.scale().map(|grid| {
            let shape = [
                e,
                halves * size::blocks(grid.rows, rows),
                size::blocks(grid.cols, cols),
            ];
            let stream = if first {
                stream::W13_SCALE
            } else {
                stream::W2_SCALE
            };
            let palette = match case.fill {
                Fill::Exact => palette::powers(grid.dtype, exact.band, shift),
                // A second-level scale brings the size; block scales then stay around 1.
                fill => {
                    let target = if w.has_global_scale() { 1.0 } else { target };
                    palette::scales(fill, grid.dtype, case.seed, stream, target)
                }
            };
            self.tensor(
                names[1],
                &shape,
                grid.dtype.bits() as usize,
                stream,
                &palette,
            )
        });
        let global = w.has_global_scale().then(|| {
            let stream = if first {
                stream::W13_GLOBAL
            } else {
                stream::W2_GLOBAL
            };
            let palette = match case.fill {
                Fill::Exact => palette::powers(Dtype::F32, exact.band, 0),
                fill => palette::scales(fill, Dtype::F32, case.seed, stream, target),
            };
            self.tensor(names[2], &[e, halves], 32, stream, &palette)
        });
        debug_assert!(w != WeightFormat::Nvfp4 || global.is_some());
        Weights {
            codes: tensor,
            scale,
            global,
        }
    }

    fn tensor(
        &mut self,
        name: &'static str,
        shape: &[u64],
        bits: usize,
        stream: u64,
        palette: &Palette,
    ) -> Tensor {
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let mut tensor = self.pool.zeroed(name, &shape, bits);
        let all = tensor.bytes_mut();
        match bits {
            8 => {
                let codes = palette.map(|code| code as u8);
                for (n, chunk) in all.chunks_mut(CHUNK).enumerate() {
                    self.bytes(stream, n * CHUNK, chunk);
                    pick8(self.arch, &codes, chunk);
                }
            }
            16 => {
                let codes = palette.map(|code| code as u16);
                self.wide(stream, bytemuck::cast_slice_mut(all), |bytes, out| {
                    pick16(self.arch, &codes, bytes, out);
                });
            }
            _ => self.wide(stream, bytemuck::cast_slice_mut(all), |bytes, out| {
                pick32(self.arch, palette, bytes, out);
            }),
        }
        tensor
    }

    fn wide<T>(&self, stream: u64, out: &mut [T], pick: impl Fn(&[u8], &mut [T])) {
        let mut bytes = [0u8; CHUNK];
        for (n, chunk) in out.chunks_mut(CHUNK).enumerate() {
            let bytes = &mut bytes[..chunk.len()];
            self.bytes(stream, n * CHUNK, bytes);
            pick(bytes, chunk);
        }
    }

    /// The byte of each element from index `start` (a multiple of eight) on.
    fn bytes(&self, stream: u64, start: usize, out: &mut [u8]) {
        if self.case.fill == Fill::Paint {
            let mut n = start as u64 % PERIOD;
            for byte in out {
                *byte = n as u8;
                n = if n + 1 == PERIOD { 0 } else { n + 1 };
            }
        } else {
            rng::fill_bytes(self.case.seed, stream, start as u64 / 8, out);
        }
    }
}

/// Keeps one element in `stride` of each row, on a diagonal, so that every row and every column
/// keeps some, and zeroes the others.
fn thin(tensor: &mut Tensor, stride: usize, zero: u32) {
    let cols = tensor.shape().last().copied().unwrap_or(0);
    if stride <= 1 || cols == 0 {
        return;
    }
    match tensor.bits() {
        8 => thin_rows(tensor.bytes_mut(), cols, stride, zero as u8),
        16 => thin_rows(
            bytemuck::cast_slice_mut(tensor.bytes_mut()),
            cols,
            stride,
            zero as u16,
        ),
        _ => thin_rows(
            bytemuck::cast_slice_mut(tensor.bytes_mut()),
            cols,
            stride,
            zero,
        ),
    }
}

fn thin_rows<T: Copy>(all: &mut [T], cols: usize, stride: usize, zero: T) {
    let mut kept = Vec::with_capacity(cols.div_ceil(stride));
    for (row, elements) in all.chunks_mut(cols).enumerate() {
        let places = (row % stride..cols).step_by(stride);
        kept.clear();
        kept.extend(places.clone().map(|place| elements[place]));
        elements.fill(zero);
        for (place, &value) in places.zip(&kept) {
            elements[place] = value;
        }
    }
}
