//! Names what changes every element and no known fault makes bit by bit: other codes for the same
//! values, and the same codes in other places.
//!
//! It must not say more than it can show. Layer 7.

use super::diagnose::{Diagnosis, Evidence, Look};
use super::variants::{Held, Padding};
use crate::layout::{Place3, logical_of};
use crate::num::Dtype;
use crate::plan::{Plan, Role};
use crate::tensor::{Logical, Tensor};

/// Different codes that a tensor must hold for their counts to say something.
const KINDS_MIN: usize = 4;
/// Smallest steps of a new scale that the largest value of the old one must span.
const STEPS_MIN: f64 = 4.0;

/// What can be shown of the elements that differ.
pub(super) fn named(look: &Look<'_>) -> Vec<Diagnosis> {
    let named = |name, meaning, source, by| Diagnosis {
        name,
        meaning,
        source,
        by,
        experts: Some(look.experts.clone()),
        tensors: Vec::new(),
        ranks: look.ranks(&look.right(Padding::Inert)),
        detail: String::new(),
        sample: String::new(),
    };
    if let Some(tensors) = requantised(look) {
        return vec![Diagnosis {
            tensors,
            ..named(
                "requantised",
                "every element stands for the value it had, to within one step of its type, under another scale",
                "facts/peers.md 5, ModelOpt FP8: the larger of gate's and up's scale",
                Evidence::Values,
            )
        }];
    }
    match permuted(look) {
        Some(tensors) => vec![Diagnosis {
            tensors,
            ..named(
                "rearranged",
                "every code is there as often as it should be, in other places: a repack or shuffle that no known fault makes",
                "this audit's count of codes",
                Evidence::Counts,
            )
        }],
        None => Vec::new(),
    }
}

/// The tensors that hold the wanted codes in other places; none if one that is not right does not.
fn permuted(look: &Look<'_>) -> Option<Vec<&'static str>> {
    let right = look.right(Padding::Inert);
    let mut tensors = Vec::new();
    for (held, _) in look.held.iter().zip(&right).filter(|(_, right)| !**right) {
        let all = look.right.sorted(held)?;
        // Padding may hold other codes and be inert: then those in the places of elements count.
        let [mut wanted, actual] = match all[0] == all[1] {
            true => all,
            false => elements(look, held),
        };
        let same = wanted == actual;
        wanted.dedup();
        // A few kinds of codes prove nothing.
        if !same || wanted.len() < KINDS_MIN {
            return None;
        }
        push(&mut tensors, held.stored.role.name());
    }
    (!tensors.is_empty()).then_some(tensors)
}

/// The codes in the places of a tensor's elements, as planned and as held, each in order of size.
fn elements(look: &Look<'_>, held: &Held<'_>) -> [Vec<u32>; 2] {
    let pairs = look.right.elements(held.stored.rank, held);
    let (mut wanted, mut actual): (Vec<u32>, Vec<u32>) = pairs.unzip();
    wanted.sort_unstable();
    actual.sort_unstable();
    [wanted, actual]
}

fn push(tensors: &mut Vec<&'static str>, name: &'static str) {
    if !tensors.contains(&name) {
        tensors.push(name);
    }
}

/// The weights that decode to what they did under the dump's own scales; none if a tensor that is not
/// right does not, or no scale changed.
fn requantised(look: &Look<'_>) -> Option<Vec<&'static str>> {
    let right = look.right(Padding::Inert);
    let mut tensors = Vec::new();
    let mut scaled = false;
    for (held, _) in look.held.iter().zip(&right).filter(|(_, right)| !**right) {
        let scale = match held.stored.role {
            Role::W13 => Role::W13Scale,
            Role::W2 => Role::W2Scale,
            Role::W13Scale | Role::W2Scale => {
                scaled = true;
                continue;
            }
            _ => return None,
        };
        let rank = held.stored.rank;
        let beside = |h: &&Held<'_>| h.stored.role == scale && h.stored.rank == rank;
        let scales = look.held.iter().find(beside)?;
        Values::of(look, held, scales)?
            .within_a_step()
            .then_some(())?;
        push(&mut tensors, held.stored.role.name());
    }
    (scaled && !tensors.is_empty()).then_some(tensors)
}

/// A weight and its scales, as they were and as they are.
struct Values<'a> {
    plan: &'a Plan,
    weight: &'a Held<'a>,
    scales: &'a Held<'a>,
    before: &'a Tensor,
    scales_before: &'a Tensor,
    second: bool,
}

impl<'a> Values<'a> {
    fn of(look: &'a Look<'a>, weight: &'a Held<'a>, scales: &'a Held<'a>) -> Option<Values<'a>> {
        let logical: &Logical = &look.logical;
        let fits = |held: &Held<'_>| held.bytes.len() == held.map.bytes();
        (fits(weight) && fits(scales)).then_some(Values {
            plan: &look.plan,
            weight,
            scales,
            before: logical_of(logical, weight.stored.role)?,
            scales_before: logical_of(logical, scales.stored.role)?,
            second: weight.stored.role == Role::W2,
        })
    }

    /// Whether every element of the rank is the value it was, to within a step of its type.
    fn within_a_step(&self) -> bool {
        let dtype = self.weight.map.dtype;
        // Wider types have no steps worth the name, and no scales.
        if dtype.bits() > 8 {
            return false;
        }
        let shape = self.weight.map.logical_shape();
        let smallest = step(dtype, zero_code(dtype));
        let most = largest(dtype) / STEPS_MIN;
        let mut held = true;
        let (mut lost, mut real) = (0_u64, 0_u64);
        crate::layout::for_each(&self.weight.map, |_, at, logical| {
            let Some(place) = logical.filter(|_| held) else {
                return;
            };
            let code = self.weight.map.grid.read(&self.weight.bytes, at);
            let before = read(self.before, shape, place, dtype);
            let scales = &self.scales.map;
            let of = self.scale_place(place);
            let now = of.and_then(|(e, r, c)| scales.physical(e, r, c));
            let (Some(of), Some(now)) = (of, now) else {
                held = false;
                return;
            };
            let then = read(self.scales_before, scales.logical_shape(), of, scales.dtype);
            let now = scales
                .dtype
                .decode(scales.grid.read(&self.scales.bytes, now));
            let now = f64::from(now);
            let (is, was) = (f64::from(dtype.decode(code)) * now, before * then);
            let step = step(dtype, code) * now.abs();
            if was != 0.0 {
                real += 1;
                lost += u64::from(is == 0.0);
                // Under a scale so much larger any value is within a step of zero.
                held = smallest * now.abs() <= most * then.abs();
            }
            held &= (is - was).abs() <= step;
        });
        held && 2 * lost <= real
    }

    /// Where in the logical grid of scales a logical element finds its own.
    fn scale_place(&self, (e, r, c): Place3) -> Option<Place3> {
        let (plan, second) = (self.plan, self.second);
        let s = if second {
            plan.w2_scale
        } else {
            plan.w13_scale
        }?;
        let halves = if second { 1 } else { index(plan.dims.halves)? };
        let [_, rows, _] = self.scales.map.logical_shape();
        let per_half = self.weight.map.logical_shape()[1] / halves;
        let row = place(r, per_half, index(s.row_block_source)?, rows / halves);
        let block = index(s.col_block_source)?;
        Some((e, row, c.checked_div(block).unwrap_or(0)))
    }
}

/// The row of a scale grid, counted in each half for itself; a block of 0 is the whole half.
fn place(row: usize, per_half: usize, block: usize, scales_per_half: usize) -> usize {
    let (half, within) = (row / per_half.max(1), row % per_half.max(1));
    half * scales_per_half + within.checked_div(block).unwrap_or(0)
}

/// The value of a logical element.
fn read(tensor: &Tensor, [_, rows, cols]: [usize; 3], (e, r, c): Place3, dtype: Dtype) -> f64 {
    let (at, wide) = ((e * rows + r) * cols + c, tensor.bits() / 8);
    let bytes = &tensor.bytes()[at * wide..(at + 1) * wide];
    let code = bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
    f64::from(dtype.decode(code))
}

/// The distance from a code to the next one away from zero.
fn step(dtype: Dtype, code: u32) -> f64 {
    // Two's complement and offset codes do not grow away from zero; their values are whole.
    if matches!(dtype, Dtype::Int4 | Dtype::Int8) {
        return 1.0;
    }
    let value = f64::from(dtype.decode(code)).abs();
    let next = f64::from(dtype.decode(code + 1)).abs();
    match next.is_finite() && next > value {
        true => next - value,
        // The largest of its sign: as far as the one before it.
        false => value - f64::from(dtype.decode(code.saturating_sub(1))).abs(),
    }
}

/// The code of zero.
fn zero_code(dtype: Dtype) -> u32 {
    if dtype == Dtype::Int4 { 8 } else { 0 }
}

/// The largest finite value.
fn largest(dtype: Dtype) -> f64 {
    let values = (0..1_u32 << dtype.bits()).map(|code| f64::from(dtype.decode(code)));
    values.filter(|v| v.is_finite()).fold(0.0, f64::max)
}

fn index(n: u64) -> Option<usize> {
    usize::try_from(n).ok()
}
