//! The map of one tensor on one rank, composed from its axes.

use super::axis::{At, Axis, Halves};
use super::error::LayoutError;
use super::grid::{Address, Grid};
use crate::num::Dtype;
use crate::plan::{Plan, Role, ScalePlan};
use crate::terms::{Bias, Place, Storage};

/// Most stored elements of one tensor that a map indexes: above any real layer, below overflow.
const MAX_ELEMENTS: u64 = 1 << 40;
/// Most experts, rows of one tensor, or elements of a cut axis: an interleaved map holds one run
/// a row.
const MAX_ROWS: u64 = 1 << 22;

/// Where every element of one tensor lies on one rank, and which one lies where.
///
/// Logical coordinates are (expert, row, column) in the whole unpadded, unsharded tensor with
/// gate rows first; vectors are columns of one element a row. Physical coordinates count the
/// padded tensor in the same order, before its storage layout.
///
/// One-scale axes and second-level scales keep gate first whatever the row order: the stacks
/// index them by projection, not by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Which tensor.
    pub role: Role,
    /// Element type.
    pub dtype: Dtype,
    /// Experts.
    pub experts: Axis,
    /// Rows.
    pub rows: Axis,
    /// Columns.
    pub cols: Axis,
    /// Storage.
    pub grid: Grid,
}

impl Map {
    /// Experts, rows and columns on the rank, padding included.
    pub fn shape(&self) -> [usize; 3] {
        [
            self.experts.physical_len(),
            self.rows.physical_len(),
            self.cols.physical_len(),
        ]
    }

    /// Experts, rows and columns of the whole logical tensor.
    pub fn logical_shape(&self) -> [usize; 3] {
        [
            self.experts.logical_len(),
            self.rows.logical_len(),
            self.cols.logical_len(),
        ]
    }

    /// Shape of the packed tensor: the stored grid, less the unused nibble of an odd row.
    pub fn stored_shape(&self) -> [usize; 3] {
        let cols = if self.grid.bits == 4 && self.grid.storage == Storage::Linear {
            self.cols.physical_len()
        } else {
            self.grid.cols
        };
        [self.experts.physical_len(), self.grid.rows, cols]
    }

    /// Bytes of the packed tensor.
    pub fn bytes(&self) -> usize {
        self.experts.physical_len() * self.grid.rows * self.grid.cols * self.grid.bits / 8
    }

    /// The code that packing writes where only the storage layout adds elements: the layout's
    /// own, or 0 where the stack leaves memory as it was.
    pub fn storage_pad(&self) -> u32 {
        self.grid.storage.pad_code().unwrap_or(0)
    }

    /// Bytes of the whole logical tensor: one byte per code of less than 8 bits.
    pub fn logical_bytes(&self) -> usize {
        self.logical_shape().iter().product::<usize>() * self.grid.bits.max(8) / 8
    }

    /// Where a logical element lies; its first place when it is repeated, `None` if it is not here.
    pub fn physical(&self, e: usize, r: usize, c: usize) -> Option<Address> {
        Some(self.address(
            self.experts.to_physical(e)?,
            self.rows.to_physical(r)?,
            self.cols.to_physical(c)?,
        ))
    }

    /// Which logical element lies at a physical position; `None` for padding.
    pub fn logical(&self, e: usize, r: usize, c: usize) -> Option<(usize, usize, usize)> {
        Some((
            self.experts.to_logical(e)?,
            self.rows.to_logical(r)?,
            self.cols.to_logical(c)?,
        ))
    }

    /// Where a physical position lies in storage.
    pub fn address(&self, e: usize, r: usize, c: usize) -> Address {
        self.grid.address(self.grid.index(e, r, c))
    }
}

/// The tensors a plan has, in the order of tables.
pub fn roles(plan: &Plan) -> impl Iterator<Item = Role> {
    Role::ALL.into_iter().filter(move |role| match role {
        Role::W13 | Role::W2 => true,
        Role::W13Scale => plan.w13_scale.is_some(),
        Role::W2Scale => plan.w2_scale.is_some(),
        Role::W13Global | Role::W2Global => plan.weight.has_global_scale(),
        Role::W13Bias | Role::W2Bias => plan.bias == Bias::Both,
    })
}

/// The map of one tensor on one rank.
///
/// The bias of w2 belongs to the first rank of each expert-parallel group only; elsewhere its
/// buffer is all padding, so that a sum over ranks adds it once (facts/upstream-padding.md
/// 3.1, V-12).
///
/// # Errors
/// When the plan has no such tensor or rank, or describes no layout: see [`LayoutError`].
pub fn map(plan: &Plan, role: Role, rank: usize) -> Result<Map, LayoutError> {
    let sizes = Sizes::new(plan, role, rank)?;
    let element = plan.weight.element();
    let unit = || Axis::whole(1);
    match role {
        Role::W13 => {
            let rows = sizes.weight_rows(plan)?;
            let cols = sizes.hidden("columns", plan.hidden_padded)?;
            sizes.weights(plan, element, rows, cols)
        }
        Role::W2 => {
            let rows = sizes.hidden("rows", plan.hidden_padded)?;
            let at = sizes.at("columns");
            let cols = sizes.channels(at)?.pad(at, size(plan.width_padded, at)?)?;
            sizes.weights(plan, element, rows, cols)
        }
        Role::W13Scale => sizes.w13_scale(plan, scale_plan(plan.w13_scale, role)?),
        Role::W2Scale => sizes.w2_scale(plan, scale_plan(plan.w2_scale, role)?),
        Role::W13Global if plan.weight.has_global_scale() => {
            let rows = Axis::whole(sizes.halves);
            sizes.plain(plan, Dtype::F32, rows, unit())
        }
        Role::W2Global if plan.weight.has_global_scale() => {
            sizes.plain(plan, Dtype::F32, unit(), unit())
        }
        Role::W13Bias if plan.bias == Bias::Both => {
            let rows = sizes.shuffled(plan, sizes.weight_rows(plan)?)?;
            sizes.plain(plan, Dtype::F32, rows, unit())
        }
        Role::W2Bias if plan.bias == Bias::Both => {
            let mut rows = sizes.hidden("rows", plan.hidden_padded)?;
            if !sizes.first_of_group {
                rows = rows.emptied();
            }
            let rows = sizes.shuffled(plan, rows)?;
            sizes.plain(plan, Dtype::F32, rows, unit())
        }
        _ => Err(LayoutError::NoTensor {
            tensor: role.name(),
        }),
    }
}

fn scale_plan(scale: Option<ScalePlan>, role: Role) -> Result<ScalePlan, LayoutError> {
    scale.ok_or(LayoutError::NoTensor {
        tensor: role.name(),
    })
}

/// A size of the plan, as an index.
fn size(value: u64, at: At) -> Result<usize, LayoutError> {
    usize::try_from(value)
        .ok()
        .filter(|_| value <= MAX_ELEMENTS)
        .ok_or(LayoutError::TooLarge {
            tensor: at.tensor,
            value,
            unit: at.axis,
            limit: MAX_ELEMENTS,
        })
}

/// The plan's numbers that all tensors of a rank share.
struct Sizes {
    role: Role,
    hidden: usize,
    intermediate: usize,
    halves: usize,
    start: usize,
    len: usize,
    experts: Axis,
    first_of_group: bool,
}

impl Sizes {
    fn new(plan: &Plan, role: Role, rank: usize) -> Result<Sizes, LayoutError> {
        let share = *plan.ranks.get(rank).ok_or(LayoutError::NoRank {
            rank,
            ranks: plan.ranks.len(),
        })?;
        let at = |axis| At {
            tensor: role.name(),
            axis,
        };
        let group = |r: &crate::plan::RankPlan| (r.expert_start, r.expert_len);
        let first = plan.ranks.iter().position(|r| group(r) == group(&share));
        for (axis, value) in [
            ("experts", plan.dims.e),
            ("hidden", plan.dims.h),
            ("intermediate", share.len),
        ] {
            if value > MAX_ROWS {
                return Err(LayoutError::TooLarge {
                    tensor: role.name(),
                    value,
                    unit: axis,
                    limit: MAX_ROWS,
                });
            }
        }
        Ok(Sizes {
            role,
            hidden: size(plan.dims.h, at("hidden"))?,
            intermediate: size(plan.dims.i, at("intermediate"))?,
            halves: if plan.dims.halves == 2 { 2 } else { 1 },
            start: size(share.start, at("intermediate"))?,
            len: size(share.len, at("intermediate"))?,
            experts: Axis::range(
                at("experts"),
                size(plan.dims.e, at("experts"))?,
                size(share.expert_start, at("experts"))?,
                size(share.expert_len, at("experts"))?,
            )?,
            first_of_group: first == Some(rank),
        })
    }

    fn at(&self, axis: &'static str) -> At {
        At {
            tensor: self.role.name(),
            axis,
        }
    }

    /// The hidden axis with its pad.
    fn hidden(&self, axis: &'static str, padded: u64) -> Result<Axis, LayoutError> {
        let at = self.at(axis);
        Axis::whole(self.hidden).pad(at, size(padded, at)?)
    }

    /// The rank's range of the intermediate axis.
    fn channels(&self, at: At) -> Result<Axis, LayoutError> {
        Axis::range(at, self.intermediate, self.start, self.len)
    }

    /// The rows of w13: range, then halves or groups, then pad.
    fn weight_rows(&self, plan: &Plan) -> Result<Axis, LayoutError> {
        let at = self.at("rows");
        self.channels(at)?
            .gated(at, self.halves_of(plan, 1)?)?
            .pad(at, size(plan.w13_rows, at)?)
    }

    /// How the halves of w13 lie when `block` rows are one position (0: all of them).
    fn halves_of(&self, plan: &Plan, block: usize) -> Result<Halves, LayoutError> {
        let at = self.at("rows");
        let interleave = size(plan.order.interleave(), at)?;
        let mut halves = Halves {
            count: self.halves,
            up_first: plan.order.up_first(),
            interleave,
            second: 1,
        };
        if self.halves < 2 {
            return Ok(halves);
        }
        if block == 0 {
            halves.up_first = false;
            halves.interleave = 0;
            return Ok(halves);
        }
        let padded = size(plan.width_padded, at)?;
        if interleave > 0 && block > 1 {
            return Err(LayoutError::Unsupported {
                tensor: at.tensor,
                what: "row blocks of more than one row need whole halves, not interleaved rows",
            });
        }
        if interleave > 0 && !padded.is_multiple_of(interleave) {
            return Err(LayoutError::Group {
                tensor: at.tensor,
                axis: "rows of a half",
                value: padded,
                granule: interleave,
            });
        }
        let rows = match plan.place {
            Place::PerHalf => padded,
            Place::Tail => size(plan.width, at)?,
        };
        halves.second = rows.div_ceil(block);
        Ok(halves)
    }

    fn w13_scale(self, plan: &Plan, s: ScalePlan) -> Result<Map, LayoutError> {
        let (at_rows, at_cols) = (self.at("rows"), self.at("columns"));
        let block = size(s.row_block, at_rows)?;
        let rows = self
            .channels(at_rows)?
            .blocks(at_rows, block, size(s.row_block_source, at_rows)?)?
            .gated(at_rows, self.halves_of(plan, block)?)?;
        let cols = Axis::whole(self.hidden).blocks(
            at_cols,
            size(s.col_block, at_cols)?,
            size(s.col_block_source, at_cols)?,
        )?;
        self.scale(plan, s, rows, cols)
    }

    fn w2_scale(self, plan: &Plan, s: ScalePlan) -> Result<Map, LayoutError> {
        let (at_rows, at_cols) = (self.at("rows"), self.at("columns"));
        let rows = Axis::whole(self.hidden).blocks(
            at_rows,
            size(s.row_block, at_rows)?,
            size(s.row_block_source, at_rows)?,
        )?;
        let cols = self.channels(at_cols)?.blocks(
            at_cols,
            size(s.col_block, at_cols)?,
            size(s.col_block_source, at_cols)?,
        )?;
        self.scale(plan, s, rows, cols)
    }

    /// A scale grid: pads, checks against the plan's logical grid, storage layout.
    fn scale(self, plan: &Plan, s: ScalePlan, rows: Axis, cols: Axis) -> Result<Map, LayoutError> {
        let (at_rows, at_cols) = (self.at("rows"), self.at("columns"));
        for (what, wanted, axis) in [
            ("logical rows", s.rows_logical, &rows),
            ("logical columns", s.cols_logical, &cols),
        ] {
            let wanted = size(wanted, at_rows)?;
            if wanted != axis.logical_len() {
                return Err(LayoutError::Size {
                    tensor: at_rows.tensor,
                    what,
                    wanted,
                    actual: axis.logical_len(),
                });
            }
        }
        let mut rows = rows.pad(at_rows, size(s.rows_padded, at_rows)?)?;
        // A scale of one row stands where its row stands.
        if s.row_block == 1 {
            rows = self.shuffled(plan, rows)?;
        }
        let cols = cols.pad(at_cols, size(s.cols_padded, at_cols)?)?;
        let grid = Grid {
            rows: stored(at_rows, &rows, s.rows_stored)?,
            cols: stored(at_cols, &cols, s.cols_stored)?,
            bits: bits_of(s.dtype),
            nibble: plan.nibble,
            storage: plan.storage.of(s.dtype),
        };
        grid.whole_tiles(self.role.name())?;
        self.finish(s.dtype, rows, cols, grid)
    }

    /// A weight tensor in its storage layout.
    fn weights(
        self,
        plan: &Plan,
        dtype: Dtype,
        rows: Axis,
        cols: Axis,
    ) -> Result<Map, LayoutError> {
        let rows = self.shuffled(plan, rows)?;
        let storage = match plan.weight_storage {
            // These move whole rows: done, by the axis.
            Storage::Rows16 | Storage::Rows32 => Storage::Linear,
            storage => storage.of(dtype),
        };
        let plain = Grid::row_major(bits_of(dtype), plan.nibble, &rows, &cols);
        let mut grid = Grid { storage, ..plain };
        if storage.tile() != (1, 1) {
            let (row_tile, col_tile) = grid.tile();
            grid.rows = grid.rows.next_multiple_of(row_tile);
            grid.cols = grid.cols.next_multiple_of(col_tile);
        }
        grid.whole_tiles(self.role.name())?;
        self.finish(dtype, rows, cols, grid)
    }

    /// Rows in the order of the weights' storage layout.
    fn shuffled(&self, plan: &Plan, rows: Axis) -> Result<Axis, LayoutError> {
        let at = self.at("rows");
        match size(plan.weight_storage.row_block(), at)? {
            1 => Ok(rows),
            block => rows.shuffled(at, block),
        }
    }

    /// A row-major tensor whose padded grid is its stored grid.
    fn plain(self, plan: &Plan, dtype: Dtype, rows: Axis, cols: Axis) -> Result<Map, LayoutError> {
        let grid = Grid::row_major(bits_of(dtype), plan.nibble, &rows, &cols);
        self.finish(dtype, rows, cols, grid)
    }

    fn finish(self, dtype: Dtype, rows: Axis, cols: Axis, grid: Grid) -> Result<Map, LayoutError> {
        let too_large = |value: u64, unit, limit| LayoutError::TooLarge {
            tensor: self.role.name(),
            value,
            unit,
            limit,
        };
        let row_count = count(&[grid.rows]);
        if row_count > MAX_ROWS {
            return Err(too_large(row_count, "rows", MAX_ROWS));
        }
        // Logical tensors are indexed too.
        for elements in [
            count(&[self.experts.physical_len(), grid.rows, grid.cols]),
            count(&[
                self.experts.logical_len(),
                rows.logical_len(),
                cols.logical_len(),
            ]),
        ] {
            if elements > MAX_ELEMENTS {
                return Err(too_large(elements, "elements", MAX_ELEMENTS));
            }
        }
        Ok(Map {
            role: self.role,
            dtype,
            experts: self.experts,
            rows,
            cols,
            grid,
        })
    }
}

/// A product of sizes, saturating.
fn count(factors: &[usize]) -> u64 {
    factors
        .iter()
        .map(|&f| u64::try_from(f).unwrap_or(u64::MAX))
        .fold(1, u64::saturating_mul)
}

fn stored(at: At, padded: &Axis, stored: u64) -> Result<usize, LayoutError> {
    let has = size(stored, at)?;
    if has < padded.physical_len() {
        return Err(LayoutError::TooSmall {
            tensor: at.tensor,
            axis: at.axis,
            needed: padded.physical_len(),
            has,
        });
    }
    Ok(has)
}

fn bits_of(dtype: Dtype) -> usize {
    usize::try_from(dtype.bits()).expect("an element has at most 32 bits")
}
