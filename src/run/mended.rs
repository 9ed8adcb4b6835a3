//! Ways around a plan that change the checkpoint or its scales, in every part that does not run as it is.
//!
//! It must not decide anything that `plan` decides. Layer 9.

use super::advice::{Beside, Changed, Instead, Way};
use super::cost::Cost;
use super::ways::{About, Trial};
use crate::plan::{Fit, LayerSpec, Parallel, Plan};
use crate::terms::{Extent, LayerKind, WeightFormat};

/// Widths that kernels ask multiples of (facts/upstream-padding.md 1.1 to 1.7).
const GRANULES: [u64; 6] = [16, 32, 64, 128, 256, 512];

/// The elements along K that share a scale, if they do.
fn block(part: &LayerSpec) -> Option<u64> {
    match part.weight.scale()?.cols {
        Extent::Block(block) => Some(block),
        Extent::All => None,
    }
}

/// Formats that the same codes have with each scale repeated on blocks that are halves or quarters.
fn finer_formats(weight: WeightFormat) -> &'static [WeightFormat] {
    match weight {
        WeightFormat::Fp8Block => &[WeightFormat::Fp8Block64, WeightFormat::Fp8Block32],
        WeightFormat::Fp8Block64 => &[WeightFormat::Fp8Block32],
        WeightFormat::Int4 => &[WeightFormat::Int4G64, WeightFormat::Int4G32],
        WeightFormat::Int4G64 => &[WeightFormat::Int4G32],
        _ => &[],
    }
}

/// Widths of the whole part to try, rising: a rank's share rounded to what kernels ask for.
fn widths(part: &LayerSpec, ranks: u64) -> Vec<u64> {
    let share = part.intermediate.div_ceil(ranks.max(1));
    let least = block(part).unwrap_or(1);
    let rounded = |granule: &u64| {
        let granule = (*granule).max(least);
        share
            .div_ceil(granule)
            .checked_mul(granule)?
            .checked_mul(ranks)
    };
    let mut widths: Vec<u64> = GRANULES.iter().filter_map(rounded).collect();
    widths.retain(|width| *width > part.intermediate);
    widths.sort_unstable();
    widths.dedup();
    widths
}

/// A part of the same codes in another format, if it is of `own`.
fn repeated(part: &LayerSpec, own: WeightFormat, finer: WeightFormat) -> LayerSpec {
    let weight = match part.weight == own {
        true => finer,
        false => part.weight,
    };
    LayerSpec {
        weight,
        ..part.clone()
    }
}

fn wider(part: &LayerSpec, intermediate: u64) -> LayerSpec {
    LayerSpec {
        intermediate,
        ..part.clone()
    }
}

impl About<'_, '_> {
    /// The checkpoint's scales repeated on the coarsest finer grid that the rule lists and takes, in every
    /// part of this format: a kernel is asked for nothing that its rule does not say it takes.
    pub(super) fn finer_scales(&self, now: &Trial) -> Option<Instead> {
        let straddles = now.plan.violations.iter().any(|v| v.code == "PP103");
        if !straddles {
            return None;
        }
        let own = self.spec().weight;
        let mut listed = finer_formats(own)
            .iter()
            .filter(|finer| self.rule.formats.contains(finer));
        let (finer, plan) = listed.find_map(|&finer| {
            let spec = repeated(self.spec(), own, finer);
            let plan = self.parts.plan_as(&spec, self.rule, self.at, now.asked)?;
            plan.ok()
                .filter(|plan| plan.fit <= Fit::Padded)
                .map(|plan| (finer, plan))
        })?;
        let size = plan.w2_scale.map(|scale| scale.col_block)?;
        // A plan whose shares begin inside blocks counts those twice: what is stored now is counted as if
        // they need not.
        let mut counted = self.rule.clone();
        counted.scale.refine = true;
        let stored = self.parts.plan(&counted, self.at, now.asked)?.ok()?;
        let mut changed = vec![change(self.spec().kind, size, &now.plan, &plan)];
        let rest = self.remade(|at| {
            let part = &self.parts.all[at];
            let before = self.parts.judged(&counted, at, now.asked)?;
            let spec = repeated(part, own, finer);
            let judged = self.parts.judged_as(&spec, self.rule, at, now.asked)?;
            if let (true, Some(plan)) = (part.weight == own, judged.plan.as_ref()) {
                changed.push(Changed {
                    layer: part.kind,
                    size,
                    width: plan.width,
                    width_padded: plan.width_padded,
                });
            }
            Some(self.besides(at, &judged, before.plan.as_ref()))
        });
        let trial = Trial {
            asked: now.asked,
            cost: Cost::of(&plan, &stored, self.layers(self.at)),
            plan,
            rest,
            open: Vec::new(),
        };
        Some(Instead {
            size: Some(size),
            changed,
            ..self.instead(Way::FinerScales, &trial)
        })
    }

    /// The narrowest checkpoint that the rule takes on these ranks without padding: one width for all
    /// routed experts, draft layers and other formats too, as a config has one, and widths for the
    /// other parts that do not run as they are.
    pub(super) fn pad_offline(&self, now: &Trial) -> Option<Instead> {
        let sizes = self.offline_widths(now)?;
        let plan = self.plan_of(self.at, sizes[self.at], now.asked)?;
        let mut changed = Vec::new();
        if sizes[self.at] != self.spec().intermediate {
            changed.push(change(self.spec().kind, sizes[self.at], &now.plan, &plan));
        }
        let own = changed.first().map(|one| one.size);
        let rest = self.remade(|at| {
            let (part, size) = (&self.parts.all[at], sizes[at]);
            let before = self.parts.judged(self.rule, at, now.asked)?;
            let judged = self
                .parts
                .judged_as(&wider(part, size), self.rule, at, now.asked)?;
            let plans = before.plan.as_ref().zip(judged.plan.as_ref());
            if let (Some((before, after)), true) = (plans, size != part.intermediate) {
                changed.push(change(part.kind, size, before, after));
            }
            Some(self.besides(at, &judged, before.plan.as_ref()))
        });
        if changed.is_empty() {
            return None;
        }
        let cost = Cost::of(&plan, &now.plan, self.layers(self.at));
        let padded = now.plan.fit == Fit::Padded;
        if padded && cost.extra_arithmetic() >= now.plan.overhead_millionths {
            // The loader pads as little, without a new checkpoint.
            return None;
        }
        let trial = Trial {
            asked: now.asked,
            plan,
            cost,
            rest,
            open: Vec::new(),
        };
        Some(Instead {
            width: now.plan.width,
            size: own,
            changed,
            ..self.instead(Way::PadOffline, &trial)
        })
    }

    /// The widths of all parts in such a checkpoint; none where the routed experts need one and no width
    /// will do.
    fn offline_widths(&self, now: &Trial) -> Option<Vec<u64>> {
        let routed = match now.plan.fit {
            Fit::Fits => None,
            _ => Some(self.routed_width(now)?),
        };
        let parts = self.parts.all.iter().enumerate();
        let sizes = parts.map(|(at, part)| match part.kind.follows() {
            LayerKind::Routed => routed.unwrap_or(part.intermediate),
            _ => self
                .width_beside(at, now.asked)
                .unwrap_or(part.intermediate),
        });
        Some(sizes.collect())
    }

    /// The parts beside the routed experts that a rule is for, made anew.
    fn remade(&self, made: impl FnMut(usize) -> Option<Beside>) -> Vec<Beside> {
        let others = (0..self.parts.all.len()).filter(|&at| at != self.at);
        others.filter_map(made).collect()
    }

    /// A part of another width, under this rule.
    fn plan_of(&self, at: usize, size: u64, asked: Parallel) -> Option<Plan> {
        let spec = wider(&self.parts.all[at], size);
        self.parts.plan_as(&spec, self.rule, at, asked)?.ok()
    }

    /// The least width that these experts take without padding; where there is one, of those on which
    /// the other routed experts and draft layers, which have the same width, run too.
    fn routed_width(&self, now: &Trial) -> Option<u64> {
        let ranks = self.parts.ranks(self.rule, self.at, now.asked)?;
        let ranks = ranks.tp.checked_div(ranks.ep)?;
        let fits = |size: &u64| {
            let plan = self.plan_of(self.at, *size, now.asked);
            plan.is_some_and(|plan| plan.fit == Fit::Fits)
        };
        let sizes: Vec<u64> = widths(self.spec(), ranks)
            .into_iter()
            .filter(fits)
            .collect();
        let runs = |size: &u64| {
            (0..self.parts.all.len()).all(|at| {
                let part = &self.parts.all[at];
                let follows = part.kind.follows() == LayerKind::Routed;
                let spec = wider(part, *size);
                let judged = || self.parts.judged_as(&spec, self.rule, at, now.asked);
                !follows || judged().is_none_or(|one| one.fit < Fit::Refused)
            })
        };
        sizes.iter().copied().find(runs).or(sizes.first().copied())
    }

    /// The least width of a part beside the routed experts that runs, if it does not run as it is:
    /// without padding, else padded.
    fn width_beside(&self, at: usize, asked: Parallel) -> Option<u64> {
        let judged = self.parts.judged(self.rule, at, asked)?;
        let part = &self.parts.all[at];
        if judged.fit < Fit::Refused {
            return None;
        }
        let ranks = self.parts.ranks(self.rule, at, asked)?;
        let sizes = widths(part, ranks.tp);
        let within = |most: Fit| {
            sizes.iter().copied().find(|size| {
                let judged = self
                    .parts
                    .judged_as(&wider(part, *size), self.rule, at, asked);
                judged.is_some_and(|one| one.fit <= most)
            })
        };
        within(Fit::Fits).or_else(|| within(Fit::Padded))
    }
}

fn change(layer: LayerKind, size: u64, before: &Plan, after: &Plan) -> Changed {
    Changed {
        layer,
        size,
        width: before.width,
        width_padded: after.width_padded,
    }
}
