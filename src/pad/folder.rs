//! The folder that a padded checkpoint is made in, its journal, and what the input looked like.
//!
//! It must not know tensors. Nothing that looks finished stands at the output's place before all is:
//! files are made in `OUT.padproof-partial/checkpoint`, each beside its name and then renamed, and
//! the folder is renamed last. Layer 8.

use super::certificate::{CERTIFICATE, FileNote, TensorNote};
use super::error::{PadError, io_at};
use super::space::may_write;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What a partial folder's name adds to the output's.
const PARTIAL: &str = ".padproof-partial";
const JOURNAL: &str = "journal";
const CHECKPOINT: &str = "checkpoint";
/// How a journal begins, which is with a [`Head`].
const JOURNAL_BEGINS: &[u8] = br#"{"tool":"padproof "#;
/// What a file's name adds while it is written.
const WRITING: &str = ".padproof-writing";
/// Tries at a lock, and the time between two.
const LOCK_TRIES: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(25);
/// Folders inside a checkpoint that are followed.
const DEPTH_MAX: usize = 8;

/// A file of the input, as it was when the run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Its path below the checkpoint, with `/` between.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Nanoseconds since 1970 of its last change.
    changed: u128,
}

/// What a run is: another request, tool or input is another run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) tool: String,
    pub(super) request: String,
    pub(super) input: String,
    pub(super) files: Vec<Seen>,
}

/// One file that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Whether it is the input's file under another name.
    pub(super) linked: bool,
    pub(super) tensors: Vec<TensorNote>,
    pub(super) file: Option<FileNote>,
}

/// Every file of a checkpoint, in order; hidden folders are left out, links to files are followed.
/// Nothing else is left out in silence.
pub(super) fn list(folder: &Path) -> Result<Vec<Seen>, PadError> {
    list_but(folder, &mut |error| Err(error))
}

/// The same, telling what is neither a file nor a folder to be followed.
pub(super) fn list_but(folder: &Path, odd: &mut Odd<'_>) -> Result<Vec<Seen>, PadError> {
    let mut all = Vec::new();
    walk(folder, "", 0, &mut all, odd)?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// What becomes of an entry that is no part of a checkpoint.
pub(super) type Odd<'a> = dyn FnMut(PadError) -> Result<(), PadError> + 'a;

fn walk(
    at: &Path,
    below: &str,
    depth: usize,
    all: &mut Vec<Seen>,
    odd: &mut Odd<'_>,
) -> Result<(), PadError> {
    for entry in fs::read_dir(at).map_err(io_at(at))? {
        let path = entry.map_err(io_at(at))?.path();
        let name = path.file_name().unwrap_or_default();
        let is = |why: &str| PadError::File {
            file: path.display().to_string(),
            why: why.to_owned(),
        };
        let Some(name) = name.to_str() else {
            odd(is("its name is no UTF-8, and certificates are text"))?;
            continue;
        };
        let name = format!("{below}{name}");
        let meta = match path.metadata() {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                odd(is("a link that leads nowhere"))?;
                continue;
            }
            Err(error) => return Err(io_at(&path)(error)),
        };
        if meta.is_file() {
            all.push(seen(&path, name)?);
        } else if !meta.is_dir() {
            odd(is("neither a file nor a folder"))?;
        } else if hidden(&path) {
            continue;
        } else if path.is_symlink() {
            odd(is("a link to a folder, which is not followed"))?;
        } else if depth >= DEPTH_MAX {
            odd(is("a folder more than 8 deep"))?;
        } else {
            walk(&path, &format!("{name}/"), depth + 1, all, odd)?;
        }
    }
    Ok(())
}

fn hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn seen(path: &Path, name: String) -> Result<Seen, PadError> {
    let meta = path.metadata().map_err(io_at(path))?;
    let changed = meta.modified().map_err(io_at(path))?;
    Ok(Seen {
        name,
        bytes: meta.len(),
        changed: changed
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos()),
    })
}

/// Fails where a file of the input is no longer what was seen.
pub(super) fn unchanged(folder: &Path, files: &[Seen]) -> Result<(), PadError> {
    for file in files {
        let path = folder.join(&file.name);
        if !matches!(seen(&path, file.name.clone()), Ok(now) if now == *file) {
            return Err(PadError::Changed {
                file: path.display().to_string(),
            });
        }
    }
    Ok(())
}

/// The folder that an unfinished output is in.
pub fn partial(out: &Path) -> PathBuf {
    let mut name = no_slash(out).into_os_string();
    name.push(PARTIAL);
    PathBuf::from(name)
}

/// The same path without a slash at its end: what is put after its name would lie inside.
pub(super) fn no_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Whether another run has the journal's lock. A process that is just being started holds what its
/// parent had open until it runs, so one refusal proves nothing.
fn held_elsewhere(journal: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        match journal.try_lock() {
            Err(fs::TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_WAIT),
            // Had, or a file system without locks.
            Ok(()) | Err(fs::TryLockError::Error(_)) => return false,
        }
    }
    true
}

/// Whether a file is named as one that is being written: it is removed when a run goes on.
pub(super) fn is_in_the_making(name: &str) -> bool {
    name.ends_with(WRITING)
}

/// An output in the making; the journal's lock keeps other runs out.
pub(super) struct Making {
    partial: PathBuf,
    out: PathBuf,
    journal: File,
    /// What an earlier run of the same kind had finished.
    pub(super) done: Vec<Done>,
}

impl Making {
    /// Goes on with what an equal run left, or starts anew.
    pub(super) fn start(out: &Path, head: &Head) -> Result<Making, PadError> {
        let partial = partial(out);
        left_by_padding(&partial)?;
        fs::create_dir_all(&partial).map_err(io_at(&partial))?;
        let path = partial.join(JOURNAL);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut journal = options.open(&path).map_err(io_at(&path))?;
        if held_elsewhere(&journal) {
            return Err(PadError::Busy(out.display().to_string()));
        }
        let (first, rest, end) = read_journal(&journal).map_err(io_at(&path))?;
        let mut making = Making {
            partial,
            out: out.to_owned(),
            journal: journal.try_clone().map_err(io_at(&path))?,
            done: Vec::new(),
        };
        let folder = making.folder();
        if folder.exists() {
            // The lists of both runs: another request starts anew, and removes only what was made here.
            let files = first
                .iter()
                .flat_map(|first| &first.files)
                .chain(&head.files);
            let mut known: BTreeSet<String> = files.map(|file| file.name.clone()).collect();
            known.insert(CERTIFICATE.to_owned());
            if let Some(name) = stranger(&folder, "", &known)? {
                return Err(PadError::File {
                    file: folder.display().to_string(),
                    why: format!(
                        "holds `{}`, which no unfinished padding left; move it away, nothing was written",
                        name.escape_debug()
                    ),
                });
            }
        }
        if first.as_ref() == Some(head) {
            // A line that a kill cut short is written over.
            journal.set_len(end).map_err(io_at(&path))?;
            journal.seek(SeekFrom::End(0)).map_err(io_at(&path))?;
            let whole = |done: &Done| {
                let meta = folder.join(&done.name).metadata();
                meta.is_ok_and(|meta| meta.is_file() && meta.len() == done.bytes)
            };
            making.done = rest.into_iter().filter(whole).collect();
            // What was being written when the run was killed is no file of the checkpoint.
            let there = if folder.exists() {
                list(&folder)?
            } else {
                Vec::new()
            };
            for file in there.iter().filter(|file| is_in_the_making(&file.name)) {
                let path = folder.join(&file.name);
                fs::remove_file(&path).map_err(io_at(&path))?;
            }
        } else {
            // Before its journal, which says whose it is.
            if folder.exists() {
                fs::remove_dir_all(&folder).map_err(io_at(&folder))?;
            }
            journal.set_len(0).map_err(io_at(&path))?;
            journal.rewind().map_err(io_at(&path))?;
            making.note(head)?;
        }
        fs::create_dir_all(&folder).map_err(io_at(&folder))?;
        Ok(making)
    }

    /// Where the files go.
    pub(super) fn folder(&self) -> PathBuf {
        self.partial.join(CHECKPOINT)
    }

    /// Writes a line of the journal.
    pub(super) fn note(&mut self, line: &impl Serialize) -> Result<(), PadError> {
        let mut text = serde_json::to_vec(line).expect("names and numbers are JSON");
        text.push(b'\n');
        let path = self.partial.join(JOURNAL);
        let at = self.journal.stream_position().map_err(io_at(&path))?;
        may_write(
            &path.display().to_string(),
            at.saturating_add(text.len() as u64),
        )?;
        self.journal.write_all(&text).map_err(io_at(&path))?;
        self.journal.sync_data().map_err(io_at(&path))
    }

    /// Makes one file of so many bytes: `write` fills it beside its name.
    pub(super) fn file<T>(
        &self,
        (name, bytes): (&str, u64),
        write: impl FnOnce(&mut File, &Path) -> Result<T, PadError>,
    ) -> Result<T, PadError> {
        let path = self.place(name)?;
        may_write(&path.display().to_string(), bytes)?;
        let mut beside = path.clone().into_os_string();
        beside.push(WRITING);
        let beside = PathBuf::from(beside);
        let mut file = File::create(&beside).map_err(io_at(&path))?;
        let made = write(&mut file, &path)?;
        file.sync_data().map_err(io_at(&path))?;
        fs::rename(&beside, &path).map_err(io_at(&path))?;
        Ok(made)
    }

    /// Makes one file that is the input's under another name, where the system can.
    pub(super) fn link(&self, name: &str, source: &Path) -> Result<bool, PadError> {
        let path = self.place(name)?;
        if path.exists() {
            fs::remove_file(&path).map_err(io_at(&path))?;
        }
        // The file itself, and not a symbolic link to it.
        let source = source.canonicalize().map_err(io_at(source))?;
        Ok(fs::hard_link(source, &path).is_ok())
    }

    fn place(&self, name: &str) -> Result<PathBuf, PadError> {
        let path = self.folder().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_at(parent))?;
        }
        Ok(path)
    }

    /// Removes what was made.
    pub(super) fn abandon(self) -> Result<(), PadError> {
        let folder = self.folder();
        fs::remove_dir_all(&folder).map_err(io_at(&folder))?;
        fs::remove_dir_all(&self.partial).map_err(io_at(&self.partial))
    }

    /// Puts the folder in its place.
    pub(super) fn finish(self) -> Result<(), PadError> {
        let folder = self.folder();
        if self.out.symlink_metadata().is_ok() {
            return Err(PadError::Exists(self.out.display().to_string()));
        }
        if let Ok(opened) = File::open(&folder) {
            // Not every system syncs folders; the names are then written when it likes.
            let _ = opened.sync_all();
        }
        fs::rename(&folder, &self.out).map_err(io_at(&self.out))?;
        fs::remove_dir_all(&self.partial).map_err(io_at(&self.partial))
    }
}

/// Removes what a run left that was killed after its output was in its place.
pub(super) fn sweep(out: &Path) -> Result<(), PadError> {
    let partial = partial(out);
    let ours = partial.join(JOURNAL).exists() && left_by_padding(&partial).is_ok();
    if ours && !partial.join(CHECKPOINT).exists() {
        fs::remove_dir_all(&partial).map_err(io_at(&partial))?;
    }
    Ok(())
}

/// The first entry of a folder in the making that padding does not make: it makes files of known names, no links.
fn stranger(
    folder: &Path,
    below: &str,
    known: &BTreeSet<String>,
) -> Result<Option<String>, PadError> {
    for entry in fs::read_dir(folder).map_err(io_at(folder))? {
        let entry = entry.map_err(io_at(folder))?;
        let kind = entry.file_type().map_err(io_at(folder))?;
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        let made = known.contains(name.strip_suffix(WRITING).unwrap_or(&name));
        let inside = format!("{name}/");
        let parent = known.iter().any(|file| file.starts_with(&inside));
        if kind.is_dir() && parent {
            let found = stranger(&entry.path(), &inside, known)?;
            if found.is_some() {
                return Ok(found);
            }
        } else if !(kind.is_file() && made) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Refuses what stands in a partial folder's place and no padding left there.
fn left_by_padding(partial: &Path) -> Result<(), PadError> {
    let not = |what: &str| PadError::File {
        file: partial.display().to_string(),
        why: format!("{what}, which no unfinished padding left; move it away, nothing was written"),
    };
    match partial.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_at(partial)(error)),
        Ok(meta) if !meta.is_dir() => return Err(not("a file or a link")),
        Ok(_) => {}
    }
    let (mut begun, mut made) = (Vec::new(), false);
    for entry in fs::read_dir(partial).map_err(io_at(partial))? {
        let entry = entry.map_err(io_at(partial))?;
        let kind = entry.file_type().map_err(io_at(partial))?;
        let path = entry.path();
        match entry.file_name().to_str() {
            Some(CHECKPOINT) if kind.is_dir() => made = true,
            Some(JOURNAL) if kind.is_file() => {
                let opened = File::open(&path).map_err(io_at(&path))?;
                let mut taken = opened.take(JOURNAL_BEGINS.len() as u64);
                taken.read_to_end(&mut begun).map_err(io_at(&path))?;
            }
            _ => {
                let name = entry
                    .file_name()
                    .to_string_lossy()
                    .escape_debug()
                    .to_string();
                return Err(not(&format!("holds `{name}`")));
            }
        }
    }
    // Files are made after the journal's first line is whole.
    match JOURNAL_BEGINS.starts_with(&begun) && (!made || begun == JOURNAL_BEGINS) {
        true => Ok(()),
        false => Err(not("has another journal")),
    }
}

/// The first line, the rest up to the first that does not parse, and where that begins.
fn read_journal(journal: &File) -> io::Result<(Option<Head>, Vec<Done>, u64)> {
    let mut reader = BufReader::new(journal);
    let mut end = 0;
    let first = line::<Head>(&mut reader, &mut end)?;
    let mut rest = Vec::new();
    if first.is_some() {
        while let Some(done) = line::<Done>(&mut reader, &mut end)? {
            rest.push(done);
        }
    }
    Ok((first, rest, end))
}

fn line<T: DeserializeOwned>(reader: &mut impl BufRead, end: &mut u64) -> io::Result<Option<T>> {
    let mut text = Vec::new();
    let mut taken = reader.take(1 << 30);
    taken.read_until(b'\n', &mut text)?;
    if text.last() != Some(&b'\n') {
        return Ok(None);
    }
    let read = serde_json::from_slice(&text).ok();
    if read.is_some() {
        *end += u64::try_from(text.len()).unwrap_or(u64::MAX);
    }
    Ok(read)
}
