//! Which way round the fused tensors of a layer lie.
//!
//! It must not read data. Layer 8.

use super::recipe::Recipe;
use super::sizes::index;
use super::treat::{Tensors, Treat};
use crate::checkpoint::{Kind, Named, named};
use crate::terms::Extent;
use std::collections::BTreeMap;

impl<'a> Treat<'a> {
    pub(super) fn new(recipe: &'a Recipe, tensors: &'a Tensors) -> Treat<'a> {
        let mut treat = Treat {
            recipe,
            tensors,
            fits: BTreeMap::new(),
        };
        let mut fits: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for (name, shaped) in tensors {
            let Some(named) = named(name, recipe.gated).filter(|n| n.fused) else {
                continue;
            };
            let Some((rows, Kind::Weight)) = named.is else {
                continue;
            };
            let halves = treat.halves(rows);
            let (out, inner) = treat.logical(&recipe.routed, rows, halves);
            let of = |n: u64| index(n).unwrap_or(usize::MAX);
            let rest = shaped.shape.get(1..).unwrap_or_default();
            let fit = fits.entry(named.prefix).or_insert((true, true));
            fit.0 &= rest == [of(out), of(inner)];
            fit.1 &= rest == [of(inner), of(out)];
        }
        treat.settle(&mut fits);
        treat.fits = fits;
        treat
    }

    /// Where inputs and outputs are as many, only the shape of scales says which axis is which.
    fn settle(&self, fits: &mut BTreeMap<&'a str, (bool, bool)>) {
        let part = &self.recipe.routed;
        let Some(grid) = part.format.scale() else {
            return;
        };
        for (name, shaped) in self.tensors {
            let Some(named) = named(name, self.recipe.gated).filter(|n| n.fused) else {
                continue;
            };
            let Some((rows, Kind::Scale)) = named.is else {
                continue;
            };
            let Some(fit) = fits.get_mut(named.prefix).filter(|f| **f == (true, true)) else {
                continue;
            };
            let (out, inner) = self.logical(part, rows, self.halves(rows));
            let of = |len: u64, extent| match extent {
                Extent::All => 1,
                Extent::Block(n) => index(len.div_ceil(n)).unwrap_or(usize::MAX),
            };
            let (r, c) = (of(out, grid.rows), of(inner, grid.cols));
            let rest = shaped.shape.get(1..).unwrap_or_default();
            if r != c {
                *fit = (rest != [c, r], rest != [r, c]);
            }
        }
    }

    /// Whether weights are stored as [experts, inputs, outputs].
    pub(super) fn is_turned(&self, named: &Named<'_>) -> bool {
        named.fused && self.fits.get(named.prefix) == Some(&(false, true))
    }
}
