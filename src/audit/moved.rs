//! Names faults of place that have a number: whose share a rank holds, and where its channels begin.
//!
//! It must not say more than it can show. Layer 7.

use super::AuditError;
use super::check::count;
use super::diagnose::{Diagnosis, Evidence, LISTED, Look};
use super::files::{experts_of, window};
use super::large::EXCHANGE_RANKS_MAX;
use super::sample::Sample;
use super::variants::{Held, Padding, Variants};
use crate::checkpoint::{Dump, Layer};
use crate::layout::{logical_of, map};
use crate::mutant;
use crate::plan::{Plan, Role};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Ranks that hold the share of another rank, of their own group of experts or of another one: told
/// by the first and the last expert that a rank holds.
pub(super) fn exchanged(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    look: &Look<'_>,
) -> Result<Vec<Diagnosis>, AuditError> {
    if plan.ranks.len() > EXCHANGE_RANKS_MAX {
        return Ok(Vec::new());
    }
    let mut whose: Option<BTreeMap<usize, usize>> = None;
    for last in [false, true] {
        let found = holders((plan, layer, dump), last)?;
        whose = Some(match whose {
            None => found,
            Some(mut first) => {
                first.retain(|rank, other| found.get(rank) == Some(other));
                first
            }
        });
    }
    let whose = whose.unwrap_or_default();
    let right = look.right(Padding::Any);
    let wrong = look.held.iter().zip(&right).filter(|(_, right)| !**right);
    let explained = |(held, _): (&Held<'_>, _)| whose.contains_key(&held.stored.rank);
    if whose.is_empty() || !wrong.clone().all(explained) {
        return Ok(Vec::new());
    }
    let mut found = vec![exchange(&whose, Evidence::Ends)];
    // Where each rank that differs has its group's first share, which lies where it should.
    let shards = plan.parallel.tp / plan.parallel.ep;
    let shards = usize::try_from(shards).unwrap_or(usize::MAX).max(1);
    let there = dump.ranks();
    let copies = |(rank, other): (&usize, &usize)| {
        rank / shards * shards == *other && there.contains(other) && !whose.contains_key(other)
    };
    let first = mutant::ALL.iter().find(|m| m.name == "ranks-all-first");
    if let Some(first) = first.filter(|_| whose.iter().all(copies)) {
        found.insert(0, Diagnosis::of(first, Evidence::Ends));
    }
    Ok(found)
}

/// Whose share each rank holds, as a diagnosis.
fn exchange(whose: &BTreeMap<usize, usize>, by: Evidence) -> Diagnosis {
    Diagnosis {
        name: "ranks-exchanged",
        meaning: "a rank's file holds the share of another rank, or of another group's experts",
        source: "no report; this audit's comparison with every rank's share",
        by,
        experts: None,
        tensors: Vec::new(),
        ranks: whose.keys().copied().collect(),
        detail: listed(
            whose
                .iter()
                .map(|(rank, other)| format!("rank {rank} holds what belongs on rank {other}")),
        ),
        sample: String::new(),
    }
}

/// The same of the experts that are looked at, and of the tensors that differ: others may be right.
pub(super) fn shares(look: &Look<'_>) -> Vec<Diagnosis> {
    let (plan, right) = (&look.plan, look.right(Padding::Any));
    if plan.ranks.len() > EXCHANGE_RANKS_MAX {
        return Vec::new();
    }
    let all = || look.held.iter().zip(&right);
    let wrong: BTreeSet<usize> = all()
        .filter(|(_, right)| !**right)
        .map(|(held, _)| held.stored.rank)
        .collect();
    let experts = |rank: usize| (plan.ranks[rank].expert_start, plan.ranks[rank].expert_len);
    let mut whose = BTreeMap::new();
    for rank in wrong {
        let is = |other: &usize| {
            let of_rank = |(held, right): &(&Held<'_>, &bool)| held.stored.rank == rank && !**right;
            let same = |(held, _)| look.right.same_of(*other, held, Padding::Any);
            *other != rank && experts(*other) == experts(rank) && all().filter(of_rank).all(same)
        };
        let mut others = (0..plan.ranks.len()).filter(is);
        // What may be more than one's says nothing.
        let (Some(other), None) = (others.next(), others.next()) else {
            return Vec::new();
        };
        whose.insert(rank, other);
    }
    if whose.is_empty() {
        return Vec::new();
    }
    let spared = all().any(|(held, right)| {
        let other = whose.get(&held.stored.rank);
        *right && other.is_some_and(|&o| !look.right.same_of(o, held, Padding::Any))
    });
    vec![Diagnosis {
        experts: Some(look.experts.clone()),
        tensors: if spared {
            look.names(&right)
        } else {
            Vec::new()
        },
        ..exchange(&whose, Evidence::Elements)
    }]
}

/// The first of some phrases, and how many more there are.
pub(super) fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = match all.len().saturating_sub(LISTED) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let few: Vec<String> = all.take(LISTED).collect();
    format!("{}{more}", few.join(", "))
}

/// Each rank whose first or last expert is that of another rank: whose.
fn holders(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    last: bool,
) -> Result<BTreeMap<usize, usize>, AuditError> {
    let sample = Sample::of(plan)?;
    let mut shares: BTreeMap<usize, Variants> = BTreeMap::new();
    let mut of_rank = Vec::new();
    for rank in 0..plan.ranks.len() {
        let experts = experts_of(plan, rank)?;
        if experts.is_empty() || plan.ranks[rank].len == 0 {
            continue;
        }
        let e = if last { experts.end - 1 } else { experts.start };
        of_rank.push((rank, e));
        if let Entry::Vacant(place) = shares.entry(e) {
            let part = window(&sample.plan(plan), &(e..e + 1))?;
            let logical = sample.logical(plan, layer, e..e + 1)?;
            let Some(variants) = Variants::of(&part, &logical) else {
                return Ok(BTreeMap::new());
            };
            place.insert(variants);
        }
    }
    let mut whose = BTreeMap::new();
    for &(rank, e) in &of_rank {
        let held = one_expert((plan, dump, &sample), rank, e)?;
        let is = |(other, at): &(usize, usize)| {
            let right = |held: &Held<'_>| shares[at].same_of(*other, held, Padding::Any);
            !held.is_empty() && held.iter().all(right)
        };
        // What is its own, or more than one's, says nothing.
        let mut all = of_rank.iter().filter(|other| is(other));
        if let (Some(&(other, _)), None) = (all.next(), all.next())
            && other != rank
        {
            whose.insert(rank, other);
        }
    }
    Ok(whose)
}

/// A rank's tensors of one expert; none where one is not of the plan's size.
fn one_expert<'a>(
    (plan, dump, sample): (&Plan, &'a Dump<'_>, &Sample),
    rank: usize,
    e: usize,
) -> Result<Vec<Held<'a>>, AuditError> {
    let experts = experts_of(plan, rank)?;
    let part = window(&sample.plan(plan), &(e..e + 1))?;
    let local = e - experts.start..e - experts.start + 1;
    let mut all = Vec::new();
    for stored in dump.tensors.iter().filter(|t| t.rank == rank) {
        let Ok(map) = map(&part, stored.role, rank) else {
            return Ok(Vec::new());
        };
        match sample.held(plan, dump, stored, local.clone())? {
            Some(bytes) if bytes.len() == map.bytes() => {
                all.push(Held::of(plan, stored, map, bytes))
            }
            _ => return Ok(Vec::new()),
        }
    }
    Ok(all)
}

/// Where the channels of ranks should begin, and where they do.
type Begins = BTreeMap<usize, (u64, u64)>;

/// Ranks whose channels begin at others than theirs, by any number: found by the first channel, and
/// held against every tensor. Scales may be where they should be, or begin with the block that the
/// first channel lies in.
pub(super) fn shifted(look: &Look<'_>) -> Vec<Diagnosis> {
    let right = look.right(Padding::Any);
    let Some(begins) = begins(look, &right).filter(|begins| !begins.is_empty()) else {
        return Vec::new();
    };
    let block = look.plan.w2_scale.map_or(1, |s| s.col_block_source.max(1));
    let moved = begun(look, &begins, |start| start);
    let blocks = begun(look, &begins, |start| start / block * block);
    let explained = |(held, right): (&Held<'_>, &bool)| {
        let scale = matches!(held.stored.role, Role::W13Scale | Role::W2Scale);
        *right || moved.same(held, Padding::Any) || scale && blocks.same(held, Padding::Any)
    };
    if !look.held.iter().zip(&right).all(explained) {
        return Vec::new();
    }
    // Where a tensor of these ranks is in its place and would not be, the fault is in the others.
    let spared = |(held, right): (&Held<'_>, &bool)| {
        *right && begins.contains_key(&held.stored.rank) && !moved.same(held, Padding::Any)
    };
    let tensors = match look.held.iter().zip(&right).any(spared) {
        true => look.names(&right),
        false => Vec::new(),
    };
    vec![Diagnosis {
        name: "channels-shifted",
        meaning: "a rank's channels begin at another one than its first",
        source: "no report; this audit's search for each rank's first channel",
        by: Evidence::Elements,
        experts: Some(look.experts.clone()),
        tensors,
        ranks: begins.keys().copied().collect(),
        detail: how_far(&begins),
        sample: String::new(),
    }]
}

/// Equal shares that begin inside blocks which share a scale, where the plan gives ranks whole blocks:
/// scales by elements, by the blocks that the shares lie in, or as planned.
pub(super) fn straddling(look: &Look<'_>) -> Vec<Diagnosis> {
    let (plan, right) = (&look.plan, look.right(Padding::Any));
    let shards = (plan.parallel.tp / plan.parallel.ep).max(1);
    let block = plan.w2_scale.map_or(1, |s| s.col_block_source.max(1));
    let (i, width) = (plan.dims.i, plan.dims.i / shards);
    let mutant = mutant::ALL
        .iter()
        .find(|m| m.name == "shares-inside-blocks");
    let Some(mutant) = mutant.filter(|_| i.is_multiple_of(shards) && !width.is_multiple_of(block))
    else {
        return Vec::new();
    };
    let shares = |of: &dyn Fn(u64) -> (u64, u64)| {
        let mut wrong = plan.clone();
        for share in &mut wrong.ranks {
            let (start, end) = of(share.rank % shards * width);
            (share.start, share.len) = (start, end.min(i) - start);
        }
        look.right.repacked(&wrong, &look.logical)
    };
    let elements = shares(&|start| (start, start + width));
    let blocks = shares(&|start| {
        let end = (start + width).next_multiple_of(block);
        (start / block * block, end)
    });
    let explained = |(held, right): (&Held<'_>, &bool)| {
        let scale = matches!(held.stored.role, Role::W13Scale | Role::W2Scale);
        *right || elements.same(held, Padding::Any) || scale && blocks.same(held, Padding::Any)
    };
    let all = || look.held.iter().zip(&right);
    let weights = |(held, right): (&Held<'_>, &bool)| {
        !*right && matches!(held.stored.role, Role::W13 | Role::W2)
    };
    if !all().any(weights) || !all().all(explained) {
        return Vec::new();
    }
    vec![Diagnosis {
        experts: Some(look.experts.clone()),
        ..Diagnosis::of(mutant, Evidence::Elements)
    }]
}

/// Each rank with a tensor that is not right, by its first channel; none where that is where it should
/// be, or nowhere.
fn begins(look: &Look<'_>, right: &[bool]) -> Option<Begins> {
    let mut begins = Begins::new();
    for (rank, share) in look.plan.ranks.iter().enumerate() {
        let wrong = |(held, right): (&Held<'_>, &bool)| held.stored.rank == rank && !*right;
        if look.held.iter().zip(right).any(wrong) {
            let start = first_channel(look, rank).filter(|&c| c != share.start)?;
            begins.insert(rank, (share.start, start));
        }
    }
    Some(begins)
}

/// The layer as ranks would hold it that began where `of` says of their first channel.
fn begun(look: &Look<'_>, begins: &Begins, of: impl Fn(u64) -> u64) -> Variants {
    let mut plan = look.plan.clone();
    for (&rank, &(_, start)) in begins {
        let (start, share) = (of(start), &mut plan.ranks[rank]);
        share.start = start;
        share.len = share.len.min(plan.dims.i - start.min(plan.dims.i));
    }
    look.right.repacked(&plan, &look.logical)
}

/// By how many channels, where that is the same on all ranks.
fn how_far(begins: &Begins) -> String {
    let far = |&(from, to): &(u64, u64)| (from.abs_diff(to), to < from);
    let mut all = begins.values().map(far);
    match all.next() {
        Some((n, early)) if all.all(|other| other == (n, early)) => format!(
            "by {n} {}, too {}",
            if n == 1 { "channel" } else { "channels" },
            if early { "early" } else { "late" }
        ),
        _ => {
            let each = begins
                .iter()
                .map(|(rank, (from, to))| format!("rank {rank} at {to} in place of {from}"));
            listed(each)
        }
    }
}

/// The channel that a rank holds in the place of its first: by w13's rows, else by w2's columns.
fn first_channel(look: &Look<'_>, rank: usize) -> Option<u64> {
    let share = look.plan.ranks[rank];
    let start = usize::try_from(share.start).ok()?;
    let width = usize::try_from(look.plan.dims.i).ok()?;
    let mut found = None;
    for role in [Role::W13, Role::W2] {
        let is = |held: &&Held<'_>| held.stored.rank == rank && held.stored.role == role;
        let held = look.held.iter().find(is)?;
        let (map, source) = (&held.map, logical_of(&look.logical, role)?);
        if held.bytes.len() != map.bytes() || map.shape()[0] == 0 {
            return None;
        }
        let expert = map.experts.to_logical(0)?;
        let [_, rows, cols] = map.logical_shape();
        // Where a channel's n-th element lies: in gate's row, or in a column.
        let second = role == Role::W2;
        let len = if second { rows } else { cols };
        let at = |channel: usize, n: usize| if second { (n, channel) } else { (channel, n) };
        let stored: Vec<u32> = (0..len)
            .map(|n| {
                let (r, c) = at(start, n);
                let (r, c) = (map.rows.to_physical(r)?, map.cols.to_physical(c)?);
                Some(map.grid.read(&held.bytes, map.address(0, r, c)))
            })
            .collect::<Option<_>>()?;
        let code = |r: usize, c: usize| {
            let (at, wide) = ((expert * rows + r) * cols + c, source.bits() / 8);
            let bytes = &source.bytes()[at * wide..(at + 1) * wide];
            bytes.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
        };
        let same = |channel: &usize| {
            (0..len).all(|n| {
                let (r, c) = at(*channel, n);
                code(r, c) == stored[n]
            })
        };
        // The nearest first.
        let mut all: Vec<usize> = (0..width).collect();
        all.sort_by_key(|c| c.abs_diff(start));
        let channel = count(all.into_iter().find(same)?);
        if channel != share.start {
            return Some(channel);
        }
        found = Some(channel);
    }
    found
}
