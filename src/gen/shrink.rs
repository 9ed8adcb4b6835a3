//! Makes simpler cases out of one, and finds the smallest that still fails.
//!
//! It must not know why a case fails. Layer 8.

use crate::case::{Case, PadSpec, Scheme};
use crate::terms::{Extent, Fill, Place, Stores};

/// How complicated a case is; every candidate of [`shrink`] has less.
///
/// A size costs itself, a feature away from the default a hundred, a seed its bits.
pub fn complexity(case: &Case) -> u128 {
    let plain = Case::default();
    let sizes = [
        case.t,
        case.e,
        case.k,
        case.zero,
        case.h,
        case.i,
        case.tp,
        case.ep,
        case.groups,
        case.keep,
    ];
    let features = [
        case.act != plain.act,
        case.route != plain.route,
        case.factor != plain.factor,
        case.w != plain.w,
        case.qx != plain.qx,
        case.qh != plain.qh,
        case.mid_bf16,
        case.bias != plain.bias,
        case.fill != plain.fill,
    ];
    let scheme = match &case.scheme {
        Scheme::Rule(_) => RULE,
        Scheme::Spelled(pad) => {
            let plain = PadSpec::default();
            let features = [
                pad.split != plain.split,
                pad.order != plain.order,
                pad.place != plain.place,
                pad.store.scales != plain.store.scales,
                pad.store.weights != plain.store.weights,
                pad.nib != plain.nib,
            ];
            count(&features) * FEATURE + total(&[pad.hidden, pad.intermediate, pad.tokens])
        }
    };
    let seed = u128::from(u64::BITS - case.seed.leading_zeros());
    total(&sizes) + count(&features) * FEATURE + scheme + seed
}

/// Cost of one feature away from its default: as much as a size of a hundred.
const FEATURE: u128 = 100;

/// Cost of a rule: more than any spelled padding that replaces it.
const RULE: u128 = 2 * FEATURE;

fn total(sizes: &[u64]) -> u128 {
    sizes.iter().map(|size| u128::from(*size)).sum()
}

fn count(features: &[bool]) -> u128 {
    features.iter().filter(|on| **on).count() as u128
}

/// Valid and strictly simpler cases, the boldest steps first.
pub fn shrink(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    features(case, &mut found);
    scheme(case, &mut found);
    sizes(case, &mut found);
    let before = complexity(case);
    let mut kept: Vec<Case> = Vec::with_capacity(found.len());
    for candidate in found {
        let simpler = candidate.validate().is_ok() && complexity(&candidate) < before;
        if simpler && !kept.contains(&candidate) {
            kept.push(candidate);
        }
    }
    kept
}

/// Changes a copy and keeps it.
fn with(case: &Case, found: &mut Vec<Case>, change: impl FnOnce(&mut Case)) {
    let mut candidate = case.clone();
    change(&mut candidate);
    found.push(candidate);
}

fn features(case: &Case, found: &mut Vec<Case>) {
    let plain = Case::default();
    with(case, found, |c| {
        (c.route, c.groups, c.keep) = (plain.route, 1, 1)
    });
    with(case, found, |c| c.w = plain.w);
    with(case, found, |c| (c.tp, c.ep) = (1, 1));
    with(case, found, |c| c.ep = 1);
    with(case, found, |c| c.qx = plain.qx);
    with(case, found, |c| c.qh = plain.qh);
    with(case, found, |c| c.mid_bf16 = false);
    with(case, found, |c| c.bias = plain.bias);
    with(case, found, |c| c.factor = plain.factor);
    with(case, found, |c| c.fill = Fill::Exact);
    with(case, found, |c| c.act = plain.act);
    with(case, found, |c| c.seed = 0);
    with(case, found, |c| c.seed &= 0xf);
}

fn scheme(case: &Case, found: &mut Vec<Case>) {
    let plain = PadSpec::default();
    with(case, found, |c| c.scheme = Scheme::Spelled(plain));
    let Scheme::Spelled(pad) = &case.scheme else {
        return;
    };
    let mut spell = |pad: PadSpec| with(case, found, |c| c.scheme = Scheme::Spelled(pad));
    spell(PadSpec {
        split: plain.split,
        ..*pad
    });
    spell(PadSpec {
        order: plain.order,
        ..*pad
    });
    spell(PadSpec {
        place: Place::PerHalf,
        ..*pad
    });
    for store in [
        plain.store,
        Stores {
            scales: plain.store.scales,
            ..pad.store
        },
        Stores {
            weights: plain.store.weights,
            ..pad.store
        },
    ] {
        spell(PadSpec { store, ..*pad });
    }
    spell(PadSpec {
        nib: plain.nib,
        ..*pad
    });
    for granule in below(pad.hidden, 1) {
        spell(PadSpec {
            hidden: granule,
            ..*pad
        });
    }
    for granule in below(pad.intermediate, 1) {
        spell(PadSpec {
            intermediate: granule,
            ..*pad
        });
    }
    for granule in below(pad.tokens, 1) {
        spell(PadSpec {
            tokens: granule,
            ..*pad
        });
    }
}

fn sizes(case: &Case, found: &mut Vec<Case>) {
    for t in below(case.t, 0) {
        with(case, found, |c| c.t = t);
    }
    // Fewer experts take k, the groups and the expert-parallel groups along.
    for e in below(case.e, 1) {
        with(case, found, |c| (c.e, c.k) = (e, c.k.min(e + c.zero)));
        with(case, found, |c| {
            (c.e, c.groups) = (e, gcd(e, c.groups));
            c.keep = c.keep.min(c.groups);
            c.k = c.k.min(c.keep * (c.e / c.groups));
        });
    }
    for zero in below(case.zero, 0) {
        with(case, found, |c| (c.zero, c.k) = (zero, c.k.min(c.e + zero)));
    }
    for k in below(case.k, 1) {
        with(case, found, |c| c.k = k);
    }
    for groups in below(case.groups, 1) {
        with(case, found, |c| {
            (c.groups, c.keep) = (groups, c.keep.min(groups))
        });
    }
    for keep in below(case.keep, 1) {
        with(case, found, |c| c.keep = keep);
    }
    for tp in below(case.tp, 1) {
        with(case, found, |c| c.tp = tp);
    }
    for ep in below(case.ep, 1) {
        with(case, found, |c| c.ep = ep);
        // Both together keep the number of parts of the intermediate axis.
        with(case, found, |c| (c.tp, c.ep) = (c.tp / c.ep * ep, ep));
    }
    let group = match case.w.scale().map(|grid| grid.cols) {
        Some(Extent::Block(block)) => block,
        _ => 1,
    };
    for h in stepped(case.h, group) {
        with(case, found, |c| c.h = h);
    }
    let parts = (case.tp / case.ep).max(1);
    for i in stepped(case.i, parts)
        .into_iter()
        .chain(stepped(case.i, group))
    {
        with(case, found, |c| c.i = i);
    }
}

/// The largest number of equal groups, of those that divide both.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The least value, the middle, and one less.
fn below(value: u64, least: u64) -> Vec<u64> {
    if value <= least {
        return Vec::new();
    }
    vec![least, least + (value - least) / 2, value - 1]
}

/// The same in single elements and in whole steps, for sizes that a format or split wants whole.
fn stepped(value: u64, step: u64) -> Vec<u64> {
    let mut values = below(value, 1);
    if step > 1 && value > step {
        values.extend([
            step,
            (value / 2).next_multiple_of(step),
            (value - 1) / step * step,
            value - step,
        ]);
    }
    values.retain(|v| *v < value);
    values
}

/// The smallest case that a greedy walk finds within `budget` calls of `fails`.
///
/// `case` itself is taken to fail; the answer always does.
pub fn minimise(case: &Case, mut fails: impl FnMut(&Case) -> bool, budget: usize) -> Case {
    let mut best = case.clone();
    let mut left = budget;
    'walk: loop {
        for candidate in shrink(&best) {
            if left == 0 {
                return best;
            }
            left -= 1;
            if fails(&candidate) {
                best = candidate;
                continue 'walk;
            }
        }
        return best;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Domain, draw};
    use super::*;

    #[test]
    fn every_candidate_is_valid_and_simpler() {
        for index in 0..1000 {
            let case = draw(&Domain::FULL, 5, index);
            let candidates = shrink(&case);
            assert!(!candidates.is_empty(), "{case}");
            for candidate in candidates {
                assert_eq!(candidate.validate(), Ok(()), "{case} -> {candidate}");
                assert!(
                    complexity(&candidate) < complexity(&case),
                    "{case} -> {candidate}"
                );
            }
        }
    }

    #[test]
    fn what_does_not_matter_shrinks_away() {
        let mut shrunk = 0;
        for index in 0..1000 {
            let case = draw(&Domain::FULL, 6, index);
            let fails = |c: &Case| c.i > 17 && c.tp / c.ep > 1;
            if fails(&case) {
                let small = minimise(&case, fails, 10_000);
                assert_eq!(
                    small.to_string(),
                    "t=0,e=1,k=1,h=1,i=18,tp=2",
                    "from {case}"
                );
                shrunk += 1;
            }
        }
        assert!(shrunk > 100, "{shrunk}");
    }

    #[test]
    fn formats_that_matter_are_kept_with_whole_groups() {
        let case: Case = "t=9,e=6,k=3,h=128,i=300,tp=4,w=mxfp4,pad=i128,seed=77"
            .parse()
            .expect("parses");
        let fails =
            |c: &Case| c.w.name() == "mxfp4" && c.h.is_multiple_of(32) && !c.i.is_multiple_of(32);
        assert_eq!(
            minimise(&case, fails, 10_000).to_string(),
            "t=0,e=1,k=1,h=32,i=1,w=mxfp4"
        );
    }

    #[test]
    fn the_budget_bounds_the_walk() {
        let case: Case = "i=1099511627776,h=1099511627776".parse().expect("parses");
        let mut calls = 0;
        minimise(
            &case,
            |_| {
                calls += 1;
                false
            },
            7,
        );
        assert_eq!(calls, 7);
    }

    #[test]
    fn a_rule_is_replaced_if_it_does_not_matter() {
        let case: Case = "i=9,rule=a.b.c".parse().expect("parses");
        assert!(
            !minimise(&case, |c| c.i > 2, 100)
                .to_string()
                .contains("rule")
        );
        assert!(
            minimise(&case, |c| matches!(c.scheme, Scheme::Rule(_)), 100)
                .to_string()
                .contains("rule=a.b.c")
        );
    }
}
