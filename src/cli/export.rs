//! Opens the reporters: one on standard output, the others beside their files, renamed when done.
//!
//! It must not format. Layer 11.

use super::args::{Color, Conduct, RunFormat};
use super::error::CliError;
use super::output::stdout;
use crate::report::{Concise, Human, Json, Jsonl, Junit, Verbosity};
use crate::run::Reporter;
use anstream::StripStream;
use std::io::{BufWriter, Write};
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
pub(super) fn standard(conduct: &Conduct, color: Color, keep: bool) -> Box<dyn Reporter> {
    let verbosity = match (conduct.quiet, conduct.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, 0) => Verbosity::Normal,
        (_, 1) => Verbosity::Verbose,
        _ => Verbosity::Full,
    };
    reporter(conduct.format, stdout(color), verbosity, keep)
}

/// One file to be written: beside its place until it is whole.
pub(super) struct Export {
    format: RunFormat,
    path: PathBuf,
    file: NamedTempFile,
}

impl Export {
    /// Opens a file beside the path.
    pub(super) fn open(format: RunFormat, path: &Path) -> Result<Self, CliError> {
        let file = |source| CliError::File {
            file: path.display().to_string(),
            source,
        };
        if path.is_dir() {
            return Err(file(std::io::Error::other("is a directory")));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".padproof-");
        #[cfg(unix)]
        {
            // As any other new file, under the user's mask.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        Ok(Export {
            format,
            path: path.to_owned(),
            file: builder.tempfile_in(folder).map_err(file)?,
        })
    }

    /// The reporter that writes it, without colour.
    pub(super) fn reporter(&self, keep: bool) -> Result<Box<dyn Reporter>, CliError> {
        let file = self.file.as_file().try_clone().map_err(CliError::Output)?;
        let plain = BufWriter::new(StripStream::new(file));
        Ok(reporter(self.format, plain, Verbosity::Normal, keep))
    }

    /// Puts the whole file in its place.
    pub(super) fn persist(self) -> Result<(), CliError> {
        let name = self.path.display().to_string();
        self.file
            .persist(&self.path)
            .map(drop)
            .map_err(|error| CliError::File {
                file: name,
                source: error.error,
            })
    }
}
