//! The named summation orders.

use super::moved::{Moved, moved};
use super::tree::{Builder, Tree};

/// The order in which a kernel adds the products of a dot product of length n.
///
/// Each order is one that a real library uses (facts/feasibility.md 5.3, 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// One chain, k ascending.
    Sequential,
    /// Lane l adds k = l mod n in ascending k; the tail is folded into the lanes; then the
    /// lanes are halved: 0 with n/2, 1 with n/2 + 1, and so on.
    Lanes(usize),
    /// The same over the whole vectors only; the scalar tail is added after the lane sum.
    LanesTail(usize),
    /// Chains over fixed blocks of this many products; block sums are added in order. Split-K by
    /// size is this order too.
    Blocked(usize),
    /// Split-K by count: this many parts of ceil(n / parts) products, each a chain; part sums added
    /// in order.
    SplitK(usize),
    /// The same in whole tiles: ceil(tiles / parts) tiles a part.
    SplitTiles {
        /// Parts.
        parts: usize,
        /// Products in a tile.
        tile: usize,
    },
    /// Halved again and again, the first part being the shorter one.
    Pairwise,
    /// Split at the largest power of two below the length.
    PowerOfTwo,
    /// Groups of this many products, each added with the running sum by one adder that rounds once,
    /// as the matrix units of GPUs do with 4, 8 or 16.
    Mma(usize),
}

impl Schedule {
    /// The tree of this order for `n` products. Sizes of 0 are read as 1.
    pub fn tree(self, n: usize) -> Tree {
        let mut b = Builder::default();
        let root = match self {
            Schedule::Sequential => b.chain(0..n),
            Schedule::Lanes(lanes) => lane_sum(&mut b, lanes.max(1), n),
            Schedule::LanesTail(lanes) => {
                let whole = n - n % lanes.max(1);
                let sum = lane_sum(&mut b, lanes.max(1), whole);
                (whole..n).fold(sum, |acc, k| b.join(acc, k))
            }
            Schedule::Blocked(size) => parts(&mut b, n, size.max(1)),
            Schedule::SplitK(count) => parts(&mut b, n, n.div_ceil(count.max(1)).max(1)),
            Schedule::SplitTiles { parts: count, tile } => {
                let tile = tile.max(1);
                let tiles = n.div_ceil(tile).div_ceil(count.max(1)).max(1);
                parts(&mut b, n, tiles.saturating_mul(tile))
            }
            Schedule::Pairwise => split(&mut b, 0, n, |len| len / 2),
            Schedule::PowerOfTwo => split(&mut b, 0, n, |len| len.next_power_of_two() / 2),
            Schedule::Mma(size) => fused(&mut b, n, size.max(1)),
        };
        b.finish(root)
    }

    /// Additions that one of `n` products, or of fewer, goes through at the most, however many zeros follow them;
    /// none where the zeros decide where parts are cut, or an adder of many terms does not round as an addition does.
    pub fn additions(self, n: u64) -> Option<u64> {
        let chains = |size: u64, number: u64| Some(size.saturating_add(number).min(n));
        match self {
            Schedule::Sequential => Some(n),
            Schedule::Lanes(lanes) => {
                let lanes = lanes.max(1) as u64;
                chains(
                    n.div_ceil(lanes),
                    u64::from(lanes.next_power_of_two().ilog2()),
                )
            }
            Schedule::Blocked(size) => {
                let size = (size.max(1) as u64).min(n.max(1));
                chains(size, n.div_ceil(size))
            }
            _ => None,
        }
    }

    /// Whether padding `n` products with zeros to `padded` leaves the order of the first `n`
    /// as it is: the padded tree with its zero leaves pruned is the unpadded tree.
    ///
    /// Decided by comparing the trees, not by a table. `padded < n` is never stable.
    pub fn pad_stable(self, n: usize, padded: usize) -> bool {
        padded >= n && self.tree(padded).pruned(n) == self.tree(n)
    }

    /// What padding `n` products to `padded` changes; None where it is stable, or pads nothing.
    pub fn moved(self, n: usize, padded: usize) -> Option<Moved> {
        moved(&self.tree(n), &self.tree(padded.max(n)).pruned(n))
    }
}

fn lane_sum(b: &mut Builder, lanes: usize, n: usize) -> Option<usize> {
    let mut sums: Vec<_> = (0..lanes.min(n))
        .map(|l| b.chain((l..n).step_by(lanes)))
        .collect();
    let mut width = lanes;
    while width > 1 {
        width = width.div_ceil(2);
        for low in 0..width.min(sums.len()) {
            let high = sums.get(low + width).copied().flatten();
            sums[low] = b.add(sums[low], high);
        }
        sums.truncate(width);
    }
    sums.first().copied().flatten()
}

fn parts(b: &mut Builder, n: usize, size: usize) -> Option<usize> {
    let mut sum = None;
    let mut start = 0;
    while start < n {
        let end = start.saturating_add(size).min(n);
        let part = b.chain(start..end);
        sum = b.add(sum, part);
        start = end;
    }
    sum
}

fn fused(b: &mut Builder, n: usize, size: usize) -> Option<usize> {
    let mut sum = None;
    let mut start = 0;
    while start < n {
        let end = start.saturating_add(size).min(n);
        let mut operands: Vec<usize> = sum.into_iter().collect();
        operands.extend((start..end).filter_map(|k| b.join(None, k)));
        sum = b.fuse(operands);
        start = end;
    }
    sum
}

fn split(b: &mut Builder, start: usize, len: usize, at: fn(usize) -> usize) -> Option<usize> {
    if len <= 1 {
        return b.chain(start..start + len);
    }
    let head = at(len);
    let left = split(b, start, head, at);
    let right = split(b, start + head, len - head, at);
    b.add(left, right)
}

#[cfg(test)]
mod tests {
    use super::super::tree::Node;
    use super::*;

    /// Widths of 7688 over TP ranks and a spread of others, none a multiple of 16.
    fn unaligned() -> impl Iterator<Item = usize> {
        (1..1200)
            .step_by(7)
            .chain([961, 1922, 2883])
            .filter(|k| k % 16 != 0)
    }

    fn unstable(order: Schedule, granule: usize) -> (usize, usize) {
        let sizes: Vec<_> = unaligned().collect();
        let moved = sizes
            .iter()
            .filter(|&&k| !order.pad_stable(k, k.next_multiple_of(granule)))
            .count();
        (moved, sizes.len())
    }

    /// Most additions that one of the tree's products goes through: its own, and those of sums that hold it.
    fn longest(tree: &Tree) -> usize {
        let mut through: Vec<usize> = Vec::new();
        for node in &tree.nodes {
            through.push(match node {
                Node::Leaf(_) => 1,
                Node::Join(sum, _) => through[*sum] + 1,
                Node::Add(a, b) => through[*a].max(through[*b]) + 1,
                Node::Fuse(range) => {
                    let operands = tree.operands[range.clone()].iter();
                    operands.map(|o| through[*o]).max().unwrap_or(0) + 1
                }
            });
        }
        tree.root.map_or(0, |root| through[root])
    }

    #[test]
    fn no_product_goes_through_more_additions_than_said_whatever_zeros_follow() {
        let orders = [
            Schedule::Sequential,
            Schedule::Lanes(1),
            Schedule::Lanes(6),
            Schedule::Lanes(16),
            Schedule::Blocked(1),
            Schedule::Blocked(7),
            Schedule::Blocked(32),
        ];
        let said = |order: Schedule, n: usize| {
            let most = order.additions(n as u64).expect("orders that tell");
            usize::try_from(most).unwrap()
        };
        for order in orders {
            for n in 1..70 {
                let most = (n..n + 40)
                    .map(|padded| longest(&order.tree(padded).pruned(n)))
                    .max();
                let said = [said(order, n - 1), said(order, n)];
                assert!(
                    most <= Some(said[1]),
                    "{order} of {n}: {most:?}, said {said:?}"
                );
                assert!(said[0] <= said[1], "{order} of {n}");
            }
        }
        assert_eq!(longest(&Schedule::Lanes(16).tree(960)), 64);
        assert_eq!(Schedule::Lanes(16).additions(960), Some(64));
        assert_eq!(Schedule::Mma(16).additions(960), None);
    }

    #[test]
    fn orders_with_fixed_boundaries_are_stable_for_every_width() {
        // facts/feasibility.md 5.3, "Own reduction orders": the rows with 0 differences.
        for order in [
            Schedule::Sequential,
            Schedule::Blocked(128),
            Schedule::Lanes(16),
            Schedule::PowerOfTwo,
            Schedule::Mma(16),
        ] {
            for granule in [16, 128, 256] {
                assert_eq!(unstable(order, granule).0, 0, "{order} padded to {granule}");
            }
        }
    }

    #[test]
    fn orders_whose_boundaries_move_are_unstable_for_most_widths() {
        // facts/feasibility.md 5.3: 157 to 192 of about 190 sizes showed other bits. Trees
        // differ at least where bits do.
        for order in [
            Schedule::LanesTail(8),
            Schedule::LanesTail(16),
            Schedule::SplitK(2),
            Schedule::Pairwise,
        ] {
            for granule in [16, 128] {
                let (moved, of) = unstable(order, granule);
                assert!(
                    moved * 100 >= of * 80,
                    "{order} padded to {granule}: {moved}/{of}"
                );
            }
        }
    }

    #[test]
    fn split_k_by_tiles_is_stable_only_when_the_tiles_make_the_granule() {
        let four = Schedule::SplitTiles { parts: 4, tile: 32 };
        assert_eq!(unstable(four, 16).0, 0);
        assert_eq!(unstable(four, 128).0, 0);
        assert!(unstable(four, 256).0 > 0, "4 tiles of 32 do not fill 256");
        let five = Schedule::SplitTiles { parts: 5, tile: 32 };
        assert!(unstable(five, 128).0 > 0);
    }

    #[test]
    fn short_and_empty_sums_have_trees() {
        for order in [
            Schedule::Lanes(16),
            Schedule::Pairwise,
            Schedule::SplitK(4),
            Schedule::Blocked(0),
            Schedule::Mma(0),
        ] {
            assert_eq!(order.tree(0).sum(&[]).to_bits(), 0, "{order}");
            assert_eq!(order.tree(1).sum(&[3.0]), 3.0, "{order}");
            assert!(order.pad_stable(0, 16));
            assert!(!order.pad_stable(5, 4));
        }
    }

    #[test]
    fn three_lanes_halve_as_documented() {
        // Lanes 0, 1, 2: width 2, so 0 + 2 and then + 1.
        let big = 16_777_216.0f32;
        assert_eq!(Schedule::Lanes(3).tree(3).sum(&[big, 1.0, -big]), 1.0);
        assert_eq!(Schedule::Sequential.tree(3).sum(&[big, 1.0, -big]), 0.0);
        // The same in f64, where the one is kept.
        let wide = [f64::from(big), 1.0, -f64::from(big)];
        assert_eq!(Schedule::Sequential.tree(3).sum_f64(&wide), 1.0);
        assert_eq!(
            Schedule::Sequential
                .tree(3)
                .dot_f64(&wide, &[1.0, 2.0, 1.0]),
            2.0
        );
    }
}
