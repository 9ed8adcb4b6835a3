//! The audit: one pass over every position of every tensor.
//!
//! It reads through the map's addresses, one element at a time, and not through the slices
//! that `pack` copies, so that a fault in copying shows.
//!
//! It must not name faults. Layer 7.

use super::inert::{Inert, Judgement};
use super::types::{Audit, Difference, Fault};
use crate::layout::{
    Address, LayoutError, Map, PackedInputs, Place3, for_each_storage_pad, for_each_stretch,
    logical_of, map, roles,
};
use crate::plan::{Plan, Role};
use crate::tensor::{Logical, Tensor};
use crate::terms::{Nibble, Storage};
use std::ops::Range;

/// Holds every byte of every tensor of every rank, and of the input, against the plan.
///
/// # Errors
/// When the plan describes no layout, or the logical tensors are not of its sizes.
pub fn audit(plan: &Plan, logical: &Logical, packed: &PackedInputs) -> Result<Audit, LayoutError> {
    let mut audit = Audit::default();
    input(plan, &logical.x, &packed.x, &mut audit)?;
    for (rank, inputs) in packed.ranks.iter().enumerate() {
        for (role, _) in inputs.iter() {
            if rank >= plan.ranks.len() || !roles(plan).any(|r| r == role) {
                audit.report(Difference::of_tensor(role.name(), Some(rank), Fault::Extra));
            }
        }
    }
    for rank in 0..plan.ranks.len() {
        for role in roles(plan) {
            let map = map(plan, role, rank)?;
            let source = logical_of(logical, role).ok_or(LayoutError::NoTensor {
                tensor: role.name(),
            })?;
            expect_size(role.name(), map.logical_bytes(), source.bytes().len())?;
            let Some(tensor) = packed.ranks.get(rank).and_then(|r| r.get(role)) else {
                audit.report(Difference::of_tensor(
                    role.name(),
                    Some(rank),
                    Fault::Missing,
                ));
                continue;
            };
            if !tensor.guards_intact() {
                audit.report(Difference::of_tensor(role.name(), Some(rank), Fault::Guard));
            }
            let tensor_audit = TensorAudit {
                map: &map,
                rank,
                inert: Inert::under(plan, &map),
                bytes: tensor.bytes(),
                source: Some(source),
                first: (0, 0),
                band: None,
            };
            tensor_audit.run(&mut audit);
        }
    }
    Ok(audit)
}

/// Judges the padding of arbitrary bytes as one tensor of one rank; elements are not compared.
///
/// # Errors
/// When the plan describes no layout for that tensor. Bytes are never an error: a wrong length
/// is a [`Fault::Size`].
pub fn audit_bytes(
    plan: &Plan,
    role: Role,
    rank: usize,
    bytes: &[u8],
) -> Result<Audit, LayoutError> {
    let map = map(plan, role, rank)?;
    let mut audit = Audit::default();
    let tensor_audit = TensorAudit {
        map: &map,
        rank,
        inert: Inert::under(plan, &map),
        bytes,
        source: None,
        first: (0, 0),
        band: None,
    };
    tensor_audit.run(&mut audit);
    Ok(audit)
}

/// One tensor's bytes under judgement.
pub(super) struct TensorAudit<'a> {
    pub(super) map: &'a Map,
    pub(super) rank: usize,
    pub(super) inert: Inert,
    pub(super) bytes: &'a [u8],
    /// The whole logical tensor, if elements are to be compared; of four bits, two in a byte with
    /// the low nibble first, or one in a byte.
    pub(super) source: Option<&'a Tensor>,
    /// What number the first expert of the bytes has: in the rank's tensor, and in the layer.
    pub(super) first: (usize, usize),
    /// The rows that the bytes are of, where they are some of one expert, row by row; else none.
    pub(super) band: Option<Range<usize>>,
}

impl TensorAudit<'_> {
    pub(super) fn run(&self, audit: &mut Audit) {
        let map = self.map;
        let (rows, wanted) = match &self.band {
            Some(rows) => (rows.clone(), self.bytes_of(rows.len())),
            None => (0..map.shape()[1], map.bytes()),
        };
        if self.bytes.len() != wanted {
            audit.report(Difference {
                wanted: count(wanted),
                actual: count(self.bytes.len()),
                ..Difference::of_tensor(map.role.name(), Some(self.rank), Fault::Size)
            });
            return;
        }
        audit.checked_bytes += count(self.bytes.len());
        let rule = &self.inert;
        let mut minus_zero = false;
        for_each_stretch(map, rows, |e, r, cols, logical| match logical {
            None => {
                audit.pads += count(cols.len());
                if cols.is_empty() {
                    return;
                }
                if self.plainly_padded(e, r, cols.clone()) {
                    return;
                }
                for c in cols {
                    let at = self.address(e, r, c);
                    let actual = map.grid.read(self.bytes, at);
                    match rule.judge(actual) {
                        Judgement::Inert => {}
                        Judgement::MinusZero => {
                            audit.minus_zero_pads += 1;
                            minus_zero = true;
                        }
                        loud @ (Judgement::Loud | Judgement::NaN) => {
                            let (fault, wanted) = (rule.fault(loud), rule.code);
                            self.report(audit, fault, (e, r, c), None, at, wanted, actual);
                        }
                    }
                }
            }
            Some((l_e, l_r, l_c)) => {
                let Some(source) = self.source else {
                    return;
                };
                audit.elements += count(cols.len());
                if self.same(source, (e, r), cols.clone(), (l_e, l_r, l_c)) {
                    return;
                }
                for (n, c) in cols.enumerate() {
                    let at = self.address(e, r, c);
                    let logical = (l_e, l_r, l_c + n);
                    let actual = map.grid.read(self.bytes, at);
                    let wanted = self.wanted(source, logical);
                    if wanted != actual {
                        let fault = Fault::Element;
                        self.report(audit, fault, (e, r, c), Some(logical), at, wanted, actual);
                    }
                }
            }
        });
        if minus_zero {
            audit.minus_zero_in.insert(map.role.name());
        }
        if self.band.is_some() {
            return;
        }
        // Where the stack leaves memory as it was, anything may stand.
        let wanted = map.grid.storage.pad_code();
        for_each_storage_pad(map, |physical, at| {
            audit.pads += 1;
            let actual = map.grid.read(self.bytes, at);
            if wanted.is_some_and(|code| code != actual) {
                let wanted = wanted.unwrap_or(0);
                self.report(audit, Fault::StoragePad, physical, None, at, wanted, actual);
            }
        });
    }

    /// Bytes of so many whole rows.
    fn bytes_of(&self, rows: usize) -> usize {
        rows * self.map.grid.cols * self.map.grid.bits / 8
    }

    /// Elements before those that the bytes begin with.
    fn before(&self) -> usize {
        let rows = self.band.as_ref().map_or(0, |rows| rows.start);
        rows * self.map.grid.cols
    }

    /// What number an element has among the bytes.
    fn index(&self, e: usize, r: usize, c: usize) -> usize {
        self.map.grid.index(e, r, c) - self.before()
    }

    /// Where an element lies among the bytes.
    fn address(&self, e: usize, r: usize, c: usize) -> Address {
        self.map.grid.address(self.index(e, r, c))
    }

    /// Whether a stretch of padding holds the plan's code, inert; false leaves it open.
    fn plainly_padded(&self, e: usize, r: usize, cols: Range<usize>) -> bool {
        let grid = self.map.grid;
        let code = self.inert.code;
        if !matches!(self.inert.judge(code), Judgement::Inert) {
            return false;
        }
        let low = code.to_le_bytes()[0];
        let all = |bytes: &[u8], byte: u8| bytes.iter().fold(0, |any, b| any | (b ^ byte)) == 0;
        match (grid.storage, grid.bits) {
            (Storage::Linear, 4) => {
                let start = self.index(e, r, cols.start);
                let end = start + cols.len();
                let whole = start.div_ceil(2)..(end / 2).max(start.div_ceil(2));
                let edge = |n: usize| grid.read(self.bytes, grid.address(n)) == code;
                all(&self.bytes[whole], low | low << 4) && edge(start) && edge(end - 1)
            }
            (_, 8) => {
                let mut runs = self.runs(e, r, cols);
                runs.all(|(start, len)| all(&self.bytes[start..start + len], low))
            }
            (Storage::Linear, bits) => {
                let wide = bits / 8;
                let start = self.index(e, r, cols.start) * wide;
                code == 0 && all(&self.bytes[start..start + cols.len() * wide], 0)
            }
            _ => false,
        }
    }

    /// Whether a stretch holds the logical elements from `logical` on; false leaves it open.
    fn same(
        &self,
        source: &Tensor,
        (e, r): (usize, usize),
        cols: Range<usize>,
        logical: Place3,
    ) -> bool {
        let grid = self.map.grid;
        let (len, first) = (cols.len(), self.source_index(logical));
        let bytes = source.bytes();
        match (grid.storage, grid.bits) {
            (Storage::Linear, 4) => {
                let start = self.index(e, r, cols.start);
                let whole = [start, first, len].iter().all(|n| n.is_multiple_of(2));
                if source.bits() == 4 && whole && grid.nibble == Nibble::Low {
                    let (start, first, len) = (start / 2, first / 2, len / 2);
                    return self.bytes[start..start + len] == bytes[first..first + len];
                }
                let differ = |n: usize| {
                    let at = grid.address(start + n);
                    code(source, grid.bits, first + n) != grid.read(self.bytes, at)
                };
                !(0..len).any(differ)
            }
            (Storage::Linear, bits) => {
                let wide = bits / 8;
                let start = self.index(e, r, cols.start) * wide;
                self.bytes[start..start + len * wide] == bytes[first * wide..(first + len) * wide]
            }
            (_, 8) => {
                let mut at = first;
                self.runs(e, r, cols).all(|(start, len)| {
                    let (held, wanted) = (&self.bytes[start..start + len], &bytes[at..at + len]);
                    at += len;
                    // Four of a tile at once.
                    match (<&[u8; 4]>::try_from(held), <&[u8; 4]>::try_from(wanted)) {
                        (Ok(held), Ok(wanted)) => held == wanted,
                        _ => held == wanted,
                    }
                })
            }
            _ => false,
        }
    }

    /// Parts of a row of bytes that follow each other in storage: where each begins among the bytes, and how
    /// long it is.
    fn runs(&self, e: usize, r: usize, cols: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let before = self.before();
        let all = self.map.grid.stretches((e, r), cols);
        all.map(move |(start, len)| (start - before, len))
    }

    /// Where a logical element is in its tensor.
    fn source_index(&self, (e, r, c): Place3) -> usize {
        let rows = self.map.rows.logical_len();
        let cols = self.map.cols.logical_len();
        (e * rows + r) * cols + c
    }

    /// The code of a logical element.
    #[inline]
    fn wanted(&self, source: &Tensor, logical: Place3) -> u32 {
        code(source, self.map.grid.bits, self.source_index(logical))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of a difference, known at three places"
    )]
    fn report(
        &self,
        audit: &mut Audit,
        fault: Fault,
        physical: Place3,
        logical: Option<Place3>,
        at: Address,
        wanted: u32,
        actual: u32,
    ) {
        let (held, whole) = self.first;
        let moved = |(e, r, c): Place3, by| (e + by, r, c);
        let expert_bytes = self.map.grid.rows * self.map.grid.cols * self.map.grid.bits / 8;
        audit.report(Difference {
            physical: Some(moved(physical, held)),
            logical: logical.map(|place| moved(place, whole)),
            expert: Some(physical.0 + whole),
            byte: at.byte + self.before() * self.map.grid.bits / 8 + held * expert_bytes,
            wanted: u64::from(wanted),
            actual: u64::from(actual),
            ..Difference::of_tensor(self.map.role.name(), Some(self.rank), fault)
        });
    }
}

/// The code of element `index` of a logical tensor.
#[inline]
pub(super) fn code(source: &Tensor, bits: usize, index: usize) -> u32 {
    let bytes = source.bytes();
    match bits {
        4 if source.bits() == 4 => u32::from(bytes[index / 2] >> (4 * (index % 2)) & 0xf),
        4 | 8 => u32::from(bytes[index]),
        16 => u32::from(bytes[2 * index]) | u32::from(bytes[2 * index + 1]) << 8,
        _ => u32::from_le_bytes(
            bytes[4 * index..4 * index + 4]
                .try_into()
                .expect("a slice of four bytes"),
        ),
    }
}

/// The input: logical rows and columns in place, all else zero.
fn input(plan: &Plan, x: &Tensor, padded: &Tensor, audit: &mut Audit) -> Result<(), LayoutError> {
    let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (tokens, hidden) = (index(plan.dims.t), index(plan.dims.h));
    let wanted_bytes = tokens.saturating_mul(hidden).saturating_mul(4);
    expect_size("x", wanted_bytes, x.bytes().len())?;
    let width = index(plan.hidden_padded);
    let bytes = index(plan.tokens_padded)
        .saturating_mul(width)
        .saturating_mul(4);
    if !padded.guards_intact() {
        audit.report(Difference::of_tensor("x", None, Fault::Guard));
    }
    if padded.bytes().len() != bytes || hidden > width || tokens > index(plan.tokens_padded) {
        audit.report(Difference {
            wanted: count(bytes),
            actual: count(padded.bytes().len()),
            ..Difference::of_tensor("x", None, Fault::Size)
        });
        return Ok(());
    }
    audit.checked_bytes += count(bytes);
    for (n, code) in padded.bytes().as_chunks::<4>().0.iter().enumerate() {
        let (row, col) = (n / width, n % width);
        let actual = f32::from_le_bytes(*code);
        let logical = (row < tokens && col < hidden).then_some((0, row, col));
        let (fault, wanted) = if logical.is_some() {
            let start = (row * hidden + col) * 4;
            let source = &x.bytes()[start..start + 4];
            let wanted = f32::from_le_bytes(source.try_into().expect("a slice of four bytes"));
            audit.elements += 1;
            if wanted.to_bits() == actual.to_bits() {
                continue;
            }
            (Fault::Element, wanted)
        } else {
            audit.pads += 1;
            if actual == 0.0 {
                audit.minus_zero_pads += u64::from(actual.is_sign_negative());
                continue;
            }
            (Fault::Pad, 0.0)
        };
        audit.report(Difference {
            physical: Some((0, row, col)),
            logical,
            byte: n * 4,
            wanted: u64::from(wanted.to_bits()),
            actual: u64::from(actual.to_bits()),
            ..Difference::of_tensor("x", None, fault)
        });
    }
    Ok(())
}

pub(super) fn expect_size(
    tensor: &'static str,
    wanted: usize,
    actual: usize,
) -> Result<(), LayoutError> {
    if wanted == actual {
        return Ok(());
    }
    Err(LayoutError::Size {
        tensor,
        what: "logical bytes",
        wanted,
        actual,
    })
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
