//! Defines the arguments; what they mean is said once, in their help.
//!
//! It must not act on them. Layer 11.

use super::pad_args::{AuditArgs, PadArgs, VerifyArgs};
use super::progress::ProgressArgs;
use crate::run::StackVersion;
use crate::terms::{LayerKind, WeightFormat};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Proves that padding a Mixture-of-Experts layer keeps its outputs.
#[derive(Debug, Parser)]
#[command(
    name = "padproof",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
    /// When to colour.
    #[arg(long, global = true, value_name = "WHEN", display_order = 900)]
    pub(super) color: Option<Color>,
}

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Says before launch what every rule makes of a model: verdicts, sizes, cost, advice
    Plan(PlanArgs),
    /// Accounts for every byte of padded parameters after loading, and names the fault
    Audit(AuditArgs),
    /// Writes a padded checkpoint that stacks without padding code can load, with a certificate
    Pad(PadArgs),
    /// Checks a padded checkpoint from its files alone
    Verify(VerifyArgs),
    /// Says what changed between two saved tables of plans
    Diff(DiffArgs),
    /// Runs suites, cases and random draws; alone, the smoke suite and 64 random cases
    Run(Box<RunArgs>),
    /// Makes one check: what a failure prints as its reproducer
    Check(CheckArgs),
    /// Finds the order in which a subject adds, and whether padding keeps it
    Reveal(super::reveal::RevealArgs),
    /// Lists what there is
    #[command(arg_required_else_help = true)]
    List(ListArgs),
    /// Explains a finding's code, a word of a report or case line, a fault or a citation; alone, says what there is
    Explain(ExplainArgs),
    /// Shows a case's plan, a rule, or a model's facts
    Show(ShowArgs),
    /// Finds a smaller case that still fails: exit 0 with it, 1 if the case does not fail
    Shrink(CheckArgs),
    /// Runs the case lines of files
    Replay(ReplayArgs),
    /// Says what this program can use here: subjects, threads, environment
    Doctor,
}

/// What ends `plan` with which code.
const PLAN_EXIT: &str = "Exit codes: 0 planned; 1 a plan that --rule or --backend chose is refused, \
unrepresentable or wrong (of historical and proposed rules only one named by its whole id counts; unknown, slow \
and padded do not), or they chose nothing that is for this model; 2 could not plan. Without --rule and --backend, and with --all, it is never 1.";

#[derive(Debug, Args)]
#[command(after_help = PLAN_EXIT)]
pub(super) struct PlanArgs {
    /// A config.json, a directory that holds one, or a built-in model's name
    #[arg(value_name = "CONFIG_OR_NAME", required_unless_present = "all")]
    pub(super) model: Option<String>,
    /// Every rule, and every built-in model if none is named, at TP 1, 2, 4, 8 and 16: a matrix
    #[arg(long)]
    pub(super) all: bool,
    /// Tensor-parallel ranks in all, 1 if left out; several make a matrix: 2,4,8
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) tp: Vec<u64>,
    /// Expert-parallel groups; divides TP, or TP x DP where replicas share the experts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(super) ep: u64,
    /// Data-parallel replicas; what they do to the experts differs by stack
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true, conflicts_with = "all")]
    pub(super) dp: u64,
    /// Only rules whose id matches; a glob
    #[arg(long, value_name = "PATTERN")]
    pub(super) rule: Option<String>,
    /// Only rules of this backend
    #[arg(long, value_name = "NAME")]
    pub(super) backend: Option<String>,
    /// What sends the tokens of spread experts (deepep_ll …): one hidden size for it and the GEMM
    #[arg(long, value_name = "NAME")]
    pub(super) dispatch: Option<String>,
    /// Only rules of this architecture, as on it: sm90, gfx950, cpu …, or of a family: cuda, rocm
    #[arg(long, value_name = "NAME")]
    pub(super) arch: Option<String>,
    /// Plan for this version of a stack, not the newest that was read; repeatable
    #[arg(long, value_name = "STACK=VERSION", value_parser = super::values::stack_version)]
    pub(super) stack_version: Vec<StackVersion>,
    /// A rule file to load beside the shipped ones (see docs/rule-file.md)
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
    /// Plan as if the routed experts were stored in this format (see `padproof list formats`)
    #[arg(long, value_name = "FORMAT")]
    pub(super) weights: Option<WeightFormat>,
    /// Only this part of the model: routed, shared, dense or draft
    #[arg(long, value_name = "PART")]
    pub(super) layer: Option<LayerKind>,
    /// Show what a loader makes of each plan: tensors, bytes, where halves and pads lie
    #[arg(long, conflicts_with = "all")]
    pub(super) tensors: bool,
    /// The rank whose tensors are shown, 0 if left out
    #[arg(
        long,
        value_name = "K",
        requires = "tensors",
        allow_negative_numbers = true
    )]
    pub(super) rank: Option<usize>,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(super) format: PlanFormat,
}

/// Formats of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
    /// For issues.
    Markdown,
    /// For spreadsheets: one row a plan.
    Csv,
}

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The older table: what `plan --format json` wrote, with or without --all
    #[arg(value_name = "BEFORE")]
    pub(super) before: PathBuf,
    /// The newer table
    #[arg(value_name = "AFTER")]
    pub(super) after: PathBuf,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(super) format: DiffFormat,
}

/// Formats of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DiffFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
    /// For pull requests.
    Markdown,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// What to list
    #[arg(value_name = "WHAT")]
    pub(super) what: Listed,
    /// For cases: the suite, smoke if left out
    #[arg(value_name = "SUITE")]
    pub(super) suite: Option<String>,
    /// For rules: a rule file to load beside the shipped ones (see docs/rule-file.md)
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Listed {
    /// Built-in models.
    Models,
    /// Padding rules.
    Rules,
    /// Properties.
    Properties,
    /// Subjects.
    Subjects,
    /// Weight formats.
    Formats,
    /// Shipped suites.
    Suites,
    /// Cases and plans of a suite.
    Cases,
    /// Planted faults.
    Mutants,
    /// Lemmas on shapes and codes, with the functions they are about.
    Proofs,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// A finding's code (PP103), a word of a verdict, an audit or a case line, a fault (halves-swapped, M4)
    /// or a citation (S17, facts/reports.md B93); what there is if left out
    #[arg(value_name = "WORD")]
    pub(super) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// A case line (see docs/case-line.md), a rule's id, or a model
    #[arg(value_name = "CASE|RULE|MODEL")]
    pub(super) what: String,
    /// A rule file to load beside the shipped ones (see docs/rule-file.md)
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// A property of `padproof list properties`
    #[arg(value_name = "PROPERTY")]
    pub(super) property: String,
    /// A case line (see docs/case-line.md)
    #[arg(value_name = "CASE")]
    pub(super) case: String,
    #[command(flatten)]
    pub(super) subject: SubjectArgs,
    #[command(flatten)]
    pub(super) own: OwnRules,
}

/// Rules of the user's.
#[derive(Debug, Args)]
pub(super) struct OwnRules {
    /// A rule file to load beside the shipped ones (see docs/rule-file.md)
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
}

/// Which subject is asked.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is asked")]
pub(super) struct SubjectArgs {
    /// The subject: one of `list subjects`, `cpu` if left out, `cpu:ORDER` for the same in another
    /// order of summation (see docs/orders.md), or the command of a program of yours, with a space or
    /// a slash in it (see docs/subject-protocol.md)
    #[arg(
        short,
        long,
        value_name = "NAME|COMMAND",
        env = "PADPROOF_SUBJECT",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub(super) subject: Option<String>,
    /// How long a reply of that program may take, 10s if left out
    #[arg(long, value_name = "DUR", env = "PADPROOF_TIMEOUT", hide_env_values = true, value_parser = super::values::limit)]
    pub(super) timeout: Option<std::time::Duration>,
    /// How long that program may take to start, imports and compilation included; 60s if left out
    #[arg(long, value_name = "DUR", env = "PADPROOF_START_TIMEOUT", hide_env_values = true, value_parser = super::values::limit)]
    pub(super) start_timeout: Option<std::time::Duration>,
    /// Find that program's order of summation wherever equal bits could be asked for, and look for
    /// them where padding keeps it (see docs/orders.md): slow
    #[arg(long, env = "PADPROOF_REVEAL", hide_env_values = true)]
    pub(super) reveal: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Files of case lines; `#` begins a comment
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) choice: Choice,
    #[command(flatten)]
    pub(super) conduct: Conduct,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// A shipped suite or one of its entries, a suite file (see docs/suite-file.md) or FILE::ENTRY,
    /// a file of case lines, or a case line (see docs/case-line.md)
    #[arg(value_name = "SUITE|CASE")]
    pub(super) what: Vec<String>,
    /// Plant every mutant instead, and print which property catches it; takes cases, --seed and
    /// --format
    #[arg(long)]
    pub(super) mutants: bool,
    #[command(flatten)]
    pub(super) draws: Draws,
    #[command(flatten)]
    pub(super) choice: Choice,
    #[command(flatten)]
    pub(super) conduct: Conduct,
}

/// Which random cases are drawn.
#[derive(Debug, Args)]
#[command(next_help_heading = "Random cases")]
pub(super) struct Draws {
    /// A named budget: smoke, ci or nightly
    #[arg(
        long,
        value_name = "TIER",
        env = "PADPROOF_TIER",
        hide_env_values = true
    )]
    pub(super) tier: Option<Tier>,
    /// Random cases per property, or `max`
    #[arg(short = 'n', long, value_name = "N", env = "PADPROOF_CASES", hide_env_values = true, value_parser = super::values::cases)]
    pub(super) cases: Option<super::values::Count>,
    /// Draw no case after this time: 30s, 10m, 1h
    #[arg(long, value_name = "DUR", env = "PADPROOF_TIME", hide_env_values = true, value_parser = super::values::duration)]
    pub(super) time: Option<std::time::Duration>,
    /// Seed: up to 16 hexadecimal digits, or a git hash
    #[arg(long, value_name = "HEX", env = "PADPROOF_SEED", hide_env_values = true, value_parser = super::values::seed)]
    pub(super) seed: Option<super::values::Seed>,
    /// Number of the first random case
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) start: u64,
    /// Table the cases are drawn from
    #[arg(long, value_name = "NAME", default_value = "full")]
    pub(super) profile: Profile,
}

/// Named budgets (style.md A.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Tier {
    /// 64 random cases.
    Smoke,
    /// 64 random cases, and every failure.
    Ci,
    /// A hundred thousand random cases, and every failure.
    Nightly,
}

/// Tables of ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Profile {
    /// Everything, with edges.
    Full,
    /// Everything, in tiny sizes.
    Small,
    /// The plain distribution that speed is measured on.
    Uniform,
}

/// Which properties are asked of which cases.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is run")]
pub(super) struct Choice {
    /// Properties: `a,b` chooses, `--property=-a` leaves out
    #[arg(
        short,
        long,
        value_name = "LIST",
        env = "PADPROOF_PROPERTY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub(super) property: Option<String>,
    /// Cases: `foo,-bar` is text in case line or name, `key=value` a field
    #[arg(
        short,
        long,
        value_name = "EXPR",
        env = "PADPROOF_FILTER",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub(super) filter: Option<String>,
    /// What it means when nothing ran
    #[arg(long, value_name = "HOW", default_value = "fail")]
    pub(super) no_cases: NoCases,
    #[command(flatten)]
    pub(super) subject: SubjectArgs,
    #[command(flatten)]
    pub(super) own: OwnRules,
}

/// What it means when nothing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum NoCases {
    /// Exit 4.
    Fail,
    /// A warning, exit 0.
    Warn,
    /// Exit 0.
    Pass,
}

/// How a run is conducted and reported.
#[derive(Debug, Args)]
#[command(next_help_heading = "How it is run and reported")]
pub(super) struct Conduct {
    /// Failures after which the run ends, or `all`; 10 if left out
    #[arg(long, value_name = "N", env = "PADPROOF_MAX_FAIL", hide_env_values = true, value_parser = super::values::max_fail)]
    pub(super) max_fail: Option<super::values::Count>,
    /// Keep failing cases as found
    #[arg(long)]
    pub(super) no_shrink: bool,
    /// Threads; a negative number leaves so many cores free
    #[arg(short, long, value_name = "N", env = "PADPROOF_JOBS", hide_env_values = true, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-4096..=4096))]
    pub(super) jobs: Option<i64>,
    /// Format of standard output
    #[arg(
        long,
        value_name = "FORMAT",
        env = "PADPROOF_FORMAT",
        hide_env_values = true,
        default_value = "human"
    )]
    pub(super) format: RunFormat,
    /// Also write another format to a file; repeatable
    #[arg(long, value_name = "FORMAT=PATH", value_parser = super::values::export)]
    pub(super) export: Vec<(RunFormat, PathBuf)>,
    /// Only what did not pass, and the summary
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Settings, skips and each case before it runs; twice: derivations and differing elements
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
    /// Spell case lines in full, but for a `zero=0`
    #[arg(long)]
    pub(super) canonical: bool,
}

/// Formats of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RunFormat {
    /// For people.
    Human,
    /// One line per check that did not pass.
    Concise,
    /// One object at the end.
    Json,
    /// One object per event.
    Jsonl,
    /// For dashboards.
    Junit,
}
