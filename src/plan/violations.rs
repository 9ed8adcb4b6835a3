//! What a plan says is wrong, or worth knowing: every check at once.

use super::conditions::{Facts, Truth};
use super::scales::Straddle;
use super::sizes::trtllm_gen_scales;
use super::split::Cut;
use super::{Effect, Plan, REFINE_MIN, ScalePlan, Unit, Violation};
use crate::model::ZeroPoints;
use crate::rule::{BiasShare, Count, Verdict};
use crate::terms::{Bias, Extent, Place, WeightFormat};

pub(super) fn straddling(axis: &'static str, weight: WeightFormat, s: Straddle) -> Violation {
    let finer = match weight.grid_is_fixed() || s.finer < REFINE_MIN {
        true => String::new(),
        false => format!("scales repeated at {} would, and ", s.finer),
    };
    Violation {
        code: "PP103",
        axis,
        value: s.start,
        unit: Unit::Elements,
        granule: s.block,
        message: format!(
            "rank {} starts at {}, inside a scale block of {}: two ranks share that block's scale, which padding of a rank's share cannot mend ({finer}padding the checkpoint before the split may)",
            s.rank, s.start, s.block
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

/// All scales of both weights on one finer block.
pub(super) fn repeated(plan: &Plan, block: u64, finer: u64) -> Violation {
    Violation {
        code: "PP121",
        axis: "scale blocks",
        value: plan.width,
        unit: Unit::Elements,
        granule: finer,
        message: format!(
            "scale blocks of {block} do not divide the width of a rank, {}, and the hidden size, {}: the scales of both weights are repeated on blocks of {finer}, without loss",
            plan.width, plan.dims.h
        ),
        effect: Effect::Note,
    }
}

impl Facts<'_> {
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
                    plan.split
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
        // The grid that is kept on the ranks, which may be finer than the format's own.
        let kept = |scale: Option<ScalePlan>| match group_needed(self.layer.weight) {
            1 => 1,
            // Listed groups may end anywhere.
            _ if self.layer.act_order => 1,
            own => scale.map_or(own, |s| s.col_block.max(1)),
        };
        for (axis, size, group) in [
            ("intermediate", plan.width_padded, kept(plan.w2_scale)),
            ("hidden", plan.hidden_padded, kept(plan.w13_scale)),
        ] {
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
        if let Some(order) = plan.zero_points {
            self.zero_point_violations(order, found);
        }
        if self.layer.act_order {
            let group = plan.w2_scale.map_or(0, |s| s.col_block_source);
            found.push(Violation {
                code: "PP133",
                axis: "groups",
                value: group,
                unit: Unit::Elements,
                granule: 0,
                message: format!(
                    "the checkpoint was quantised in activation order and lists each input channel's group of {group} (g_idx): which scales a rank of w2 needs, and what the backend does with such groups, was not read; sizes are those of groups that are runs of channels"
                ),
                effect: Effect::Unknown,
            });
        }
        if self.holds(&self.rule.when, plan.width) == Truth::No {
            found.push(Violation {
                code: "PP130",
                axis: "rule",
                value: plan.dims.i,
                unit: Unit::Elements,
                granule: 0,
                message: format!("{} is for other layers than this one", self.rule.id),
                effect: Effect::Refused,
            });
        }
        for refusal in &self.rule.refuse {
            let truth = self.holds(&refusal.when, plan.width);
            // A size of the checkpoint's own may be none that the check sees.
            let other = refusal.when.hidden_not_multiple.filter(|m| {
                self.sent(plan.width).is_some() && plan.hidden_padded.is_multiple_of(*m)
            });
            let (code, effect) = match (truth, refusal.verdict) {
                (Truth::No, _) => continue,
                (Truth::Open, _) | (Truth::Yes, Verdict::Unknown) => ("PP119", Effect::Unknown),
                (Truth::Yes, _) if other.is_some() => ("PP119", Effect::Unknown),
                (Truth::Yes, Verdict::Slow) => ("PP118", Effect::Slow),
                (Truth::Yes, Verdict::Refused) => ("PP102", Effect::Refused),
                (Truth::Yes, Verdict::Wrong) => ("PP117", Effect::Wrong),
            };
            let (axis, value, granule) = match (
                refusal.when.width_not_multiple,
                refusal.when.hidden_not_multiple,
            ) {
                (Some(m), _) => ("intermediate", plan.width, m),
                (None, Some(m)) => ("hidden", plan.dims.h, m),
                (None, None) if refusal.when.uneven == Some(true) => {
                    ("intermediate", plan.dims.i, self.shard_ranks)
                }
                (None, None) => ("rule", plan.width, 0),
            };
            let mut message = match value.checked_rem(granule) {
                Some(rest) => format!("{value} % {granule} = {rest}: "),
                None => String::new(),
            };
            match truth {
                Truth::Open => message.push_str(&format!("if {}: ", refusal.when.asks())),
                Truth::Yes if other.is_some() => message.push_str(&format!(
                    "unless the {} that the dispatch asks for is what is tested, which was not read: ",
                    plan.hidden_padded
                )),
                Truth::Yes | Truth::No => {}
            }
            message.push_str(&refusal.why);
            found.push(Violation {
                code,
                axis,
                value,
                unit: Unit::Elements,
                granule,
                message,
                effect,
            });
        }
        for limit in &self.rule.limits {
            found.push(Violation {
                code: "PP127",
                axis: "tokens",
                value: limit.tokens_min,
                unit: Unit::Tokens,
                granule: 0,
                message: format!(
                    "with fewer than {} tokens in a batch: {}",
                    limit.tokens_min, limit.why
                ),
                effect: Effect::Note,
            });
        }
    }

    /// Zero points: whether the rule's source knows them, and how the checkpoint packs them.
    fn zero_point_violations(&self, order: ZeroPoints, found: &mut Vec<Violation>) {
        let mut say = |code, effect, message| {
            found.push(Violation {
                code,
                axis: "zero points",
                value: 4,
                unit: Unit::Bits,
                granule: 0,
                message,
                effect,
            });
        };
        if !self.rule.zero_points {
            let message = "whether the backend takes zero points, and how, was not read".to_owned();
            say("PP119", Effect::Unknown, message);
        }
        if order == ZeroPoints::Awq {
            let columns = ZeroPoints::AWQ_ORDER.map(|column| column.to_string());
            let message = format!(
                "the checkpoint packs those of eight columns in 32 bits, from the lowest on columns {}; a repack must undo it, which equal zero points do not show",
                columns.join(",")
            );
            say("PP132", Effect::Note, message);
        }
    }

    /// V-7 and V-12: scales for every channel, biases added once.
    pub(super) fn count_violations(&self, plan: &Plan, align: u64, found: &mut Vec<Violation>) {
        if let (Count::TrtllmGen, Some(scale)) = (self.rule.scale.count, plan.w2_scale) {
            found.extend(miscounted(plan, scale, align, self.shard_ranks));
        }
        let group = plan.w2_scale.map_or(0, |s| s.col_block);
        let short = |len: u64| len.checked_rem(group).filter(|&rest| rest != 0);
        let mut runs = plan.ranks.iter().filter(|_| !self.layer.act_order);
        let first = runs.find_map(|r| Some((r, short(r.len)?)));
        if let (Count::Floor, Some((rank, rest))) = (self.rule.scale.count, first) {
            found.push(Violation {
                code: "PP126",
                axis: "w2 scale columns",
                value: rank.len,
                unit: Unit::Elements,
                granule: group,
                message: format!(
                    "scales are counted by whole groups of {group}: the last {rest} of rank {}'s {} channels have none",
                    rank.rank, rank.len
                ),
                effect: Effect::Wrong,
            });
        }
        let repeated = self.rule.w2_bias == Some(BiasShare::EveryRank) && self.shard_ranks > 1;
        if repeated && plan.bias == Bias::Both {
            found.push(Violation {
                code: "PP129",
                axis: "w2 bias",
                value: self.shard_ranks,
                unit: Unit::Ranks,
                granule: 1,
                message: format!("the bias of w2 is added {} times", self.shard_ranks),
                effect: Effect::Wrong,
            });
        }
    }

    /// Elements added to each row of K of w13 and of w2, when the rule's variable is set.
    pub(super) fn stride(&self, plan: &Plan, found: &mut Vec<Violation>) -> [u64; 2] {
        let Some(stride) = &self.rule.stride else {
            return [0, 0];
        };
        if !self.env.contains(&stride.env.as_str()) {
            return [0, 0];
        }
        let bits = plan.weight.element().bits();
        let extra = stride
            .elements
            .saturating_add(stride.bytes.saturating_mul(8) / bits);
        let added = [plan.hidden_padded, plan.width_padded].map(|row| {
            let bytes = row.saturating_mul(bits) / 8;
            let takes = stride
                .row_bytes_multiple
                .is_none_or(|m| bytes.is_multiple_of(m));
            if takes { extra } else { 0 }
        });
        if added != [0, 0] {
            found.push(Violation {
                code: "PP116",
                axis: "row stride",
                value: plan.hidden_padded.saturating_add(added[0]),
                unit: Unit::Elements,
                granule: plan.hidden_padded,
                message: format!(
                    "{} makes each row of K {extra} elements longer in memory; they are never multiplied",
                    stride.env
                ),
                effect: Effect::Note,
            });
        }
        added
    }
}

/// The scales of w2, where their number is padded as if they were channels and ranks get other columns than
/// their weights need. NVFP4's are fitted to the buffer; of MXFP4's the call was not read
/// (facts/upstream-padding.md 1.6 T4, T5).
fn miscounted(plan: &Plan, scale: ScalePlan, align: u64, ranks: u64) -> Option<Violation> {
    let group = scale.col_block.max(1);
    let given = trtllm_gen_scales(plan.dims.i, ranks, align, group)?;
    let needed = plan.width_padded.div_ceil(group);
    let (then, effect) = match plan.weight {
        WeightFormat::Nvfp4 => ("rank 1 takes scales of other channels", Effect::Wrong),
        _ => (
            "whether that is so of this format as of NVFP4 was not read",
            Effect::Unknown,
        ),
    };
    (given != needed).then(|| Violation {
        code: "PP138",
        axis: "w2 scale columns",
        value: given,
        unit: Unit::Blocks,
        granule: 0,
        message: format!(
            "the number of scales is padded as if they were channels: a rank gets {given}, where its {} channels have {needed}, and {then}",
            plan.width_padded
        ),
        effect,
    })
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
