//! Names the fault: which mutant would have made these bytes from that checkpoint.

use super::AuditError;
use super::check::count;
use super::files::{expert_bytes, experts_of, read, window};
use super::types::{Audit, Fault};
use crate::checkpoint::{Dump, Layer, Stored};
use crate::layout::{PackedInputs, map, pack_layer};
use crate::mutant::{self, Mutant, Stage};
use crate::plan::Plan;
use crate::tensor::{Logical, Tensor};
use std::ops::Range;

/// Bytes of the experts that a diagnosis looks at, logical and of all ranks.
const WINDOW_BYTES: u64 = 64 << 20;
/// Above this, one expert is not packed again and again.
const EXPERT_BYTES_MAX: u64 = 1 << 30;
/// Above this neither: every mutant packs every rank.
const RANKS_MAX: usize = 1 << 10;

/// Tensors of a dump with their bytes.
type Held<'a> = Vec<(&'a Stored, Vec<u8>)>;

/// An explanation of what an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The mutant's name.
    pub name: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Where the fault is known from.
    pub source: &'static str,
    /// The experts whose every byte it explains; none where it was told by the kind of the
    /// differing places alone.
    pub experts: Option<Range<usize>>,
}

impl Diagnosis {
    fn of(mutant: &Mutant, experts: Option<Range<usize>>) -> Diagnosis {
        Diagnosis {
            name: mutant.name,
            meaning: mutant.meaning,
            source: mutant.source,
            experts,
        }
    }
}

/// Every mutant that makes exactly the bytes of the dump; else the one whose padding is dirty
/// where the dump's is; else nothing, and the first difference must do.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
pub fn diagnose(
    plan: &Plan,
    layer: &Layer<'_>,
    dump: &Dump<'_>,
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    if audit.clean() {
        return Ok(Vec::new());
    }
    let mut found = exact(plan, layer, dump, audit)?;
    if found.is_empty() {
        found.extend(by_kind(audit));
    }
    Ok(found)
}

fn exact(
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
    let Some(actual) = stored(plan, dump, &experts)? else {
        return Ok(Vec::new());
    };
    let part = window(plan, &experts)?;
    let mut logical = layer.read(experts.clone())?;
    logical.x = Tensor::zeroed("x", &[0, logical.w13.shape()[2]], 32);
    let right = pack_layer(&part, &logical)?;
    if same(&right, &actual) {
        // These experts are as they should be: what is wrong is a tensor that is not there, or lies
        // in other experts, and a mutant that changes neither would fit by chance.
        return Ok(Vec::new());
    }
    let explains = |mutant: &&Mutant| {
        wrong(mutant, &part, &logical, &right).is_some_and(|packed| same(&packed, &actual))
    };
    Ok(mutant::ALL
        .iter()
        .filter(explains)
        .map(|m| Diagnosis::of(m, Some(experts.clone())))
        .collect())
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
fn stored<'a>(
    plan: &Plan,
    dump: &'a Dump<'_>,
    experts: &Range<usize>,
) -> Result<Option<Held<'a>>, AuditError> {
    let mut all = Vec::new();
    for tensor in &dump.tensors {
        let held = experts_of(plan, tensor.rank)?;
        let first = held.start..held.start + held.len().min(1);
        let Ok(map) = map(&window(plan, &first)?, tensor.role, tensor.rank) else {
            // The plan has no such tensor: no mutant makes one.
            return Ok(None);
        };
        let start = held.start.max(experts.start);
        let end = held.end.min(experts.end).max(start);
        let bytes = dump.bytes(tensor, map.dtype)?;
        if held.is_empty() || !bytes.is_multiple_of(count(held.len())) {
            return Ok(None);
        }
        let local = start - held.start..end - held.start;
        let Ok(bytes) = read(dump, tensor, &map, local, held.len()) else {
            return Ok(None);
        };
        all.push((tensor, bytes));
    }
    Ok(Some(all))
}

/// What a mutant makes of a layer; none where it changes nothing, or cannot.
fn wrong(
    mutant: &Mutant,
    plan: &Plan,
    logical: &Logical,
    right: &PackedInputs,
) -> Option<PackedInputs> {
    match mutant.stage {
        Stage::Layout(change) => pack_layer(&change(plan)?, logical).ok(),
        Stage::LayoutOfW2(change) => {
            let mut packed = pack_layer(&change(plan)?, logical).ok()?;
            for (rank, right) in packed.ranks.iter_mut().zip(&right.ranks) {
                for (role, tensor) in right.iter().filter(|(role, _)| !role.is_second()) {
                    rank.set(role, tensor.clone());
                }
            }
            Some(packed)
        }
        Stage::Bytes(change) => {
            let mut packed = right.clone();
            change(plan, &mut packed).then_some(packed)
        }
        Stage::Plan(change) => {
            let mut wrong = plan.clone();
            let changed = change(&mut wrong);
            changed.then(|| pack_layer(&wrong, logical).ok())?
        }
        Stage::Reload(_) | Stage::Output(_) => None,
    }
}

/// Whether every tensor of the dump is as packed.
fn same(packed: &PackedInputs, actual: &Held<'_>) -> bool {
    actual.iter().all(|(stored, bytes)| {
        let tensor = packed
            .ranks
            .get(stored.rank)
            .and_then(|r| r.get(stored.role));
        tensor.is_some_and(|t| t.bytes() == bytes)
    })
}

/// Dirty padding holds whatever memory held: where it lies names the fault, not what it is.
fn by_kind(audit: &Audit) -> Option<Diagnosis> {
    let dirt = [Fault::Pad, Fault::ScalePad, Fault::StoragePad];
    if audit.regions.iter().any(|r| !dirt.contains(&r.fault)) {
        return None;
    }
    let dirty = |tensor| audit.regions.iter().any(|r| r.tensor == tensor);
    let scales = audit.regions.iter().any(|r| r.fault != Fault::Pad);
    let name = match (dirty("w13"), dirty("w2"), dirty("w13_bias"), scales) {
        (true, true, false, _) => "tails-uninitialised",
        (true, false, false, false) => "w13-tail-dirty",
        (false, true, false, false) => "w2-tail-dirty",
        (false, true, true, _) => "bias-and-w2-pad-dirty",
        (false, false, true, false) => "bias-pad-dirty",
        (false, false, false, true) => "scale-pad-nan",
        _ => return None,
    };
    let mutant = mutant::ALL.iter().find(|m| m.name == name)?;
    Some(Diagnosis::of(mutant, None))
}
