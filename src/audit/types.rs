//! What an audit found.
//!
//! It must not read files. Layer 7.

use super::Diagnosis;
use crate::checkpoint::LayerId;
use crate::layout::Place3;
use std::collections::BTreeSet;
use std::fmt;

/// Differences an audit keeps; the rest are only counted (style: first ten).
const KEPT: usize = 10;

/// What is wrong with a stored byte, or a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The plan has the tensor, the rank does not.
    Missing,
    /// The rank has the tensor, the plan does not.
    Extra,
    /// The tensor has another number of bytes.
    Size,
    /// A guard around the tensor changed.
    Guard,
    /// A logical element is not in its place.
    Element,
    /// A padding element does not decode to zero.
    Pad,
    /// A padding element decodes to NaN or infinity.
    PadNan,
    /// A padding scale does not decode to a finite number.
    ScalePad,
    /// A byte that only the storage layout adds is not the layout's pad.
    StoragePad,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 9] = [
        Fault::Missing,
        Fault::Extra,
        Fault::Size,
        Fault::Guard,
        Fault::Element,
        Fault::Pad,
        Fault::PadNan,
        Fault::ScalePad,
        Fault::StoragePad,
    ];

    /// The word that `padproof explain` knows it by.
    pub const fn word(self) -> &'static str {
        match self {
            Fault::Missing => "missing",
            Fault::Extra => "extra",
            Fault::Size => "size",
            Fault::Guard => "guard",
            Fault::Element => "element",
            Fault::Pad => "pad",
            Fault::PadNan => "pad-nan",
            Fault::ScalePad => "scale-pad",
            Fault::StoragePad => "storage-pad",
        }
    }

    /// One phrase for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Missing => "tensor is missing",
            Fault::Extra => "tensor is not in the plan",
            Fault::Size => "tensor has another size",
            Fault::Guard => "guard changed",
            Fault::Element => "element is not in its place",
            Fault::Pad => "padding does not decode to zero",
            Fault::PadNan => "padding is not a number",
            Fault::ScalePad => "padding scale is not inert",
            Fault::StoragePad => "storage padding is not the layout's",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One difference between stored bytes and the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The tensor's name.
    pub tensor: &'static str,
    /// The rank; `None` for the input, which all ranks share.
    pub rank: Option<usize>,
    /// What is wrong.
    pub fault: Fault,
    /// (expert, row, column) in the padded tensor.
    pub physical: Option<Place3>,
    /// (expert, row, column) in the logical tensor, for elements.
    pub logical: Option<Place3>,
    /// The layer's expert, where one is meant.
    pub expert: Option<usize>,
    /// First byte of the element.
    pub byte: usize,
    /// The code wanted (for [`Fault::Size`]: bytes; for inert padding: what the plan writes).
    pub wanted: u64,
    /// The code found (for [`Fault::Size`]: bytes).
    pub actual: u64,
}

impl Difference {
    /// A difference of a whole tensor.
    pub(super) fn of_tensor(tensor: &'static str, rank: Option<usize>, fault: Fault) -> Self {
        Difference {
            tensor,
            rank,
            fault,
            physical: None,
            logical: None,
            expert: None,
            byte: 0,
            wanted: 0,
            actual: 0,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tensor)?;
        if let Some(rank) = self.rank {
            write!(f, " rank {rank}")?;
        }
        if let Some((e, r, c)) = self.physical {
            write!(f, " [{e},{r},{c}] byte {}", self.byte)?;
        }
        if let Some((e, r, c)) = self.logical {
            write!(f, " (logical [{e},{r},{c}])")?;
        }
        write!(f, ": {}", self.fault)?;
        match self.fault {
            Fault::Size => write!(f, ", wanted {}, got {} bytes", self.wanted, self.actual),
            Fault::Missing | Fault::Extra | Fault::Guard => Ok(()),
            _ => write!(f, ", wanted {:#x}, got {:#x}", self.wanted, self.actual),
        }
    }
}

/// How often a tensor shows a fault, on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The tensor's name.
    pub tensor: &'static str,
    /// The fault.
    pub fault: Fault,
    /// How often.
    pub count: u64,
}

/// The answer of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Bytes looked at.
    pub checked_bytes: u64,
    /// Logical elements compared.
    pub elements: u64,
    /// Padding positions judged, storage padding included.
    pub pads: u64,
    /// Padding weights that decode to minus zero: inert, and counted.
    pub minus_zero_pads: u64,
    /// The tensors that hold them.
    pub minus_zero_in: BTreeSet<&'static str>,
    /// Differences in all.
    pub differing: u64,
    /// The same by tensor and fault, in the order found.
    pub regions: Vec<Region>,
    /// The first ten.
    pub first: Vec<Difference>,
    /// The layer's experts in which something differs.
    pub experts: BTreeSet<usize>,
    /// That of the last difference: a set is slow where everything differs.
    pub(super) last: Option<usize>,
}

impl Audit {
    /// Whether nothing differs.
    pub fn clean(&self) -> bool {
        self.differing == 0
    }

    pub(super) fn report(&mut self, difference: Difference) {
        self.differing += 1;
        if difference.expert != self.last {
            self.last = difference.expert;
            self.experts.extend(difference.expert);
        }
        let (tensor, fault) = (difference.tensor, difference.fault);
        let mut regions = self.regions.iter_mut();
        match regions.find(|r| (r.tensor, r.fault) == (tensor, fault)) {
            Some(region) => region.count += 1,
            None => self.regions.push(Region {
                tensor,
                fault,
                count: 1,
            }),
        }
        if self.first.len() < KEPT {
            self.first.push(difference);
        }
    }
}

/// An audit of files, with what it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// The checkpoint.
    pub before: String,
    /// The padded parameters.
    pub after: String,
    /// What the names of the layer's tensors begin with.
    pub prefix: String,
    /// The layer, if names say which.
    pub layer: Option<LayerId>,
    /// The rule's id, or `spelled`.
    pub rule: String,
    /// Tensor-parallel ranks in all.
    pub tp: u64,
    /// Expert-parallel groups.
    pub ep: u64,
    /// The ranks that were there to audit.
    pub ranks: Vec<usize>,
    /// What was found.
    pub audit: Audit,
    /// What explains it, best first.
    pub diagnoses: Vec<Diagnosis>,
    /// What was left out, one sentence each.
    pub notes: Vec<String>,
}
