//! Decides a model's activation from its keys, its limits and its family.
//!
//! It must not compute one. Layer 2.

use super::doc::{self, Doc};
use super::error::ModelError;
use super::family::Family;
use crate::terms::{
    Activation, SITU_GATE, SITU_UP, SWIGLU_CLAMP_LIMIT, SWIGLUOAI_ALPHA, SWIGLUOAI_LIMIT,
    SWIGLUSTEP_LIMIT, UnknownWord,
};
use serde_json::Value;

/// The keys that name an activation: those of the MLPs or the experts alone before those of the whole model.
pub(super) const KEYS: &[&str] = &[
    "hidden_act_moe",
    "mlp_hidden_act",
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "ffn_config.ffn_act_fn",
];

/// What configs call an activation, gated and not (facts/upstream-padding.md 2.1, 2.2).
const WORDS: &[(&str, Activation, Activation)] = &[
    ("silu", Activation::Swiglu, Activation::Silu),
    ("swish", Activation::Swiglu, Activation::Silu),
    ("gelu", Activation::Geglu, Activation::Gelu),
    (
        "gelu_pytorch_tanh",
        Activation::GegluTanh,
        Activation::GeluTanh,
    ),
    ("gelu_tanh", Activation::GegluTanh, Activation::GeluTanh),
    ("gelu_new", Activation::GegluTanh, Activation::GeluTanh),
    ("gelu_fast", Activation::GegluTanh, Activation::GeluTanh),
    ("relu2", Activation::Relu2, Activation::Relu2),
    ("relu", Activation::Relu, Activation::Relu),
];

/// The model's activation.
pub(super) fn read(doc: &Doc<'_>, family: &Family) -> Result<Activation, ModelError> {
    let named = named(doc, family)?;
    let act = match (family.fixed, named, family.activation) {
        (true, _, Some(fixed)) => fixed,
        (_, Some(named), _) => named,
        (_, None, Some(silent)) => silent,
        (_, None, None) => {
            return Err(ModelError::Missing {
                file: doc.file.to_owned(),
                what: "activation",
                keys: KEYS
                    .iter()
                    .filter(|k| !k.contains('.'))
                    .map(|k| doc.name(k))
                    .collect(),
                note: "",
            });
        }
    };
    limited(doc, act)
}

/// The activation that a key names, if one does.
fn named(doc: &Doc<'_>, family: &Family) -> Result<Option<Activation>, ModelError> {
    let Some((key, value)) = doc.first(KEYS) else {
        return Ok(None);
    };
    // DBRX writes an object with the name inside.
    let word = match value {
        Value::String(word) => word.as_str(),
        Value::Object(map) => map.get("name").and_then(Value::as_str).unwrap_or_default(),
        other => return Err(doc.kind(key, other, "a string")),
    };
    let gated = family.activation.is_none_or(Activation::gated);
    let listed = WORDS.iter().find(|(w, ..)| *w == word);
    if let Some((_, with_gate, without)) = listed {
        return Ok(Some(if gated { *with_gate } else { *without }));
    }
    if let Ok(own) = word.parse() {
        return Ok(Some(own));
    }
    let mut valid: Vec<String> = WORDS.iter().map(|(w, ..)| (*w).to_owned()).collect();
    valid.extend(Activation::ALL.iter().map(|a| a.name().to_owned()));
    valid.dedup();
    let mut seen = Vec::new();
    valid.retain(|w| {
        let new = !seen.contains(w);
        seen.push(w.clone());
        new
    });
    let source = UnknownWord {
        kind: "activation",
        word: doc::word(word),
        valid,
    };
    Err(ModelError::Word {
        file: doc.file.to_owned(),
        key: doc.name(key),
        source,
    })
}

/// Takes the limits into account: a clamp makes another function.
fn limited(doc: &Doc<'_>, act: Activation) -> Result<Activation, ModelError> {
    match act {
        Activation::Swiglu if doc.get("swiglu_limit").is_some() => {
            constant(
                doc,
                "swiglu_limit",
                Activation::SwigluClamp,
                SWIGLU_CLAMP_LIMIT,
            )?;
            Ok(Activation::SwigluClamp)
        }
        Activation::SwigluClamp => {
            constant(doc, "swiglu_limit", act, SWIGLU_CLAMP_LIMIT)?;
            Ok(act)
        }
        Activation::SwigluOai => {
            constant(doc, "swiglu_limit", act, SWIGLUOAI_LIMIT)?;
            constant(doc, "swiglu_alpha", act, SWIGLUOAI_ALPHA)?;
            Ok(act)
        }
        Activation::SwigluStep => {
            constant(doc, "swiglu_limit", act, SWIGLUSTEP_LIMIT)?;
            Ok(act)
        }
        Activation::Situ => {
            constant(doc, "activation_situ_beta", act, SITU_GATE)?;
            constant(doc, "activation_situ_linear_beta", act, SITU_UP)?;
            Ok(act)
        }
        other => Ok(other),
    }
}

/// Refuses a constant that is there and is not the one the activation is defined with.
fn constant(
    doc: &Doc<'_>,
    key: &'static str,
    act: Activation,
    wanted: f32,
) -> Result<(), ModelError> {
    match doc.real(&[key])? {
        Some((_, value)) if (value - f64::from(wanted)).abs() > 1e-6 => Err(ModelError::Constant {
            file: doc.file.to_owned(),
            key: doc.name(key),
            value: value.to_string(),
            word: act.name(),
            wanted,
        }),
        _ => Ok(()),
    }
}
