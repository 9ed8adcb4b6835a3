//! One axis of a tensor: which physical position holds which logical one.

use super::error::LayoutError;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Which axis of which tensor, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) tensor: &'static str,
    pub(super) axis: &'static str,
}

/// Consecutive physical positions that hold consecutive logical ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First logical position.
    pub logical: usize,
    /// First physical position.
    pub physical: usize,
    /// Positions.
    pub len: usize,
}

/// A partial function from physical to logical positions, as runs in physical order.
///
/// Axes are composed from small maps: a range of the whole, its scale blocks, the halves or
/// interleaved groups of a gated tensor, a pad at the end. Positions in no run are padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    logical: usize,
    physical: usize,
    /// Two are held in place, as many as most axes and halves of a gated one have; blocks and groups that interleave are more.
    runs: SmallVec<[Run; 2]>,
}

/// How the halves of a gated axis lie in storage, in units of the axis they are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halves {
    /// Halves: 2 when gated, else 1.
    pub(super) count: usize,
    /// Whether the second logical half (up) comes first.
    pub(super) up_first: bool,
    /// Positions that stay together before the other half's turn; 0 for whole halves.
    pub(super) interleave: usize,
    /// Where the second half starts, when not interleaved.
    pub(super) second: usize,
}

impl Axis {
    /// The whole of an axis, unpadded.
    pub fn whole(len: usize) -> Axis {
        let runs = if len == 0 {
            SmallVec::new()
        } else {
            smallvec![Run {
                logical: 0,
                physical: 0,
                len,
            }]
        };
        Axis {
            logical: len,
            physical: len,
            runs,
        }
    }

    /// A range of an axis, moved to physical position 0.
    pub(super) fn range(
        at: At,
        whole: usize,
        start: usize,
        len: usize,
    ) -> Result<Axis, LayoutError> {
        if start.checked_add(len).is_none_or(|end| end > whole) && len > 0 {
            return Err(LayoutError::Range {
                tensor: at.tensor,
                axis: at.axis,
                start,
                len,
                whole,
            });
        }
        let mut axis = Axis::whole(len);
        axis.logical = whole;
        for run in &mut axis.runs {
            run.logical = start;
        }
        Ok(axis)
    }

    /// The scale blocks of a range: `block` elements each on the rank, `source` in the checkpoint.
    ///
    /// A size of 0 is one block for the axis; it is there even where the range is empty, as the
    /// stacks load a tensor-wide scale on every rank.
    pub(super) fn blocks(self, at: At, block: usize, source: usize) -> Result<Axis, LayoutError> {
        if block == 1 && source == 1 {
            return Ok(self);
        }
        if block == 0 && source == 0 {
            return Ok(Axis::whole(1));
        }
        let (start, len) = self.runs.first().map_or((0, 0), |r| (r.logical, r.len));
        let size = if block == 0 { len.max(1) } else { block };
        let mut axis = Axis {
            logical: if source == 0 {
                1
            } else {
                self.logical.div_ceil(source)
            },
            physical: len.div_ceil(size),
            runs: SmallVec::new(),
        };
        for local in 0..axis.physical {
            let first = start + local * size;
            let last = start + len.min(local.saturating_add(1).saturating_mul(size)) - 1;
            let logical = first.checked_div(source).unwrap_or(0);
            if last.checked_div(source).unwrap_or(0) != logical {
                return Err(LayoutError::Straddle {
                    tensor: at.tensor,
                    axis: at.axis,
                    block: local,
                    size,
                    source_size: source,
                });
            }
            axis.push(Run {
                logical,
                physical: local,
                len: 1,
            });
        }
        Ok(axis)
    }

    /// Both halves of a gated axis, each laid out like `self`.
    pub(super) fn gated(self, at: At, halves: Halves) -> Result<Axis, LayoutError> {
        if halves.count < 2 {
            return Ok(self);
        }
        let mut axis = Axis {
            logical: self.logical * 2,
            physical: 0,
            runs: SmallVec::new(),
        };
        // The logical start of the half that fills slot 0, and of the one in slot 1.
        let starts = if halves.up_first {
            [self.logical, 0]
        } else {
            [0, self.logical]
        };
        if halves.interleave == 0 {
            if self.physical > halves.second {
                return Err(LayoutError::TooSmall {
                    tensor: at.tensor,
                    axis: at.axis,
                    needed: self.physical,
                    has: halves.second,
                });
            }
            for (slot, start) in starts.iter().enumerate() {
                for run in &self.runs {
                    axis.push(Run {
                        logical: start + run.logical,
                        physical: slot * halves.second + run.physical,
                        len: run.len,
                    });
                }
            }
            axis.physical = halves.second + self.physical;
        } else {
            let group = halves.interleave;
            for run in &self.runs {
                for (offset, len) in pieces(run.physical, run.len, group) {
                    let at_half = run.physical + offset;
                    for (slot, start) in starts.iter().enumerate() {
                        axis.push(Run {
                            logical: start + run.logical + offset,
                            physical: (at_half / group) * 2 * group
                                + slot * group
                                + at_half % group,
                            len,
                        });
                    }
                }
            }
            if !axis.runs.is_sorted_by_key(|r| r.physical) {
                axis.runs.sort_unstable_by_key(|r| r.physical);
            }
            axis.physical = axis.runs.last().map_or(0, |r| r.physical + r.len);
        }
        Ok(axis)
    }

    /// The same axis with `to` physical positions, the new ones padding.
    pub(super) fn pad(mut self, at: At, to: usize) -> Result<Axis, LayoutError> {
        if to < self.physical {
            return Err(LayoutError::TooSmall {
                tensor: at.tensor,
                axis: at.axis,
                needed: self.physical,
                has: to,
            });
        }
        self.physical = to;
        Ok(self)
    }

    /// The same axis with positions permuted in blocks of `block`, a multiple of 8: position p of a
    /// block goes to (p % n) * 8 + p / n, n = block / 8 (facts/upstream-padding.md 1.4 F5; that p
    /// is the source and not the target: TensorRT-LLM's and flashinfer's `shuffle_matrix_a`).
    pub(super) fn shuffled(self, at: At, block: usize) -> Result<Axis, LayoutError> {
        if !self.physical.is_multiple_of(block) {
            return Err(LayoutError::Group {
                tensor: at.tensor,
                axis: at.axis,
                value: self.physical,
                granule: block,
            });
        }
        let n = block / 8;
        let to = |p: usize| p / block * block + p % n * 8 + p % block / n;
        let mut places: Vec<_> = self
            .runs
            .iter()
            .flat_map(|run| (0..run.len).map(|k| (to(run.physical + k), run.logical + k)))
            .collect();
        places.sort_unstable();
        let mut axis = Axis {
            runs: SmallVec::new(),
            ..self
        };
        for (physical, logical) in places {
            axis.push(Run {
                logical,
                physical,
                len: 1,
            });
        }
        Ok(axis)
    }

    /// The same axis holding nothing: every position is padding.
    pub(super) fn emptied(mut self) -> Axis {
        self.runs.clear();
        self
    }

    /// Positions of the whole logical axis, on all ranks.
    pub fn logical_len(&self) -> usize {
        self.logical
    }

    /// Physical positions, padding included.
    pub fn physical_len(&self) -> usize {
        self.physical
    }

    /// The runs, in physical order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The logical position at a physical one; `None` for padding.
    #[inline]
    pub fn to_logical(&self, physical: usize) -> Option<usize> {
        let after = self.runs.partition_point(|r| r.physical <= physical);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let offset = physical - run.physical;
        (offset < run.len).then(|| run.logical + offset)
    }

    /// The first physical position that holds a logical one; `None` if the rank lacks it.
    pub fn to_physical(&self, logical: usize) -> Option<usize> {
        self.runs
            .iter()
            .find(|r| r.logical <= logical && logical - r.logical < r.len)
            .map(|r| r.physical + logical - r.logical)
    }

    /// The padding, as ranges of physical positions in order.
    pub fn gaps(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = std::iter::once(0).chain(self.runs.iter().map(|r| r.physical + r.len));
        let ends = self
            .runs
            .iter()
            .map(|r| r.physical)
            .chain(std::iter::once(self.physical));
        starts
            .zip(ends)
            .map(|(start, end)| start..end)
            .filter(|gap| !gap.is_empty())
    }

    /// Whether every logical position is held at its own physical one, with `stored` in all.
    pub(super) fn fills(&self, stored: usize) -> bool {
        self.logical == stored
            && self.runs.len() == 1
            && self.runs[0].logical == 0
            && self.runs[0].physical == 0
            && self.runs[0].len == stored
    }

    /// Appends a run, joining it to the last one where both sides continue.
    fn push(&mut self, run: Run) {
        if run.len == 0 {
            return;
        }
        if let Some(last) = self.runs.last_mut()
            && last.physical + last.len == run.physical
            && last.logical + last.len == run.logical
        {
            last.len += run.len;
            return;
        }
        self.runs.push(run);
    }
}

/// Cuts `len` positions that start at `start` at multiples of `group`: (offset, len) each.
fn pieces(start: usize, len: usize, group: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        if offset == len {
            return None;
        }
        let here = offset;
        let piece = (group - (start + here) % group).min(len - here);
        offset += piece;
        Some((here, piece))
    })
}
