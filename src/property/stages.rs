//! Names the first stage in which a subject that shows its stages leaves the reference.
//!
//! It must not decide whether the output is right. Layer 8.

use crate::case::Case;
use crate::layout::{Axis, map};
use crate::plan::{Plan, RankPlan, Role};
use crate::reference::{Reference, Stage, Stages};
use crate::tensor::{StageOutputs, StageShare};

/// The first stage that differs, as a fragment; what it says if none does; nothing where the
/// subject shows none.
pub(super) fn first_difference(
    case: &Case,
    plan: &Plan,
    wanted: Option<&Stages>,
    truth: &Reference,
    shown: &StageOutputs,
) -> Option<String> {
    let settled = |row: &usize| !truth.ambiguous[row / case.k.max(1) as usize];
    if !shown.ids.is_empty() {
        let differs = |row: &usize| shown.ids.get(*row) != truth.ids.get(*row);
        if let Some(row) = (0..truth.ids.len()).filter(settled).find(differs) {
            return Some(format!(
                "first stage that differs: route_ids of {}: wanted expert {}, got {}",
                place(case, row),
                truth.ids[row],
                shown.ids[row]
            ));
        }
    }
    let wanted = wanted?;
    let mut said = false;
    for (name, role, wanted, shares) in [
        ("fc1", Role::W13, &wanted.first, &shown.first),
        ("act", Role::W2, &wanted.middle, &shown.middle),
        ("fc2", Role::W2, &wanted.second, &shown.second),
    ] {
        if shares.is_empty() {
            continue;
        }
        said = true;
        let rows: Vec<(usize, u64)> = (0..truth.ids.len())
            .filter(settled)
            .map(|row| (row, u64::from(truth.ids[row])))
            .collect();
        let axes = plan.ranks.iter().enumerate().map(|(rank, share)| {
            let map = map(plan, role, rank).ok()?;
            // Columns of the stage: rows of w13, columns of w2, or the hidden axis as it is.
            let axis = match name {
                "fc1" => map.rows,
                "act" => map.cols,
                _ => Axis::whole(case.h as usize),
            };
            Some((share, axis))
        });
        let axes: Vec<(&RankPlan, Axis)> = axes.collect::<Option<_>>()?;
        if let Some(found) = differing(wanted, shares, &axes, &rows, name == "fc2") {
            let (row, col, wanted, actual, bound) = found;
            let expert = truth.ids[row];
            return Some(format!(
                "first stage that differs: {name}, {} (expert {expert}), column {col}: wanted {wanted}, got {actual}; bound {bound:e}",
                place(case, row)
            ));
        }
    }
    said.then(|| "no stage differs".to_owned())
}

fn place(case: &Case, row: usize) -> String {
    let k = case.k.max(1) as usize;
    format!("token {} choice {}", row / k, row % k)
}

/// (row, logical column, wanted, actual, bound) of the first element beyond its bound. A stage is
/// held by one rank for each column, or is the sum over the ranks that hold the expert.
fn differing(
    wanted: &Stage,
    shares: &[StageShare],
    axes: &[(&RankPlan, Axis)],
    rows: &[(usize, u64)],
    summed: bool,
) -> Option<(usize, usize, f64, f64, f64)> {
    for &(row, expert) in rows {
        let holds =
            |r: &RankPlan| (r.expert_start..r.expert_start + r.expert_len).contains(&expert);
        for col in 0..wanted.cols {
            let values = axes.iter().zip(shares).filter_map(|((rank, axis), share)| {
                let at = axis.to_physical(col).filter(|_| holds(rank))?;
                share
                    .values
                    .get(row * share.cols + at)
                    .map(|v| f64::from(*v))
            });
            let (sum, count) = values.fold((0.0, 0), |(sum, n), v| (sum + v, n + 1));
            let (value, bound) = (
                wanted.values[row * wanted.cols + col],
                wanted.bound[row * wanted.cols + col],
            );
            // A column that two ranks hold would be a wrong plan, which other properties see.
            let known = count == 1 || (summed && count > 0);
            let same =
                value.is_nan() && sum.is_nan() || value == sum || (value - sum).abs() <= bound;
            if known && !same {
                return Some((row, col, value, sum, bound));
            }
        }
    }
    None
}
