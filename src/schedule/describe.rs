//! Spells a summation tree in a line, and names the orders that are known.

use super::Schedule;
use super::tree::{Node, Tree};
use std::fmt::Write;

/// Characters of a spelled tree, at most.
const LENGTH_MAX: usize = 240;
/// Brackets in brackets that are spelled out.
const DEPTH_MAX: usize = 12;

/// Orders that a tree is held against: those of [`Schedule`] with the sizes that kernels have.
fn known() -> impl Iterator<Item = Schedule> {
    let powers = |from: u32, to: u32| (from..=to).map(|p| 1usize << p);
    let tiles = |parts| {
        let of = move |tile| Schedule::SplitTiles { parts, tile };
        [16, 32, 64, 128, 256].into_iter().map(of)
    };
    [
        Schedule::Sequential,
        Schedule::Pairwise,
        Schedule::PowerOfTwo,
    ]
    .into_iter()
    .chain(powers(1, 7).map(Schedule::Lanes))
    .chain(powers(1, 7).map(Schedule::LanesTail))
    .chain(powers(1, 6).map(Schedule::Mma))
    .chain(powers(1, 12).map(Schedule::Blocked))
    .chain(powers(4, 9).map(|power| Schedule::Blocked(3 * power)))
    .chain((2..=16).map(Schedule::SplitK))
    .chain((2..=16).flat_map(tiles))
    .chain((3..=128).map(Schedule::Blocked))
}

impl Schedule {
    /// The named order that all of `trees` have, the simplest first; steps are not looked at. Each
    /// tree comes with the length that its products were padded to. One length alone leaves several
    /// orders: blocks of 256 are four parts of 961.
    pub fn of(trees: &[(&Tree, usize)]) -> Option<Schedule> {
        let has = |order: Schedule, (tree, padded): (&Tree, usize)| {
            let n = tree.leaves();
            order.tree(padded.max(n)).pruned(n).same_order(tree)
        };
        known().find(|&order| trees.iter().all(|&tree| has(order, tree)))
    }
}

impl Tree {
    /// The order in a line: `[a, b, c]` adds b to a, then c; `{…}` adds all it holds to the running
    /// sum at once; `0..8` are products in turn; `..` between two alike are those between them.
    pub fn describe(&self) -> String {
        let Some(root) = self.root else {
            return "nothing".to_owned();
        };
        let text = Speller::of(self).list(root, 0);
        if text.len() <= LENGTH_MAX {
            return text;
        }
        let end = text
            .char_indices()
            .map(|(n, _)| n)
            .take_while(|&n| n <= LENGTH_MAX);
        format!("{} …", &text[..end.last().unwrap_or(0)])
    }
}

/// What is added to a running sum.
enum Item {
    Product(usize),
    /// Products and sums, at once.
    AtOnce(Vec<usize>),
    Sum(usize),
}

struct Speller<'t> {
    tree: &'t Tree,
    /// The first product below each node.
    first: Vec<usize>,
}

impl Speller<'_> {
    fn of(tree: &Tree) -> Speller<'_> {
        let mut first: Vec<usize> = Vec::with_capacity(tree.nodes.len());
        for node in &tree.nodes {
            first.push(match node {
                Node::Leaf(k) => *k,
                Node::Join(acc, k) => first[*acc].min(*k),
                Node::Add(l, r) => first[*l].min(first[*r]),
                Node::Fuse(range) => {
                    let operands = tree.operands[range.clone()].iter();
                    operands.map(|&o| first[o]).min().unwrap_or(0)
                }
            });
        }
        Speller { tree, first }
    }

    /// What makes up a node, in the order of addition.
    fn items(&self, mut node: usize) -> Vec<Item> {
        let mut items = Vec::new();
        loop {
            match &self.tree.nodes[node] {
                Node::Leaf(k) => {
                    items.push(Item::Product(*k));
                    break;
                }
                Node::Join(acc, k) => {
                    items.push(Item::Product(*k));
                    node = *acc;
                }
                Node::Add(l, r) => {
                    let (head, other) = match self.first[*l] < self.first[*r] {
                        true => (*l, *r),
                        false => (*r, *l),
                    };
                    items.push(match self.tree.nodes[other] {
                        Node::Leaf(k) => Item::Product(k),
                        _ => Item::Sum(other),
                    });
                    node = head;
                }
                Node::Fuse(range) => {
                    let mut operands = self.tree.operands[range.clone()].to_vec();
                    operands.sort_by_key(|&o| self.first[o]);
                    let leaf = |&o: &usize| matches!(self.tree.nodes[o], Node::Leaf(_));
                    let running = operands.iter().position(|o| !leaf(o));
                    let head = running.map(|at| operands.remove(at));
                    items.push(Item::AtOnce(operands));
                    match head {
                        Some(head) => node = head,
                        None => break,
                    }
                }
            }
        }
        items.reverse();
        items
    }

    fn list(&self, node: usize, depth: usize) -> String {
        if depth > DEPTH_MAX {
            return "[…]".to_owned();
        }
        let mut parts: Vec<(String, Option<Run>)> = Vec::new();
        let mut run: Vec<usize> = Vec::new();
        for item in self.items(node) {
            let part = match item {
                Item::Product(k) => {
                    run.push(k);
                    continue;
                }
                Item::Sum(sum) => (self.list(sum, depth + 1), self.run_of(sum)),
                Item::AtOnce(operands) => {
                    let leaf = |&o: &usize| match self.tree.nodes[o] {
                        Node::Leaf(k) => Some(k),
                        _ => None,
                    };
                    let products: Vec<usize> = operands.iter().filter_map(leaf).collect();
                    let sums = operands.iter().filter(|o| leaf(o).is_none());
                    let mut inside = spans(&products);
                    inside.extend(sums.map(|&sum| self.list(sum, depth + 1)));
                    let run = (products.len() == operands.len()).then(|| Run::of(&products));
                    (format!("{{{}}}", inside.join(", ")), run.flatten())
                }
            };
            parts.extend(spans(&run).into_iter().map(|text| (text, None)));
            run.clear();
            parts.push(part);
        }
        parts.extend(spans(&run).into_iter().map(|text| (text, None)));
        format!("[{}]", abridged(&parts).join(", "))
    }

    /// The run of products that a sum is, if it is one.
    fn run_of(&self, sum: usize) -> Option<Run> {
        let product = |item: Item| match item {
            Item::Product(k) => Some(k),
            _ => None,
        };
        let products: Option<Vec<usize>> = self.items(sum).into_iter().map(product).collect();
        products.and_then(|products| Run::of(&products))
    }
}

/// Products at even distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: usize,
    step: usize,
    len: usize,
}

impl Run {
    fn of(products: &[usize]) -> Option<Run> {
        let (&start, rest) = products.split_first()?;
        let step = rest.first().map_or(1, |next| next.wrapping_sub(start));
        let even = products
            .windows(2)
            .all(|w| w[1] == w[0].wrapping_add(step) && w[1] > w[0]);
        even.then_some(Run {
            start,
            step,
            len: products.len(),
        })
    }
}

/// Products in turn, those at even distances as spans.
fn spans(mut products: &[usize]) -> Vec<String> {
    let mut found = Vec::new();
    while let [first, ..] = products {
        let least = 2;
        let longest = (least..=products.len())
            .take_while(|&len| Run::of(&products[..len]).is_some())
            .last();
        let run = longest.and_then(|len| Run::of(&products[..len]));
        let Some(run) = run.filter(|run| run.step == 1 || run.len > 2) else {
            found.push(first.to_string());
            products = &products[1..];
            continue;
        };
        let last = run.start + (run.len - 1) * run.step;
        let mut text = format!("{}..{}", run.start, last + 1);
        if run.step > 1 {
            write!(text, " by {}", run.step).expect("text grows");
        }
        found.push(text);
        products = &products[run.len..];
    }
    found
}

/// The parts, of four and more alike in a row only the first and the last.
fn abridged(parts: &[(String, Option<Run>)]) -> Vec<String> {
    let alike = |a: &(String, Option<Run>), b: &(String, Option<Run>)| match (a.1, b.1) {
        (Some(a), Some(b)) => a.step == b.step && a.len == b.len,
        _ => false,
    };
    let mut found = Vec::new();
    for group in parts.chunk_by(alike) {
        match group {
            [first, _, _, .., last] => {
                found.extend([first.0.clone(), "..".to_owned(), last.0.clone()]);
            }
            few => found.extend(few.iter().map(|part| part.0.clone())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::schedule::Schedule;

    #[test]
    fn orders_are_spelled_in_a_line() {
        for (order, n, text) in [
            (Schedule::Sequential, 961, "[0..961]"),
            (Schedule::Sequential, 1, "[0]"),
            (Schedule::Sequential, 0, "nothing"),
            (
                Schedule::Blocked(128),
                961,
                "[0..128, [128..256], .., [768..896], [896..961]]",
            ),
            (Schedule::SplitK(2), 961, "[0..481, [481..961]]"),
            (Schedule::Lanes(2), 9, "[0..9 by 2, [1..8 by 2]]"),
            (Schedule::LanesTail(2), 9, "[0..7 by 2, [1..8 by 2], 8]"),
            (Schedule::Mma(16), 961, "[{0..16}, .., {944..960}, {960}]"),
            (Schedule::Pairwise, 4, "[0..2, [2..4]]"),
        ] {
            assert_eq!(order.tree(n).describe(), text, "{order}");
        }
        let long = Schedule::Pairwise.tree(961).describe();
        assert!(long.ends_with(" …") && long.chars().count() < 250, "{long}");
    }

    #[test]
    fn known_orders_are_named() {
        for word in [
            "lanes-16",
            "lanes-8-tail",
            "blocked-128",
            "mma-16",
            "pairwise",
            "split-k-4x32",
        ] {
            let order: Schedule = word.parse().unwrap();
            let trees = [
                (961, 976),
                (976, 976),
                (961, 961),
                (1300, 2000),
                (1300, 1300),
            ]
            .map(|(n, to)| (order.tree(to).pruned(n), to));
            let trees = trees.each_ref().map(|(tree, to)| (tree, *to));
            assert_eq!(Schedule::of(&trees), Some(order));
        }
        // Of several names for one tree the simplest.
        let short = Schedule::Blocked(128).tree(100);
        assert_eq!(Schedule::of(&[(&short, 100)]), Some(Schedule::Sequential));
        let seven = Schedule::Lanes(7).tree(40);
        assert_eq!(Schedule::of(&[(&seven, 40)]), None);
    }
}
