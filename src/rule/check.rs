//! Values that no rule may have.
//!
//! It must not judge whether a rule is right. Layer 2.

use super::condition::{Condition, Granule};
use super::record::{Rule, Timing};
use super::version::Bound;
use crate::terms::{LayerKind, Split};
use std::collections::HashSet;

/// The largest granule accepted, in its unit: far above any kernel's.
const ALIGN_MAX: u64 = 1 << 20;

/// The first key of the rule that is wrong, and why; `ids` are those seen so far.
pub(super) fn check<'a>(
    rule: &'a Rule,
    ids: &mut HashSet<&'a str>,
) -> Result<(), (&'static str, String)> {
    let id_ok = !rule.id.is_empty()
        && rule
            .id
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'));
    if !id_ok {
        return Err(("id", "must be of a-z, 0-9, `.`, `_` and `-`".to_owned()));
    }
    if !ids.insert(&rule.id) {
        return Err(("id", "stands twice".to_owned()));
    }
    if rule.formats.is_empty() {
        return Err(("formats", "names no weight format".to_owned()));
    }
    if rule.layers.is_empty() {
        return Err(("layers", "names no layer kind".to_owned()));
    }
    for (key, text) in [("version", &rule.version), ("source", &rule.source)] {
        if text.trim().is_empty() {
            return Err((key, "is empty".to_owned()));
        }
    }
    if rule.layers.contains(&LayerKind::Draft) {
        let why = "names draft, which follows the rules of routed";
        return Err(("layers", why.to_owned()));
    }
    if let (Some(Bound::Release(_, since)), Some(Bound::Release(_, until))) =
        (&rule.since, &rule.until)
        && since >= until
    {
        return Err(("until", "is not after `since`".to_owned()));
    }
    let axes: [(&'static str, &[Granule]); 3] = [
        ("intermediate", &rule.intermediate),
        ("hidden", &rule.hidden),
        ("tokens", &rule.tokens),
    ];
    for (key, granules) in axes {
        for granule in granules {
            axis(granule, key == "hidden").map_err(|why| (key, why))?;
        }
    }
    // Of what else a rule may say nothing would reach the plans that a dispatch is part of.
    let beside = [
        ("intermediate", !rule.intermediate.is_empty()),
        ("cheapest", !rule.cheapest.is_empty()),
        ("refuse", !rule.refuse.is_empty()),
        ("wrong", rule.wrong.is_some()),
        ("methods", !rule.methods.is_empty()),
    ];
    if let (true, Some((key, _))) = (rule.dispatch, beside.iter().find(|(_, there)| *there)) {
        let why = format!("stands beside {key}: a dispatch has the hidden size alone");
        return Err(("dispatch", why));
    }
    let padded = !rule.intermediate.is_empty() || !rule.cheapest.is_empty();
    if padded && (rule.timing == Timing::Never || rule.split == Split::Error) {
        let why = "stands beside timing = \"never\" or split = \"error\", which pad nothing";
        return Err(("intermediate", why.to_owned()));
    }
    let other = !rule.intermediate.is_empty() || !rule.hidden.is_empty();
    if !rule.cheapest.is_empty() && other {
        let why = "stands beside intermediate or hidden";
        return Err(("cheapest", why.to_owned()));
    }
    let units = rule.cheapest.iter().flatten().copied();
    for unit in units {
        aligned(unit).map_err(|why| ("cheapest", why))?;
    }
    for valid in &rule.valid {
        if valid.doubled && valid.doubled_unread {
            return Err(("valid", "doubled stands beside doubled-unread".to_owned()));
        }
        for unit in [valid.intermediate, valid.hidden].into_iter().flatten() {
            aligned(unit).map_err(|why| ("valid", why))?;
        }
    }
    if rule.scale.columns > ALIGN_MAX {
        return Err(("scale", format!("columns = {}", rule.scale.columns)));
    }
    if let Some(stride) = &rule.stride {
        if stride.row_bytes_multiple == Some(0) {
            return Err(("stride", "tests a multiple of 0".to_owned()));
        }
        if stride.elements == 0 && stride.bytes == 0 {
            return Err(("stride", "adds nothing".to_owned()));
        }
        if stride.elements > ALIGN_MAX || stride.bytes > ALIGN_MAX {
            return Err(("stride", format!("adds more than {ALIGN_MAX}")));
        }
    }
    let whens = rule
        .refuse
        .iter()
        .map(|r| ("refuse", &r.when))
        .chain(rule.valid.iter().map(|v| ("valid", &v.when)))
        .chain(rule.loaders.iter().map(|l| ("loaders", &l.when)))
        .chain([("when", &rule.when)]);
    for (key, when) in whens {
        condition(when).map_err(|why| (key, why))?;
    }
    let refusals = rule.refuse.iter().map(|r| ("refuse", &r.why));
    let limits = rule.limits.iter().map(|l| ("limits", &l.why));
    for (key, why) in refusals.chain(limits) {
        if why.trim().is_empty() {
            return Err((key, "has an empty `why`".to_owned()));
        }
    }
    Ok(())
}

fn aligned(align: u64) -> Result<(), String> {
    if align == 0 || align > ALIGN_MAX {
        return Err(format!("align = {align} must lie in 1..={ALIGN_MAX}"));
    }
    Ok(())
}

fn axis(granule: &Granule, hidden: bool) -> Result<(), String> {
    aligned(granule.align)?;
    if !granule.next.is_empty() && !hidden {
        return Err("has a list of sizes, which only the hidden size may have".to_owned());
    }
    let rising = granule.next.windows(2).all(|pair| pair[0] < pair[1]);
    if !rising || granule.next.first() == Some(&0) {
        return Err("next must be rising sizes of at least 1".to_owned());
    }
    condition(&granule.when)
}

fn condition(when: &Condition) -> Result<(), String> {
    if when.width_not_multiple == Some(0) || when.hidden_not_multiple == Some(0) {
        return Err("tests a multiple of 0".to_owned());
    }
    let empty =
        |min: Option<u64>, max: Option<u64>| min.zip(max).is_some_and(|(min, max)| min > max);
    if empty(when.width_min, when.width_max) || empty(when.hidden_min, when.hidden_max) {
        return Err("holds for no size: the least is above the greatest".to_owned());
    }
    Ok(())
}
