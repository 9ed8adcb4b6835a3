//! Names faults by the kind and place of what differs, where nothing makes its very codes.
//!
//! Dirty padding holds whatever memory held: where it lies names the fault, not what it is.
//!
//! It must not read elements. Layer 7.

use super::AuditError;
use super::check::count;
use super::diagnose::{Diagnosis, Evidence};
use super::files::experts_of;
use super::types::{Audit, Fault, Region};
use crate::checkpoint::Dump;
use crate::layout::map;
use crate::mutant;
use crate::plan::{Plan, Role};

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

fn of_mutant(name: &str, by: Evidence) -> Option<Diagnosis> {
    let mutant = mutant::ALL.iter().find(|m| m.name == name)?;
    Some(Diagnosis::of(mutant, by))
}

/// What a number of bytes says: scales of the whole axis where a rank's share belongs, or w2 grown
/// along its rows in place of its columns.
pub(super) fn by_size(
    plan: &Plan,
    dump: &Dump<'_>,
    audit: &Audit,
) -> Result<Option<Diagnosis>, AuditError> {
    if !audit.regions.iter().any(|r| r.fault == Fault::Size) {
        return Ok(None);
    }
    let (mut uncut, mut turned) = (0, 0);
    for stored in &dump.tensors {
        let Ok(map) = map(plan, stored.role, stored.rank) else {
            return Ok(None);
        };
        let actual = dump.bytes(stored, map.dtype)?;
        if actual == count(map.bytes()) {
            continue;
        }
        let experts = experts_of(plan, stored.rank)?.len();
        let bytes = |rows: usize, cols: usize| count(experts * rows * cols * map.grid.bits / 8);
        let [_, rows, cols] = map.logical_shape();
        let tile = map.grid.tile();
        match stored.role {
            Role::W13Scale | Role::W2Scale
                if actual
                    == bytes(rows.next_multiple_of(tile.0), cols.next_multiple_of(tile.1)) =>
            {
                uncut += 1;
            }
            Role::W2 => {
                let real = map.cols.runs().iter().map(|run| run.len).sum::<usize>();
                let pad = map.shape()[2] - real;
                turned += usize::from(actual == bytes(rows + pad, real));
            }
            _ => return Ok(None),
        }
    }
    Ok(match (uncut, turned) {
        (0, 0) => None,
        (_, 0) => of_mutant("scales-not-cut", Evidence::Sizes),
        (0, _) => of_mutant("w2-padded-on-hidden", Evidence::Sizes),
        _ => None,
    })
}

/// Padding of minus zero: some encoders write it for zero (facts/peers.md 3). No mutant, as no
/// property may see it.
pub(super) fn minus_zero(audit: &Audit) -> Option<Diagnosis> {
    // Elements in the place of padding may be minus zero as well.
    let moved = audit.regions.iter().any(|r| r.fault == Fault::Element);
    (audit.minus_zero_pads > 0 && !moved).then(|| Diagnosis {
        name: "minus-zero-pads",
        meaning: "padding of minus zero (0x88 in packed FP4, 0x80 in FP8, 0x8000 in bf16): inert; FP8 that is cast to FNUZ has NaN there",
        source: "facts/peers.md 3",
        by: Evidence::Places,
        experts: None,
        tensors: Vec::new(),
        ranks: Vec::new(),
        detail: String::new(),
        sample: String::new(),
    })
}
