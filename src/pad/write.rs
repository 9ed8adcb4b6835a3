//! The run: a checkpoint's files are made, checked, certified and put in their place.
//!
//! It must not decide what a tensor becomes. Layer 8.

use super::before::{
    already_done, changes, read_config, refuse_inside, refuse_unindexed, shapes, texts, with_biases,
};
use super::certificate::{AuditNote, CERTIFICATE, Certificate, DifferentialNote, RuleNote, tool};
use super::config::Config;
use super::error::{PadError, io_at};
use super::files::Files;
use super::folder::{Done, Head, Making, Seen, list, no_slash, unchanged};
use super::hold::Hold;
use super::recipe::{Recipe, Request, recipe};
use super::treat::Tensors;
use crate::audit::layers_missing;
use crate::checkpoint::Checkpoint;
use crate::rule::Rule;
use std::io::Write;
use std::path::Path;

/// What a run tells on its way.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// Bytes of the input that are to be read, and those that an earlier run had done.
    Begin {
        /// All.
        total: u64,
        /// Done.
        done: u64,
    },
    /// So many more were read.
    Read(u64),
    /// What begins now.
    Doing(&'a str),
    /// All holds, and the output goes to its place now.
    Placing,
}

/// Told of steps.
pub type Progress<'a> = dyn FnMut(Step<'_>) + 'a;

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// The output is in its place.
    Padded(Box<Padded>),
    /// There was nothing to do, and nothing was written; one sentence.
    Nothing(String),
}

/// A padded checkpoint, and what it took.
#[derive(Debug)]
pub struct Padded {
    /// What lies beside it.
    pub certificate: Certificate,
    /// Files with tensors that were written.
    pub written: usize,
    /// Files that are the input's under another name.
    pub linked: usize,
    /// Files that an earlier run had finished.
    pub resumed: usize,
    /// Bytes of the input's files.
    pub bytes_before: u64,
    /// Bytes of the output's files.
    pub bytes_after: u64,
    /// What else there is to say, one sentence each.
    pub notes: Vec<String>,
}

/// Pads the checkpoint in a folder into a new one; `rule` is that of the request.
///
/// # Errors
/// When it cannot be padded, read or written. Nothing stands at `out` then; what was finished lies
/// beside it, and an equal run goes on from there.
pub fn pad(
    folder: &Path,
    out: &Path,
    request: &Request,
    rule: Option<&Rule>,
    switches: &[&str],
    progress: &mut Progress<'_>,
) -> Result<Outcome, PadError> {
    let out: &Path = &no_slash(out);
    let config = read_config(folder)?;
    if let Some(sentence) = already_done(folder, out, request, &config, (rule, switches), progress)?
    {
        return Ok(Outcome::Nothing(sentence));
    }
    refuse_inside(folder, out)?;
    let checkpoint = Checkpoint::open(folder)?;
    checkpoint.refuse_odd_layers()?;
    let recipe = recipe_of(&config, &checkpoint, request, (rule, switches))?;
    if recipe.same() {
        let width = recipe.routed.width.from;
        return Ok(Outcome::Nothing(format!(
            "nothing to pad: every one of {} ranks can use its share of {width} as it is; nothing was written",
            request.tp
        )));
    }
    let files = list(folder)?;
    let tensors = shapes(&checkpoint)?;
    refuse_unindexed(folder, &files, recipe.gated)?;
    let changes = changes(&config.file, &checkpoint, &recipe, &tensors)?;
    let all = Files {
        folder,
        checkpoint: &checkpoint,
        tensors: &tensors,
        changes: &changes,
        texts: texts(folder, &config, &recipe, &tensors, &changes)?,
        files: &files,
    };
    let hold = Hold {
        model: &config.model,
        recipe: &recipe,
        before: &checkpoint,
        after: &checkpoint,
    };
    hold.before(&tensors)?;
    all.readable()?;
    let taken: Vec<(u64, bool)> = files.iter().map(|seen| all.taken(seen)).collect();
    super::space::fits(folder, out, &taken)?;
    let mut making = Making::start(out, &head(folder, request, &files)?)?;
    super::resume::keep(&mut making, &all.metadata()?, progress);
    let resumed = making.done.len();
    let done = all.make(&mut making, progress)?;
    unchanged(folder, &files)?;
    progress(Step::Doing("checking"));
    let (making, checks) = checked(making, hold, &tensors, &done, progress)?;
    let certificate = certificate(request, rule, recipe.clone(), &all, &done, checks)?;
    let text = serde_json::to_vec_pretty(&certificate).expect("names and numbers are JSON");
    making.file((CERTIFICATE, text.len() as u64), |file, path| {
        file.write_all(&text).map_err(io_at(path))
    })?;
    progress(Step::Placing);
    making.finish()?;
    let held = all.holders().unwrap_or_default();
    let mut notes = super::told::notes(&files, &|name| held.contains_key(name), &certificate);
    notes.extend(layers_missing(&config.model, &checkpoint));
    Ok(Outcome::Padded(Box::new(Padded {
        written: done
            .iter()
            .filter(|d| !d.tensors.is_empty() && !d.linked)
            .count(),
        linked: done.iter().filter(|d| d.linked).count(),
        resumed,
        bytes_before: files.iter().map(|f| f.bytes).sum(),
        bytes_after: done.iter().map(|d| d.bytes).sum(),
        notes,
        certificate,
    })))
}

/// What becomes of the checkpoint's experts; what refuses names the config's file.
fn recipe_of(
    config: &Config,
    checkpoint: &Checkpoint,
    request: &Request,
    (rule, switches): (Option<&Rule>, &[&str]),
) -> Result<Recipe, PadError> {
    let model = with_biases(&config.model, checkpoint);
    let recipe = recipe(&model, &config.keys, request, rule, switches);
    recipe.map_err(|error| match error {
        PadError::Refused(why) => PadError::File {
            file: config.file.clone(),
            why,
        },
        other => other,
    })
}

/// What tells an equal run.
fn head(folder: &Path, request: &Request, files: &[Seen]) -> Result<Head, PadError> {
    let input = folder.canonicalize().map_err(io_at(folder))?;
    Ok(Head {
        tool: tool(),
        request: serde_json::to_string(request).expect("a request is JSON"),
        input: input.display().to_string(),
        files: files.to_vec(),
    })
}

/// What the checks at the end found.
type Checks = (AuditNote, Vec<DifferentialNote>);

/// Looks at what was made before it goes to its place, and leaves none of what does not hold.
fn checked(
    making: Making,
    hold: Hold<'_>,
    tensors: &Tensors,
    done: &[Done],
    progress: &mut Progress<'_>,
) -> Result<(Making, Checks), PadError> {
    let after = Checkpoint::open(&making.folder())?;
    let before = hold.before;
    let hold = Hold {
        after: &after,
        ..hold
    };
    let checked = hold
        .audit(tensors)
        .and_then(|audit| Ok((audit, hold.differential(tensors)?)));
    match checked {
        Ok(checks) => Ok((making, checks)),
        Err(error) => {
            // The next run must not go on from what does not hold.
            making.abandon()?;
            // Whatever comes of the second look, the first finding is told.
            let changed = super::resume::changed(before, done, progress)
                .ok()
                .flatten();
            Err(changed.map_or(error, |file| PadError::Changed { file }))
        }
    }
}

fn certificate(
    request: &Request,
    rule: Option<&Rule>,
    plan: Recipe,
    all: &Files<'_>,
    done: &[Done],
    (audit, differential): Checks,
) -> Result<Certificate, PadError> {
    let rule = rule.map(|rule| RuleNote {
        id: rule.id.clone(),
        version: rule.version.clone(),
        source: rule.source.clone(),
    });
    let certificate = Certificate {
        schema: Certificate::schema(),
        tool: tool(),
        request: request.clone(),
        rule,
        audit: Some(audit),
        differential,
        plan,
        tensors: done.iter().flat_map(|d| d.tensors.clone()).collect(),
        metadata: all.metadata()?,
        files: done.iter().filter_map(|d| d.file.clone()).collect(),
        seal: String::new(),
    };
    Ok(certificate.sealed())
}
