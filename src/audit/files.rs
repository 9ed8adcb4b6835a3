//! The audit of files: one expert after the other, so that a layer of any size fits.

use super::AuditError;
use super::check::{TensorAudit, count, expect_size};
use super::inert::Inert;
use super::types::{Audit, Difference, Fault};
use crate::checkpoint::{Dump, Layer, LayerShape, Stored};
use crate::layout::{Map, map, roles};
use crate::plan::{Plan, Role};
use crate::terms::{Bias, LayerKind, Storage};
use std::ops::Range;

/// Bytes of a rank's tensor that are held at once, where it is stored row by row.
const BAND_BYTES: usize = 16 << 20;

/// What a checkpoint's layer must be like under a plan; `interleaved` says whether the checkpoint
/// stores gate and up in turn.
///
/// # Errors
/// When a size is no index here.
pub fn layer_shape(plan: &Plan, interleaved: bool) -> Result<LayerShape, AuditError> {
    let size = |what, value| usize::try_from(value).map_err(|_| AuditError::Size { what, value });
    Ok(LayerShape {
        experts: size("experts", plan.dims.e)?,
        hidden: size("hidden", plan.dims.h)?,
        intermediate: size("intermediate", plan.dims.i)?,
        gated: plan.dims.halves == 2,
        interleaved,
        weight: plan.weight,
        scale: plan.w13_scale.map(|scale| scale.dtype),
        bias: plan.bias == Bias::Both,
        shared: plan.layer == LayerKind::Shared,
    })
}

/// One tensor of one rank, of the size the plan says.
struct Job<'a> {
    stored: &'a Stored,
    /// The map of any one of its experts.
    map: Map,
    experts: Range<usize>,
}

/// Holds every byte of a dump against the layer that it was made from.
///
/// # Errors
/// When the plan describes no layout, or a file does not hold.
pub fn audit_files(plan: &Plan, layer: &Layer<'_>, dump: &Dump<'_>) -> Result<Audit, AuditError> {
    audit_files_told(plan, layer, dump, &mut |_, _| {})
}

/// [`audit_files`], telling after every part how many bytes it had, and how many there are in all.
///
/// # Errors
/// As [`audit_files`].
pub fn audit_files_told(
    plan: &Plan,
    layer: &Layer<'_>,
    dump: &Dump<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Audit, AuditError> {
    let mut audit = Audit::default();
    let mut jobs = Vec::new();
    for rank in dump.ranks() {
        let held: Vec<&Stored> = dump.tensors.iter().filter(|t| t.rank == rank).collect();
        for stored in &held {
            if !roles(plan).any(|role| role == stored.role) {
                let name = stored.role.name();
                audit.report(Difference::of_tensor(name, Some(rank), Fault::Extra));
            }
        }
        for role in roles(plan) {
            match held.iter().find(|t| t.role == role) {
                Some(stored) => jobs.extend(job(plan, dump, stored, &mut audit)?),
                None => {
                    let missing = Difference::of_tensor(role.name(), Some(rank), Fault::Missing);
                    audit.report(missing);
                }
            }
        }
    }
    let bytes = |job: &Job<'_>| count(job.map.bytes()).saturating_mul(count(job.experts.len()));
    let whole = jobs.iter().map(bytes).fold(0, u64::saturating_add);
    let last = jobs.iter().map(|job| job.experts.end).max().unwrap_or(0);
    for e in 0..last {
        for role in roles(plan) {
            let of_expert = |job: &&Job<'_>| job.stored.role == role && job.experts.contains(&e);
            if !jobs.iter().any(|job| of_expert(&job)) {
                continue;
            }
            // One role at a time: no more than one expert's largest is held, and one rank's.
            let source = layer.role(role, e..e + 1, true)?;
            let source = source.ok_or(crate::layout::LayoutError::NoTensor {
                tensor: role.name(),
            })?;
            for job in jobs.iter().filter(of_expert) {
                let packed = if source.bits() == 4 { 2 } else { 1 };
                let len = source.bytes().len() * packed;
                expect_size(role.name(), job.map.logical_bytes(), len)?;
                let local = e - job.experts.start;
                let all = job.experts.len();
                for band in bands(&job.map) {
                    let (map, rows) = (&job.map, job.map.shape()[1]);
                    let bytes = match &band {
                        None => read(dump, job.stored, map, local..local + 1, all)?,
                        Some(of) => {
                            let of = (of.clone(), rows);
                            dump.read_rows(job.stored, map.dtype, (local, all), of)?
                        }
                    };
                    let tensor_audit = TensorAudit {
                        map,
                        rank: job.stored.rank,
                        inert: Inert::under(plan, map),
                        bytes: &bytes,
                        source: Some(&source),
                        first: (local, e),
                        band,
                    };
                    tensor_audit.run(&mut audit);
                    progress(count(bytes.len()), whole);
                }
            }
        }
    }
    Ok(audit)
}

/// The rows that are read at once, where one expert's are stored one after the other and are many; else
/// none, which is all of them.
fn bands(map: &Map) -> Vec<Option<Range<usize>>> {
    let ([_, rows, cols], grid) = (map.shape(), map.grid);
    let row_by_row = grid.storage == Storage::Linear && (grid.rows, grid.cols) == (rows, cols);
    let row = (cols * grid.bits / 8).max(1);
    if !row_by_row || map.bytes() <= BAND_BYTES || !(cols * grid.bits).is_multiple_of(8) {
        return vec![None];
    }
    let each = (BAND_BYTES / row).max(1);
    let starts = (0..rows).step_by(each);
    starts
        .map(|start| Some(start..rows.min(start + each)))
        .collect()
}

/// The job of a tensor; none where its size is another one, which is reported.
fn job<'a>(
    plan: &Plan,
    dump: &Dump<'_>,
    stored: &'a Stored,
    audit: &mut Audit,
) -> Result<Option<Job<'a>>, AuditError> {
    let experts = experts_of(plan, stored.rank)?;
    let first = experts.start..experts.start + experts.len().min(1);
    let map = map(&window(plan, &first)?, stored.role, stored.rank)?;
    let wanted = count(map.bytes()).saturating_mul(count(experts.len()));
    let actual = dump.bytes(stored, map.dtype)?;
    let shared = shared(&map, actual, experts.len());
    if wanted != actual && !shared {
        audit.report(Difference {
            wanted,
            actual,
            ..Difference::of_tensor(stored.role.name(), Some(stored.rank), Fault::Size)
        });
        return Ok(None);
    }
    Ok(Some(Job {
        stored,
        map,
        experts,
    }))
}

/// Whether a tensor holds one f32 an expert where the plan has one of gate and one of up: engines
/// keep one, where the two are equal or were made so (facts/peers.md 5, ModelOpt).
fn shared(map: &Map, actual: u64, experts: usize) -> bool {
    let role = matches!(map.role, Role::W13Scale | Role::W13Global);
    role && map.bytes() == 8 && map.grid.bits == 32 && actual == 4 * count(experts)
}

/// Some experts' bytes of a tensor; a scale that gate and up share is there for each.
pub(super) fn read(
    dump: &Dump<'_>,
    stored: &Stored,
    map: &Map,
    experts: Range<usize>,
    all: usize,
) -> Result<Vec<u8>, AuditError> {
    let bytes = dump.read(stored, map.dtype, experts, all)?;
    if !shared(map, dump.bytes(stored, map.dtype)?, all) {
        return Ok(bytes);
    }
    let (values, _) = bytes.as_chunks::<4>();
    Ok(values.iter().flat_map(|v| v.repeat(2)).collect())
}

/// The experts that a rank holds.
pub(super) fn experts_of(plan: &Plan, rank: usize) -> Result<Range<usize>, AuditError> {
    let share = plan
        .ranks
        .get(rank)
        .ok_or(crate::layout::LayoutError::NoRank {
            rank,
            ranks: plan.ranks.len(),
        })?;
    let size = |value| {
        usize::try_from(value).map_err(|_| AuditError::Size {
            what: "experts",
            value,
        })
    };
    let start = size(share.expert_start)?;
    Ok(start..start + size(share.expert_len)?)
}

/// The plan of some of its experts, and of no token.
pub(super) fn window(plan: &Plan, experts: &Range<usize>) -> Result<Plan, AuditError> {
    let mut part = plan.clone();
    part.dims.t = 0;
    part.tokens_padded = 0;
    part.dims.e = count(experts.len());
    for rank in 0..part.ranks.len() {
        let held = experts_of(plan, rank)?;
        let start = held.start.max(experts.start);
        let end = held.end.min(experts.end).max(start);
        let share = &mut part.ranks[rank];
        share.expert_len = count(end - start);
        share.expert_start = match end > start {
            true => count(start - experts.start),
            false => 0,
        };
    }
    Ok(part)
}

/// Bytes that one expert takes: logical, and stored on all ranks, whose buffers are of one size.
pub(super) fn expert_bytes(plan: &Plan) -> Result<u64, AuditError> {
    let held = (0..plan.ranks.len()).find(|&rank| plan.ranks[rank].expert_len > 0);
    let rank = held.unwrap_or(0);
    let first = experts_of(plan, rank)?.start;
    let one = window(plan, &(first..first + 1))?;
    let mut bytes = 0_u64;
    for role in roles(plan) {
        let map = map(&one, role, rank)?;
        let stored = count(map.bytes()).saturating_mul(count(plan.ranks.len()));
        bytes = bytes.saturating_add(stored.saturating_add(count(map.logical_bytes())));
    }
    Ok(bytes)
}
