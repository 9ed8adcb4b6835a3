//! Visiting every stored position of a tensor, for audits and mutants: no slices, no haste.

use super::copy::{Pads, pad_rows};
use super::map::{Address, Map};

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
