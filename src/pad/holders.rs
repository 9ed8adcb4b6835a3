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
pub(super) fn open(folder: &Path, verified: &mut Verified) -> Result<Files, PadError> {
    let mut files = Files::new();
    for name in names(&verified.certificate) {
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
                    let place = format!("{}: ", path.display());
                    let why = error.to_string();
                    verified.fault(&name, "bytes", why.replacen(&place, "", 1));
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

/// Every tensor of every file.
pub(super) fn shapes(files: &Files, verified: &mut Verified) -> Tensors {
    let mut all = Tensors::new();
    let opened = files.iter().filter_map(|(n, f)| Some((n, f.as_ref()?)));
    for (holder, file) in opened {
        for name in file.names() {
            let entry = file.entry(name).expect("it was just listed");
            let shaped = Shaped {
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                bytes: entry.bytes,
            };
            if all.insert(name.to_owned(), shaped).is_some() {
                let why = format!("it is in {holder} and in another file as well");
                verified.fault(name, "extra", why);
            }
        }
    }
    all
}
