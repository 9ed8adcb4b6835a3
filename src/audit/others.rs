//! Names what lies in the place of another expert or of another layer.
//!
//! A few codes of each expert say which one it may be; that it is, every element does. It must not
//! pack. Layer 7.

use super::AuditError;
use super::check::{TensorAudit, code};
use super::diagnose::{Diagnosis, Evidence};
use super::files::{audit_files, experts_of, read, window};
use super::inert::Inert;
use super::moved::listed;
use super::types::{Audit, Fault};
use crate::checkpoint::{Dump, Layer, Stored};
use crate::layout::{Axis, Map, Place3, map, roles};
use crate::plan::{Plan, Role};
use crate::tensor::Tensor;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Codes of an expert that say which one it may be.
const CODES: usize = 64;

/// One tensor of one rank, and the map of any one of its experts.
struct Held<'a> {
    stored: &'a Stored,
    map: Map,
    /// The first of the rank's experts, and how many it has.
    first: usize,
    all: usize,
}

/// Experts that lie in the places of others, else another layer's in place of these; none where tensors
/// are missing or of other sizes, or nothing explains all that differ.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
pub(super) fn exchanged(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let faults = || audit.regions.iter().map(|r| r.fault);
    if faults().any(|f| {
        matches!(
            f,
            Fault::Missing | Fault::Extra | Fault::Size | Fault::Guard
        )
    }) {
        return Ok(Vec::new());
    }
    let differ = audit.regions.iter().filter(|r| r.fault == Fault::Element);
    let differ: BTreeSet<&str> = differ.map(|r| r.tensor).collect();
    let mut held = Vec::new();
    for stored in dump
        .tensors
        .iter()
        .filter(|t| differ.contains(t.role.name()))
    {
        let own = experts_of(plan, stored.rank)?;
        let one = window(plan, &(own.start..own.start + own.len().min(1)))?;
        held.push(Held {
            stored,
            map: map(&one, stored.role, stored.rank)?,
            first: own.start,
            all: own.len(),
        });
    }
    // The smallest first: it costs least to read of every expert.
    held.sort_by_key(|held| held.map.bytes());
    let whose = experts((plan, layer, dump), &held, audit)?;
    if !whose.is_empty() {
        return Ok(vec![of_experts(plan, &whose, &differ)]);
    }
    layers((plan, layer, dump), &held, audit)
}

/// Which expert lies in the place of each that differs; empty where that is not found for all.
fn experts(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    held: &[Held<'_>],
    audit: &Audit,
) -> Result<BTreeMap<usize, usize>, AuditError> {
    let mut maybe: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut looked = BTreeSet::new();
    for one in held {
        // Ranks hold shares of the same experts: one of them says whose.
        if !looked.insert((one.stored.role, one.first)) {
            continue;
        }
        let own = one.first..one.first + one.all;
        let open = |e: &&usize| own.contains(*e) && maybe.get(*e).is_none_or(|all| all.len() > 1);
        let mut codes = Vec::new();
        for &e in audit.experts.iter().filter(open) {
            codes.push((e, one.codes(dump, e)?, BTreeSet::new()));
        }
        for f in own.clone() {
            if codes.is_empty() {
                break;
            }
            let Some(source) = layer.role(one.stored.role, f..f + 1, false)? else {
                break;
            };
            for (_, codes, found) in &mut codes {
                if matches(codes, &source) {
                    found.insert(f);
                }
            }
        }
        // A tensor that may be right says nothing.
        for (e, _, found) in codes.into_iter().filter(|(e, _, found)| !found.contains(e)) {
            match maybe.entry(e) {
                Entry::Vacant(place) => {
                    place.insert(found);
                }
                Entry::Occupied(mut place) => place.get_mut().retain(|f| found.contains(f)),
            }
        }
    }
    let mut whose = BTreeMap::new();
    for &e in &audit.experts {
        for &f in maybe.get(&e).into_iter().flatten() {
            if is_whole((plan, layer, dump), held, (e, f))? {
                whose.insert(e, f);
                break;
            }
        }
        if !whose.contains_key(&e) {
            return Ok(BTreeMap::new());
        }
    }
    Ok(whose)
}

/// Whether every tensor in the place of expert `e` is that of `f`, or right.
fn is_whole(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    held: &[Held<'_>],
    (e, f): (usize, usize),
) -> Result<bool, AuditError> {
    for one in held
        .iter()
        .filter(|h| (h.first..h.first + h.all).contains(&e))
    {
        if !one.is(plan, layer, dump, (e, f))? && !one.is(plan, layer, dump, (e, e))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn of_experts(plan: &Plan, whose: &BTreeMap<usize, usize>, differ: &BTreeSet<&str>) -> Diagnosis {
    let few = whose
        .iter()
        .map(|(e, f)| format!("expert {e} holds what belongs to expert {f}"));
    let names: Vec<&'static str> = roles(plan).map(Role::name).collect();
    let shown: Vec<&'static str> = names
        .iter()
        .copied()
        .filter(|n| differ.contains(n))
        .collect();
    Diagnosis {
        name: "experts-exchanged",
        meaning: "an expert's place holds another expert of the layer",
        source: "no report; this audit's comparison with every expert of the rank",
        by: Evidence::Elements,
        experts: whose
            .keys()
            .next()
            .zip(whose.keys().next_back())
            .map(|(a, b)| *a..b + 1),
        tensors: if shown.len() < names.len() {
            shown
        } else {
            Vec::new()
        },
        ranks: Vec::new(),
        detail: listed(few),
        sample: String::new(),
    }
}

/// The layer of the checkpoint that the dump is of, if it is another one.
fn layers(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    held: &[Held<'_>],
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let (Some(one), Some(&e)) = (held.first(), audit.experts.first()) else {
        return Ok(Vec::new());
    };
    if !(one.first..one.first + one.all).contains(&e) {
        return Ok(Vec::new());
    }
    let codes = one.codes(dump, e)?;
    for (id, other) in layer.others() {
        let Ok(Some(source)) = other.role(one.stored.role, e..e + 1, false) else {
            continue;
        };
        if !matches(&codes, &source) {
            continue;
        }
        let of_other = audit_files(plan, &other, dump)?;
        if of_other.regions.iter().all(|r| r.fault != Fault::Element) {
            return Ok(vec![Diagnosis {
                name: "layers-exchanged",
                meaning: "the dump is of another layer of the checkpoint",
                source: "no report; this audit's comparison with every other layer",
                by: Evidence::Elements,
                experts: usize::try_from(plan.dims.e).ok().map(|e| 0..e),
                tensors: Vec::new(),
                ranks: Vec::new(),
                detail: format!("it is layer {id}'s"),
                sample: String::new(),
            }]);
        }
    }
    Ok(Vec::new())
}

impl Held<'_> {
    fn bytes(&self, dump: &Dump<'_>, e: usize) -> Result<Vec<u8>, AuditError> {
        let local = e - self.first;
        read(dump, self.stored, &self.map, local..local + 1, self.all)
    }

    /// Some of an expert's codes, with the places in the logical tensor that these have.
    fn codes(&self, dump: &Dump<'_>, e: usize) -> Result<Vec<(Place3, u32)>, AuditError> {
        let bytes = self.bytes(dump, e)?;
        let expert = self.map.experts.to_logical(0).unwrap_or(0);
        // Of the rows and columns that this rank holds: a few columns of each of some rows, others in the next.
        let (rows, cols) = (logical(&self.map.rows), logical(&self.map.cols));
        let mut codes = Vec::new();
        for (n, r) in spread(&rows, CODES).enumerate() {
            for m in 0..cols.len().min(4) {
                let c = cols[(n * 7 + m * (cols.len() / 4).max(1)) % cols.len()];
                if let Some(at) = self.map.physical(expert, r, c) {
                    codes.push(((0, r, c), self.map.grid.read(&bytes, at)));
                }
            }
        }
        Ok(codes)
    }

    /// Whether every element of expert `e` is that of expert `f`.
    fn is(
        &self,
        plan: &Plan,
        layer: &Layer<'_>,
        dump: &Dump<'_>,
        (e, f): (usize, usize),
    ) -> Result<bool, AuditError> {
        let Some(source) = layer.role(self.stored.role, f..f + 1, true)? else {
            return Ok(false);
        };
        let bytes = self.bytes(dump, e)?;
        let mut found = Audit::default();
        let audit = TensorAudit {
            map: &self.map,
            rank: self.stored.rank,
            inert: Inert::under(plan, &self.map),
            bytes: &bytes,
            source: Some(&source),
            first: (0, e),
            band: None,
        };
        audit.run(&mut found);
        Ok(found.regions.iter().all(|r| r.fault != Fault::Element))
    }
}

/// The logical places of an axis that are held.
fn logical(axis: &Axis) -> Vec<usize> {
    let runs = axis.runs().iter();
    runs.flat_map(|run| run.logical..run.logical + run.len)
        .collect()
}

/// At most about `most` of them, apart.
fn spread(places: &[usize], most: usize) -> impl Iterator<Item = usize> + '_ {
    let step = places.len().div_ceil(most).max(1);
    places.iter().step_by(step).copied()
}

/// Whether one expert's tensor has these codes in these places.
fn matches(codes: &[(Place3, u32)], source: &Tensor) -> bool {
    let cols = source.shape().get(2).copied().unwrap_or(1);
    let is = |&((_, r, c), is): &(Place3, u32)| code(source, source.bits(), r * cols + c) == is;
    !codes.is_empty() && codes.iter().all(is)
}
