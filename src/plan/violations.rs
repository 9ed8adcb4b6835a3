//! What a plan says is wrong, or worth knowing: every check at once.

use super::arith::product;
use super::scales::Straddle;
use super::split::Cut;
use super::{Effect, LayerSpec, Plan, PlanError, Unit, Violation};
use crate::rule::{Condition, Granule, GranuleUnit, PadValue, Rule, Verdict};
use crate::terms::{Extent, Place, WeightFormat};

pub(super) fn straddling(axis: &'static str, s: Straddle) -> Violation {
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

pub(super) fn refined(axis: &'static str, s: Straddle) -> Violation {
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
pub(super) struct Facts<'a> {
    pub(super) layer: &'a LayerSpec,
    pub(super) rule: &'a Rule,
    pub(super) packed: bool,
}

impl Facts<'_> {
    /// Scale block along the intermediate axis, 1 if none.
    pub(super) fn block(&self) -> u64 {
        match self.layer.weight.scale().map(|g| g.cols) {
            Some(Extent::Block(block)) => block,
            Some(Extent::All) | None => 1,
        }
    }

    pub(super) fn holds(&self, when: &Condition, width: u64) -> bool {
        when.gated
            .is_none_or(|g| g == self.layer.activation.gated())
            && (when.activations.is_empty() || when.activations.contains(&self.layer.activation))
            && (when.formats.is_empty() || when.formats.contains(&self.layer.weight))
            && when.width_max.is_none_or(|max| width <= max)
            && when
                .width_not_multiple
                .is_none_or(|m| !width.is_multiple_of(m))
            && when
                .hidden_not_multiple
                .is_none_or(|m| !self.layer.hidden.is_multiple_of(m))
    }

    /// The granule of an axis in elements: the first whose condition holds, else 1.
    pub(super) fn align(&self, granules: &[Granule], width: u64) -> Result<u64, PlanError> {
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

    pub(super) fn split_violations(
        &self,
        plan: &Plan,
        cut: &Cut,
        ranks: u64,
        found: &mut Vec<Violation>,
    ) {
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

    pub(super) fn size_violations(&self, plan: &Plan, ranks: u64, found: &mut Vec<Violation>) {
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

    pub(super) fn padding_violations(&self, plan: &Plan, found: &mut Vec<Violation>) {
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
        if gated && group > 1 && !plan.width_padded.is_multiple_of(group) {
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

    pub(super) fn rule_violations(&self, plan: &Plan, found: &mut Vec<Violation>) {
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
    pub(super) fn stride(&self, env: &[&str], plan: &Plan, found: &mut Vec<Violation>) -> u64 {
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
