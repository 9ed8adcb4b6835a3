//! What must hold before a run begins, and what each tensor and text will become.
//!
//! It must not write. Layer 8.

use super::certificate::{CERTIFICATE, Certificate};
use super::change::{Change, Shaped};
use super::config::{self, CONFIG, Config, KEY};
use super::digest::hashed_tensor;
use super::error::{PadError, io_at};
use super::folder::{Seen, sweep};
use super::holders;
use super::recipe::{Recipe, Request, recipe};
use super::treat::{Tensors, Treat};
use super::verify::verify;
use super::write::{Progress, Step};
use crate::checkpoint::{
    Checkpoint, CheckpointError, INDEX, Kind, LayerId, Place, SINGLE, TensorFile, named, place_of,
};
use crate::model::{FILE_LIMIT, Model};
use crate::rule::Rule;
use crate::terms::Bias;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of an index that is read: as the reader's own limit.
pub(super) const INDEX_MAX: u64 = 256 << 20;

/// Layers that a sentence lists.
const LISTED: usize = 8;

pub(super) fn read_config(folder: &Path) -> Result<Config, PadError> {
    // Else its config would be said to be missing.
    if !std::fs::metadata(folder).map_err(io_at(folder))?.is_dir() {
        return Err(PadError::File {
            file: folder.display().to_string(),
            why: format!("not a folder with {CONFIG} and safetensors files"),
        });
    }
    let path = folder.join(CONFIG);
    let text = text(&path, FILE_LIMIT)?;
    let beside = folder.join("hf_quant_config.json");
    let beside = match beside.exists() {
        true => Some(self::text(&beside, FILE_LIMIT)?),
        false => None,
    };
    Config::read(path.display().to_string(), text, beside)
}

/// The model with the biases that routed experts have in the files, of which most configs say nothing.
pub(super) fn with_biases(model: &Model, checkpoint: &Checkpoint) -> Model {
    let is = |name| {
        let named = named(name, model.gated())?;
        (!named.shared && matches!(named.is, Some((_, Kind::Bias)))).then_some(())
    };
    let mut model = model.clone();
    if checkpoint.names().any(|name| is(name).is_some()) {
        model.bias = Bias::Both;
    }
    model
}

/// The bytes of a file of bounded size, which must be a regular one: a pipe would be waited for.
pub(super) fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, PadError> {
    let wrong = |why: String| PadError::File {
        file: path.display().to_string(),
        why,
    };
    let larger = || wrong(format!("larger than {most} bytes"));
    let metadata = std::fs::metadata(path).map_err(io_at(path))?;
    if !metadata.is_file() {
        return Err(wrong("not a regular file".to_owned()));
    }
    if metadata.len() > most {
        return Err(larger());
    }
    let opened = File::open(path).map_err(io_at(path))?;
    let mut bytes = Vec::new();
    opened
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(io_at(path))?;
    match bytes.len() as u64 > most {
        true => Err(larger()),
        false => Ok(bytes),
    }
}

/// A text file of bounded size.
pub(super) fn text(path: &Path, most: u64) -> Result<String, PadError> {
    let wrong = |why: String| PadError::File {
        file: path.display().to_string(),
        why,
    };
    let bytes = bytes(path, most)?;
    String::from_utf8(bytes).map_err(|_| wrong("no UTF-8 text".to_owned()))
}

/// The sentence that says why there is nothing to do, if so; an error where the request cannot be met.
pub(super) fn already_done(
    folder: &Path,
    out: &Path,
    request: &Request,
    config: &Config,
    how: (Option<&Rule>, &[&str]),
    progress: &mut Progress<'_>,
) -> Result<Option<String>, PadError> {
    if out.symlink_metadata().is_ok() {
        let exists = || PadError::Exists(out.display().to_string());
        let there = Certificate::read(out).map_err(|_| exists())?;
        let input = blake3::hash(config.text.as_bytes()).to_hex();
        let same = there
            .files
            .iter()
            .any(|f| f.name == CONFIG && *f.input == *input);
        if !same || there.request != *request || !made_of(folder, &there, progress)? {
            return Err(exists());
        }
        if let Some(why) = damage(out, progress) {
            let out = out.display();
            return Err(PadError::Refused(format!(
                "{out} is this checkpoint padded so, but not as it was written: {why}; nothing was written (remove {out} to pad anew)"
            )));
        }
        sweep(out)?;
        let out = out.display();
        return Ok(Some(format!(
            "{out} is this checkpoint padded so already; nothing was written (padproof verify {out} checks it)"
        )));
    }
    let (place, file) = (folder.display(), folder.join(CERTIFICATE));
    let certified = file.symlink_metadata().is_ok();
    let (config_file, file) = (folder.join(CONFIG), file.display().to_string());
    match (config.padded_before(), certified) {
        (true, true) => {}
        (false, false) => return Ok(None),
        // Either alone: a key or a certificate that was taken away, or one of another checkpoint.
        (true, false) => {
            return Err(PadError::Refused(format!(
                "{} has the key `{KEY}`, which says that padproof padded this checkpoint, but {file} is not there: pad the checkpoint that it was made of, or take the key away if that is this one; nothing was written",
                config_file.display()
            )));
        }
        (false, true) => {
            return Err(PadError::Refused(format!(
                "{file} says that padproof padded a checkpoint here, but {} has no key `{KEY}`: pad the checkpoint that it was made of, or move the certificate away if it is another's; nothing was written",
                config_file.display()
            )));
        }
    }
    match Certificate::read(folder) {
        Ok(there) if there.request == *request => {
            let damage = damage(folder, progress).or_else(|| unfinished(config, request, how));
            match damage {
                None => Ok(Some(format!(
                    "{place} is padded so already: its certificate says so, and its files agree; nothing was written"
                ))),
                Some(why) => Err(PadError::Refused(format!(
                    "{place} is padded so already, says its {CERTIFICATE}, but {why}; nothing was written"
                ))),
            }
        }
        Ok(there) => Err(PadError::Refused(format!(
            "{place} was padded before, from {} to {}: pad the checkpoint that it was made of",
            there.plan.routed.width.from, there.plan.routed.width.to
        ))),
        Err(why) => Err(PadError::Refused(format!(
            "{} has the key `{KEY}`, but its certificate cannot be read: {why}",
            config_file.display()
        ))),
    }
}

/// What is wrong first with a padded checkpoint, so that no script goes on with it.
fn damage(padded: &Path, progress: &mut Progress<'_>) -> Option<String> {
    match verify(padded, progress) {
        Err(error) => Some(error.to_string()),
        Ok(verified) => {
            let first = verified.first.first()?;
            Some(format!("{} ({}): {}", first.place, first.kind, first.why))
        }
    }
}

/// What the request would still change by the config: a certificate may have been made to say it.
fn unfinished(
    config: &Config,
    request: &Request,
    (rule, switches): (Option<&Rule>, &[&str]),
) -> Option<String> {
    // A grid that became finer is none that the rule takes again.
    let again = recipe(&config.model, &config.keys, request, rule, switches).ok()?;
    let parts = [Some(&again.routed), again.shared.as_ref()];
    let grows = parts.into_iter().flatten().find(|p| !p.width.same())?;
    let (from, to) = (grows.width.from, grows.width.to);
    Some(format!("its width of {from} would still become {to}"))
}

/// Whether a checkpoint holds exactly the tensors that a certificate says the input had.
fn made_of(
    folder: &Path,
    there: &Certificate,
    progress: &mut Progress<'_>,
) -> Result<bool, PadError> {
    let checkpoint = Checkpoint::open(folder)?;
    let tensors = shapes(&checkpoint)?;
    if tensors.len() != there.tensors.len() {
        return Ok(false);
    }
    let total = tensors
        .values()
        .map(|t| t.bytes)
        .fold(0, u64::saturating_add);
    progress(Step::Begin { total, done: 0 });
    for note in &there.tensors {
        let Some(shaped) = tensors.get(&note.name) else {
            return Ok(false);
        };
        if shaped.dtype != note.dtype || shaped.shape != note.shape {
            return Ok(false);
        }
        progress(Step::Doing(&note.name));
        let (file, _) = checkpoint.entry(&note.name)?;
        if hashed_tensor(file, &note.name, shaped.bytes, progress)? != note.input {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses an output inside the input: it would be part of itself.
pub(super) fn refuse_inside(folder: &Path, out: &Path) -> Result<(), PadError> {
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(io_at(parent))?;
    let folder = folder.canonicalize().map_err(io_at(folder))?;
    match parent.starts_with(&folder) {
        true => Err(PadError::Refused(format!(
            "{} would lie inside the checkpoint that it is made of",
            out.display()
        ))),
        false => Ok(()),
    }
}

/// Every tensor of every file, those that an index leaves out as well.
pub(super) fn shapes(checkpoint: &Checkpoint) -> Result<Tensors, PadError> {
    let (all, twice) = holders::listed(checkpoint.files()?);
    if let Some((name, [first, second])) = twice.first() {
        let why = format!("it is in {} and in {}", first.display(), second.display());
        return Err(super::error::tensor(name, why));
    }
    for name in checkpoint.names() {
        checkpoint.entry(name)?;
    }
    Ok(all)
}

/// Refuses experts in a file that no index names and that is not the one file: readers of whole folders would load
/// them, others not.
pub(super) fn refuse_unindexed(folder: &Path, files: &[Seen], gated: bool) -> Result<(), PadError> {
    if folder.join(INDEX).exists() {
        return Ok(());
    }
    let others = |seen: &&Seen| seen.name.ends_with(".safetensors") && seen.name != SINGLE;
    for seen in files.iter().filter(others) {
        let path = folder.join(&seen.name);
        let file = TensorFile::open(&path)?;
        let experts = file
            .names()
            .find(|name| crate::checkpoint::named(name, gated).is_some());
        if let Some(name) = experts {
            return Err(PadError::Refused(format!(
                "{} holds experts (`{name}`), but without {INDEX} only {SINGLE} is padded: write an index, name the file {SINGLE} if it is all there is, or move it away",
                path.display()
            )));
        }
    }
    Ok(())
}

/// What each tensor becomes.
///
/// `file` is the config's; errors of a tensor say which file it is in.
pub(super) fn changes(
    file: &str,
    checkpoint: &Checkpoint,
    recipe: &Recipe,
    tensors: &Tensors,
) -> Result<BTreeMap<String, Change>, PadError> {
    let treat = Treat::new(recipe, tensors);
    let (mut routed, mut shared) = (false, false);
    let mut all = BTreeMap::new();
    let mut failed = Failed::default();
    for (name, shaped) in tensors {
        let change = match treat.change(name, shaped) {
            Ok(change) => change,
            Err(error) => {
                let expert = named(name, recipe.gated).filter(|n| !n.shared);
                let Some(layer) = expert.map(|n| place_of(n.prefix)) else {
                    return Err(placed(error, checkpoint));
                };
                let kind = match error {
                    PadError::Format { .. } => &mut failed.formats,
                    _ => &mut failed.others,
                };
                kind.entry(layer).or_insert(placed(error, checkpoint));
                continue;
            }
        };
        if let (Change::Pad(_), Some(named)) = (&change, named(name, recipe.gated)) {
            shared |= named.shared;
            routed |= !named.shared;
        }
        all.insert(name.clone(), change);
    }
    if let Some(error) = treat.mixed() {
        return Err(placed(error, checkpoint));
    }
    if let Some(error) = failed.first(recipe, tensors) {
        return Err(error);
    }
    let none = |what: &str, width: u64| PadError::File {
        file: file.to_owned(),
        why: format!("{what} experts of {width}, but no tensor is named as theirs"),
    };
    if recipe.routed.changes() && !routed {
        return Err(none("routed", recipe.routed.width.from));
    }
    match &recipe.shared {
        Some(part) if part.changes() && !shared => Err(none("shared", part.width.from)),
        _ => Ok(all),
    }
}

/// An error of a tensor with its file.
fn placed(error: PadError, checkpoint: &Checkpoint) -> PadError {
    let (PadError::Tensor { tensor, why } | PadError::Format { tensor, why }) = error else {
        return error;
    };
    match checkpoint.entry(&tensor) {
        Ok((file, _)) => PadError::Checkpoint(CheckpointError::Tensor {
            file: file.name().to_owned(),
            tensor,
            why,
        }),
        Err(_) => PadError::Tensor { tensor, why },
    }
}

/// Layers with tensors that cannot be padded, each with its first error: those that are stored in another
/// format, and those with something else wrong.
#[derive(Default)]
struct Failed<'a> {
    formats: BTreeMap<Place<'a>, PadError>,
    others: BTreeMap<Place<'a>, PadError>,
}

impl Failed<'_> {
    /// The first error; of formats with the layers that have another one than the others.
    fn first(mut self, recipe: &Recipe, tensors: &Tensors) -> Option<PadError> {
        // Scales do not fit where a weight of the config's format has another width, either.
        if let Some((_, error)) = self.others.pop_first() {
            return Some(error);
        }
        let experts = |name| named(name, recipe.gated).filter(|n| !n.shared);
        let all: BTreeSet<&str> = tensors
            .keys()
            .filter_map(|n| Some(experts(n)?.prefix))
            .collect();
        let layers: Vec<String> = self.formats.keys().map(spelled).collect();
        let (_, error) = self.formats.pop_first()?;
        if layers.len() == all.len() {
            return Some(error);
        }
        let (word, many) = match layers.len() {
            1 => ("layer", "is"),
            _ => ("layers", "are"),
        };
        let more = match layers.len().saturating_sub(LISTED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let listed = layers[..layers.len().min(LISTED)].join(", ");
        Some(PadError::Refused(format!(
            "{error}: {word} {listed}{more} of {} with experts {many} not stored as the others, and pad takes {} and unquantised layers alone",
            all.len(),
            recipe.routed.format
        )))
    }
}

/// A layer's number; its name where it is a draft's, or has none.
fn spelled(&(id, prefix): &Place<'_>) -> String {
    match id {
        Some(LayerId::Model(number)) => number.to_string(),
        _ => prefix.trim_end_matches('.').chars().take(200).collect(),
    }
}

/// The texts that change, by name.
pub(super) fn texts(
    folder: &Path,
    config: &Config,
    recipe: &Recipe,
    tensors: &Tensors,
    changes: &BTreeMap<String, Change>,
) -> Result<BTreeMap<String, String>, PadError> {
    let mut texts = BTreeMap::from([(CONFIG.to_owned(), config.padded(recipe)?)]);
    let path = folder.join(INDEX);
    if path.exists() {
        let listed = config::read_index(&text(&path, INDEX_MAX)?).map(|(map, _)| map);
        let absent = |name: &&String| listed.as_ref().is_some_and(|map| !map.contains_key(*name));
        if let Some(name) = tensors.keys().find(absent) {
            let name: String = name.chars().take(200).collect();
            return Err(PadError::File {
                file: path.display().to_string(),
                why: format!(
                    "weight_map leaves out `{name}`, which lies in a file that it names: some readers would load it, others not"
                ),
            });
        }
        let bytes = |(name, shaped): (&String, &Shaped)| changes[name].bytes(shaped);
        let total = tensors
            .iter()
            .map(bytes)
            .try_fold(0_u64, |sum, n| sum.checked_add(n?));
        let new = total.and_then(|total| config::index(&text(&path, INDEX_MAX).ok()?, total));
        let new = new.ok_or_else(|| PadError::File {
            file: path.display().to_string(),
            why: match total {
                Some(total) => format!("metadata.total_size cannot be rewritten to {total}"),
                None => "metadata.total_size would be more than 64 bits hold".to_owned(),
            },
        })?;
        texts.insert(INDEX.to_owned(), new);
    }
    Ok(texts)
}
