//! A summation tree in post-order.

use super::number::Number;
use std::collections::HashMap;
use std::ops::Range;

/// A node; children stand before their parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// A product that starts a sum.
    Leaf(usize),
    /// A running sum and the product that joins it, fused in [`Tree::dot`].
    Join(usize, usize),
    /// Two sums.
    Add(usize, usize),
    /// Sums and products (leaves) that one adder of many terms adds, rounding once: a range of
    /// [`Tree`]'s operands.
    Fuse(Range<usize>),
}

/// The order in which products 0..n are added.
///
/// Kept as a list with children before parents, so that a chain of any length needs no recursion.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(super) nodes: Vec<Node>,
    /// The operands of every [`Node::Fuse`].
    pub(super) operands: Vec<usize>,
    pub(super) root: Option<usize>,
}

/// What names a sum: equal names, equal sums.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Leaf(usize),
    Join(usize, usize),
    Sum(Vec<usize>),
}

impl Tree {
    /// Number of products.
    pub fn leaves(&self) -> usize {
        let product = |n: &&Node| matches!(n, Node::Leaf(_) | Node::Join(..));
        self.nodes.iter().filter(product).count()
    }

    /// The tree without the products from `real` on: those are zeros, and adding zero is exact.
    pub fn pruned(&self, real: usize) -> Tree {
        let mut b = Builder::default();
        let mut kept: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let new = match node {
                Node::Leaf(k) if *k < real => b.join(None, *k),
                Node::Leaf(_) => None,
                Node::Join(acc, k) if *k < real => b.join(kept[*acc], *k),
                Node::Join(acc, _) => kept[*acc],
                Node::Add(left, right) => b.add(kept[*left], kept[*right]),
                Node::Fuse(range) => {
                    let operands = self.operands[range.clone()].iter();
                    b.fuse(operands.filter_map(|&o| kept[o]).collect())
                }
            };
            kept.push(new);
        }
        b.finish(self.root.and_then(|r| kept[r]))
    }

    /// Adds `values` in this order. Missing values count as +0.
    pub fn sum(&self, values: &[f32]) -> f32 {
        self.fold(|k| (values.get(k).copied().unwrap_or(0.0), 1.0))
    }

    /// [`Tree::sum`] in f64.
    pub fn sum_f64(&self, values: &[f64]) -> f64 {
        self.fold(|k| (values.get(k).copied().unwrap_or(0.0), 1.0))
    }

    /// The dot product in this order: a product joins a running sum by fused multiply-add, sums
    /// join sums by addition, and every chain starts at +0.
    pub fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        let at = |v: &[f32], k: usize| v.get(k).copied().unwrap_or(0.0);
        self.fold(|k| (at(a, k), at(b, k)))
    }

    /// [`Tree::dot`] in f64.
    pub fn dot_f64(&self, a: &[f64], b: &[f64]) -> f64 {
        let at = |v: &[f64], k: usize| v.get(k).copied().unwrap_or(0.0);
        self.fold(|k| (at(a, k), at(b, k)))
    }

    fn fold<N: Number>(&self, factors: impl Fn(usize) -> (N, N)) -> N {
        let mut sums: Vec<N> = Vec::with_capacity(self.nodes.len());
        let mut terms = Vec::new();
        for node in &self.nodes {
            let sum = match node {
                Node::Leaf(k) => {
                    let (a, b) = factors(*k);
                    a.mul_add(b, N::ZERO)
                }
                Node::Join(acc, k) => {
                    let (a, b) = factors(*k);
                    a.mul_add(b, sums[*acc])
                }
                Node::Add(left, right) => sums[*left] + sums[*right],
                Node::Fuse(range) => {
                    terms.clear();
                    for &operand in &self.operands[range.clone()] {
                        terms.push(match self.nodes[operand] {
                            Node::Leaf(k) => factors(k),
                            _ => (sums[operand], N::ONE),
                        });
                    }
                    N::fuse(&terms)
                }
            };
            sums.push(sum);
        }
        self.root.map_or(N::ZERO, |r| sums[r])
    }

    /// Whether the same sums are formed in the same order, whatever the steps: a product that is
    /// rounded before it is added is told from a fused one by [`Tree::eq`] alone.
    pub fn same_order(&self, other: &Tree) -> bool {
        let mut names = HashMap::new();
        self.name(&mut names, false) == other.name(&mut names, false)
    }

    /// Gives equal subtrees equal numbers, within one `names`; `steps` tells kinds of step apart.
    fn name(&self, names: &mut HashMap<Key, usize>, steps: bool) -> Option<usize> {
        let mut ids: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut number = |key: Key| {
            let next = names.len();
            *names.entry(key).or_insert(next)
        };
        for node in &self.nodes {
            // Addition commutes bit for bit, of two terms and of those of one adder.
            let sum = |mut terms: Vec<usize>| {
                terms.sort_unstable();
                Key::Sum(terms)
            };
            let key = match node {
                Node::Leaf(k) => Key::Leaf(*k),
                Node::Join(acc, k) if steps => Key::Join(ids[*acc], *k),
                Node::Join(acc, k) => {
                    let leaf = number(Key::Leaf(*k));
                    sum(vec![ids[*acc], leaf])
                }
                Node::Add(l, r) => sum(vec![ids[*l], ids[*r]]),
                Node::Fuse(range) => {
                    let operands = &self.operands[range.clone()];
                    let mut terms: Vec<usize> = operands.iter().map(|&o| ids[o]).collect();
                    if steps && terms.len() == 2 {
                        // Told from the addition of two rounded terms.
                        terms.push(usize::MAX);
                    }
                    sum(terms)
                }
            };
            ids.push(number(key));
        }
        self.root.map(|r| ids[r])
    }
}

/// Equal when the same sums are formed, by the same kind of step, whichever operand is first.
impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        let mut names = HashMap::new();
        self.name(&mut names, true) == other.name(&mut names, true)
    }
}

/// Builds a tree from the leaves up; `None` stands for an absent sum.
#[derive(Debug, Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
    operands: Vec<usize>,
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

    /// All of `operands` by one adder.
    pub(super) fn fuse(&mut self, operands: Vec<usize>) -> Option<usize> {
        if operands.len() < 2 {
            return operands.first().copied();
        }
        let start = self.operands.len();
        self.operands.extend(operands);
        Some(self.push(Node::Fuse(start..self.operands.len())))
    }

    pub(super) fn chain(&mut self, products: impl Iterator<Item = usize>) -> Option<usize> {
        products.fold(None, |acc, k| self.join(acc, k))
    }

    pub(super) fn finish(self, root: Option<usize>) -> Tree {
        Tree {
            nodes: self.nodes,
            operands: self.operands,
            root,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::Schedule;

    #[test]
    fn pruning_keeps_exactly_the_real_products() {
        for order in [Schedule::Pairwise, Schedule::Mma(16)] {
            let tree = order.tree(40);
            assert_eq!(tree.leaves(), 40, "{order}");
            assert_eq!(tree.pruned(23).leaves(), 23, "{order}");
            assert_eq!(tree.pruned(0).leaves(), 0, "{order}");
        }
    }

    #[test]
    fn different_partners_and_different_steps_are_different_trees() {
        assert!(Schedule::Lanes(2).tree(3) == Schedule::Lanes(2).tree(3));
        assert!(Schedule::Lanes(2).tree(4) != Schedule::Sequential.tree(4));
        // Fused in one, rounded product first in the other.
        let (pair, chain) = (Schedule::Pairwise.tree(2), Schedule::Sequential.tree(2));
        assert!(pair != chain && pair.same_order(&chain));
        let adder = Schedule::Mma(2).tree(2);
        assert!(pair != adder && chain != adder && adder.same_order(&chain));
        assert!(
            !Schedule::Mma(3)
                .tree(3)
                .same_order(&Schedule::Sequential.tree(3))
        );
    }

    #[test]
    fn long_chains_need_no_stack() {
        assert!(Schedule::Sequential.pad_stable(300_000, 300_032));
    }
}
