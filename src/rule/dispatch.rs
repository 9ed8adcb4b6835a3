//! Says which dispatch sends the tokens of a stack's rules between ranks.
//!
//! It must not work out what both come to: that is `plan`. Layer 2.

use super::record::Rule;
use super::set::{RuleError, Rules};
use crate::terms::did_you_mean;

impl Rule {
    /// This rule where a dispatch sends the tokens. A dispatch itself stays as it is, and so does a rule of
    /// a kernel library, which sends nothing.
    pub fn sent_by(mut self, dispatch: &Rule) -> Rule {
        if !self.dispatch && !self.kernel {
            self.sent = Some(Box::new(dispatch.clone()));
        }
        self
    }

    /// Whether a dispatch was read for this rule's stack, on a device of its; one whose devices were not read is
    /// taken for one between GPUs.
    pub fn knows(&self, dispatch: &Rule) -> bool {
        let device = !(dispatch.arch.is_empty() && self.arch == ["cpu"]);
        self.stack == dispatch.stack && self.shares_device(dispatch) && device
    }
}

impl Rules {
    /// The dispatch of this id, or of this backend where one stack has it.
    ///
    /// # Errors
    /// No such dispatch, or several of that name.
    pub fn dispatch(&self, given: &str) -> Result<&Rule, RuleError> {
        let all = || self.iter().filter(|rule| rule.dispatch);
        let named = |rule: &&Rule| rule.id == given || rule.backend == given;
        let mut found = all().filter(named);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (Some(one), Some(other)) => Err(RuleError::Dispatches {
                given: given.to_owned(),
                one: one.id.clone(),
                other: other.id.clone(),
            }),
            (None, _) => {
                let ids: Vec<&str> = all().map(|rule| rule.id.as_str()).collect();
                let backends: Vec<&str> = all().map(|rule| rule.backend.as_str()).collect();
                let hint = did_you_mean(given, &[ids.as_slice(), &backends].concat());
                Err(RuleError::Dispatch {
                    given: given.to_owned(),
                    hint,
                    known: ids.join(", "),
                })
            }
        }
    }

    /// The dispatch that sends the tokens of a stack's rules.
    pub fn sender(&self) -> Option<&str> {
        let mut all = self.iter().filter_map(|rule| rule.sent.as_ref());
        all.next().map(|dispatch| dispatch.id.as_str())
    }

    /// These rules where `dispatch` sends the tokens. What it asks is then part of every rule of its stack,
    /// and open under every other's; it is no rule of its own.
    pub fn sent_by(self, dispatch: &Rule) -> Rules {
        self.map(|rule| (!rule.dispatch).then(|| rule.sent_by(dispatch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_is_named_by_its_backend_or_its_id() {
        let rules = Rules::builtin();
        let id = |given| rules.dispatch(given).map(|rule| rule.id.as_str()).unwrap();
        assert_eq!(id("deepep_ll"), "vllm.deepep_ll.any");
        assert_eq!(id("vllm.nixl.any"), "vllm.nixl.any");
        let unknown = rules.dispatch("deepep_l").unwrap_err().to_string();
        assert!(unknown.contains("did you mean `deepep_ll`"), "{unknown}");
        // A GEMM's backend sends nothing.
        assert!(rules.dispatch("marlin").is_err());
        // Of a file of the user's: two of one backend were said to be none.
        let again = rules.iter().filter(|rule| rule.dispatch).cloned();
        let more: Vec<Rule> = again
            .map(|rule| Rule {
                id: format!("mine.{}.any", rule.backend),
                ..rule
            })
            .collect();
        let both = rules.clone().with(Rules::of(more, "mine.toml").unwrap());
        let several = both.dispatch("deepep_ll").unwrap_err().to_string();
        let wanted = "several dispatches are `deepep_ll`: give an id, `vllm.deepep_ll.any` or `mine.deepep_ll.any`";
        assert_eq!(several, wanted);
    }

    /// Nothing of it would reach the plans that it is part of.
    #[test]
    fn it_says_nothing_beside_its_hidden_size() {
        let of = |change: &dyn Fn(&mut Rule)| {
            let mut rule = Rules::builtin().get("vllm.deepep_ht.any").unwrap().clone();
            change(&mut rule);
            Rules::of(vec![rule], "test")
                .map(|_| ())
                .map_err(|e| e.to_string())
        };
        assert_eq!(of(&|_| {}), Ok(()));
        let wrong = of(&|rule| rule.wrong = Some("bad".to_owned())).unwrap_err();
        assert!(wrong.contains("stands beside wrong"), "{wrong}");
        let methods = of(&|rule| rule.methods = vec!["gptq".to_owned()]).unwrap_err();
        assert!(methods.contains("stands beside methods"), "{methods}");
    }

    #[test]
    fn it_is_known_to_its_own_stack_alone_and_stands_no_more_by_itself() {
        let rules = Rules::builtin().clone();
        let dispatch = rules.dispatch("deepep_ht").unwrap().clone();
        let sent = rules.sent_by(&dispatch);
        let knows = |id| {
            let rule = sent.get(id).unwrap();
            let with = rule.sent.as_deref();
            with.map(|with| rule.knows(with))
        };
        assert_eq!(knows("vllm.marlin.mxfp4"), Some(true));
        assert_eq!(knows("sglang.marlin.mxfp4"), Some(false));
        assert_eq!(knows("flashinfer.cutlass.mxfp4"), None);
        assert!(sent.iter().all(|rule| !rule.dispatch));
        // Whatever else was read of its devices, it was none of CPUs.
        assert_eq!(knows("vllm.cpu.mxfp4"), Some(false));
        assert_eq!(sent.sender(), Some("vllm.deepep_ht.any"));
        assert_eq!(Rules::builtin().sender(), None);
    }
}
