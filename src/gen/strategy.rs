//! Offers cases to proptest, shrinking the way `shrink` does.
//!
//! It must not draw by itself: proptest's generator only chooses the seed. Layer 8.

use super::{Domain, draw, shrink};
use crate::case::Case;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Cases of a domain.
#[derive(Debug, Clone, Copy)]
pub struct CaseStrategy {
    domain: Domain,
}

/// Cases of `domain`, for `proptest!`.
pub fn strategy(domain: Domain) -> CaseStrategy {
    CaseStrategy { domain }
}

impl Strategy for CaseStrategy {
    type Tree = CaseTree;
    type Value = Case;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let seed = proptest::num::u64::ANY.new_tree(runner)?.current();
        Ok(CaseTree::new(draw(&self.domain, seed, 0)))
    }
}

/// A case and the walk towards simpler ones.
#[derive(Debug, Clone)]
pub struct CaseTree {
    /// The simplest case known to fail.
    failing: Case,
    /// What is on offer now.
    current: Case,
    /// Simpler cases than `failing`, and how many of them were offered; made when first asked.
    candidates: Option<std::vec::IntoIter<Case>>,
}

impl CaseTree {
    fn new(case: Case) -> CaseTree {
        CaseTree {
            failing: case.clone(),
            current: case,
            candidates: None,
        }
    }

    fn offer_next(&mut self) -> bool {
        let next = self.candidates.as_mut().and_then(Iterator::next);
        let more = next.is_some();
        self.current = next.unwrap_or_else(|| self.failing.clone());
        more
    }
}

impl ValueTree for CaseTree {
    type Value = Case;

    fn current(&self) -> Case {
        self.current.clone()
    }

    /// The case on offer failed: walk on from it.
    fn simplify(&mut self) -> bool {
        if self.candidates.is_none() || self.current != self.failing {
            self.failing = self.current.clone();
            self.candidates = Some(shrink(&self.failing).into_iter());
        }
        self.offer_next()
    }

    /// The case on offer passed: try the failing one's next candidate.
    fn complicate(&mut self) -> bool {
        self.offer_next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::test_runner::{Config, TestCaseError, TestError};

    #[test]
    fn proptest_finds_the_smallest_failing_case() {
        let config = Config {
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new(config);
        let answer = runner.run(&strategy(Domain::FULL), |case| {
            if case.h > 40 {
                Err(TestCaseError::fail("wide"))
            } else {
                Ok(())
            }
        });
        match answer {
            Err(TestError::Fail(_, case)) => {
                assert_eq!(case.to_string(), "t=0,e=1,k=1,h=41,i=1");
            }
            other => panic!("{other:?}"),
        }
    }
}
