//! How an intermediate axis grows, in elements, and what follows for packed units and scale blocks.
//!
//! It must not know tensors. Layer 8.

use super::axis::Axis;
use crate::terms::WeightFormat;
use serde::{Deserialize, Serialize};

/// An intermediate axis before and after: ranks' pieces of the input, each at the front of its slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Width {
    /// Elements in the input.
    pub from: u64,
    /// Elements in the output: one slot a piece.
    pub to: u64,
    /// Elements of a rank in the output.
    pub slot: u64,
    /// First element and number of elements of each rank in the input.
    pub pieces: Vec<(u64, u64)>,
}

/// Scale blocks before and after, in elements; the same where the grid is not refined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// Elements that shared a scale.
    pub from: u64,
    /// Elements that share one now.
    pub to: u64,
}

/// One kind of experts: routed or shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// How its intermediate axis grows.
    pub width: Width,
    /// Its input width.
    pub hidden: u64,
    /// How its weights are stored where scales lie beside them.
    pub format: WeightFormat,
    /// The code written into padding scales of the first and of the second projection.
    pub scale_pad: [u32; 2],
    /// Refined scale blocks, where they are.
    pub blocks: Option<Blocks>,
}

/// The finer group of INT4 that there is a format of; it divides every finer one of 128.
pub(super) const INT4_GROUP: u64 = 32;
/// Widest axis that is written: far above any model's, and its runs still fit in memory.
pub(super) const WIDTH_MAX: u64 = 1 << 24;

impl Part {
    /// How weights are stored in the output where scales lie beside them.
    pub(super) fn format_now(&self) -> WeightFormat {
        match (self.format, self.blocks.map(|blocks| blocks.to)) {
            (WeightFormat::Fp8Block, Some(64)) => WeightFormat::Fp8Block64,
            (WeightFormat::Fp8Block | WeightFormat::Fp8Block64, Some(32)) => {
                WeightFormat::Fp8Block32
            }
            (WeightFormat::Int4, Some(INT4_GROUP)) => WeightFormat::Int4G32,
            (format, _) => format,
        }
    }

    /// Whether its tensors change.
    pub(super) fn changes(&self) -> bool {
        !self.width.same() || self.blocks.is_some()
    }

    /// Whether scales are of groups along a row alone, which leave rows as they are.
    pub(super) fn groups(&self) -> bool {
        matches!(
            self.format,
            WeightFormat::Int4 | WeightFormat::Int4G64 | WeightFormat::Int4G32
        )
    }
}

impl Width {
    /// The axis with all padding at its end, cut into `ranks` equal slots; `to` is their multiple.
    pub fn at_end(from: u64, to: u64, ranks: u64) -> Width {
        let slot = to / ranks.max(1);
        let start = |rank: u64| rank.saturating_mul(slot).min(from);
        Width {
            from,
            to,
            slot,
            pieces: (0..ranks)
                .map(|rank| (start(rank), slot.min(from - start(rank))))
                .collect(),
        }
    }

    /// Whether nothing changes.
    pub fn same(&self) -> bool {
        self.from == self.to
    }

    /// Whether the pieces are all of the input in order and fit their slots: a certificate may say
    /// anything.
    pub fn holds(&self) -> bool {
        let mut next = 0;
        let tiles = self.pieces.iter().all(|&(start, len)| {
            let fits = len <= self.slot && start == next && len <= self.from - next;
            next += if fits { len } else { 0 };
            fits
        });
        let slots = u64::try_from(self.pieces.len()).ok();
        let to = slots.and_then(|n| n.checked_mul(self.slot));
        tiles && next == self.from && self.to <= WIDTH_MAX && to == Some(self.to) && self.from > 0
    }

    /// The axis in units of `per` elements; none where a piece or slot ends inside one.
    pub(super) fn units(&self, per: u64) -> Option<Axis> {
        let units = |n: u64| n.is_multiple_of(per).then(|| index(n / per)).flatten();
        let mut axis = Axis::empty();
        for &(start, len) in &self.pieces {
            let len = units(len)?;
            // An empty piece is nowhere: its start says nothing.
            let source = if len > 0 { Some(units(start)?) } else { None };
            axis.push(source, len);
            axis.push(None, units(self.slot)? - len);
        }
        axis.from = units(self.from)?;
        Some(axis)
    }

    /// The axis in scale blocks: which block of the input gives each block of the output its scale;
    /// none where a block of the output would need two.
    pub(super) fn blocks(&self, blocks: Blocks) -> Option<Axis> {
        let Blocks { from, to } = blocks;
        let mut axis = Axis::empty();
        if from == 0 || to == 0 || (self.pieces.len() > 1 && !self.slot.is_multiple_of(to)) {
            return None;
        }
        for &(start, len) in &self.pieces {
            let count = self.slot.div_ceil(to);
            let held = len.div_ceil(to);
            for block in 0..held {
                let first = start + block * to;
                let last = (first + to).min(start + len) - 1;
                if first / from != last / from {
                    return None;
                }
                axis.push(Some(index(first / from)?), 1);
            }
            axis.push(None, index(count - held)?);
        }
        axis.from = index(self.from.div_ceil(from))?;
        Some(axis)
    }

    /// The largest block that no piece and no slot begins inside of.
    pub(super) fn common_block(&self, block: u64) -> u64 {
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        if self.pieces.len() < 2 {
            return block;
        }
        let starts = self.pieces.iter().filter(|p| p.1 > 0).map(|p| p.0);
        starts.chain([self.slot]).fold(block, gcd)
    }
}

impl Blocks {
    /// An axis of `len` elements that does not grow, in blocks; none where it is absurdly long.
    pub(super) fn refined(self, len: u64) -> Option<Axis> {
        let fits = (1..=WIDTH_MAX).contains(&len);
        fits.then(|| Width::at_end(len, len, 1).blocks(self))?
    }
}

/// A size as an index here.
pub(super) fn index(n: u64) -> Option<usize> {
    usize::try_from(n).ok()
}

#[cfg(test)]
mod tests {
    use super::super::axis::Run;
    use super::*;
    use proptest::prelude::*;

    fn sources(axis: &Axis) -> Vec<Option<usize>> {
        let of = |run: &Run| {
            let source = run.source;
            (0..run.len).map(move |n| source.map(|s| s + n))
        };
        axis.runs.iter().flat_map(of).collect()
    }

    #[test]
    fn a_short_last_block_takes_its_scale_along() {
        // 704 in blocks of 128: the sixth holds 64 elements, and its padding the same scale.
        let width = Width::at_end(704, 1024, 2);
        assert_eq!(width.pieces, [(0, 512), (512, 192)]);
        let axis = width
            .blocks(Blocks { from: 128, to: 128 })
            .expect("whole blocks");
        let scale = |n| Some(n);
        assert_eq!(
            sources(&axis),
            [
                scale(0),
                scale(1),
                scale(2),
                scale(3),
                scale(4),
                scale(5),
                None,
                None
            ]
        );
    }

    #[test]
    fn a_rank_that_begins_inside_a_block_needs_a_finer_grid() {
        // facts/reports.md B06: 1536 over 8.
        let width = Width {
            from: 1536,
            to: 1536,
            slot: 192,
            pieces: (0..8).map(|r| (192 * r, 192)).collect(),
        };
        assert!(width.holds());
        assert_eq!(width.blocks(Blocks { from: 128, to: 128 }), None);
        assert_eq!(width.common_block(128), 64);
        let axis = width.blocks(Blocks { from: 128, to: 64 }).expect("finer");
        let wanted: Vec<_> = (0..24).map(|n| Some(n / 2)).collect();
        assert_eq!(sources(&axis), wanted);
    }

    #[test]
    fn an_axis_that_a_header_alone_can_claim_is_refused_at_once() {
        let blocks = Blocks { from: 128, to: 64 };
        assert_eq!(blocks.refined(1 << 60), None);
        assert_eq!(blocks.refined(0), None);
        assert_eq!(
            blocks.refined(200).map(|axis| (axis.from, axis.to)),
            Some((2, 4))
        );
    }

    proptest! {
        /// Every element of the output finds the scale that it had in the input.
        #[test]
        fn elements_keep_their_scales(
            ranks in 1_u64..5, share in 1_u64..200, pad in 0_u64..3, align in 1_u64..33, block in prop::sample::select(&[16_u64, 32, 128]),
        ) {
            let slot = (share + pad).next_multiple_of(align);
            let width = Width { from: ranks * share, to: ranks * slot, slot, pieces: (0..ranks).map(|r| (r * share, share)).collect() };
            prop_assert!(width.holds());
            let to = width.common_block(block);
            let elements = sources(&width.units(1).expect("elements"));
            let axis = width.blocks(Blocks { from: block, to }).expect("a common block fits");
            let scales = sources(&axis);
            prop_assert_eq!(elements.len() as u64, width.to);
            prop_assert_eq!(scales.len() as u64, width.to.div_ceil(to));
            for (n, element) in elements.iter().enumerate() {
                if let Some(element) = element {
                    prop_assert_eq!(scales[n / to as usize], Some(element / block as usize));
                }
            }
            let held: Vec<usize> = elements.into_iter().flatten().collect();
            prop_assert_eq!(held, (0..(ranks * share) as usize).collect::<Vec<_>>());
        }
    }
}
