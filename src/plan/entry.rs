//! The ways in: from a case, and from a model under every rule.

use super::arith::lcm;
use super::derive::{plan_layer, plan_sizes};
use super::storage::storage_granule;
use super::{Fit, LayerSpec, Parallel, Plan, PlanError};
use crate::case::{Case, PadSpec, Scheme};
use crate::model::Model;
use crate::num::Dtype;
use crate::rule::{
    Condition, Fills, Grade, Granule, PadValue, Refusal, Rule, Rules, ScaleRule, Sizes, Status,
    Timing, Verdict,
};
use crate::terms::{Bias, LayerKind, Split, WeightFormat};

/// The plan of a case, under the shipped rules.
///
/// # Errors
/// As [`plan_with`].
pub fn plan(case: &Case) -> Result<Plan, PlanError> {
    plan_with(case, Rules::builtin())
}

/// The plan of a case whose rule, if it names one, is one of `rules`.
///
/// # Errors
/// As [`plan_layer`], and an unknown rule id.
pub fn plan_with(case: &Case, rules: &Rules) -> Result<Plan, PlanError> {
    match &case.scheme {
        Scheme::Rule(id) => {
            let rule = rules.get(id).map_err(|e| PlanError::UnknownRule {
                sentence: e.to_string(),
            })?;
            plan_under(case, rule)
        }
        Scheme::Spelled(spec) => plan_under(case, &spelled_rule(spec, case.w)?),
    }
}

/// The plan of a case under a given rule, whatever scheme the case names.
///
/// # Errors
/// As [`plan_layer`].
pub fn plan_under(case: &Case, rule: &Rule) -> Result<Plan, PlanError> {
    let layer = LayerSpec {
        kind: LayerKind::Routed,
        hidden: case.h,
        intermediate: case.i,
        experts: case.e,
        top_k: case.k,
        zero_experts: case.zero,
        activation: case.act,
        weight: case.w,
        bias: case.bias,
        zero_points: None,
        act_order: false,
        tokens: case.t,
    };
    let mut plan = plan_layer(
        &layer,
        Parallel {
            tp: case.tp,
            ep: case.ep,
        },
        rule,
        &[],
    )?;
    plan.numerics = case.numerics();
    Ok(plan)
}

/// The rule that a spelled scheme stands for. Granules become whole scale groups, packed bytes
/// storage tiles and interleave groups: lcm(granule, group), as facts/peers.md 3.1 found necessary.
///
/// # Errors
/// [`PlanError::Overflow`] for absurd granules.
pub fn spelled_rule(spec: &PadSpec, weight: WeightFormat) -> Result<Rule, PlanError> {
    let common = |a: u64, b: u64| {
        lcm(a.max(1), b.max(1)).ok_or_else(|| PlanError::Overflow {
            what: "granule",
            terms: format!("lcm({a}, {b})"),
        })
    };
    let group = storage_granule(weight, spec.store);
    let hidden = common(spec.hidden, group)?;
    let intermediate = common(common(spec.intermediate, group)?, spec.order.interleave())?;
    let granule = |align| vec![Granule::elements(align)];
    // Block scales and INT4 groups may be repeated on a finer grid without loss (facts V9, S23);
    // MX and NVFP4 groups are fixed by the format.
    let refine = !weight.grid_is_fixed();
    let width = spec.intermediate;
    let misfit = (spec.split == Split::Error && width > 1).then(|| Refusal {
        when: Condition {
            width_not_multiple: Some(width),
            ..Condition::default()
        },
        verdict: Verdict::Refused,
        why: format!("the case pads nothing, and takes multiples of {width} alone"),
    });
    Ok(Rule {
        id: "spelled".to_owned(),
        stack: "spelled".to_owned(),
        version: "as spelled".to_owned(),
        since: None,
        until: None,
        backend: "spelled".to_owned(),
        formats: WeightFormat::ALL.to_vec(),
        arch: Vec::new(),
        source: "the case line".to_owned(),
        grade: Grade::Derived,
        status: Status::Current,
        kernel: false,
        dispatch: false,
        sent: None,
        wrong: None,
        layers: vec![LayerKind::Routed],
        methods: Vec::new(),
        when: Condition::default(),
        timing: Timing::Creation,
        split: spec.split,
        loaders: Vec::new(),
        order: spec.order,
        place: spec.place,
        storage: spec.store,
        nibble: spec.nib,
        unread: Vec::new(),
        intermediate: if spec.split == Split::Error {
            Vec::new()
        } else {
            granule(intermediate)
        },
        hidden: granule(hidden),
        tokens: granule(spec.tokens),
        cheapest: Vec::new(),
        fill: Fills {
            weight: PadValue::DecodeZero,
            ..Fills::default()
        },
        scale: ScaleRule {
            refine,
            ..ScaleRule::default()
        },
        zero_points: true,
        sizes: Sizes::Consistent,
        stride: None,
        valid: Vec::new(),
        w2_bias: None,
        refuse: misfit.into_iter().collect(),
        limits: Vec::new(),
        notes: Vec::new(),
    })
}

/// The feed-forward parts of a model, as they are planned: routed experts first, once for each
/// format that layers store them in; `tokens` sizes the activations.
pub fn layers(model: &Model, tokens: u64) -> Vec<LayerSpec> {
    let part = |kind, hidden, intermediate, experts, top_k, weight| LayerSpec {
        kind,
        hidden,
        intermediate,
        experts,
        top_k,
        zero_experts: match kind.follows() {
            LayerKind::Routed => model.zero_experts,
            _ => 0,
        },
        activation: model.activation,
        weight,
        bias: if kind.follows() == LayerKind::Routed {
            model.bias
        } else {
            Bias::None
        },
        zero_points: model
            .quant
            .zero_points
            .filter(|_| weight.element() == Dtype::Int4),
        act_order: model.quant.act_order && weight.element() == Dtype::Int4,
        tokens,
    };
    let mut all = vec![part(
        LayerKind::Routed,
        model.hidden,
        model.intermediate,
        model.experts,
        model.top_k,
        model.quant.format,
    )];
    all.extend(model.quant.others.iter().map(|other| {
        part(
            LayerKind::Routed,
            model.hidden,
            model.intermediate,
            model.experts,
            model.top_k,
            other.format,
        )
    }));
    if let Some(width) = model.shared {
        all.push(part(
            LayerKind::Shared,
            model.model_hidden,
            width,
            1,
            1,
            model.quant.shared_format,
        ));
    }
    if let Some(width) = model.dense {
        all.push(part(
            LayerKind::Dense,
            model.model_hidden,
            width,
            1,
            1,
            model.quant.dense_format,
        ));
    }
    if model.mtp_layers > 0 && model.draft_experts {
        all.push(part(
            LayerKind::Draft,
            model.hidden,
            model.intermediate,
            model.experts,
            model.top_k,
            model.quant.draft_format.unwrap_or(model.quant.format),
        ));
    }
    all
}

/// Largest TP degree that advice looks at.
pub const ADVICE_TP_MAX: u64 = 64;

/// TP degrees up to 64 that need no padding under `rule`, at the given EP and with these
/// variables set.
pub fn aligned_tp(layer: &LayerSpec, ep: u64, rule: &Rule, env: &[&str]) -> Vec<u64> {
    let fits = |tp: &u64| {
        plan_sizes(layer, Parallel { tp: *tp, ep }, rule, env).is_ok_and(|p| p.fit == Fit::Fits)
    };
    (1..=ADVICE_TP_MAX)
        .filter(|tp| tp % ep.max(1) == 0)
        .filter(fits)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Activation;

    /// facts/reports.md B04 and B10: 896 = 7 * 128, 640 = 5 * 128.
    #[test]
    fn aligned_degrees_are_those_of_the_reports() {
        let spec = |intermediate, weight| LayerSpec {
            kind: LayerKind::Routed,
            hidden: 2048,
            intermediate,
            experts: 64,
            top_k: 8,
            zero_experts: 0,
            activation: Activation::Swiglu,
            weight,
            bias: Bias::None,
            zero_points: None,
            act_order: false,
            tokens: 1,
        };
        let trtllm = Rules::builtin()
            .get("sglang.flashinfer_trtllm.bf16")
            .unwrap();
        let aligned = aligned_tp(&spec(896, WeightFormat::Bf16), 1, trtllm, &[]);
        assert_eq!(aligned, [1, 7]);
        let block = Rules::builtin().get("sglang.triton.fp8-block").unwrap();
        assert_eq!(
            aligned_tp(&spec(640, WeightFormat::Fp8Block), 1, block, &[]),
            [1, 5]
        );
    }

    #[test]
    fn a_spelled_granule_becomes_whole_groups() {
        let case: Case = "i=33,w=mxfp4,pad=i16,order=int64".parse().unwrap();
        let plan = plan(&case).unwrap();
        assert_eq!((plan.width, plan.width_padded), (33, 64));
    }

    #[test]
    fn drawn_cases_are_mostly_planned_without_harm() {
        let planned = (0..2000)
            .filter(|&n| {
                let case = crate::r#gen::draw(&crate::r#gen::Domain::FULL, 1, n);
                plan(&case).is_ok_and(|p| p.fit <= Fit::Unknown)
            })
            .count();
        assert!(planned > 1800, "{planned} of 2000");
    }
}
