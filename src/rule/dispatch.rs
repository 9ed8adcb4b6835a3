//! Says which dispatch sends the tokens of a stack's rules between ranks.
//!
//! It must not work out what both come to: that is `plan`. Layer 2.

use super::record::Rule;
use super::set::{RuleError, Rules};
use crate::terms::did_you_mean;

impl Rule {
    /// This rule where a dispatch of its stack sends the tokens; another stack's, one for other
    /// devices, and a dispatch itself stay as they are.
    pub fn sent_by(mut self, dispatch: &Rule) -> Rule {
        let near = self.stack == dispatch.stack && self.shares_device(dispatch);
        if near && !self.dispatch {
            self.sent = Some(Box::new(dispatch.clone()));
        }
        self
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
            (first, _) => {
                let ids: Vec<&str> = all().map(|rule| rule.id.as_str()).collect();
                let backends: Vec<&str> = all().map(|rule| rule.backend.as_str()).collect();
                let hint = match first {
                    Some(_) => "; several have this name, give the id".to_owned(),
                    None => did_you_mean(given, &[ids.as_slice(), &backends].concat()),
                };
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

    /// These rules where `dispatch` sends the tokens of its stack. What it asks is then part of every
    /// rule of the stack, and it is no rule of its own.
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
    }

    #[test]
    fn it_sends_for_its_own_stack_alone_and_stands_no_more_by_itself() {
        let rules = Rules::builtin().clone();
        let dispatch = rules.dispatch("deepep_ht").unwrap().clone();
        let sent = rules.sent_by(&dispatch);
        assert!(sent.get("vllm.marlin.mxfp4").unwrap().sent.is_some());
        assert!(sent.get("sglang.marlin.mxfp4").unwrap().sent.is_none());
        assert!(sent.iter().all(|rule| !rule.dispatch));
        assert_eq!(sent.sender(), Some("vllm.deepep_ht.any"));
        assert_eq!(Rules::builtin().sender(), None);
    }
}
