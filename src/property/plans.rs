//! Claims about plans: integers only.

use super::invariants::invariants;
use super::trial::{Trial, broken, fact};
use super::{Finding, Tier, Verdict};
use crate::case::{Case, Scheme};
use crate::plan::{Fit, Plan, plan_under, plan_with, spelled_rule};
use crate::rule::{GranuleUnit, Rule, Rules};

/// The case's own scheme as a rule, then every one of `rules` that takes its format.
fn rules_of(case: &Case, rules: &Rules) -> Result<Vec<Rule>, Verdict> {
    let mut all = match &case.scheme {
        Scheme::Rule(id) => vec![rules.get(id).map_err(broken)?.clone()],
        Scheme::Spelled(spec) => vec![spelled_rule(spec, case.w).map_err(broken)?],
    };
    all.extend(
        rules
            .iter()
            .filter(|r| r.formats.contains(&case.w))
            .cloned(),
    );
    Ok(all)
}

/// Plans `case` under every rule of [`rules_of`], planted mutant included, and asks `check` of each.
fn each_rule(
    name: &'static str,
    case: &Case,
    trial: &mut Trial<'_>,
    check: impl Fn(&Case, &Rule, &Plan) -> Vec<String>,
) -> Verdict {
    let rules = match rules_of(case, trial.rules) {
        Ok(rules) => rules,
        Err(verdict) => return verdict,
    };
    for rule in &rules {
        let mut made = match plan_under(case, rule) {
            Ok(made) => made,
            Err(e) => return broken(e),
        };
        trial.mutate_plan(&mut made);
        let faults = check(case, rule, &made);
        if let Some(first) = faults.first() {
            let place = format!("plan under {}", rule.id);
            let wanted = "the invariant holds".to_owned();
            let count = faults.len() as u64;
            return Finding {
                differing: count,
                total: count,
                first: faults.iter().take(10).cloned().collect(),
                ..fact(name, case, place, wanted, first.clone())
            }
            .into();
        }
    }
    Verdict::Pass(Tier::Bytes)
}

/// plan-partition: over the ranks, channels and experts are each held exactly once per group.
pub(super) fn plan_partition(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    each_rule("plan-partition", case, trial, |case, _, plan| {
        let mut faults = Vec::new();
        let shards = plan.parallel.tp / plan.parallel.ep;
        if plan.ranks.len() as u64 != plan.parallel.tp {
            faults.push(format!(
                "{} ranks planned of {}",
                plan.ranks.len(),
                plan.parallel.tp
            ));
            return faults;
        }
        let mut expert = 0;
        for group in plan.ranks.chunks(shards as usize) {
            let mut next = 0;
            for rank in group {
                if rank.start != next && rank.len > 0 {
                    faults.push(format!(
                        "rank {} starts at {}, {next} was next",
                        rank.rank, rank.start
                    ));
                }
                next = rank.start.saturating_add(rank.len).max(next);
                if rank.expert_start != expert || rank.expert_len != group[0].expert_len {
                    faults.push(format!(
                        "rank {} holds experts from {}, {expert} was next",
                        rank.rank, rank.expert_start
                    ));
                }
            }
            if next != case.i {
                faults.push(format!("the ranks hold {next} of {} channels", case.i));
            }
            expert += group[0].expert_len;
        }
        if expert != case.e {
            faults.push(format!("the groups hold {expert} of {} experts", case.e));
        }
        faults
    })
}

/// plan-minimal: the padded width is the least that the rule allows (V-18), does not fall where the width
/// grows, and both axes leave a size that is aligned alone (V-16).
pub(super) fn plan_minimal(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    each_rule("plan-minimal", case, trial, |case, rule, made| {
        let mut faults = Vec::new();
        let shards = made.parallel.tp / made.parallel.ep;
        if !matches!(rule.sizes, crate::rule::Sizes::Consistent) || made.fit > Fit::Unknown {
            return faults;
        }
        let under = |i: u64| plan_under(&Case { i, ..case.clone() }, rule).ok();
        // A width of one channel shows the granule.
        let Some(least) = under(shards) else {
            return faults;
        };
        let needed = case.i.div_ceil(shards);
        let block = made.w2_scale.map_or(1, |s| s.col_block_source.max(1));
        // Where the granule depends on the width, one channel does not show it.
        let fixed = rule.cheapest.is_empty()
            && rule.intermediate.iter().all(|g| {
                let w = &g.when;
                w.width_min.is_none() && w.width_max.is_none() && w.width_not_multiple.is_none()
            });
        if fixed && made.width_padded >= needed.div_ceil(block) * block + least.width_padded {
            faults.push(format!(
                "width {needed} is padded to {}, though the granule is {}",
                made.width_padded, least.width_padded
            ));
        }
        if let Some(aligned) = under(made.width_padded.saturating_mul(shards))
            && aligned.fit <= Fit::Unknown
            && aligned.width_padded != made.width_padded
        {
            faults.push(format!(
                "padding again takes {} to {}",
                made.width_padded, aligned.width_padded
            ));
        }
        // V-16: padding the hidden size again is the identity as well.
        let again = Case {
            i: made.width_padded.saturating_mul(shards),
            h: made.hidden_padded,
            ..case.clone()
        };
        if let Ok(again) = plan_under(&again, rule)
            && again.fit <= Fit::Unknown
            && again.hidden_padded != made.hidden_padded
        {
            faults.push(format!(
                "padding again takes the hidden size {} to {}",
                made.hidden_padded, again.hidden_padded
            ));
        }
        // V-18: a narrower layer is not padded to more.
        if rule.cheapest.is_empty()
            && let Some(narrower) = case
                .i
                .checked_sub(shards)
                .filter(|i| *i > 0)
                .and_then(under)
            && narrower.fit <= Fit::Unknown
            && narrower.width_padded > made.width_padded
        {
            faults.push(format!(
                "{} channels are padded to {}, fewer to {}",
                case.i, made.width_padded, narrower.width_padded
            ));
        }
        faults
    })
}

/// plan-units: bytes, elements and stored units agree: two packed elements make a byte, and a
/// granule in stored units aligns bytes.
pub(super) fn plan_units(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    each_rule("plan-units", case, trial, |_, rule, plan| {
        let mut faults = Vec::new();
        let bits = plan.weight.element().bits();
        for t in plan
            .tensors
            .iter()
            .filter(|t| matches!(t.name, "w13" | "w2"))
        {
            let row = (t.shape[2] * bits).div_ceil(8);
            let bytes = t.shape[0] * t.shape[1] * row;
            if rule.stride.is_none() && t.bytes != bytes {
                faults.push(format!(
                    "{} of {:?} takes {bytes} bytes, not {}",
                    t.name, t.shape, t.bytes
                ));
            }
        }
        let stored = rule
            .intermediate
            .iter()
            .find(|g| g.unit == GranuleUnit::Stored);
        if let Some(g) = stored {
            let units = if bits == 4 {
                plan.width_padded / 2
            } else {
                plan.width_padded
            };
            if units % g.align != 0 {
                faults.push(format!(
                    "w2 is {units} stored units wide, no multiple of {}",
                    g.align
                ));
            }
        }
        for v in &plan.violations {
            if v.message.is_empty() || !v.code.starts_with("PP") {
                faults.push(format!("violation {} says nothing", v.code));
            }
        }
        faults
    })
}

/// rule-agrees: a rule's plan holds the invariants V-1 to V-19 that integers can show, or its
/// verdict says that it does not.
pub(super) fn rule_agrees(case: &Case, trial: &mut Trial<'_>) -> Verdict {
    let verdict = each_rule("rule-agrees", case, trial, |_, rule, plan| {
        invariants(rule, plan)
    });
    if !matches!(verdict, Verdict::Pass(_)) {
        return verdict;
    }
    match plan_with(case, trial.rules) {
        Ok(_) => Verdict::Pass(Tier::Bytes),
        Err(e) => broken(e),
    }
}
