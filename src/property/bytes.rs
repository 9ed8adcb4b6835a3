//! Claims about packed bytes.

use super::trial::{Outcome, Trial, broken, fact, is_padded, settle};
use super::{Finding, Tier, Vacuous, Verdict};
use crate::audit::audit;
use crate::case::Case;
use crate::layout::{Map, PackedInputs, logical_of, map, pack_layer_into, roles, unpack};
use crate::mutant::{Mutant, Stage};
use crate::plan::{Plan, Role, ScalePlan};
use crate::subject::SkipReason;
use crate::tensor::Tensor;

/// pad-is-inert: every byte is a logical element in its place, or padding that decodes to zero
/// under a finite scale; the input's tails are zero.
pub(super) fn pad_is_inert(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    const NAME: &str = "pad-is-inert";
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let plan = trial.plan(case)?;
        let logical = trial.fill(case)?;
        let packed = trial.pack(&plan, &logical)?;
        let found = audit(&plan, &logical, &packed).map_err(broken)?;
        if !found.clean() {
            let lines: Vec<String> = found.first.iter().map(ToString::to_string).collect();
            let place = lines.first().cloned().unwrap_or_default();
            let actual = format!(
                "{} of {} elements differ",
                found.differing,
                found.elements + found.pads
            );
            let wanted = "logical elements and inert padding".to_owned();
            return Ok(Finding {
                differing: found.differing,
                total: found.elements + found.pads,
                first: lines.into_iter().take(10).collect(),
                ..fact(NAME, case, place, wanted, actual)
            }
            .into());
        }
        if let Some((at, value)) = dirty_input(&plan, &packed) {
            return Ok(fact(
                NAME,
                case,
                format!("x[{at}]"),
                "0".to_owned(),
                value.to_string(),
            )
            .into());
        }
        trial.done(packed);
        trial.done_with(logical);
        Ok(if is_padded(&plan) {
            Verdict::Pass(Tier::Bytes)
        } else {
            Verdict::Vacuous(Vacuous::NothingPadded)
        })
    };
    settle(run(trial))
}

/// The first pad of the input that is not zero.
fn dirty_input(plan: &Plan, packed: &PackedInputs) -> Option<(usize, f32)> {
    let (t, h, hp) = (
        plan.dims.t as usize,
        plan.dims.h as usize,
        plan.hidden_padded as usize,
    );
    let values = packed.x.f32s();
    (0..values.len())
        .find(|&n| (n / hp >= t || n % hp >= h) && values[n] != 0.0)
        .map(|n| (n, values[n]))
}

/// pack-round-trip: unpacking every rank restores every logical element, bit by bit.
pub(super) fn pack_round_trip(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let plan = trial.plan(case)?;
        let logical = trial.fill(case)?;
        let packed = trial.pack(&plan, &logical)?;
        for role in roles(&plan) {
            let Some(wanted) = logical_of(&logical, role) else {
                continue;
            };
            let mut back = Tensor::zeroed(wanted.name(), wanted.shape(), wanted.bits());
            // What no rank restores stays loud.
            back.bytes_mut().fill(0xa5);
            for (n, rank) in packed.ranks.iter().enumerate() {
                // w2's bias lives on the first rank of each group; the others hold zeros.
                let shards = plan.parallel.tp / plan.parallel.ep;
                if role == Role::W2Bias && !(n as u64).is_multiple_of(shards) {
                    continue;
                }
                let Some(tensor) = rank.get(role) else {
                    continue;
                };
                unpack(&map(&plan, role, n).map_err(broken)?, tensor, &mut back);
            }
            if let Some(at) =
                (0..back.bytes().len()).find(|&b| back.bytes()[b] != wanted.bytes()[b])
            {
                let byte = |t: &Tensor| format!("{:#04x}", t.bytes()[at]);
                return Ok(fact(
                    "pack-round-trip",
                    case,
                    format!("{} byte {at}", role.name()),
                    byte(wanted),
                    byte(&back),
                )
                .into());
            }
        }
        trial.done(packed);
        trial.done_with(logical);
        Ok(Verdict::Pass(Tier::Bytes))
    };
    settle(run(trial))
}

/// reload-idempotent: a second load into the same buffers, dirty ones included, gives the bytes
/// of the first.
pub(super) fn reload_idempotent(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let plan = trial.plan(case)?;
        let logical = trial.fill(case)?;
        let first = trial.pack_true(&plan, &logical)?;
        let mut second = first.clone();
        for rank in &mut second.ranks {
            for role in Role::ALL {
                if let Some(t) = rank.get_mut(role) {
                    t.bytes_mut().fill(0xa5);
                }
            }
        }
        second.x.bytes_mut().fill(0xa5);
        match trial.mutant {
            Some(Mutant {
                stage: Stage::Reload(reload),
                ..
            }) => {
                let planted = reload(&plan, &logical, &mut second).map_err(broken)?;
                if !planted {
                    pack_layer_into(&plan, &logical, &mut second).map_err(broken)?;
                }
                trial.planted |= planted;
            }
            _ => pack_layer_into(&plan, &logical, &mut second).map_err(broken)?,
        }
        if second.x.bytes() != first.x.bytes() {
            let wanted = "the bytes of the first load".to_owned();
            let (place, actual) = ("x".to_owned(), "others".to_owned());
            return Ok(fact("reload-idempotent", case, place, wanted, actual).into());
        }
        for (n, (a, b)) in first.ranks.iter().zip(&second.ranks).enumerate() {
            for (role, t) in a.iter() {
                let same = b.get(role).is_some_and(|other| other.bytes() == t.bytes());
                if !same {
                    let place = format!("{} of rank {n}", role.name());
                    return Ok(fact(
                        "reload-idempotent",
                        case,
                        place,
                        "the bytes of the first load".to_owned(),
                        "others".to_owned(),
                    )
                    .into());
                }
            }
        }
        trial.done(first);
        trial.done(second);
        trial.done_with(logical);
        Ok(Verdict::Pass(Tier::Bytes))
    };
    settle(run(trial))
}

/// scale-grid: every weight element, in its place on its rank, finds the scale that the
/// checkpoint gives it.
pub(super) fn scale_grid(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| -> Outcome {
        let plan = trial.plan(case)?;
        if plan.weight.scale().is_none() {
            let why = format!("{} has no scales", plan.weight);
            return Ok(Verdict::Skip(SkipReason::Inapplicable(why)));
        }
        let logical = trial.fill(case)?;
        let packed = trial.pack(&plan, &logical)?;
        for (weights, scales) in [(Role::W13, Role::W13Scale), (Role::W2, Role::W2Scale)] {
            if let Some(verdict) = check_grid(
                case,
                &plan,
                &packed,
                &logical_of(&logical, scales).cloned(),
                weights,
                scales,
            )? {
                return Ok(verdict);
            }
        }
        trial.done(packed);
        trial.done_with(logical);
        Ok(Verdict::Pass(Tier::Bytes))
    };
    settle(run(trial))
}

/// One weight tensor against its scales, by the plan's block sizes alone: the scale map says only
/// where a grid position is stored.
fn check_grid(
    case: &Case,
    plan: &Plan,
    packed: &PackedInputs,
    wanted: &Option<Tensor>,
    weights: Role,
    scales: Role,
) -> Result<Option<Verdict>, Verdict> {
    let first = weights == Role::W13;
    let scale = if first { plan.w13_scale } else { plan.w2_scale };
    let (Some(scale), Some(wanted)) = (scale, wanted) else {
        return Ok(None);
    };
    let blocks = Blocks {
        plan,
        scale,
        first,
        rows: wanted.shape()[1],
    };
    let [wr, wc] = [wanted.shape()[1], wanted.shape()[2]];
    let unit = wanted.bits() / 8;
    let code = |t: &Tensor, at: usize| t.bytes()[at * unit..(at + 1) * unit].to_vec();
    for (n, rank) in packed.ranks.iter().enumerate() {
        let (wmap, smap) = (
            map(plan, weights, n).map_err(broken)?,
            map(plan, scales, n).map_err(broken)?,
        );
        let Some(tensor) = rank.get(scales) else {
            continue;
        };
        // A weight's row alone says the row of its scale, and its column the column; of neighbours that
        // have the same scale, and should have it, the first stands for all.
        let [experts, rows, cols] = wmap.shape();
        let distinct = |mut lines: Vec<Line>| {
            lines.dedup_by_key(|line| (line.stored, line.source));
            lines
        };
        let rows = distinct((0..rows).filter_map(|r| blocks.row(n, r, &wmap)).collect());
        let cols = distinct((0..cols).filter_map(|c| blocks.col(c, &wmap)).collect());
        for (e, le) in (0..experts).filter_map(|e| Some((e, wmap.experts.to_logical(e)?))) {
            for (row, col) in rows
                .iter()
                .flat_map(|row| cols.iter().map(move |col| (row, col)))
            {
                let actual = code(tensor, smap.grid.index(e, row.stored, col.stored));
                let want = code(wanted, (le * wr + row.source) * wc + col.source);
                if actual != want {
                    let (scales, weights) = (scales.name(), weights.name());
                    let place = format!(
                        "{scales} of rank {n} [{e},{},{}] (for {weights} [{le},{},{}])",
                        row.stored, col.stored, row.logical, col.logical
                    );
                    let (want, actual) = (format!("{want:02x?}"), format!("{actual:02x?}"));
                    return Ok(Some(fact("scale-grid", case, place, want, actual).into()));
                }
            }
        }
    }
    Ok(None)
}

/// Which scale a weight has, by block sizes.
struct Blocks<'p> {
    plan: &'p Plan,
    scale: ScalePlan,
    /// Whether of w13, else of w2.
    first: bool,
    /// Rows of the checkpoint's scales, both halves.
    rows: usize,
}

impl Blocks<'_> {
    /// Half of a logical row, and its row within that half.
    fn half(&self, row: usize) -> (usize, usize) {
        let dims = &self.plan.dims;
        let rows = if self.first { dims.i } else { dims.h } as usize;
        (row / rows, row % rows)
    }

    /// The scale's row for the weights that a rank stores in row `at`; `None` for padding.
    fn row(&self, rank: usize, at: usize, weights: &Map) -> Option<Line> {
        let logical = weights.rows.to_logical(at)?;
        let (half, row) = self.half(logical);
        let halves = if self.first { self.plan.dims.halves } else { 1 } as usize;
        let stored = match self.scale.row_block {
            0 => half,
            // One scale per row: it stands where the row stands.
            1 => at,
            size if self.first => {
                // The halves' order in storage, and the channel within the rank.
                let second = halves == 2 && (half == 1) != self.plan.order.up_first();
                let base = if second {
                    self.scale.rows_padded as usize / 2
                } else {
                    0
                };
                base + block(row - self.plan.ranks[rank].start as usize, size)
            }
            size => block(row, size),
        };
        let source = half * (self.rows / halves) + block(row, self.scale.row_block_source);
        Some(Line {
            logical,
            stored,
            source,
        })
    }

    /// The scale's column for the weights that are stored in column `at`; `None` for padding.
    fn col(&self, at: usize, weights: &Map) -> Option<Line> {
        let logical = weights.cols.to_logical(at)?;
        let (stored, source) = (self.scale.col_block, self.scale.col_block_source);
        Some(Line {
            logical,
            stored: block(at, stored),
            source: block(logical, source),
        })
    }
}

/// A row or column of weights: the logical one, and those of its scale in a rank's tensor and in the checkpoint's.
struct Line {
    logical: usize,
    stored: usize,
    source: usize,
}

/// The block of a row or column; 0 where one scale is for all.
fn block(at: usize, size: u64) -> usize {
    match size {
        0 => 0,
        size => at / size as usize,
    }
}
