//! Spells a width and what its padding comes from: the padded width, and the ranks' shares where
//! they differ.
//!
//! It must not cut anything. Layer 10.

use crate::plan::Plan;

/// `961 -> 976`, or one number where nothing was added.
pub(super) fn change(from: u64, to: u64) -> String {
    if from == to {
        from.to_string()
    } else {
        format!("{from} -> {to}")
    }
}

/// `192 -> 256 (stride: 6 x 256, 2 x 0)`: the shares are named where they differ, since the
/// largest share under an equal cut is then not what any rank holds.
pub(super) fn width(plan: &Plan) -> String {
    let sizes = change(plan.width, plan.width_padded);
    match shares(plan) {
        Some(shares) => format!("{sizes} ({shares})"),
        None => sizes,
    }
}

/// The split and how many ranks hold how many channels, if not all hold as many.
pub(super) fn shares(plan: &Plan) -> Option<String> {
    let mut counted: Vec<(u64, u64)> = Vec::new();
    for rank in &plan.ranks {
        match counted.iter_mut().find(|(len, _)| *len == rank.len) {
            Some((_, ranks)) => *ranks += 1,
            None => counted.push((rank.len, 1)),
        }
    }
    let share = |(len, ranks): &(u64, u64)| format!("{ranks} x {len}");
    let list = counted.iter().map(share).collect::<Vec<_>>().join(", ");
    (counted.len() > 1).then(|| format!("{}: {list}", plan.split))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    fn of(line: &str) -> String {
        width(&plan(&line.parse().expect("a case")).expect("a plan"))
    }

    #[test]
    fn equal_shares_are_not_named() {
        assert_eq!(of("i=64,tp=2,pad=i32,split=stride"), "32");
        assert_eq!(of("i=66,tp=2,pad=i32,split=floor"), "33 -> 64");
    }

    /// facts/upstream-padding.md 1.10: 1536 over 8 ranks in strides of 128 leaves two empty.
    #[test]
    fn unequal_shares_are_named_with_their_split() {
        assert_eq!(
            of("i=1536,tp=8,pad=i128,split=stride"),
            "192 -> 256 (stride: 6 x 256, 2 x 0)"
        );
        assert_eq!(
            of("i=2880,tp=8,w=mxfp4,pad=i32,split=ceil-block"),
            "384 (ceil-block: 7 x 384, 1 x 192)"
        );
    }
}
