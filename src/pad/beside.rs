//! Which change a tensor needs that is no expert's weight, scale or bias.
//!
//! It must not read data. Layer 8.

use super::axis::Axis;
use super::change::{Change, Padding, Shaped};
use super::error::{PadError, tensor};
use super::sizes::{Blocks, Part};
use super::treat::{Treat, shape, whole};
use crate::checkpoint::{Kind, Named, Rows, codes_in, named};
use crate::num::Dtype;
use safetensors::Dtype as Stored;

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
        let why = if name.ends_with("zero_point") || name.ends_with("g_idx") {
            "zero points and permuted groups are not padded"
        } else if [".qweight", ".qzeros", ".scales"]
            .iter()
            .any(|s| name.ends_with(s))
        {
            "weights as AWQ and GPTQ store them (qweight, qzeros, g_idx) are not padded"
        } else {
            "no known tensor of an expert: whether it must grow is not known"
        };
        Err(tensor(name, why))
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
            return Err(tensor(name, "no packed weight lies beside it"));
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
            return Err(tensor(
                name,
                "no weight of two axes lies beside it, whose blocks it would scale",
            ));
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
        if name.ends_with("zero_point") || name.ends_with("g_idx") {
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
            let why = "no INT4 weight of two axes lies beside it, whose groups it would scale";
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
