//! Says whether the values of a case make sense by themselves and together.
//!
//! It must not judge what follows from a plan, such as a width that a split rule refuses. Layer 2.

use super::types::{Case, PadSpec, Scheme};
use crate::terms::Route;

/// Largest value of any size in a case: 2^40, so that products of three sizes still fit `u128`
/// and no plan of a case that parses needs a special path for absurd single sizes.
pub const SIZE_MAX: u64 = 1 << 40;

/// Largest routed_scaling_factor, in thousandths: a million, far above any model's (2.5 or so).
const FACTOR_MAX: u64 = 1_000_000_000;

/// Longest rule id, so that a case line stays usable as a file name.
const RULE_ID_MAX: usize = 128;

/// Values of a case that do not make sense, alone or together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCase {
    /// A size that must be at least one.
    #[error("{key}=0: must be at least 1")]
    Zero {
        /// The key (`pad=h` for a granule).
        key: &'static str,
    },
    /// A size over [`SIZE_MAX`].
    #[error("{key}={value} exceeds the largest size, 2^40")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
    },
    /// A routed_scaling_factor that no model has.
    #[error("factor={whole} exceeds the largest, 1000000")]
    FactorTooLarge {
        /// Its whole part.
        whole: u64,
    },
    /// More experts chosen than there are.
    #[error("k={k} exceeds e={e}{}", identity(*.zero))]
    TopKExceedsExperts {
        /// Chosen experts.
        k: u64,
        /// Experts.
        e: u64,
        /// Identity experts.
        zero: u64,
    },
    /// Identity experts behind a router of which no stack says what it makes of them.
    #[error(
        "zero={zero} needs a router that weighs outputs and chooses any number of experts without groups, which route={route} does not"
    )]
    IdentityWithoutRouter {
        /// Identity experts.
        zero: u64,
        /// The router.
        route: Route,
    },
    /// Ranks that cannot be cut into equal expert-parallel groups.
    #[error("ep={ep} does not divide tp={tp}")]
    EpDoesNotDivideTp {
        /// Expert-parallel groups.
        ep: u64,
        /// Tensor-parallel ranks.
        tp: u64,
    },
    /// Groups given to a router that has none.
    #[error("{key}={value} needs a grouped router, and route={route} is not one")]
    GroupsWithoutGroupedRouter {
        /// `groups` or `keep`.
        key: &'static str,
        /// Its value.
        value: u64,
        /// The router.
        route: Route,
    },
    /// More groups kept than there are.
    #[error("keep={keep} exceeds groups={groups}")]
    KeepExceedsGroups {
        /// Groups kept.
        keep: u64,
        /// Groups.
        groups: u64,
    },
    /// Groups of unequal size.
    #[error("groups={groups} does not divide e={e}")]
    GroupsDoNotDivideExperts {
        /// Groups.
        groups: u64,
        /// Experts.
        e: u64,
    },
    /// Fewer experts in the kept groups than are chosen; stacks give three different answers
    /// (facts/peers.md F12), so there is none to hold them to.
    #[error("k={k} exceeds the {left} experts of keep={keep} groups (e={e}, groups={groups})")]
    TopKExceedsKeptGroups {
        /// Chosen experts.
        k: u64,
        /// Experts in the kept groups.
        left: u64,
        /// Groups kept.
        keep: u64,
        /// Experts.
        e: u64,
        /// Groups.
        groups: u64,
    },
    /// Llama-4's router multiplies the input of the one expert it chooses, the sparse mixer is defined for two.
    #[error("k={k} with route={route}, whose k must be {wanted}")]
    FixedTopK {
        /// Chosen experts.
        k: u64,
        /// The router.
        route: Route,
        /// How many it chooses.
        wanted: u64,
    },
    /// A rule id that could not be spelled in a case line.
    #[error("rule={id}: a rule id is 1 to 128 of the characters a-z 0-9 . _ + -")]
    RuleId {
        /// The id.
        id: String,
    },
}

impl Case {
    /// Whether the values make sense alone and together; [`std::str::FromStr`] calls it.
    pub fn validate(&self) -> Result<(), InvalidCase> {
        at_most("t", self.t)?;
        at_most("zero", self.zero)?;
        if self.factor > FACTOR_MAX {
            let whole = self.factor / 1000;
            return Err(InvalidCase::FactorTooLarge { whole });
        }
        for (key, value) in [
            ("e", self.e),
            ("k", self.k),
            ("h", self.h),
            ("i", self.i),
            ("tp", self.tp),
            ("ep", self.ep),
            ("groups", self.groups),
            ("keep", self.keep),
        ] {
            size(key, value)?;
        }
        if self.k > self.choices() {
            return Err(InvalidCase::TopKExceedsExperts {
                k: self.k,
                e: self.e,
                zero: self.zero,
            });
        }
        if !self.tp.is_multiple_of(self.ep) {
            return Err(InvalidCase::EpDoesNotDivideTp {
                ep: self.ep,
                tp: self.tp,
            });
        }
        self.validate_router()?;
        match &self.scheme {
            Scheme::Rule(id) => rule_id(id),
            Scheme::Spelled(pad) => granules(pad),
        }
    }

    fn validate_router(&self) -> Result<(), InvalidCase> {
        let Case {
            e,
            k,
            groups,
            keep,
            route,
            zero,
            ..
        } = *self;
        if zero > 0 && !route.takes_identity() {
            return Err(InvalidCase::IdentityWithoutRouter { zero, route });
        }
        if !route.grouped() {
            for (key, value) in [("groups", groups), ("keep", keep)] {
                if value != 1 {
                    return Err(InvalidCase::GroupsWithoutGroupedRouter { key, value, route });
                }
            }
        }
        if keep > groups {
            return Err(InvalidCase::KeepExceedsGroups { keep, groups });
        }
        if !e.is_multiple_of(groups) {
            return Err(InvalidCase::GroupsDoNotDivideExperts { groups, e });
        }
        // No overflow: keep <= groups, so the product is at most e.
        let left = keep * (e / groups);
        if route.grouped() && k > left {
            return Err(InvalidCase::TopKExceedsKeptGroups {
                k,
                left,
                keep,
                e,
                groups,
            });
        }
        match route.chooses() {
            Some(wanted) if k != wanted => Err(InvalidCase::FixedTopK { k, route, wanted }),
            _ => Ok(()),
        }
    }
}

/// ` + zero=Z`, where there are any.
fn identity(zero: u64) -> String {
    match zero {
        0 => String::new(),
        zero => format!(" + zero={zero}"),
    }
}

fn at_most(key: &'static str, value: u64) -> Result<(), InvalidCase> {
    if value > SIZE_MAX {
        return Err(InvalidCase::TooLarge { key, value });
    }
    Ok(())
}

fn size(key: &'static str, value: u64) -> Result<(), InvalidCase> {
    if value == 0 {
        return Err(InvalidCase::Zero { key });
    }
    at_most(key, value)
}

fn granules(pad: &PadSpec) -> Result<(), InvalidCase> {
    size("pad granule h", pad.hidden)?;
    size("pad granule i", pad.intermediate)?;
    size("pad granule t", pad.tokens)
}

fn rule_id(id: &str) -> Result<(), InvalidCase> {
    let spelled = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._+-".contains(c);
    if id.is_empty() || id.len() > RULE_ID_MAX || !id.chars().all(spelled) {
        return Err(InvalidCase::RuleId {
            id: id.chars().take(RULE_ID_MAX).collect(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(line: &str) -> String {
        match line.parse::<Case>() {
            Ok(case) => panic!("{line} parsed to {case:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_senseless_value_is_named_with_its_key() {
        for (line, wanted) in [
            ("e=4,k=5", "k=5 exceeds e=4"),
            ("e=4,k=7,zero=2", "k=7 exceeds e=4 + zero=2"),
            (
                "zero=1099511627777",
                "zero=1099511627777 exceeds the largest size, 2^40",
            ),
            (
                "route=llama4,k=1,zero=2",
                "zero=2 needs a router that weighs outputs and chooses any number of experts without groups, which route=llama4 does not",
            ),
            (
                "route=sparse-mixer,zero=2",
                "zero=2 needs a router that weighs outputs and chooses any number of experts without groups, which route=sparse-mixer does not",
            ),
            (
                "route=grouped-softmax,groups=2,keep=1,zero=2",
                "zero=2 needs a router that weighs outputs and chooses any number of experts without groups, which route=grouped-softmax does not",
            ),
            ("i=0", "i=0: must be at least 1"),
            ("h=0", "h=0: must be at least 1"),
            ("e=0", "e=0: must be at least 1"),
            ("k=0", "k=0: must be at least 1"),
            ("tp=0", "tp=0: must be at least 1"),
            ("ep=0", "ep=0: must be at least 1"),
            ("tp=4,ep=3", "ep=3 does not divide tp=4"),
            (
                "i=1099511627777",
                "i=1099511627777 exceeds the largest size, 2^40",
            ),
            (
                "groups=2",
                "groups=2 needs a grouped router, and route=softmax-renorm is not one",
            ),
            (
                "route=grouped-softmax,groups=2,keep=3",
                "keep=3 exceeds groups=2",
            ),
            (
                "route=grouped-softmax,groups=3,keep=1,k=1",
                "groups=3 does not divide e=4",
            ),
            (
                "route=grouped-softmax,e=2,groups=2,k=2",
                "k=2 exceeds the 1 experts of keep=1 groups (e=2, groups=2)",
            ),
            ("route=llama4", "k=2 with route=llama4, whose k must be 1"),
            (
                "route=sparse-mixer,k=3",
                "k=3 with route=sparse-mixer, whose k must be 2",
            ),
            (
                "route=sparse-mixer,e=1,k=1",
                "k=1 with route=sparse-mixer, whose k must be 2",
            ),
            ("pad=h0", "pad granule h=0: must be at least 1"),
        ] {
            assert_eq!(message(line), wanted, "{line}");
        }
    }

    #[test]
    fn no_tokens_and_all_experts_chosen_are_legal() {
        for line in ["t=0", "e=1,k=1", "e=4,k=4", "i=1099511627776", "tp=4,ep=4"] {
            assert!(line.parse::<Case>().is_ok(), "{line}");
        }
    }

    #[test]
    fn rule_ids_that_cannot_be_spelled_are_refused() {
        for id in ["", "A", "a b", "a,b", &"a".repeat(129)] {
            let case = Case {
                scheme: Scheme::Rule(id.to_owned()),
                ..Case::default()
            };
            assert!(
                matches!(case.validate(), Err(InvalidCase::RuleId { .. })),
                "{id}"
            );
        }
    }
}
