//! Packing and unpacking: loops over a map that copy runs as slices.

use super::grid::tile_col;
use super::map::Map;
use super::scatter::{gather, scatter};
use crate::tensor::Tensor;
use crate::terms::{Nibble, Storage};
use std::ops::Range;

/// Which padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pads {
    /// Positions of the padded grid that hold no logical element.
    Logical,
    /// Positions that only the storage layout adds: tile remainders, an odd row's last nibble.
    Storage,
    /// Both.
    Both,
}

/// A new tensor holding this rank's part of `logical`, logical padding filled with `pad_code`,
/// storage padding with the layout's own code.
///
/// # Panics
/// When `logical` is not the whole logical tensor of the map ([`super::pack_layer`] checks it).
pub fn pack(map: &Map, name: &'static str, logical: &Tensor, pad_code: u32) -> Tensor {
    pack_zeroed(
        map,
        Tensor::zeroed(name, &map.stored_shape(), map.grid.bits),
        logical,
        pad_code,
    )
}

/// [`pack`] into a tensor of zeros of the map's size.
pub(super) fn pack_zeroed(
    map: &Map,
    mut packed: Tensor,
    logical: &Tensor,
    pad_code: u32,
) -> Tensor {
    if pad_code != 0 {
        set_pads(map, &mut packed, Pads::Logical, pad_code);
    }
    if map.storage_pad() != 0 {
        set_pads(map, &mut packed, Pads::Storage, map.storage_pad());
    }
    copy_in(map, logical, &mut packed);
    packed
}

/// Packs into an existing tensor, clearing its padding again: what a reload has to do
/// (facts/upstream-padding.md 3.1, V-16).
///
/// # Panics
/// When a tensor is not of the map's size.
pub fn pack_into(map: &Map, logical: &Tensor, pad_code: u32, packed: &mut Tensor) {
    set_pads(map, packed, Pads::Storage, map.storage_pad());
    set_pads(map, packed, Pads::Logical, pad_code);
    copy_in(map, logical, packed);
}

/// Writes the logical elements that this rank holds.
///
/// # Panics
/// When a tensor is not of the map's size.
pub fn unpack(map: &Map, packed: &Tensor, into: &mut Tensor) {
    check(map, into, packed);
    let source = packed.bytes();
    let target = into.bytes_mut();
    match (map.grid.storage, map.grid.bits) {
        (Storage::Linear, 4) => {
            let nibble = map.grid.nibble;
            segments(map, |l, p, len| {
                unpack_codes(source, p, &mut target[l..l + len], nibble)
            });
        }
        (Storage::Linear, bits) => {
            let b = bits / 8;
            segments(map, |l, p, len| {
                target[l * b..(l + len) * b].copy_from_slice(&source[p * b..(p + len) * b]);
            });
        }
        (Storage::Tiled128x4, _) => tiled(map, |l, p| target[l] = source[p]),
        _ => gather(map, source, target),
    }
}

/// Writes `code` to every padding position of a kind: clearing, or poison.
///
/// # Panics
/// When the tensor is not of the map's size.
pub fn set_pads(map: &Map, packed: &mut Tensor, which: Pads, code: u32) {
    assert_eq!(
        packed.bytes().len(),
        map.bytes(),
        "{} is not of the map's size",
        packed.name()
    );
    let grid = map.grid;
    let bytes = packed.bytes_mut();
    let le = code.to_le_bytes();
    pad_rows(map, which, |e, r, cols| match (grid.storage, grid.bits) {
        (Storage::Linear, 4) => {
            let start = grid.index(e, r, cols.start);
            fill_codes(bytes, start, cols.len(), le[0] & 0xf, grid.nibble);
        }
        (Storage::Linear, bits) => {
            let b = bits / 8;
            let start = grid.index(e, r, cols.start) * b;
            fill(&mut bytes[start..start + cols.len() * b], &le[..b]);
        }
        (Storage::Tiled128x4, _) => {
            let base = grid.index(e, r, 0);
            for c in cols {
                bytes[base + tile_col(c)] = le[0];
            }
        }
        _ => {
            for c in cols {
                grid.write(bytes, grid.address(grid.index(e, r, c)), code);
            }
        }
    });
}

fn copy_in(map: &Map, logical: &Tensor, packed: &mut Tensor) {
    check(map, logical, packed);
    let source = logical.bytes();
    let target = packed.bytes_mut();
    match (map.grid.storage, map.grid.bits) {
        (Storage::Linear, 4) => {
            let nibble = map.grid.nibble;
            segments(map, |l, p, len| {
                pack_codes(&source[l..l + len], target, p, nibble)
            });
        }
        (Storage::Linear, bits) => {
            let b = bits / 8;
            segments(map, |l, p, len| {
                target[p * b..(p + len) * b].copy_from_slice(&source[l * b..(l + len) * b]);
            });
        }
        (Storage::Tiled128x4, _) => tiled(map, |l, p| target[p] = source[l]),
        _ => scatter(map, source, target),
    }
}

fn check(map: &Map, logical: &Tensor, packed: &Tensor) {
    assert_eq!(
        packed.bytes().len(),
        map.bytes(),
        "packed {} is not of the map's size",
        packed.name()
    );
    assert_eq!(
        logical.bytes().len(),
        map.logical_bytes(),
        "logical {} is not of the map's size",
        logical.name()
    );
}

/// Calls `f(logical index, storage index, elements)` for each stretch that is consecutive on
/// both sides of a row-major tensor.
///
/// Where columns are unpadded and whole, a run of rows is one stretch.
#[inline(always)]
fn segments(map: &Map, mut f: impl FnMut(usize, usize, usize)) {
    let [_, rows_l, cols_l] = map.logical_shape();
    let whole_rows = map.cols.fills(map.grid.cols);
    for e in map.experts.runs() {
        for n in 0..e.len {
            let (e_l, e_p) = (e.logical + n, e.physical + n);
            for rows in map.rows.runs() {
                let row_l = (e_l * rows_l + rows.logical) * cols_l;
                let row_p = map.grid.index(e_p, rows.physical, 0);
                if whole_rows {
                    f(row_l, row_p, rows.len * cols_l);
                    continue;
                }
                for r in 0..rows.len {
                    let (row_l, row_p) = (row_l + r * cols_l, row_p + r * map.grid.cols);
                    for cols in map.cols.runs() {
                        f(row_l + cols.logical, row_p + cols.physical, cols.len);
                    }
                }
            }
        }
    }
}

/// Calls `f(logical index, storage index)` for each element of a tiled tensor.
#[inline(always)]
fn tiled(map: &Map, mut f: impl FnMut(usize, usize)) {
    let [_, rows_l, cols_l] = map.logical_shape();
    for e in map.experts.runs() {
        for n in 0..e.len {
            let base_p = (e.physical + n) * map.grid.rows * map.grid.cols;
            for rows in map.rows.runs() {
                for r in 0..rows.len {
                    let row_l = ((e.logical + n) * rows_l + rows.logical + r) * cols_l;
                    let row_p = base_p + map.grid.tile_row(rows.physical + r);
                    for cols in map.cols.runs() {
                        for c in 0..cols.len {
                            f(
                                row_l + cols.logical + c,
                                row_p + tile_col(cols.physical + c),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Calls `f(expert, row, columns)` for each stretch of padding, in physical coordinates.
pub(super) fn pad_rows(map: &Map, which: Pads, mut f: impl FnMut(usize, usize, Range<usize>)) {
    let [experts, rows, cols] = map.shape();
    let logical = matches!(which, Pads::Logical | Pads::Both);
    let storage = matches!(which, Pads::Storage | Pads::Both);
    for e in 0..experts {
        if logical {
            for gap in map.rows.gaps() {
                for r in gap {
                    f(e, r, 0..cols);
                }
            }
            for gap in map.cols.gaps() {
                for run in map.rows.runs() {
                    for r in run.physical..run.physical + run.len {
                        f(e, r, gap.clone());
                    }
                }
            }
        }
        if storage {
            if cols < map.grid.cols {
                for r in 0..rows {
                    f(e, r, cols..map.grid.cols);
                }
            }
            for r in rows..map.grid.rows {
                f(e, r, 0..map.grid.cols);
            }
        }
    }
}

/// Repeats a code over a slice.
fn fill(bytes: &mut [u8], code: &[u8]) {
    if code.iter().all(|&b| b == code[0]) {
        bytes.fill(code[0]);
    } else {
        for element in bytes.chunks_exact_mut(code.len()) {
            element.copy_from_slice(code);
        }
    }
}

/// Packs codes, one a byte, from element `start` of a nibble tensor on.
#[inline]
fn pack_codes(mut codes: &[u8], target: &mut [u8], mut start: usize, nibble: Nibble) {
    if start % 2 == 1
        && let Some((&first, rest)) = codes.split_first()
    {
        put_nibble(&mut target[start / 2], first, nibble == Nibble::Low);
        codes = rest;
        start += 1;
    }
    let pairs = codes.len() / 2;
    let bytes = &mut target[start / 2..];
    let (whole, last) = codes.split_at(pairs * 2);
    // A pair as one u16 has the first code in its low byte; this form vectorises.
    let pairs_of = whole
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&p| u16::from_le_bytes(p));
    match nibble {
        Nibble::Low => {
            for (byte, pair) in bytes.iter_mut().zip(pairs_of) {
                *byte = ((pair & 0xf) | ((pair >> 4) & 0xf0)).to_le_bytes()[0];
            }
        }
        Nibble::High => {
            for (byte, pair) in bytes.iter_mut().zip(pairs_of) {
                *byte = (((pair & 0xf) << 4) | ((pair >> 8) & 0xf)).to_le_bytes()[0];
            }
        }
    }
    if let Some(&last) = last.first() {
        put_nibble(&mut bytes[pairs], last, nibble == Nibble::High);
    }
}

/// Repeats a code over elements `start..start + len` of a nibble tensor.
fn fill_codes(target: &mut [u8], start: usize, len: usize, code: u8, nibble: Nibble) {
    let end = start + len;
    if len > 0 && start % 2 == 1 {
        put_nibble(&mut target[start / 2], code, nibble == Nibble::Low);
    }
    let (first, last) = (start.div_ceil(2), end / 2);
    if first < last {
        target[first..last].fill(code | code << 4);
    }
    if end % 2 == 1 && end > start.next_multiple_of(2) {
        put_nibble(&mut target[last], code, nibble == Nibble::High);
    }
}

fn put_nibble(byte: &mut u8, code: u8, high: bool) {
    *byte = if high {
        (*byte & 0x0f) | code << 4
    } else {
        (*byte & 0xf0) | (code & 0xf)
    };
}

/// Unpacks codes, one a byte, from element `start` of a nibble tensor on.
#[inline]
fn unpack_codes(source: &[u8], mut start: usize, mut codes: &mut [u8], nibble: Nibble) {
    if start % 2 == 1
        && let Some((first, rest)) = std::mem::take(&mut codes).split_first_mut()
    {
        *first = get_nibble(source[start / 2], nibble == Nibble::Low);
        codes = rest;
        start += 1;
    }
    let pairs = codes.len() / 2;
    let bytes = &source[start / 2..];
    let (whole, last) = codes.split_at_mut(pairs * 2);
    let high_first = nibble == Nibble::High;
    for (&byte, pair) in bytes.iter().zip(whole.as_chunks_mut::<2>().0) {
        let (low, high) = (byte & 0xf, byte >> 4);
        *pair = if high_first { [high, low] } else { [low, high] };
    }
    if let Some(last) = last.first_mut() {
        *last = get_nibble(bytes[pairs], high_first);
    }
}

fn get_nibble(byte: u8, high: bool) -> u8 {
    if high { byte >> 4 } else { byte & 0xf }
}
