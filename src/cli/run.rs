//! `padproof run` and `padproof replay`: arguments into settings, the outcome into an exit code.
//!
//! It must not run cases itself. Layer 11.

use super::args::{
    Choice, Color, Conduct, Draws, NoCases, Profile, ReplayArgs, RunArgs, RunFormat, Tier,
};
use super::environment::Environment as Surroundings;
use super::error::CliError;
use super::export::{Export, exports, standard};
use super::output::{complain, note};
use super::progress::{Meter, Steps};
use super::select::{Selected, properties, rules, rules_arguments};
use super::subject::{chosen as chosen_subject, interrupt, unless_interrupted};
use super::values::{Count, Seed};
use crate::r#gen::Domain;
use crate::property::{Needs, Property};
use crate::report::{matrix_human, matrix_json};
use crate::rule::Rules;
use crate::run::{
    Budget, Environment, ExitCode, Filter, Job, Outcome, Reporter, Settings, execute, jobs, matrix,
    matrix_cases, runs_any,
};
use crate::subject::Running;
use crate::suite::Expect;
use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use std::io::Write;

/// Seed of a run that names none: the same every time, so that a green run can be repeated.
const SEED: u64 = 0x9f3c_21aa;
/// Random cases of the smoke and ci tiers (style.md A.12).
const SMOKE_CASES: u64 = 64;
/// Random cases of the nightly tier (style.md A.12).
const NIGHTLY_CASES: u64 = 100_000;
/// Failures after which a run ends (style.md C.2).
const MAX_FAIL: u64 = 10;
/// Seed of the cases that mutants are planted on.
const MUTANT_SEED: u64 = 0x5eed;

/// Runs suites, cases and draws.
pub(super) fn run(
    args: &RunArgs,
    color: Color,
    surroundings: &Surroundings,
) -> Result<ExitCode, CliError> {
    let own = rules(args.choice.own.rules.as_deref())?;
    let mut selected = Selected::under(&own);
    for word in &args.what {
        selected.add(word)?;
    }
    let tier = args.draws.tier.unwrap_or(Tier::Smoke);
    if args.what.is_empty() {
        selected.add("smoke")?;
    }
    let budget = budget(&args.draws, &args.choice, args.what.is_empty())?;
    go(
        selected,
        budget,
        tier,
        &args.choice,
        &args.conduct,
        color,
        surroundings,
    )
}

/// Runs the case lines of files.
pub(super) fn replay(
    args: &ReplayArgs,
    color: Color,
    surroundings: &Surroundings,
) -> Result<ExitCode, CliError> {
    let own = rules(args.choice.own.rules.as_deref())?;
    let mut selected = Selected::under(&own);
    for path in &args.paths {
        selected.add_file(path)?;
    }
    let budget = Budget {
        domain: &Domain::FULL,
        seed: SEED,
        start: 0,
        cases: Some(0),
        time: None,
        properties: Vec::new(),
        filter: Filter::default(),
    };
    go(
        selected,
        budget,
        Tier::Smoke,
        &args.choice,
        &args.conduct,
        color,
        surroundings,
    )
}

/// The random cases: those asked for; else those of the tier, where nothing else was named.
fn budget(draws: &Draws, choice: &Choice, alone: bool) -> Result<Budget, CliError> {
    let standard = match (draws.tier, alone) {
        (Some(Tier::Nightly), _) => NIGHTLY_CASES,
        (Some(Tier::Smoke | Tier::Ci), _) | (None, true) => SMOKE_CASES,
        (None, false) => 0,
    };
    let cases = match (draws.cases, draws.time) {
        (Some(Count(cases)), _) => cases,
        (None, Some(_)) => None,
        (None, None) => Some(standard),
    };
    let domain = match draws.profile {
        Profile::Full => &Domain::FULL,
        Profile::Small => &Domain::SMALL,
        Profile::Uniform => &Domain::UNIFORM,
    };
    Ok(Budget {
        domain,
        seed: draws.seed.map_or(SEED, |Seed(seed)| seed),
        start: draws.start,
        cases,
        time: draws.time,
        properties: properties(choice)?,
        filter: Filter::parse(choice.filter.as_deref().unwrap_or_default()),
    })
}

fn go(
    selected: Selected<'_>,
    mut budget: Budget,
    tier: Tier,
    choice: &Choice,
    conduct: &Conduct,
    color: Color,
    surroundings: &Surroundings,
) -> Result<ExitCode, CliError> {
    let mut chosen = properties(choice)?;
    let running = Running::default();
    let interrupts = interrupt(&running)?;
    let subject = chosen_subject(&choice.subject, &running)?;
    if choice.property.is_none() {
        let asked = |p: &&Property| match p.needs {
            Needs::Sizes => subject.tells_sizes(),
            Needs::Subject => subject.runs(),
            Needs::Plan | Needs::Bytes | Needs::Paths => true,
        };
        chosen.retain(asked);
        budget.properties.retain(asked);
    }
    let filter = Filter::parse(choice.filter.as_deref().unwrap_or_default());
    // Plan entries are no property: a list that chooses properties leaves them out.
    let plans = choice.property.is_none();
    let mut all = jobs(&selected.suites, &chosen, plans, &filter).map_err(CliError::Usage)?;
    let lines = selected
        .cases
        .into_iter()
        .filter(|case| filter.matches(&format!("{case:#}"), None));
    all.extend(lines.map(|case| Job::Case {
        case,
        properties: chosen.clone(),
        expect: Expect::Pass,
        origin: None,
    }));
    let settings = Settings {
        environment: Environment {
            version: env!("CARGO_PKG_VERSION"),
            tier: tier_name(tier).to_owned(),
            seed: format!("{:x}", budget.seed),
            cases: budget.cases,
            device: subject.title(),
        },
        suites: &selected.suites,
        judge_coverage: filter.is_empty() && !selected.partial,
        jobs: all,
        budget,
        max_fail: match (conduct.max_fail, tier) {
            (Some(Count(most)), _) => most,
            (None, Tier::Smoke) => Some(MAX_FAIL),
            (None, Tier::Ci | Tier::Nightly) => None,
        },
        shrink: !conduct.no_shrink,
        subject,
        rules: selected.rules,
        arguments: rules_arguments(choice.own.rules.as_deref()),
        threads: threads(conduct.jobs),
        canonical: conduct.canonical,
        stop: &interrupts.stop,
    };
    if conduct.verbose > 0 {
        explain(&settings);
    }
    interrupts.begin()?;
    let outcome = report(&settings, conduct, color, surroundings.ci)?;
    let nothing = match choice.no_cases {
        NoCases::Fail => ExitCode::NothingRan,
        NoCases::Warn | NoCases::Pass => ExitCode::Passed,
    };
    if outcome.counts.ran() == 0 && choice.no_cases != NoCases::Pass {
        complain("warning", "nothing ran");
    }
    Ok(ExitCode::of(&outcome, nothing))
}

/// Runs with every reporter that was asked for, and puts whole files in their places.
fn report(
    settings: &Settings<'_>,
    conduct: &Conduct,
    color: Color,
    keep: bool,
) -> Result<Outcome, CliError> {
    let exports = exports(&conduct.export)?;
    let mut standard = standard(conduct, color, keep);
    let outcome = {
        let mut meter = Meter::new(conduct.progress.how);
        let mut files = (exports.iter())
            .map(|export| export.reporter(keep))
            .collect::<Result<Vec<_>, _>>()?;
        let mut reporters: Vec<&mut dyn Reporter> = vec![&mut meter];
        reporters.extend(
            files
                .iter_mut()
                .map(|file| &mut **file as &mut dyn Reporter),
        );
        reporters.push(&mut standard);
        // An export's error says whose it is.
        execute(settings, &mut reporters)
            .map_err(|error| error.downcast().unwrap_or_else(CliError::Output))?
    };
    // One that fails keeps none of the others from its place.
    let placed: Vec<_> = exports.into_iter().map(Export::persist).collect();
    placed.into_iter().collect::<Result<(), _>>()?;
    standard.ended()?;
    Ok(outcome)
}

fn threads(asked: Option<i64>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match asked {
        None | Some(0) => cores,
        Some(n) if n > 0 => usize::try_from(n).unwrap_or(cores),
        Some(n) => {
            let free = usize::try_from(n.unsigned_abs()).unwrap_or(cores);
            cores.saturating_sub(free).max(1)
        }
    }
}

const fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Smoke => "smoke",
        Tier::Ci => "ci",
        Tier::Nightly => "nightly",
    }
}

/// The effective settings, for `-v`.
fn explain(settings: &Settings<'_>) {
    let number = |n: Option<u64>, none: &str| n.map_or(none.to_owned(), |n| n.to_string());
    let names: Vec<&str> = settings.budget.properties.iter().map(|p| p.name).collect();
    note(&format!("properties  {}", names.join(",")));
    note(&format!(
        "random      {} cases of {} from {}, seed {:x}",
        number(settings.budget.cases, "max"),
        settings.budget.domain.name,
        settings.budget.start,
        settings.budget.seed
    ));
    note(&format!(
        "conduct     {} threads, max-fail {}, shrink {}",
        settings.threads,
        number(settings.max_fail, "all"),
        settings.shrink
    ));
}

/// Refuses what `run --mutants` would ignore, if it was typed: variables may be set for other runs.
pub(super) fn idle_beside_mutants(matches: &ArgMatches) -> Result<(), clap::Error> {
    const IDLE: [&str; 16] = [
        "property",
        "rules",
        "filter",
        "no_cases",
        "tier",
        "cases",
        "time",
        "start",
        "profile",
        "max_fail",
        "no_shrink",
        "jobs",
        "export",
        "quiet",
        "verbose",
        "canonical",
    ];
    let Some(("run", run)) = matches.subcommand() else {
        return Ok(());
    };
    let typed = |id: &&str| run.value_source(id) == Some(ValueSource::CommandLine);
    match IDLE.iter().find(|id| run.get_flag("mutants") && typed(id)) {
        None => Ok(()),
        Some(id) => Err(clap::Error::raw(
            ErrorKind::ArgumentConflict,
            format!(
                "--{} does nothing beside --mutants, which takes cases, --subject, --seed and --format",
                id.replace('_', "-")
            ),
        )),
    }
}

/// Plants every mutant: on the cases named, else on those that the tests use.
pub(super) fn mutants(args: &RunArgs, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let write = match args.conduct.format {
        RunFormat::Human => matrix_human,
        RunFormat::Json => matrix_json,
        RunFormat::Concise | RunFormat::Jsonl | RunFormat::Junit => {
            return Err(CliError::Usage(
                "--mutants writes the formats human and json only".to_owned(),
            ));
        }
    };
    let seed = args.draws.seed.map_or(MUTANT_SEED, |Seed(seed)| seed);
    let mut selected = Selected::under(Rules::builtin());
    for word in &args.what {
        selected.add(word)?;
    }
    let mut cases = selected.cases;
    for suite in selected.suites {
        cases.extend(suite.cases.into_iter().map(|entry| entry.case));
    }
    if args.what.is_empty() {
        cases = matrix_cases(seed);
    }
    let running = Running::default();
    let interrupts = interrupt(&running)?;
    let subject = chosen_subject(&args.choice.subject, &running)?;
    if let Err(why) = runs_any(&cases, &subject) {
        unless_interrupted(&running)?;
        let name = subject.name();
        complain(
            "nothing ran",
            &format!("subject {name} runs none of the cases: {why}"),
        );
        return Ok(ExitCode::NothingRan);
    }
    let steps = Steps::new(
        args.conduct.progress.how,
        crate::mutant::ALL.len(),
        "mutant",
    );
    interrupts.begin()?;
    let matrix = matrix(&cases, &subject, &interrupts.stop, |name| steps.done(name));
    steps.end();
    write(&matrix, out)?;
    Ok(if matrix.left_out > 0 {
        ExitCode::Interrupted
    } else if matrix.holds() {
        ExitCode::Passed
    } else {
        ExitCode::Failed
    })
}
