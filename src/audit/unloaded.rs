//! Names ranks that loaded nothing, whatever their buffers were made with.
//!
//! It must not say so of a rank of which some experts are right. Layer 7.

use super::AuditError;
use super::diagnose::{Diagnosis, Evidence, Look};
use super::files::experts_of;
use super::moved::listed;
use super::types::Audit;
use super::variants::{Held, Padding};
use crate::mutant::{self, Mutant};
use crate::plan::{Plan, Role};
use std::collections::BTreeSet;

/// The mutant that leaves a rank nothing.
const NAME: &str = "rank-missing";

/// Whether a mutant is looked for here, on every rank.
pub(super) fn is_one(mutant: &Mutant) -> bool {
    mutant.name == NAME
}

/// The ranks whose weights hold one code in the place of all elements, and so does every other tensor of theirs
/// that is not right; none where another rank differs as well.
pub(super) fn ranks(
    plan: &Plan,
    audit: &Audit,
    look: &Look<'_>,
) -> Result<Option<Diagnosis>, AuditError> {
    let right = look.right(Padding::Any);
    let wrong = look.held.iter().zip(&right).filter(|(_, right)| !**right);
    let wrong: Vec<&Held<'_>> = wrong.map(|(held, _)| held).collect();
    let weight = |held: &Held<'_>| matches!(held.stored.role, Role::W13 | Role::W2);
    let ranks: BTreeSet<usize> = wrong.iter().map(|held| held.stored.rank).collect();
    for &rank in &ranks {
        let mut own = wrong.iter().filter(|held| held.stored.rank == rank);
        let whole = experts_of(plan, rank)?.all(|e| audit.experts.contains(&e));
        if !whole || !own.clone().any(|held| weight(held)) || !own.all(|held| constant(look, held))
        {
            return Ok(None);
        }
    }
    let Some(mutant) = mutant::ALL.iter().find(|m| is_one(m)) else {
        return Ok(None);
    };
    if ranks.is_empty() {
        return Ok(None);
    }
    // Scales and biases may be right: a loader reads them by itself.
    let spared = |(held, right): (&Held<'_>, &bool)| {
        let own = ranks.contains(&held.stored.rank) && weight(held);
        *right && own && look.right.has_elements(held)
    };
    Ok(Some(Diagnosis {
        experts: Some(look.experts.clone()),
        tensors: match look.held.iter().zip(&right).any(spared) {
            true => look.names(&right),
            false => Vec::new(),
        },
        detail: listed(
            ranks
                .iter()
                .map(|rank| format!("rank {rank} holds nothing")),
        ),
        ranks: ranks.into_iter().collect(),
        ..Diagnosis::of(mutant, Evidence::Elements)
    }))
}

/// Whether a tensor's elements are one code in the dump: weights of several codes any one, all else what buffers are
/// made with, that is zero, one or no number.
fn constant(look: &Look<'_>, held: &Held<'_>) -> bool {
    let weight = matches!(held.stored.role, Role::W13 | Role::W2);
    let (mut first, mut kinds) = (None, 0);
    for (wanted, actual) in look.right.elements(held.stored.rank, held) {
        let &mut (code, is) = first.get_or_insert((wanted, actual));
        if actual != is {
            return false;
        }
        kinds += usize::from(wanted != code);
    }
    let made_with = |code: u32| {
        let value = held.map.dtype.decode(code);
        value == 0.0 || value == 1.0 || !value.is_finite() || code == 0
    };
    first.is_some_and(|(_, is)| if weight { kinds > 0 } else { made_with(is) })
}
