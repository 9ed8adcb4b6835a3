//! The files with tensors that a certificate lists, each opened if it holds.
//!
//! It must not read data. What is wrong with a file is a fault, and no error. Layer 8.

use super::certificate::Certificate;
use super::change::Shaped;
use super::error::{PadError, io_at};
use super::treat::Tensors;
use super::verify::Verified;
use crate::checkpoint::{CheckpointError, TensorFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

/// By name; none where one is not there, or is no file of tensors.
pub(super) type Files = BTreeMap<String, Option<TensorFile>>;

/// The names of files with tensors.
pub(super) fn names(certificate: &Certificate) -> BTreeSet<String> {
    let tensors = certificate.tensors.iter().map(|t| &t.file);
    tensors
        .chain(certificate.metadata.keys())
        .cloned()
        .collect()
}

/// Opens them; what does not hold is told.
///
/// # Errors
/// When the system refuses to read one that is there.
pub(super) fn open(
    folder: &Path,
    certificate: &Certificate,
    verified: &mut Verified,
) -> Result<Files, PadError> {
    let mut files = Files::new();
    for name in names(certificate) {
        let path = folder.join(&name);
        // A name that leads elsewhere is not followed.
        let plain = Path::new(&name).file_name().is_some_and(|n| n == &*name);
        let opened = match plain {
            false => Err("the certificate lists it, but it is no plain file name".to_owned()),
            true => match TensorFile::open(&path) {
                Ok(file) => Ok(file),
                Err(CheckpointError::Io { source, .. }) => match source.kind() {
                    ErrorKind::NotFound => Err("the certificate lists it".to_owned()),
                    _ => return Err(io_at(&path)(source)),
                },
                Err(error) => {
                    verified.fault(&name, "bytes", error.what());
                    files.insert(name, None);
                    continue;
                }
            },
        };
        let opened = opened.map_err(|why| verified.fault(&name, "missing", why));
        files.insert(name, opened.ok());
    }
    Ok(files)
}

/// Every tensor of the files that hold.
pub(super) fn shapes(files: &Files, verified: &mut Verified) -> Tensors {
    let opened = files
        .iter()
        .filter_map(|(name, file)| Some((Path::new(name), file.as_ref()?)));
    let (all, twice) = listed(opened);
    for (name, [first, second]) in twice {
        let why = format!("it is in {} and in {}", first.display(), second.display());
        verified.fault(name, "extra", why);
    }
    all
}

/// Names that two files have, with both.
type Twice<'a> = Vec<(&'a str, [&'a Path; 2])>;

/// Every tensor of some files.
pub(super) fn listed<'a>(
    files: impl IntoIterator<Item = (&'a Path, &'a TensorFile)>,
) -> (Tensors, Twice<'a>) {
    let (mut all, mut twice) = (Tensors::new(), Twice::new());
    let mut holders: BTreeMap<&str, &Path> = BTreeMap::new();
    for (path, file) in files {
        for name in file.names() {
            let entry = file.entry(name).expect("it was just listed");
            let shaped = Shaped {
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                bytes: entry.bytes,
            };
            all.insert(name.to_owned(), shaped);
            if let Some(other) = holders.insert(name, path) {
                twice.push((name, [other, path]));
            }
        }
    }
    (all, twice)
}
