//! Names faults by the number of bytes of a tensor, where nothing makes its elements.
//!
//! It must not read elements. Layer 7.

use super::AuditError;
use super::check::count;
use super::diagnose::{Diagnosis, Evidence};
use super::dirt::of_mutant;
use super::files::experts_of;
use super::types::{Audit, Fault};
use crate::checkpoint::Dump;
use crate::layout::{Map, map};
use crate::plan::{Plan, Role, ScalePlan};
use std::collections::BTreeSet;

/// What a tensor of another size may be; the first of those that explain every size is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    /// Scales on the checkpoint's own blocks, where the plan's are finer.
    Coarse,
    /// As wide as the rank's share; where that is the whole axis, nothing is to be cut.
    Bare,
    /// Scales of the whole axis.
    Uncut,
    /// w2 or its scales, grown along their rows in place of their columns.
    SecondTurned,
    /// w13 or its scales, grown along their columns in place of their rows.
    FirstTurned,
    /// Rows of w13's scales, counted over both halves at once.
    RowsFused,
    /// Columns of w2's scales without the last, short block.
    Floored,
}

impl Size {
    const ALL: [Size; 7] = [
        Size::Coarse,
        Size::Bare,
        Size::Uncut,
        Size::SecondTurned,
        Size::FirstTurned,
        Size::RowsFused,
        Size::Floored,
    ];
}

/// What a number of bytes says, where that explains every tensor of another size: scales of the whole axis where
/// a rank's share belongs or of other blocks, or a projection that is not padded, or along the other axis.
pub(super) fn by_size(
    plan: &Plan,
    dump: &Dump<'_>,
    audit: &Audit,
) -> Result<Option<Diagnosis>, AuditError> {
    if !audit.regions.iter().any(|r| r.fault == Fault::Size) {
        return Ok(None);
    }
    let mut may: BTreeSet<Size> = Size::ALL.into();
    let mut odd = BTreeSet::new();
    for stored in &dump.tensors {
        let Ok(map) = map(plan, stored.role, stored.rank) else {
            return Ok(None);
        };
        let actual = dump.bytes(stored, map.dtype)?;
        if actual == count(map.bytes()) {
            continue;
        }
        let experts = experts_of(plan, stored.rank)?.len();
        may.retain(|size| {
            let sizes = sizes(plan, &map, *size);
            sizes
                .into_iter()
                .any(|grid| actual == bytes(&map, experts, grid))
        });
        odd.insert(stored.role);
    }
    let Some(size) = may.first() else {
        return Ok(None);
    };
    let scale = |role: &Role| matches!(role, Role::W13Scale | Role::W2Scale);
    Ok(match size {
        Size::Bare if odd.iter().all(scale) => of_mutant("scales-unpadded", Evidence::Sizes),
        Size::Bare => Some(Diagnosis {
            name: "padding-missing",
            meaning: "tensors as wide as the rank's share: nothing was padded",
            source: "no report; the number of bytes",
            by: Evidence::Sizes,
            experts: None,
            tensors: odd.iter().map(|role| role.name()).collect(),
            ranks: Vec::new(),
            detail: String::new(),
            sample: String::new(),
        }),
        Size::RowsFused => of_mutant("scale-rows-fused", Evidence::Sizes),
        Size::Floored => of_mutant("scale-count-floored", Evidence::Sizes),
        Size::Coarse => of_mutant("shares-inside-blocks", Evidence::Sizes).map(|found| Diagnosis {
            detail: refined(plan).unwrap_or_default(),
            ..found
        }),
        Size::Uncut => of_mutant("scales-not-cut", Evidence::Sizes),
        Size::SecondTurned => {
            let found = of_mutant("w2-padded-on-hidden", Evidence::Sizes);
            found.map(|found| among(found, &odd, Role::W2))
        }
        Size::FirstTurned => {
            let found = of_mutant("w13-padded-on-hidden", Evidence::Sizes);
            found.map(|found| among(found, &odd, Role::W13))
        }
    })
}

/// With the scales' name, where the weights beside them are right.
pub(super) fn among(found: Diagnosis, odd: &BTreeSet<Role>, weight: Role) -> Diagnosis {
    let tensors = match odd.contains(&weight) {
        true => Vec::new(),
        false => odd.iter().map(|role| role.name()).collect(),
    };
    Diagnosis { tensors, ..found }
}

/// Bytes of so many experts in grids of so many rows and columns, in whole tiles.
fn bytes(map: &Map, experts: usize, (rows, cols): (usize, usize)) -> u64 {
    let tile = map.grid.tile();
    let (rows, cols) = (rows.next_multiple_of(tile.0), cols.next_multiple_of(tile.1));
    count(experts * rows * cols * map.grid.bits / 8)
}

/// Rows and columns of one expert that a tensor would have; empty where it is none of these.
fn sizes(plan: &Plan, map: &Map, size: Size) -> Vec<(usize, usize)> {
    let [_, rows, cols] = map.logical_shape();
    let [_, rows_padded, cols_padded] = map.shape();
    let held = |axis: &crate::layout::Axis| axis.runs().iter().map(|run| run.len).sum::<usize>();
    let scale = match map.role {
        Role::W13Scale => plan.w13_scale,
        Role::W2Scale => plan.w2_scale,
        _ => None,
    };
    // Padding of the channels, on the hidden axis in place of theirs: as many units or blocks as belong on the
    // other one, or the blocks of a weight that grew so.
    let channels = plan.width_padded.saturating_sub(plan.width);
    let grown = |real: usize, pad: usize, block: u64| {
        let hidden = plan.dims.h.saturating_add(channels);
        let of_weight = match block {
            0 => Some(real),
            _ => usize::try_from(hidden.div_ceil(block)).ok(),
        };
        [Some(real + pad), of_weight]
    };
    match (size, map.role) {
        (Size::Coarse, Role::W13Scale | Role::W2Scale) => {
            blocks(plan, map.role).into_iter().collect()
        }
        (Size::Uncut, Role::W13Scale | Role::W2Scale) => vec![(rows, cols)],
        (Size::SecondTurned, Role::W2 | Role::W2Scale) => {
            let (real, block) = (held(&map.cols), scale.map_or(1, |s| s.row_block));
            let all = grown(rows, cols_padded - real, block);
            all.into_iter().flatten().map(|rows| (rows, real)).collect()
        }
        (Size::FirstTurned, Role::W13 | Role::W13Scale) => {
            let (real, block) = (held(&map.rows), scale.map_or(1, |s| s.col_block));
            let halves = usize::try_from(plan.dims.halves).unwrap_or(1).max(1);
            let all = grown(cols, (rows_padded - real) / halves, block);
            all.into_iter().flatten().map(|cols| (real, cols)).collect()
        }
        // The hidden axis padded, or not.
        (Size::Bare, Role::W13 | Role::W13Scale | Role::W13Bias) => {
            let real = held(&map.rows);
            vec![(real, cols_padded), (real, held(&map.cols))]
        }
        (Size::Bare, Role::W2 | Role::W2Scale) => {
            let real = held(&map.cols);
            vec![(rows_padded, real), (held(&map.rows), real)]
        }
        (Size::RowsFused, Role::W13Scale) => {
            let rows = plan.dims.halves.saturating_mul(plan.width_padded);
            let rows = scale
                .filter(|s| s.row_block > 1)
                .map(|s| rows.div_ceil(s.row_block));
            let rows = rows.and_then(|n| usize::try_from(n).ok());
            rows.map(|rows| (rows, cols_padded)).into_iter().collect()
        }
        (Size::Floored, Role::W2Scale) => {
            let cols = scale.and_then(|s| plan.width_padded.checked_div(s.col_block));
            let cols = cols.and_then(|n| usize::try_from(n).ok());
            cols.map(|cols| (rows_padded, cols)).into_iter().collect()
        }
        _ => Vec::new(),
    }
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
