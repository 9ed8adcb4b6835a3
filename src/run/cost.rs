//! What a part of a model costs under a plan, in all its layers: memory and arithmetic.
//!
//! It must not plan, or weigh one cost against another. Layer 9.

use crate::model::Model;
use crate::plan::{LayerSpec, Plan};
use crate::terms::LayerKind;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Millionths of a whole.
const MILLION: u128 = 1_000_000;

/// Memory and arithmetic of parts, in all their layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that one rank holds: weights, scales, zero points, biases and storage padding.
    pub rank_bytes: u64,
    /// Bytes that all ranks hold beyond their own shares of the checkpoint.
    pub extra_bytes: u64,
    /// Multiplications for a token without padding.
    needed: u128,
    /// Those that are made, in millionths of one.
    done: u128,
}

impl Cost {
    /// Of a plan in so many layers, held against the shares of another; none where a number leaves its
    /// type.
    pub(super) fn of(plan: &Plan, shares: &Plan, layers: u64) -> Option<Cost> {
        let (own, other) = (plan.memory().ok()?, shares.memory().ok()?);
        let done = MILLION.checked_add(u128::from(plan.arithmetic_millionths()))?;
        Some(Cost {
            rank_bytes: plan.weight_bytes().checked_mul(layers)?,
            extra_bytes: own.held.saturating_sub(other.needed).checked_mul(layers)?,
            needed: multiplications(shares, layers)?,
            done: multiplications(plan, layers)?.checked_mul(done)?,
        })
    }

    /// Of a part that every rank of every replica holds and multiplies whole, where one copy would do.
    pub(super) fn copied(self, ranks: u64, replicas: u64) -> Option<Cost> {
        let copies = ranks.checked_sub(1)?.checked_mul(replicas)?;
        Some(Cost {
            extra_bytes: self.rank_bytes.checked_mul(copies)?,
            done: self.done.checked_mul(u128::from(ranks))?,
            ..self
        })
    }

    /// Of both.
    pub(super) fn and(self, other: Cost) -> Option<Cost> {
        Some(Cost {
            rank_bytes: self.rank_bytes.checked_add(other.rank_bytes)?,
            extra_bytes: self.extra_bytes.checked_add(other.extra_bytes)?,
            needed: self.needed.checked_add(other.needed)?,
            done: self.done.checked_add(other.done)?,
        })
    }

    /// Multiplications beyond those without padding, in millionths of them, to the nearest.
    pub fn extra_arithmetic(&self) -> u64 {
        let extra = self
            .done
            .saturating_sub(self.needed.saturating_mul(MILLION));
        let needed = self.needed.max(1);
        u64::try_from(extra.saturating_add(needed / 2) / needed).unwrap_or(u64::MAX)
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut all = to.serialize_struct("Cost", 3)?;
        all.serialize_field("rank_bytes", &self.rank_bytes)?;
        all.serialize_field("extra_bytes", &self.extra_bytes)?;
        let ratio = self.extra_arithmetic() as f64 / 1e6;
        all.serialize_field("extra_arithmetic", &ratio)?;
        all.end()
    }
}

/// Multiplications for one token without padding, in all layers of a plan's part.
fn multiplications(plan: &Plan, layers: u64) -> Option<u128> {
    let dims = plan.dims;
    let projections = dims.halves.checked_add(1)?;
    let sizes = [dims.k, dims.i, dims.h, layers];
    let mut all = sizes.into_iter().map(u128::from);
    all.try_fold(u128::from(projections), u128::checked_mul)
}

/// How many layers of a model have a part: one place in the list of parts.
pub(super) fn layers(model: &Model, parts: &[LayerSpec], at: usize) -> u64 {
    match parts[at].kind {
        // Other formats than the first say how many layers they are of.
        LayerKind::Routed => {
            let others = &model.quant.others;
            let counted = at.checked_sub(1).and_then(|at| others.get(at));
            counted.map_or_else(
                || {
                    let others = others.iter();
                    let others = others.fold(0u64, |all, other| all.saturating_add(other.layers));
                    model.moe_layers.saturating_sub(others).max(1)
                },
                |share| share.layers,
            )
        }
        LayerKind::Shared => model.moe_layers.max(1),
        LayerKind::Dense => model.dense_layers.max(1),
        LayerKind::Draft => model.mtp_layers.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    fn cost(line: &str, layers: u64) -> Cost {
        let made = plan(&line.parse().unwrap()).unwrap();
        Cost::of(&made, &made, layers).unwrap()
    }

    /// 33 channels of 64 bytes twice over, on buffers of 64.
    #[test]
    fn a_part_costs_as_much_as_all_its_layers() {
        let one = cost("e=2,k=1,h=64,i=33,w=bf16,act=relu2,split=floor,pad=i64", 1);
        assert_eq!(one.rank_bytes, 2 * 2 * 64 * 64 * 2);
        assert_eq!(one.extra_bytes, 2 * 2 * (64 - 33) * 64 * 2);
        assert_eq!(one.extra_arithmetic(), 939_394);
        let five = cost("e=2,k=1,h=64,i=33,w=bf16,act=relu2,split=floor,pad=i64", 5);
        assert_eq!(five.rank_bytes, 5 * one.rank_bytes);
        assert_eq!(five.extra_arithmetic(), one.extra_arithmetic());
    }

    #[test]
    fn arithmetic_of_parts_is_weighed_by_what_they_multiply() {
        let padded = cost("e=2,k=1,h=64,i=32,w=bf16,act=relu2,split=floor,pad=i64", 1);
        let whole = cost("e=2,k=1,h=64,i=64,w=bf16,act=relu2", 1);
        // 64 for 32, and 64 for 64.
        assert_eq!(padded.and(whole).unwrap().extra_arithmetic(), 333_333);
    }

    #[test]
    fn copies_are_held_and_multiplied_by_every_rank() {
        let whole = cost("e=1,k=1,h=64,i=64,w=bf16,act=relu2", 1);
        let copied = whole.copied(8, 2).unwrap();
        assert_eq!(copied.extra_bytes, 14 * whole.rank_bytes);
        assert_eq!(copied.extra_arithmetic(), 7_000_000);
    }
}
