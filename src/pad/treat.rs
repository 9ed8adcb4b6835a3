//! Which change each tensor of a checkpoint needs, by its name, type and shape.
//!
//! It must not read data. What it does not know below experts it refuses, so that nothing stays
//! of the old width. Layer 8.

use super::axis::Axis;
use super::change::{Change, Padding, Shaped};
use super::error::{PadError, as_format, tensor};
use super::recipe::Recipe;
use super::sizes::{Blocks, Part, index};
use crate::checkpoint::{Kind, Named, Place, Rows, codes_in, named, place_of, stored_code};
use crate::num::Dtype;
use crate::terms::{Extent, WeightFormat};
use safetensors::Dtype as Stored;
use std::collections::{BTreeMap, BTreeSet};

/// Every tensor of a checkpoint by name.
pub(super) type Tensors = BTreeMap<String, Shaped>;

/// The tensors of a checkpoint under a recipe.
pub(super) struct Treat<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) tensors: &'a Tensors,
    /// Whether fused weights fit as [experts, outputs, inputs] and as [experts, inputs, outputs], by prefix.
    pub(super) fits: BTreeMap<&'a str, (bool, bool)>,
}

/// One tensor's matrix before it grows: extents of both axes in elements, as stored.
struct Extents {
    /// Whether the first axis counts experts, and how many.
    fused: bool,
    lead: usize,
    /// Elements that a row axis and a column axis have.
    rows: u64,
    cols: u64,
    /// Whether the intermediate axis runs along the columns.
    along_cols: bool,
}

impl<'a> Treat<'a> {
    /// The change that a tensor needs.
    pub(super) fn change(&self, name: &str, shaped: &Shaped) -> Result<Change, PadError> {
        let Some(named) = named(name, self.recipe.gated) else {
            return self.elsewhere(name, shaped);
        };
        let part = match (named.shared, &self.recipe.shared) {
            (false, _) => &self.recipe.routed,
            (true, Some(part)) => part,
            (true, None) => {
                let why =
                    "the config says nothing of shared experts: no key gives their number or width";
                return Err(tensor(name, why));
            }
        };
        if !part.changes() {
            return Ok(Change::Copy);
        }
        let change = match named.is {
            None => self.beside(name, &named, part, shaped),
            Some((rows, Kind::Weight)) => self.weight(name, &named, part, rows, shaped),
            Some((rows, Kind::Scale)) => self.scale(name, &named, part, rows, shaped),
            Some((Rows::Second, Kind::Bias)) | Some((_, Kind::Global)) => Ok(Change::Copy),
            Some((rows, Kind::Bias)) => self.bias(name, &named, part, rows, shaped),
        };
        change.map(|change| match change {
            Change::Pad(p) if p.rows.is_whole() && p.cols.is_whole() => Change::Copy,
            change => change,
        })
    }

    /// The layers with experts, first those of routed and then those of shared ones, and how their weights
    /// are stored.
    pub(super) fn experts(&self) -> BTreeMap<(bool, Place<'a>), WeightFormat> {
        let mut found = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (name, shaped) in self.tensors {
            let Some(named) = named(name, self.recipe.gated) else {
                continue;
            };
            let part = match named.shared {
                false => Some(&self.recipe.routed),
                true => self.recipe.shared.as_ref(),
            };
            let (Some((_, Kind::Weight)), Some(part)) = (named.is, part) else {
                continue;
            };
            if seen.contains(named.prefix) {
                continue;
            }
            if let Ok(format) = self.format(name, &named, part, Some(shaped.dtype)) {
                seen.insert(named.prefix);
                found.insert((named.shared, place_of(named.prefix)), format);
            }
        }
        found
    }

    pub(super) fn halves(&self, rows: Rows) -> u64 {
        if rows == Rows::Both { 2 } else { 1 }
    }

    /// Rows and columns of one expert's matrix, in elements.
    pub(super) fn logical(&self, part: &Part, rows: Rows, halves: u64) -> (u64, u64) {
        match rows {
            Rows::Second => (part.hidden, part.width.from),
            _ => (halves.saturating_mul(part.width.from), part.hidden),
        }
    }

    pub(super) fn lead(
        &self,
        name: &str,
        named: &Named<'_>,
        shaped: &Shaped,
    ) -> Result<usize, PadError> {
        if !named.fused {
            return Ok(1);
        }
        let experts = index(self.recipe.experts).unwrap_or(usize::MAX);
        match shaped.shape.first() {
            Some(&first) if first == experts => Ok(first),
            _ => Err(shape(name, shaped, &format!("{experts} experts"))),
        }
    }

    /// How a weight's elements are stored: as the config says where scales lie beside it, else plain.
    pub(super) fn format(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        stored: Option<Stored>,
    ) -> Result<WeightFormat, PadError> {
        let scaled = named.beside(Kind::Scale, |n| self.tensors.contains_key(n));
        match (scaled, part.format.scale().is_some(), stored) {
            (true, true, _) => Ok(part.format),
            (true, false, _) => {
                let why = format!("scales lie beside it, but the config says {}", part.format);
                Err(super::error::format(name, why))
            }
            (false, _, Some(Stored::BF16)) => Ok(WeightFormat::Bf16),
            (false, _, Some(Stored::F16)) => Ok(WeightFormat::F16),
            (false, _, Some(Stored::F32)) => Ok(WeightFormat::F32),
            (false, _, _) => {
                let why = format!(
                    "the config says {}, but no scales lie beside it",
                    part.format
                );
                Err(super::error::format(name, why))
            }
        }
    }

    fn weight(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        rows: Rows,
        shaped: &Shaped,
    ) -> Result<Change, PadError> {
        let format = self.format(name, named, part, Some(shaped.dtype))?;
        let element = format.element();
        let codes = codes_in(element, shaped.dtype)
            .ok_or_else(|| tensor(name, format!("{} where {element} is wanted", shaped.dtype)))
            .map_err(as_format)?;
        // Two F4 elements make a byte, and shapes count elements.
        let (unit, per, dims) = match shaped.dtype {
            Stored::F4 => (1, 2, 1),
            dtype => (dtype.bitsize() / 8, codes, codes),
        };
        let extents = self.extents(name, named, part, rows, shaped, dims)?;
        let halves = self.halves(rows);
        let cols_per = u64::try_from(per).unwrap_or(u64::MAX);
        let along = if extents.along_cols { cols_per } else { 1 };
        let axis = self.grown(part, halves, along).ok_or_else(|| {
            let slot = part.width.slot;
            tensor(
                name,
                format!("a rank's {slot} channels are no whole number of stored units of {along}"),
            )
        })?;
        let other = match extents.along_cols {
            true => extents.rows,
            false => extents.cols / cols_per,
        };
        let zero = element.zero_code().unwrap_or(0);
        let fill = match element.bits() {
            4 => vec![(zero | zero << 4).to_le_bytes()[0]; unit],
            _ => vec![0; unit],
        };
        self.padding(
            name,
            shaped,
            &extents,
            axis,
            Axis::whole(size(name, other)?),
            fill,
        )
    }

    /// The intermediate axis in units of `per` elements, over the halves that a tensor holds.
    fn grown(&self, part: &Part, halves: u64, per: u64) -> Option<Axis> {
        let axis = part.width.units(per)?;
        Some(match (halves, self.recipe.interleaved) {
            (2, true) => axis.times(2),
            (halves, _) => axis.halves(index(halves)?),
        })
    }

    fn bias(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        rows: Rows,
        shaped: &Shaped,
    ) -> Result<Change, PadError> {
        let halves = self.halves(rows);
        let fill = stored_code(Dtype::F32, shaped.dtype, 0).ok_or_else(|| {
            tensor(
                name,
                format!(
                    "{} where a bias of f32, f16 or bf16 is wanted",
                    shaped.dtype
                ),
            )
        })?;
        let lead = self.lead(name, named, shaped)?;
        let rows = halves.saturating_mul(part.width.from);
        let extents = Extents {
            fused: named.fused,
            lead,
            rows,
            cols: 1,
            along_cols: false,
        };
        self.expect(name, named, shaped, (rows, 1), 1)?;
        let axis = self
            .grown(part, halves, 1)
            .expect("every width is whole elements");
        self.padding(name, shaped, &extents, axis, Axis::whole(1), fill)
    }

    fn scale(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        rows: Rows,
        shaped: &Shaped,
    ) -> Result<Change, PadError> {
        let format = self.format(name, named, part, None)?;
        let Some(grid) = format.scale() else {
            return Ok(Change::Copy);
        };
        let halves = self.halves(rows);
        let second = rows == Rows::Second;
        let along = if second { grid.cols } else { grid.rows };
        let Extent::Block(block) = along else {
            self.without_width(name, named, part, rows, shaped, grid)
                .map_err(as_format)?;
            return Ok(Change::Copy);
        };
        if halves == 2
            && block > 1
            && (self.recipe.interleaved || !part.width.from.is_multiple_of(block))
        {
            let why = format!(
                "a scale block of {block} rows would hold rows of gate and of up, of {} each",
                part.width.from
            );
            return Err(tensor(name, why));
        }
        let blocks = |block: u64| match part.blocks {
            Some(blocks) if blocks.from == block => blocks,
            _ => Blocks {
                from: block,
                to: block,
            },
        };
        let straddles = || {
            let slot = part.width.slot;
            tensor(
                name,
                format!("a rank's {slot} channels begin inside a scale block of {block}"),
            )
        };
        let axis = part.width.blocks(blocks(block)).ok_or_else(straddles)?;
        let axis = match (halves, self.recipe.interleaved) {
            (2, true) => axis.times(2),
            (halves, _) => axis.halves(size(name, halves)?),
        };
        let other = match if second { grid.rows } else { grid.cols } {
            Extent::All => Axis::whole(1),
            Extent::Block(block) => blocks(block).refined(part.hidden).ok_or_else(straddles)?,
        };
        let units = |axis: &Axis| u64::try_from(axis.from).unwrap_or(u64::MAX);
        let (r, c) = match second {
            true => (units(&other), units(&axis)),
            false => (units(&axis), units(&other)),
        };
        // A single row or column may lie the other way, whichever way round weights do.
        let rest = shaped.shape.get(usize::from(named.fused)..);
        let lies = |a: u64, b: u64| {
            index(a)
                .zip(index(b))
                .is_some_and(|(a, b)| rest == Some(&[a, b]))
        };
        let turned = match r == 1 || c == 1 {
            true => r != c && lies(c, r),
            false => self.is_turned(named),
        };
        let (r, c) = if turned { (c, r) } else { (r, c) };
        let lead = self.lead(name, named, shaped)?;
        // Scales of another grid are another format's.
        self.expect(name, named, shaped, (r, c), 1)
            .map_err(as_format)?;
        let extents = Extents {
            fused: named.fused,
            lead,
            rows: r,
            cols: c,
            along_cols: second != turned,
        };
        let code = part.scale_pad[usize::from(second)];
        let fill = stored_code(grid.dtype, shaped.dtype, code).ok_or_else(|| {
            tensor(
                name,
                format!(
                    "{} cannot hold the pad {code:#x} of {}",
                    shaped.dtype, grid.dtype
                ),
            )
        });
        let fill = fill.map_err(as_format)?;
        self.padding(name, shaped, &extents, axis, other, fill)
    }

    /// A weight's matrix, checked against the sizes.
    fn extents(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        rows: Rows,
        shaped: &Shaped,
        codes: usize,
    ) -> Result<Extents, PadError> {
        let lead = self.lead(name, named, shaped)?;
        let (out, inner) = self.logical(part, rows, self.halves(rows));
        // Codes that share bytes do so along inputs, which are last then.
        let both = named.fused && self.fits.get(named.prefix) == Some(&(true, true));
        if both && shaped.dtype.bitsize() >= 8 {
            let why = format!(
                "shape {:?}: inputs and outputs are both {out}, and nothing says which axis is which",
                shaped.shape
            );
            return Err(tensor(name, why));
        }
        let turned = self.is_turned(named);
        let (r, c) = if turned { (inner, out) } else { (out, inner) };
        self.expect(name, named, shaped, (r, c), codes)?;
        Ok(Extents {
            fused: named.fused,
            lead,
            rows: r,
            cols: c,
            along_cols: (rows == Rows::Second) != turned,
        })
    }

    /// Checks that a shape is [experts, rows, cols / codes…]; a single column may be left out, and
    /// trailing axes may be cut up.
    fn expect(
        &self,
        name: &str,
        named: &Named<'_>,
        shaped: &Shaped,
        (rows, cols): (u64, u64),
        codes: usize,
    ) -> Result<(), PadError> {
        self.lead(name, named, shaped)?;
        let rest = &shaped.shape[usize::from(named.fused)..];
        let product = |axes: &[usize]| {
            axes.iter()
                .try_fold(1_u64, |n, &a| n.checked_mul(u64::try_from(a).ok()?))
        };
        let codes = u64::try_from(codes).unwrap_or(u64::MAX);
        let units = product(rest).and_then(|n| n.checked_mul(codes));
        let first = rest.first().and_then(|&n| u64::try_from(n).ok());
        let flat = rest.len() == 1 && (rows == 1 || cols == 1);
        let fits =
            units == rows.checked_mul(cols) && units > Some(0) && (flat || first == Some(rows));
        match fits {
            true => Ok(()),
            false => Err(shape(
                name,
                shaped,
                &format!("[{rows}, {cols}] in elements"),
            )),
        }
    }

    fn padding(
        &self,
        name: &str,
        shaped: &Shaped,
        extents: &Extents,
        axis: Axis,
        other: Axis,
        fill: Vec<u8>,
    ) -> Result<Change, PadError> {
        let (rows, cols) = match extents.along_cols {
            true => (other, axis),
            false => (axis, other),
        };
        let mut sizes = shaped.shape.clone();
        let lead = usize::from(extents.fused);
        let flat = sizes.len() == lead + 1;
        for (grown, axis) in [(&rows, 0), (&cols, 1)] {
            if grown.from == grown.to {
                continue;
            }
            let axis = if flat { lead } else { lead + axis };
            // An axis that is cut up grows by its first part.
            let size = sizes[axis]
                .checked_mul(grown.to)
                .filter(|n| n.is_multiple_of(grown.from.max(1)))
                .ok_or_else(|| shape(name, shaped, "an axis that can grow"))?;
            sizes[axis] = size / grown.from.max(1);
        }
        let padding = Padding {
            lead: extents.lead,
            rows,
            cols,
            fill,
            shape: sizes,
        };
        whole(name, shaped, padding)
    }
}

/// A change whose units are exactly the bytes that there are.
pub(super) fn whole(name: &str, shaped: &Shaped, padding: Padding) -> Result<Change, PadError> {
    let units = [
        padding.lead,
        padding.rows.from,
        padding.cols.from,
        padding.unit(),
    ];
    let from = units.into_iter().try_fold(1_usize, usize::checked_mul);
    let is = from.and_then(|n| u64::try_from(n).ok()) == Some(shaped.bytes);
    if !is || padding.unit() == 0 || padding.bytes().is_none() {
        return Err(shape(name, shaped, "whole units of its axes"));
    }
    Ok(Change::Pad(Box::new(padding)))
}

fn size(name: &str, n: u64) -> Result<usize, PadError> {
    index(n).ok_or_else(|| tensor(name, format!("{n} is no index here")))
}

pub(super) fn shape(name: &str, shaped: &Shaped, wanted: &str) -> PadError {
    tensor(
        name,
        format!("{} {:?}, wanted {wanted}", shaped.dtype, shaped.shape),
    )
}
