//! Names the fault: which mutant would have made these elements from that checkpoint.
//!
//! It must not judge bytes: that is `check`'s. Layer 7.

use super::AuditError;
use super::check::count;
use super::dirt;
use super::files::{expert_bytes, experts_of, read, window};
use super::types::Audit;
use super::values;
use super::variants::{Held, Padding, Variants};
use crate::checkpoint::{Dump, Layer};
use crate::layout::map;
use crate::mutant::{self, Mutant};
use crate::plan::Plan;
use crate::tensor::{Logical, Tensor};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of the experts that a diagnosis looks at, logical and of all ranks; a few times as many are held.
const WINDOW_BYTES: u64 = 16 << 20;
/// Above this, one expert is not packed again and again.
const EXPERT_BYTES_MAX: u64 = 1 << 30;
/// Above this neither: every mutant packs every rank.
const RANKS_MAX: usize = 1 << 10;

/// What a name rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// A known fault makes every element of the experts looked at, and padding where padding is.
    Elements,
    /// Where the differing places lie, and of what kind they are.
    Places,
    /// What the elements decode to.
    Values,
    /// How often each code is there.
    Counts,
    /// The number of bytes.
    Sizes,
}

/// An explanation of what an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The fault's name, most often a mutant's.
    pub name: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Where the fault is known from.
    pub source: &'static str,
    /// What the name rests on.
    pub by: Evidence,
    /// The experts that were looked at, where elements or values name it.
    pub experts: Option<Range<usize>>,
    /// The tensors that show it, where others that it would change are right; else none.
    pub tensors: Vec<&'static str>,
    /// The ranks that show it, where those of others are right; else none.
    pub ranks: Vec<usize>,
}

impl Diagnosis {
    /// The mutant of a name.
    pub(super) fn of(mutant: &Mutant, by: Evidence) -> Diagnosis {
        Diagnosis {
            name: mutant.name,
            meaning: mutant.meaning,
            source: mutant.source,
            by,
            experts: None,
            tensors: Vec::new(),
            ranks: Vec::new(),
        }
    }
}

/// Every mutant that makes the elements of the dump; else what their values, counts, sizes or places
/// say; else nothing, and the first difference must do. Padding of minus zero is told though it is inert.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
pub fn diagnose(
    plan: &Plan,
    layer: &Layer<'_>,
    dump: &Dump<'_>,
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let mut found = Vec::new();
    if !audit.clean() {
        found = by_elements(plan, layer, dump, audit)?;
        if found.is_empty() {
            found.extend(dirt::by_size(plan, dump, audit)?);
            found.extend(dirt::by_place(audit, false));
        }
    }
    found.extend(dirt::minus_zero(audit));
    Ok(found)
}

fn by_elements(
    plan: &Plan,
    layer: &Layer<'_>,
    dump: &Dump<'_>,
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let bytes = expert_bytes(plan)?.max(1);
    if bytes > EXPERT_BYTES_MAX || plan.ranks.len() > RANKS_MAX {
        return Ok(Vec::new());
    }
    let experts = experts(plan, audit, bytes)?;
    let Some(held) = held(plan, dump, &experts)? else {
        return Ok(Vec::new());
    };
    let part = window(plan, &experts)?;
    let mut logical = layer.read(experts.clone())?;
    logical.x = Tensor::zeroed("x", &[0, logical.w13.shape()[2]], 32);
    let Some(right) = Variants::of(&part, &logical) else {
        return Ok(Vec::new());
    };
    let look = Look {
        plan: &part,
        logical: &logical,
        right: &right,
        held: &held,
        experts,
    };
    for padding in [Padding::Inert, Padding::Any] {
        let right = look.right(padding);
        if !right.contains(&false) {
            // These experts' elements are as they should be: what is wrong is a tensor that is not
            // there, lies in other experts, or is dirt, and a mutant that changes none would fit by chance.
            return Ok(match padding {
                Padding::Inert => Vec::new(),
                Padding::Any => look.mutants(&look.right(Padding::Inert), Padding::Inert),
            });
        }
        let mut found = look.mutants(&right, padding);
        if !found.is_empty() {
            if padding == Padding::Any {
                found.extend(dirt::by_place(audit, true));
            }
            return Ok(found);
        }
    }
    Ok(values::named(&look))
}

/// Some experts of a dump beside what they were made of.
pub(super) struct Look<'a> {
    pub(super) plan: &'a Plan,
    pub(super) logical: &'a Logical,
    pub(super) right: &'a Variants,
    pub(super) held: &'a [Held<'a>],
    pub(super) experts: Range<usize>,
}

impl Look<'_> {
    /// Which tensors are as the plan says.
    pub(super) fn right(&self, padding: Padding) -> Vec<bool> {
        let same = |held| self.right.same(held, padding);
        self.held.iter().map(same).collect()
    }

    /// The ranks with a tensor that is not right, if one of another rank is: the same tensor, right there.
    pub(super) fn ranks(&self, right: &[bool]) -> Vec<usize> {
        let is = |wanted| {
            self.held
                .iter()
                .zip(right)
                .filter(move |(_, r)| **r == wanted)
        };
        let wrong: BTreeSet<usize> = is(false).map(|(held, _)| held.stored.rank).collect();
        let spared = is(true).any(|(held, _)| {
            let same = |(other, _): (&Held<'_>, _)| other.stored.role == held.stored.role;
            !wrong.contains(&held.stored.rank) && is(false).any(same)
        });
        if spared {
            wrong.into_iter().collect()
        } else {
            Vec::new()
        }
    }

    /// The mutants that make every tensor that is not right; those that make all tensors before
    /// those that make some where others are right.
    fn mutants(&self, right: &[bool], padding: Padding) -> Vec<Diagnosis> {
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        let open = self.held.iter().zip(right).filter(|(_, right)| !**right);
        let open: Vec<&Held<'_>> = open.map(|(held, _)| held).collect();
        let layer = (self.plan, self.logical);
        for mutant in mutant::ALL {
            let Some(wrong) = self.right.wrong(mutant, layer, &open, padding) else {
                continue;
            };
            let fits = |(held, right): (&Held<'_>, &bool)| *right || wrong.same(held, padding);
            if !self.held.iter().zip(right).all(fits) {
                continue;
            }
            let mut diagnosis = Diagnosis::of(mutant, Evidence::Elements);
            diagnosis.experts = Some(self.experts.clone());
            let spared = |(held, right): (&Held<'_>, &bool)| *right && !wrong.same(held, padding);
            if !self.held.iter().zip(right).any(spared) {
                whole.push(diagnosis);
                continue;
            }
            for held in &open {
                let name = held.stored.role.name();
                if !diagnosis.tensors.contains(&name) {
                    diagnosis.tensors.push(name);
                }
            }
            diagnosis.ranks = self.ranks(right);
            partial.push(diagnosis);
        }
        if whole.is_empty() { partial } else { whole }
    }
}

/// The experts to look at: from the first, or from the first that differs where that is farther off.
fn experts(plan: &Plan, audit: &Audit, expert_bytes: u64) -> Result<Range<usize>, AuditError> {
    let all = usize::try_from(plan.dims.e).unwrap_or(usize::MAX);
    let room = usize::try_from(WINDOW_BYTES / expert_bytes).unwrap_or(usize::MAX);
    let n = room.clamp(1, all.max(1));
    let mut first = 0;
    if let Some(difference) = audit.first.first()
        && let (Some(rank), Some((e, _, _))) = (difference.rank, difference.physical)
    {
        let e = experts_of(plan, rank)?.start + e;
        first = if e < n { 0 } else { e };
    }
    Ok(first..first.saturating_add(n).min(all))
}

/// The dump's bytes of some experts; none where a tensor's size is not that of so many experts.
fn held<'a>(
    plan: &Plan,
    dump: &'a Dump<'_>,
    experts: &Range<usize>,
) -> Result<Option<Vec<Held<'a>>>, AuditError> {
    let mut all = Vec::new();
    for stored in &dump.tensors {
        let held = experts_of(plan, stored.rank)?;
        let first = held.start..held.start + held.len().min(1);
        let Ok(one) = map(&window(plan, &first)?, stored.role, stored.rank) else {
            // The plan has no such tensor: no mutant makes one.
            return Ok(None);
        };
        let start = held.start.max(experts.start);
        let end = held.end.min(experts.end).max(start);
        let bytes = dump.bytes(stored, one.dtype)?;
        if held.is_empty() || !bytes.is_multiple_of(count(held.len())) {
            return Ok(None);
        }
        let local = start - held.start..end - held.start;
        let Ok(bytes) = read(dump, stored, &one, local, held.len()) else {
            return Ok(None);
        };
        let map = map(&window(plan, experts)?, stored.role, stored.rank)?;
        all.push(Held { stored, map, bytes });
    }
    Ok(Some(all))
}
