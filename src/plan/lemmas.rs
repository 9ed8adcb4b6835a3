//! Ties this module's functions to the formulas of `proofs/` (see `proof::tests`).

use super::arith::round_up;
use super::scales::{local_block, logical_blocks};
use super::sizes::formula;
use super::split::{Cut, ceil_block, floor, prepad, stride, strided};
use super::tensors::bytes;
use super::{PlanError, RankPlan};
use crate::num::Dtype;
use crate::proof::{Arg, Tie};
use crate::rule::Sizes;

/// A stride that a cut's ranges were made with.
fn step(i: u64, ranks: u64, cut: Result<Cut, PlanError>, step: fn(&Cut) -> u64) -> Option<u64> {
    let cut = cut.ok()?;
    let step = step(&cut);
    assert_eq!(cut.ranges, strided(i, ranks, step), "{i} over {ranks}");
    Some(step)
}

fn range(v: &[u64]) -> (u64, u64) {
    let rank = usize::try_from(v[0]).unwrap();
    strided(v[2], v[0] + 1, v[1])[rank]
}

fn width(sizes: Sizes, width: u64, halves: u64, packed: bool) -> Option<(u64, u64)> {
    let sizes = formula(sizes, width, width, halves, packed).ok()?;
    Some((sizes.w13_rows, sizes.width_padded))
}

const ANY: Arg = Arg::UpTo(u64::MAX);
const GRANULE: Arg = Arg::From1(u64::MAX - 1);
const RANKS: Arg = Arg::From1(300);
const SIZE: Arg = Arg::UpTo(1 << 40);
const BLOCK: Arg = Arg::From1(1 << 10);

pub(crate) const TIES: &[Tie] = &[
    Tie {
        formula: ("round-up.smt2", "ceil-div"),
        arguments: &[SIZE, BLOCK],
        function: |v| Some(round_up(v[0], v[1])? / v[1]),
    },
    Tie {
        formula: ("round-up.smt2", "round-up"),
        arguments: &[ANY, GRANULE],
        function: |v| round_up(v[0], v[1]),
    },
    Tie {
        formula: ("halves.smt2", "round-up"),
        arguments: &[ANY, GRANULE],
        function: |v| round_up(v[0], v[1]),
    },
    Tie {
        formula: ("halves.smt2", "rows"),
        arguments: &[Arg::OneOf(&[1, 2]), ANY],
        function: |v| Some(width(Sizes::Consistent, v[1], v[0], false)?.0),
    },
    Tie {
        formula: ("packing.smt2", "row-bytes"),
        arguments: &[Arg::UpTo(1 << 58), Arg::OneOf(&[4, 8, 16, 32])],
        function: |v| {
            let of = Dtype::ALL.into_iter().find(|d| d.bits() == v[1]);
            bytes("row", &[1], v[0], of.unwrap()).ok()
        },
    },
    Tie {
        formula: ("packing.smt2", "aiter-width"),
        arguments: &[SIZE],
        function: |v| Some(width(Sizes::AiterShipped, v[0], 2, true)?.1),
    },
    Tie {
        formula: ("scale-blocks.smt2", "blocks"),
        arguments: &[ANY, GRANULE],
        function: |v| Some(logical_blocks(v[0], v[1])),
    },
    Tie {
        formula: ("scale-blocks.smt2", "straddles"),
        arguments: &[SIZE, Arg::UpTo(3000), BLOCK],
        function: |v| {
            let rank = RankPlan {
                rank: 0,
                start: v[0],
                len: v[1],
                expert_start: 0,
                expert_len: 1,
            };
            Some(u64::from(local_block(v[2], &[rank]).is_err()))
        },
    },
    Tie {
        formula: ("split.smt2", "ceil-div"),
        arguments: &[SIZE, BLOCK],
        function: |v| floor(v[0], v[1], 1).ok().map(|cut| cut.width),
    },
    Tie {
        formula: ("split.smt2", "round-up"),
        arguments: &[ANY, GRANULE],
        function: |v| round_up(v[0], v[1]),
    },
    Tie {
        formula: ("split.smt2", "start"),
        arguments: &[Arg::UpTo(300), ANY, ANY],
        function: |v| Some(range(v).0),
    },
    Tie {
        formula: ("split.smt2", "len"),
        arguments: &[Arg::UpTo(300), ANY, ANY],
        function: |v| Some(range(v).1),
    },
    Tie {
        formula: ("split.smt2", "floor-step"),
        arguments: &[SIZE, RANKS],
        function: |v| step(v[0], v[1], floor(v[0], v[1], 16), |cut| cut.width),
    },
    Tie {
        formula: ("split.smt2", "stride-step"),
        arguments: &[SIZE, RANKS, BLOCK],
        function: |v| step(v[0], v[1], stride(v[0], v[1], v[2]), |cut| cut.width_padded),
    },
    Tie {
        formula: ("split.smt2", "block-step"),
        arguments: &[SIZE, RANKS, BLOCK],
        function: |v| {
            let cut = ceil_block(v[0], v[1], 1, v[2]);
            step(v[0], v[1], cut, |cut| cut.width_padded)
        },
    },
    Tie {
        formula: ("split.smt2", "prepad-step"),
        arguments: &[SIZE, RANKS, BLOCK],
        function: |v| {
            let cut = prepad(v[0], v[1], v[2], 1);
            step(v[0], v[1], cut, |cut| cut.width_padded)
        },
    },
];
