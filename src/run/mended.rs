//! Ways around a plan that change the checkpoint or its scales, in every part that does not run as it is.
//!
//! It must not decide anything that `plan` decides. Layer 9.

use super::advice::{Beside, Changed, Instead, PadAs, Way};
use super::cost::Cost;
use super::ways::{About, Trial};
use crate::case::PadSpec;
use crate::model::{Model, Quant, WidthKey, WidthOf};
use crate::pad::{Request, recipe, refused};
use crate::plan::{Fit, LayerSpec, Parallel, Plan, plan_layer, spelled_rule};
use crate::terms::{LayerKind, Split, WeightFormat};

/// Widths that kernels ask multiples of (facts/upstream-padding.md 1.1 to 1.7).
const GRANULES: [u64; 6] = [16, 32, 64, 128, 256, 512];

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

/// A checkpoint that `padproof pad` makes of a model: the request, and the widths of its experts.
struct Made {
    pad: PadAs,
    routed: u64,
    shared: Option<u64>,
}

/// Every such checkpoint on so many ranks, the narrowest first.
fn made(model: &Model, ranks: &[u64]) -> Vec<Made> {
    // What it refuses for how the weights are packed may be quantised again at these widths.
    let model = Model {
        quant: Quant {
            zero_points: None,
            act_order: false,
            ..model.quant.clone()
        },
        ..model.clone()
    };
    let key = model.shared_each.map(|value| WidthKey {
        path: Vec::new(),
        of: WidthOf::SharedEach,
        value,
        list: None,
    });
    let keys: Vec<WidthKey> = key.into_iter().collect();
    let one = |tp: u64, align: u64| {
        let request = Request::new(tp, None, Some(align), None, &[]);
        let recipe = recipe(&model, &keys, &request, None, &[]).ok()?;
        (!recipe.same()).then(|| Made {
            pad: PadAs { tp, align },
            routed: recipe.routed.width.to,
            shared: recipe.shared.map(|part| part.width.to),
        })
    };
    // Of requests that come to the same, the one that says most.
    let aligns = || GRANULES.into_iter().rev();
    let all = ranks
        .iter()
        .flat_map(|&tp| aligns().map(move |align| (tp, align)));
    let mut all: Vec<Made> = all.filter_map(|(tp, align)| one(tp, align)).collect();
    all.sort_by_key(|made| (made.routed, made.shared));
    all.dedup_by_key(|made| (made.routed, made.shared));
    all
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

    /// Whether `padproof pad` takes the checkpoint, as far as its config tells.
    pub(super) fn pads(&self) -> bool {
        refused(self.parts.model).is_none()
    }

    /// The narrowest checkpoint that `padproof pad` makes and that the rule takes on these ranks without padding;
    /// where there is one, of those on which the other experts run too.
    pub(super) fn pad_offline(&self, now: &Trial) -> Option<Instead> {
        let ranks = self.parts.ranks(self.rule, self.at, now.asked)?;
        let mut ranks = vec![ranks.tp.checked_div(ranks.ep)?, now.asked.tp];
        ranks.dedup();
        let all = made(self.parts.model, &ranks).into_iter();
        let mut fitting = all
            .filter_map(|made| self.after_padding(&made, now))
            .peekable();
        let first = fitting.peek().cloned();
        let whole = fitting.find(|way| way.still.is_empty());
        let way = whole.or(first.filter(|_| now.plan.fit != Fit::Fits))?;
        // Else the loader pads as little, without a new checkpoint.
        let less = way.cost.extra_arithmetic() < now.plan.overhead_millionths;
        (now.plan.fit != Fit::Padded || less).then_some(way)
    }

    /// What becomes of every part with a padded checkpoint; none where the routed experts do not fit then.
    fn after_padding(&self, made: &Made, now: &Trial) -> Option<Instead> {
        let size = |at: usize| {
            let part = &self.parts.all[at];
            match part.kind.follows() {
                LayerKind::Routed => made.routed,
                LayerKind::Shared => made.shared.unwrap_or(part.intermediate),
                // What it leaves as it is.
                _ => part.intermediate,
            }
        };
        let spec = wider(self.spec(), made.routed);
        let plan = self.parts.plan_as(&spec, self.rule, self.at, now.asked)?;
        let plan = plan.ok().filter(|plan| plan.fit == Fit::Fits)?;
        let mut changed = Vec::new();
        if made.routed != self.spec().intermediate {
            changed.push(change(self.spec().kind, made.routed, &now.plan, &plan));
        }
        let own = changed.first().map(|one| one.size);
        let mut open = Vec::new();
        let rest = self.remade(|at| {
            let (part, size) = (&self.parts.all[at], size(at));
            let Some(before) = self.parts.judged(self.rule, at, now.asked) else {
                let (beside, told) = self.unjudged(at, size, now.asked)?;
                changed.push(told);
                if !open.contains(&part.kind) {
                    open.push(part.kind);
                }
                return Some(beside);
            };
            let judged = self
                .parts
                .judged_as(&wider(part, size), self.rule, at, now.asked)?;
            let plans = before.plan.as_ref().zip(judged.plan.as_ref());
            if let (Some((before, after)), true) = (plans, size != part.intermediate) {
                changed.push(change(part.kind, size, before, after));
            }
            Some(self.besides(at, &judged, before.plan.as_ref()))
        });
        let trial = Trial {
            asked: now.asked,
            cost: Cost::of(&plan, &now.plan, self.layers(self.at)),
            plan,
            rest,
            open: Vec::new(),
        };
        Some(Instead {
            width: now.plan.width,
            size: own,
            changed,
            open,
            pad: Some(made.pad),
            ..self.instead(Way::PadOffline, &trial)
        })
    }

    /// A part that becomes wider and that no rule of the stack is for: in equal shares, which is the least that
    /// any stack holds.
    fn unjudged(&self, at: usize, size: u64, asked: Parallel) -> Option<(Beside, Changed)> {
        let part = &self.parts.all[at];
        if size == part.intermediate {
            return None;
        }
        let ranks = self.parts.ranks(self.rule, at, asked)?;
        let spec = PadSpec {
            split: Split::Prepad,
            ..PadSpec::default()
        };
        let mut rule = spelled_rule(&spec, part.weight).ok()?;
        rule.scale.refine = true;
        let plan = |spec: &LayerSpec| plan_layer(spec, ranks, &rule, &[]).ok();
        let (before, after) = (plan(part)?, plan(&wider(part, size))?);
        let layers = self.layers(at);
        let beside = Beside {
            layer: part.kind,
            format: part.weight,
            verdict: Fit::Unknown,
            width: after.width,
            layers,
            cost: Some(Cost::of(&after, &before, layers)),
        };
        Some((beside, change(part.kind, size, &before, &after)))
    }

    /// The parts beside the routed experts that a rule is for, made anew.
    fn remade(&self, made: impl FnMut(usize) -> Option<Beside>) -> Vec<Beside> {
        let others = (0..self.parts.all.len()).filter(|&at| at != self.at);
        others.filter_map(made).collect()
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
