//! Everything a subject gets: the packed tensors of every rank.

use super::copy::{pack_into, pack_zeroed};
use super::error::LayoutError;
use super::map::{Map, map, roles};
use crate::plan::{Plan, Role};
use crate::tensor::{Logical, Pool, RouterInput, Tensor};

/// Most bytes that the packed tensors of one layer may take: properties hold two of them at a time.
const MAX_BYTES: u64 = 768 << 20;

/// The packed tensors of one rank, by role.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RankInputs {
    tensors: [Option<Tensor>; Role::ALL.len()],
}

impl RankInputs {
    /// A tensor, if the plan has it.
    pub fn get(&self, role: Role) -> Option<&Tensor> {
        self.tensors[slot(role)].as_ref()
    }

    /// A tensor, to be written.
    pub fn get_mut(&mut self, role: Role) -> Option<&mut Tensor> {
        self.tensors[slot(role)].as_mut()
    }

    /// Puts a tensor in its role's place.
    pub fn set(&mut self, role: Role, tensor: Tensor) {
        self.tensors[slot(role)] = Some(tensor);
    }

    /// The roles and tensors that are there, in the order of tables.
    pub fn iter(&self) -> impl Iterator<Item = (Role, &Tensor)> {
        Role::ALL
            .into_iter()
            .filter_map(|role| self.get(role).map(|t| (role, t)))
    }
}

fn slot(role: Role) -> usize {
    Role::ALL
        .iter()
        .position(|&r| r == role)
        .expect("ALL lists every role")
}

/// What a subject computes from.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedInputs {
    /// Input f32 [tokens_padded, hidden_padded], padding zero.
    pub x: Tensor,
    /// What the router gets: never padded.
    pub router: RouterInput,
    /// One entry per rank.
    pub ranks: Vec<RankInputs>,
    /// Fixed scale of the input under static quantisation.
    pub x_scale: f32,
    /// Fixed scale of the intermediate under static quantisation.
    pub h_scale: f32,
}

impl PackedInputs {
    /// Whether every guard still holds its pattern.
    pub fn guards_intact(&self) -> bool {
        self.x.guards_intact()
            && self
                .ranks
                .iter()
                .all(|rank| rank.iter().all(|(_, t)| t.guards_intact()))
    }

    /// Gives the tensors' memory to a pool.
    pub fn give_back(self, pool: &mut Pool) {
        pool.keep(self.x);
        for rank in self.ranks {
            for tensor in rank.tensors.into_iter().flatten() {
                pool.keep(tensor);
            }
        }
    }
}

/// The code that fills a tensor's logical padding.
pub fn pad_code(plan: &Plan, role: Role) -> u32 {
    match role {
        Role::W13 | Role::W2 => plan.weight_pad,
        Role::W13Scale => plan.w13_scale.map_or(0, |s| s.pad_code),
        Role::W2Scale => plan.w2_scale.map_or(0, |s| s.pad_code),
        Role::W13Global | Role::W2Global | Role::W13Bias | Role::W2Bias => 0,
    }
}

/// The logical tensor of a role, if the layer has it.
pub fn logical_of(logical: &Logical, role: Role) -> Option<&Tensor> {
    match role {
        Role::W13 => Some(&logical.w13),
        Role::W2 => Some(&logical.w2),
        Role::W13Scale => logical.w13_scale.as_ref(),
        Role::W2Scale => logical.w2_scale.as_ref(),
        Role::W13Global => logical.w13_global.as_ref(),
        Role::W2Global => logical.w2_global.as_ref(),
        Role::W13Bias => logical.w13_bias.as_ref(),
        Role::W2Bias => logical.w2_bias.as_ref(),
    }
}

/// Packs every tensor of every rank, and the padded input.
///
/// # Errors
/// When the plan describes no layout, or the logical tensors are not of its sizes.
pub fn pack_layer(plan: &Plan, logical: &Logical) -> Result<PackedInputs, LayoutError> {
    pack_layer_in(plan, logical, &mut Pool::default())
}

/// [`pack_layer`] in memory of a pool.
///
/// # Errors
/// As [`pack_layer`].
pub fn pack_layer_in(
    plan: &Plan,
    logical: &Logical,
    pool: &mut Pool,
) -> Result<PackedInputs, LayoutError> {
    let maps = maps(plan, logical)?;
    let x = pad_input(plan, &logical.x, pool)?;
    let ranks = maps
        .iter()
        .map(|rank| {
            let mut packed = RankInputs::default();
            for (map, tensor) in rank {
                let zeroed = pool.zeroed(map.role.name(), &map.stored_shape(), map.grid.bits);
                let code = pad_code(plan, map.role);
                packed.set(map.role, pack_zeroed(map, zeroed, tensor, code));
            }
            packed
        })
        .collect();
    Ok(PackedInputs {
        x,
        router: logical.router.clone(),
        ranks,
        x_scale: logical.x_scale,
        h_scale: logical.h_scale,
    })
}

/// Packs over the tensors of an earlier call with a plan of the same sizes: a reload.
///
/// # Errors
/// As [`pack_layer`], and when `packed` has other tensors or sizes; it is then unchanged.
pub fn pack_layer_into(
    plan: &Plan,
    logical: &Logical,
    packed: &mut PackedInputs,
) -> Result<(), LayoutError> {
    let maps = maps(plan, logical)?;
    let size_error = |tensor, what, wanted, actual| LayoutError::Size {
        tensor,
        what,
        wanted,
        actual,
    };
    if maps.len() != packed.ranks.len() {
        return Err(size_error("layer", "ranks", maps.len(), packed.ranks.len()));
    }
    for (rank, target) in maps.iter().zip(&packed.ranks) {
        for (map, _) in rank {
            let tensor = map.role.name();
            let there = target
                .get(map.role)
                .ok_or(LayoutError::NoTensor { tensor })?;
            if there.bytes().len() != map.bytes() {
                let actual = there.bytes().len();
                return Err(size_error(tensor, "bytes", map.bytes(), actual));
            }
        }
    }
    let x = pad_input(plan, &logical.x, &mut Pool::default())?;
    if packed.x.bytes().len() != x.bytes().len() {
        let actual = packed.x.bytes().len();
        return Err(size_error("x", "bytes", x.bytes().len(), actual));
    }
    packed.x.bytes_mut().copy_from_slice(x.bytes());
    packed.router.clone_from(&logical.router);
    packed.x_scale = logical.x_scale;
    packed.h_scale = logical.h_scale;
    for (rank, target) in maps.iter().zip(&mut packed.ranks) {
        for (map, tensor) in rank {
            if let Some(there) = target.get_mut(map.role) {
                pack_into(map, tensor, pad_code(plan, map.role), there);
            }
        }
    }
    Ok(())
}

/// The maps of every rank with their logical tensors, sizes checked, before anything is allocated.
fn maps<'a>(plan: &Plan, logical: &'a Logical) -> Result<Vec<Vec<(Map, &'a Tensor)>>, LayoutError> {
    let mut bytes = 0u64;
    let mut ranks = Vec::with_capacity(plan.ranks.len());
    for rank in 0..plan.ranks.len() {
        let mut tensors = Vec::with_capacity(Role::ALL.len());
        for role in roles(plan) {
            let name = role.name();
            let map = map(plan, role, rank)?;
            let tensor = logical_of(logical, role).ok_or(LayoutError::NoTensor { tensor: name })?;
            if tensor.bytes().len() != map.logical_bytes() {
                return Err(LayoutError::Size {
                    tensor: name,
                    what: "logical bytes",
                    wanted: map.logical_bytes(),
                    actual: tensor.bytes().len(),
                });
            }
            bytes = bytes.saturating_add(u64::try_from(map.bytes()).unwrap_or(u64::MAX));
            tensors.push((map, tensor));
        }
        ranks.push(tensors);
    }
    within_ceiling("layer", bytes)?;
    Ok(ranks)
}

fn within_ceiling(tensor: &'static str, bytes: u64) -> Result<(), LayoutError> {
    if bytes > MAX_BYTES {
        return Err(LayoutError::TooLarge {
            tensor,
            value: bytes,
            unit: "bytes",
            limit: MAX_BYTES,
        });
    }
    Ok(())
}

/// The input with padding rows and columns of zeros.
fn pad_input(plan: &Plan, x: &Tensor, pool: &mut Pool) -> Result<Tensor, LayoutError> {
    let (tokens, hidden) = (plan.tokens_padded, plan.hidden_padded);
    let elements = tokens.saturating_mul(hidden);
    within_ceiling("x", elements.saturating_mul(4))?;
    let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (tokens, hidden) = (index(tokens), index(hidden));
    let wanted = index(plan.dims.t).saturating_mul(index(plan.dims.h));
    let size_error = |what, wanted, actual| LayoutError::Size {
        tensor: "x",
        what,
        wanted,
        actual,
    };
    if x.bits() != 32 || x.f32s().len() != wanted {
        return Err(size_error("logical bytes", wanted * 4, x.bytes().len()));
    }
    if index(plan.dims.h) > hidden {
        return Err(size_error("padded columns", index(plan.dims.h), hidden));
    }
    if index(plan.dims.t) > tokens {
        return Err(size_error("padded rows", index(plan.dims.t), tokens));
    }
    let mut padded = pool.zeroed("x", &[tokens, hidden], 32);
    let width = index(plan.dims.h);
    if width > 0 {
        let rows = padded.f32s_mut().chunks_exact_mut(hidden);
        for (row, source) in rows.zip(x.f32s().chunks_exact(width)) {
            row[..width].copy_from_slice(source);
        }
    }
    Ok(padded)
}
