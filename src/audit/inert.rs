//! Judges single codes of padding.
//!
//! It must not read tensors. Layer 7.

use super::types::Fault;
use crate::layout::{Map, pad_code};
use crate::num::Dtype;
use crate::plan::{Plan, Role};

/// When a padding code is inert (facts/upstream-padding.md 3.1, V-4, V-5, V-12).
pub(super) struct Inert {
    dtype: Dtype,
    scale: bool,
    /// The code that the plan writes.
    pub(super) code: u32,
    /// Whether the plan's code is inert though it does not decode to zero: its scales are zero, or it
    /// meets only zeros.
    rests: bool,
    /// Whether nothing but scales of zero makes the padding inert.
    zero: bool,
}

/// What a code does in padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Inert,
    MinusZero,
    Loud,
    /// Not a number, or not finite.
    NaN,
}

impl Inert {
    /// Of a tensor's padding under a plan, which may rest on its scales.
    pub(super) fn under(plan: &Plan, map: &Map) -> Inert {
        let (weight, scale) = match map.role {
            Role::W13 | Role::W2 => (true, false),
            Role::W13Scale | Role::W2Scale => (false, true),
            Role::W13Global | Role::W2Global | Role::W13Bias | Role::W2Bias => (false, false),
        };
        Inert {
            dtype: map.dtype,
            scale: scale || matches!(map.role, Role::W13Global | Role::W2Global),
            code: pad_code(plan, map.role),
            rests: weight && plan.w13_tail_is_zero(),
            zero: scale && plan.rests_on_scales(),
        }
    }

    /// Scales need only be finite where what they multiply is zero; all else decodes to zero, or is
    /// the code of a plan whose pads rest.
    pub(super) fn judge(&self, code: u32) -> Judgement {
        let value = self.dtype.decode(code);
        if self.scale {
            return match value.is_finite() {
                true if self.zero && value != 0.0 => Judgement::Loud,
                true => Judgement::Inert,
                false => Judgement::NaN,
            };
        }
        if self.rests && code == self.code && value.is_finite() && value != 0.0 {
            return Judgement::Inert;
        }
        if !value.is_finite() {
            Judgement::NaN
        } else if value != 0.0 {
            Judgement::Loud
        } else if value.is_sign_negative() {
            Judgement::MinusZero
        } else {
            Judgement::Inert
        }
    }

    pub(super) fn fault(&self, judgement: Judgement) -> Fault {
        match (self.scale, judgement) {
            (true, _) => Fault::ScalePad,
            (false, Judgement::NaN) => Fault::PadNan,
            (false, _) => Fault::Pad,
        }
    }
}
