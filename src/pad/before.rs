//! What must hold before a run begins, and what each tensor and text will become.
//!
//! It must not write. Layer 8.

use super::certificate::{CERTIFICATE, Certificate};
use super::change::{Change, Shaped};
use super::config::{self, CONFIG, Config};
use super::digest::hashed_tensor;
use super::error::{PadError, io_at};
use super::folder::{Seen, sweep};
use super::recipe::{Recipe, Request};
use super::treat::{Tensors, Treat};
use super::verify::verify;
use super::write::{Progress, Step};
use crate::checkpoint::{Checkpoint, INDEX, TensorFile, named};
use crate::model::FILE_LIMIT;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of an index that is read: as the reader's own limit.
pub(super) const INDEX_MAX: u64 = 256 << 20;

pub(super) fn read_config(folder: &Path) -> Result<Config, PadError> {
    let path = folder.join(CONFIG);
    let text = text(&path, FILE_LIMIT)?;
    let beside = folder.join("hf_quant_config.json");
    let beside = match beside.exists() {
        true => Some(self::text(&beside, FILE_LIMIT)?),
        false => None,
    };
    Config::read(path.display().to_string(), text, beside)
}

/// A text file of bounded size.
pub(super) fn text(path: &Path, most: u64) -> Result<String, PadError> {
    let wrong = |why: String| PadError::File {
        file: path.display().to_string(),
        why,
    };
    let opened = File::open(path).map_err(io_at(path))?;
    let mut bytes = Vec::new();
    opened
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(io_at(path))?;
    if bytes.len() as u64 > most {
        return Err(wrong(format!("larger than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| wrong("no UTF-8 text".to_owned()))
}

/// The sentence that says why there is nothing to do, if so; an error where the request cannot be met.
pub(super) fn done_before(
    folder: &Path,
    out: &Path,
    request: &Request,
    config: &Config,
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
        whole(out, progress)?;
        sweep(out)?;
        let out = out.display();
        return Ok(Some(format!(
            "{out} is this checkpoint padded so already; nothing was written (padproof verify {out} checks it)"
        )));
    }
    if !config.padded_before() {
        return Ok(None);
    }
    let place = folder.display();
    match Certificate::read(folder) {
        Ok(there) if there.request == *request => Ok(Some(format!(
            "{place} is padded so already, says its certificate; nothing was written"
        ))),
        Ok(there) => Err(PadError::Refused(format!(
            "{place} was padded before, from {} to {}: pad the checkpoint that it was made of",
            there.plan.routed.width.from, there.plan.routed.width.to
        ))),
        Err(_) => Err(PadError::Refused(format!(
            "{place}: its config.json says that padproof padded it, but {CERTIFICATE} cannot be read"
        ))),
    }
}

/// Refuses an output that is there but no longer as it was written, so that no script goes on with it.
fn whole(out: &Path, progress: &mut Progress<'_>) -> Result<(), PadError> {
    let damaged = |why: String| {
        let out = out.display();
        Err(PadError::Refused(format!(
            "{out} is this checkpoint padded so, but not as it was written: {why}; nothing was written (remove {out} to pad anew)"
        )))
    };
    match verify(out, progress) {
        Err(error) => damaged(error.to_string()),
        Ok(verified) => match verified.first.first() {
            None => Ok(()),
            Some(first) => damaged(format!("{}: {}", first.place, first.why)),
        },
    }
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
pub(super) fn outside(folder: &Path, out: &Path) -> Result<(), PadError> {
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
    let mut all = Tensors::new();
    for (path, file) in checkpoint.files()? {
        for name in file.names() {
            let entry = file.entry(name).expect("it was just listed");
            let shaped = Shaped {
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                bytes: entry.bytes,
            };
            if all.insert(name.to_owned(), shaped).is_some() {
                let why = format!("is in {} and in another file as well", path.display());
                return Err(super::error::tensor(name, why));
            }
        }
    }
    for name in checkpoint.names() {
        checkpoint.entry(name)?;
    }
    Ok(all)
}

/// Refuses experts in a file that no index leaves out: readers of whole folders would load them at
/// their old width.
pub(super) fn unnamed(
    folder: &Path,
    files: &[Seen],
    checkpoint: &Checkpoint,
    gated: bool,
) -> Result<(), PadError> {
    if folder.join(INDEX).exists() {
        return Ok(());
    }
    let read: Vec<_> = checkpoint
        .files()?
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    for seen in files.iter().filter(|f| f.name.ends_with(".safetensors")) {
        let path = folder.join(&seen.name);
        if read.iter().any(|known| **known == *path) {
            continue;
        }
        let file = TensorFile::open(&path)?;
        let experts = file
            .names()
            .find(|name| crate::checkpoint::named(name, gated).is_some());
        if let Some(name) = experts {
            return Err(PadError::Refused(format!(
                "{} holds experts (`{name}`), but without {INDEX} only model.safetensors would be padded: write an index, or move the file away",
                path.display()
            )));
        }
    }
    Ok(())
}

/// What each tensor becomes.
pub(super) fn changes(
    recipe: &Recipe,
    tensors: &Tensors,
) -> Result<BTreeMap<String, Change>, PadError> {
    let treat = Treat::new(recipe, tensors);
    let (mut routed, mut shared) = (false, false);
    let mut all = BTreeMap::new();
    for (name, shaped) in tensors {
        let change = treat.change(name, shaped)?;
        if let (Change::Pad(_), Some(named)) = (&change, named(name, recipe.gated)) {
            shared |= named.shared;
            routed |= !named.shared;
        }
        all.insert(name.clone(), change);
    }
    let grows = |part: &super::sizes::Part| !part.width.same() || part.blocks.is_some();
    let none = |what: &str, width: u64| {
        PadError::Refused(format!(
            "the config says {what} experts of {width}, but no tensor is named as theirs"
        ))
    };
    if grows(&recipe.routed) && !routed {
        return Err(none("routed", recipe.routed.width.from));
    }
    match &recipe.shared {
        Some(part) if grows(part) && !shared => Err(none("shared", part.width.from)),
        _ => Ok(all),
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
            why: "its total_size cannot be rewritten".to_owned(),
        })?;
        texts.insert(INDEX.to_owned(), new);
    }
    Ok(texts)
}
