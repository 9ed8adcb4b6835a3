//! BLAKE3 of files and tensors, a piece at a time.
//!
//! It must not know which digest is wanted. Layer 8.

use super::error::{PadError, io_at};
use super::stream;
use super::write::{Progress, Step};
use crate::checkpoint::TensorFile;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// Bytes that are hashed on several threads.
const HASH_THREADS: usize = 1 << 20;

/// Copies a file and gives its BLAKE3.
pub(super) fn hashed(
    source: &Path,
    out: &mut dyn Write,
    progress: &mut Progress<'_>,
) -> Result<String, PadError> {
    let mut file = File::open(source).map_err(io_at(source))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize().to_hex().to_string()),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(io_at(source)(error)),
        };
        hash(&mut hasher, &buffer[..n]);
        out.write_all(&buffer[..n]).map_err(io_at(source))?;
        progress(Step::Read(n as u64));
    }
}

/// More bytes of what is hashed, on several threads where that pays.
pub(super) fn hash(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    match bytes.len() >= HASH_THREADS {
        true => hasher.update_rayon(bytes),
        false => hasher.update(bytes),
    };
}

/// The BLAKE3 of a tensor of `bytes` bytes.
pub(super) fn hashed_tensor(
    file: &TensorFile,
    name: &str,
    bytes: u64,
    progress: &mut Progress<'_>,
) -> Result<String, PadError> {
    let mut hasher = blake3::Hasher::new();
    let mut read = |range| {
        let bytes = file.data(name, range)?;
        progress(Step::Read(bytes.len() as u64));
        Ok(bytes)
    };
    let mut sink = |bytes: &[u8]| {
        hash(&mut hasher, bytes);
        Ok(())
    };
    stream::whole(bytes, &mut read, &mut sink)?;
    Ok(hasher.finalize().to_hex().to_string())
}
