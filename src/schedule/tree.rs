//! A summation tree in post-order.

use std::collections::HashMap;

/// A node; children stand before their parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    /// A product that starts a sum.
    Leaf(usize),
    /// A running sum and the product that joins it, fused in [`Tree::dot`].
    Join(usize, usize),
    /// Two sums.
    Add(usize, usize),
}

/// The order in which products 0..n are added.
///
/// Kept as a list with children before parents, so that a chain of any length needs no recursion.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Node>,
    root: Option<usize>,
}

impl Tree {
    /// Number of products.
    pub fn leaves(&self) -> usize {
        self.nodes
            .iter()
            .filter(|n| !matches!(n, Node::Add(..)))
            .count()
    }

    /// The tree without the products from `real` on: those are zeros, and adding zero is exact.
    pub fn pruned(&self, real: usize) -> Tree {
        let mut b = Builder::default();
        let mut kept: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let new = match *node {
                Node::Leaf(k) if k < real => b.join(None, k),
                Node::Leaf(_) => None,
                Node::Join(acc, k) if k < real => b.join(kept[acc], k),
                Node::Join(acc, _) => kept[acc],
                Node::Add(left, right) => b.add(kept[left], kept[right]),
            };
            kept.push(new);
        }
        b.finish(self.root.and_then(|r| kept[r]))
    }

    /// Adds `values` in this order. Missing values count as +0.
    pub fn sum(&self, values: &[f32]) -> f32 {
        let at = |k: usize| values.get(k).copied().unwrap_or(0.0);
        self.fold(|acc, k| acc + at(k))
    }

    /// The dot product in this order: a product joins a running sum by fused multiply-add, sums
    /// join sums by addition, and every chain starts at +0.
    pub fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        let at = |k: usize| {
            (
                a.get(k).copied().unwrap_or(0.0),
                b.get(k).copied().unwrap_or(0.0),
            )
        };
        self.fold(|acc, k| at(k).0.mul_add(at(k).1, acc))
    }

    fn fold(&self, join: impl Fn(f32, usize) -> f32) -> f32 {
        let mut sums: Vec<f32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let sum = match *node {
                Node::Leaf(k) => join(0.0, k),
                Node::Join(acc, k) => join(sums[acc], k),
                Node::Add(left, right) => sums[left] + sums[right],
            };
            sums.push(sum);
        }
        self.root.map_or(0.0, |r| sums[r])
    }

    /// Gives equal subtrees equal numbers, within one `names`.
    fn name(&self, names: &mut HashMap<Node, usize>) -> Option<usize> {
        let mut ids: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let key = match *node {
                Node::Leaf(k) => Node::Leaf(k),
                Node::Join(acc, k) => Node::Join(ids[acc], k),
                // Addition commutes bit for bit.
                Node::Add(l, r) => Node::Add(ids[l].min(ids[r]), ids[l].max(ids[r])),
            };
            let next = names.len();
            ids.push(*names.entry(key).or_insert(next));
        }
        self.root.map(|r| ids[r])
    }
}

/// Equal when the same sums are formed, by the same kind of step, whichever operand is first.
impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        let mut names = HashMap::new();
        self.name(&mut names) == other.name(&mut names)
    }
}

/// Builds a tree from the leaves up; `None` stands for an absent sum.
#[derive(Debug, Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
}

impl Builder {
    fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(super) fn join(&mut self, acc: Option<usize>, k: usize) -> Option<usize> {
        Some(self.push(acc.map_or(Node::Leaf(k), |a| Node::Join(a, k))))
    }

    pub(super) fn add(&mut self, left: Option<usize>, right: Option<usize>) -> Option<usize> {
        match (left, right) {
            (Some(l), Some(r)) => Some(self.push(Node::Add(l, r))),
            (one, None) | (None, one) => one,
        }
    }

    pub(super) fn chain(&mut self, products: impl Iterator<Item = usize>) -> Option<usize> {
        products.fold(None, |acc, k| self.join(acc, k))
    }

    pub(super) fn finish(self, root: Option<usize>) -> Tree {
        Tree {
            nodes: self.nodes,
            root,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::Schedule;

    #[test]
    fn pruning_keeps_exactly_the_real_products() {
        let tree = Schedule::Halving.tree(40);
        assert_eq!(tree.leaves(), 40);
        assert_eq!(tree.pruned(23).leaves(), 23);
        assert_eq!(tree.pruned(0).leaves(), 0);
    }

    #[test]
    fn different_partners_and_different_steps_are_different_trees() {
        assert!(Schedule::Lanes(2).tree(3) == Schedule::Lanes(2).tree(3));
        assert!(Schedule::Lanes(2).tree(4) != Schedule::Sequential.tree(4));
        // Fused in one, rounded product first in the other.
        assert!(Schedule::Halving.tree(2) != Schedule::Sequential.tree(2));
    }

    #[test]
    fn long_chains_need_no_stack() {
        assert!(Schedule::Sequential.pad_stable(300_000, 300_032));
    }
}
