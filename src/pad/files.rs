//! What becomes of every file of a checkpoint: padded, copied, linked or rewritten.
//!
//! It must not decide what a tensor becomes. Layer 8.

use super::certificate::{CERTIFICATE, FileNote, OutputNote, TensorNote};
use super::change::Change;
use super::digest::{hash, hashed};
use super::error::{PadError, cut_short, io_at};
use super::folder::{Done, Making, Seen, is_in_the_making, unchanged};
use super::stream;
use super::treat::Tensors;
use super::write::{Progress, Step};
use crate::checkpoint::{Checkpoint, CheckpointError, Output, TensorFile, header};
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// Files of other kinds are linked from this size on.
const LINK_MIN: u64 = 1 << 20;

/// A checkpoint's files, and what each becomes.
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) tensors: &'a Tensors,
    pub(super) changes: &'a BTreeMap<String, Change>,
    pub(super) texts: BTreeMap<String, String>,
    pub(super) files: &'a [Seen],
}

impl Files<'_> {
    /// Bytes that a file of the input will have, and whether it may be linked.
    pub(super) fn taken(&self, seen: &Seen) -> (u64, bool) {
        if let Some(text) = self.texts.get(&seen.name) {
            return (text.len() as u64, false);
        }
        let holders = self.holders().unwrap_or_default();
        let Some(file) = holders.get(&seen.name) else {
            return (seen.bytes, seen.bytes >= LINK_MIN);
        };
        let names = || file.names();
        let data = |name: &str| self.changes[name].bytes(&self.tensors[name]);
        let grown = names().map(|n| data(n).unwrap_or(u64::MAX));
        let old = names().map(|n| self.tensors[n].bytes);
        let [grown, old] = [
            grown.fold(0, u64::saturating_add),
            old.fold(0, u64::saturating_add),
        ];
        let same = names().all(|name| self.changes[name] == Change::Copy);
        (seen.bytes.saturating_sub(old).saturating_add(grown), same)
    }

    /// What would stop the run in its midst, where no later run could go on: recorded shapes that are not
    /// the weights', names that a file in the making has, files that cannot be opened.
    pub(super) fn readable(&self) -> Result<(), PadError> {
        for seen in self.files {
            let path = self.folder.join(&seen.name);
            if is_in_the_making(&seen.name) {
                return Err(PadError::File {
                    file: path.display().to_string(),
                    why: "files that pad has not finished are named so: move it away".to_owned(),
                });
            }
            File::open(&path).map_err(io_at(&path))?;
        }
        for (name, change) in self.changes {
            let Change::Numbers { from, .. } = change else {
                continue;
            };
            let (file, entry) = self.checkpoint.entry(name)?;
            let said = file.data(name, 0..entry.bytes)?;
            if said != *from {
                let [said, wanted] = [&said, from].map(|bytes| numbers(bytes, entry.dtype));
                let why = format!("it says {said:?}, and the weight beside it is {wanted:?}");
                let (file, tensor) = (file.name().to_owned(), name.clone());
                return Err(CheckpointError::Tensor { file, tensor, why }.into());
            }
        }
        Ok(())
    }

    /// Makes every file that is not done yet.
    pub(super) fn make(
        &self,
        making: &mut Making,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Done>, PadError> {
        let holders: BTreeMap<String, &TensorFile> = self.holders()?;
        let mut finished: BTreeMap<String, Done> = std::mem::take(&mut making.done)
            .into_iter()
            .map(|done| (done.name.clone(), done))
            .collect();
        let total = self.files.iter().map(|f| f.bytes).sum();
        let known = |f: &&Seen| finished.contains_key(&f.name);
        let done = self.files.iter().filter(known).map(|f| f.bytes).sum();
        progress(Step::Begin { total, done });
        let mut all = Vec::new();
        for seen in self.files {
            if seen.name == CERTIFICATE {
                continue;
            }
            if let Some(done) = finished.remove(&seen.name) {
                all.push(done);
                continue;
            }
            progress(Step::Doing(&seen.name));
            let done = match holders.get(&seen.name) {
                Some(file) => self.tensors(making, seen, file, progress)?,
                None => self.other(making, seen, progress)?,
            };
            // What was read is what was there when the run began.
            unchanged(self.folder, std::slice::from_ref(seen))?;
            making.note(&done)?;
            all.push(done);
        }
        Ok(all)
    }

    /// Files with tensors, by their name in the checkpoint.
    pub(super) fn holders(&self) -> Result<BTreeMap<String, &TensorFile>, PadError> {
        let files = self.checkpoint.files()?.into_iter();
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        Ok(files
            .filter_map(|(path, file)| Some((name(path)?, file)))
            .collect())
    }

    /// What headers say beside tensors, by file.
    pub(super) fn metadata(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>, PadError> {
        let holders = self.holders()?.into_iter();
        Ok(holders
            .map(|(name, file)| (name, file.metadata().clone()))
            .collect())
    }

    /// A file with tensors: linked or copied whole where none changes.
    fn tensors(
        &self,
        making: &Making,
        seen: &Seen,
        file: &TensorFile,
        progress: &mut Progress<'_>,
    ) -> Result<Done, PadError> {
        let source = self.folder.join(&seen.name);
        let order = file.in_order();
        let same = order.iter().all(|name| self.changes[*name] == Change::Copy);
        if same && making.link(&seen.name, &source)? {
            let mut nowhere = std::io::sink();
            let notes = self.stream((seen, &source), file, &order, &mut nowhere, progress)?;
            return Ok(Done {
                name: seen.name.clone(),
                bytes: seen.bytes,
                linked: true,
                tensors: notes,
                file: None,
            });
        }
        let outputs: Vec<Output<'_>> = order.iter().map(|name| self.output(name)).collect();
        let head = header(file.name(), file.metadata(), &outputs)?;
        let data: u64 = outputs.iter().map(|o| o.bytes).sum();
        let bytes = u64::try_from(head.len()).unwrap_or(u64::MAX) + data;
        let notes = making.file((&seen.name, bytes), |out, path| {
            let mut out = Named(BufWriter::with_capacity(1 << 20, out), path);
            out.take(&head)?;
            let notes = self.stream((seen, path), file, &order, &mut out.0, progress)?;
            out.0.flush().map_err(io_at(path))?;
            Ok(notes)
        })?;
        Ok(Done {
            name: seen.name.clone(),
            bytes,
            linked: false,
            tensors: notes,
            file: None,
        })
    }

    fn output<'t>(&'t self, name: &'t str) -> Output<'t> {
        let (shaped, change) = (&self.tensors[name], &self.changes[name]);
        Output {
            name,
            dtype: shaped.dtype,
            shape: change.shape(shaped),
            bytes: change.bytes(shaped).unwrap_or(u64::MAX),
        }
    }

    /// The data of tensors in their order, hashed on both sides.
    fn stream(
        &self,
        (seen, target): (&Seen, &Path),
        file: &TensorFile,
        order: &[&str],
        out: &mut dyn Write,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<TensorNote>, PadError> {
        let mut notes = Vec::new();
        for name in order {
            let (shaped, change) = (&self.tensors[*name], &self.changes[*name]);
            let (mut input, mut output) = (blake3::Hasher::new(), blake3::Hasher::new());
            let mut read = |range: Range<u64>| {
                let bytes = file.data(name, range).map_err(cut_short)?;
                hash(&mut input, &bytes);
                progress(Step::Read(bytes.len() as u64));
                Ok(bytes)
            };
            let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(io_at(target));
            match change {
                Change::Copy => stream::whole(shaped.bytes, &mut read, &mut write)?,
                Change::Numbers { from, to } => {
                    if read(0..shaped.bytes)? != *from {
                        let file = self.folder.join(&seen.name).display().to_string();
                        return Err(PadError::Changed { file });
                    }
                    hash(&mut output, to);
                    write(to)?;
                }
                Change::Pad(padding) => stream::pad(padding, &mut read, &mut |bytes| {
                    hash(&mut output, bytes);
                    write(bytes)
                })?,
            }
            let changed = *change != Change::Copy;
            notes.push(TensorNote {
                name: (*name).to_owned(),
                file: seen.name.clone(),
                dtype: shaped.dtype,
                shape: shaped.shape.clone(),
                input: input.finalize().to_hex().to_string(),
                output: changed.then(|| OutputNote {
                    shape: change.shape(shaped).to_vec(),
                    blake3: output.finalize().to_hex().to_string(),
                }),
            });
        }
        Ok(notes)
    }

    /// A file without tensors: rewritten, linked or copied.
    fn other(
        &self,
        making: &Making,
        seen: &Seen,
        progress: &mut Progress<'_>,
    ) -> Result<Done, PadError> {
        let source = self.folder.join(&seen.name);
        let mut linked = false;
        let mut note = FileNote {
            name: seen.name.clone(),
            input: String::new(),
            output: None,
        };
        let mut bytes = seen.bytes;
        if let Some(text) = self.texts.get(&seen.name) {
            note.input = hashed(&source, &mut std::io::sink(), progress)?;
            note.output = Some(blake3::hash(text.as_bytes()).to_hex().to_string());
            bytes = text.len() as u64;
            making.file((&seen.name, bytes), |out, path| {
                out.write_all(text.as_bytes()).map_err(io_at(path))
            })?;
        } else if seen.bytes >= LINK_MIN && making.link(&seen.name, &source)? {
            linked = true;
            note.input = hashed(&source, &mut std::io::sink(), progress)?;
        } else {
            let copy = (&*seen.name, bytes);
            note.input = making.file(copy, |out, _| hashed(&source, out, progress))?;
        }
        Ok(Done {
            name: seen.name.clone(),
            bytes,
            linked,
            tensors: Vec::new(),
            file: Some(note),
        })
    }
}

/// A file that is written, with its path for messages.
struct Named<'a, W>(W, &'a Path);

impl<W: Write> Named<'_, W> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), PadError> {
        self.0.write_all(bytes).map_err(io_at(self.1))
    }
}

/// Two numbers of a type, as they are stored; one below zero is told as such.
fn numbers(bytes: &[u8], dtype: Dtype) -> Vec<i128> {
    let wide = (bytes.len() / 2).max(1);
    let signed = matches!(dtype, Dtype::I64 | Dtype::I32);
    let each = bytes.chunks(wide).map(|number| {
        let bits = number.iter().rev().fold(0, |n, &b| n << 8 | i128::from(b));
        let negative = signed && number.last().is_some_and(|b| b >> 7 == 1);
        bits - if negative { 1 << (8 * wide) } else { 0 }
    });
    each.collect()
}
