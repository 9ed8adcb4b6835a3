//! The invariants of facts/upstream-padding.md 3.1 that integers can show, but those of other properties: V-1 is
//! plan-partition's, V-9 plan-units', V-16 and V-18 plan-minimal's. No plan shows that a reload clears
//! tails (V-16: reload-idempotent), or what a swizzle does to bytes (V-19: pack-round-trip).
//!
//! It must not change a plan. Layer 8.

use super::silence::silence;
use crate::plan::{Effect, Fit, Plan, RankPlan, ScalePlan};
use crate::rule::{Condition, Rule, Verdict};
use crate::terms::{Bias, Extent, LayerKind, Place};

/// What a plan under `rule` breaks without saying so; empty when all is well.
pub fn invariants(rule: &Rule, plan: &Plan) -> Vec<String> {
    let mut faults = Vec::new();
    // Sentences are made only of what does not hold: sweeps ask millions of times.
    let mut claim = |holds: bool, fault: &dyn Fn() -> String| {
        if !holds {
            faults.push(fault());
        }
    };
    let d = plan.dims;
    let effect = |effect| plan.violations.iter().any(|v| v.effect == effect);
    let wrong = effect(Effect::Wrong);
    let refused = effect(Effect::Refused);
    // What is refused never runs, and what runs and is wrong is said to be.
    claim((wrong && !refused) == (plan.fit == Fit::Wrong), &|| {
        format!("planned as {}", plan.fit.name())
    });
    let lost = effect(Effect::Unrepresentable) && !wrong && !refused;
    claim(lost == (plan.fit == Fit::Unrepresentable), &|| {
        format!("planned as {}", plan.fit.name())
    });
    // V-2, V-8: rows of w13 are whole halves of w2's width.
    let consistent = plan.w13_rows == d.halves.saturating_mul(plan.width_padded);
    claim(consistent || wrong, &|| {
        format!(
            "w13 has {} rows, w2 is {} wide",
            plan.w13_rows, plan.width_padded
        )
    });
    let tail = plan.place == Place::Tail && d.halves == 2 && plan.order.interleave() == 0;
    claim(!tail || wrong || plan.width == plan.width_padded, &|| {
        "gated halves share one tail".to_owned()
    });
    // V-15: nothing real is cut off.
    let holds = plan.ranks.iter().all(|r| r.len <= plan.width_padded);
    claim(holds || wrong, &|| {
        format!("a rank holds more than {} channels", plan.width_padded)
    });
    claim(plan.hidden_padded >= d.h, &|| {
        format!("hidden {} is cut to {}", d.h, plan.hidden_padded)
    });
    // V-14: what the kernel is told cuts nothing real.
    let fullest = plan.ranks.iter().map(|r| r.len).max().unwrap_or(0);
    claim(
        wrong
            || [
                (fullest, plan.width_computed, plan.width_padded),
                (fullest, plan.w2_width_computed, plan.width_padded),
                (d.h, plan.hidden_computed, plan.hidden_padded),
                (d.h, plan.w2_hidden_computed, plan.hidden_padded),
            ]
            .iter()
            .all(|(real, told, held)| real <= told && told <= held),
        &|| {
            format!(
                "the kernel computes {} of {fullest} real channels",
                plan.width_computed
            )
        },
    );
    // V-6, V-7: scale grids.
    let formats = plan.weight.scale();
    claim(formats.is_some() == plan.w13_scale.is_some(), &|| {
        "scales are planned for unscaled weights".to_owned()
    });
    if let (Some(f), Some(s13), Some(s2)) = (formats, plan.w13_scale, plan.w2_scale) {
        let wide = plan.width_padded.max(plan.width);
        let rows = blocks(f.rows, s13.row_block, wide);
        claim(s13.rows_padded == d.halves * rows, &|| {
            format!(
                "w13 has {} scale rows, not {} per half",
                s13.rows_padded, rows
            )
        });
        let cols = blocks(f.cols, s2.col_block, wide);
        claim(s2.cols_padded == cols, &|| {
            format!("w2 has {} scale columns, not {cols}", s2.cols_padded)
        });
        for (name, s, extent) in [
            ("w13 scale rows", s13, f.rows),
            ("w2 scale columns", s2, f.cols),
        ] {
            grid_starts(name, plan, &s, extent, &mut claim);
        }
    }
    // V-3 to V-5, V-10 to V-13, V-19: what padding holds.
    silence(rule, plan, wrong || refused, &mut claim);
    // V-17: what the rule refuses is refused.
    for refusal in rule.refuse.iter().filter(|r| r.verdict == Verdict::Refused) {
        // Which size is tested where a dispatch asks for another was not read.
        let tested = refusal.when.hidden_not_multiple;
        let other = tested.is_some_and(|m| plan.hidden_padded.is_multiple_of(m));
        let sent = rule.sent.as_deref();
        let sent = sent.is_some_and(|one| rule.knows(one) && applies(&one.when, plan));
        let least = match sent && other {
            true => Fit::Unknown,
            false => Fit::Refused,
        };
        let refused = plan.fit >= least;
        claim(refused || !applies(&refusal.when, plan), &|| {
            format!("refused by the rule, planned as {}", plan.fit.name())
        });
    }
    claim(
        plan.violations
            .iter()
            .all(|v| v.effect <= Effect::Note || plan.fit > Fit::Padded),
        &|| "a violation has no effect on the verdict".to_owned(),
    );
    let divides = d.i.is_multiple_of(plan.parallel.tp / plan.parallel.ep);
    let needs = matches!(
        plan.split,
        crate::terms::Split::Floor | crate::terms::Split::Error | crate::terms::Split::RankChunk
    );
    claim(divides || !needs || plan.fit >= Fit::Refused, &|| {
        format!(
            "{} does not divide, and is planned as {}",
            d.i,
            plan.fit.name()
        )
    });
    let beyond = |r: &&RankPlan| r.expert_start.saturating_add(r.expert_len) > d.e;
    let beyond = plan.ranks.iter().find(beyond);
    claim(beyond.is_none(), &|| {
        beyond.map_or(String::new(), |r| {
            let (first, len) = (r.expert_start, r.expert_len);
            format!(
                "rank {} holds {len} experts from {first} on, of {}",
                r.rank, d.e
            )
        })
    });
    let shared = d.e.is_multiple_of(plan.parallel.ep)
        || plan.layer.follows() != crate::terms::LayerKind::Routed;
    claim(shared || plan.fit >= Fit::Refused, &|| {
        format!(
            "{} experts over ep={} planned as {}",
            d.e,
            plan.parallel.ep,
            plan.fit.name()
        )
    });
    faults
}

fn blocks(extent: Extent, block: u64, len: u64) -> u64 {
    match extent {
        Extent::All => 1,
        Extent::Block(_) => len.div_ceil(block.max(1)),
    }
}

/// V-6: no local block reaches over a block boundary of the checkpoint, or the verdict says so.
fn grid_starts(
    name: &str,
    plan: &Plan,
    s: &ScalePlan,
    extent: Extent,
    claim: &mut impl FnMut(bool, &dyn Fn() -> String),
) {
    let Extent::Block(source) = extent else {
        return;
    };
    if source == 1 {
        return;
    }
    let local = if name.starts_with("w13") {
        s.row_block
    } else {
        s.col_block
    };
    claim(local > 0 && source % local == 0, &|| {
        format!("{name}: blocks of {local} do not tile blocks of {source}")
    });
    let straddles = plan.ranks.iter().any(|r| {
        let in_block = r.start % source;
        r.len > 0 && r.start % local.max(1) != 0 && in_block + r.len > source
    });
    let told = || plan.violations.iter().any(|v| v.code == "PP103");
    claim(!straddles || (told() && plan.fit >= Fit::Refused), &|| {
        format!(
            "{name}: a rank starts inside a block and the plan is {}",
            plan.fit.name()
        )
    });
}

/// The rule's own condition, evaluated on the plan; false where it asks what a plan does not hold.
fn applies(when: &Condition, plan: &Plan) -> bool {
    let shards = match plan.layer {
        LayerKind::Routed | LayerKind::Draft => plan.parallel.tp / plan.parallel.ep,
        LayerKind::Shared | LayerKind::Dense => plan.parallel.tp,
    };
    let open = when.env.is_some()
        || when.per_token.is_some()
        || when.option.is_some()
        || !when.arch.is_empty();
    !open
        && when.gated.is_none_or(|g| g == (plan.dims.halves == 2))
        && (when.activations.is_empty() || when.activations.contains(&plan.activation))
        && (when.formats.is_empty() || when.formats.contains(&plan.weight))
        && when.bias.is_none_or(|b| b == (plan.bias == Bias::Both))
        && when.sharded.is_none_or(|s| s == (shards > 1))
        && when
            .uneven
            .is_none_or(|u| u != plan.dims.i.is_multiple_of(shards))
        && when
            .spread
            .is_none_or(|s| s == (plan.parallel.tp / shards > 1))
        && when.width_min.is_none_or(|m| plan.width >= m)
        && when.width_max.is_none_or(|m| plan.width <= m)
        && when
            .width_not_multiple
            .is_none_or(|m| !plan.width.is_multiple_of(m))
        && when.hidden_min.is_none_or(|m| plan.dims.h >= m)
        && when.hidden_max.is_none_or(|m| plan.dims.h <= m)
        && when
            .hidden_not_multiple
            .is_none_or(|m| !plan.dims.h.is_multiple_of(m))
}
