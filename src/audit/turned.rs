//! Names a projection that grew along its other axis, by whatever count.
//!
//! Its size says by how much, its elements that it is so. Layer 7.

use super::AuditError;
use super::bytes;
use super::check::{code, count};
use super::diagnose::{Diagnosis, Evidence};
use super::dirt::of_mutant;
use super::files::{experts_of, window};
use super::types::{Audit, Fault};
use crate::checkpoint::{Dump, Layer, Stored};
use crate::layout::{Axis, Map, map};
use crate::plan::{Plan, Role};
use crate::terms::Storage;
use std::collections::BTreeSet;

/// The longest axis that is looked at, in sums of the layer's own two.
const GROWN_MAX: usize = 8;

/// What tensors of another size say: by the number of bytes, else by their elements too.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
pub(super) fn by_size(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    audit: &Audit,
) -> Result<Vec<Diagnosis>, AuditError> {
    let mut found: Vec<Diagnosis> = bytes::by_size(plan, dump, audit)?.into_iter().collect();
    if found.is_empty() {
        found.extend(grown((plan, layer, dump), audit)?);
    }
    Ok(found)
}

/// w2 with more rows of the share's own width, or w13 with longer rows of the share's own channels, scales
/// likewise: where that explains every tensor of another size.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
fn grown(
    (plan, layer, dump): (&Plan, &Layer<'_>, &Dump<'_>),
    audit: &Audit,
) -> Result<Option<Diagnosis>, AuditError> {
    if !audit.regions.iter().any(|r| r.fault == Fault::Size) {
        return Ok(None);
    }
    let mut all = BTreeSet::new();
    for stored in &dump.tensors {
        let experts = experts_of(plan, stored.rank)?;
        let first = experts.start..experts.start + experts.len().min(1);
        let one = map(&window(plan, &first)?, stored.role, stored.rank)?;
        let wanted = count(one.bytes()).saturating_mul(count(experts.len()));
        if dump.bytes(stored, one.dtype)? == wanted {
            continue;
        }
        if !is_grown(layer, dump, stored, &one, experts)? {
            return Ok(None);
        }
        all.insert(stored.role);
    }
    let second = |role: &Role| matches!(role, Role::W2 | Role::W2Scale);
    let (name, weight) = match all.first() {
        Some(_) if all.iter().all(second) => ("w2-padded-on-hidden", Role::W2),
        Some(_) if !all.iter().any(second) => ("w13-padded-on-hidden", Role::W13),
        _ => return Ok(None),
    };
    let found = of_mutant(name, Evidence::Elements);
    Ok(found.map(|found| bytes::among(found, &all, weight)))
}

/// Whether every expert of a tensor has its elements row by row, in rows or columns that are more than the hidden
/// axis has, and channels that are the share's own.
fn is_grown(
    layer: &Layer<'_>,
    dump: &Dump<'_>,
    stored: &Stored,
    map: &Map,
    experts: std::ops::Range<usize>,
) -> Result<bool, AuditError> {
    let first = match map.role {
        Role::W2 | Role::W2Scale => false,
        Role::W13 | Role::W13Scale => true,
        _ => return Ok(false),
    };
    let codes = usize::try_from(dump.bytes(stored, map.dtype)?).unwrap_or(0) * 8 / map.grid.bits;
    let (rows, cols) = (real(&map.rows), real(&map.cols));
    let (channels, hidden) = match first {
        true => (rows.len(), cols.len()),
        false => (cols.len(), rows.len()),
    };
    let each = codes / experts.len().max(1);
    let fits = map.grid.storage == Storage::Linear
        && channels > 0
        && each * experts.len() == codes
        && each.is_multiple_of(channels)
        && each / channels > hidden
        // A file may claim any size: an expert is held whole below.
        && each / channels <= GROWN_MAX * (hidden + channels)
        && (each * map.grid.bits).is_multiple_of(8);
    if !fits {
        return Ok(false);
    }
    let stride = if first { each / channels } else { channels };
    for (local, e) in experts.clone().enumerate() {
        let bytes = dump.read(stored, map.dtype, local..local + 1, experts.len())?;
        let Some(source) = layer.role(stored.role, e..e + 1, true)? else {
            return Ok(false);
        };
        let width = map.logical_shape()[2];
        let same = rows.iter().enumerate().all(|(n, r)| {
            cols.iter().enumerate().all(|(m, c)| {
                let at = map.grid.address(n * stride + m);
                map.grid.read(&bytes, at) == code(&source, source.bits(), r * width + c)
            })
        });
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The logical places that an axis holds, in their stored order.
fn real(axis: &Axis) -> Vec<usize> {
    let all = 0..axis.physical_len();
    all.filter_map(|n| axis.to_logical(n)).collect()
}
