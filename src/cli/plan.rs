//! `padproof plan`: a model under every rule, or a matrix of models, rules and numbers of ranks.
//!
//! It must not decide what fits. Layer 11.

use super::args::{PlanArgs, PlanFormat};
use super::environment::{Environment, rule_switches};
use super::error::CliError;
use super::select;
use crate::model::{self, Model};
use crate::plan::{Fit, Parallel};
use crate::report::{
    plan_human, plan_json, plan_markdown, plan_tensors, table_csv, table_human, table_json,
    table_markdown,
};
use crate::rule::{Rules, Status};
use crate::run::{ExitCode, Query, RANKS, Survey, Table, survey_replicas};
use std::io::Write;

/// Tokens that size the activation tensors of a plan.
const TOKENS: u64 = 1;

pub(super) fn plan(
    args: &PlanArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let loaded = select::rules(args.rules.as_deref())?;
    let sent = args.dispatch.as_deref().map(|given| loaded.dispatch(given));
    let sent = sent
        .transpose()?
        .map(|dispatch| loaded.clone().into_owned().sent_by(dispatch));
    let rules: &Rules = sent.as_ref().unwrap_or(&loaded);
    if sent.is_some() {
        no_other_dispatch(args, &loaded)?;
    }
    let models = models(args, environment)?;
    let switches = rule_switches(rules);
    let query = Query {
        parallel: Parallel { tp: 1, ep: args.ep },
        tokens: TOKENS,
        rule: args.rule.as_deref(),
        backend: args.backend.as_deref(),
        layer: args.layer,
        env: &switches,
        all: args.rule.is_some(),
        arch: args.arch.as_deref(),
        versions: &args.stack_version,
        advice: false,
    };
    let mut ranks = args.tp.clone();
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.is_empty() {
        ranks = if args.all { RANKS.to_vec() } else { vec![1] };
    }
    if args.all {
        let table = Table::all(&models, rules, &query, &ranks)?;
        write(&table, args.format, environment, out)?;
        return Ok(ExitCode::Passed);
    }
    if args.tensors && (ranks.len() > 1 || args.format != PlanFormat::Human) {
        return Err(CliError::Usage(
            "--tensors shows one --tp to people; --format json holds the tensors of every plan anyway".to_owned(),
        ));
    }
    let one = |(model, tp): (&Model, u64)| {
        let parallel = Parallel { tp, ep: args.ep };
        let advice = ranks.len() == 1 && !args.tensors;
        survey_replicas(
            model,
            rules,
            &Query {
                parallel,
                advice,
                ..query
            },
            args.dp,
        )
    };
    // Layers of different sizes are models by themselves.
    let asked = (models.iter()).flat_map(|model| ranks.iter().map(move |tp| (model, *tp)));
    let surveys = asked.map(one).collect::<Result<Vec<Survey>, _>>()?;
    // Every rank is known before anything is written.
    let shown = |survey: &Survey| args.tensors.then(|| rank(args, survey)).transpose();
    let shown = surveys.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    match (surveys.as_slice(), args.format) {
        (surveys, PlanFormat::Human) if ranks.len() == 1 => {
            for (n, (survey, rank)) in surveys.iter().zip(shown).enumerate() {
                if n > 0 {
                    writeln!(out)?;
                }
                plan_human(survey, environment.columns, out)?;
                if let Some(rank) = rank {
                    plan_tensors(survey, rank, environment.columns, out)?;
                }
            }
        }
        ([survey], PlanFormat::Json) => plan_json(survey, out)?,
        ([survey], PlanFormat::Markdown) => plan_markdown(survey, out)?,
        (several, format) => write(&Table::of(several), format, environment, out)?,
    }
    let fails =
        |survey: &Survey| survey.named_fails || args.backend.is_some() && current_fails(survey);
    Ok(if surveys.iter().any(fails) {
        ExitCode::Failed
    } else {
        ExitCode::Passed
    })
}

/// Refuses rules that are dispatches themselves, where `--dispatch` says what sends the tokens.
fn no_other_dispatch(args: &PlanArgs, loaded: &Rules) -> Result<(), CliError> {
    let of_rule = args.rule.as_deref().map(|pattern| loaded.matching(pattern));
    let of_rule = of_rule.and_then(Result::ok).unwrap_or_default();
    let backend = args.backend.as_deref();
    let of_backend = loaded
        .iter()
        .filter(|rule| backend == Some(rule.backend.as_str()));
    let named = [
        ("--rule", &args.rule, of_rule),
        ("--backend", &args.backend, of_backend.collect()),
    ];
    for (flag, given, rules) in named {
        if let (Some(given), Some(first), true) =
            (given, rules.first(), rules.iter().all(|r| r.dispatch))
        {
            return Err(CliError::Usage(format!(
                "{flag} {given} names a dispatch alone ({}), and --dispatch names the one that sends the tokens: {flag} chooses what multiplies them",
                first.id
            )));
        }
    }
    Ok(())
}

/// Whether a current rule does not run the model.
fn current_fails(survey: &Survey) -> bool {
    let fails = |fit| matches!(fit, Fit::Refused | Fit::Unrepresentable | Fit::Wrong);
    let mut plans = survey.plans.iter();
    plans.any(|one| one.status == Status::Current && fails(one.plan.fit))
}

/// The rank to be shown, which every plan has.
fn rank(args: &PlanArgs, survey: &Survey) -> Result<usize, CliError> {
    let rank = args.rank.unwrap_or(0);
    let ranks = survey.plans.iter().map(|one| one.plan.ranks.len()).min();
    match ranks.filter(|ranks| rank >= *ranks) {
        None => Ok(rank),
        Some(ranks) => Err(CliError::Usage(format!(
            "--rank {rank}: the plans have {ranks} ranks, from 0 on"
        ))),
    }
}

/// The model that is named, else every built-in one; in another format where that is asked for.
fn models(args: &PlanArgs, environment: &Environment) -> Result<Vec<Model>, CliError> {
    let mut models = match &args.model {
        Some(given) => select::models(given, environment)?,
        None => model::builtin().to_vec(),
    };
    if let Some(format) = args.weights {
        for model in &mut models {
            let stored = model.quant.format;
            model.quant.format = format;
            model.quant.method = "none".to_owned();
            // Of all of them, whatever layers were stored in.
            model.quant.others.clear();
            model.quant.zero_points = None;
            model.quant.act_order = false;
            model.notes.push(format!(
                "planned as if the routed experts were {format}, not {stored}"
            ));
        }
    }
    Ok(models)
}

fn write(
    table: &Table,
    format: PlanFormat,
    environment: &Environment,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    match format {
        PlanFormat::Human => table_human(table, environment.columns, out),
        PlanFormat::Json => table_json(table, out),
        PlanFormat::Markdown => table_markdown(table, out),
        PlanFormat::Csv => table_csv(table, out),
    }
}
