//! What a kernel is told at run time, and so multiplies (facts/upstream-padding.md 3.1 V-14).

use super::arith::round_up;
use super::conditions::{Facts, Truth};
use super::{Effect, Plan, Unit, Violation};
use crate::rule::{Rounding, Valid};

impl Facts<'_> {
    /// Sets the computed sizes of `plan` and says where they cut real channels.
    pub(super) fn valid_sizes(&self, plan: &mut Plan, found: &mut Vec<Violation>) {
        let Some(valid) = self
            .rule
            .valid
            .iter()
            .find(|v| self.holds(&v.when, plan.width) == Truth::Yes)
        else {
            return;
        };
        let (width, hidden) = (plan.width, plan.dims.h);
        if valid.doubled_unread {
            for (axis, unit, real, padded) in [
                ("intermediate", valid.intermediate, width, plan.width_padded),
                ("hidden", valid.hidden, hidden, plan.hidden_padded),
            ] {
                let told = padded - computed(valid, unit, real, padded);
                found.extend((told > 0).then(|| doubled(axis, told)));
            }
            return;
        }
        plan.width_computed = computed(valid, valid.intermediate, width, plan.width_padded);
        plan.hidden_computed = computed(valid, valid.hidden, hidden, plan.hidden_padded);
        let w2_width = valid.w2_intermediate.or(valid.intermediate);
        let w2_hidden = valid.w2_hidden.or(valid.hidden);
        plan.w2_width_computed = computed(valid, w2_width, width, plan.width_padded);
        plan.w2_hidden_computed = computed(valid, w2_hidden, hidden, plan.hidden_padded);
        let fullest = plan.ranks.iter().map(|r| r.len).max().unwrap_or(0);
        for (axis, real, told) in [
            (
                "intermediate",
                fullest,
                plan.width_computed.min(plan.w2_width_computed),
            ),
            (
                "hidden",
                hidden,
                plan.hidden_computed.min(plan.w2_hidden_computed),
            ),
        ] {
            if told < real {
                found.push(Violation {
                    code: "PP125",
                    axis,
                    value: told,
                    unit: Unit::Elements,
                    granule: real,
                    message: format!(
                        "the kernel is told to compute {told}, though a rank holds {real} real ones"
                    ),
                    effect: Effect::Wrong,
                });
            }
        }
        let rounded = valid.hidden.and_then(|unit| round_up(hidden, unit));
        if let (true, Some(rounded)) = (valid.rounding == Rounding::Up, rounded) {
            let misses =
                rounded > plan.hidden_padded || (valid.exact && rounded != plan.hidden_padded);
            if misses {
                let must = if valid.exact { "be" } else { "be within" };
                found.push(Violation {
                    code: "PP125",
                    axis: "hidden",
                    value: rounded,
                    unit: Unit::Elements,
                    granule: plan.hidden_padded,
                    message: format!(
                        "the valid hidden size {hidden} rounds up to {rounded}, which must {must} the padded {}",
                        plan.hidden_padded
                    ),
                    effect: Effect::Refused,
                });
            }
        }
    }
}

/// A pad amount that is passed twice over, to a kernel that may double it.
fn doubled(axis: &'static str, told: u64) -> Violation {
    Violation {
        code: "PP119",
        axis,
        value: told,
        unit: Unit::Elements,
        granule: 0,
        message: format!(
            "the pad amount of {told} is passed doubled on these ranks: where the kernel doubles it too, real channels are masked, and whether it does was not read"
        ),
        effect: Effect::Unknown,
    }
}

/// The size that is multiplied, of `padded` elements of which `real` are real.
fn computed(valid: &Valid, unit: Option<u64>, real: u64, padded: u64) -> u64 {
    let Some(unit) = unit else { return padded };
    match valid.rounding {
        Rounding::Up => round_up(real, unit).map_or(padded, |up| up.min(padded)),
        Rounding::PadDown => {
            let pad = padded.saturating_sub(real) / unit * unit;
            padded.saturating_sub(if valid.doubled { 2 * pad } else { pad })
        }
    }
}
