//! What padding weights come to: their code under the scales that they meet.
//!
//! It must not read bytes. Layer 3.

use super::{Plan, Role, ScalePlan};

/// An axis that padding lengthens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Rows of w13, columns of w2.
    Width,
    /// Columns of w13, rows of w2.
    Hidden,
}

/// One axis of a weight: elements that are real on each rank that holds any, and elements in all.
struct Axis {
    real: Vec<u64>,
    padded: u64,
}

impl Plan {
    /// Whether every pad of w13, or of w2, along an axis decodes to zero: its code does, or each
    /// scale that it meets does (lemmas `zero-codes-are-inert`, `zero-scales-are-inert`).
    pub fn pads_inert(&self, role: Role, along: Along) -> bool {
        let axis = self.axis(along);
        let none = axis.real.iter().all(|real| *real >= axis.padded);
        if none || self.weight.element().decode(self.weight_pad) == 0.0 {
            return true;
        }
        let scale = match role.is_second() {
            true => self.w2_scale,
            false => self.w13_scale,
        };
        let Some(scale) = scale else {
            return false;
        };
        let rows = (along == Along::Width) != role.is_second();
        let block = if rows {
            scale.row_block
        } else {
            scale.col_block
        };
        zero(&scale) && !axis.meets_real(block)
    }

    /// Whether the kernel may be given these pads: the intermediate's tail, which w2's meet, is exactly
    /// zero (facts/upstream-padding.md 3.1 V-4, V-11).
    pub fn w13_tail_is_zero(&self) -> bool {
        self.pads_inert(Role::W13, Along::Width)
    }

    /// Whether pads are zero by their scales alone, which must then be exactly zero.
    pub fn rests_on_scales(&self) -> bool {
        let loud = self.weight.element().decode(self.weight_pad) != 0.0;
        loud && self.w13_tail_is_zero() && self.w13_scale.as_ref().is_some_and(zero)
    }

    fn axis(&self, along: Along) -> Axis {
        match along {
            Along::Hidden => Axis {
                real: vec![self.dims.h],
                padded: self.hidden_padded,
            },
            Along::Width => Axis {
                real: self.ranks.iter().map(|rank| rank.len).collect(),
                padded: self.width_padded,
            },
        }
    }
}

impl Axis {
    /// Whether a pad shares a scale with something real: blocks are counted from the rank's first
    /// channel on, and one scale for the whole axis is always a real one.
    fn meets_real(&self, block: u64) -> bool {
        let short = |real: &u64| match block {
            0 => *real < self.padded,
            _ => *real < self.padded && !real.is_multiple_of(block),
        };
        self.real.iter().any(short)
    }
}

/// Whether the scale of padding decodes to zero.
fn zero(scale: &ScalePlan) -> bool {
    scale.dtype.decode(scale.pad_code) == 0.0
}
