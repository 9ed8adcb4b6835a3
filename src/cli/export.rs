//! Opens the reporters: one on standard output, the others beside their files, renamed when done.
//!
//! It must not format. Layer 11.

use super::args::{Color, Conduct, RunFormat};
use super::error::CliError;
use super::output::stdout;
use crate::report::{Concise, Human, Json, Jsonl, Junit, Verbosity};
use crate::run::{Event, Reporter};
use anstream::StripStream;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A reporter of the format over `out`.
fn reporter<'w>(
    format: RunFormat,
    out: impl Write + 'w,
    verbosity: Verbosity,
    keep: bool,
) -> Box<dyn Reporter + 'w> {
    match format {
        RunFormat::Human => Box::new(Human::new(out, verbosity, keep)),
        RunFormat::Concise => Box::new(Concise::new(out)),
        RunFormat::Json => Box::new(Json::new(out)),
        RunFormat::Jsonl => Box::new(Jsonl::new(out)),
        RunFormat::Junit => Box::new(Junit::new(out)),
    }
}

/// The reporter on standard output.
pub(super) fn standard(conduct: &Conduct, color: Color, keep: bool) -> Standard {
    let verbosity = match (conduct.quiet, conduct.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, 0) => Verbosity::Normal,
        (_, 1) => Verbosity::Verbose,
        _ => Verbosity::Full,
    };
    Standard {
        reporter: reporter(conduct.format, stdout(color), verbosity, keep),
        needed: conduct.export.is_empty(),
        failed: None,
    }
}

/// The reporter on standard output; where files are written too, a stream that fails ends only
/// this one.
pub(super) struct Standard {
    reporter: Box<dyn Reporter>,
    needed: bool,
    failed: Option<io::Error>,
}

impl Standard {
    /// What stopped it; a reader that went away did not.
    pub(super) fn ended(self) -> Result<(), CliError> {
        match self.failed {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::Output(error)),
            _ => Ok(()),
        }
    }
}

impl Reporter for Standard {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        match self.reporter.event(event) {
            Err(error) if !self.needed => self.failed = Some(error),
            other => return other,
        }
        Ok(())
    }
}

/// One file to be written.
pub(super) struct Export {
    format: RunFormat,
    path: PathBuf,
    sink: Sink,
}

/// Where an export's bytes go.
enum Sink {
    /// A file beside its place until it is whole.
    Beside(NamedTempFile, PathBuf),
    /// A pipe, a device or an open file: no name that a file could take.
    Straight(File),
}

/// The exports that were asked for, each opened; no two go to one place.
pub(super) fn exports(asked: &[(RunFormat, PathBuf)]) -> Result<Vec<Export>, CliError> {
    let mut places = Vec::new();
    for (_, path) in asked {
        let place = place(path).map_err(|source| named(path, source))?;
        if places.contains(&place) {
            let path = path.display();
            return Err(CliError::Usage(format!("{path}: two exports to one file")));
        }
        places.push(place);
    }
    let opened = asked.iter().zip(places);
    opened
        .map(|((format, path), place)| Export::open(*format, path, place))
        .collect()
}

impl Export {
    fn open(format: RunFormat, path: &Path, place: PathBuf) -> Result<Self, CliError> {
        let sink = sink(path, place).map_err(|source| named(path, source))?;
        Ok(Export {
            format,
            path: path.to_owned(),
            sink,
        })
    }

    /// The reporter that writes it, without colour.
    pub(super) fn reporter(&self, keep: bool) -> Result<Box<dyn Reporter + '_>, CliError> {
        let file = match &self.sink {
            Sink::Beside(file, _) => file.as_file(),
            Sink::Straight(file) => file,
        };
        let file = file.try_clone().map_err(|e| named(&self.path, e))?;
        let plain = BufWriter::new(StripStream::new(file));
        Ok(Box::new(Named {
            reporter: reporter(self.format, plain, Verbosity::Normal, keep),
            path: &self.path,
        }))
    }

    /// Puts the whole file in its place.
    pub(super) fn persist(self) -> Result<(), CliError> {
        match self.sink {
            Sink::Straight(_) => Ok(()),
            Sink::Beside(file, place) => match file.persist(place) {
                Ok(_) => Ok(()),
                Err(error) => Err(named(&self.path, error.error)),
            },
        }
    }
}

/// A reporter whose errors carry its file's name.
struct Named<'p> {
    reporter: Box<dyn Reporter>,
    path: &'p Path,
}

impl Reporter for Named<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let told = self.reporter.event(event);
        told.map_err(|source| io::Error::other(named(self.path, source)))
    }
}

fn named(path: &Path, source: io::Error) -> CliError {
    CliError::File {
        file: path.display().to_string(),
        source,
    }
}

/// The path that a file is put at: behind symbolic links, in the folder's one name.
fn place(path: &Path) -> io::Result<PathBuf> {
    if direct(path)? {
        return Ok(path.to_owned());
    }
    let mut place = path.to_owned();
    // A circle of links has failed above.
    while let Ok(link) = place.read_link() {
        place = folder(&place).join(link);
    }
    let name = (place.file_name()).ok_or_else(|| io::Error::other("is no file name"))?;
    Ok(folder(&place).canonicalize()?.join(name))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Whether bytes go straight into what is there: all but files, and files that a process holds open.
fn direct(path: &Path) -> io::Result<bool> {
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(io::Error::other("is a directory")),
        Ok(there) => Ok(!there.is_file() || path.starts_with("/dev") || path.starts_with("/proc")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn sink(path: &Path, place: PathBuf) -> io::Result<Sink> {
    if direct(path)? {
        let file = File::options().append(true).open(path)?;
        return Ok(Sink::Straight(file));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".padproof-");
    #[cfg(unix)]
    {
        // As any other new file, under the user's mask.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    // The error names the file beside, which nobody asked for.
    let plain = |error: io::Error| {
        let text = error.to_string();
        let cause = text.split(" at path ").next().unwrap_or_default();
        io::Error::new(error.kind(), cause.to_owned())
    };
    let file = builder.tempfile_in(folder(&place)).map_err(plain)?;
    if let Ok(old) = place.metadata() {
        file.as_file().set_permissions(old.permissions())?;
    }
    Ok(Sink::Beside(file, place))
}
