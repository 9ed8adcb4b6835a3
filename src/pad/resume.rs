//! Whether a file that an earlier run had finished, or one of the input, still is what was read of it.
//!
//! It must not write. Layer 8.

use super::certificate::TensorNote;
use super::digest::{hashed, hashed_tensor};
use super::error::PadError;
use super::folder::{Done, Making};
use super::write::{Progress, Step};
use crate::checkpoint::{Checkpoint, TensorFile};
use std::path::Path;

/// What a header says beside tensors, by the file's name in the checkpoint.
pub(super) type Metadata =
    std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>;

/// Keeps what an equal run finished and nothing changed since; the rest is made anew.
pub(super) fn keep(making: &mut Making, metadata: &Metadata, progress: &mut Progress<'_>) {
    let folder = making.folder();
    let total = making.done.iter().map(|d| d.bytes).sum();
    if making.done.is_empty() {
        return;
    }
    progress(Step::Begin { total, done: 0 });
    making.done.retain(|done| {
        progress(Step::Doing("what an earlier run had done"));
        holds(&folder, done, metadata, progress).unwrap_or(false)
    });
}

fn holds(
    folder: &Path,
    done: &Done,
    metadata: &Metadata,
    progress: &mut Progress<'_>,
) -> Result<bool, PadError> {
    let path = folder.join(&done.name);
    if let Some(note) = &done.file {
        let found = hashed(&path, &mut std::io::sink(), progress)?;
        return Ok(found == *note.output.as_ref().unwrap_or(&note.input));
    }
    let file = TensorFile::open(&path)?;
    let said = metadata.get(&done.name);
    if file.names().count() != done.tensors.len() || Some(file.metadata()) != said {
        return Ok(false);
    }
    for note in &done.tensors {
        if !same(&file, note, progress)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a tensor has the type, shape and bytes that were written.
fn same(
    file: &TensorFile,
    note: &TensorNote,
    progress: &mut Progress<'_>,
) -> Result<bool, PadError> {
    let output = note.output.as_ref();
    let (shape, digest) = output.map_or((&note.shape, &note.input), |o| (&o.shape, &o.blake3));
    let Some(entry) = file.entry(&note.name) else {
        return Ok(false);
    };
    if entry.dtype != note.dtype || entry.shape != *shape {
        return Ok(false);
    }
    Ok(hashed_tensor(file, &note.name, entry.bytes, progress)? == *digest)
}

/// The first file of the input whose tensors are no longer those that were read: a file may be changed and
/// keep its size and time.
pub(super) fn changed(
    checkpoint: &Checkpoint,
    done: &[Done],
    progress: &mut Progress<'_>,
) -> Result<Option<String>, PadError> {
    progress(Step::Doing("whether the input changed"));
    for note in done.iter().flat_map(|done| &done.tensors) {
        let (file, entry) = checkpoint.entry(&note.name)?;
        if hashed_tensor(file, &note.name, entry.bytes, progress)? != note.input {
            return Ok(Some(file.name().to_owned()));
        }
    }
    Ok(None)
}
