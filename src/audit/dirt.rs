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
use crate::num::Dtype;
use crate::plan::{Plan, Role, ScalePlan};

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
    let (mut uncut, mut turned, mut coarse) = (0, 0, 0);
    for stored in &dump.tensors {
        let Ok(map) = map(plan, stored.role, stored.rank) else {
            return Ok(None);
        };
        let actual = dump.bytes(stored, map.dtype)?;
        if actual == count(map.bytes()) {
            continue;
        }
        let experts = experts_of(plan, stored.rank)?.len();
        let tile = map.grid.tile();
        let bytes = |rows: usize, cols: usize| {
            let (rows, cols) = (rows.next_multiple_of(tile.0), cols.next_multiple_of(tile.1));
            count(experts * rows * cols * map.grid.bits / 8)
        };
        let [_, rows, cols] = map.logical_shape();
        match stored.role {
            Role::W13Scale | Role::W2Scale
                if blocks(plan, stored.role).is_some_and(|(r, c)| actual == bytes(r, c)) =>
            {
                coarse += 1;
            }
            Role::W13Scale | Role::W2Scale if actual == bytes(rows, cols) => uncut += 1,
            Role::W2 => {
                let real = map.cols.runs().iter().map(|run| run.len).sum::<usize>();
                let pad = map.shape()[2] - real;
                turned +=
                    usize::from(actual == count(experts * (rows + pad) * real * map.grid.bits / 8));
            }
            _ => return Ok(None),
        }
    }
    Ok(match (uncut, turned, coarse) {
        (0, 0, 0) => None,
        (_, 0, 0) => of_mutant("scales-not-cut", Evidence::Sizes),
        (0, _, 0) => of_mutant("w2-padded-on-hidden", Evidence::Sizes),
        (0, 0, _) => {
            let found = of_mutant("shares-inside-blocks", Evidence::Sizes);
            found.map(|found| Diagnosis {
                detail: refined(plan).unwrap_or_default(),
                ..found
            })
        }
        _ => None,
    })
}

/// A clause on blocks that a plan makes finer, where it does: ranks would begin inside them.
pub fn refined(plan: &Plan) -> Option<String> {
    let of = |s: &ScalePlan| {
        [
            (s.row_block_source, s.row_block),
            (s.col_block_source, s.col_block),
        ]
        .into_iter()
        .find(|(from, to)| from != to)
    };
    let scales = [&plan.w2_scale, &plan.w13_scale];
    let (from, to) = scales.into_iter().flatten().find_map(of)?;
    let width = plan.width;
    Some(format!(
        "shares of {width} begin inside scale blocks of {from}, so that this layout repeats scales on a grid of {to}"
    ))
}

/// Rows and columns of a rank's scales on the checkpoint's own grid, where the plan's is finer.
fn blocks(plan: &Plan, role: Role) -> Option<(usize, usize)> {
    let (s, halves) = match role {
        Role::W13Scale => (plan.w13_scale?, plan.dims.halves),
        _ => (plan.w2_scale?, 1),
    };
    let finer = (s.row_block, s.col_block) != (s.row_block_source, s.col_block_source);
    let of = |n: u64, to: u64, from: u64| match from {
        0 => n,
        _ => n.saturating_mul(to).div_ceil(from),
    };
    let rows = of(
        s.rows_padded / halves.max(1),
        s.row_block,
        s.row_block_source,
    );
    let size = |n: u64| usize::try_from(n).ok();
    finer.then_some((
        size(rows.checked_mul(halves)?)?,
        size(of(s.cols_padded, s.col_block, s.col_block_source))?,
    ))
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
