//! The logical tensors of one layer, expert by expert.

use super::convert::{bytes_of, codes, codes_in, keeps_bytes, reciprocal, shape_fits};
use super::error::{CheckpointError, file_error, shown, tensor_error};
use super::file::{Entry, count};
use super::find::{Family, Kind, experts_at, family, prefix_of, shared_at, shared_family};
use super::names::named;
use super::parts::{Part, Piece, Rows};
use super::place::{LayerId, Place, number, place_of};
use super::set::Checkpoint;
use crate::num::Dtype;
use crate::plan::Role;
use crate::tensor::{Logical, RouterInput, Tensor};
use crate::terms::WeightFormat;
use std::collections::BTreeSet;
use std::ops::Range;

/// What a layer must be like for a checkpoint's tensors to be its.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerShape {
    /// Experts.
    pub experts: usize,
    /// Input width.
    pub hidden: usize,
    /// Width of one expert.
    pub intermediate: usize,
    /// Whether there are gate and up.
    pub gated: bool,
    /// Whether rows of gate and up alternate in the file.
    pub interleaved: bool,
    /// How weights are stored.
    pub weight: WeightFormat,
    /// The element type of scales, where it is another than the format's.
    pub scale: Option<Dtype>,
    /// Whether projections have biases.
    pub bias: bool,
    /// Whether these are the shared experts, which are one, as wide as all of them.
    pub shared: bool,
}

/// One layer's experts in a checkpoint.
pub struct Layer<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) shape: LayerShape,
    pub(super) family: Family,
    transposed: bool,
    pub(super) parts: Vec<Part>,
}

impl<'a> Layer<'a> {
    /// Finds the tensors of a layer, or of the first with experts.
    ///
    /// # Errors
    /// When there is no such layer, a tensor is missing, or one is not of the shape's sizes.
    pub fn find(
        checkpoint: &'a Checkpoint,
        shape: LayerShape,
        layer: Option<LayerId>,
    ) -> Result<Layer<'a>, CheckpointError> {
        checkpoint.refuse_odd_layers()?;
        let prefixes = match shape.shared {
            true => shared_at(checkpoint, shape.gated, layer)?,
            false => experts_at(checkpoint, layer)?,
        };
        if prefixes.len() > 1 {
            let fits = |prefix: &&&str| {
                let found = Layer::at(checkpoint, shape, prefix);
                found.is_ok_and(|layer| layer.check().is_ok())
            };
            let mut fitting = prefixes.iter().filter(fits);
            match (fitting.next(), fitting.next()) {
                (Some(only), None) => return Layer::at(checkpoint, shape, only),
                (Some(one), Some(other)) => {
                    let [one, other] = [one, other].map(|prefix| shown(prefix));
                    let why = format!(
                        "`{one}` and `{other}` are of one number and size: only one model's layers can be told apart"
                    );
                    return Err(file_error(checkpoint.place(), why));
                }
                // What fits none is told of the first.
                (None, _) => {}
            }
        }
        Layer::at(checkpoint, shape, prefixes[0])
    }

    /// The tensors whose names begin with a prefix.
    ///
    /// # Errors
    /// As [`Layer::find`].
    pub fn at(
        checkpoint: &'a Checkpoint,
        shape: LayerShape,
        prefix: &str,
    ) -> Result<Layer<'a>, CheckpointError> {
        let family = match shape.shared {
            true => shared_family(checkpoint, shape.gated, prefix)?,
            false => family(checkpoint, shape.gated, prefix)?,
        };
        let mut layer = Layer {
            checkpoint,
            shape,
            family,
            transposed: false,
            parts: Vec::new(),
        };
        layer.refuse_strangers()?;
        let scale = shape.weight.scale();
        for (role, wanted) in [
            (Role::W13, true),
            (Role::W2, true),
            (Role::W13Scale, scale.is_some()),
            (Role::W2Scale, scale.is_some()),
            (Role::W13Global, shape.weight.has_global_scale()),
            (Role::W2Global, shape.weight.has_global_scale()),
            (Role::W13Bias, shape.bias),
            (Role::W2Bias, shape.bias),
        ] {
            if wanted {
                let part = layer.part(role)?;
                layer.parts.push(part);
            }
        }
        layer.transposed = layer.is_transposed()?;
        layer.refuse_twice()?;
        Ok(layer)
    }

    /// What the names of its tensors begin with.
    pub fn prefix(&self) -> &str {
        &self.family.prefix
    }

    /// Which layer it is, if names say that.
    pub fn id(&self) -> Option<LayerId> {
        self.family.layer
    }

    /// The other layers of the checkpoint that are like it.
    pub fn others(&self) -> impl Iterator<Item = (LayerId, Layer<'a>)> {
        let (checkpoint, shape, own) = (self.checkpoint, self.shape, self.prefix());
        let prefix = |name: &'a str| match shape.shared {
            true => Some(named(name, shape.gated).filter(|n| n.shared)?.prefix),
            false => prefix_of(name),
        };
        let prefixes = checkpoint.names().filter_map(prefix);
        let places: BTreeSet<Place<'a>> = prefixes.map(place_of).collect();
        let others = places.into_iter().filter(|(_, prefix)| *prefix != own);
        let others: Vec<Place<'a>> = others.collect();
        others.into_iter().filter_map(move |(id, prefix)| {
            let layer = Layer::at(checkpoint, shape, prefix).ok()?;
            // What is nowhere said to be another layer may be this one.
            Some((id?, layer))
        })
    }

    /// Tensors below its prefix that no role takes: input scales, mostly.
    pub fn unread(&self) -> Vec<&str> {
        let pieces = self.parts.iter().flat_map(|part| &part.pieces);
        let ours = pieces.map(|p| format!("{}{}", p.projection, p.suffix));
        let read: BTreeSet<String> = ours.collect();
        let own = |name: &&str| {
            let rest = &name[self.prefix().len()..];
            let of_expert = rest
                .split_once('.')
                .filter(|(n, _)| number::<usize>(n).is_some());
            let of_expert = of_expert.map_or("", |(_, rest)| rest);
            let whole = self.family.fused || self.family.alone;
            read.contains(if whole { rest } else { of_expert })
        };
        let below = |n: &&str| !self.family.prefix.is_empty() && n.starts_with(self.prefix());
        let names = self.checkpoint.names().filter(below);
        names.filter(|n| !own(n)).collect()
    }

    /// Looks at the type and shape of every tensor, of all experts, without reading data.
    ///
    /// # Errors
    /// When one is missing or of another type or shape.
    pub fn check(&self) -> Result<(), CheckpointError> {
        for part in &self.parts {
            for piece in &part.pieces {
                for e in 0..if self.family.fused {
                    1
                } else {
                    self.shape.experts
                } {
                    self.entry(part, piece, e)?;
                }
            }
        }
        Ok(())
    }

    /// The logical tensors of some experts; input and router are empty.
    ///
    /// # Errors
    /// When a tensor is missing or of another type or shape, or cannot be read.
    pub fn read(&self, experts: Range<usize>) -> Result<Logical, CheckpointError> {
        self.logical(|role| self.role(role, experts.clone(), false))
    }

    /// The same of tensors that `of` gives for each role that the layer has.
    ///
    /// # Errors
    /// Those of `of`.
    pub fn logical<E>(
        &self,
        mut of: impl FnMut(Role) -> Result<Option<Tensor>, E>,
    ) -> Result<Logical, E> {
        let mut logical = Logical {
            x: Tensor::zeroed("x", &[0, 0], 32),
            router: RouterInput::Given {
                ids: Vec::new(),
                weights: Vec::new(),
            },
            w13: Tensor::zeroed("w13", &[0, 0, 0], 8),
            w2: Tensor::zeroed("w2", &[0, 0, 0], 8),
            w13_scale: None,
            w2_scale: None,
            w13_global: None,
            w2_global: None,
            w13_bias: None,
            w2_bias: None,
            x_scale: 1.0,
            h_scale: 1.0,
        };
        for part in &self.parts {
            let Some(tensor) = of(part.role)? else {
                continue;
            };
            match part.role {
                Role::W13 => logical.w13 = tensor,
                Role::W2 => logical.w2 = tensor,
                Role::W13Scale => logical.w13_scale = Some(tensor),
                Role::W2Scale => logical.w2_scale = Some(tensor),
                Role::W13Global => logical.w13_global = Some(tensor),
                Role::W2Global => logical.w2_global = Some(tensor),
                Role::W13Bias => logical.w13_bias = Some(tensor),
                Role::W2Bias => logical.w2_bias = Some(tensor),
            }
        }
        Ok(logical)
    }

    /// One of them, if the layer has it: a whole expert is more than some memory holds. `packed` keeps
    /// weights of four bits as they are stored, two in a byte, low nibble first.
    ///
    /// # Errors
    /// As [`Layer::read`].
    pub fn role(
        &self,
        role: Role,
        experts: Range<usize>,
        packed: bool,
    ) -> Result<Option<Tensor>, CheckpointError> {
        let part = self.parts.iter().find(|part| part.role == role);
        part.map(|part| self.tensor(part, experts, packed))
            .transpose()
    }

    fn tensor(
        &self,
        part: &Part,
        experts: Range<usize>,
        packed: bool,
    ) -> Result<Tensor, CheckpointError> {
        let rows = part.halves * part.rows;
        let packed = packed && part.dtype.bits() == 4 && part.cols.is_multiple_of(2);
        let bits = if packed { 4 } else { bytes_of(part.dtype) * 8 };
        // Every piece is checked against its entry before a tensor of its size is made.
        for piece in &part.pieces {
            for e in experts.clone() {
                self.entry(part, piece, e)?;
            }
        }
        let shape = [experts.len(), rows, part.cols];
        let mut tensor = Tensor::zeroed(part.role.name(), &shape, bits);
        let expert_bytes = rows * part.cols * bits / 8;
        for (n, e) in experts.enumerate() {
            let target = &mut tensor.bytes_mut()[n * expert_bytes..(n + 1) * expert_bytes];
            for piece in &part.pieces {
                self.place(part, piece, e, bits, target)?;
            }
        }
        Ok(tensor)
    }

    /// Reads one expert's piece into its rows.
    fn place(
        &self,
        part: &Part,
        piece: &Piece,
        e: usize,
        bits: usize,
        target: &mut [u8],
    ) -> Result<(), CheckpointError> {
        let (name, entry) = self.entry(part, piece, e)?;
        let slab = match self.family.fused {
            true => entry.bytes / count(self.shape.experts),
            false => entry.bytes,
        };
        let first = count(e) * slab * u64::from(self.family.fused);
        let (wide, line) = (bits / 8, part.cols * bits / 8);
        let kept = bits == 4 || keeps_bytes(part.dtype, entry.dtype);
        let ordered = match piece.rows {
            Rows::Half(half) => Some(half * part.rows * line),
            Rows::Both => Some(0),
            Rows::Interleaved => None,
        };
        // Bytes that stay as they are go to their place at once.
        if let (true, false, false, Some(start)) = (
            kept,
            piece.divides,
            self.transposed && part.cols > 1,
            ordered,
        ) && let Ok(slab) = usize::try_from(slab)
            && let Some(target) = target.get_mut(start..start.saturating_add(slab))
            && slab == line * self.rows_of(part, piece)
        {
            return self.checkpoint.data_into(&name, first, target);
        }
        let stored = self.checkpoint.data(&name, first..first + slab)?;
        let mut codes = match bits {
            4 => stored,
            _ => codes(part.dtype, entry.dtype, stored),
        };
        if piece.divides {
            reciprocal(&mut codes);
        }
        let rows = self.rows_of(part, piece);
        let to = |row: usize| match piece.rows {
            Rows::Half(half) => half * part.rows + row,
            Rows::Interleaved => row % part.halves * part.rows + row / part.halves,
            Rows::Both => row,
        };
        let shared = codes.len() < rows * line;
        for row in 0..rows {
            let line = &mut target[to(row) * line..(to(row) + 1) * line];
            if self.transposed && part.cols > 1 {
                for (c, code) in line.chunks_exact_mut(wide).enumerate() {
                    code.copy_from_slice(&codes[(c * rows + row) * wide..][..wide]);
                }
            } else {
                let from = if shared { 0 } else { row };
                line.copy_from_slice(&codes[from * line.len()..][..line.len()]);
            }
        }
        Ok(())
    }

    /// Rows that a piece fills.
    fn rows_of(&self, part: &Part, piece: &Piece) -> usize {
        match piece.rows {
            Rows::Half(_) => part.rows,
            Rows::Interleaved | Rows::Both => part.halves * part.rows,
        }
    }

    /// A piece's name and entry, of the type and shape that it must have.
    fn entry(
        &self,
        part: &Part,
        piece: &Piece,
        e: usize,
    ) -> Result<(String, &Entry), CheckpointError> {
        let name = self.family.name(piece.projection, piece.suffix, e);
        let found = self.checkpoint.entry(&name);
        let kind = match part.role {
            Role::W13Bias | Role::W2Bias => Kind::Bias,
            _ => Kind::Weight,
        };
        let (file, entry) = found.map_err(|error| self.some_alone(kind, error))?;
        let rows = self.rows_of(part, piece);
        let Some(codes) = codes_in(part.dtype, entry.dtype) else {
            let why = format!("{} where {} is wanted", entry.dtype, part.dtype);
            return Err(tensor_error(file.name(), &name, why));
        };
        let lead = self.family.fused.then_some(self.shape.experts);
        let (r, c) = match self.transposed && part.cols > 1 {
            true => (part.cols, rows),
            false => (rows, part.cols),
        };
        let fits = |r, c| shape_fits(&entry.shape, lead, r, c, codes);
        // One scale of a fused tensor may stand for both halves.
        let shared = piece.rows == Rows::Both && part.rows == 1 && fits(1, part.cols);
        if !fits(r, c) && !shared {
            let wanted: Vec<usize> = lead.into_iter().chain([r, c / codes.min(c)]).collect();
            let why = shown(&format!("shape {:?}, wanted {wanted:?}", entry.shape));
            return Err(tensor_error(file.name(), &name, why));
        }
        Ok((name, entry))
    }
}
