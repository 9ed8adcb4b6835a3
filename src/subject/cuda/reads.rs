//! What of a rank's tensors the kernels may read, byte by byte, for machines that let nothing else lie there.
//!
//! It must not say what they do with it. Layer 5.

use super::params::{GROUP, Matrix};
use super::rank::{Projection, row_bytes};
use crate::num::Dtype;
use std::ffi::c_int;
use std::ops::Range;

/// The first `read` bytes of every row.
pub(super) fn rows(pitch: usize, read: usize) -> impl Fn(usize) -> Vec<Range<usize>> {
    move |bytes| {
        let starts = (0..bytes).step_by(pitch.max(1));
        merged(starts.map(|start| start..bytes.min(start + read)).collect())
    }
}

/// How the channels of a projection lie in its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channels {
    pub(super) experts: usize,
    /// Two where gate and up share a tensor.
    pub(super) halves: usize,
    /// Channels of a half that are computed.
    pub(super) computed: usize,
    /// Rows of a half, as stored.
    pub(super) stored: usize,
    pub(super) up_first: bool,
    /// Rows of a half that stand together; 0: the whole half.
    pub(super) group: usize,
}

/// What is read of the four tensors of a projection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Readings<'a> {
    pub(super) channels: Channels,
    pub(super) of: &'a Projection<'a>,
    pub(super) weights: Dtype,
    pub(super) scales: Option<Dtype>,
}

fn size(n: c_int) -> usize {
    usize::try_from(n).unwrap_or(0)
}

impl Channels {
    /// Where a half lies, and the row of one of its channels.
    fn row(&self, half: usize, channel: usize) -> (usize, usize) {
        if self.halves == 1 {
            return (0, channel);
        }
        let place = if self.up_first { 1 - half } else { half };
        let run = if self.group == 0 {
            self.stored
        } else {
            self.group
        };
        let before = channel / run * run * 2;
        (place, before + place * run + channel % run)
    }

    /// Expert, half, channel of everything that is computed.
    fn all(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let Channels {
            experts,
            halves,
            computed,
            ..
        } = *self;
        (0..experts).flat_map(move |e| {
            (0..halves).flat_map(move |half| (0..computed).map(move |channel| (e, half, channel)))
        })
    }
}

impl Readings<'_> {
    /// Of the weights: the rows of channels that are computed, up to the last column that is multiplied.
    pub(super) fn weights(&self, _: usize) -> Vec<Range<usize>> {
        let (pitch, rows) = (self.of.row_bytes, size(self.of.matrix.rows));
        let read = row_bytes(self.of.computed, self.weights);
        let start = |(e, half, channel)| {
            let (_, row) = self.channels.row(half, channel);
            (e * rows + row) * pitch
        };
        let all = self.channels.all().map(start);
        merged(all.map(|start| start..start + read).collect())
    }

    /// Of the biases: those of channels that are computed.
    pub(super) fn bias(&self, _: usize) -> Vec<Range<usize>> {
        let rows = size(self.of.matrix.rows);
        let start = |(e, half, channel)| {
            let (_, row) = self.channels.row(half, channel);
            (e * rows + row) * 4
        };
        let all = self.channels.all().map(start);
        merged(all.map(|start| start..start + 4).collect())
    }

    /// Of the scales: the cells of groups that are multiplied.
    pub(super) fn scales(&self, bytes: usize) -> Vec<Range<usize>> {
        let matrix: &Matrix = &self.of.matrix;
        let cell = self.scales.map_or(1, |dtype| dtype.bits() as usize / 8);
        let expert = bytes / self.channels.experts.max(1);
        let (row_block, col_block) = (size(matrix.row_block), size(matrix.col_block));
        let stride = size(matrix.scale_cols);
        let mut all = Vec::new();
        for (e, half, channel) in self.channels.all() {
            let (place, row) = self.channels.row(half, channel);
            let row = match row_block {
                0 => half,
                1 => row,
                block => place * self.channels.stored.div_ceil(block) + channel / block,
            };
            for k in (0..self.of.computed).step_by(GROUP) {
                let col = k.checked_div(col_block).unwrap_or(0);
                let at = if matrix.tiled == 1 {
                    let tile = row / 128 * (stride / 4) + col / 4;
                    tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4
                } else {
                    row * stride + col
                };
                let start = e * expert + at * cell;
                all.push(start..start + cell);
            }
        }
        merged(all)
    }
}

/// The same bytes in the fewest ranges, in order.
fn merged(mut all: Vec<Range<usize>>) -> Vec<Range<usize>> {
    all.sort_unstable_by_key(|range| range.start);
    let mut kept: Vec<Range<usize>> = Vec::new();
    for range in all.into_iter().filter(|range| !range.is_empty()) {
        match kept.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => kept.push(range),
        }
    }
    kept
}
