//! Checks a padded checkpoint from its files alone.
//!
//! It must not need the input, nor believe the certificate: what that says of the tensors is held
//! against their bytes, and what it says of sizes against the config and the index. Layer 8.

use super::before::{INDEX_MAX, read_config, shapes, text};
use super::certificate::{CERTIFICATE, Certificate, TensorNote};
use super::change::{Change, Shaped};
use super::config::{self, CONFIG};
use super::digest::{hash, hashed};
use super::error::PadError;
use super::folder::list;
use super::stream;
use super::treat::{Tensors, Treat};
use super::write::{Progress, Step};
use crate::checkpoint::{Checkpoint, INDEX, TensorFile};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// Faults that are kept; the rest are counted.
const KEPT: usize = 20;

/// What is wrong with a padded checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The tensor or file.
    pub place: String,
    /// One of a few words: `element`, `pad`, `repeat`, `shape`, `bytes`, `missing`, `extra`,
    /// `config`, `index`.
    pub kind: &'static str,
    /// What is wrong, with numbers.
    pub why: String,
}

/// The answer.
#[derive(Debug)]
pub struct Verified {
    /// The certificate.
    pub certificate: Certificate,
    /// Tensors looked at.
    pub tensors: u64,
    /// Those that are padded.
    pub padded: u64,
    /// Other files looked at.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Faults in all.
    pub faults: u64,
    /// The first of them.
    pub first: Vec<Fault>,
}

impl Verified {
    fn fault(&mut self, place: &str, kind: &'static str, why: impl Into<String>) {
        self.faults += 1;
        if self.first.len() < KEPT {
            self.first.push(Fault {
                place: place.to_owned(),
                kind,
                why: why.into(),
            });
        }
    }
}

/// Checks every byte of a padded checkpoint.
///
/// # Errors
/// When there is no certificate, or a file cannot be read at all. What is wrong with files that can
/// be read is in the answer.
pub fn verify(folder: &Path, progress: &mut Progress<'_>) -> Result<Verified, PadError> {
    let certificate = Certificate::read(folder)?;
    let checkpoint = Checkpoint::open(folder)?;
    let now = shapes(&checkpoint)?;
    let total = list(folder)?.iter().map(|f| f.bytes).sum();
    progress(Step::Begin { total, done: 0 });
    let mut verified = Verified {
        tensors: 0,
        padded: 0,
        files: 0,
        bytes: 0,
        faults: 0,
        first: Vec::new(),
        certificate,
    };
    said(folder, &now, &checkpoint, &mut verified)?;
    let before = before(&mut verified);
    let recipe = verified.certificate.plan.clone();
    let notes = verified.certificate.tensors.clone();
    let treat = Treat::new(&recipe, &before);
    let files: BTreeMap<&str, &TensorFile> = checkpoint
        .files()?
        .into_iter()
        .filter_map(|(path, file)| Some((path.file_name()?.to_str()?, file)))
        .collect();
    let digests = notes
        .iter()
        .map(|note| (&*note.input, &*note.name))
        .collect();
    for note in &notes {
        let Some(shaped) = now.get(&note.name) else {
            verified.fault(&note.name, "missing", "the certificate lists it");
            continue;
        };
        let held = files
            .get(&*note.file)
            .filter(|file| file.entry(&note.name).is_some());
        let Some(file) = held else {
            verified.fault(&note.name, "missing", format!("it is not in {}", note.file));
            continue;
        };
        progress(Step::Doing(&note.name));
        let one = One {
            note,
            shaped,
            file,
            change: treat.change(&note.name, &before[&note.name]),
            digests: &digests,
        };
        one.check(&mut verified, progress)?;
    }
    for (name, said) in verified.certificate.metadata.clone() {
        let is = files.get(&*name).map(|file| file.metadata());
        if is.is_some_and(|is| *is != said) {
            verified.fault(&name, "bytes", "its __metadata__ is not what was written");
        }
    }
    others(folder, &mut verified, progress)?;
    if !verified.certificate.is_sealed() {
        verified.fault(CERTIFICATE, "bytes", "it is not as it was written");
    }
    Ok(verified)
}

/// The shapes that the certificate says the input had.
fn before(verified: &mut Verified) -> Tensors {
    let mut all = Tensors::new();
    let notes = verified.certificate.tensors.clone();
    for note in notes {
        let bits = u64::try_from(note.dtype.bitsize()).unwrap_or(u64::MAX);
        let bits = note
            .shape
            .iter()
            .try_fold(bits, |n, &a| n.checked_mul(u64::try_from(a).ok()?));
        let shaped = Shaped {
            dtype: note.dtype,
            shape: note.shape,
            bytes: bits.unwrap_or(0) / 8,
        };
        if all.insert(note.name.clone(), shaped).is_some() {
            verified.fault(&note.name, "extra", "the certificate lists it twice");
        }
    }
    all
}

/// What config, index and certificate say of each other and of the tensors.
fn said(
    folder: &Path,
    now: &Tensors,
    checkpoint: &Checkpoint,
    verified: &mut Verified,
) -> Result<(), PadError> {
    match read_config(folder) {
        Err(error @ PadError::Io { .. }) => return Err(error),
        Err(error) => verified.fault(CONFIG, "config", error.to_string()),
        Ok(config) => {
            if let Some(why) = config.agrees(&verified.certificate.plan) {
                verified.fault(CONFIG, "config", why);
            }
            if !config.padded_before() {
                verified.fault(CONFIG, "config", "it does not say what it was before");
            }
        }
    }
    let path = folder.join(INDEX);
    if path.exists() {
        index(&text(&path, INDEX_MAX)?, now, checkpoint, verified)?;
    }
    let listed: BTreeSet<&str> = verified
        .certificate
        .tensors
        .iter()
        .map(|t| t.name.as_str())
        .collect();
    let extra: Vec<String> = now
        .keys()
        .filter(|n| !listed.contains(n.as_str()))
        .cloned()
        .collect();
    for name in extra {
        verified.fault(&name, "extra", "the certificate does not list it");
    }
    Ok(())
}

fn index(
    text: &str,
    now: &Tensors,
    checkpoint: &Checkpoint,
    verified: &mut Verified,
) -> Result<(), PadError> {
    let Some((map, total)) = config::read_index(text) else {
        verified.fault(INDEX, "index", "it is no index");
        return Ok(());
    };
    let size: u64 = now.values().map(|t| t.bytes).fold(0, u64::saturating_add);
    if let Some(total) = total.filter(|&total| total != size) {
        verified.fault(
            INDEX,
            "index",
            format!("total_size={total}, but tensors take {size}"),
        );
    }
    for (path, file) in checkpoint.files()? {
        let holder = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        for name in file
            .names()
            .filter(|name| map.get(*name).is_none_or(|f| f != holder))
        {
            verified.fault(
                name,
                "index",
                format!("it is in {holder}, but the index does not say so"),
            );
        }
    }
    Ok(())
}

/// One tensor under judgement.
struct One<'a> {
    note: &'a TensorNote,
    shaped: &'a Shaped,
    file: &'a TensorFile,
    change: Result<Change, PadError>,
    /// The input's tensors by their digest.
    digests: &'a BTreeMap<&'a str, &'a str>,
}

impl One<'_> {
    fn check(&self, verified: &mut Verified, progress: &mut Progress<'_>) -> Result<(), PadError> {
        let name = &self.note.name;
        let change = match &self.change {
            Ok(change) => change,
            Err(error) => {
                verified.fault(name, "shape", error.to_string());
                return Ok(());
            }
        };
        let from = Shaped {
            dtype: self.note.dtype,
            shape: self.note.shape.clone(),
            bytes: 0,
        };
        let wanted = change.shape(&from);
        let listed = self
            .note
            .output
            .as_ref()
            .map_or(&self.note.shape, |o| &o.shape);
        if self.shaped.dtype != self.note.dtype || self.shaped.shape != wanted || listed != wanted {
            let (is, dtype) = (&self.shaped.shape, self.shaped.dtype);
            let why = format!("{dtype} {is:?}, wanted {} {wanted:?}", self.note.dtype);
            verified.fault(name, "shape", why);
            return Ok(());
        }
        verified.tensors += 1;
        verified.padded += u64::from(*change != Change::Copy);
        verified.bytes += self.shaped.bytes;
        let (mut input, mut output) = (blake3::Hasher::new(), blake3::Hasher::new());
        let mut read = |range: Range<u64>| {
            let bytes = self.file.data(name, range)?;
            hash(&mut output, &bytes);
            progress(Step::Read(bytes.len() as u64));
            Ok(bytes)
        };
        let mut undone = |bytes: &[u8]| {
            hash(&mut input, bytes);
            Ok(())
        };
        let bytes = self.shaped.bytes;
        let mut dirt = stream::Dirt::default();
        match change {
            Change::Copy => stream::whole(bytes, &mut read, &mut undone)?,
            Change::Numbers { from, to } => {
                if read(0..bytes)? != *to {
                    verified.fault(name, "element", "it does not say the padded weight's shape");
                }
                undone(from)?;
            }
            Change::Pad(padding) => dirt = stream::unpad(padding, &mut read, &mut undone)?,
        }
        let first = dirt.first.unwrap_or(0);
        let many = |n: u64, what: &str, are: [&str; 2]| match n {
            1 => format!("1 {what} {}, at byte {first}", are[0]),
            _ => format!("{n} {what}s {}, from byte {first} on", are[1]),
        };
        if dirt.pads > 0 {
            let are = ["is not the pad", "are not the pad"];
            verified.fault(name, "pad", many(dirt.pads, "padding unit", are));
        }
        if dirt.repeats > 0 {
            let are = ["is not what it repeats", "are not what they repeat"];
            verified.fault(name, "repeat", many(dirt.repeats, "repeated scale", are));
        }
        let input = input.finalize().to_hex();
        if input.as_str() != self.note.input {
            let whose = self.digests.get(input.as_str());
            let why = match whose {
                Some(other) => format!("without its padding it is {other}"),
                None => "without its padding it has not the bytes that the input had".to_owned(),
            };
            verified.fault(name, "element", why);
        }
        let same = input.as_str() == self.note.input;
        let clean = same && dirt == stream::Dirt::default();
        let output = output.finalize().to_hex();
        let listed = self
            .note
            .output
            .as_ref()
            .map_or(&self.note.input, |o| &o.blake3);
        if clean && output.as_str() != listed && self.note.output.is_some() {
            verified.fault(name, "bytes", "its bytes are not those that were written");
        }
        Ok(())
    }
}

/// Files without tensors.
fn others(
    folder: &Path,
    verified: &mut Verified,
    progress: &mut Progress<'_>,
) -> Result<(), PadError> {
    let there = list(folder)?;
    let notes = verified.certificate.files.clone();
    let holders: BTreeSet<String> = verified
        .certificate
        .tensors
        .iter()
        .map(|t| t.file.clone())
        .collect();
    let known = |name: &str| notes.iter().any(|f| f.name == name) || holders.contains(name);
    for seen in &there {
        if seen.name != CERTIFICATE && !known(&seen.name) {
            verified.fault(&seen.name, "extra", "the certificate does not list it");
        }
    }
    for note in &notes {
        if !there.iter().any(|seen| seen.name == note.name) {
            verified.fault(&note.name, "missing", "the certificate lists it");
            continue;
        }
        verified.files += 1;
        let path = folder.join(&note.name);
        let found = hashed(&path, &mut std::io::sink(), progress)?;
        if found != *note.output.as_ref().unwrap_or(&note.input) {
            verified.fault(
                &note.name,
                "bytes",
                "its bytes are not those that were written",
            );
        }
    }
    Ok(())
}
