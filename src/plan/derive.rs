//! From a layer, a rule and the parallelism to a plan.

use super::arith::{padded, product};
use super::scales::{Extents, Straddle, grid, local_block, pad_code};
use super::sizes::formula;
use super::split::{Cut, cut};
use super::tensors::tensors;
use super::{Dims, Effect, Fit, LayerSpec, Parallel, Plan, PlanError, RankPlan, Unit, Violation};
use crate::rule::{Condition, Granule, GranuleUnit, PadValue, Rule, Verdict};
use crate::terms::{Extent, LayerKind, Numerics, Place, WeightFormat};

/// Ranks above this are refused before anything is allocated per rank.
const RANKS_MAX: u64 = 1 << 16;
/// Logical sizes above this are refused (elements).
const SIZE_MAX: u64 = 1 << 40;
/// The smallest block a refined scale grid may have, in elements (facts/upstream-padding.md 1.3 V9).
const REFINE_MIN: u64 = 32;

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
    let shard_ranks = check(layer, parallel)?;
    let facts = Facts {
        layer,
        rule,
        packed: layer.weight.element().bits() == 4,
    };
    let mut found = Vec::new();
    let probe = layer.intermediate.div_ceil(shard_ranks);
    let align = facts.align(&rule.intermediate, probe)?;
    let cut = cut(
        rule.split,
        layer.intermediate,
        shard_ranks,
        align,
        facts.block(),
    )?;
    let sizes = formula(
        rule.sizes,
        cut.width,
        cut.width_padded,
        layer.activation.halves(),
        facts.packed,
    )?;
    let ranks = rank_plans(layer, parallel, shard_ranks, &cut, &mut found);
    let hidden_align = facts.align(&rule.hidden, probe)?;
    let hidden_padded = padded("hidden", layer.hidden, hidden_align)?;
    let token_align = facts.align(&rule.tokens, probe)?;
    let mut plan = Plan {
        rule: rule.id.clone(),
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
        numerics: Numerics::default(),
        parallel,
        width: cut.width,
        width_padded: sizes.width_padded,
        w13_rows: sizes.w13_rows,
        hidden_padded,
        tokens_padded: padded("tokens", layer.tokens, token_align)?,
        split: rule.split,
        order: rule.order,
        place: rule.place,
        storage: rule.storage,
        nibble: rule.nibble,
        weight_pad: pad_code(layer.weight.element(), rule.fill.weight),
        w13_scale: None,
        w2_scale: None,
        ranks,
        tensors: Vec::new(),
        overhead_millionths: 0,
        violations: Vec::new(),
    };
    set_scales(&mut plan, rule, &mut found)?;
    facts.split_violations(&plan, &cut, shard_ranks, &mut found);
    facts.size_violations(&plan, shard_ranks, &mut found);
    facts.padding_violations(&plan, &mut found);
    facts.rule_violations(&plan, &mut found);
    let stride = facts.stride(env, &plan, &mut found);
    plan.overhead_millionths = overhead(&plan, shard_ranks)?;
    plan.tensors = tensors(&plan, stride)?;
    plan.fit = fit(&plan, shard_ranks, &found);
    plan.violations = found;
    Ok(plan)
}

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
            return invalid(key, value, "is beyond any real model (at most 2^40)");
        }
    }
    if layer.top_k > layer.experts {
        return invalid(
            "top_k",
            layer.top_k,
            &format!("exceeds experts={}", layer.experts),
        );
    }
    if parallel.tp > RANKS_MAX {
        return invalid(
            "tp",
            parallel.tp,
            "is more ranks than padproof plans for (at most 65536)",
        );
    }
    if parallel.tp % parallel.ep != 0 {
        return invalid(
            "ep",
            parallel.ep,
            &format!("must divide tp={}", parallel.tp),
        );
    }
    // Only routed experts are spread by EP; shared experts and dense layers stay cut by all ranks.
    Ok(match layer.kind {
        LayerKind::Routed => parallel.tp / parallel.ep,
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
    if layer.experts % groups != 0 {
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
fn set_scales(plan: &mut Plan, rule: &Rule, found: &mut Vec<Violation>) -> Result<(), PlanError> {
    let Some(format_grid) = plan.weight.scale() else {
        return Ok(());
    };
    let mut local = |extent: Extent, axis: &'static str| match extent {
        Extent::All | Extent::Block(1) => None,
        Extent::Block(block) => match local_block(block, &plan.ranks) {
            Ok(block) => Some(block),
            Err(s) if rule.scale.refine && s.finer >= REFINE_MIN => {
                found.push(refined(axis, s));
                Some(s.finer)
            }
            Err(s) => {
                found.push(straddling(axis, s));
                Some(s.block)
            }
        },
    };
    let row_local = local(format_grid.rows, "w13 scale rows");
    let col_local = local(format_grid.cols, "w2 scale columns");
    set_grids(plan, (row_local, col_local), rule.fill.scale)?;
    Ok(())
}

/// Both grids for the plan's padded sizes; `local` are the blocks along the cut axis.
pub(super) fn set_grids(
    plan: &mut Plan,
    local: (Option<u64>, Option<u64>),
    fill: PadValue,
) -> Result<(), PlanError> {
    let Some(format_grid) = plan.weight.scale() else {
        return Ok(());
    };
    let d = plan.dims;
    let wide = plan.width_padded.max(plan.width);
    let first = Extents {
        halves: d.halves,
        rows: (d.i, wide),
        cols: (d.h, plan.hidden_padded),
        row_local: local.0,
        col_local: None,
    };
    let second = Extents {
        halves: 1,
        rows: (d.h, plan.hidden_padded),
        cols: (d.i, wide),
        row_local: None,
        col_local: local.1,
    };
    plan.w13_scale = Some(grid(format_grid, &first, plan.storage, fill)?);
    plan.w2_scale = Some(grid(format_grid, &second, plan.storage, fill)?);
    Ok(())
}

fn straddling(axis: &'static str, s: Straddle) -> Violation {
    Violation {
        code: "PP103",
        axis,
        value: s.start,
        unit: Unit::Elements,
        granule: s.block,
        message: format!(
            "rank {} starts at {}, inside a scale block of {}: two ranks share that block's scale, and zero padding cannot mend it (scales repeated at {} would)",
            s.rank, s.start, s.block, s.finer
        ),
        effect: Effect::Unrepresentable,
    }
}

fn refined(axis: &'static str, s: Straddle) -> Violation {
    Violation {
        code: "PP121",
        axis,
        value: s.start,
        unit: Unit::Elements,
        granule: s.finer,
        message: format!(
            "rank {} starts at {}, inside a scale block of {}: scales are repeated on a grid of {}, without loss",
            s.rank, s.start, s.block, s.finer
        ),
        effect: Effect::Note,
    }
}

/// What the conditions and checks look at.
struct Facts<'a> {
    layer: &'a LayerSpec,
    rule: &'a Rule,
    packed: bool,
}

impl Facts<'_> {
    /// Scale block along the intermediate axis, 1 if none.
    fn block(&self) -> u64 {
        match self.layer.weight.scale().map(|g| g.cols) {
            Some(Extent::Block(block)) => block,
            Some(Extent::All) | None => 1,
        }
    }

    fn holds(&self, when: &Condition, width: u64) -> bool {
        when.gated
            .is_none_or(|g| g == self.layer.activation.gated())
            && (when.activations.is_empty() || when.activations.contains(&self.layer.activation))
            && (when.formats.is_empty() || when.formats.contains(&self.layer.weight))
            && when.width_max.is_none_or(|max| width <= max)
            && when.width_not_multiple.is_none_or(|m| width % m != 0)
            && when
                .hidden_not_multiple
                .is_none_or(|m| self.layer.hidden % m != 0)
    }

    /// The granule of an axis in elements: the first whose condition holds, else 1.
    fn align(&self, granules: &[Granule], width: u64) -> Result<u64, PlanError> {
        let Some(g) = granules.iter().find(|g| self.holds(&g.when, width)) else {
            return Ok(1);
        };
        let bits = self.layer.weight.element().bits();
        match g.unit {
            GranuleUnit::Elements => Ok(g.align),
            GranuleUnit::Stored if self.packed => product("granule", &[g.align, 2]),
            GranuleUnit::Stored => Ok(g.align),
            GranuleUnit::Bytes => Ok(product("granule", &[g.align, 8])?.div_ceil(bits)),
        }
    }

    fn split_violations(&self, plan: &Plan, cut: &Cut, ranks: u64, found: &mut Vec<Violation>) {
        let i = plan.dims.i;
        if cut.indivisible {
            found.push(Violation {
                code: "PP101",
                axis: "intermediate",
                value: i,
                unit: Unit::Elements,
                granule: ranks,
                message: format!(
                    "{i} channels do not divide by {ranks} ranks, and the {} split needs them to",
                    self.rule.split
                ),
                effect: Effect::Refused,
            });
        }
        let empty = plan.ranks.iter().filter(|r| r.len == 0).count() as u64;
        if empty > 0 {
            found.push(Violation {
                code: "PP109",
                axis: "ranks",
                value: empty,
                unit: Unit::Ranks,
                granule: plan.parallel.tp,
                message: format!(
                    "{empty} of {} ranks hold only padding: correct, and wasted",
                    plan.parallel.tp
                ),
                effect: Effect::Note,
            });
        }
    }

    fn size_violations(&self, plan: &Plan, ranks: u64, found: &mut Vec<Violation>) {
        let wanted = plan.dims.halves.saturating_mul(plan.width_padded);
        if plan.w13_rows != wanted {
            found.push(Violation {
                code: "PP105",
                axis: "w13 rows",
                value: plan.w13_rows,
                unit: Unit::Elements,
                granule: wanted,
                message: format!(
                    "w13 gets {} rows, but w2 is {} wide, which takes {wanted}",
                    plan.w13_rows, plan.width_padded
                ),
                effect: Effect::Wrong,
            });
        }
        if plan.width_padded < plan.width {
            found.push(Violation {
                code: "PP110",
                axis: "intermediate",
                value: plan.width,
                unit: Unit::Elements,
                granule: plan.width_padded,
                message: format!(
                    "w2 is {} wide, so channels of the {} are lost",
                    plan.width_padded, plan.width
                ),
                effect: Effect::Wrong,
            });
        }
        let held: u64 = plan.width_padded.saturating_mul(ranks);
        if held < plan.dims.i && plan.width_padded >= plan.width {
            found.push(Violation {
                code: "PP110",
                axis: "intermediate",
                value: plan.dims.i,
                unit: Unit::Elements,
                granule: held,
                message: format!(
                    "{ranks} ranks of {} hold {held} of {} channels",
                    plan.width_padded, plan.dims.i
                ),
                effect: Effect::Wrong,
            });
        }
        for (axis, size) in [
            ("intermediate", plan.width_padded),
            ("hidden", plan.hidden_padded),
        ] {
            let group = group_needed(self.layer.weight);
            if size % group != 0 {
                found.push(Violation {
                    code: "PP104",
                    axis,
                    value: size,
                    unit: Unit::Elements,
                    granule: group,
                    message: format!(
                        "{size} is not a whole number of {} groups of {group}",
                        self.layer.weight
                    ),
                    effect: Effect::Unrepresentable,
                });
            }
        }
    }

    fn padding_violations(&self, plan: &Plan, found: &mut Vec<Violation>) {
        let gated = self.layer.activation.gated();
        let halves = plan.order.interleave() == 0;
        if gated && halves && plan.place == Place::Tail && plan.width_padded != plan.width {
            found.push(Violation {
                code: "PP114",
                axis: "w13 rows",
                value: plan.width,
                unit: Unit::Elements,
                granule: plan.width_padded,
                message: format!(
                    "padding stands after both halves, so the kernel, which halves {} rows, takes {} rows of the first half's neighbour for its own",
                    plan.w13_rows,
                    plan.width_padded - plan.width.min(plan.width_padded)
                ),
                effect: Effect::Wrong,
            });
        }
        let group = plan.order.interleave();
        if gated && group > 1 && plan.width_padded % group != 0 {
            found.push(Violation {
                code: "PP115",
                axis: "w13 rows",
                value: plan.width_padded,
                unit: Unit::Elements,
                granule: group,
                message: format!(
                    "{} rows of a half do not fill groups of {group}",
                    plan.width_padded
                ),
                effect: Effect::Refused,
            });
        }
        let row_blocks = plan.w13_scale.is_some_and(|s| s.row_block > 1);
        if gated && plan.order.interleave() != 0 && row_blocks {
            found.push(Violation {
                code: "PP122",
                axis: "w13 scale rows",
                value: plan.w13_scale.map_or(0, |s| s.row_block),
                unit: Unit::Elements,
                granule: group,
                message: "interleaved rows cannot share a scale block of gate or up rows"
                    .to_owned(),
                effect: Effect::Refused,
            });
        }
        // V-5: a pad that decodes to a number other than 0 needs a scale of 0.
        let element = plan.weight.element();
        let padded = plan.width_padded != plan.width || plan.hidden_padded != plan.dims.h;
        if padded
            && element.decode(plan.weight_pad) != 0.0
            && self.rule.fill.scale != PadValue::Zero
        {
            found.push(Violation {
                code: "PP120",
                axis: "weight pad",
                value: u64::from(plan.weight_pad),
                unit: Unit::Elements,
                granule: 0,
                message: format!(
                    "the pad code {} decodes to {}",
                    plan.weight_pad,
                    element.decode(plan.weight_pad)
                ),
                effect: Effect::Wrong,
            });
        }
    }

    fn rule_violations(&self, plan: &Plan, found: &mut Vec<Violation>) {
        if !self.rule.formats.contains(&self.layer.weight) {
            let takes: Vec<&str> = self.rule.formats.iter().map(|f| f.name()).collect();
            found.push(Violation {
                code: "PP111",
                axis: "weight format",
                value: self.layer.weight.element().bits(),
                unit: Unit::Bits,
                granule: 0,
                message: format!(
                    "{} takes {}, not {}",
                    self.rule.id,
                    takes.join(", "),
                    self.layer.weight
                ),
                effect: Effect::Refused,
            });
        }
        for refusal in &self.rule.refuse {
            if !self.holds(&refusal.when, plan.width) {
                continue;
            }
            let (code, effect) = match refusal.verdict {
                Verdict::Slow => ("PP118", Effect::Slow),
                Verdict::Refused => ("PP102", Effect::Refused),
                Verdict::Wrong => ("PP117", Effect::Wrong),
                Verdict::Unknown => ("PP119", Effect::Unknown),
            };
            let (axis, value, granule) = match (
                refusal.when.width_not_multiple,
                refusal.when.hidden_not_multiple,
            ) {
                (Some(m), _) => ("intermediate", plan.width, m),
                (None, Some(m)) => ("hidden", plan.dims.h, m),
                (None, None) => ("rule", plan.width, refusal.when.width_max.unwrap_or(1)),
            };
            let rest = value % granule;
            found.push(Violation {
                code,
                axis,
                value,
                unit: Unit::Elements,
                granule,
                message: format!("{value} % {granule} = {rest}: {}", refusal.why),
                effect,
            });
        }
    }

    /// Elements added to each row of K, when the rule's variable is set.
    fn stride(&self, env: &[&str], plan: &Plan, found: &mut Vec<Violation>) -> u64 {
        let Some(stride) = &self.rule.stride else {
            return 0;
        };
        if !env.contains(&stride.env.as_str()) {
            return 0;
        }
        found.push(Violation {
            code: "PP116",
            axis: "row stride",
            value: plan.hidden_padded.saturating_add(stride.elements),
            unit: Unit::Elements,
            granule: plan.hidden_padded,
            message: format!(
                "{} makes each row of K {} elements longer in memory; they are never multiplied",
                stride.env, stride.elements
            ),
            effect: Effect::Note,
        });
        stride.elements
    }
}

/// The number that K must be a multiple of: whole groups for formats that pack or share scales
/// in short groups, 1 for the others (whose last block may be short).
pub(super) fn group_needed(weight: WeightFormat) -> u64 {
    match weight.scale() {
        Some(g) if matches!(g.rows, Extent::Block(1)) => match g.cols {
            Extent::Block(block) => block,
            Extent::All => 1,
        },
        _ => 1,
    }
}

/// Weight elements held by all ranks over logical ones, minus 1, in millionths.
fn overhead(plan: &Plan, ranks: u64) -> Result<u64, PlanError> {
    let held = product(
        "weight elements",
        &[ranks, plan.width_padded, plan.hidden_padded],
    )?;
    let logical = product("weight elements", &[plan.dims.i, plan.dims.h])?;
    let extra = u128::from(held.saturating_sub(logical)) * 1_000_000 / u128::from(logical);
    Ok(u64::try_from(extra).unwrap_or(u64::MAX))
}

fn fit(plan: &Plan, ranks: u64, found: &[Violation]) -> Fit {
    let exact = plan.width_padded.checked_mul(ranks) == Some(plan.dims.i)
        && plan.hidden_padded == plan.dims.h;
    match found.iter().map(|v| v.effect).max() {
        Some(Effect::Wrong) => Fit::Wrong,
        Some(Effect::Unrepresentable) => Fit::Unrepresentable,
        Some(Effect::Refused) => Fit::Refused,
        Some(Effect::Unknown) => Fit::Unknown,
        Some(Effect::Slow) => Fit::Slow,
        Some(Effect::Note) | None if exact => Fit::Fits,
        Some(Effect::Note) | None => Fit::Padded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rules;
    use crate::terms::{Activation, Bias};

    fn layer(i: u64, h: u64, act: Activation, weight: WeightFormat) -> LayerSpec {
        LayerSpec {
            kind: LayerKind::Routed,
            hidden: h,
            intermediate: i,
            experts: 8,
            top_k: 2,
            activation: act,
            weight,
            bias: Bias::None,
            tokens: 1,
        }
    }

    fn planned(rule: &str, spec: &LayerSpec, tp: u64) -> Plan {
        plan_layer(
            spec,
            Parallel { tp, ep: 1 },
            Rules::builtin().get(rule).unwrap(),
            &[],
        )
        .unwrap()
    }

    #[test]
    fn nemotron_at_tp_8_goes_from_961_to_976() {
        for (act, rows) in [(Activation::Relu2, 976), (Activation::Swiglu, 1952)] {
            let p = planned(
                "sglang.flashinfer_cutlass.fp8",
                &layer(7688, 4096, act, WeightFormat::Fp8),
                8,
            );
            assert_eq!(
                (p.fit, p.width, p.width_padded, p.w13_rows),
                (Fit::Padded, 961, 976, rows)
            );
            assert_eq!(p.overhead_millionths, 15_608); // 15/961
            assert_eq!(p.tensors[1].shape, [8, 4096, 976]);
        }
        let before = planned(
            "sglang.flashinfer_cutlass.fp8.unpadded",
            &layer(7688, 4096, Activation::Relu2, WeightFormat::Fp8),
            8,
        );
        assert_eq!(before.fit, Fit::Refused);
        assert!(
            before.violations[0].message.contains("961 % 16 = 1"),
            "{:?}",
            before.violations
        );
    }

    #[test]
    fn all_violations_are_listed_at_once() {
        let mut spec = layer(1000, 100, Activation::Swiglu, WeightFormat::Nvfp4);
        spec.experts = 3;
        let rule = Rules::builtin()
            .get("sglang.flashinfer_cutlass.nvfp4")
            .unwrap();
        let p = plan_layer(&spec, Parallel { tp: 14, ep: 2 }, rule, &[]).unwrap();
        let codes: Vec<_> = p.violations.iter().map(|v| v.code).collect();
        for code in ["PP101", "PP103", "PP104", "PP106", "PP102"] {
            assert!(codes.contains(&code), "{code} of {codes:?}");
        }
    }

    #[test]
    fn absurd_sizes_are_sentences() {
        let rule = Rules::builtin().get("sglang.aiter.fp8").unwrap();
        for (i, h, tp) in [
            (1 << 40, 1 << 40, 8),
            (u64::MAX, 1, 1),
            (1, 1, u64::MAX),
            (0, 1, 1),
            (1, 1, 0),
        ] {
            let spec = layer(i, h, Activation::Swiglu, WeightFormat::Fp8);
            let error = plan_layer(&spec, Parallel { tp, ep: 1 }, rule, &[]);
            if let Err(e) = error {
                assert!(e.to_string().len() > 10);
            }
        }
    }

    #[test]
    fn the_stride_variable_widens_rows_only() {
        let spec = layer(1024, 2048, Activation::Swiglu, WeightFormat::Fp8);
        let rule = Rules::builtin().get("sglang.triton.fp8").unwrap();
        let bare = plan_layer(&spec, Parallel { tp: 4, ep: 1 }, rule, &[]).unwrap();
        let wide = plan_layer(
            &spec,
            Parallel { tp: 4, ep: 1 },
            rule,
            &["SGLANG_MOE_PADDING"],
        )
        .unwrap();
        assert_eq!(bare.tensors[0].shape, wide.tensors[0].shape);
        assert_eq!(wide.tensors[0].bytes, 8 * 512 * (2048 + 128));
        assert_eq!(wide.fit, Fit::Fits);
    }
}
