//! Data parallelism: what replicas of a model do to the ranks that share its experts.

use super::derive::fit;
use super::{Effect, Fit, Parallel, Plan, Unit, Violation};
use crate::rule::{Replicas, Spread};
use crate::terms::LayerKind;

/// The ranks that share one part under a rule whose stack treats replicas so, given what the user asked for: TP ranks in
/// a replica, EP groups over all ranks and `dp` replicas. None when the groups do not divide them.
pub fn replicated(
    replicas: Replicas,
    kind: LayerKind,
    asked: Parallel,
    dp: u64,
) -> Option<Parallel> {
    if dp <= 1 {
        return Some(asked);
    }
    let tp = match (replicas, kind.follows()) {
        (Replicas::Share, LayerKind::Routed) => asked.tp.checked_mul(dp)?,
        // Each replica has shared experts and dense layers of its own.
        _ => asked.tp,
    };
    let ep = match kind.follows() {
        LayerKind::Routed => asked.ep,
        _ => 1,
    };
    let fits = ep > 0 && tp.is_multiple_of(ep);
    fits.then_some(Parallel { tp, ep })
}

/// Says in a plan that nobody read what its stack does with replicas.
pub fn unread_replicas(plan: &mut Plan, stack: &str, replicas: Replicas, dp: u64) {
    if dp <= 1 || replicas != Replicas::Unknown {
        return;
    }
    let message = format!(
        "what {stack} does with the experts of {dp} replicas was not read; planned as if they shared nothing"
    );
    unread(plan, "PP131", "ranks", (dp, 1), message);
}

/// Says in a plan of routed experts that nobody read what its stack does with groups of several ranks
/// each, where it spreads whole experts over all ranks or over none.
pub fn unread_groups(plan: &mut Plan, stack: &str, spread: Spread) {
    let Parallel { tp, ep } = plan.parallel;
    let some = ep > 1 && ep < tp && plan.layer.follows() == LayerKind::Routed;
    if spread != Spread::AllOrNone || !some {
        return;
    }
    let message = format!(
        "{stack} spreads whole experts over all {tp} ranks that share them, or over none: what {ep} groups would be was not read"
    );
    unread(plan, "PP135", "experts", (ep, tp), message);
}

/// Leaves open what a stack does with experts that its groups cannot share equally: that it refuses them
/// nobody read.
pub fn unread_shares(plan: &mut Plan, stack: &str) {
    let Some(uneven) = plan.violations.iter_mut().find(|v| v.code == "PP106") else {
        return;
    };
    uneven.effect = Effect::Unknown;
    uneven
        .message
        .push_str(&format!(", and what {stack} does then was not read"));
    let Parallel { tp, ep } = plan.parallel;
    plan.fit = fit(plan, tp / ep.max(1), &plan.violations);
}

fn unread(
    plan: &mut Plan,
    code: &'static str,
    axis: &'static str,
    (value, granule): (u64, u64),
    message: String,
) {
    plan.violations.push(Violation {
        code,
        axis,
        value,
        unit: Unit::Ranks,
        granule,
        message,
        effect: Effect::Unknown,
    });
    plan.fit = plan.fit.max(Fit::Unknown);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rules;

    fn shared_by(stack: &str, kind: LayerKind, tp: u64, ep: u64, dp: u64) -> Option<(u64, u64)> {
        replicated(
            Rules::builtin().replicas(stack),
            kind,
            Parallel { tp, ep },
            dp,
        )
        .map(|p| (p.tp, p.ep))
    }

    /// TP 2, DP 2: experts over 4 ranks without EP, 4 groups with it; the others over 2.
    #[test]
    fn vllm_cuts_experts_over_all_ranks_of_all_replicas() {
        assert_eq!(shared_by("vllm", LayerKind::Routed, 2, 1, 2), Some((4, 1)));
        assert_eq!(shared_by("vllm", LayerKind::Draft, 2, 4, 2), Some((4, 4)));
        assert_eq!(shared_by("vllm", LayerKind::Shared, 2, 4, 2), Some((2, 1)));
        assert_eq!(shared_by("vllm", LayerKind::Dense, 2, 1, 2), Some((2, 1)));
        assert_eq!(shared_by("vllm", LayerKind::Routed, 2, 3, 2), None);
    }

    #[test]
    fn sglang_counts_all_ranks_in_tp() {
        assert_eq!(
            shared_by("sglang", LayerKind::Routed, 8, 2, 4),
            Some((8, 2))
        );
        assert_eq!(shared_by("sglang", LayerKind::Routed, 2, 8, 4), None);
    }

    #[test]
    fn one_replica_changes_nothing() {
        assert_eq!(shared_by("other", LayerKind::Shared, 8, 8, 1), Some((8, 8)));
    }
}
