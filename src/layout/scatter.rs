//! Copying for the layouts that leave few neighbours together: one element at a time.
//!
//! It must not know a layout: places come from the map. Layer 4.

use super::grid::Address;
use super::map::Map;

/// Writes every logical element that this rank holds to its place.
pub(super) fn scatter(map: &Map, source: &[u8], target: &mut [u8]) {
    let wide = map.grid.bits.max(8) / 8;
    each(map, |l, at| {
        let mut le = [0; 4];
        le[..wide].copy_from_slice(&source[l * wide..(l + 1) * wide]);
        map.grid.write(target, at, u32::from_le_bytes(le));
    });
}

/// Reads every logical element that this rank holds from its place.
pub(super) fn gather(map: &Map, source: &[u8], target: &mut [u8]) {
    let wide = map.grid.bits.max(8) / 8;
    each(map, |l, at| {
        let le = map.grid.read(source, at).to_le_bytes();
        target[l * wide..(l + 1) * wide].copy_from_slice(&le[..wide]);
    });
}

/// Calls `f(logical index, place)` for each element the rank holds.
#[inline(always)]
fn each(map: &Map, mut f: impl FnMut(usize, Address)) {
    let grid = map.grid;
    let [_, rows_l, cols_l] = map.logical_shape();
    for e in map.experts.runs() {
        for n in 0..e.len {
            let base = (e.physical + n) * grid.rows * grid.cols;
            for rows in map.rows.runs() {
                for r in 0..rows.len {
                    let row_l = ((e.logical + n) * rows_l + rows.logical + r) * cols_l;
                    let row_p = base + grid.row_part(rows.physical + r);
                    for cols in map.cols.runs() {
                        for c in 0..cols.len {
                            let index = row_p + grid.col_part(cols.physical + c);
                            f(row_l + cols.logical + c, grid.address(index));
                        }
                    }
                }
            }
        }
    }
}
