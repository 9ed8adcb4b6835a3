//! Checks a padded checkpoint from its files alone.
//!
//! It must not need the input, nor believe the certificate: what that says of the tensors is held
//! against their bytes, and what it says of sizes against the config and the index. Layer 8.

use super::before::{INDEX_MAX, read_config, text};
use super::certificate::{CERTIFICATE, Certificate, TensorNote};
use super::change::{Change, Shaped};
use super::config::{self, CONFIG};
use super::digest::{hash, hashed};
use super::error::PadError;
use super::folder::{Seen, list_but};
use super::holders::{Files, names, open, shapes};
use super::stream;
use super::treat::{Tensors, Treat};
use super::write::{Progress, Step};
use crate::checkpoint::{INDEX, TensorFile};
use crate::model::FILE_LIMIT;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

/// Faults that are kept; the rest are counted.
const KEPT: usize = 20;
/// Longest name that is kept: an index may hold any.
const NAME_MAX: usize = 200;

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
    /// The certificate; none where it is no padding's, so that nothing can be held against it.
    pub certificate: Option<Certificate>,
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
    pub(super) fn fault(&mut self, place: &str, kind: &'static str, why: impl Into<String>) {
        self.faults += 1;
        if self.first.len() < KEPT {
            self.first.push(Fault {
                place: place.chars().take(NAME_MAX).collect(),
                kind,
                why: why.into(),
            });
        }
    }
}

/// Checks every byte of a padded checkpoint.
///
/// # Errors
/// When there is no certificate that can be read, or the system refuses to read a file that is there.
/// Whatever else is wrong, a certificate that no padding wrote and files that are not there as well, is in the answer.
pub fn verify(folder: &Path, progress: &mut Progress<'_>) -> Result<Verified, PadError> {
    let mut verified = Verified {
        tensors: 0,
        padded: 0,
        files: 0,
        bytes: 0,
        faults: 0,
        first: Vec::new(),
        certificate: None,
    };
    let certificate = match Certificate::read(folder) {
        Ok(certificate) => certificate,
        Err(PadError::NotWritten { why, .. }) => {
            let why = format!("no padding wrote it so: {why}");
            verified.fault(CERTIFICATE, "bytes", why);
            return Ok(verified);
        }
        Err(error) => return Err(error),
    };
    if let Some(why) = certificate.odd() {
        verified.fault(CERTIFICATE, "bytes", why);
    }
    let there = list_but(folder, &mut |odd| {
        let PadError::File { file, why } = odd else {
            return Err(odd);
        };
        let below = Path::new(&file).strip_prefix(folder);
        let place = below.map_or(file.clone(), |p| p.display().to_string());
        verified.fault(&place, "extra", why);
        Ok(())
    })?;
    let total = there.iter().map(|f| f.bytes).sum();
    progress(Step::Begin { total, done: 0 });
    let files = open(folder, &certificate, &mut verified)?;
    let now = shapes(&files, &mut verified);
    said(folder, &certificate, (&now, &files), &mut verified)?;
    tensors(&certificate, (&now, &files), &mut verified, progress)?;
    metadata(&certificate, &files, &mut verified);
    others(folder, &certificate, &there, &mut verified, progress)?;
    if !certificate.is_sealed() {
        verified.fault(CERTIFICATE, "bytes", "it is not as it was written");
    }
    verified.certificate = Some(certificate);
    Ok(verified)
}

/// Every tensor that the certificate lists.
fn tensors(
    certificate: &Certificate,
    (now, files): (&Tensors, &Files),
    verified: &mut Verified,
    progress: &mut Progress<'_>,
) -> Result<(), PadError> {
    let before = before(certificate, verified);
    let treat = Treat::new(&certificate.plan, &before);
    let notes = &certificate.tensors;
    let digests = notes
        .iter()
        .map(|note| (&*note.input, &*note.name))
        .collect();
    for note in notes {
        let file = match files.get(&note.file) {
            Some(Some(file)) => file,
            // That the file is not there, or none, is said once.
            _ => continue,
        };
        let Some(shaped) = now.get(&note.name) else {
            verified.fault(&note.name, "missing", "the certificate lists it");
            continue;
        };
        if file.entry(&note.name).is_none() {
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
        one.check(verified, progress)?;
    }
    Ok(())
}

/// What headers say beside tensors.
fn metadata(certificate: &Certificate, files: &Files, verified: &mut Verified) {
    for (name, said) in &certificate.metadata {
        let is = files.get(name).and_then(|f| Some(f.as_ref()?.metadata()));
        let Some(is) = is.filter(|is| *is != said) else {
            continue;
        };
        let keys: BTreeSet<&String> = is.keys().chain(said.keys()).collect();
        let key = keys.into_iter().find(|key| is.get(*key) != said.get(*key));
        let key = key.map_or("", String::as_str);
        let [is, said] = [is, said].map(|all| match all.get(key) {
            Some(value) => format!("{value:?}"),
            None => "nothing".to_owned(),
        });
        let why = format!(
            "its __metadata__ is not what was written: `{key}` says {is}, and {said} was written"
        );
        verified.fault(name, "bytes", why);
    }
}

/// The shapes that the certificate says the input had.
fn before(certificate: &Certificate, verified: &mut Verified) -> Tensors {
    let mut all = Tensors::new();
    for note in &certificate.tensors {
        let bits = u64::try_from(note.dtype.bitsize()).unwrap_or(u64::MAX);
        let bits = note
            .shape
            .iter()
            .try_fold(bits, |n, &a| n.checked_mul(u64::try_from(a).ok()?));
        let shaped = Shaped {
            dtype: note.dtype,
            shape: note.shape.clone(),
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
    certificate: &Certificate,
    (now, files): (&Tensors, &Files),
    verified: &mut Verified,
) -> Result<(), PadError> {
    match read_config(folder) {
        Err(PadError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            verified.fault(CONFIG, "config", "it is not there");
        }
        Err(error @ PadError::Io { .. }) => return Err(error),
        Err(error) => verified.fault(CONFIG, "config", error.to_string()),
        Ok(config) => {
            if let Some(why) = config.agrees(&certificate.plan) {
                verified.fault(CONFIG, "config", why);
            }
            if let Some(why) = config.says_before(&certificate.plan, &certificate.tool) {
                verified.fault(CONFIG, "config", why);
            }
        }
    }
    let path = folder.join(INDEX);
    if path.exists() {
        match text(&path, INDEX_MAX) {
            Ok(text) => index(&text, now, files, verified),
            Err(PadError::File { why, .. }) => verified.fault(INDEX, "index", why),
            Err(error) => return Err(error),
        }
    }
    let tensors = certificate.tensors.iter();
    let listed: BTreeSet<&str> = tensors.map(|t| &*t.name).collect();
    for name in now.keys().filter(|n| !listed.contains(n.as_str())) {
        verified.fault(name, "extra", "the certificate does not list it");
    }
    Ok(())
}

fn index(text: &str, now: &Tensors, files: &Files, verified: &mut Verified) {
    let Some((map, total)) = config::read_index(text) else {
        verified.fault(INDEX, "index", "it is no index");
        return;
    };
    let size: u64 = now.values().map(|t| t.bytes).fold(0, u64::saturating_add);
    // What a file that is not there held is not counted.
    let whole = files.values().all(Option::is_some);
    if let Some(total) = total.filter(|&total| whole && total != size) {
        let why = format!("total_size={total}, but tensors take {size}");
        verified.fault(INDEX, "index", why);
    }
    for (name, listed) in &map {
        let held = match files.get(listed) {
            Some(None) => continue,
            Some(Some(file)) => file.entry(name).is_some(),
            None => false,
        };
        if !held {
            let listed: String = listed.chars().take(NAME_MAX).collect();
            let why = format!("the index says that it is in {listed}, where it is not");
            verified.fault(name, "index", why);
        }
    }
    let opened = files.iter().filter_map(|(n, f)| Some((n, f.as_ref()?)));
    for (holder, file) in opened {
        for name in file.names().filter(|name| !map.contains_key(*name)) {
            let why = format!("it is in {holder}, but the index does not list it");
            verified.fault(name, "index", why);
        }
    }
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
    certificate: &Certificate,
    there: &[Seen],
    verified: &mut Verified,
    progress: &mut Progress<'_>,
) -> Result<(), PadError> {
    let notes = &certificate.files;
    let holders = names(certificate);
    let known = |name: &str| notes.iter().any(|f| f.name == name) || holders.contains(name);
    for seen in there {
        if seen.name != CERTIFICATE && !known(&seen.name) {
            verified.fault(&seen.name, "extra", "the certificate does not list it");
        }
    }
    for note in notes {
        if !there.iter().any(|seen| seen.name == note.name) {
            verified.fault(&note.name, "missing", "the certificate lists it");
            continue;
        }
        verified.files += 1;
        let most = match &*note.name {
            CONFIG => FILE_LIMIT,
            INDEX => INDEX_MAX,
            _ => u64::MAX,
        };
        // Of what is too large to be one, the size is the finding.
        if there.iter().any(|s| s.name == note.name && s.bytes > most) {
            continue;
        }
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
