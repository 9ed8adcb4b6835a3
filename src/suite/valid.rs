//! Holds what an entry names against what there is: rules, finding codes, a model's experts.
//!
//! It must not plan. Layer 8.

use super::error::Fault;
use super::plan_entry::ModelSizes;
use crate::case::{Case, Scheme};
use crate::model::builtin;
use crate::rule::Rules;
use crate::terms::CODES;

/// A case of one line, its rule one of `rules`.
pub(super) fn case(name: &str, line: &str, rules: &Rules) -> Result<Case, Fault> {
    let case: Case = line.parse().map_err(|source| Fault::Case {
        name: name.to_owned(),
        source,
    })?;
    if let Scheme::Rule(id) = &case.scheme {
        let known = rules.get(id);
        known.map_err(|error| Fault::Rule {
            name: name.to_owned(),
            message: error.to_string(),
        })?;
    }
    Ok(case)
}

/// No more experts chosen than there are, as far as the entry and a built-in base tell.
pub(super) fn chosen(name: &str, sizes: &ModelSizes) -> Result<(), Fault> {
    let base = sizes.base.as_deref().and_then(|base| {
        let short = base.rsplit('/').next()?;
        let mut all = builtin().iter();
        all.find(|model| model.name.eq_ignore_ascii_case(short))
    });
    let held = sizes.experts.or(base.map(|model| model.experts));
    // Identity experts of the base may be chosen too.
    let experts = held.map(|held| held.saturating_add(base.map_or(0, |model| model.zero_experts)));
    match (sizes.top_k, experts) {
        (Some(top_k), Some(experts)) if top_k > experts => Err(Fault::TopK {
            name: name.to_owned(),
            top_k,
            experts,
        }),
        _ => Ok(()),
    }
}

/// Codes that a plan can have.
pub(super) fn codes(name: &str, key: &'static str, list: Option<&[String]>) -> Result<(), Fault> {
    let mut list = list.unwrap_or_default().iter();
    match list.find(|code| !CODES.contains(&code.as_str())) {
        None => Ok(()),
        Some(code) => Err(Fault::Code {
            name: name.to_owned(),
            key,
            code: code.clone(),
        }),
    }
}
