//! Names dirt by its kind and place, where nothing makes its very codes.
//!
//! Dirty padding holds whatever memory held: where it lies names the fault, not what it is.
//!
//! It must not read elements. Layer 7.

use super::diagnose::{Diagnosis, Evidence};
use super::types::{Audit, Fault, Region};
use crate::mutant;
use crate::num::Dtype;
use crate::plan::Plan;

/// The dirt's name; `beside` says that elements are explained already.
pub(super) fn by_place(audit: &Audit, beside: bool) -> Option<Diagnosis> {
    let dirt = [
        Fault::Pad,
        Fault::PadNan,
        Fault::ScalePad,
        Fault::StoragePad,
    ];
    let regions = audit.regions.iter();
    let (dirty, rest): (Vec<_>, Vec<_>) = regions.partition(|r| dirt.contains(&r.fault));
    if dirty.is_empty() || !(beside || rest.is_empty()) {
        return None;
    }
    let any = |fault| dirty.iter().any(|r: &&Region| r.fault == fault);
    let of = |tensor: &str| {
        dirty
            .iter()
            .any(|r| r.tensor == tensor && r.fault != Fault::StoragePad)
    };
    let scales = any(Fault::ScalePad);
    let weights = any(Fault::Pad) || any(Fault::PadNan);
    let name = match (of("w13"), of("w2"), of("w13_bias"), scales) {
        (false, false, false, false) if of("w2_bias") => "bias-pad-dirty",
        (false, false, false, false) => "storage-pads-dirty",
        (false, false, false, true) => "scale-pad-nan",
        // NaN and nothing else is what a fill or a cast writes; memory holds a mixture.
        _ if weights && !any(Fault::Pad) && !scales => "pads-nan",
        (true, true, _, _) => "tails-uninitialised",
        (true, false, false, _) => "w13-tail-dirty",
        (false, true, false, _) => "w2-tail-dirty",
        (false, true, true, _) => "bias-and-w2-pad-dirty",
        (false, false, true, _) => "bias-pad-dirty",
        (true, false, true, _) => "tails-uninitialised",
    };
    of_mutant(name, Evidence::Places)
}

pub(super) fn of_mutant(name: &str, by: Evidence) -> Option<Diagnosis> {
    let mutant = mutant::ALL.iter().find(|m| m.name == name)?;
    Some(Diagnosis::of(mutant, by))
}

/// Padding of minus zero: some encoders write it for zero (facts/peers.md 3). No mutant, as no
/// property may see it.
pub(super) fn minus_zero(plan: &Plan, audit: &Audit) -> Option<Diagnosis> {
    // Elements in the place of padding may be minus zero as well.
    let moved = audit.regions.iter().any(|r| r.fault == Fault::Element);
    if audit.minus_zero_pads == 0 || moved {
        return None;
    }
    let bias = |name: &str| name.ends_with("bias");
    let (biases, weights): (Vec<&str>, Vec<&str>) =
        audit.minus_zero_in.iter().partition(|name| bias(name));
    let code = match plan.weight.element() {
        Dtype::E2m1 => "0x8 in FP4, 0x88 where two are packed",
        Dtype::E4m3 | Dtype::E5m2 | Dtype::E4m3Fnuz => {
            "0x80 in FP8, which a cast to FNUZ makes NaN"
        }
        Dtype::Bf16 => "0x8000 in bf16",
        Dtype::F16 => "0x8000 in f16",
        _ => "a sign alone",
    };
    let mut told = Vec::new();
    if !weights.is_empty() {
        told.push(format!("{code}: in {}", weights.join(" and ")));
    }
    if !biases.is_empty() {
        told.push(format!("a sign alone: in {}", biases.join(" and ")));
    }
    Some(Diagnosis {
        name: "minus-zero-pads",
        meaning: "padding of minus zero: inert",
        source: "facts/peers.md 3",
        by: Evidence::Places,
        experts: None,
        tensors: Vec::new(),
        ranks: Vec::new(),
        detail: told.join("; "),
        sample: String::new(),
    })
}
