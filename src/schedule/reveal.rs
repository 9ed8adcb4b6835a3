//! Finds the order of summation of a black box from its outputs alone.
//!
//! After Xie et al., "Revealing Floating-Point Accumulation Orders" (arXiv 2411.00442): among ones, a
//! large number at i and its negative at j swamp whatever is added before the two meet, so that the
//! output counts the products outside the smallest sum that holds both. Those counts determine the
//! tree.

use super::moved::SWAMP;
use super::tree::{Builder, Tree};
use std::collections::BTreeMap;
use std::ops::Range;

/// Up to this many products all pairs are asked at once: a few calls of many probes cost a subject
/// less than many calls of a few.
const ALL_PAIRS: usize = 32;
/// Deepest nesting of sums in sums that is followed; real orders stay below a hundred.
const DEPTH_MAX: usize = 2000;
/// Probes of one call: what they take of memory stays small.
const CALL_MAX: usize = 1 << 16;
/// Probes of one tree.
const PROBES_MAX: usize = 1 << 22;
/// Pairs that are asked again when the tree is known.
const CHECKS: u64 = 200;

/// One input: products are 1 in `ones` and 0 elsewhere, but at two places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Where [`Probe::SWAMP`] stands.
    pub plus: usize,
    /// Where its negative stands.
    pub minus: usize,
    /// Where ones may stand.
    pub ones: Range<usize>,
}

impl Probe {
    /// The large number, 2^100: it swamps sums of ones in f32 and f64, and bf16 holds it.
    pub const SWAMP: f32 = SWAMP;

    /// The product at k.
    pub fn value(&self, k: usize) -> f32 {
        match k {
            k if k == self.plus => SWAMP,
            k if k == self.minus => -SWAMP,
            k if self.ones.contains(&k) => 1.0,
            _ => 0.0,
        }
    }

    /// Ones among the products.
    fn total(&self) -> usize {
        let inside = |k: &usize| self.ones.contains(k);
        self.ones.len() - usize::from(inside(&self.plus)) - usize::from(inside(&self.minus))
    }
}

/// What a black box is asked with: outputs for probes, in their order.
pub trait Ask {
    /// Why there is no answer.
    type Error;

    /// The sums of the probes' products.
    ///
    /// # Errors
    /// The box's own.
    fn ask(&mut self, probes: &[Probe]) -> Result<Vec<f64>, Self::Error>;

    /// Up to which number the outputs count exactly: 2^24 in f32, 256 in bf16.
    fn exact(&self) -> usize {
        1 << 24
    }
}

/// A black box's order.
#[derive(Debug, Clone)]
pub struct Revealed {
    /// The order; steps are unknown: a product that joins a sum may be fused or rounded before.
    pub tree: Tree,
    /// Probes asked.
    pub probes: usize,
    /// Calls that asked them.
    pub calls: usize,
}

/// Why no order was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevealError<E> {
    /// The black box failed.
    #[error("{0}")]
    Box(E),
    /// Another number of answers than of probes.
    #[error("{actual} answers to {wanted} probes")]
    Answers {
        /// Probes.
        wanted: usize,
        /// Answers.
        actual: usize,
    },
    /// An output that counts nothing.
    #[error(
        "with {SWAMP:e} at {plus} and its negative at {minus}, the sum is {value} and not a count of 0 to {most}"
    )]
    NoCount {
        /// Where the large number stood.
        plus: usize,
        /// Where its negative stood.
        minus: usize,
        /// The output.
        value: String,
        /// Ones among the products.
        most: usize,
    },
    /// Counts that no tree of additions gives.
    #[error(
        "products {first} and {second} meet in a sum of {actual}, where the others leave {wanted}: no tree of additions, or one of exact adders of many terms, which swallow nothing"
    )]
    NoTree {
        /// One product.
        first: usize,
        /// Another.
        second: usize,
        /// Their count.
        actual: usize,
        /// The count that fits.
        wanted: usize,
    },
    /// More probes than can be waited for.
    #[error(
        "{probes} sums or more would have to be asked for, at most {PROBES_MAX}: the outputs count too coarsely for so many products"
    )]
    TooMany {
        /// Probes, those before included.
        probes: usize,
    },
    /// Sums nested too deeply.
    #[error("sums nested deeper than {DEPTH_MAX}")]
    TooDeep,
}

/// The order in which a black box adds `n` products.
///
/// # Errors
/// [`RevealError`]: the box's own, or that it does not add as a tree does.
pub fn reveal<A: Ask>(n: usize, ask: &mut A) -> Result<Revealed, RevealError<A::Error>> {
    let mut search = Search {
        n,
        ask,
        builder: Builder::default(),
        known: BTreeMap::new(),
        probes: 0,
        calls: 0,
    };
    let all: Vec<usize> = (0..n).collect();
    let roots = search.parts(&all, n + 1, End::First, 0)?;
    let root = match roots[..] {
        [] => None,
        [part] => Some(search.sum(part)),
        [_, second, ..] => {
            let first = search.any(roots[0]);
            return Err(RevealError::NoTree {
                first,
                second: search.any(second),
                actual: n + 1,
                wanted: n,
            });
        }
    };
    let tree = std::mem::take(&mut search.builder).finish(root);
    search.check(&tree)?;
    Ok(Revealed {
        tree,
        probes: search.probes,
        calls: search.calls,
    })
}

/// Which product of a set is compared with the others.
#[derive(Debug, Clone, Copy)]
enum End {
    First,
    Last,
}

/// A part of the tree.
#[derive(Debug, Clone, Copy)]
enum Part {
    Product(usize),
    /// A node, and one of its products.
    Sum(usize, usize),
}

struct Search<'a, A> {
    n: usize,
    ask: &'a mut A,
    builder: Builder,
    /// Products of the smallest sum that holds a pair.
    known: BTreeMap<(usize, usize), usize>,
    probes: usize,
    calls: usize,
}

impl<A: Ask> Search<'_, A> {
    /// The parts that make up `set`, all of them operands of one sum of `whole` products.
    fn parts(
        &mut self,
        set: &[usize],
        whole: usize,
        end: End,
        depth: usize,
    ) -> Result<Vec<Part>, RevealError<A::Error>> {
        if depth > DEPTH_MAX {
            return Err(RevealError::TooDeep);
        }
        self.meet(pairs(set).collect())?;
        let mut found = Vec::new();
        let mut open = set.to_vec();
        while !open.is_empty() {
            let pivot = match end {
                End::First => open.remove(0),
                End::Last => open.remove(open.len() - 1),
            };
            self.meet(open.iter().map(|&k| (pivot, k)).collect())?;
            // Products of this part by the size of the sum in which they meet the pivot.
            let mut rings: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            let mut others = Vec::new();
            for &k in &open {
                let size = self.known[&key(pivot, k)];
                if size < whole {
                    rings.entry(size).or_default().push(k);
                } else if size == whole {
                    others.push(k);
                } else {
                    return Err(self.no_tree(pivot, k, size, whole));
                }
            }
            found.push(self.part(pivot, rings, end, depth)?);
            open = others;
        }
        Ok(found)
    }

    /// The part in which `pivot` meets one ring of products after the other.
    fn part(
        &mut self,
        pivot: usize,
        rings: BTreeMap<usize, Vec<usize>>,
        end: End,
        depth: usize,
    ) -> Result<Part, RevealError<A::Error>> {
        let small: Vec<(usize, usize)> = rings.values().flat_map(|ring| pairs(ring)).collect();
        self.meet(small)?;
        let mut part = Part::Product(pivot);
        let mut size = 1;
        for (whole, ring) in rings {
            if size + ring.len() != whole {
                return Err(self.no_tree(pivot, ring[0], whole, size + ring.len()));
            }
            // A pivot that all others meet last says little: the next one comes from the other end.
            let next = match end {
                _ if size > 1 || ring.len() == 1 => End::First,
                End::First => End::Last,
                End::Last => End::First,
            };
            let mut operands = self.parts(&ring, whole, next, depth + 1)?;
            operands.insert(0, part);
            part = self.join(&operands, pivot);
            size = whole;
        }
        Ok(part)
    }

    /// One sum of some parts.
    fn join(&mut self, operands: &[Part], pivot: usize) -> Part {
        let node = match *operands {
            [Part::Sum(sum, _), Part::Product(k)] | [Part::Product(k), Part::Sum(sum, _)] => {
                self.builder.join(Some(sum), k)
            }
            [Part::Product(a), Part::Product(b)] => {
                let first = self.builder.join(None, a.min(b));
                self.builder.join(first, a.max(b))
            }
            [Part::Sum(a, _), Part::Sum(b, _)] => self.builder.add(Some(a), Some(b)),
            _ => {
                let nodes = operands.iter().map(|&part| self.sum(part)).collect();
                self.builder.fuse(nodes)
            }
        };
        Part::Sum(node.expect("a sum of parts is a node"), pivot)
    }

    fn sum(&mut self, part: Part) -> usize {
        match part {
            Part::Sum(node, _) => node,
            Part::Product(k) => {
                let leaf = self.builder.join(None, k);
                leaf.expect("a product is a node")
            }
        }
    }

    fn any(&self, part: Part) -> usize {
        match part {
            Part::Product(k) | Part::Sum(_, k) => k,
        }
    }

    fn no_tree(
        &self,
        first: usize,
        second: usize,
        actual: usize,
        wanted: usize,
    ) -> RevealError<A::Error> {
        RevealError::NoTree {
            first,
            second,
            actual,
            wanted,
        }
    }

    /// Asks in how large a sum each pair meets, as far as it is not known.
    fn meet(&mut self, mut pairs: Vec<(usize, usize)>) -> Result<(), RevealError<A::Error>> {
        pairs.retain(|&(i, j)| !self.known.contains_key(&key(i, j)));
        let sizes = self.sizes(&pairs)?;
        for (&(i, j), size) in pairs.iter().zip(sizes) {
            self.known.insert(key(i, j), size);
        }
        Ok(())
    }

    /// Products of the smallest sum that holds each pair.
    fn sizes(&mut self, pairs: &[(usize, usize)]) -> Result<Vec<usize>, RevealError<A::Error>> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let step = self.ask.exact().max(1);
        let starts: Vec<usize> = (0..self.n).step_by(step).collect();
        let wanted = pairs.len().saturating_mul(starts.len());
        let probes = self.probes.saturating_add(wanted);
        if probes > PROBES_MAX {
            return Err(RevealError::TooMany { probes });
        }
        let mut sizes = Vec::with_capacity(pairs.len());
        for pairs in pairs.chunks((CALL_MAX / starts.len()).max(1)) {
            sizes.extend(self.call(pairs, &starts, step)?);
        }
        Ok(sizes)
    }

    /// The same of few enough pairs for one call.
    fn call(
        &mut self,
        pairs: &[(usize, usize)],
        starts: &[usize],
        step: usize,
    ) -> Result<Vec<usize>, RevealError<A::Error>> {
        let probe = |&(plus, minus): &(usize, usize), &start: &usize| Probe {
            plus,
            minus,
            ones: start..self.n.min(start + step),
        };
        let of = |pair| starts.iter().map(move |start| probe(pair, start));
        let probes: Vec<Probe> = pairs.iter().flat_map(of).collect();
        let answers = self.ask.ask(&probes).map_err(RevealError::Box)?;
        self.probes += probes.len();
        self.calls += 1;
        if answers.len() != probes.len() {
            return Err(RevealError::Answers {
                wanted: probes.len(),
                actual: answers.len(),
            });
        }
        let mut outside = Vec::with_capacity(probes.len());
        for (probe, &answer) in probes.iter().zip(&answers) {
            let count = answer.round();
            let most = probe.total();
            if !(count >= 0.0 && count <= most as f64 && (answer - count).abs() < 0.25) {
                return Err(RevealError::NoCount {
                    plus: probe.plus,
                    minus: probe.minus,
                    value: answer.to_string(),
                    most,
                });
            }
            outside.push(count as usize);
        }
        let of = |counts: &[usize]| self.n - counts.iter().sum::<usize>();
        Ok(outside.chunks(starts.len()).map(of).collect())
    }

    /// Asks pairs drawn at random again: a box that does not add as a tree does, or not always in
    /// the same way, disagrees with the tree somewhere.
    fn check(&mut self, tree: &Tree) -> Result<(), RevealError<A::Error>> {
        const SEED: u64 = 0x6368_6563_6b73;
        if self.n < 2 {
            return Ok(());
        }
        let draw = |number: u64, stream: u64| {
            let below = self.n as u64;
            usize::try_from(crate::rng::value(SEED, stream, number) % below).unwrap_or(0)
        };
        // Few first products, so that few walks over the tree serve many pairs.
        let pairs: Vec<(usize, usize)> = (0..CHECKS)
            .map(|number| (draw(number / 20, 0), draw(number, 1)))
            .filter(|(i, j)| i != j)
            .collect();
        let sizes = self.sizes(&pairs)?;
        let mut meets = (usize::MAX, Vec::new());
        for (&(i, j), actual) in pairs.iter().zip(sizes) {
            if meets.0 != i {
                meets = (i, tree.meets(i));
            }
            if meets.1[j] != actual {
                return Err(self.no_tree(i, j, actual, meets.1[j]));
            }
        }
        Ok(())
    }
}

/// All pairs of a small set; none of a large one.
fn pairs(set: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let small = if set.len() <= ALL_PAIRS { set } else { &[] };
    let after = move |n: usize| small[n + 1..].iter();
    let pairs = small.iter().enumerate();
    pairs.flat_map(move |(n, &i)| after(n).map(move |&j| (i, j)))
}

fn key(i: usize, j: usize) -> (usize, usize) {
    (i.min(j), i.max(j))
}
