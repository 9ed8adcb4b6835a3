//! Which tensors fill the logical grids of a layer, and which way round they lie.
//!
//! It must not read data. Layer 4.

use super::error::{CheckpointError, shown, tensor_error};
use super::file::count;
use super::find::{Kind, changes_meaning};
use super::layer::Layer;
use super::names::named;
use super::place::number;
use crate::num::Dtype;
use crate::plan::Role;
use crate::terms::Extent;
use safetensors::Dtype as Stored;

/// A tensor of one expert in the file, and the rows of the logical tensor it fills.
pub(super) struct Piece {
    pub(super) projection: &'static str,
    pub(super) suffix: &'static str,
    pub(super) divides: bool,
    pub(super) rows: Rows,
}

/// Which logical rows a piece fills.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// All of them, or those of one half.
    Half(usize),
    /// Those of both halves in turn: gate, up, gate, up.
    Interleaved,
    /// Both halves, one after the other.
    Both,
}

/// One role's logical grid for one expert, and where it comes from.
pub(super) struct Part {
    pub(super) role: Role,
    pub(super) dtype: Dtype,
    pub(super) halves: usize,
    /// Rows of one half.
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) pieces: Vec<Piece>,
}

impl Layer<'_> {
    /// The logical grid of a role, and the tensors that fill it.
    pub(super) fn part(&self, role: Role) -> Result<Part, CheckpointError> {
        let shape = self.shape;
        let halves = 1 + usize::from(shape.gated && !role.is_second());
        let (out, inner) = match role.is_second() {
            true => (shape.hidden, shape.intermediate),
            false => (shape.intermediate, shape.hidden),
        };
        let blocks = |len: usize, extent| match extent {
            Extent::All => 1,
            Extent::Block(n) => len.div_ceil(usize::try_from(n).unwrap_or(usize::MAX)),
        };
        let (kind, dtype, rows, cols) = match (role, shape.weight.scale()) {
            (Role::W13Scale | Role::W2Scale, Some(grid)) => {
                let (rows, cols) = (blocks(out, grid.rows), blocks(inner, grid.cols));
                (Kind::Scale, shape.scale.unwrap_or(grid.dtype), rows, cols)
            }
            (Role::W13Global | Role::W2Global, _) => (Kind::Global, Dtype::F32, 1, 1),
            (Role::W13Bias | Role::W2Bias, _) => (Kind::Bias, Dtype::F32, out, 1),
            _ => (Kind::Weight, shape.weight.element(), out, inner),
        };
        let projections = match role.is_second() {
            true => std::slice::from_ref(&self.family.second),
            false => self.family.first,
        };
        let fused_halves = halves == 2 && projections.len() == 1;
        if let (Kind::Scale, true, Some(Extent::Block(n))) = (
            kind,
            fused_halves,
            shape.weight.scale().map(|grid| grid.rows),
        ) && n > 1
            && (shape.interleaved || !count(shape.intermediate).is_multiple_of(n))
        {
            return Err(CheckpointError::NoLayer {
                place: self.checkpoint.place().to_owned(),
                why: format!(
                    "`{}`: a scale block of {n} rows would hold rows of gate and of up, of {} each",
                    shown(&self.family.prefix),
                    shape.intermediate
                ),
            });
        }
        let mut pieces = Vec::new();
        for (half, projection) in projections.iter().enumerate() {
            let suffix = self.family.suffix(self.checkpoint, projection, kind);
            let (suffix, divides) = suffix.map_err(|error| self.some_alone(kind, error))?;
            let rows = match (fused_halves, shape.interleaved) {
                (true, true) => Rows::Interleaved,
                (true, false) => Rows::Both,
                (false, _) => Rows::Half(half),
            };
            pieces.push(Piece {
                projection,
                suffix,
                divides,
                rows,
            });
        }
        Ok(Part {
            role,
            dtype,
            halves,
            rows,
            cols,
            pieces,
        })
    }

    /// The element type in which the file has the first scale, where that is another than the format's and
    /// means scales all the same: those of INT4 are of the model's own type.
    ///
    /// # Errors
    /// When its file does not hold.
    pub fn stored_scale(&self) -> Result<Option<Dtype>, CheckpointError> {
        let grid = self.shape.weight.scale();
        let Some(grid) = grid.filter(|grid| grid.dtype == Dtype::Bf16) else {
            return Ok(None);
        };
        let part = self.parts.iter().find(|part| part.role == Role::W13Scale);
        let Some(piece) = part.and_then(|part| part.pieces.first()) else {
            return Ok(None);
        };
        let name = self.family.name(piece.projection, piece.suffix, 0);
        let (_, entry) = self.checkpoint.entry(&name)?;
        let known = [(Stored::F16, Dtype::F16), (Stored::F32, Dtype::F32)];
        let is = known.into_iter().find(|(stored, _)| *stored == entry.dtype);
        Ok(is.map(|(_, dtype)| dtype).filter(|is| *is != grid.dtype))
    }

    /// The first weight, scale or bias of the experts that no role takes: the plan has no place for it. What
    /// inputs are scaled with has no width.
    pub fn unplaced(&self) -> Option<&str> {
        let counts = |name: &&str| {
            let last = name.rsplit('.').next().unwrap_or_default();
            let weight = last.starts_with("weight") && last != "weight_shape";
            let scale = last.contains("scale") && !last.contains("input");
            weight && !last.contains("input") || scale || last.ends_with("bias")
        };
        self.unread().into_iter().find(counts)
    }

    /// The name of a bias that the experts have, whether or not the shape says that they have some.
    pub fn bias(&self) -> Option<String> {
        let (each, all) = Kind::Bias.suffixes();
        let suffixes = if self.family.fused { all } else { each };
        // A config may say any number: of more experts than there are tensors, some have none.
        let experts = match self.family.fused || self.family.alone {
            true => 1,
            false => self.shape.experts.min(self.checkpoint.names().count()),
        };
        let projections = || self.family.first.iter().chain([&self.family.second]);
        for e in 0..experts {
            for projection in projections() {
                let mut names = suffixes.iter().map(|s| self.family.name(projection, s, e));
                if let Some(name) = names.find(|name| self.checkpoint.has(name)) {
                    return Some(name);
                }
            }
        }
        None
    }

    /// What is missing, where that is a bias and others are there.
    pub(super) fn some_alone(&self, kind: Kind, error: CheckpointError) -> CheckpointError {
        let CheckpointError::NoTensor { place, tensor } = error else {
            return error;
        };
        match self.bias().filter(|_| kind == Kind::Bias) {
            Some(other) => {
                let why = format!(
                    "it is not there, though `{}` is: biases are of all projections and experts of a layer, or of none",
                    shown(&other)
                );
                tensor_error(&place, &tensor, why)
            }
            None => CheckpointError::NoTensor { place, tensor },
        }
    }

    /// Whether fused tensors are stored as [experts, inputs, outputs]. Where gate_up has two halves,
    /// hidden and intermediate sizes cannot make both readings fit both tensors; where it has one, they
    /// can, and only the shape of scales tells.
    pub(super) fn is_transposed(&self) -> Result<bool, CheckpointError> {
        if !self.family.fused || self.shape.weight.element().bits() < 8 {
            return Ok(false);
        }
        let mut plain = true;
        let mut turned = true;
        for part in self.parts.iter().filter(|p| p.role <= Role::W2) {
            let piece = &part.pieces[0];
            let name = self.family.name(piece.projection, piece.suffix, 0);
            let (_, entry) = self.checkpoint.entry(&name)?;
            let (rows, cols) = (part.halves * part.rows, part.cols);
            plain &= entry.shape == [self.shape.experts, rows, cols];
            turned &= entry.shape == [self.shape.experts, cols, rows];
        }
        for part in &self.parts {
            let scale = matches!(part.role, Role::W13Scale | Role::W2Scale);
            let (rows, cols) = (part.halves * part.rows, part.cols);
            if !(plain && turned && scale && rows != cols) {
                continue;
            }
            let piece = &part.pieces[0];
            let name = self.family.name(piece.projection, piece.suffix, 0);
            let (_, entry) = self.checkpoint.entry(&name)?;
            plain = entry.shape != [self.shape.experts, cols, rows];
            turned = entry.shape != [self.shape.experts, rows, cols];
        }
        if plain && turned {
            let name = self.family.name(self.family.second, "", 0);
            let why = format!(
                "inputs and outputs are both {}, and nothing says which axis is which",
                self.shape.hidden
            );
            return Err(tensor_error(self.checkpoint.place(), &name, why));
        }
        Ok(turned)
    }

    /// Refuses weights of the same experts under the names of another family as well: loaders differ in which
    /// they take.
    pub(super) fn refuse_twice(&self) -> Result<(), CheckpointError> {
        let weight = |name: &&str| {
            let named = named(name, self.shape.gated);
            named.is_some_and(|named| matches!(named.is, Some((_, Kind::Weight))))
        };
        let Some(name) = self.unread().into_iter().find(weight) else {
            return Ok(());
        };
        let piece = self.parts.first().and_then(|part| part.pieces.first());
        let own = piece.map(|p| self.family.name(p.projection, p.suffix, 0));
        let why = format!(
            "the experts have their weights twice: `{}` is one as well",
            shown(&own.unwrap_or_default())
        );
        Err(tensor_error(self.checkpoint.place(), name, why))
    }

    /// Refuses what would change the meaning of the weights, and experts that the model lacks.
    pub(super) fn refuse_strangers(&self) -> Result<(), CheckpointError> {
        let prefix = self.prefix();
        if prefix.is_empty() {
            return Ok(());
        }
        for name in self.checkpoint.names().filter(|n| n.starts_with(prefix)) {
            let rest = &name[prefix.len()..];
            let expert: Option<usize> = rest.split('.').next().and_then(number);
            let why = if expert.is_some_and(|e| e >= self.shape.experts) {
                format!("the model has {} experts", self.shape.experts)
            } else if changes_meaning(rest) {
                "zero points and permuted groups are not read".to_owned()
            } else {
                continue;
            };
            return Err(tensor_error(self.checkpoint.place(), name, why));
        }
        Ok(())
    }
}
