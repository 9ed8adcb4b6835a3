//! Decides a model's router, groups and scaling factor from its keys and its family.
//!
//! It must not route. Layer 2.

use super::doc::{self, Doc};
use super::error::ModelError;
use super::family::{Family, Score};
use super::load::IDENTITY;
use crate::terms::{ROUTE_MIXER_BAND, Route, UnknownWord};

/// Largest scaling factor taken: the largest of facts/upstream-padding.md 4.1 is 16.
const FACTOR_LIMIT: u64 = 1 << 20;

const SCORE: &[&str] = &[
    "scoring_func",
    "score_function",
    "scoring_function",
    "moe_router_activation_func",
    "moe_router_activation",
    "moe_router_score_function",
];
const BIAS: &[&str] = &[
    "use_routing_bias",
    "use_moe_router_bias",
    "moe_router_enable_expert_bias",
    "use_expert_bias",
    "moe_use_aux_free",
];
const RENORM: &[&str] = &[
    "norm_topk_prob",
    "moe_renormalize",
    "norm_expert_weight",
    "route_norm",
];
const FACTOR: &[&str] = &[
    "routed_scaling_factor",
    "moe_router_scaling_factor",
    "moe_routed_scaling_factor",
    "router_scaling_factor",
];
// Not `n_groups`: that is Mamba's in NemotronH.
const GROUPS: &[&str] = &["n_group", "num_expert_group"];
const KEEP: &[&str] = &["topk_group"];
const JITTER: &[&str] = &["router_jitter_noise"];

/// A router as the config has it.
pub(super) struct Router {
    pub(super) route: Route,
    pub(super) groups: u64,
    pub(super) keep: u64,
    pub(super) factor: f64,
}

/// The model's router; `top_k` with the key that says it. Identity experts behind one that has none are refused.
pub(super) fn read(
    doc: &Doc<'_>,
    family: &Family,
    (experts, zero): (u64, u64),
    top_k: (&'static str, u64),
    notes: &mut Vec<String>,
) -> Result<Router, ModelError> {
    let (groups, keep) = groups(doc, (experts, zero), top_k)?;
    let grouped = groups > 1 && keep < groups;
    let router = choose(doc, family, (groups, keep), top_k, notes)?;
    // Groups count where a word without them stands for the router, too.
    let without = (grouped && family.route.is_none()).then_some("a grouped router");
    let without = without.or((!router.route.takes_identity()).then_some(router.route.name()));
    match without {
        Some(word) if zero > 0 => Err(ModelError::Constant {
            file: doc.file.to_owned(),
            key: doc.name(IDENTITY),
            value: zero.to_string(),
            word,
            wanted: 0.0,
        }),
        _ => Ok(router),
    }
}

fn choose(
    doc: &Doc<'_>,
    family: &Family,
    (groups, keep): (u64, u64),
    top_k: (&'static str, u64),
    notes: &mut Vec<String>,
) -> Result<Router, ModelError> {
    let factor = factor(doc)?;
    let (score, bias, renorm) = (
        score(doc, family)?,
        bias(doc, family)?,
        renorm(doc, family)?,
    );
    if let Some(note) = family.note {
        notes.push(note.to_owned());
    }
    if let Some(route) = family.route {
        if route == Route::SparseMixer {
            sparse_mixer(doc, top_k, notes)?;
        }
        return Ok(Router {
            route,
            groups: 1,
            keep: 1,
            factor,
        });
    }
    let grouped = groups > 1 && keep < groups;
    let (route, exact) = match (score, bias, renorm, grouped) {
        (Score::Softmax, false, true, true) => (Route::GroupedSoftmax, false),
        (Score::Softmax, false, false, true) => (Route::GroupedSoftmax, true),
        (Score::Sigmoid, true, renorm, true) => (Route::GroupedSigmoidBias, renorm),
        (Score::Softmax, false, true, false) => (Route::SoftmaxRenorm, true),
        (Score::Softmax, false, false, false) => (Route::Softmax, true),
        (Score::Softmax, true, true, grouped) => (Route::SoftmaxBiasRenorm, !grouped),
        (Score::Softmax, true, false, grouped) => (Route::SoftmaxBias, !grouped),
        (Score::Sigmoid, true, renorm, false) => (Route::SigmoidBias, renorm),
        (Score::Sigmoid, false, true, grouped) => (Route::SigmoidRenorm, !grouped),
        (Score::Sigmoid, false, false, grouped) => (Route::Sigmoid, !grouped),
        (Score::SqrtSoftplus, bias, renorm, grouped) => {
            (Route::SqrtSoftplusBias, bias && renorm && !grouped)
        }
    };
    if !exact {
        notes.push(format!(
            "no router word says {score:?} with bias {bias}, renormalisation {renorm} and {groups} groups; `{route}` stands for it"
        ));
    }
    let (groups, keep) = if route.grouped() {
        (groups, keep)
    } else {
        (1, 1)
    };
    Ok(Router {
        route,
        groups,
        keep,
        factor,
    })
}

/// The sparse mixer chooses two experts; its jitter is a key, and the router word has one value of it. SGLang has that
/// value whatever the key says (`sparsemixer` in its models/phimoe.py).
fn sparse_mixer(
    doc: &Doc<'_>,
    (key, top_k): (&'static str, u64),
    notes: &mut Vec<String>,
) -> Result<(), ModelError> {
    let word = Route::SparseMixer.name();
    if top_k != 2 {
        return Err(ModelError::Constant {
            file: doc.file.to_owned(),
            key: doc.name(key),
            value: top_k.to_string(),
            word,
            wanted: 2.0,
        });
    }
    if let Some((key, jitter)) = doc.real(JITTER)?
        && (2.0 * jitter) as f32 != ROUTE_MIXER_BAND
    {
        let (key, band) = (doc.name(key), ROUTE_MIXER_BAND / 2.0);
        notes.push(format!(
            "{key} is {jitter}; `{word}`, which has {band}, stands for it"
        ));
    }
    Ok(())
}

fn factor(doc: &Doc<'_>) -> Result<f64, ModelError> {
    let Some((key, factor)) = doc.real(FACTOR)? else {
        return Ok(1.0);
    };
    let (file, key, value) = (doc.file.to_owned(), doc.name(key), factor.to_string());
    if factor <= 0.0 {
        return Err(ModelError::NotPositive { file, key, value });
    }
    if factor > FACTOR_LIMIT as f64 {
        return Err(ModelError::TooLarge {
            file,
            key,
            value,
            most: FACTOR_LIMIT,
        });
    }
    Ok(factor)
}

fn score(doc: &Doc<'_>, family: &Family) -> Result<Score, ModelError> {
    let Some((key, word)) = doc.word(SCORE)? else {
        return Ok(family.score);
    };
    match word {
        "softmax" => Ok(Score::Softmax),
        "sigmoid" => Ok(Score::Sigmoid),
        "sqrtsoftplus" => Ok(Score::SqrtSoftplus),
        other => Err(ModelError::Word {
            file: doc.file.to_owned(),
            key: doc.name(key),
            source: UnknownWord {
                kind: "scoring function",
                word: doc::word(other),
                valid: ["softmax", "sigmoid", "sqrtsoftplus"]
                    .map(str::to_owned)
                    .to_vec(),
            },
        }),
    }
}

fn bias(doc: &Doc<'_>, family: &Family) -> Result<bool, ModelError> {
    // `noaux_tc` is DeepSeek's name for balancing by a bias instead of a loss.
    let method = doc
        .word(&["topk_method"])?
        .map(|(_, word)| word == "noaux_tc");
    Ok(doc.flag(BIAS)?.or(method).unwrap_or(family.bias))
}

fn renorm(doc: &Doc<'_>, family: &Family) -> Result<bool, ModelError> {
    Ok(doc.flag(RENORM)?.unwrap_or(family.renorm))
}

/// Groups and kept groups, refused where they leave fewer experts than are chosen
/// (facts/peers.md 3.1 F12: three stacks give three answers).
fn groups(
    doc: &Doc<'_>,
    (experts, zero): (u64, u64),
    (key, top_k): (&'static str, u64),
) -> Result<(u64, u64), ModelError> {
    let file = || doc.file.to_owned();
    let (group_key, groups) = doc.number(GROUPS, 1)?.unwrap_or((GROUPS[0], 1));
    let (keep_key, keep) = doc.number(KEEP, 1)?.unwrap_or((KEEP[0], groups));
    // DeepSeek-V2-Lite chooses greedily, whatever its groups say.
    let greedy = doc
        .word(&["topk_method"])?
        .is_some_and(|(_, word)| word == "greedy");
    if !experts.is_multiple_of(groups) {
        let key = doc.name(group_key);
        return Err(ModelError::Groups {
            file: file(),
            key,
            groups,
            experts,
        });
    }
    if keep > groups {
        let (key, value) = (doc.name(keep_key), keep.to_string());
        return Err(ModelError::TooLarge {
            file: file(),
            key,
            value,
            most: groups,
        });
    }
    let (groups, keep) = if greedy { (1, 1) } else { (groups, keep) };
    // No overflow: keep is at most groups, so this is at most all experts.
    let open = keep * (experts / groups) + zero;
    if top_k > open {
        let key = doc.name(key);
        return Err(ModelError::TopK {
            file: file(),
            key,
            top_k,
            experts: open,
            groups,
            keep,
        });
    }
    Ok((groups, keep))
}
