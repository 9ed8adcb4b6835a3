//! A packed weight tensor of one rank, read row by row as f32 with its scales applied.
//!
//! Its index arithmetic is its own: `layout`'s maps are what it is held against.

use super::sizes::axis;
use super::{tiles, unpack};
use crate::num::Dtype;
use crate::plan::ScalePlan;
use crate::subject::error::SubjectError;
use crate::terms::{Nibble, Order, Storage};
use pulp::Simd;

/// Which half of w13 a row belongs to, and where each half's channel j lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halves {
    pub(super) count: usize,
    /// Channels of a half, padding included: where the kernel splits.
    pub(super) width: usize,
    up_first: bool,
    /// Rows that stay together; 0 for whole halves.
    group: usize,
}

impl Halves {
    pub(super) fn of_w13(order: Order, count: usize, width: usize) -> Halves {
        let group = match order.interleave() {
            1 => 1,
            8 => 8,
            16 => 16,
            64 => 64,
            _ => 0,
        };
        Halves {
            count,
            width,
            up_first: order.up_first(),
            group: if count == 2 { group } else { 0 },
        }
    }

    pub(super) fn of_w2(rows: usize) -> Halves {
        Halves {
            count: 1,
            width: rows,
            up_first: false,
            group: 0,
        }
    }

    /// Rows that stay together, at most a half.
    pub(super) fn run(&self) -> usize {
        if self.group == 0 {
            self.width
        } else {
            self.group
        }
    }

    /// Whether the up half comes first.
    pub(super) fn up_first(&self) -> bool {
        self.count == 2 && self.up_first
    }

    /// (place of the half: 0 first, 1 second; channel) of a stored row.
    fn place(&self, row: usize) -> (usize, usize) {
        if self.count == 1 {
            return (0, row);
        }
        let run = self.run().max(1);
        let turn = row / run;
        (turn % 2, turn / 2 * run + row % run)
    }

    /// 0 for gate's rows, 1 for up's.
    fn projection(&self, row: usize) -> usize {
        let place = self.place(row).0;
        if self.up_first() { 1 - place } else { place }
    }
}

/// The scales of a weight tensor, in their storage.
#[derive(Debug, Clone, Copy)]
struct Scales<'a> {
    bytes: &'a [u8],
    dtype: Dtype,
    /// Bytes of a scale.
    size: usize,
    row_block: usize,
    rows: usize,
    cols: usize,
    /// Scales that a row of weights uses.
    used: usize,
    storage: Storage,
}

/// A weight tensor of one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a> {
    bytes: &'a [u8],
    dtype: Dtype,
    high_first: bool,
    row_bytes: usize,
    /// Bytes of an expert.
    expert_bytes: usize,
    /// Row-major, in pieces of sixteen bytes, or in permuted rows.
    storage: Storage,
    pub(super) rows: usize,
    pub(super) cols: usize,
    halves: Halves,
    scales: Option<Scales<'a>>,
    col_block: usize,
    /// Second-level scales, one per expert and projection.
    globals: Option<&'a [f32]>,
}

/// What a [`Matrix`] is made from.
pub(super) struct Parts<'a> {
    pub(super) name: &'static str,
    pub(super) bytes: &'a [u8],
    pub(super) dtype: Dtype,
    pub(super) nibble: Nibble,
    pub(super) storage: Storage,
    pub(super) experts: usize,
    pub(super) cols: usize,
    pub(super) halves: Halves,
    pub(super) globals: Option<&'a [f32]>,
    pub(super) scales: Option<(&'static str, &'a [u8], ScalePlan, Storage)>,
}

impl<'a> Matrix<'a> {
    /// Checks every size, so that reading can index without asking again.
    pub(super) fn new(parts: Parts<'a>) -> Result<Matrix<'a>, SubjectError> {
        let rows = parts.halves.count * parts.halves.width;
        let row_bytes = (parts.cols * bits(parts.dtype)).div_ceil(8);
        let storage = tiles::of_weights(parts.storage, parts.dtype);
        let (stored_rows, row_bytes) = tiles::stored(storage, rows, row_bytes);
        let factors = [parts.experts, stored_rows, row_bytes];
        expect_bytes(parts.name, parts.bytes, &factors)?;
        let (granule, piece) = tiles::weight_granules(storage);
        for (unit, actual, granule) in [("rows", rows, granule), ("row bytes", row_bytes, piece)] {
            if actual % granule != 0 {
                let wanted = actual.next_multiple_of(granule);
                return Err(size_error(parts.name, unit, wanted, actual));
            }
        }
        let mut col_block = parts.cols;
        let mut scales = None;
        if let Some((name, bytes, grid, storage)) = parts.scales {
            col_block = match axis("col_block", grid.col_block)? {
                0 => parts.cols,
                block => block,
            };
            let of = Scales::new(name, bytes, grid, storage, parts.experts)?;
            let used = parts.cols.div_ceil(col_block.max(1));
            let needed = match of.row_block {
                0 => parts.halves.count,
                _ => of.row_of(&parts.halves, rows.saturating_sub(1)) + 1,
            };
            for (unit, wanted, actual) in [
                ("scale columns", used, of.cols),
                ("scale rows", needed, of.rows),
            ] {
                if rows > 0 && actual < wanted {
                    return Err(size_error(name, unit, wanted, actual));
                }
            }
            scales = Some(Scales { used, ..of });
        }
        if let Some(globals) = parts.globals {
            let wanted = parts.experts * parts.halves.count;
            if globals.len() != wanted {
                return Err(size_error(
                    parts.name,
                    "second-level scales",
                    wanted,
                    globals.len(),
                ));
            }
        }
        Ok(Matrix {
            bytes: parts.bytes,
            dtype: parts.dtype,
            high_first: parts.nibble == Nibble::High,
            row_bytes,
            expert_bytes: stored_rows * row_bytes,
            storage,
            rows,
            cols: parts.cols,
            halves: parts.halves,
            scales,
            col_block,
            globals: parts.globals,
        })
    }

    /// One expert's rows as they lie in memory, when they are plain f32 of this machine's order.
    pub(super) fn in_place(&self, expert: usize) -> Option<&'a [f32]> {
        let plain = self.dtype == Dtype::F32
            && self.storage == Storage::Linear
            && self.scales.is_none()
            && self.globals.is_none();
        if !plain || cfg!(target_endian = "big") {
            return None;
        }
        let size = self.rows * self.row_bytes;
        bytemuck::try_cast_slice(&self.bytes[expert * size..(expert + 1) * size]).ok()
    }

    /// Reads one row into `out` (`cols` long) and multiplies it by its scales.
    ///
    /// A weight is code * (block scale * second-level scale): two roundings at most.
    #[inline(always)]
    pub(super) fn read_row<S: Simd>(
        &self,
        simd: S,
        expert: usize,
        row: usize,
        out: &mut [f32],
        scratch: &mut Vec<f32>,
    ) {
        let place = tiles::row_place(self.storage, row);
        let start = expert * self.expert_bytes;
        let bytes = &self.bytes[start..start + self.expert_bytes];
        match self.storage {
            Storage::Shuffle16x16 => {
                let piece = tiles::PIECE * 8 / bits(self.dtype);
                for (n, out) in out.chunks_mut(piece).enumerate() {
                    let at = tiles::piece(self.row_bytes, row, n);
                    let bytes = &bytes[at..at + tiles::PIECE];
                    unpack::read(self.dtype, self.high_first, bytes, out);
                }
            }
            Storage::TritonHopperValue => {
                for (n, out) in out.chunks_mut(2 * tiles::DEAL).enumerate() {
                    let dealt = tiles::dealt(bytes, self.row_bytes, row, n);
                    unpack::read(self.dtype, self.high_first, &dealt, out);
                }
            }
            _ => {
                let bytes = &bytes[place * self.row_bytes..][..self.row_bytes];
                unpack::read(self.dtype, self.high_first, bytes, out);
            }
        }
        let global = self
            .globals
            .map(|g| g[expert * self.halves.count + self.halves.projection(row)]);
        let Some(scales) = &self.scales else {
            if let Some(global) = global {
                multiply(out, global);
            }
            return;
        };
        scratch.resize(scales.used, 0.0);
        // A scale of one row stands where its row stands.
        let scale_row = match scales.row_block {
            1 => place,
            _ => scales.row_of(&self.halves, row),
        };
        scales.read_row(expert, scale_row, scratch);
        if let Some(global) = global {
            multiply(scratch, global);
        }
        match self.col_block {
            16 => by_block::<S, 16>(simd, out, scratch),
            32 => by_block::<S, 32>(simd, out, scratch),
            block => {
                for (chunk, &scale) in out.chunks_mut(block.max(1)).zip(scratch.iter()) {
                    multiply(chunk, scale);
                }
            }
        }
    }
}

#[inline(always)]
fn multiply(values: &mut [f32], by: f32) {
    for v in values {
        *v *= by;
    }
}

/// In vectors by hand: left alone, the compiler gathers and scatters over the blocks.
#[inline(always)]
fn by_block<S: Simd, const N: usize>(simd: S, values: &mut [f32], scales: &[f32]) {
    let (blocks, last) = values.as_chunks_mut::<N>();
    for (block, &scale) in blocks.iter_mut().zip(scales) {
        let scale = simd.splat_f32s(scale);
        for v in bytemuck::cast_slice_mut::<f32, S::f32s>(block) {
            *v = simd.mul_f32s(*v, scale);
        }
    }
    if let Some(&scale) = scales.get(blocks.len()) {
        multiply(last, scale);
    }
}

impl<'a> Scales<'a> {
    fn new(
        name: &'static str,
        bytes: &'a [u8],
        grid: ScalePlan,
        storage: Storage,
        experts: usize,
    ) -> Result<Scales<'a>, SubjectError> {
        let (rows, cols) = (
            axis("rows_stored", grid.rows_stored)?,
            axis("cols_stored", grid.cols_stored)?,
        );
        let size = bits(grid.dtype) / 8;
        expect_bytes(name, bytes, &[experts, rows, cols, size])?;
        let storage = tiles::of_scales(storage, grid.dtype);
        let (row_tile, col_tile) = tiles::scale_granules(storage);
        for (unit, actual, granule) in [
            ("stored rows", rows, row_tile),
            ("stored columns", cols, col_tile),
        ] {
            if actual % granule != 0 {
                let wanted = actual.next_multiple_of(granule);
                return Err(size_error(name, unit, wanted, actual));
            }
        }
        Ok(Scales {
            bytes,
            dtype: grid.dtype,
            size,
            row_block: axis("row_block", grid.row_block)?,
            rows,
            cols,
            used: 0,
            storage,
        })
    }

    /// The scale row of a weight row.
    fn row_of(&self, halves: &Halves, row: usize) -> usize {
        match self.row_block {
            0 => halves.projection(row),
            1 => row,
            block => {
                let (place, channel) = halves.place(row);
                place * halves.width.div_ceil(block) + channel / block
            }
        }
    }

    #[inline(always)]
    fn read_row(&self, expert: usize, row: usize, out: &mut [f32]) {
        let expert_bytes = &self.bytes[expert * self.rows * self.cols * self.size..];
        match self.storage {
            Storage::Linear => {
                let bytes = &expert_bytes[row * self.cols * self.size..];
                unpack::read(self.dtype, false, bytes, out);
            }
            Storage::Tiled128x4 => {
                // Four neighbours of a row stand together; the next four are a tile of 512 further on.
                let band = row / 128 * (self.cols / 4) * 512;
                let inside = row % 32 * 16 + row % 128 / 32 * 4;
                for (n, four) in out.chunks_mut(4).enumerate() {
                    let bytes = &expert_bytes[band + n * 512 + inside..];
                    unpack::read(self.dtype, false, bytes, four);
                }
            }
            storage => {
                let sizes = (self.rows, self.cols);
                for (col, one) in out.iter_mut().enumerate() {
                    let bytes = &expert_bytes[tiles::scale_byte(storage, sizes, row, col)..];
                    unpack::read(self.dtype, false, bytes, std::slice::from_mut(one));
                }
            }
        }
    }
}

fn bits(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F32 => 32,
        Dtype::F16 | Dtype::Bf16 => 16,
        Dtype::E2m1 | Dtype::Int4 => 4,
        Dtype::E4m3 | Dtype::E4m3Fnuz | Dtype::E5m2 | Dtype::E8m0 | Dtype::Int8 => 8,
    }
}

/// The error of a size that is not what the plan makes it.
pub(in crate::subject) fn size_error(
    tensor: &'static str,
    unit: &'static str,
    wanted: usize,
    actual: usize,
) -> SubjectError {
    let wide = |n| u64::try_from(n).unwrap_or(u64::MAX);
    SubjectError::Size {
        tensor,
        unit,
        wanted: wide(wanted),
        actual: wide(actual),
    }
}

/// Checks a byte count against a product of sizes.
pub(in crate::subject) fn expect_bytes(
    tensor: &'static str,
    bytes: &[u8],
    factors: &[usize],
) -> Result<(), SubjectError> {
    let wanted = factors.iter().try_fold(1usize, |a, &f| a.checked_mul(f));
    if wanted == Some(bytes.len()) {
        return Ok(());
    }
    Err(size_error(
        tensor,
        "bytes",
        wanted.unwrap_or(usize::MAX),
        bytes.len(),
    ))
}
