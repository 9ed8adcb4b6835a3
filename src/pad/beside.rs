//! Which change a tensor needs that is no expert's weight, scale or bias, or a scale without a width.
//!
//! It must not read data. Layer 8.

use super::axis::Axis;
use super::change::{Change, Padding, Shaped};
use super::error::{PadError, format, tensor};
use super::sizes::{Blocks, Part};
use super::treat::{Treat, shape, whole};
use crate::checkpoint::{Kind, Named, Rows, changes_meaning, codes_in, named};
use crate::num::Dtype;
use crate::terms::{Extent, ScaleGrid, WeightFormat};
use safetensors::Dtype as Stored;
use std::collections::BTreeMap;

/// Suffix of compressed-tensors' record of a packed weight's shape.
const WEIGHT_SHAPE: &str = ".weight_shape";

impl Treat<'_> {
    /// A tensor below experts that is no weight, scale or bias.
    pub(super) fn beside(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        shaped: &Shaped,
    ) -> Result<Change, PadError> {
        if let Some(stem) = name.strip_suffix(WEIGHT_SHAPE) {
            return self.numbers(name, stem, part, shaped);
        }
        // One number a projection or expert has no width.
        let most = self.recipe.experts.saturating_mul(2);
        let count = shaped
            .shape
            .iter()
            .try_fold(1_u64, |n, &a| n.checked_mul(u64::try_from(a).ok()?));
        let most = if named.fused { most } else { 1 };
        let input = ["input_scale", "input_global_scale", "input_amax"];
        if input.iter().any(|word| name.ends_with(word)) && count.is_some_and(|n| n <= most) {
            return Ok(Change::Copy);
        }
        let awq = [".qweight", ".qzeros", ".scales"];
        if awq.iter().any(|s| name.ends_with(s)) {
            let why = "weights as AWQ and GPTQ store them (qweight, qzeros, g_idx) are not padded";
            return Err(format(name, why));
        }
        if changes_meaning(name) {
            return Err(format(
                name,
                "zero points and permuted groups are not padded",
            ));
        }
        let (dtype, shape) = (shaped.dtype, &shaped.shape);
        let why = format!(
            "no known tensor of an expert: whether {dtype} {shape:?} must grow is not known"
        );
        Err(tensor(name, why))
    }

    /// A weight that is stored otherwise than most of its layer's, if one is.
    pub(super) fn mixed(&self) -> Option<PadError> {
        let mut all: BTreeMap<&str, BTreeMap<WeightFormat, (usize, &str)>> = BTreeMap::new();
        for (name, shaped) in self.tensors {
            let Some(named) = named(name, self.recipe.gated).filter(|n| !n.shared) else {
                continue;
            };
            if !matches!(named.is, Some((_, Kind::Weight))) {
                continue;
            }
            let part = &self.recipe.routed;
            if let Ok(format) = self.format(name, &named, part, Some(shaped.dtype)) {
                let of_layer = all.entry(named.prefix).or_default();
                of_layer.entry(format).or_insert((0, name)).0 += 1;
            }
        }
        let formats = all.into_values().find(|formats| formats.len() > 1)?;
        // Of two that are as many, the one that the config does not say.
        let said = |format: &WeightFormat| *format == self.recipe.routed.format;
        let key = |(format, (many, _)): &(&WeightFormat, &(usize, &str))| (*many, said(format));
        let (odd, (_, name)) = formats.iter().min_by_key(key)?;
        let (most, _) = formats.iter().max_by_key(key)?;
        let why = format!(
            "it is stored as {odd}, and most weights of its layer as {most}: one layer in two formats is not padded"
        );
        Some(tensor(name, why))
    }

    /// Checks scales that the intermediate axis shares: those of another grid would keep the old width.
    pub(super) fn without_width(
        &self,
        name: &str,
        named: &Named<'_>,
        part: &Part,
        rows: Rows,
        shaped: &Shaped,
        grid: ScaleGrid,
    ) -> Result<(), PadError> {
        let halves = self.halves(rows);
        let (out, inner) = self.logical(part, rows, 1);
        let blocks = |len: u64, extent| match extent {
            Extent::All => 1,
            Extent::Block(n) => len.div_ceil(n),
        };
        let (r, c) = (blocks(out, grid.rows), blocks(inner, grid.cols));
        let lead = u64::try_from(self.lead(name, named, shaped)?).unwrap_or(u64::MAX);
        let count = shaped
            .shape
            .iter()
            .try_fold(1_u64, |n, &a| n.checked_mul(u64::try_from(a).ok()?));
        let of = |halves: u64| {
            let all = [lead, halves, r, c];
            all.into_iter().try_fold(1, u64::checked_mul)
        };
        // One scale may stand for gate and up.
        match count.is_some() && (count == of(halves) || r == 1 && count == of(1)) {
            true => Ok(()),
            false => {
                let r = halves.saturating_mul(r);
                let wanted = format!("[{r}, {c}] scales of {}", part.format);
                Err(shape(name, shaped, &wanted))
            }
        }
    }

    /// The recorded shape of a packed weight: two integers.
    fn numbers(
        &self,
        name: &str,
        stem: &str,
        part: &Part,
        shaped: &Shaped,
    ) -> Result<Change, PadError> {
        let weight = format!("{stem}.weight_packed");
        let is = named(&weight, self.recipe.gated).and_then(|n| n.is);
        let Some((rows, _)) = is.filter(|_| self.tensors.contains_key(&weight)) else {
            let why =
                format!("no packed weight `{weight}` lies beside it, whose shape it would say");
            return Err(tensor(name, why));
        };
        let wide = match shaped.dtype {
            Stored::I64 | Stored::U64 => 8,
            Stored::I32 | Stored::U32 => 4,
            other => return Err(tensor(name, format!("{other} where integers are wanted"))),
        };
        if shaped.shape != [2] {
            return Err(shape(name, shaped, "[2]"));
        }
        let bytes = |width: u64| -> Vec<u8> {
            let pair = match rows {
                Rows::Second => [part.hidden, width],
                _ => [width, part.hidden],
            };
            let wide = pair.iter().flat_map(|n| n.to_le_bytes()[..wide].to_vec());
            wide.collect()
        };
        Ok(Change::Numbers {
            from: bytes(part.width.from),
            to: bytes(part.width.to),
        })
    }

    /// A tensor outside of experts: it changes only where every scale grid of the model does.
    pub(super) fn elsewhere(&self, name: &str, shaped: &Shaped) -> Result<Change, PadError> {
        let Some(blocks) = self.recipe.routed.blocks else {
            return Ok(Change::Copy);
        };
        if self.recipe.routed.groups() {
            return self.groups(name, shaped, blocks);
        }
        let (suffixes, _) = Kind::Scale.suffixes();
        let Some(stem) = suffixes.iter().find_map(|s| name.strip_suffix(s)) else {
            return Ok(Change::Copy);
        };
        let weight = self.tensors.get(&format!("{stem}.weight"));
        // What is named `scale` alone is a norm's as well, and blocks are of FP8 alone.
        let other = weight.is_none_or(|w| w.dtype != Stored::F8_E4M3);
        if other && !name.ends_with(".weight_scale_inv") {
            return Ok(Change::Copy);
        }
        let Some([rows, cols]) = weight.map(|w| w.shape.as_slice()) else {
            let why = format!(
                "no weight `{stem}.weight` of two axes lies beside it, whose blocks it would scale"
            );
            return Err(tensor(name, why));
        };
        let axis = |len: &usize| u64::try_from(*len).ok().and_then(|len| blocks.refined(len));
        let (Some(rows), Some(cols)) = (axis(rows), axis(cols)) else {
            return Err(shape(name, shaped, "blocks that can be refined"));
        };
        if shaped.shape != [rows.from, cols.from] {
            return Err(shape(
                name,
                shaped,
                &format!("[{}, {}]", rows.from, cols.from),
            ));
        }
        let padding = Padding {
            lead: 1,
            shape: vec![rows.to, cols.to],
            rows,
            cols,
            fill: vec![0; shaped.dtype.bitsize() / 8],
        };
        whole(name, shaped, padding)
    }

    /// The groups of an INT4 weight outside of experts.
    fn groups(&self, name: &str, shaped: &Shaped, blocks: Blocks) -> Result<Change, PadError> {
        if changes_meaning(name) {
            let why = "zero points and permuted groups cannot be repeated on a finer grid";
            return Err(tensor(name, why));
        }
        let Some(stem) = name.strip_suffix(".weight_scale") else {
            return Ok(Change::Copy);
        };
        let beside = |suffix| self.tensors.get(&format!("{stem}{suffix}"));
        let weight = beside(".weight_packed").or(beside(".weight"));
        let Some((rows, cols)) = weight.and_then(|w| match w.shape.as_slice() {
            &[rows, units] => Some((rows, units.checked_mul(codes_in(Dtype::Int4, w.dtype)?)?)),
            _ => None,
        }) else {
            let why = format!(
                "no INT4 weight `{stem}.weight_packed` of two axes lies beside it, whose groups it would scale"
            );
            return Err(tensor(name, why));
        };
        let axis = u64::try_from(cols).ok().and_then(|len| blocks.refined(len));
        let cols = axis.ok_or_else(|| shape(name, shaped, "groups that can be refined"))?;
        if shaped.shape != [rows, cols.from] {
            return Err(shape(name, shaped, &format!("[{rows}, {}]", cols.from)));
        }
        let padding = Padding {
            lead: 1,
            shape: vec![rows, cols.to],
            rows: Axis::whole(rows),
            cols,
            fill: vec![0; shaped.dtype.bitsize() / 8],
        };
        whole(name, shaped, padding)
    }
}
