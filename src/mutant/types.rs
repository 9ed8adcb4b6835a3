//! What a mutant is.

use crate::layout::{LayoutError, PackedInputs, logical_of, map, pack, pad_code};
use crate::plan::{Plan, Role};
use crate::tensor::{Logical, Output};

/// Where a mutant goes wrong. Each function answers whether it changed anything: a mutant that
/// does not apply to a case leaves it alone.
#[derive(Clone, Copy)]
pub enum Stage {
    /// The planner: sizes, ranges, scale grids.
    Plan(fn(&mut Plan) -> bool),
    /// The layout: bytes are packed as this plan says, and read as the true one says.
    Layout(fn(&Plan) -> Option<Plan>),
    /// The same for some tensors alone, while the others are packed rightly.
    LayoutOf(fn(&Plan) -> Option<Plan>, &'static [Role]),
    /// The loader: bytes after a right packing.
    Bytes(fn(&Plan, &mut PackedInputs) -> bool),
    /// The second load into the same buffers.
    Reload(fn(&Plan, &Logical, &mut PackedInputs) -> Result<bool, LayoutError>),
    /// The kernel: its inputs' guards or its output.
    Output(fn(&Plan, &mut PackedInputs, &mut Output) -> bool),
}

/// A deliberately wrong padding or subject, modelled on a fault that really happened.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// Kebab-case name.
    pub name: &'static str,
    /// What it does, in a clause.
    pub meaning: &'static str,
    /// Where it is known from.
    pub source: &'static str,
    /// Where it goes wrong.
    pub stage: Stage,
    /// The properties that claim to catch it.
    pub caught_by: &'static [&'static str],
}

/// Packs the tensors of `roles` anew as another plan says; those that it cannot say stay.
pub fn repack(plan: &Plan, roles: &[Role], logical: &Logical, packed: &mut PackedInputs) {
    for (n, rank) in packed.ranks.iter_mut().enumerate() {
        for &role in roles {
            let (Ok(map), Some(source)) = (map(plan, role, n), logical_of(logical, role)) else {
                continue;
            };
            if rank.get(role).is_some() && source.bytes().len() == map.logical_bytes() {
                rank.set(role, pack(&map, role.name(), source, pad_code(plan, role)));
            }
        }
    }
}
