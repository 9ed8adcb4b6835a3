//! Decodes rows of one expert's logical weights into f64.
//!
//! Decoding is exact: code, block scale and second scale have at most 53 significant bits
//! together. It must not know storage other than one code per element. Layer 5.

use super::error::ReferenceError;
use crate::num::{self, Dtype};
use crate::tensor::Tensor;
use crate::terms::{Extent, ScaleGrid, WeightFormat};

/// One projection of all experts, as logical tensors.
pub(super) struct Projection<'a> {
    codes: &'a Tensor,
    element: Dtype,
    scale: Option<(&'a [u8], ScaleGrid)>,
    global: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    halves: usize,
    rows: usize,
    cols: usize,
}

/// The tensors of one projection.
pub(super) struct Parts<'a> {
    pub(super) codes: &'a Tensor,
    pub(super) scale: Option<&'a Tensor>,
    pub(super) global: Option<&'a Tensor>,
    pub(super) bias: Option<&'a Tensor>,
}

/// Sizes of one projection.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) experts: usize,
    pub(super) halves: usize,
    /// Rows of one half.
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// The tensor, if its shape and width are as wanted.
pub(super) fn shaped<'a>(
    tensor: Option<&'a Tensor>,
    name: &'static str,
    wanted: &[usize],
    bits: u64,
) -> Result<&'a Tensor, ReferenceError> {
    let tensor = tensor.ok_or(ReferenceError::Missing { tensor: name })?;
    if tensor.shape() != wanted || tensor.bits() as u64 != bits {
        return Err(ReferenceError::Shape {
            tensor: name,
            wanted: wanted.to_vec(),
            actual: tensor.shape().to_vec(),
        });
    }
    Ok(tensor)
}

fn blocks(extent: Extent, n: usize) -> usize {
    match extent {
        Extent::All => 1,
        Extent::Block(b) => n.div_ceil(b as usize),
    }
}

impl<'a> Projection<'a> {
    /// Checks the tensors of a projection against its sizes; `names` are those of codes, scale,
    /// second scale and bias.
    pub(super) fn new(
        format: WeightFormat,
        sizes: Sizes,
        parts: Parts<'a>,
        biased: bool,
        names: [&'static str; 4],
    ) -> Result<Self, ReferenceError> {
        let Sizes {
            experts,
            halves,
            rows,
            cols,
        } = sizes;
        let element = format.element();
        let shape = [experts, halves * rows, cols];
        let codes = shaped(Some(parts.codes), names[0], &shape, element.bits().max(8))?;
        let scale = match format.scale() {
            None => None,
            Some(grid) => {
                let shape = [
                    experts,
                    halves * blocks(grid.rows, rows),
                    blocks(grid.cols, cols),
                ];
                let tensor = shaped(parts.scale, names[1], &shape, grid.dtype.bits())?;
                Some((tensor.bytes(), grid))
            }
        };
        let floats = |tensor, name, width: usize| {
            shaped(tensor, name, &[experts, width], 32).map(Tensor::f32s)
        };
        let global = match format.has_global_scale() {
            true => Some(floats(parts.global, names[2], halves)?),
            false => None,
        };
        let bias = match biased {
            true => Some(floats(parts.bias, names[3], halves * rows)?),
            false => None,
        };
        Ok(Projection {
            codes,
            element,
            scale,
            global,
            bias,
            halves,
            rows,
            cols,
        })
    }

    /// Rows of all halves.
    pub(super) fn rows_all(&self) -> usize {
        self.halves * self.rows
    }

    /// Columns.
    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// Bias of a row; zero where there is none.
    pub(super) fn bias(&self, expert: usize, row: usize) -> f64 {
        self.bias
            .map_or(0.0, |b| f64::from(b[expert * self.rows_all() + row]))
    }

    /// Decodes one row of one expert; `scales` is memory to be used again.
    #[inline(always)]
    pub(super) fn decode_row(
        &self,
        expert: usize,
        row: usize,
        values: &mut [f64],
        scales: &mut Vec<f64>,
    ) {
        let width = self.codes.bits() / 8 * self.cols;
        let bytes = &self.codes.bytes()[(expert * self.rows_all() + row) * width..][..width];
        num::decode_codes(self.element, bytes, values);
        self.scale_row(expert, row, values, scales);
    }

    /// Multiplies a row by its scales: half and row decide the scale's row, column its column.
    #[inline(always)]
    fn scale_row(&self, expert: usize, row: usize, values: &mut [f64], scales: &mut Vec<f64>) {
        let Some((bytes, grid)) = self.scale else {
            return;
        };
        let half = usize::from(row >= self.rows);
        let row = row - half * self.rows;
        let global = self
            .global
            .map_or(1.0, |g| f64::from(g[expert * self.halves + half]));
        let grid_rows = blocks(grid.rows, self.rows);
        let grid_cols = blocks(grid.cols, self.cols);
        let grid_row = match grid.rows {
            Extent::All => 0,
            Extent::Block(b) => row / b as usize,
        };
        let first = ((expert * self.halves + half) * grid_rows + grid_row) * grid_cols;
        let block = match grid.cols {
            Extent::All => self.cols,
            Extent::Block(b) => b as usize,
        };
        let width = grid.dtype.bits() as usize / 8;
        scales.resize(grid_cols, 0.0);
        num::decode_codes(grid.dtype, &bytes[first * width..], scales);
        for (values, scale) in values.chunks_mut(block).zip(scales) {
            let scale = *scale * global;
            values.iter_mut().for_each(|v| *v *= scale);
        }
    }
}
