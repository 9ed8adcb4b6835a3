//! Visiting every stored position of a tensor, for audits and mutants: no slices, no haste.

use super::axis::Axis;
use super::copy::{Pads, pad_rows};
use super::grid::Address;
use super::map::Map;
use std::ops::Range;

/// A position: expert, row, column.
pub type Place3 = (usize, usize, usize);

/// Calls `f(physical, address, logical)` for every position of the padded grid, in physical
/// order; `logical` is `None` for padding.
pub fn for_each(map: &Map, mut f: impl FnMut(Place3, Address, Option<Place3>)) {
    let [experts, rows, cols] = map.shape();
    if experts == 0 || rows == 0 {
        return;
    }
    let cols_l: Vec<Option<usize>> = (0..cols).map(|c| map.cols.to_logical(c)).collect();
    for e in 0..experts {
        let e_l = map.experts.to_logical(e);
        for r in 0..rows {
            let row_l = e_l.zip(map.rows.to_logical(r));
            for (c, &c_l) in cols_l.iter().enumerate() {
                let logical = row_l.zip(c_l).map(|((e, r), c)| (e, r, c));
                f((e, r, c), map.address(e, r, c), logical);
            }
        }
    }
}

/// Calls `f(physical, address)` for every position that only the storage layout adds.
pub fn for_each_storage_pad(map: &Map, mut f: impl FnMut(Place3, Address)) {
    pad_rows(map, Pads::Storage, |e, r, cols| {
        for c in cols {
            f((e, r, c), map.address(e, r, c));
        }
    });
}

/// Calls `f(expert, row, columns, logical)` for every stretch of a row of the padded grid that
/// is padding, or holds consecutive logical elements from `logical` on; in physical order, of some
/// rows of each expert.
pub fn for_each_stretch(
    map: &Map,
    of: Range<usize>,
    mut f: impl FnMut(usize, usize, Range<usize>, Option<Place3>),
) {
    let [experts, rows, cols] = map.shape();
    let stretches = stretches(&map.cols);
    for e in 0..experts {
        let e_l = map.experts.to_logical(e);
        for r in of.start..of.end.min(rows) {
            let Some((e_l, r_l)) = e_l.zip(map.rows.to_logical(r)) else {
                f(e, r, 0..cols, None);
                continue;
            };
            for (range, c_l) in &stretches {
                f(e, r, range.clone(), c_l.map(|c| (e_l, r_l, c)));
            }
        }
    }
}

/// An axis as its runs and gaps, in physical order.
fn stretches(axis: &Axis) -> Vec<(Range<usize>, Option<usize>)> {
    let runs = axis.runs().iter();
    let mut all: Vec<_> = runs
        .map(|r| (r.physical..r.physical + r.len, Some(r.logical)))
        .chain(axis.gaps().map(|gap| (gap, None)))
        .collect();
    all.sort_unstable_by_key(|(range, _)| range.start);
    all
}
