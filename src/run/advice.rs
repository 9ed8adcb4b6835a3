//! What else could be done with a model on so many ranks: degrees without padding, and ways
//! around a plan that pads, each with what it costs.
//!
//! It must not format text, or decide anything that `plan` decides. Layer 9.

use super::cost::Cost;
use super::degrees::{blocked, limits, unchecked, usable};
use super::parts::Parts;
use super::ways::About;
use super::{Query, Surveyed};
use crate::plan::Fit;
use crate::rule::{Replicas, Status, Unread};
use crate::terms::{LayerKind, WeightFormat};
use serde::Serialize;

/// A kind of way around a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Another number of ranks.
    Tp,
    /// Whole experts on each rank.
    Ep,
    /// Another rule on the same ranks.
    Backend,
    /// Scales repeated on a finer grid, without loss.
    FinerScales,
    /// Quantised again after the split, so that blocks begin where the rank does.
    Requantise,
    /// Zero channels added to the checkpoint, once, before it is served.
    PadOffline,
    /// Shared experts kept whole on every rank instead of cut.
    Replicate,
}

impl Way {
    /// The word used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Tp => "tp",
            Way::Ep => "ep",
            Way::Backend => "backend",
            Way::FinerScales => "finer-scales",
            Way::Requantise => "requantise",
            Way::PadOffline => "pad-offline",
            Way::Replicate => "replicate",
        }
    }
}

/// A part beside the routed experts of one format, and what its stack makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// The part.
    pub layer: LayerKind,
    /// How it is stored.
    pub format: WeightFormat,
    /// The verdict.
    pub verdict: Fit,
    /// Largest logical width of a rank.
    pub width: u64,
    /// How many layers have it.
    pub layers: u64,
    /// What it costs; none where it cannot be planned on the ranks.
    #[serde(flatten)]
    pub cost: Option<Cost>,
}

/// A part that a way changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// The part.
    pub layer: LayerKind,
    /// The size that the way is about: the scale block, or the part's new width in the checkpoint.
    pub size: u64,
    /// Largest width of a rank as the checkpoint is.
    pub width: u64,
    /// Width of a rank's buffers then.
    pub width_padded: u64,
}

/// What `padproof pad` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PadAs {
    /// Ranks (`--tp`).
    pub tp: u64,
    /// Multiple of a rank's width, in elements (`--align`).
    pub align: u64,
}

/// One way around a plan, and what it costs against unpadded weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instead {
    /// What is done.
    pub way: Way,
    /// The rule.
    pub rule: String,
    /// Ranks, of one replica.
    pub tp: u64,
    /// Expert-parallel groups.
    pub ep: u64,
    /// The verdict then, of the routed experts.
    pub verdict: Fit,
    /// Largest logical width of a rank.
    pub width: u64,
    /// Width of every rank's buffers.
    pub width_padded: u64,
    /// The size that the way is about: the scale block, or the checkpoint's new width.
    pub size: Option<u64>,
    /// What the experts of all layers of this format cost; of copies, the shared ones too.
    #[serde(flatten)]
    pub cost: Cost,
    /// Whether the kernel is told at run time what is padding, and does not multiply it.
    pub told: bool,
    /// Whether every weight keeps its value.
    pub lossless: bool,
    /// Whether the model has parts that experts' parallelism leaves as they are.
    pub beside: bool,
    /// Every part that it changes, where it changes the checkpoint or its scales.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    /// How `padproof pad` makes the checkpoint, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad: Option<PadAs>,
    /// The other parts that a rule is for, as they are then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Beside>,
    /// What all of them and the routed experts cost together.
    pub all_parts: Option<Cost>,
    /// Other parts that do not run even so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub still: Vec<Beside>,
    /// Parts that no rule of another stack is for, though one of the rule's own stack is; of a padded checkpoint
    /// those that become wider and that no rule of the stack is for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<LayerKind>,
    /// What of how bytes lie the source of another rule leaves open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
}

/// Advice about one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAdvice {
    /// The rule.
    pub rule: String,
    /// The format of the experts that it is about: layers may be stored in several.
    pub format: WeightFormat,
    /// How many layers are stored so.
    pub layers: u64,
    /// The verdict on the ranks asked about.
    pub fit: Fit,
    /// The worst of all parts.
    pub verdict: Fit,
    /// What its stack makes of the other parts on the ranks asked about, where one of its rules is
    /// for them.
    pub parts: Vec<Beside>,
    /// Parts that no chosen rule of the stack is for.
    pub open: Vec<LayerKind>,
    /// What the routed experts of this format cost.
    pub cost: Cost,
    /// What they and the parts that a rule is for cost together.
    pub all_parts: Option<Cost>,
    /// Whether the model has other parts, of which a kernel library's rule says nothing.
    pub alone: bool,
    /// Usable degrees that need no padding, of all parts: none where a part is open.
    pub aligned: Vec<u64>,
    /// Usable degrees that need no padding, of the parts that are not open.
    pub aligned_known: Vec<u64>,
    /// The usable degree above 1 that pads least, if it pads less than the one asked about.
    pub cheapest: Option<Instead>,
    /// Ways around, when the plan does not fit as it is: those on as many ranks first, the cheapest
    /// first.
    pub instead: Vec<Instead>,
}

/// Advice about a model's routed experts, in each format that its layers are stored in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// Degrees up to 64 that the rest of the model takes.
    pub usable: Vec<u64>,
    /// What bounds them, a clause each.
    pub limits: Vec<String>,
    /// What does not take the degree asked about, a noun each.
    pub blocked: Vec<String>,
    /// What is not known and so not held against them, a clause each.
    pub unchecked: Vec<String>,
    /// By rule, as in the survey.
    pub rules: Vec<RuleAdvice>,
}

impl Advice {
    /// About every current rule of the routed layers among `plans`.
    pub(super) fn of(parts: &Parts<'_>, plans: &[Surveyed]) -> Self {
        let model = parts.model;
        let mut advice = Advice {
            usable: usable(model),
            limits: limits(model),
            blocked: blocked(model, parts.query.parallel.tp),
            unchecked: unchecked(model),
            rules: Vec::new(),
        };
        let current = |one: &&Surveyed| {
            let launched = !one.plan.kernel || parts.kernels_alone();
            one.status == Status::Current && !one.uncovered && launched
        };
        // Where replicas are counted in TP, attention has fewer ranks than that.
        let within = |stack: &str| parts.dp > 1 && parts.rules.replicas(stack) == Replicas::Within;
        let stacks = plans
            .iter()
            .filter(current)
            .filter_map(|one| one.plan.rule.split('.').next());
        if stacks.into_iter().any(within) {
            let dp = parts.dp;
            advice.unchecked.push(format!(
                "where tp counts the ranks of all {dp} replicas, heads are held against more ranks than they are cut over"
            ));
        }
        // What was not asked for by name may be a way around all the same.
        let wide = Query {
            rule: None,
            backend: None,
            all: false,
            ..parts.query
        };
        let narrowed = parts.query.rule.is_some() || parts.query.backend.is_some();
        let wide = match narrowed {
            true => Parts::new(model, parts.rules, wide, parts.dp).ok(),
            false => None,
        };
        let wide = wide.as_ref().unwrap_or(parts);
        let routed = (0..parts.all.len()).filter(|&at| parts.all[at].kind == LayerKind::Routed);
        for at in routed {
            let others = wide.planned(at);
            let own = plans.iter().filter(current).filter(|one| {
                (one.plan.layer, one.plan.weight) == (LayerKind::Routed, parts.all[at].weight)
            });
            for one in own {
                let Ok(rule) = parts.rules.get(&one.plan.rule) else {
                    continue;
                };
                if rule.dispatch {
                    // A dispatch between ranks: no backend to take another one for.
                    continue;
                }
                let about = About {
                    parts,
                    wide,
                    at,
                    rule,
                    blocked: !advice.blocked.is_empty() && !within(&rule.stack),
                };
                let told = about.advice(&one.plan, &advice.usable, &others);
                advice.rules.push(told);
            }
        }
        advice
    }
}
