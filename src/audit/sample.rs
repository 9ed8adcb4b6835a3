//! What of a large expert a name is looked for in: the first and the last part of the hidden axis, of
//! whole tiles and scale blocks, with every channel.
//!
//! Faults of halves, order, ranks, scales and padding are along the channels, so that they are the same
//! in a part of the hidden axis; what moves elements along the whole of it is not seen. It must not name
//! faults. Layer 7.

use super::AuditError;
use super::files::{expert_bytes, experts_of, read, window};
use crate::checkpoint::{Dump, Layer, Stored};
use crate::layout::{Grid, Map, map, roles};
use crate::plan::{Plan, Role, ScalePlan};
use crate::tensor::{Logical, Tensor};
use std::ops::Range;

/// Bytes of one expert, logical and of all ranks, from which on a part is looked at.
const WHOLE_MAX: u64 = 32 << 20;
/// The same of the part, where the hidden axis can be cut so short.
const PART_BYTES: u64 = 12 << 20;
/// Hidden units that are kept at each end, at least.
const KEPT_MIN: u64 = 64;

/// The part: units of the hidden axis up to `head`, and those after the next `cut`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    head: u64,
    cut: u64,
    hidden: u64,
}

/// Where the hidden axis runs in a tensor, and how many of its units share an element.
enum Along {
    Rows(u64),
    Cols(u64),
    Nowhere,
}

impl Sample {
    /// Everything where an expert is small, or its hidden axis too short to be cut.
    pub(super) fn of(plan: &Plan) -> Result<Sample, AuditError> {
        Sample::within(plan, WHOLE_MAX, PART_BYTES)
    }

    /// Everything of an expert that takes at most `whole` bytes, logical and on all ranks; of a larger one a
    /// part of about `part` bytes.
    ///
    /// # Errors
    /// When the plan describes no layout.
    pub fn within(plan: &Plan, whole: u64, part: u64) -> Result<Sample, AuditError> {
        let hidden = plan.dims.h;
        let all = Sample {
            head: hidden,
            cut: 0,
            hidden,
        };
        let bytes = expert_bytes(plan)?;
        if bytes <= whole {
            return Ok(all);
        }
        let Some(unit) = unit(plan)? else {
            return Ok(all);
        };
        let fit = part / 2 / (bytes / hidden.max(1)).max(1) / unit;
        let head = fit.max(1).saturating_mul(unit);
        let cut = hidden.saturating_sub(head.saturating_mul(2)) / unit * unit;
        Ok(Sample {
            head: if cut == 0 { hidden } else { head },
            cut,
            hidden,
        })
    }

    /// Hidden units that are looked at; none where that is all.
    pub fn hidden(&self) -> Option<u64> {
        (self.cut > 0).then_some(self.hidden - self.cut)
    }

    /// One expert's tensor of a plan's role, of the checkpoint's blocks, cut to the part.
    pub fn narrow(&self, plan: &Plan, role: Role, tensor: &Tensor) -> Tensor {
        let source = |s: &ScalePlan| (s.row_block_source, s.col_block_source);
        self.narrowed(&along(plan, role, source), tensor)
    }

    /// What was looked at, where that is not everything.
    pub fn told(&self) -> String {
        if self.cut == 0 {
            return String::new();
        }
        let (head, tail) = (self.head - 1, self.head + self.cut);
        let last = self.hidden - 1;
        format!("all channels of hidden units 0 to {head} and {tail} to {last}")
    }

    /// The plan of the part.
    pub(super) fn plan(&self, plan: &Plan) -> Plan {
        let cut = self.cut;
        let mut part = plan.clone();
        part.dims.h -= cut;
        part.hidden_padded -= cut;
        if let Some(s) = &mut part.w13_scale
            && s.col_block > 0
        {
            s.cols_logical -= cut / s.col_block_source.max(1);
            s.cols_padded -= cut / s.col_block;
            s.cols_stored -= cut / s.col_block;
        }
        if let Some(s) = &mut part.w2_scale
            && s.row_block > 0
        {
            s.rows_logical -= cut / s.row_block_source.max(1);
            s.rows_padded -= cut / s.row_block;
            s.rows_stored -= cut / s.row_block;
        }
        part
    }

    /// The layer's tensors of some experts, cut to the part.
    pub(super) fn logical(
        &self,
        plan: &Plan,
        layer: &Layer<'_>,
        experts: Range<usize>,
    ) -> Result<Logical, AuditError> {
        let mut logical = match self.cut {
            0 => layer.read(experts)?,
            _ => layer.logical(|role| self.cut_tensor(plan, layer, role, &experts))?,
        };
        logical.x = Tensor::zeroed("x", &[0, logical.w13.shape()[2]], 32);
        Ok(logical)
    }

    /// One tensor of some experts, cut to the part: read expert by expert, since whole ones are large.
    fn cut_tensor(
        &self,
        plan: &Plan,
        layer: &Layer<'_>,
        role: Role,
        experts: &Range<usize>,
    ) -> Result<Option<Tensor>, AuditError> {
        let source = |s: &ScalePlan| (s.row_block_source, s.col_block_source);
        let along = along(plan, role, source);
        let mut parts = Vec::new();
        for e in experts.clone() {
            let tensor = layer.role(role, e..e + 1, true)?;
            parts.extend(tensor.map(|tensor| self.narrowed(&along, &tensor)));
        }
        Ok(Some(joined(role, &parts)))
    }

    /// Some of a rank's experts in a dump, counted among its own, cut to the part; none where the file
    /// has another size, and no bytes where that is seen in the part alone.
    pub(super) fn held(
        &self,
        plan: &Plan,
        dump: &Dump<'_>,
        stored: &Stored,
        local: Range<usize>,
    ) -> Result<Option<Vec<u8>>, AuditError> {
        let own = experts_of(plan, stored.rank)?;
        let first = own.start..own.start + own.len().min(1);
        let full = map(&window(plan, &first)?, stored.role, stored.rank)?;
        if self.cut == 0 {
            return Ok(read(dump, stored, &full, local, own.len()).ok());
        }
        let part = map(&window(&self.plan(plan), &first)?, stored.role, stored.rank)?;
        let along = along(plan, stored.role, |s| (s.row_block, s.col_block));
        let mut all = Vec::new();
        for e in local {
            let Ok(bytes) = read(dump, stored, &full, e..e + 1, own.len()) else {
                return Ok(None);
            };
            if bytes.len() != full.bytes() {
                return Ok(Some(Vec::new()));
            }
            all.extend(self.gathered(&along, (&full, &part), &bytes));
        }
        Ok(Some(all))
    }

    /// The place in the whole axis of one in the part's.
    fn place(&self, at: usize, per: u64) -> usize {
        let of = |n: u64| usize::try_from(n / per.max(1)).unwrap_or(usize::MAX);
        if at < of(self.head) {
            at
        } else {
            at + of(self.cut)
        }
    }

    fn places(&self, along: &Along, rows: usize, cols: usize) -> (Vec<usize>, Vec<usize>) {
        let of = |len: usize, per: Option<u64>| -> Vec<usize> {
            let place = |n| per.map_or(n, |per| self.place(n, per));
            (0..len).map(place).collect()
        };
        match *along {
            Along::Rows(per) => (of(rows, Some(per)), of(cols, None)),
            Along::Cols(per) => (of(rows, None), of(cols, Some(per))),
            Along::Nowhere => (of(rows, None), of(cols, None)),
        }
    }

    /// One expert's stored bytes as a buffer of the part's size would hold them.
    fn gathered(&self, along: &Along, (full, part): (&Map, &Map), bytes: &[u8]) -> Vec<u8> {
        let (from, to): (&Grid, &Grid) = (&full.grid, &part.grid);
        let (rows, cols) = self.places(along, to.rows, to.cols);
        let mut new = vec![0; part.bytes()];
        for (r, &from_r) in rows.iter().enumerate() {
            for (c, &from_c) in cols.iter().enumerate() {
                let code = from.read(bytes, from.address(from.index(0, from_r, from_c)));
                to.write(&mut new, to.address(to.index(0, r, c)), code);
            }
        }
        new
    }

    /// One expert's logical tensor, one code a byte at least.
    fn narrowed(&self, along: &Along, tensor: &Tensor) -> Tensor {
        let [_, rows, cols] = [0, 1, 2].map(|n| tensor.shape().get(n).copied().unwrap_or(1));
        let cut = |per: u64| usize::try_from(self.cut / per.max(1)).unwrap_or(usize::MAX);
        let (r, c) = match *along {
            Along::Rows(per) => (rows.saturating_sub(cut(per)), cols),
            Along::Cols(per) => (rows, cols.saturating_sub(cut(per))),
            Along::Nowhere => (rows, cols),
        };
        let wide = tensor.bits().max(8) / 8;
        let mut new = Tensor::zeroed(tensor.name(), &[1, r, c], wide * 8);
        let (from_r, from_c) = self.places(along, r, c);
        let places = from_r
            .iter()
            .flat_map(|r| from_c.iter().map(move |c| r * cols + c));
        let bytes = tensor.bytes();
        for (at, target) in places.zip(new.bytes_mut().chunks_exact_mut(wide)) {
            match tensor.bits() {
                4 => target[0] = bytes[at / 2] >> (4 * (at % 2)) & 0xf,
                _ => target.copy_from_slice(&bytes[at * wide..(at + 1) * wide]),
            }
        }
        new
    }
}

/// Tensors of one expert each as one.
fn joined(role: Role, parts: &[Tensor]) -> Tensor {
    let shape = parts
        .first()
        .map_or([0, 0], |t| [t.shape()[1], t.shape()[2]]);
    let bits = parts.first().map_or(8, Tensor::bits);
    let mut all = Tensor::zeroed(role.name(), &[parts.len(), shape[0], shape[1]], bits);
    let mut at = 0;
    for part in parts {
        let bytes = part.bytes();
        all.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    all
}

/// `blocks` says which blocks of a scale grid are meant: those of the checkpoint or of the rank.
fn along(plan: &Plan, role: Role, blocks: impl Fn(&ScalePlan) -> (u64, u64)) -> Along {
    let scale = |s: &Option<ScalePlan>| s.as_ref().map_or((0, 0), &blocks);
    match role {
        Role::W13 => Along::Cols(1),
        Role::W2 | Role::W2Bias => Along::Rows(1),
        Role::W13Scale => match scale(&plan.w13_scale).1 {
            0 => Along::Nowhere,
            per => Along::Cols(per),
        },
        Role::W2Scale => match scale(&plan.w2_scale).0 {
            0 => Along::Nowhere,
            per => Along::Rows(per),
        },
        Role::W13Bias | Role::W13Global | Role::W2Global => Along::Nowhere,
    }
}

/// Hidden units that are whole in every tile and block of every tensor; none where that is no number.
fn unit(plan: &Plan) -> Result<Option<u64>, AuditError> {
    let Some(rank) = (0..plan.ranks.len()).find(|&n| plan.ranks[n].expert_len > 0) else {
        return Ok(None);
    };
    let first = experts_of(plan, rank)?.start;
    let one = window(plan, &(first..first + 1))?;
    let mut unit = Some(2);
    let mut also = |n: u64| unit = unit.and_then(|unit| lcm(unit, n.max(1)));
    also(plan.weight_storage.row_block());
    for role in roles(plan) {
        let map = map(&one, role, rank)?;
        let tile = map.grid.tile();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        for blocks in [
            |s: &ScalePlan| (s.row_block, s.col_block),
            |s: &ScalePlan| (s.row_block_source, s.col_block_source),
        ] {
            match along(plan, role, blocks) {
                Along::Rows(per) => also(count(tile.0).saturating_mul(per)),
                Along::Cols(per) => also(count(tile.1).saturating_mul(per)),
                Along::Nowhere => {}
            }
        }
    }
    Ok(unit.map(|unit| unit * KEPT_MIN.div_ceil(unit)))
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}
