//! Goal: what is said of a rule does not turn on how it was chosen.
//! Method: every shipped rule is asked about by its whole id and by a pattern that matches it alone, of every
//! shipped model and of the real configs where they are.

use super::real::configs;
use padproof::model::{Model, builtin, load};
use padproof::plan::Parallel;
use padproof::rule::{Rule, Rules, Status};
use padproof::run::{Query, survey};
use rayon::prelude::*;
use std::fs;

/// Everything that is said, and whether the exit code says that the rule does not run the model.
fn said(model: &Model, pattern: &str, tp: u64) -> (String, bool) {
    let query = Query {
        rule: Some(pattern),
        ..Query::of(Parallel { tp, ep: 1 })
    };
    let found = match survey(model, Rules::builtin(), &query) {
        Ok(found) => found,
        Err(error) => return (error.to_string().replace(pattern, "RULE"), true),
    };
    let plans = found.plans.iter().map(|one| {
        let plan = &one.plan;
        format!(
            "{} {} {} {} {:?}",
            plan.rule,
            plan.layer,
            plan.weight,
            plan.fit.name(),
            plan.violations
        )
    });
    let plans: Vec<String> = plans.collect();
    let rest = &found.not_judged;
    (format!("{plans:#?} {rest:?}"), found.named_fails)
}

/// `sglang.aiter.mxfp4` refused Kimi-K3's dense layers, which are stored otherwise, and took its experts of
/// another method; `sglang.aiter.mxfp4*` said of both that it is not for them.
#[test]
fn a_rule_is_judged_alike_by_its_whole_id_and_by_a_pattern() {
    let mut models = builtin().to_vec();
    let folders = configs()
        .into_iter()
        .flat_map(|path| fs::read_dir(path).unwrap());
    let files = folders.map(|entry| entry.unwrap().path().display().to_string());
    models.extend(files.filter_map(|file| load(&file).ok()));
    let faults: Vec<String> = models
        .par_iter()
        .flat_map_iter(|model| {
            Rules::builtin()
                .iter()
                .filter_map(|rule| differs(model, rule))
        })
        .collect();
    assert!(faults.is_empty(), "{} faults, {}", faults.len(), faults[0]);
}

fn differs(model: &Model, rule: &Rule) -> Option<String> {
    let (first, rest) = rule.id.split_at(1);
    let (own, pattern) = (
        said(model, &rule.id, 8),
        said(model, &format!("[{first}]{rest}"), 8),
    );
    // What no version does is no reason to fail for those who did not spell it.
    let exit = own.1 == pattern.1 || rule.status != Status::Current;
    let alike = own.0 == pattern.0 && exit;
    (!alike).then(|| format!("{} {}\n{own:#?}\n{pattern:#?}", model.name, rule.id))
}
