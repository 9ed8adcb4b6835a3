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
        let kept = [
            (width || hidden, fill.weight),
            (width || hidden, fill.scale),
            (bias, fill.bias),
            (hidden, fill.activation),
        ];
        if kept.contains(&(true, PadValue::Uninitialised)) {
            let message = "padding keeps what the memory held".to_owned();
            found.push(wrong("padding", plan.width_padded, message));
        }
        if let Some(number) = not_zero(fill.bias).filter(|_| bias) {
            let message =
                format!("the tail of w13's bias, and so of the intermediate, is {number}");
            found.push(wrong("bias pad", plan.width_padded, message));
        }
        if let Some(number) = not_zero(fill.activation).filter(|_| hidden) {
            let message = format!(
                "the input's hidden tail, which a token's scale is taken from, is {number}"
            );
            found.push(wrong("activation pad", plan.hidden_padded, message));
        }
        if fill.weight != PadValue::Uninitialised {
            weight_pads(plan, found);
        }
    }
}

/// What the pad code of the weights decodes to, where that is not zero under a scale that is not.
fn weight_pads(plan: &Plan, found: &mut Vec<Violation>) {
    let code = plan.weight_pad;
    let number = plan.weight.element().decode(code);
    if !plan.w13_tail_is_zero() {
        let message = format!("the pad code {code} decodes to {number}, and its scale is not zero");
        found.push(wrong("weight pad", u64::from(code), message));
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
            found.push(Violation {
                code: "PP137",
                effect: Effect::Note,
                ..wrong("weight pad", u64::from(code), message)
            });
        }
    }
}

/// What a fill holds that is not zero and was written on purpose, in words.
fn not_zero(value: PadValue) -> Option<&'static str> {
    match value {
        PadValue::Zero | PadValue::DecodeZero | PadValue::Uninitialised => None,
        PadValue::ByteOne => Some("of bytes 1"),
        PadValue::One => Some("1"),
        PadValue::Existing => Some("a copied value"),
    }
}

/// PP120 of an axis, at `value` elements or at a pad's code.
fn wrong(axis: &'static str, value: u64, message: String) -> Violation {
    Violation {
        code: "PP120",
        axis,
        value,
        unit: Unit::Elements,
        granule: 0,
        message,
        effect: Effect::Wrong,
    }
}
