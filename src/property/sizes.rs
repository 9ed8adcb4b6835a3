//! The claim about functions of sizes.

use super::trial::{Trial, fact, runnable, settle};
use super::{Finding, Tier, Verdict};
use crate::case::{Case, Scheme};
use crate::plan::Plan;
use crate::subject::{Allocated, SkipReason};

/// sizes-agree: what a program allocates holds the width, its two projections agree, it is no more
/// than the granule asks for, and it is what the rule says where the case names one.
pub(super) fn sizes_agree(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let run = |trial: &mut Trial<'_>| {
        let plan = trial.any_plan(case)?;
        if !trial.subject.tells_sizes() {
            let why = "the subject tells no sizes";
            return Err(Verdict::Skip(SkipReason::Inapplicable(why.to_owned())));
        }
        trial.subject.takes_sizes(&plan).map_err(Verdict::Skip)?;
        // A rule's own plan may be refused where its function is right.
        let ruled = matches!(case.scheme, Scheme::Rule(_)) && runnable(&plan).is_ok();
        let width = plan.ranks.iter().map(|r| r.len).max().unwrap_or(0);
        let told = trial.allocated(&plan, width)?;
        let mut faults = consistent(&plan, width, &told);
        if faults.is_empty() {
            let again = trial.allocated(&plan, told.w2_elements)?;
            if again.w2_elements != told.w2_elements {
                faults.push(Fault::of(
                    format!("the same, {} columns, where asked again", told.w2_elements),
                    format!("{} columns", again.w2_elements),
                ));
            }
            let granule = trial.allocated(&plan, 1)?.w2_elements;
            if granule > 0 && told.w2_elements >= width.saturating_add(granule) {
                faults.push(Fault::of(
                    format!(
                        "less than {} columns: a width of 1 takes {granule}",
                        width.saturating_add(granule)
                    ),
                    format!("{} columns", told.w2_elements),
                ));
            }
        }
        if ruled {
            let (rows, cols) = (plan.w13_rows, plan.width_padded);
            if (told.w13_rows, told.w2_elements) != (rows, cols) {
                faults.push(Fault::of(
                    format!("w13 {rows} rows, w2 {cols} columns, as {} says", plan.rule),
                    format!("{} rows, {} columns", told.w13_rows, told.w2_elements),
                ));
            }
        }
        Ok(verdict(case, trial, width, faults))
    };
    settle(run(trial))
}

struct Fault {
    wanted: String,
    actual: String,
}

impl Fault {
    fn of(wanted: String, actual: String) -> Fault {
        Fault { wanted, actual }
    }
}

/// What must hold of any sizes: they hold the width, and the halves of w13 have w2's columns.
fn consistent(plan: &Plan, width: u64, told: &Allocated) -> Vec<Fault> {
    let mut faults = Vec::new();
    let halves = plan.dims.halves;
    if told.w2_elements < width {
        faults.push(Fault::of(
            format!("w2 {width} columns or more"),
            format!("{} columns", told.w2_elements),
        ));
    }
    let rows = halves.saturating_mul(told.w2_elements);
    if told.w13_rows != rows {
        faults.push(Fault::of(
            format!(
                "w13 {rows} rows: {halves} times w2's {} columns",
                told.w2_elements
            ),
            format!("{} rows", told.w13_rows),
        ));
    }
    faults
}

fn verdict(case: &Case, trial: &Trial<'_>, width: u64, faults: Vec<Fault>) -> Verdict {
    let line = |f: &Fault| format!("wanted {}, got {}", f.wanted, f.actual);
    let lines: Vec<String> = faults.iter().map(line).collect();
    let count = faults.len() as u64;
    let Some(first) = faults.into_iter().next() else {
        return Verdict::Pass(Tier::Bytes);
    };
    let place = format!("sizes for a width of {width}");
    Finding {
        subject: trial.subject.name().to_owned(),
        differing: count,
        total: count,
        first: lines,
        ..fact("sizes-agree", case, place, first.wanted, first.actual)
    }
    .into()
}
