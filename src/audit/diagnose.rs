//! Names the fault: which mutant would have made these elements from that checkpoint.
//!
//! It must not judge bytes: that is `check`'s. Layer 7.

use super::AuditError;
use super::apart;
use super::check::count;
use super::dirt;
use super::files::{expert_bytes, experts_of, window};
use super::globals;
use super::large::{TooLarge, too_large};
use super::moved;
use super::orders;
use super::others;
use super::sample::Sample;
use super::storages;
use super::turned;
use super::types::{Audit, Fault};
use super::unloaded;
use super::variants::{Held, Padding, Variants};
use crate::checkpoint::{Dump, Layer};
use crate::layout::map;
use crate::mutant::{self, Mutant};
use crate::plan::Plan;
use crate::tensor::Logical;
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of the experts that a diagnosis looks at, logical and of all ranks; a few times as many are held.
const WINDOW_BYTES: u64 = 16 << 20;
/// Experts of which parts are looked at: each is read whole.
const SAMPLED_EXPERTS: usize = 2;
/// Experts that are looked at one by one, and experts or ranks that are listed.
pub(super) const LISTED: usize = 4;

/// What a name rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// A known fault makes every element of the experts looked at, and padding where padding is.
    Elements,
    /// Every element of the first and of the last expert of each rank that is named.
    Ends,
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
    /// What else there is to say: whose share it is, by how much, in which experts alone; else empty.
    pub detail: String,
    /// Which part of the experts was looked at, where they are too large to be looked at whole; else empty.
    pub sample: String,
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
            detail: String::new(),
            sample: String::new(),
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
            found = turned::by_size((plan, layer, dump), audit)?;
            found.extend(dirt::by_place(audit, false).map(|one| alone(one, plan, audit)));
        }
    }
    found.extend(dirt::minus_zero(plan, audit));
    let sample = Sample::of(plan)?.told();
    for one in &mut found {
        if !matches!(one.by, Evidence::Places | Evidence::Sizes) {
            one.sample.clone_from(&sample);
        }
    }
    Ok(found)
}

fn by_elements(
    plan: &Plan,
    layer: &Layer<'_>,
    dump: &Dump<'_>,
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let all = (plan, layer, dump);
    let mut found = globals::named(all, audit)?;
    if !found.is_empty() {
        found.extend(dirt::by_place(audit, true));
        return Ok(found);
    }
    if let Some(TooLarge::Expert(_) | TooLarge::Ranks(_)) = too_large(plan)? {
        return others::exchanged(all, audit);
    }
    let experts = experts(plan, audit)?;
    let Some(mut look) = Look::of(plan, layer, dump, experts.clone())? else {
        return Ok(Vec::new());
    };
    let unloaded = unloaded::ranks(plan, audit, &look)?;
    if let Some(found) = look.known(audit) {
        let mut found = twins(all, &look, found)?;
        if experts.clone().all(|e| audit.experts.contains(&e)) {
            found = found.into_iter().map(|f| alone(f, plan, audit)).collect();
        }
        found.extend(unloaded);
        return Ok(found);
    }
    if let Some(found) = unloaded {
        return Ok(vec![found]);
    }
    // What moves elements leaves tensors their size: those of another one have a fault of their own.
    if audit.regions.iter().any(|r| r.fault == Fault::Size) {
        let mut found = turned::by_size(all, audit)?;
        if !found.is_empty() {
            look.held
                .retain(|held| held.bytes.len() == held.map.bytes());
            let more = look.known(audit).unwrap_or_default();
            // The same fault, where it leaves some tensors their size.
            if more.iter().all(|one| one.name != found[0].name) {
                found.extend(more);
            }
        }
        return Ok(found);
    }
    let searches: [&dyn Fn() -> Result<Vec<Diagnosis>, AuditError>; 6] = [
        &|| by_expert(all, audit),
        &|| moved::exchanged(all, &look),
        &|| Ok(moved::shares(&look)),
        &|| Ok(moved::straddling(&look)),
        &|| Ok(moved::shifted(&look)),
        &|| others::exchanged(all, audit),
    ];
    for search in searches {
        let found = search()?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(apart::by_values(look, audit))
}

/// The other name of a fault of ranks, where both explain the bytes: a file alone was written or read
/// under another rank, more likely than by a loader that gives every rank the first one's share.
fn twins(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    look: &Look<'_>,
    mut found: Vec<Diagnosis>,
) -> Result<Vec<Diagnosis>, AuditError> {
    let of_ranks = |one: &Diagnosis| matches!(one.name, "ranks-all-first" | "experts-overlap");
    if !found.iter().any(of_ranks) {
        return Ok(found);
    }
    let mut others = moved::exchanged((plan, layer, dump), look)?;
    if others.is_empty() {
        others = moved::shares(look);
    }
    // Nothing less than what is found may stand beside it: the same tensors, or more.
    others.retain(|other| {
        let ranks = |one: &Diagnosis| one.ranks.is_empty() || one.ranks == other.ranks;
        let same = |one: &Diagnosis| one.tensors == other.tensors && ranks(one);
        let as_much =
            other.tensors.is_empty() || found.iter().any(|one| of_ranks(one) && same(one));
        as_much && found.iter().all(|one| one.name != other.name)
    });
    if dump.ranks().len() > 1 {
        found.extend(others);
        return Ok(found);
    }
    others.extend(found);
    Ok(others)
}

/// The experts that differ, where they are some of those that were audited.
fn some_experts(plan: &Plan, audit: &Audit) -> bool {
    let all = usize::try_from(plan.dims.e).unwrap_or(usize::MAX);
    !audit.experts.is_empty() && audit.experts.len() < all
}

/// A diagnosis that says in which experts alone it holds.
pub(super) fn alone(found: Diagnosis, plan: &Plan, audit: &Audit) -> Diagnosis {
    if !some_experts(plan, audit) {
        return found;
    }
    let listed: Vec<String> = audit.experts.iter().map(usize::to_string).collect();
    let detail = match listed.as_slice() {
        [one] => format!("in expert {one} alone"),
        [few @ .., last] if few.len() < LISTED => {
            format!("in experts {} and {last} alone", few.join(", "))
        }
        many => format!(
            "in {} experts of {} alone, {} the first",
            many.len(),
            plan.dims.e,
            many[0]
        ),
    };
    let detail = match found.detail.as_str() {
        "" => detail,
        more => format!("{more}, {detail}"),
    };
    Diagnosis { detail, ..found }
}

/// A fault of some experts, each looked at by itself: what explains all of them.
fn by_expert(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    if !some_experts(plan, audit) {
        return Ok(Vec::new());
    }
    let mut common: Option<Vec<Diagnosis>> = None;
    for &e in audit.experts.iter().take(LISTED) {
        let Some(look) = Look::of(plan, layer, dump, e..e + 1)? else {
            return Ok(Vec::new());
        };
        let found = look.known(audit).unwrap_or_default();
        let mut found = twins((plan, layer, dump), &look, found)?;
        for search in [moved::shares, moved::straddling, moved::shifted] {
            if found.is_empty() {
                found = search(&look);
            }
        }
        if found.is_empty() {
            found = apart::by_values(look, audit);
        }
        common = Some(match common {
            None => found,
            Some(mut common) => {
                common.retain(|one| found.iter().any(|f| f.name == one.name));
                common
            }
        });
    }
    let common = common.unwrap_or_default().into_iter();
    Ok(common.map(|one| alone(one, plan, audit)).collect())
}

/// Some experts of a dump beside what they were made of.
pub(super) struct Look<'a> {
    pub(super) plan: Plan,
    pub(super) logical: Logical,
    pub(super) right: Variants,
    pub(super) held: Vec<Held<'a>>,
    pub(super) experts: Range<usize>,
}

impl<'a> Look<'a> {
    /// None where a tensor's size is not that of so many experts, or the plan packs none.
    pub(super) fn of(
        plan: &Plan,
        layer: &Layer<'_>,
        dump: &'a Dump<'_>,
        experts: Range<usize>,
    ) -> Result<Option<Look<'a>>, AuditError> {
        let sample = Sample::of(plan)?;
        let Some(held) = held((plan, &sample), dump, &experts)? else {
            return Ok(None);
        };
        let part = window(&sample.plan(plan), &experts)?;
        let logical = sample.logical(plan, layer, experts.clone())?;
        let right = Variants::of(&part, &logical);
        Ok(right.map(|right| Look {
            plan: part,
            logical,
            right,
            held,
            experts,
        }))
    }

    /// The mutants that make these experts; none where no mutant does, and an empty list where their
    /// elements are as they should be: what is wrong is a tensor that is not there, lies in other
    /// experts, or is dirt, and a mutant that changes none would fit by chance.
    pub(super) fn known(&self, audit: &Audit) -> Option<Vec<Diagnosis>> {
        for padding in [Padding::Inert, Padding::Any] {
            let right = self.right(padding);
            if !right.contains(&false) {
                return Some(match padding {
                    Padding::Inert => Vec::new(),
                    Padding::Any => self.mutants(&self.right(Padding::Inert), Padding::Inert),
                });
            }
            let mut found = self.mutants(&right, padding);
            if !found.is_empty() {
                if padding == Padding::Any {
                    found.extend(dirt::by_place(audit, true));
                }
                return Some(found);
            }
        }
        None
    }

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

    /// The tensors that are not right on some rank.
    pub(super) fn names(&self, right: &[bool]) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (held, _) in self.held.iter().zip(right).filter(|(_, right)| !**right) {
            let name = held.stored.role.name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The mutants that make every tensor that is not right; those that make all tensors before
    /// those that make some where others are right.
    fn mutants(&self, right: &[bool], padding: Padding) -> Vec<Diagnosis> {
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        let open = self.held.iter().zip(right).filter(|(_, right)| !**right);
        let open: Vec<&Held<'_>> = open.map(|(held, _)| held).collect();
        let layer = (&self.plan, &self.logical);
        let mut weigh = |mutant: &Mutant, wrong: &Variants, detail: String| {
            let fits = |(held, right): (&Held<'_>, &bool)| *right || wrong.same(held, padding);
            let denied = |held: &&Held<'_>| wrong.denied(&self.right, held);
            if !self.held.iter().zip(right).all(fits)
                || !open.iter().any(|held| wrong.explains(&self.right, held))
                || padding == Padding::Any && open.iter().any(denied)
            {
                return;
            }
            let mut diagnosis = Diagnosis::of(mutant, Evidence::Elements);
            diagnosis.experts = Some(self.experts.clone());
            diagnosis.detail = detail;
            // Any finite scale is as good as another in padding: one that is right, and more than that, is
            // none of a mutant's that leaves the rank nothing.
            let empty =
                |held: &Held<'_>| !wrong.has_elements(held) && self.right.has_elements(held);
            let spared = |(held, right): (&Held<'_>, &bool)| {
                *right && (!wrong.same(held, padding) || empty(held))
            };
            if !self.held.iter().zip(right).any(spared) {
                whole.push(diagnosis);
                return;
            }
            // Where a rank would hold padding alone any finite scale is as good as another: that
            // explains nothing.
            if !open.iter().any(|held| wrong.has_elements(held)) {
                return;
            }
            diagnosis.tensors = self.names(right);
            diagnosis.ranks = self.ranks(right);
            partial.push(diagnosis);
        };
        let searched =
            |m: &&Mutant| orders::is_one(m) || storages::is_one(m) || unloaded::is_one(m);
        for mutant in mutant::ALL.iter().filter(|m| !searched(m)) {
            if let Some(wrong) = self.right.wrong(mutant, layer, &open, padding) {
                weigh(mutant, &wrong, String::new());
            }
        }
        for (mutant, plan, detail) in orders::others(&self.plan) {
            let wrong = match orders::scales_stay(&plan) {
                true => Some(self.right.repacked(&plan, &self.logical)),
                false => Variants::laid_out(&plan, &self.logical, &open, padding),
            };
            if let Some(wrong) = wrong {
                weigh(mutant, &wrong, detail);
            }
        }
        for (mutant, plan, stored, read) in storages::others(&self.plan) {
            if let Some(wrong) = Variants::laid_out(&plan, &self.logical, &open, padding) {
                weigh(mutant, &wrong, storages::phrase(stored, read));
            }
        }
        once(if whole.is_empty() { partial } else { whole })
    }
}

/// Each name once: of layouts that store the same bytes the first is told.
fn once(found: Vec<Diagnosis>) -> Vec<Diagnosis> {
    let mut names = BTreeSet::new();
    let mut found = found;
    found.retain(|one| names.insert(one.name));
    found
}

/// The experts to look at: from the first, or from the first that differs where that is farther off.
fn experts(plan: &Plan, audit: &Audit) -> Result<Range<usize>, AuditError> {
    let all = usize::try_from(plan.dims.e).unwrap_or(usize::MAX);
    let part = Sample::of(plan)?.plan(plan);
    let room = WINDOW_BYTES / expert_bytes(&part)?.max(1);
    let mut room = usize::try_from(room).unwrap_or(usize::MAX);
    if part.dims.h < plan.dims.h {
        room = room.min(SAMPLED_EXPERTS);
    }
    let n = room.clamp(1, all.max(1));
    let differs = audit.experts.first().copied().unwrap_or(0);
    let first = if differs < n { 0 } else { differs };
    Ok(first..first.saturating_add(n).min(all))
}

/// The dump's bytes of some experts; none where a tensor's size is not that of so many experts.
fn held<'a>(
    (plan, sample): (&Plan, &Sample),
    dump: &'a Dump<'_>,
    experts: &Range<usize>,
) -> Result<Option<Vec<Held<'a>>>, AuditError> {
    let part = sample.plan(plan);
    let mut all = Vec::new();
    for stored in &dump.tensors {
        let held = experts_of(plan, stored.rank)?;
        let first = held.start..held.start + held.len().min(1);
        let Ok(one) = map(&window(plan, &first)?, stored.role, stored.rank) else {
            // The plan has no such tensor: no mutant makes one.
            return Ok(None);
        };
        let start = held.start.max(experts.start).min(held.end);
        let end = held.end.min(experts.end).max(start);
        let bytes = dump.bytes(stored, one.dtype)?;
        if held.is_empty() || !bytes.is_multiple_of(count(held.len())) {
            return Ok(None);
        }
        let local = start - held.start..end - held.start;
        let Some(bytes) = sample.held(plan, dump, stored, local)? else {
            return Ok(None);
        };
        let map = map(&window(&part, experts)?, stored.role, stored.rank)?;
        all.push(Held::of(plan, stored, map, bytes));
    }
    Ok(Some(all))
}
