//! From a model and a rule to what every tensor of its experts becomes.
//!
//! It must not look at tensors. Layer 8.

use super::error::PadError;
use super::sizes::{Blocks, INT4_GROUP, Part, WIDTH_MAX, Width};
use crate::case::PadSpec;
use crate::model::{Model, WidthKey, WidthOf};
use crate::plan::{Fit, LayerSpec, Parallel, Plan, REFINE_MIN, layers, plan_layer, spelled_rule};
use crate::rule::Rule;
use crate::terms::{Bias, Extent, LayerKind, Split, WeightFormat};
use serde::{Deserialize, Serialize};

/// What was asked for: the same request of the same checkpoint gives the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Tensor-parallel ranks.
    pub tp: u64,
    /// The rule's id, where a rule pads.
    pub rule: Option<String>,
    /// The rule's version, source and all else it says, as one digest: a rule file may change.
    pub rule_digest: Option<String>,
    /// Multiple of a rank's width, where no rule pads.
    pub align: Option<u64>,
    /// Multiple of the hidden size, where no rule pads.
    pub hidden_align: Option<u64>,
}

/// Everything that decides what each tensor becomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Tensor-parallel ranks.
    pub tp: u64,
    /// Routed experts.
    pub experts: u64,
    /// Whether there are gate and up.
    pub gated: bool,
    /// Whether rows of gate and up alternate in fused tensors.
    pub interleaved: bool,
    /// Routed experts.
    pub routed: Part,
    /// Shared experts, if the model has some.
    pub shared: Option<Part>,
}

impl Request {
    /// A request; `rule` is the one that pads, on the architecture asked for.
    pub fn new(
        tp: u64,
        rule: Option<&Rule>,
        align: Option<u64>,
        hidden_align: Option<u64>,
        switches: &[&str],
    ) -> Request {
        let digest = |rule: &Rule| {
            let text = format!("{rule:?} {switches:?}");
            blake3::hash(text.as_bytes()).to_hex().to_string()
        };
        Request {
            tp,
            rule: rule.map(|rule| rule.id.clone()),
            rule_digest: rule.map(digest),
            align,
            hidden_align,
        }
    }
}

impl Recipe {
    /// Whether no tensor changes.
    pub fn same(&self) -> bool {
        !self.routed.changes() && !self.shared.as_ref().is_some_and(Part::changes)
    }

    /// Whether its sizes agree with each other: a certificate may say anything.
    pub(super) fn holds(&self) -> bool {
        let ranks = |width: &Width| u64::try_from(width.pieces.len()) == Ok(self.tp);
        let parts = [Some(&self.routed), self.shared.as_ref()];
        let fits = |part: &Part| {
            let grid = part.format.scale();
            let int4 = part.format == WeightFormat::Int4;
            let block = grid
                .filter(|grid| int4 || grid.rows == grid.cols)
                .map(|grid| grid.cols);
            let refined = |blocks: Blocks| {
                let (from, to) = (blocks.from, blocks.to);
                let size = to >= REFINE_MIN && (!int4 || to == INT4_GROUP);
                block == Some(Extent::Block(from)) && size && from.is_multiple_of(to)
            };
            let blocks = part.blocks.is_none_or(refined);
            // A pad of NaN or infinity is none.
            let finite = |code: &u32| grid.is_none_or(|g| g.dtype.decode(*code).is_finite());
            let pads = part.scale_pad.iter().all(finite);
            part.width.holds() && ranks(&part.width) && part.hidden > 0 && blocks && pads
        };
        self.experts > 0 && parts.into_iter().flatten().all(fits)
    }
}

/// The recipe of a request. `rule` is the one that pads, on the architecture asked for; without it
/// the width of a rank becomes a multiple of `align`, all padding at the end of the axis. `keys` are
/// those of the model's config.
///
/// # Errors
/// When the rule does not take the model, or the result could not be stored or described.
pub fn recipe(
    model: &Model,
    keys: &[WidthKey],
    request: &Request,
    rule: Option<&Rule>,
    switches: &[&str],
) -> Result<Recipe, PadError> {
    let routed = layers(model, 0).swap_remove(0);
    let spelled;
    let rule = match rule {
        Some(rule) => {
            if !rule.formats.contains(&routed.weight) {
                let formats: Vec<&str> = rule.formats.iter().map(|f| f.name()).collect();
                return Err(PadError::Refused(format!(
                    "rule {} is for {}, the experts of {} are {}",
                    rule.id,
                    formats.join(", "),
                    model.name,
                    routed.weight
                )));
            }
            rule
        }
        None => {
            let hidden = request.hidden_align.unwrap_or(1);
            spelled = at_end(request.align.unwrap_or(1), hidden, routed.weight)?;
            &spelled
        }
    };
    let given = request.rule.is_some();
    let parallel = Parallel {
        tp: request.tp,
        ep: 1,
    };
    let plan = plan_layer(&routed, parallel, rule, switches)?;
    fits(&plan)?;
    keeps_hidden(&plan, model)?;
    let width = width_of(&plan)?;
    let blocks = blocks_of(&plan, &width, routed.weight)?;
    let part = Part {
        width,
        hidden: model.hidden,
        format: routed.weight,
        scale_pad: scale_pad(&plan, given),
        blocks,
    };
    let shared = shared(model, keys, &part, request, (rule, switches))?;
    let recipe = Recipe {
        tp: request.tp,
        experts: model.experts,
        gated: model.gated(),
        interleaved: model.interleaved,
        routed: part,
        shared,
    };
    match unequal(&model.name, &routed) {
        Some(why) if !recipe.same() => Err(PadError::Refused(why)),
        _ => Ok(recipe),
    }
}

/// Why no checkpoint of a model is padded, as far as its config and its family tell, in a sentence: what else is
/// refused by the names or types of its tensors too.
pub fn refused(model: &Model) -> Option<String> {
    let (name, quant) = (&model.name, &model.quant);
    let routed = layers(model, 0).swap_remove(0);
    if let Some(why) = unequal(name, &routed) {
        return Some(why);
    }
    if let Some(why) = &model.unpaddable {
        return Some(format!("{name} is not padded: {why}"));
    }
    let method = &quant.method;
    if ["awq", "gptq"].iter().any(|own| method.contains(own)) {
        return Some(format!(
            "the config of {name} says that its weights are packed as {method} packs them, which are not padded"
        ));
    }
    let others = quant.others.iter().map(|share| share.format);
    let mut others = others.chain(quant.draft_format);
    let other = others.find(|other| *other != quant.format && other.scale().is_some())?;
    Some(format!(
        "the config of {name} says that its experts are {} in some layers and {other} in others, which are not padded",
        quant.format
    ))
}

/// Weights whose padding would take more than zeros and scales.
fn unequal(name: &str, routed: &LayerSpec) -> Option<String> {
    let format = routed.weight;
    let what = match routed.zero_points {
        Some(_) => format!("its {format} weights have zero points"),
        None if routed.act_order => {
            format!("the groups of its {format} weights are permuted (desc_act, actorder)")
        }
        None if format == WeightFormat::Int4Channel => {
            "its INT4 weights have one scale a row".to_owned()
        }
        None => return None,
    };
    Some(format!(
        "the config of {name} says that {what}, which are not padded"
    ))
}

/// The rule that pads the end of the whole axis, so that each rank's equal share is a multiple.
fn at_end(align: u64, hidden: u64, weight: WeightFormat) -> Result<Rule, PadError> {
    let spec = PadSpec {
        hidden,
        intermediate: align,
        split: Split::Prepad,
        ..PadSpec::default()
    };
    // A granule of the hidden size that is there for storage alone would not be the user's.
    let mut rule = spelled_rule(&spec, weight)?;
    if hidden == 1 {
        rule.hidden.clear();
    }
    Ok(rule)
}

/// Refuses plans that do not run.
fn fits(plan: &Plan) -> Result<(), PadError> {
    if plan.fit <= Fit::Unknown {
        return Ok(());
    }
    let why = plan.violations.iter().max_by_key(|v| v.effect);
    Err(PadError::Refused(format!(
        "under rule {} with tp={} the plan is {}: {}",
        plan.rule,
        plan.parallel.tp,
        plan.fit.name(),
        why.map_or("", |v| v.message.as_str())
    )))
}

/// Refuses to pad the hidden size: attention, norms, embeddings and the router share it.
fn keeps_hidden(plan: &Plan, model: &Model) -> Result<(), PadError> {
    if plan.hidden_padded == plan.dims.h {
        return Ok(());
    }
    let who = match model.hidden == model.model_hidden {
        true => "attention, norms, embeddings and the router are of the same size",
        false => "the projections into and out of the experts' latent space are of the same size",
    };
    Err(PadError::Refused(format!(
        "hidden={} would become {}, which no checkpoint can say: {who}, and are not padded; \
         the stack pads it while loading, or not at all (--align pads the intermediate width alone)",
        plan.dims.h, plan.hidden_padded
    )))
}

/// The ranks' pieces as the plan cuts them.
fn width_of(plan: &Plan) -> Result<Width, PadError> {
    let to = plan.width_padded.checked_mul(plan.parallel.tp);
    let Some(to) = to.filter(|&to| to <= WIDTH_MAX) else {
        return Err(PadError::Refused(format!(
            "intermediate={} would become {} on each of {} ranks, more than {WIDTH_MAX} in all",
            plan.dims.i, plan.width_padded, plan.parallel.tp
        )));
    };
    let width = Width {
        from: plan.dims.i,
        to,
        slot: plan.width_padded,
        pieces: plan.ranks.iter().map(|r| (r.start, r.len)).collect(),
    };
    if !width.holds() {
        return Err(PadError::Refused(format!(
            "rule {} does not cut the {} channels in order over {} ranks of {}",
            plan.rule, width.from, plan.parallel.tp, width.slot
        )));
    }
    // Where all pads are at the end it does not matter whose rule that was.
    let end = Width::at_end(width.from, width.to, plan.parallel.tp);
    Ok(
        match width
            .pieces
            .iter()
            .all(|p| p.1 == 0 || end.pieces.contains(p))
        {
            true => end,
            false => width,
        },
    )
}

/// The blocks that the grid needs, if they are not the format's own.
fn blocks_of(plan: &Plan, width: &Width, weight: WeightFormat) -> Result<Option<Blocks>, PadError> {
    let Some(grid) = weight.scale() else {
        return Ok(None);
    };
    let (Extent::Block(block), rows) = (grid.cols, grid.rows) else {
        return Ok(None);
    };
    let finer = width.common_block(block);
    if finer == block {
        return Ok(None);
    }
    let int4 = weight == WeightFormat::Int4;
    let both = int4 || rows == grid.cols;
    let allowed = plan
        .w2_scale
        .is_some_and(|s| s.col_block < s.col_block_source);
    if both && allowed && finer >= REFINE_MIN {
        return Ok(Some(Blocks {
            from: block,
            to: if int4 { INT4_GROUP } else { finer },
        }));
    }
    let what = match (both, allowed) {
        (true, true) => {
            format!("blocks of {finer} are below {REFINE_MIN}, the least that kernels take")
        }
        (true, false) => format!("rule {} does not repeat scales on a finer grid", plan.rule),
        (false, _) => format!("groups of {block} are fixed by the format {weight}"),
    };
    Err(PadError::Refused(format!(
        "a rank's {} of {} channels would begin inside a scale block of {block}: {what}; \
         --align {block} pads to whole blocks",
        width.slot, width.from
    )))
}

/// What padding scales hold: what the rule writes; else 1.0, which is finite under every
/// reading, where zero is none of E8M0 and would be divided by elsewhere.
fn scale_pad(plan: &Plan, given: bool) -> [u32; 2] {
    [plan.w13_scale, plan.w2_scale].map(|scale| {
        scale.map_or(0, |s| match given {
            true => s.pad_code,
            false => s.dtype.one_code(),
        })
    })
}

/// What the shared experts become: as wide as the config can say, padded at the end.
fn shared(
    model: &Model,
    keys: &[WidthKey],
    routed: &Part,
    request: &Request,
    how: (&Rule, &[&str]),
) -> Result<Option<Part>, PadError> {
    let (Some(total), weight) = (model.shared, model.quant.shared_format) else {
        return Ok(None);
    };
    let refused = |why: String| PadError::Refused(format!("shared experts of {total}: {why}"));
    let own = |of| keys.iter().find(|k| k.of == of && k.value > 0);
    let each = match (own(WidthOf::Shared), own(WidthOf::SharedEach)) {
        (Some(_), _) => Some(total),
        (None, Some(each)) => Some(each.value),
        (None, None) => None,
    };
    let (one, slots, scale_pad) = match each {
        Some(one) => {
            let plan = alone(model, one, request, how)?;
            (
                one,
                plan.width_padded,
                scale_pad(&plan, request.rule.is_some()),
            )
        }
        // The routed width is that of each shared expert.
        None => (routed.width.from, routed.width.slot, routed.scale_pad),
    };
    let number = Some(total / one.max(1)).filter(|n| n.checked_mul(one) == Some(total));
    let number = number.ok_or_else(|| refused(format!("no multiple of {one}")))?;
    let to = [slots, request.tp, number]
        .into_iter()
        .try_fold(1_u64, u64::checked_mul)
        .filter(|&to| to <= WIDTH_MAX)
        .ok_or_else(|| refused(format!("more than {WIDTH_MAX} channels when padded")))?;
    let width = Width::at_end(total, to, request.tp);
    let grid = weight.scale().map(|grid| grid.cols);
    let blocks = match (grid, routed.blocks) {
        (Some(Extent::Block(block)), Some(blocks)) if block == blocks.from => Some(blocks),
        (Some(Extent::Block(block)), _) if width.common_block(block) != block => {
            let share = width.slot;
            return Err(refused(format!(
                "a rank's {share} channels would begin inside a scale block of {block}"
            )));
        }
        _ => None,
    };
    Ok(Some(Part {
        width,
        hidden: model.model_hidden,
        format: weight,
        scale_pad,
        blocks,
    }))
}

/// The plan of a shared expert of a width of its own: by the rule if it takes the format and the
/// width, else no more than an equal share of whole groups for each rank.
fn alone(
    model: &Model,
    width: u64,
    request: &Request,
    (rule, switches): (&Rule, &[&str]),
) -> Result<Plan, PadError> {
    let weight = model.quant.shared_format;
    let layer = LayerSpec {
        kind: LayerKind::Routed,
        hidden: model.model_hidden,
        intermediate: width,
        experts: 1,
        top_k: 1,
        zero_experts: 0,
        activation: model.activation,
        weight,
        bias: Bias::None,
        zero_points: None,
        act_order: false,
        tokens: 0,
    };
    let parallel = Parallel {
        tp: request.tp,
        ep: 1,
    };
    if rule.formats.contains(&weight) {
        let plan = plan_layer(&layer, parallel, rule, switches)?;
        if plan.fit <= Fit::Unknown && plan.hidden_padded == plan.dims.h {
            return Ok(plan);
        }
    }
    let plan = plan_layer(&layer, parallel, &at_end(1, 1, weight)?, switches)?;
    fits(&plan)?;
    Ok(plan)
}
