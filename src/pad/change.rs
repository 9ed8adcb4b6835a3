//! What happens to one tensor.
//!
//! It must not read data. Layer 8.

use super::axis::Axis;
use safetensors::Dtype;

/// What a header says of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shaped {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: u64,
}

/// What becomes of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Byte for byte the same.
    Copy,
    /// Padded, or scales repeated.
    Pad(Box<Padding>),
    /// Two numbers that say a weight's shape, as their type holds them.
    Numbers { from: Vec<u8>, to: Vec<u8> },
}

/// A tensor as a stack of matrices of units, and how their axes grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Padding {
    /// Matrices.
    pub(super) lead: usize,
    pub(super) rows: Axis,
    pub(super) cols: Axis,
    /// The bytes of a unit of padding.
    pub(super) fill: Vec<u8>,
    /// The shape in the output.
    pub(super) shape: Vec<usize>,
}

impl Padding {
    /// Bytes of a unit.
    pub(super) fn unit(&self) -> usize {
        self.fill.len()
    }

    /// Bytes in the output; none where 64 bits cannot say.
    pub(super) fn bytes(&self) -> Option<u64> {
        let sizes = [self.lead, self.rows.to, self.cols.to, self.unit()];
        let sizes = sizes.into_iter().map(u64::try_from);
        sizes.flatten().try_fold(1_u64, u64::checked_mul)
    }
}

impl Change {
    /// The shape in the output of a tensor that was `shaped`.
    pub(super) fn shape<'a>(&'a self, shaped: &'a Shaped) -> &'a [usize] {
        match self {
            Change::Copy | Change::Numbers { .. } => &shaped.shape,
            Change::Pad(padding) => &padding.shape,
        }
    }

    /// Bytes in the output of a tensor that was `shaped`.
    pub(super) fn bytes(&self, shaped: &Shaped) -> Option<u64> {
        match self {
            Change::Copy | Change::Numbers { .. } => Some(shaped.bytes),
            Change::Pad(padding) => padding.bytes(),
        }
    }
}
