//! Bends a drawn case towards what a subject supports, so that few draws are skips.
//!
//! It must not make a case that `draw` could not have made but for its granules. Layer 8.

use super::draw::{group, lcm, row_group};
use crate::case::{Case, PadSpec, Scheme};
use crate::plan::storage_granule;
use crate::subject::Supports;
use crate::terms::{Order, Route, Split, Storage};
use std::str::FromStr;

/// The case with every word and size that the subject does not take replaced by one that it does;
/// as it is where that makes no case.
pub fn suit(case: &Case, supports: &Supports) -> Case {
    let bent = bend(case, supports);
    match bent.validate() {
        Ok(()) => bent,
        Err(_) => case.clone(),
    }
}

fn bend(case: &Case, supports: &Supports) -> Case {
    let mut new = case.clone();
    let chance = case.seed;
    new.w = word(supports, "weights", case.w.name(), chance);
    new.act = word(supports, "activations", case.act.name(), chance);
    new.route = word(supports, "routes", case.route.name(), chance);
    new.bias = word(supports, "biases", case.bias.name(), chance);
    new.qx = word(supports, "input_quants", case.qx.name(), chance);
    new.qh = word(supports, "mid_quants", case.qh.name(), chance);
    let mid = if case.mid_bf16 { "bf16" } else { "f32" };
    new.mid_bf16 = listed(supports, "mids", mid, chance) == "bf16";
    sizes(&mut new, supports);
    new.route = router(&new, supports);
    if new.route != case.route || new.e != case.e {
        (new.groups, new.keep) = (1, 1);
    }
    if !new.route.takes_identity() {
        (new.zero, new.k) = (0, new.k.min(new.e));
    }
    if let Some(k) = new.route.chooses() {
        (new.e, new.k) = (new.e.max(k), k);
    }
    if let Scheme::Spelled(pad) = &case.scheme {
        new.scheme = Scheme::Spelled(padding(&new, *pad, supports));
    }
    new.h = new.h.next_multiple_of(row_group(new.w));
    new
}

/// The case's router, or the first listed one where the subject does not take as many experts as it chooses.
fn router(case: &Case, supports: &Supports) -> Route {
    let (least, most) = supports.sizes("top_k");
    let most = most.min(supports.sizes("experts").1.saturating_mul(case.ep.max(1)));
    let fits = |route: &Route| route.chooses().is_none_or(|k| least <= k && k <= most);
    let listed = supports.words("routes").iter();
    let listed = listed.filter_map(|word| word.parse().ok());
    let mut all = [case.route].into_iter().chain(listed);
    all.find(fits).unwrap_or(case.route)
}

/// The word itself if it is listed, else one that is.
fn listed<'a>(supports: &Supports, key: &str, word: &'a str, chance: u64) -> &'a str {
    let all = supports.words(key);
    if all.is_empty() || all.contains(&word) {
        return word;
    }
    all[(chance % all.len() as u64) as usize]
}

/// The same as the word's type; the words of the handshake's keys are those of the vocabularies.
fn word<T: FromStr<Err: std::fmt::Debug>>(
    supports: &Supports,
    key: &str,
    word: &str,
    chance: u64,
) -> T {
    listed(supports, key, word, chance)
        .parse()
        .expect("a listed word is one of its vocabulary")
}

fn sizes(case: &mut Case, supports: &Supports) {
    let within = |key, size: u64| {
        let (least, most) = supports.sizes(key);
        size.max(least).min(most)
    };
    case.t = within("tokens", case.t);
    if case.ep > supports.sizes("ep").1 {
        case.ep = 1;
    }
    if case.tp > supports.sizes("tp").1 {
        (case.tp, case.ep) = (supports.sizes("tp").1.max(1), 1);
    }
    // Experts of a rank.
    let (ep, ranks) = (case.ep.max(1), (case.tp / case.ep).max(1));
    let held = within("experts", case.e.div_ceil(ep)).max(1);
    if held != case.e.div_ceil(ep) {
        case.e = held.saturating_mul(ep);
    }
    case.zero = within("zero_experts", case.zero);
    case.k = within("top_k", case.k).clamp(1, case.choices());
    case.h = case.h.min(supports.sizes("hidden").1).max(1);
    let width = supports.sizes("intermediate").1;
    case.i = case.i.min(width.saturating_mul(ranks)).max(1);
}

fn padding(case: &Case, old: PadSpec, supports: &Supports) -> PadSpec {
    let chance = case.seed;
    let mut pad = old;
    if case.act.gated() {
        pad.order = word(supports, "orders", pad.order.name(), chance);
    } else {
        pad.order = Order::GateUp;
    }
    pad.nib = word(supports, "nibbles", pad.nib.name(), chance);
    let scale = case.w.scale().map(|grid| grid.dtype);
    let store = |old: Storage, fits: bool| {
        let taken = supports.words("stores").contains(&old.name());
        if taken && fits { old } else { Storage::Linear }
    };
    let fits = scale.is_some_and(|dtype| pad.store.scales.takes(dtype)) && row_group(case.w) > 1;
    pad.store.scales = store(pad.store.scales, fits);
    pad.store.weights = store(pad.store.weights, pad.store.weights.takes(case.w.element()));
    let needed = lcm(group(case.w), storage_granule(case.w, pad.store));
    let needed = lcm(needed, pad.order.interleave().max(1));
    let needed = lcm(needed, supports.granule("intermediate"));
    pad.intermediate = lcm(pad.intermediate, needed);
    let hidden = lcm(pad.hidden, supports.granule("hidden"));
    pad.hidden = match hidden {
        1 => 1,
        hidden => lcm(hidden, group(case.w)),
    };
    pad.tokens = lcm(pad.tokens, supports.granule("tokens"));
    // The other rules cut only sizes that were drawn for them.
    let any = matches!(pad.split, Split::CeilBlock | Split::Stride | Split::Prepad);
    if pad != old && !any {
        pad.split = Split::CeilBlock;
    }
    pad
}
