//! `padproof audit`: padded parameters against the checkpoint they were loaded from.
//!
//! It must not judge bytes. Layer 11.

use super::bytes::Bytes;
use super::environment::{Environment, rule_switches};
use super::error::CliError;
use super::pad_args::{AuditArgs, AuditFormat};
use super::select;
use crate::audit::{
    Audited, StoredPart, TooLarge, audit_files_told, diagnose, layer_shape, layers_missing,
    not_taken, not_told, refined, too_large,
};
use crate::case::{Case, Scheme};
use crate::checkpoint::{Checkpoint, Dump, Layer, LayerId, Whose};
use crate::model::Model;
use crate::pad::Step;
use crate::plan::{Fit, LayerSpec, Parallel, Plan, idle_word, plan_layer, spelled_rule};
use crate::report::{audit_human, audit_json};
use crate::rule::Rules;
use crate::run::{ExitCode, on_arch};
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::str::FromStr;

/// Names of tensors that a note lists.
const LISTED: usize = 3;
/// Most bytes of a file with a layout.
const LAYOUT_MAX: u64 = 1 << 16;

pub(super) fn audit(
    args: &AuditArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    // Before its config is looked for, whose absence would be told where nothing is there at all.
    let before = Checkpoint::open(&args.before)?;
    let after = Checkpoint::open(&args.after)?;
    let tp = agreed(&after, "tp", args.tp)?;
    let parallel = Parallel {
        tp: tp.unwrap_or(1),
        // Shared experts are on every rank, whoever holds the others.
        ep: if args.shared { 1 } else { args.ep },
    };
    let model = model(args, environment)?;
    let asked = args
        .rank
        .map(|rank| u64::try_from(rank).unwrap_or(u64::MAX));
    let said =
        agreed(&after, "rank", asked)?.map(|rank| usize::try_from(rank).unwrap_or(usize::MAX));
    let whose = match args.rank {
        Some(rank) => Some(Whose::Only(rank)),
        None => said.map(Whose::Unnamed),
    };
    let layers = Dump::layers(&after);
    let wanted = match agreed(&after, "layer", args.layer)? {
        Some(layer) => Some(layer),
        None if layers.len() > 1 => {
            let listed: Vec<String> = layers.iter().map(LayerId::to_string).collect();
            return Err(CliError::Usage(format!(
                "{} holds layers {}: --layer says which to audit",
                after.place(),
                listed.join(", ")
            )));
        }
        None => layers.first().copied(),
    };
    let interleaved = model.interleaved && !args.shared;
    let part = StoredPart::of(&model, args.shared, (&before, wanted))?;
    let plan = part.of_stored_scales(plan(args, (&model, &part.spec), parallel)?);
    let layer = Layer::find(&before, layer_shape(&plan, interleaved)?, wanted)?;
    if let Some(name) = layer.unplaced() {
        return Err(CliError::Usage(format!(
            "{}: the experts have `{name}`, for which this plan has no place, so the audit would pass over it",
            before.place()
        )));
    }
    let find = match args.shared {
        true => Dump::find_shared,
        false => Dump::find,
    };
    let dump = find(&after, wanted, whose, plan.ranks.len())?;
    let mut bytes = Bytes::new(args.progress.how);
    let mut begun = false;
    let mut told = |read, total| {
        if !std::mem::replace(&mut begun, true) {
            bytes.step(Step::Begin { total, done: 0 });
            bytes.step(Step::Doing(layer.prefix()));
        }
        bytes.step(Step::Read(read));
    };
    let found = audit_files_told(&plan, &layer, &dump, &mut told);
    if found.as_ref().is_ok_and(|found| !found.clean()) {
        // Of a large layer that takes seconds.
        bytes.step(Step::Doing("looking for the fault's name"));
    }
    let named = found.and_then(|found| Ok((diagnose(&plan, &layer, &dump, &found)?, found)));
    bytes.end();
    let (diagnoses, found) = named?;
    let mut notes: Vec<String> = not_told(&plan).into_iter().collect();
    notes.extend(refined(&plan));
    notes.extend(not_taken(&dump, &found));
    // Of one layer that was asked for, the others say nothing.
    let whole = args.before.is_dir() && args.layer.is_none();
    notes.extend(whole.then(|| layers_missing(&model, &before)).flatten());
    match too_large(&plan)?.filter(|_| !found.clean()) {
        // Of what has a name there is nothing left to look for.
        Some(TooLarge::Exchange(_)) if !diagnoses.is_empty() => {}
        why => notes.extend(why.map(|why| why.to_string())),
    }
    for (place, names) in [
        (before.place(), layer.unread()),
        (
            after.place(),
            dump.unread.iter().map(String::as_str).collect(),
        ),
    ] {
        notes.extend(not_looked_at(place, &names));
    }
    let audited = Audited {
        before: before.place().to_owned(),
        after: after.place().to_owned(),
        prefix: layer.prefix().to_owned(),
        layer: layer.id(),
        rule: plan.rule.clone(),
        tp: parallel.tp,
        ep: parallel.ep,
        ranks: dump.ranks().into_iter().collect(),
        audit: found,
        diagnoses,
        notes,
    };
    match args.format {
        AuditFormat::Human => audit_human(&audited, out)?,
        AuditFormat::Json => audit_json(&audited, out)?,
    }
    Ok(match audited.audit.clean() {
        true => ExitCode::Passed,
        false => ExitCode::Failed,
    })
}

/// The model that is named, else the config.json beside the checkpoint.
fn model(args: &AuditArgs, environment: &Environment) -> Result<Model, CliError> {
    let beside = match args.before.is_dir() {
        true => args.before.clone(),
        false => args.before.with_file_name(""),
    };
    let given = match &args.model {
        Some(named) => named.clone(),
        None if beside.as_os_str().is_empty() => ".".to_owned(),
        None => beside.to_string_lossy().into_owned(),
    };
    select::model(&given, environment)
}

/// The plan of a part; one that does not run has no bytes to audit.
fn plan(
    args: &AuditArgs,
    (model, routed): (&Model, &LayerSpec),
    parallel: Parallel,
) -> Result<Plan, CliError> {
    let kind = routed.kind;
    let loaded = super::select::rules(args.rules.as_deref())?;
    let rules: &Rules = &loaded;
    let spelled;
    let rule = match (&args.rule, &args.layout) {
        (_, Some(given)) => {
            let (scheme, place) = layout(given)?;
            let wrong = |error| CliError::Usage(format!("{place}: {error}"));
            let alone = "takes pad, split, order, place, store and nib alone";
            // The format is the checkpoint's, and stands before these words below.
            if scheme.split(',').any(|word| word.trim().starts_with("w=")) {
                return Err(CliError::Usage(format!("{place} {alone}, not {scheme}")));
            }
            let case: Case = format!("w={},{scheme}", routed.weight)
                .parse()
                .map_err(wrong)?;
            let bare: Case = format!("w={}", routed.weight).parse()?;
            let rest = Case {
                scheme: bare.scheme.clone(),
                ..case.clone()
            };
            let (Scheme::Spelled(spec), true) = (&case.scheme, rest == bare) else {
                return Err(CliError::Usage(format!("{place} {alone}, not {scheme}")));
            };
            if let Some(why) = idle_word(spec, routed) {
                return Err(CliError::Usage(format!("{place}: {why}")));
            }
            spelled = spelled_rule(spec, routed.weight)?;
            &spelled
        }
        (Some(id), None) => rules.get(id)?,
        (None, None) => unreachable!("a rule or a layout is required"),
    };
    let rule = &*on_arch(rule, args.arch.as_deref());
    if !rule.formats.contains(&routed.weight) {
        let formats: Vec<&str> = rule.formats.iter().map(|f| f.name()).collect();
        return Err(CliError::Usage(format!(
            "rule {} is for {}, the experts of {} are {}",
            rule.id,
            formats.join(", "),
            model.name,
            routed.weight
        )));
    }
    if args.layout.is_none() && !rule.layers.contains(&kind) {
        return Err(CliError::Usage(format!(
            "rule {} says nothing of shared experts: --layout says how they lie",
            rule.id
        )));
    }
    let plan = plan_layer(routed, parallel, rule, &rule_switches(rules))?;
    if plan.fit > Fit::Unknown {
        let why = plan.reason();
        return Err(CliError::Usage(format!(
            "under rule {} with tp={} the plan is {}: {}",
            rule.id,
            parallel.tp,
            plan.fit.name(),
            why.map_or("", |v| v.message.as_str())
        )));
    }
    Ok(plan)
}

/// The words of a layout, those given or those of a file, a few a line; and what to call where they are
/// from.
fn layout(given: &str) -> Result<(String, &str), CliError> {
    let path = Path::new(given);
    if !path.is_file() {
        return Ok((given.to_owned(), "--layout"));
    }
    let wrong = |source| CliError::File {
        file: given.to_owned(),
        source,
    };
    let opened = File::open(path).map_err(wrong)?;
    let bytes = opened.metadata().map_err(wrong)?.len();
    if bytes > LAYOUT_MAX {
        return Err(CliError::Usage(format!(
            "{given}: {bytes} bytes, and a file with a layout has at most {LAYOUT_MAX}"
        )));
    }
    let mut text = String::new();
    let mut taken = opened.take(LAYOUT_MAX);
    taken.read_to_string(&mut text).map_err(wrong)?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let words = lines.flat_map(|line| line.split(',')).map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    Ok((words.join(","), given))
}

/// What an option and the string map say alike, if either says it.
fn agreed<T>(file: &Checkpoint, key: &str, given: Option<T>) -> Result<Option<T>, CliError>
where
    T: FromStr<Err: Display> + Display + PartialEq,
{
    let place = file.place();
    let said = match file.metadata(key)? {
        None => None,
        Some(text) => Some(text.parse::<T>().map_err(|why| {
            let text: String = text.escape_debug().take(80).collect();
            CliError::Usage(format!("{place}: metadata {key}=`{text}`: {why}"))
        })?),
    };
    match (given, said) {
        (Some(given), Some(said)) if given != said => Err(CliError::Usage(format!(
            "--{key} {given}, but {place} says {key}={said}"
        ))),
        (given, said) => Ok(given.or(said)),
    }
}

/// A sentence on the tensors that the audit says nothing about.
fn not_looked_at(place: &str, names: &[&str]) -> Option<String> {
    let (first, rest) = names.split_at(names.len().min(LISTED));
    if first.is_empty() {
        return None;
    }
    let more = match rest.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "not looked at in {place}: {}{more}",
        first.join(", ")
    ))
}
