//! What a rule's fills do to a plan: which pads are not zero, and what they meet.
//!
//! It must not read bytes. Layer 3.

use super::conditions::Facts;
use super::{Along, Effect, Plan, Role, Unit, Violation};
use crate::rule::PadValue;
use crate::terms::Bias;

impl Facts<'_> {
    /// V-4, V-5, V-11 and V-12: each pad is zero, or what it meets is.
    pub(super) fn fill_violations(&self, plan: &Plan, found: &mut Vec<Violation>) {
        let fill = self.rule.fill;
        let width = plan.ranks.iter().any(|rank| rank.len < plan.width_padded);
        let hidden = plan.hidden_padded != plan.dims.h;
        let bias = width && plan.bias == Bias::Both;
        let mut say = |code, axis, value, message: String, effect| {
            found.push(Violation {
                code,
                axis,
                value,
                unit: Unit::Elements,
                granule: 0,
                message,
                effect,
            });
        };
        let kept = [
            (width || hidden, fill.weight),
            (width || hidden, fill.scale),
            (bias, fill.bias),
            (hidden, fill.activation),
        ];
        if kept.contains(&(true, PadValue::Uninitialised)) {
            let message = "padding keeps what the memory held".to_owned();
            say(
                "PP120",
                "padding",
                plan.width_padded,
                message,
                Effect::Wrong,
            );
        }
        for (axis, there, value, what) in [
            (
                "bias pad",
                bias.then_some(plan.width_padded),
                fill.bias,
                "the tail of w13's bias, and so of the intermediate, is",
            ),
            (
                "activation pad",
                hidden.then_some(plan.hidden_padded),
                fill.activation,
                "the input's hidden tail, which a token's scale is taken from, is",
            ),
        ] {
            let number = match value {
                PadValue::Zero | PadValue::DecodeZero | PadValue::Uninitialised => continue,
                PadValue::ByteOne => "of bytes 1",
                PadValue::One => "1",
                PadValue::Existing => "a copied value",
            };
            if let Some(padded) = there {
                let message = format!("{what} {number}");
                say("PP120", axis, padded, message, Effect::Wrong);
            }
        }
        if fill.weight == PadValue::Uninitialised {
            return;
        }
        let (code, number) = (
            plan.weight_pad,
            plan.weight.element().decode(plan.weight_pad),
        );
        let value = u64::from(code);
        if !plan.w13_tail_is_zero() {
            let message =
                format!("the pad code {code} decodes to {number}, and its scale is not zero");
            say("PP120", "weight pad", value, message, Effect::Wrong);
            return;
        }
        for (role, along, meets) in [
            (
                Role::W2,
                Along::Width,
                "the intermediate, which the zero scales of w13's pads give",
            ),
            (Role::W13, Along::Hidden, "the input's hidden tail"),
        ] {
            if !plan.pads_inert(role, along) {
                let message = format!(
                    "the pad code {code} of {} decodes to {number} under scales that are not zero: it meets only zeros of {meets}",
                    role.name()
                );
                say("PP137", "weight pad", value, message, Effect::Note);
            }
        }
    }
}
