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
    /// Of a plan in so many layers, held against the shares of another. What leaves its type stays at the most
    /// that the type holds, which reports call more than can be counted.
    pub(super) fn of(plan: &Plan, shares: &Plan, layers: u64) -> Cost {
        let held = plan.memory().map_or(u64::MAX, |memory| memory.held);
        let needed = shares.memory().map_or(0, |memory| memory.needed);
        let done = MILLION.saturating_add(u128::from(plan.arithmetic_millionths()));
        Cost {
            rank_bytes: plan.weight_bytes().saturating_mul(layers),
            extra_bytes: held.saturating_sub(needed).saturating_mul(layers),
            needed: multiplications(shares, layers),
            done: multiplications(plan, layers).saturating_mul(done),
        }
    }

    /// Of a part that every rank of every replica holds and multiplies whole, where one copy would do.
    pub(super) fn copied(self, ranks: u64, replicas: u64) -> Cost {
        let copies = ranks.saturating_sub(1).saturating_mul(replicas);
        Cost {
            extra_bytes: self.rank_bytes.saturating_mul(copies),
            done: self.done.saturating_mul(u128::from(ranks)),
            ..self
        }
    }

    /// Of both.
    pub(super) fn and(self, other: Cost) -> Cost {
        Cost {
            rank_bytes: self.rank_bytes.saturating_add(other.rank_bytes),
            extra_bytes: self.extra_bytes.saturating_add(other.extra_bytes),
            needed: self.needed.saturating_add(other.needed),
            done: self.done.saturating_add(other.done),
        }
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
fn multiplications(plan: &Plan, layers: u64) -> u128 {
    let dims = plan.dims;
    let projections = dims.halves.saturating_add(1);
    let sizes = [dims.k, dims.i, dims.h, layers];
    let all = sizes.into_iter().map(u128::from);
    all.fold(u128::from(projections), u128::saturating_mul)
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
        // Draft layers in the experts' format have shared experts in that of the others; of those stored
        // otherwise nobody says how, which the model's notes do.
        LayerKind::Shared => {
            let alike = model.draft_experts && model.quant.draft_format.is_none();
            let draft = if alike { model.mtp_layers } else { 0 };
            model.moe_layers.saturating_add(draft).max(1)
        }
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
        Cost::of(&made, &made, layers)
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
        assert_eq!(padded.and(whole).extra_arithmetic(), 333_333);
    }

    #[test]
    fn copies_are_held_and_multiplied_by_every_rank() {
        let whole = cost("e=1,k=1,h=64,i=64,w=bf16,act=relu2", 1);
        let copied = whole.copied(8, 2);
        assert_eq!(copied.extra_bytes, 14 * whole.rank_bytes);
        assert_eq!(copied.extra_arithmetic(), 7_000_000);
    }

    /// Advice disappeared without a word.
    #[test]
    fn what_cannot_be_counted_stays_at_the_most_there_is() {
        let all = cost(
            "e=2,k=1,h=64,i=33,w=bf16,act=relu2,split=floor,pad=i64",
            u64::MAX,
        );
        assert_eq!((all.rank_bytes, all.extra_bytes), (u64::MAX, u64::MAX));
        let both = all.and(all).copied(u64::MAX, u64::MAX);
        assert_eq!((both.rank_bytes, both.extra_bytes), (u64::MAX, u64::MAX));
        both.extra_arithmetic();
    }
}
