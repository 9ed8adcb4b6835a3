//! Names faults of different tensors that happen at once, each for its tensors.
//!
//! Each projection is looked at as if the other were right, then each tensor as if all others were. Two faults of
//! one tensor stay unnamed: all pairs would have to be made. It must not name what one fault explains. Layer 7.

use super::diagnose::{Diagnosis, Evidence, Look};
use super::moved;
use super::types::Audit;
use super::values;
use super::variants::{Held, Padding};
use crate::plan::Role;
use std::collections::BTreeSet;

/// Tensors, and what may have happened to them.
type Part = (BTreeSet<Role>, Vec<Diagnosis>);

/// What values say, then the faults of different tensors, then what counts say.
pub(super) fn by_values(look: Look<'_>, audit: &Audit) -> Vec<Diagnosis> {
    let found = values::named(&look);
    if found.iter().any(|one| one.by == Evidence::Values) {
        return found;
    }
    let apart = faults(look, audit);
    if apart.is_empty() { found } else { apart }
}

/// A name for each tensor that is not right; none where one tensor alone is not, or one of them has no name.
fn faults(mut look: Look<'_>, audit: &Audit) -> Vec<Diagnosis> {
    let right = look.right(Padding::Any);
    let wrong = look.held.iter().zip(&right).filter(|(_, right)| !**right);
    let wrong: BTreeSet<Role> = wrong.map(|(held, _)| held.stored.role).collect();
    if wrong.len() < 2 {
        return Vec::new();
    }
    let mut held = std::mem::take(&mut look.held);
    let (first, second): (BTreeSet<Role>, BTreeSet<Role>) =
        wrong.iter().partition(|role| is_first(**role));
    let both = !first.is_empty() && !second.is_empty();
    let mut parts: Vec<Part> = Vec::new();
    for roles in [first, second]
        .into_iter()
        .filter(|roles| !roles.is_empty())
    {
        let of = roles.first().is_some_and(|role| is_first(*role));
        let mut own: Vec<Held<'_>>;
        (own, held) = held
            .into_iter()
            .partition(|h| is_first(h.stored.role) == of);
        let mut counted = Vec::new();
        if both {
            look.held = own;
            counted = named(&look, audit);
            own = std::mem::take(&mut look.held);
            if counted.iter().any(|one| one.by != Evidence::Counts) || roles.len() == 1 {
                if counted.is_empty() {
                    return Vec::new();
                }
                parts.push((roles, counted));
                continue;
            }
        }
        let mut each: Vec<Part> = Vec::new();
        for &role in &roles {
            (look.held, own) = own.into_iter().partition(|h| h.stored.role == role);
            each.push(([role].into(), named(&look, audit)));
        }
        match each.iter().any(|(_, names)| names.is_empty()) {
            false => parts.append(&mut each),
            // Counts say the least: only where tensors by themselves say less.
            true if !counted.is_empty() => parts.push((roles, counted)),
            true => return Vec::new(),
        }
    }
    merged(&parts)
}

fn is_first(role: Role) -> bool {
    use Role::{W13, W13Bias, W13Global, W13Scale};
    matches!(role, W13 | W13Bias | W13Global | W13Scale)
}

/// The names of what a look holds, as if there were nothing else.
fn named(look: &Look<'_>, audit: &Audit) -> Vec<Diagnosis> {
    let mut found = look.known(audit).unwrap_or_default();
    for search in [
        moved::shares,
        moved::straddling,
        moved::shifted,
        values::named,
    ] {
        if found.is_empty() {
            found = search(look);
        }
    }
    found
}

/// One diagnosis for all parts that it explains; of a part that others share a name with, no other name. Dirt, which
/// is told of the whole dump, comes last.
fn merged(parts: &[Part]) -> Vec<Diagnosis> {
    let same = |a: &Diagnosis, b: &Diagnosis| (a.name, &a.detail) == (b.name, &b.detail);
    let is_dirt = |one: &&Diagnosis| one.by == Evidence::Places;
    let shared = |one: &Diagnosis| {
        let has = |(_, names): &&Part| names.iter().any(|other| same(one, other));
        parts.iter().filter(has).count()
    };
    let mut all: Vec<(Diagnosis, BTreeSet<Role>)> = Vec::new();
    let mut dirt: Vec<Diagnosis> = Vec::new();
    for (roles, names) in parts {
        let faults = || names.iter().filter(|one| !is_dirt(one));
        let most = faults().map(shared).max();
        for one in faults().filter(|one| Some(shared(one)) == most) {
            match all.iter_mut().find(|(other, _)| same(one, other)) {
                Some((_, tensors)) => tensors.extend(roles),
                None => all.push((one.clone(), roles.clone())),
            }
        }
        for one in names.iter().filter(is_dirt) {
            if !dirt.iter().any(|other| same(one, other)) {
                dirt.push(one.clone());
            }
        }
    }
    let told = |(one, tensors): (Diagnosis, BTreeSet<Role>)| Diagnosis {
        tensors: tensors.iter().map(|role| role.name()).collect(),
        ..one
    };
    all.into_iter().map(told).chain(dirt).collect()
}
