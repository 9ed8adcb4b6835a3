//! The padded hidden size: what a rule asks for, and what the dispatch that sends its tokens asks for
//! besides. One size serves all stages (facts/reports.md B32).

use super::arith::{lcm, padded};
use super::conditions::{Aligned, Facts, Truth};
use super::{Effect, PlanError, Unit, Violation};
use crate::rule::{Granule, Rule, device_is};

/// Hidden sizes that one stage takes.
struct Takes<'r> {
    /// Multiples of this.
    align: u64,
    /// If any, only these, each rounded up to `align`.
    listed: &'r [u64],
}

impl Takes<'_> {
    fn takes(&self, size: u64) -> bool {
        let rounded = |n: &u64| padded("hidden", *n, self.align) == Ok(size);
        match self.listed {
            [] => size.is_multiple_of(self.align),
            some => some.iter().any(rounded),
        }
    }
}

/// The least size that all stages take, and whether there is one: sizes that are listed end.
fn least(hidden: u64, stages: &[Takes<'_>]) -> Result<(u64, bool), PlanError> {
    let Some(list) = stages.iter().find(|stage| !stage.listed.is_empty()) else {
        return multiple(hidden, stages).map(|size| (size, true));
    };
    for n in list.listed.iter().filter(|n| **n >= hidden) {
        let size = padded("hidden", *n, list.align)?;
        if stages.iter().all(|stage| stage.takes(size)) {
            return Ok((size, true));
        }
    }
    multiple(hidden, stages).map(|size| (size, false))
}

/// The least multiple of every stage's unit.
fn multiple(hidden: u64, stages: &[Takes<'_>]) -> Result<u64, PlanError> {
    let mut common = 1;
    for stage in stages {
        common = lcm(common, stage.align).ok_or_else(|| PlanError::Overflow {
            what: "granule",
            terms: format!("lcm({common}, {})", stage.align),
        })?;
    }
    padded("hidden", hidden, common)
}

impl Facts<'_> {
    /// The dispatch that sends this layer's tokens, if one of the rule's stack does.
    pub(super) fn sent(&self, width: u64) -> Option<&Rule> {
        let (dispatch, sends) = self.asked_to_send(width)?;
        (sends == Truth::Yes && self.rule.knows(dispatch)).then_some(dispatch)
    }

    /// The dispatch that is asked to send this layer's tokens, whosever it is, and whether it does.
    fn asked_to_send(&self, width: u64) -> Option<(&Rule, Truth)> {
        let dispatch = self.rule.sent.as_deref()?;
        let sends = self.holds(&dispatch.when, width);
        let on = match self.rule.knows(dispatch) {
            true => self.on_one_of(&dispatch.arch),
            false => Truth::Yes,
        };
        (sends != Truth::No).then(|| (dispatch, sends.min(on)))
    }

    /// The padded hidden size, at a per-rank `width`.
    pub(super) fn hidden(
        &self,
        width: u64,
        found: &mut Vec<Violation>,
    ) -> Result<Aligned, PlanError> {
        if self.rule.dispatch {
            found.push(dispatch_alone(self.rule, self.layer.hidden));
        }
        let (taken, open) = match self.cheapest(width)? {
            Some([_, h]) => (Some(Granule::elements(h)), Vec::new()),
            None => {
                let (taken, open) = self.choose(&self.rule.hidden, width);
                (taken.cloned(), open)
            }
        };
        let sent = self.sent(width);
        let (also, open_also) = match sent {
            Some(dispatch) => self.choose(&dispatch.hidden, width),
            None => (None, Vec::new()),
        };
        let said = found.len();
        let size = self.least_of(&[taken.as_ref(), also], found)?;
        let there_is = found.len() == said;
        if let Some(dispatch) = sent {
            let alone = |granule| self.least_of(&[granule], &mut Vec::new());
            // Where both take the size as it is there is nothing to say, and where none serves both it is said.
            if there_is && size != self.layer.hidden {
                found.push(both(dispatch, alone(also)?, alone(taken.as_ref())?, size));
            }
            self.unread_format(dispatch, found);
        }
        match self.asked_to_send(width) {
            Some((dispatch, _)) if !self.rule.knows(dispatch) => {
                found.push(unread_dispatch(dispatch, self.rule, size));
            }
            Some((dispatch, Truth::Open)) => {
                let (also, _) = self.choose(&dispatch.hidden, width);
                let mut then = Vec::new();
                let other = self.least_of(&[taken.as_ref(), also], &mut then)?;
                found.push(open_dispatch(dispatch, size, other, then.pop()));
            }
            _ => {}
        }
        let own = open.iter().map(|one| (Some(*one), also, one));
        let others = open_also
            .iter()
            .map(|one| (taken.as_ref(), Some(*one), one));
        let mut otherwise = Vec::new();
        for (own, also, asked) in own.chain(others) {
            let size = self.least_of(&[own, also], &mut Vec::new())?;
            otherwise.push((size, asked.when.asks()));
        }
        Ok(Aligned { size, otherwise })
    }

    /// The least hidden size that all granules take.
    fn least_of(
        &self,
        granules: &[Option<&Granule>],
        found: &mut Vec<Violation>,
    ) -> Result<u64, PlanError> {
        let hidden = self.layer.hidden;
        let mut stages = Vec::new();
        for granule in granules.iter().flatten() {
            stages.push(Takes {
                align: self.elements(granule)?,
                listed: &granule.next,
            });
        }
        let (size, there_is) = least(hidden, &stages)?;
        let last = stages.iter().filter_map(|stage| stage.listed.last());
        if let (false, Some(&last)) = (there_is, last.min()) {
            let message = match hidden > last {
                true => format!("{hidden} is above {last}, the largest hidden size there is"),
                false => format!(
                    "no hidden size from {hidden} to {last}, the largest there is, is taken by the GEMM and by the dispatch"
                ),
            };
            found.push(violation("PP128", (hidden, last), message, Effect::Refused));
        }
        Ok(size)
    }

    /// A dispatch that was read for other formats than the layer's.
    fn unread_format(&self, dispatch: &Rule, found: &mut Vec<Violation>) {
        let weight = self.layer.weight;
        if !dispatch.formats.contains(&weight) {
            let message = format!(
                "whether {} sends the tokens of {weight} experts was not read",
                dispatch.id
            );
            found.push(violation(
                "PP119",
                (self.layer.hidden, 0),
                message,
                Effect::Unknown,
            ));
        }
    }
}

fn violation(
    code: &'static str,
    (value, granule): (u64, u64),
    message: String,
    effect: Effect,
) -> Violation {
    Violation {
        code,
        axis: "hidden",
        value,
        unit: Unit::Elements,
        granule,
        message,
        effect,
    }
}

/// What one size for all stages is made of.
fn both(dispatch: &Rule, sent: u64, multiplied: u64, size: u64) -> Violation {
    let message = format!(
        "{} sends the tokens and takes {sent} of hidden, the GEMM takes {multiplied}: {size} is the least that both take",
        dispatch.id
    );
    violation("PP136", (size, 0), message, Effect::Note)
}

/// A dispatch that was read for another stack, or for other devices of this one.
fn unread_dispatch(dispatch: &Rule, rule: &Rule, size: u64) -> Violation {
    let message = format!(
        "which hidden sizes {} sends under {} was not read: {} is {}'s",
        dispatch.backend, rule.stack, dispatch.id, dispatch.stack
    );
    violation("PP119", (size, 0), message, Effect::Unknown)
}

/// A dispatch of which a fact of the run decides whether it sends the tokens: the size then, or that there
/// is none.
fn open_dispatch(dispatch: &Rule, size: u64, other: u64, none: Option<Violation>) -> Violation {
    let asks = dispatch.when.asks();
    let asked = (!asks.is_empty()).then_some(asks);
    let asked: Vec<String> = asked.into_iter().chain(device_is(&dispatch.arch)).collect();
    let then = match none {
        Some(refused) => refused.message,
        None => format!("hidden is {other}"),
    };
    let message = format!(
        "{} sends the tokens if {}, which no config tells: {then} then, and {size} else",
        dispatch.id,
        asked.join(" and ")
    );
    violation("PP119", (size, 0), message, Effect::Unknown)
}

/// A dispatch without a GEMM.
fn dispatch_alone(dispatch: &Rule, hidden: u64) -> Violation {
    let message = format!(
        "this is the hidden size that the dispatch takes: the GEMM of the chosen backend has units of its own; plan with --dispatch {} for the size that both take, under every rule of {}",
        dispatch.backend, dispatch.stack
    );
    violation("PP119", (hidden, 0), message, Effect::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hidden: u64, stages: &[(u64, &[u64])]) -> (u64, bool) {
        let stages: Vec<Takes<'_>> = stages
            .iter()
            .map(|&(align, listed)| Takes { align, listed })
            .collect();
        least(hidden, &stages).unwrap()
    }

    /// facts/reports.md B32: the larger of both where one unit divides the other.
    #[test]
    fn one_size_serves_dispatch_and_gemm() {
        let list: &[u64] = &[2048, 2560, 3072, 4096];
        assert_eq!(of(2880, &[(128, &[]), (1, list)]), (3072, true));
        assert_eq!(of(2880, &[(1024, &[]), (1, list)]), (3072, true));
        assert_eq!(of(2100, &[(1024, &[]), (1, list)]), (3072, true));
        assert_eq!(of(2304, &[(512, &[]), (256, &[])]), (2560, true));
        // Neither unit divides the other.
        assert_eq!(of(700, &[(256, &[]), (384, &[])]), (768, true));
        assert_eq!(of(2880, &[]), (2880, true));
    }

    #[test]
    fn sizes_that_are_listed_end() {
        let list: &[u64] = &[2048, 2560];
        assert_eq!(of(2880, &[(128, &[]), (1, list)]), (2944, false));
        assert_eq!(of(2100, &[(2048, &[]), (1, list)]), (4096, false));
        assert_eq!(of(2100, &[(1, &[2304, 2560]), (1, list)]), (2560, true));
    }

    /// The next of the list is taken and then rounded up.
    #[test]
    fn a_listed_size_is_rounded_up() {
        assert_eq!(of(1900, &[(512, &[2000])]), (2048, true));
        assert_eq!(of(2040, &[(512, &[2000, 2500])]), (2560, true));
    }
}
