//! `padproof plan`: a model under every rule.
//!
//! It must not decide what fits. Layer 11.

use super::args::{PlanArgs, PlanFormat};
use super::environment::Environment;
use super::error::CliError;
use crate::model;
use crate::plan::Parallel;
use crate::report::{plan_human, plan_json, plan_markdown};
use crate::rule::Rules;
use crate::run::{ExitCode, Query, survey};
use std::io::Write;

/// Tokens that size the activation tensors of a plan.
const TOKENS: u64 = 1;

pub(super) fn plan(
    args: &PlanArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let mine;
    let rules = match &args.rules {
        Some(path) => {
            mine = Rules::builtin().clone().with(Rules::load(path)?);
            &mine
        }
        None => Rules::builtin(),
    };
    let mut model = model::load(&args.model)?;
    if let Some(format) = args.weights {
        let stored = model.quant.format;
        model.quant.format = format;
        model.notes.push(format!(
            "planned as if the routed experts were {format}, not {stored}"
        ));
    }
    let model = model;
    let query = Query {
        parallel: Parallel {
            tp: args.tp,
            ep: args.ep,
        },
        tokens: TOKENS,
        rule: args.rule.as_deref(),
        backend: args.backend.as_deref(),
        layer: args.layer,
        env: &environment.rule_switches,
        advice: true,
    };
    let survey = survey(&model, rules, &query)?;
    match args.format {
        PlanFormat::Human => plan_human(&survey, out)?,
        PlanFormat::Json => plan_json(&survey, out)?,
        PlanFormat::Markdown => plan_markdown(&survey, out)?,
    }
    Ok(if survey.named_fails {
        ExitCode::Failed
    } else {
        ExitCode::Passed
    })
}
