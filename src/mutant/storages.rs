//! Wrong storage layouts: elements in another kernel's order.

use crate::layout::{Grid, Map, PackedInputs, map};
use crate::plan::{Plan, Role};
use crate::tensor::Tensor;
use crate::terms::Storage;

/// M27: scales left row-major for a kernel that reads tiles.
pub(super) fn scales_not_swizzled(plan: &Plan) -> Option<Plan> {
    scales_as(plan, |_| Storage::Linear)
}

/// Scales in the tiles of a sister kernel: 8x4 (small M) for 128x4, gfx1250's for gfx950's.
pub(super) fn scales_in_other_tiles(plan: &Plan) -> Option<Plan> {
    scales_as(plan, |storage| match storage {
        Storage::Tiled128x4 | Storage::TritonBlackwell => Storage::Tiled8x4,
        Storage::Aiter256x8 | Storage::TritonCdna4 => Storage::AiterN32k4,
        Storage::AiterN32k4 => Storage::Tiled8x4,
        other => other,
    })
}

/// The same buffers, of sizes that the true layout asks for, with scales arranged by another one.
fn scales_as(plan: &Plan, other: impl Fn(Storage) -> Storage) -> Option<Plan> {
    let dtype = plan.w13_scale?.dtype;
    let storage = other(plan.storage);
    let changed = storage != plan.storage && plan.storage.takes(dtype) && storage.takes(dtype);
    changed.then(|| Plan {
        storage,
        ..plan.clone()
    })
}

/// Scales in tiles for a kernel that reads them row by row: the first tiles that fill the buffers.
pub(super) fn scales_swizzled(plan: &Plan) -> Option<Plan> {
    let scales = [plan.w13_scale, plan.w2_scale];
    let linear = plan.w13_scale.is_some() && plan.storage == Storage::Linear;
    let fills = |storage: &Storage| {
        let (rows, cols) = storage.tile();
        let whole = |s: &crate::plan::ScalePlan| {
            s.rows_stored.is_multiple_of(rows) && s.cols_stored.is_multiple_of(cols)
        };
        scales.iter().flatten().all(whole)
    };
    let tiles = [Storage::Tiled128x4, Storage::Tiled8x4];
    let storage = tiles.into_iter().find(fills).filter(|_| linear)?;
    scales_as(plan, |_| storage)
}

/// Weights shuffled for a kernel that reads them row by row.
pub(super) fn weights_shuffled(plan: &Plan) -> Option<Plan> {
    let linear = plan.weight_storage == Storage::Linear;
    let fills = Storage::Shuffle16x16.takes(plan.weight.element())
        && plan.w13_rows.is_multiple_of(16)
        && [plan.hidden_padded, plan.width_padded]
            .iter()
            .all(|n| n.is_multiple_of(64));
    (linear && fills).then(|| Plan {
        weight_storage: Storage::Shuffle16x16,
        ..plan.clone()
    })
}

/// Weights left row-major for a kernel that reads shuffled ones.
pub(super) fn weights_not_shuffled(plan: &Plan) -> Option<Plan> {
    let shuffled = plan.weight_storage.of(plan.weight.element()) != Storage::Linear;
    shuffled.then(|| Plan {
        weight_storage: Storage::Linear,
        ..plan.clone()
    })
}

/// Rows shuffled for another epilogue tile.
pub(super) fn rows_shuffled_in_sixteens(plan: &Plan) -> Option<Plan> {
    (plan.weight_storage == Storage::Rows32).then(|| Plan {
        weight_storage: Storage::Rows16,
        ..plan.clone()
    })
}

/// Weights in the shuffle of another kernel: rows for tiles of AITER's, and the other way round.
pub(super) fn weights_in_another_shuffle(plan: &Plan) -> Option<Plan> {
    let weight_storage = match plan.weight_storage.of(plan.weight.element()) {
        Storage::Shuffle16x16 => Storage::Rows16,
        Storage::Rows16 | Storage::Rows32 => Storage::Shuffle16x16,
        _ => return None,
    };
    weight_storage.takes(plan.weight.element()).then(|| Plan {
        weight_storage,
        ..plan.clone()
    })
}

/// Rows and columns of each tile of scales swapped.
pub(super) fn scale_tile_transposed(plan: &Plan, packed: &mut PackedInputs) -> bool {
    transposed(plan, packed, &[Role::W13Scale, Role::W2Scale])
}

/// Rows and columns of each tile of shuffled weights swapped.
pub(super) fn weight_tile_transposed(plan: &Plan, packed: &mut PackedInputs) -> bool {
    transposed(plan, packed, &[Role::W13, Role::W2])
}

fn transposed(plan: &Plan, packed: &mut PackedInputs, roles: &[Role]) -> bool {
    each(plan, packed, roles, |map, tensor| {
        let grid = map.grid;
        let (rows, cols) = grid.tile();
        if rows == 1 {
            return;
        }
        rearrange(map, tensor, |e, r, c| {
            // Column by column: place k of the tile, counted row by row again.
            let k = c % cols * rows + r % rows;
            Some(grid.index(e, r / rows * rows + k / cols, c / cols * cols + k % cols))
        });
    })
}

/// facts/upstream-padding.md 1.4 F1: columns of scales aligned to 4 where the kernel steps by 8, so
/// that every band of rows after the first begins too early.
pub(super) fn scale_columns_aligned_to_four(plan: &Plan, packed: &mut PackedInputs) -> bool {
    let applies = plan.storage == Storage::TritonBlackwell;
    applies
        && each(
            plan,
            packed,
            &[Role::W13Scale, Role::W2Scale],
            |map, tensor| {
                if map.grid.storage != Storage::TritonBlackwell {
                    return;
                }
                let narrow = Grid {
                    cols: map.cols.physical_len().next_multiple_of(4),
                    ..map.grid
                };
                rearrange(map, tensor, |e, r, c| {
                    // Experts stay where they are.
                    let inside = narrow.index(0, r, c);
                    (c < narrow.cols).then(|| map.grid.index(e, 0, 0) + inside)
                });
            },
        )
}

/// Writes the element stored at (expert, row, column) to the storage index `to`, all else zero.
fn rearrange(map: &Map, tensor: &mut Tensor, to: impl Fn(usize, usize, usize) -> Option<usize>) {
    let grid = map.grid;
    let before = tensor.bytes().to_vec();
    tensor.bytes_mut().fill(0);
    for e in 0..map.experts.physical_len() {
        for r in 0..grid.rows {
            for c in 0..grid.cols {
                let code = grid.read(&before, grid.address(grid.index(e, r, c)));
                if let Some(index) = to(e, r, c) {
                    grid.write(tensor.bytes_mut(), grid.address(index), code);
                }
            }
        }
    }
}

/// Applies `change` to the tensors of `roles` on every rank; whether a byte changed.
fn each(
    plan: &Plan,
    packed: &mut PackedInputs,
    roles: &[Role],
    change: impl Fn(&Map, &mut Tensor),
) -> bool {
    let mut changed = false;
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        for &role in roles {
            if let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get_mut(role)) {
                let before = tensor.clone();
                change(&map, tensor);
                changed |= *tensor != before;
            }
        }
    }
    changed
}

/// M27: the real scales of w2 are swizzled first, and what came out is padded row by row.
pub(super) fn swizzled_before_padding(plan: &Plan, packed: &mut PackedInputs) -> bool {
    each(plan, packed, &[Role::W2Scale], |map, tensor| {
        let grid = map.grid;
        let (tile_rows, tile_cols) = grid.tile();
        if tile_rows == 1 {
            return;
        }
        let [_, rows, cols] = map.shape();
        let real_rows = (0..rows)
            .filter(|r| map.rows.to_logical(*r).is_some())
            .count();
        let real_cols = (0..cols)
            .filter(|c| map.cols.to_logical(*c).is_some())
            .count();
        let narrow = Grid {
            rows: real_rows.next_multiple_of(tile_rows),
            cols: real_cols.next_multiple_of(tile_cols),
            ..grid
        };
        rearrange(map, tensor, |e, r, c| {
            let real = r < real_rows && c < real_cols;
            real.then(|| {
                let at = narrow.index(0, r, c);
                let (row, col) = (at / narrow.cols, at % narrow.cols);
                (e * grid.rows + row) * grid.cols + col
            })
        });
    })
}
