//! Where two orders of the same products differ, and inputs that show it.

use super::tree::{Node, Tree};
use std::collections::{HashMap, HashSet};

/// What swamps every sum of ones, in f32, bf16 and f64, and overflows none.
pub(super) const SWAMP: f32 = (1u128 << 100) as f32;

/// Two products that are brought together otherwise in another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The products.
    pub pair: (usize, usize),
    /// Products of the smallest sum that holds both.
    pub terms: usize,
    /// The same in the other order; equal where only the second product's step differs: it is fused
    /// into the sum in one and rounded before in the other.
    pub terms_other: usize,
}

impl Moved {
    /// Factors of `n` products whose dot products in the two orders have different bits.
    pub fn witness(&self, n: usize) -> (Vec<f32>, Vec<f32>) {
        let (first, second) = self.pair;
        let (mut a, mut b) = (vec![1.0; n], vec![1.0; n]);
        if self.terms != self.terms_other {
            // Whatever is added before the two meet is lost: the sum counts the products outside.
            (a[first], a[second]) = (SWAMP, -SWAMP);
            return (a, b);
        }
        a.fill(0.0);
        // (1 + e)^2 - (1 + 2 e) is e^2 where the square is not rounded, else 0.
        let e = 1.0 / 4096.0;
        (a[second], b[second]) = (1.0 + e, 1.0 + e);
        a[first] = -(1.0 + 2.0 * e);
        (a, b)
    }
}

/// Where two trees over the same products differ; None if they are equal.
pub(super) fn moved(one: &Tree, other: &Tree) -> Option<Moved> {
    if one == other {
        return None;
    }
    if one.same_order(other) {
        return step(one, other).or_else(|| step(other, one));
    }
    let (ours, theirs) = (Clusters::of(one), Clusters::of(other));
    // A smallest sum that the other order never forms: there its products lie in a larger one.
    let sums = |&n: &usize| !matches!(one.nodes[n], Node::Leaf(_));
    let node = (0..one.nodes.len())
        .filter(sums)
        .find(|&n| !theirs.has(ours.numbers[n]))?;
    let members = one.below(node);
    let first = *members.first()?;
    let (here, there) = (one.meets(first), other.meets(first));
    let second = *members.iter().find(|&&k| there[k] > members.len())?;
    Some(Moved {
        pair: (first, second),
        terms: here[second],
        terms_other: there[second],
    })
}

/// A product that is fused into a sum in `one` alone.
fn step(one: &Tree, other: &Tree) -> Option<Moved> {
    let (ours, theirs) = (one.fused(), other.fused());
    let (&second, &first) = ours.iter().find(|(k, _)| !theirs.contains_key(k))?;
    let terms = one.meets(first)[second];
    Some(Moved {
        pair: (first, second),
        terms,
        terms_other: terms,
    })
}

impl Tree {
    /// Where `other` adds the same products in another order; None where the order is the same,
    /// whatever the steps.
    pub fn moved(&self, other: &Tree) -> Option<Moved> {
        if self.same_order(other) {
            return None;
        }
        moved(self, other)
    }

    /// Products below each node.
    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            sizes.push(match node {
                Node::Leaf(_) => 1,
                Node::Join(acc, _) => sizes[*acc] + 1,
                Node::Add(l, r) => sizes[*l] + sizes[*r],
                Node::Fuse(range) => self.operands[range.clone()].iter().map(|&o| sizes[o]).sum(),
            });
        }
        sizes
    }

    /// The nodes right below a node.
    fn children(&self, node: usize) -> Vec<usize> {
        match &self.nodes[node] {
            Node::Leaf(_) => Vec::new(),
            Node::Join(acc, _) => vec![*acc],
            Node::Add(l, r) => vec![*l, *r],
            Node::Fuse(range) => self.operands[range.clone()].to_vec(),
        }
    }

    /// The product that a node adds by itself.
    fn product(&self, node: usize) -> Option<usize> {
        match self.nodes[node] {
            Node::Leaf(k) | Node::Join(_, k) => Some(k),
            _ => None,
        }
    }

    /// The products below a node, in ascending order.
    fn below(&self, node: usize) -> Vec<usize> {
        let (mut found, mut open) = (Vec::new(), vec![node]);
        while let Some(node) = open.pop() {
            found.extend(self.product(node));
            open.extend(self.children(node));
        }
        found.sort_unstable();
        found
    }

    /// For each product, how many the smallest sum holds that it shares with product `with`; 0 for
    /// `with` itself and for products that the tree lacks.
    pub(super) fn meets(&self, with: usize) -> Vec<usize> {
        let sizes = self.sizes();
        // Whether a node holds `with`, from the leaves up.
        let mut holds = vec![false; self.nodes.len()];
        for node in 0..self.nodes.len() {
            holds[node] = self.product(node) == Some(with)
                || self.children(node).iter().any(|&child| holds[child]);
        }
        let last = self.nodes.iter().filter_map(|n| match n {
            Node::Leaf(k) | Node::Join(_, k) => Some(*k),
            _ => None,
        });
        let mut meets = vec![0; last.max().map_or(0, |k| k + 1).max(with + 1)];
        // The size of the lowest node above that holds `with`, from the root down.
        let mut above = vec![0; self.nodes.len()];
        for node in (0..self.nodes.len()).rev() {
            if holds[node] {
                above[node] = sizes[node];
            }
            for child in self.children(node) {
                above[child] = above[node];
            }
            if let Some(k) = self.product(node).filter(|&k| k != with) {
                meets[k] = above[node];
            }
        }
        // A joining product meets the others of its own sum.
        if let Some(node) = (0..self.nodes.len()).find(|&n| self.product(n) == Some(with))
            && let Node::Join(acc, _) = self.nodes[node]
        {
            for k in self.below(acc) {
                meets[k] = sizes[node];
            }
        }
        meets
    }

    /// Products that are fused into a sum, each with a product of that sum.
    fn fused(&self) -> HashMap<usize, usize> {
        let mut found = HashMap::new();
        let first = |node| self.below(node).first().copied();
        for node in &self.nodes {
            match node {
                Node::Join(acc, k) => found.extend(first(*acc).map(|partner| (*k, partner))),
                Node::Fuse(range) => {
                    let operands = &self.operands[range.clone()];
                    for &operand in operands {
                        let partner = operands.iter().find(|&&o| o != operand);
                        if let Node::Leaf(k) = self.nodes[operand] {
                            found.extend(partner.and_then(|&o| first(o)).map(|p| (k, p)));
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// The sets of products that a tree adds up, by a number that hardly two sets share.
struct Clusters {
    numbers: Vec<u64>,
    known: HashSet<u64>,
}

impl Clusters {
    fn of(tree: &Tree) -> Clusters {
        const SEED: u64 = 0x7265_7665_616c;
        let draw = |k: usize| crate::rng::value(SEED, 0, k as u64);
        let mut numbers: Vec<u64> = Vec::with_capacity(tree.nodes.len());
        for node in 0..tree.nodes.len() {
            let own = tree.product(node).map_or(0, draw);
            let below = tree.children(node).into_iter();
            let number = below.fold(own, |sum, child| sum.wrapping_add(numbers[child]));
            numbers.push(number);
        }
        let known = numbers.iter().copied().collect();
        Clusters { numbers, known }
    }

    fn has(&self, number: u64) -> bool {
        self.known.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::Schedule;

    #[test]
    fn products_meet_where_the_tree_says() {
        assert_eq!(Schedule::Sequential.tree(5).meets(2), [3, 3, 0, 4, 5]);
        assert_eq!(Schedule::Sequential.tree(5).meets(0), [0, 2, 3, 4, 5]);
        assert_eq!(Schedule::Pairwise.tree(4).meets(3), [4, 4, 2, 0]);
        assert_eq!(Schedule::Lanes(2).tree(4).meets(0), [0, 4, 2, 4]);
        assert_eq!(Schedule::Mma(2).tree(5).meets(3), [4, 4, 4, 0, 5]);
    }

    #[test]
    fn a_counterexample_is_a_pair_that_meets_elsewhere() {
        let moved = Schedule::LanesTail(16).moved(961, 976).unwrap();
        // Product 960 is the tail of one and lane 0's last of the other.
        assert_eq!(moved.pair, (0, 8));
        assert_eq!((moved.terms, moved.terms_other), (120, 121));
        assert!(Schedule::Lanes(16).moved(961, 976).is_none());
        // Only the step: 0 and 1 are parts of their own, then a chain.
        let moved = Schedule::SplitK(2).moved(2, 3).unwrap();
        assert_eq!((moved.pair, moved.terms, moved.terms_other), ((0, 1), 2, 2));
    }
}
