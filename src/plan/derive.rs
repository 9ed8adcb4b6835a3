//! From a layer, a rule and the parallelism to a plan.

use super::arith::{gcd, padded, product};
use super::conditions::{Facts, narrow_buffer, open_choice};
use super::scales::{Extents, grid, local_block, pad_code};
use super::sizes::formula;
use super::split::{Cut, cut};
use super::storage::storage_violations;
use super::tensors::tensors;
use super::types::decisive;
use super::violations::{refined, repeated, straddling};
use super::{Dims, Effect, Fit, LayerSpec, Parallel, Plan, PlanError, RankPlan, Unit, Violation};
use crate::rule::{Finer, PadValue, Rule};
use crate::terms::{Extent, LayerKind, Numerics, Stores};

/// Most ranks that are planned: more are refused before anything is allocated per rank.
pub const RANKS_MAX: u64 = 1 << 16;
/// Logical sizes above this are refused (elements).
const SIZE_MAX: u64 = 1 << 40;
/// The smallest block a refined scale grid may have, in elements (facts/upstream-padding.md 1.3 V9).
pub const REFINE_MIN: u64 = 32;

/// Derives the plan of one layer under one rule. `env` lists the environment variables that
/// are set to a true value and that rules may name.
///
/// # Errors
/// [`PlanError`] when no plan can be made at all: sizes of zero, absurd sizes, overflow. What the
/// backend would refuse is a violation inside the plan, not an error.
pub fn plan_layer(
    layer: &LayerSpec,
    parallel: Parallel,
    rule: &Rule,
    env: &[&str],
) -> Result<Plan, PlanError> {
    let mut stride = [0, 0];
    let mut plan = without_tensors(layer, parallel, rule, env, &mut stride)?;
    plan.tensors = tensors(&plan, stride)?;
    Ok(plan)
}

/// [`plan_layer`] without the list of tensors: sizes and verdict alone, for many plans.
///
/// # Errors
/// As [`plan_layer`].
pub fn plan_sizes(
    layer: &LayerSpec,
    parallel: Parallel,
    rule: &Rule,
    env: &[&str],
) -> Result<Plan, PlanError> {
    without_tensors(layer, parallel, rule, env, &mut [0, 0])
}

/// The plan; `stride` becomes the elements added to each row of K of w13 and of w2.
fn without_tensors(
    layer: &LayerSpec,
    parallel: Parallel,
    rule: &Rule,
    env: &[&str],
    stride: &mut [u64; 2],
) -> Result<Plan, PlanError> {
    let shard_ranks = check(layer, parallel)?;
    let facts = Facts {
        layer,
        rule,
        env,
        shard_ranks,
        groups: parallel.tp / shard_ranks,
        packed: layer.weight.element().bits() == 4,
    };
    let mut found = Vec::new();
    let probe = layer.intermediate.div_ceil(shard_ranks);
    let align = facts.width_align(probe)?;
    let split = facts.split(probe);
    let cut_as = |split, align| cut(split, layer.intermediate, shard_ranks, align, facts.block());
    let cut = cut_as(split, align.size)?;
    for (other, asks) in &align.otherwise {
        let other = cut_as(split, *other)?.width_padded;
        if other != cut.width_padded {
            found.push(open_choice("intermediate", cut.width_padded, other, asks));
        }
    }
    // A model's own loader cuts; the buffers are as wide as the stack's own split makes them. A kernel library has none.
    if split != rule.split && !rule.kernel {
        let made = cut_as(rule.split, align.size)?.width_padded;
        if made < cut.width {
            found.push(narrow_buffer(rule, split, cut.width, made));
        }
    }
    let elsewhere = facts.elsewhere(cut.width);
    let stores = if elsewhere {
        Stores::LINEAR
    } else {
        rule.storage
    };
    let sizes = formula(
        rule.sizes,
        cut.width,
        cut.width_padded,
        layer.activation.halves(),
        facts.packed,
    )?;
    let ranks = rank_plans(layer, parallel, shard_ranks, &cut, &mut found);
    let hidden = facts.hidden(probe, &mut found)?;
    for (other, asks) in &hidden.otherwise {
        if *other != hidden.size {
            found.push(open_choice("hidden", hidden.size, *other, asks));
        }
    }
    let mut plan = Plan {
        rule: rule.id.clone(),
        kernel: rule.kernel,
        grade: rule.grade,
        arch: rule.arch.clone(),
        layer: layer.kind,
        fit: Fit::Fits,
        dims: Dims {
            t: layer.tokens,
            e: layer.experts,
            k: layer.top_k,
            h: layer.hidden,
            i: layer.intermediate,
            halves: layer.activation.halves(),
        },
        activation: layer.activation,
        weight: layer.weight,
        bias: layer.bias,
        zero_points: layer.zero_points,
        numerics: Numerics::default(),
        parallel,
        width: cut.width,
        width_padded: sizes.width_padded,
        width_computed: sizes.width_padded,
        w13_rows: sizes.w13_rows,
        hidden_padded: hidden.size,
        hidden_computed: hidden.size,
        w2_width_computed: sizes.width_padded,
        w2_hidden_computed: hidden.size,
        tokens_padded: facts.tokens(probe)?,
        split,
        order: rule.order,
        place: rule.place,
        storage: stores.scales,
        weight_storage: stores.weights,
        nibble: rule.nibble,
        unread: facts.unread(elsewhere),
        w2_bias: rule.w2_bias,
        weight_pad: pad_code(layer.weight.element(), rule.fill.weight),
        w13_scale: None,
        w2_scale: None,
        ranks,
        tensors: Vec::new(),
        overhead_millionths: 0,
        violations: Vec::new(),
    };
    set_scales(&mut plan, rule, layer.act_order, &mut found)?;
    facts.split_violations(&plan, &cut, shard_ranks, &mut found);
    facts.size_violations(&plan, shard_ranks, &mut found);
    facts.padding_violations(&plan, &mut found);
    facts.fill_violations(&plan, &mut found);
    storage_violations(&plan, &mut found);
    facts.count_violations(&plan, align.size, &mut found);
    facts.valid_sizes(&mut plan, &mut found);
    facts.rule_violations(&plan, &mut found);
    *stride = facts.stride(&plan, &mut found);
    plan.overhead_millionths = overhead(&plan, shard_ranks)?;
    plan.fit = fit(&plan, shard_ranks, &found);
    plan.violations = found;
    Ok(plan)
}

const BEYOND: &str = "is beyond any real model (at most 2^40)";

/// Refuses what makes no layer; returns the ranks that share the intermediate axis.
fn check(layer: &LayerSpec, parallel: Parallel) -> Result<u64, PlanError> {
    let invalid = |key, value, why: &str| {
        Err(PlanError::Invalid {
            key,
            value,
            why: why.to_owned(),
        })
    };
    let sizes = [
        ("hidden", layer.hidden),
        ("intermediate", layer.intermediate),
        ("experts", layer.experts),
        ("top_k", layer.top_k),
        ("tp", parallel.tp),
        ("ep", parallel.ep),
    ];
    for (key, value) in sizes {
        if value == 0 {
            return invalid(key, value, "must be at least 1");
        }
        if value > SIZE_MAX {
            return invalid(key, value, BEYOND);
        }
    }
    let (experts, zero) = (layer.experts, layer.zero_experts);
    if zero > SIZE_MAX {
        return invalid("zero_experts", zero, BEYOND);
    }
    // No overflow: both are at most SIZE_MAX.
    if layer.top_k > experts + zero {
        let why = match zero {
            0 => format!("exceeds experts={experts}"),
            _ => format!("exceeds experts={experts} + zero_experts={zero}"),
        };
        return invalid("top_k", layer.top_k, &why);
    }
    if parallel.tp > RANKS_MAX {
        return invalid(
            "tp",
            parallel.tp,
            "is more ranks than padproof plans for (at most 65536)",
        );
    }
    if !parallel.tp.is_multiple_of(parallel.ep) {
        return invalid(
            "ep",
            parallel.ep,
            &format!("must divide tp={}", parallel.tp),
        );
    }
    // Only routed experts are spread by EP; shared experts and dense layers stay cut by all ranks.
    Ok(match layer.kind {
        LayerKind::Routed | LayerKind::Draft => parallel.tp / parallel.ep,
        LayerKind::Shared | LayerKind::Dense => parallel.tp,
    })
}

fn rank_plans(
    layer: &LayerSpec,
    parallel: Parallel,
    shard_ranks: u64,
    cut: &Cut,
    found: &mut Vec<Violation>,
) -> Vec<RankPlan> {
    let groups = parallel.tp / shard_ranks;
    let share = layer.experts.div_ceil(groups);
    if !layer.experts.is_multiple_of(groups) {
        found.push(Violation {
            code: "PP106",
            axis: "experts",
            value: layer.experts,
            unit: Unit::Experts,
            granule: groups,
            message: format!(
                "{} experts cannot be shared equally by ep={groups}",
                layer.experts
            ),
            effect: Effect::Refused,
        });
    }
    (0..parallel.tp)
        .map(|rank| {
            let (start, len) =
                cut.ranges[usize::try_from(rank % shard_ranks).expect("ranks were capped")];
            let expert_start = (rank / shard_ranks * share).min(layer.experts);
            let expert_len = share.min(layer.experts - expert_start);
            RankPlan {
                rank,
                start,
                len,
                expert_start,
                expert_len,
            }
        })
        .collect()
}

/// Fills in both scale grids, refining them where the rule may.
fn set_scales(
    plan: &mut Plan,
    rule: &Rule,
    act_order: bool,
    found: &mut Vec<Violation>,
) -> Result<(), PlanError> {
    let weight = plan.weight;
    let Some(format_grid) = weight.scale() else {
        return Ok(());
    };
    let whole = finer_block(plan, rule, act_order);
    if let Some((block, finer)) = whole {
        found.push(repeated(plan, block, finer));
    }
    let mut local = |extent: Extent, axis: &'static str| match extent {
        Extent::All | Extent::Block(1) => None,
        Extent::Block(_) if whole.is_some() => whole.map(|(_, finer)| finer),
        // Groups that the checkpoint lists begin nowhere that a plan could know.
        Extent::Block(block) if act_order => Some(block),
        Extent::Block(block) => match local_block(block, &plan.ranks) {
            Ok(block) => Some(block),
            Err(s) if rule.scale.refine && s.finer >= REFINE_MIN => {
                found.push(refined(axis, s));
                Some(s.finer)
            }
            Err(s) => {
                found.push(straddling(axis, weight, s));
                Some(s.block)
            }
        },
    };
    let row_local = local(format_grid.rows, "w13 scale rows");
    let col_local = local(format_grid.cols, "w2 scale columns");
    let across = whole.map(|(_, finer)| finer);
    set_grids(plan, (row_local, col_local, across), rule.fill.scale)?;
    let scales = [&mut plan.w13_scale, &mut plan.w2_scale];
    for s in scales
        .into_iter()
        .flatten()
        .filter(|_| rule.scale.columns > 1)
    {
        s.cols_stored = padded("scale columns", s.cols_stored, rule.scale.columns)?;
    }
    Ok(())
}

/// The block that all scales of the layer are repeated on, and the checkpoint's, where the rule's
/// stack takes one for both axes.
fn finer_block(plan: &Plan, rule: &Rule, act_order: bool) -> Option<(u64, u64)> {
    let block = match plan.weight.scale()?.cols {
        Extent::Block(block) if block > 1 && rule.scale.refine && !act_order => block,
        _ => return None,
    };
    let sharded = plan.ranks.iter().any(|rank| rank.len < plan.dims.i);
    let finer = match rule.scale.finer {
        Finer::Gcd if sharded => gcd(gcd(block, plan.width), plan.dims.h),
        Finer::Halved => {
            let halves =
                std::iter::successors(Some(block), |b| b.is_multiple_of(2).then_some(b / 2));
            let both = |b: &u64| plan.width.is_multiple_of(*b) && plan.dims.h.is_multiple_of(*b);
            let mut fitting = halves.filter(both);
            fitting.next()?
        }
        Finer::Gcd | Finer::Cut => block,
    };
    (finer < block && finer >= REFINE_MIN).then_some((block, finer))
}

/// Both grids for the plan's padded sizes; `local` are the blocks along the cut axis of w13 and of
/// w2, and across it.
pub(super) fn set_grids(
    plan: &mut Plan,
    local: (Option<u64>, Option<u64>, Option<u64>),
    fill: PadValue,
) -> Result<(), PlanError> {
    let Some(format_grid) = plan.weight.scale() else {
        return Ok(());
    };
    let d = plan.dims;
    // One scale a row, or one for all, has nothing to repeat.
    let across = |extent| {
        local
            .2
            .filter(|_| matches!(extent, Extent::Block(b) if b > 1))
    };
    let wide = plan.width_padded.max(plan.width);
    let first = Extents {
        halves: d.halves,
        rows: (d.i, wide),
        cols: (d.h, plan.hidden_padded),
        row_local: local.0,
        col_local: across(format_grid.cols),
    };
    let second = Extents {
        halves: 1,
        rows: (d.h, plan.hidden_padded),
        cols: (d.i, wide),
        row_local: across(format_grid.rows),
        col_local: local.1,
    };
    plan.w13_scale = Some(grid(format_grid, &first, plan.storage, fill)?);
    plan.w2_scale = Some(grid(format_grid, &second, plan.storage, fill)?);
    Ok(())
}

/// Weight elements held by all ranks over logical ones, minus 1, in millionths.
fn overhead(plan: &Plan, ranks: u64) -> Result<u64, PlanError> {
    let held = product(
        "weight elements",
        &[ranks, plan.width_padded, plan.hidden_padded],
    )?;
    let logical = product("weight elements", &[plan.dims.i, plan.dims.h])?;
    let logical = u128::from(logical);
    let extra = u128::from(held).saturating_sub(logical) * 1_000_000;
    // To the nearest millionth.
    let extra = (extra + logical / 2) / logical;
    Ok(u64::try_from(extra).unwrap_or(u64::MAX))
}

/// The verdict of a plan with these findings, on so many ranks that share the intermediate axis.
pub(super) fn fit(plan: &Plan, ranks: u64, found: &[Violation]) -> Fit {
    let exact = plan.width_padded.checked_mul(ranks) == Some(plan.dims.i)
        && plan.hidden_padded == plan.dims.h;
    match decisive(found) {
        Some(Effect::Wrong) => Fit::Wrong,
        Some(Effect::Unrepresentable) => Fit::Unrepresentable,
        Some(Effect::Refused) => Fit::Refused,
        Some(Effect::Unknown) => Fit::Unknown,
        Some(Effect::Slow) => Fit::Slow,
        Some(Effect::Note) | None if exact => Fit::Fits,
        Some(Effect::Note) | None => Fit::Padded,
    }
}
