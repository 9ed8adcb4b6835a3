//! Numbers of ranks that the rest of a model takes.
//!
//! It must not plan experts. Layer 9.

use crate::model::Model;
use crate::plan::ADVICE_TP_MAX;

/// Vocabularies are rounded up to a multiple of this before they are cut (vLLM's default; SGLang's
/// is the same).
const VOCABULARY_GRANULE: u64 = 64;
/// Degrees that are named where the heads, which bound them, are not recorded: powers of two, and
/// three times one.
const COMMON: [u64; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Query heads are cut equally.
fn heads_take(model: &Model, tp: u64) -> bool {
    model.attention_heads.is_none_or(|n| n.is_multiple_of(tp))
}

/// Key-value heads are cut equally or repeated.
fn kv_heads_take(model: &Model, tp: u64) -> bool {
    let fits = |n: u64| n.is_multiple_of(tp) || (n > 0 && tp.is_multiple_of(n));
    model.kv_heads.is_none_or(fits)
}

/// The vocabulary is cut equally, after rounding.
fn vocabulary_takes(model: &Model, tp: u64) -> bool {
    let padded = |n: u64| {
        n.div_ceil(VOCABULARY_GRANULE)
            .saturating_mul(VOCABULARY_GRANULE)
    };
    model.vocab.is_none_or(|n| padded(n).is_multiple_of(tp))
}

/// Degrees that the model's other parts take. Where the heads are not recorded, only common ones.
pub fn usable(model: &Model) -> Vec<u64> {
    let common = |tp: u64| model.attention_heads.is_some() || COMMON.contains(&tp);
    let takes = |tp: &u64| blocked(model, *tp).is_empty() && common(*tp);
    (1..=ADVICE_TP_MAX).filter(takes).collect()
}

/// Which of the model's other parts do not take a degree, a noun each.
pub(super) fn blocked(model: &Model, tp: u64) -> Vec<String> {
    let takes = [heads_take, kv_heads_take, vocabulary_takes].map(|takes| takes(model, tp));
    let parts = parts(model).into_iter().zip(takes);
    parts
        .filter_map(|(part, takes)| part.filter(|_| !takes))
        .collect()
}

/// The parts that bound degrees, as far as they are known.
fn parts(model: &Model) -> [Option<String>; 3] {
    let parts = [
        ("attention heads", model.attention_heads),
        ("key-value heads", model.kv_heads),
        ("words of vocabulary", model.vocab),
    ];
    parts.map(|(what, n)| n.map(|n| format!("{n} {what}")))
}

/// What bounds those degrees, a clause each.
pub(super) fn limits(model: &Model) -> Vec<String> {
    parts(model).into_iter().flatten().collect()
}

/// What is not known and so bounds nothing, a clause each.
pub(super) fn unchecked(model: &Model) -> Vec<String> {
    let heads = match (model.attention_heads, model.kv_heads) {
        (None, None) => Some("head counts unknown, not taken into account"),
        (None, Some(_)) => Some("number of attention heads unknown, not taken into account"),
        (Some(_), None) => Some("number of key-value heads unknown, not taken into account"),
        (Some(_), Some(_)) => None,
    };
    let common = model
        .attention_heads
        .is_none()
        .then_some("so of degrees only powers of two, and three times one, are named");
    let words = model
        .vocab
        .is_none()
        .then_some("size of vocabulary unknown, not taken into account");
    let clauses = [heads, common, words].into_iter().flatten();
    clauses.map(str::to_owned).collect()
}
