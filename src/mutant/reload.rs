//! Wrong second loads.

use super::grids;
use crate::layout::{LayoutError, PackedInputs, map, pack_layer_into, unpack};
use crate::plan::{Plan, Role};
use crate::tensor::Logical;
use crate::terms::Order;

/// facts/reports.md B71: tails are not cleared again; what the buffers held shows.
pub(super) fn tails_kept(
    plan: &Plan,
    logical: &Logical,
    packed: &mut PackedInputs,
) -> Result<bool, LayoutError> {
    let before = packed.clone();
    pack_layer_into(plan, logical, packed)?;
    let mut changed = false;
    for (n, (rank, before)) in packed.ranks.iter_mut().zip(&before.ranks).enumerate() {
        for role in [Role::W13, Role::W2] {
            let (Some(new), Some(old)) = (rank.get_mut(role), before.get(role)) else {
                continue;
            };
            let map = map(plan, role, n)?;
            let mut kept = old.clone();
            // Real elements are new, everything else is what it was.
            let mut logical = crate::layout::logical_of(logical, role)
                .expect("weights always are")
                .clone();
            unpack(&map, new, &mut logical);
            crate::layout::for_each(&map, |_, at, place| {
                if place.is_some() {
                    let code = map.grid.read(new.bytes(), at);
                    map.grid.write(kept.bytes_mut(), at, code);
                }
            });
            changed |= kept != *new;
            *new = kept;
        }
    }
    Ok(changed)
}

/// facts/reports.md B68: the second load writes gate first into a buffer that wants up first.
pub(super) fn halves_not_swapped(
    plan: &Plan,
    logical: &Logical,
    packed: &mut PackedInputs,
) -> Result<bool, LayoutError> {
    if plan.dims.halves != 2 || plan.order != Order::UpGate {
        return Ok(false);
    }
    let wrong = Plan {
        order: Order::GateUp,
        ..plan.clone()
    };
    pack_layer_into(&wrong, logical, packed)?;
    Ok(true)
}

/// M38: the second load keeps the checkpoint's own width: rows of w2 begin where they would in unpadded buffers.
pub(super) fn real_width_kept(
    plan: &Plan,
    logical: &Logical,
    packed: &mut PackedInputs,
) -> Result<bool, LayoutError> {
    pack_layer_into(plan, logical, packed)?;
    Ok(grids::rows_at_the_real_width(plan, packed))
}
