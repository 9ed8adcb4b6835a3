//! One safetensors file: its header, checked whole, and ranges of its data.

use super::error::{CheckpointError, file_error, shown, tensor_error};
use super::unique::Unique;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// Largest header that is read: what the format's own library takes.
const HEADER_MAX: u64 = 100_000_000;
/// Bytes of the header's length.
const LENGTH: u64 = 8;

/// What a header says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Element type.
    pub dtype: Dtype,
    /// Shape in elements.
    pub shape: Vec<usize>,
    /// First byte of its data in the file.
    start: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

/// Where a file's bytes are.
enum Source {
    File(File),
    Bytes(Vec<u8>),
}

/// A safetensors file whose header holds: entries follow each other without gaps or overlaps,
/// sizes are shapes times types, and the file ends with the last of them.
pub struct TensorFile {
    name: String,
    source: Source,
    tensors: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    metadata: Option<Unique<String>>,
    #[serde(flatten)]
    tensors: Unique<TensorInfo>,
}

impl TensorFile {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// When it cannot be read, or its header does not hold.
    pub fn open(path: &Path) -> Result<TensorFile, CheckpointError> {
        let name = path.display().to_string();
        let io = |source| CheckpointError::Io {
            file: name.clone(),
            source,
        };
        let regular = |metadata: &Metadata| match metadata.is_file() {
            true => Ok(()),
            false => Err(file_error(&name, "not a regular file")),
        };
        // A pipe would be waited for while it is opened.
        regular(&std::fs::metadata(path).map_err(io)?)?;
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        regular(&metadata)?;
        TensorFile::read(name, Source::File(file), metadata.len())
    }

    /// Takes the bytes of a whole file; `name` is for messages.
    ///
    /// # Errors
    /// When its header does not hold.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<TensorFile, CheckpointError> {
        let len = count(bytes.len());
        TensorFile::read(name.to_owned(), Source::Bytes(bytes), len)
    }

    fn read(name: String, source: Source, len: u64) -> Result<TensorFile, CheckpointError> {
        let mut file = TensorFile {
            name,
            source,
            tensors: BTreeMap::new(),
            metadata: BTreeMap::new(),
        };
        let name = file.name.clone();
        if len < LENGTH {
            let why = format!("{len} bytes are no safetensors file, whose header length takes 8");
            return Err(file_error(&name, why));
        }
        let length: [u8; 8] = file
            .range(0..LENGTH)?
            .try_into()
            .expect("eight bytes were asked for");
        let length = u64::from_le_bytes(length);
        let room = len - LENGTH;
        if length > HEADER_MAX || length > room {
            let why = format!(
                "header of {length} bytes, but {room} follow its length and {HEADER_MAX} is the most"
            );
            return Err(file_error(&name, why));
        }
        let text = file.range(LENGTH..LENGTH + length)?;
        let header: Header = serde_json::from_slice(&text)
            .map_err(|e| file_error(&name, format!("header: {}", shown(&e.to_string()))))?;
        file.metadata = header
            .metadata
            .map_or_else(BTreeMap::new, |Unique(all)| all);
        file.tensors = entries(&name, header.tensors.0, LENGTH + length, len)?;
        Ok(file)
    }

    /// The path, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the header says of a tensor.
    pub fn entry(&self, tensor: &str) -> Option<&Entry> {
        self.tensors.get(tensor)
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The names of all tensors in the order of their data.
    pub fn in_order(&self) -> Vec<&str> {
        let mut order: Vec<(u64, &str)> =
            self.tensors.iter().map(|(n, e)| (e.start, &**n)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, name)| name).collect()
    }

    /// The header's string map.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Part of a tensor's data, as byte offsets into it.
    ///
    /// # Errors
    /// When there is no such tensor or part, or the file cannot be read.
    pub fn data(&self, tensor: &str, part: Range<u64>) -> Result<Vec<u8>, CheckpointError> {
        self.range(self.place(tensor, part)?)
    }

    /// Fills `target` with part of a tensor's data, from byte `start` on.
    ///
    /// # Errors
    /// As [`TensorFile::data`].
    pub fn data_into(
        &self,
        tensor: &str,
        start: u64,
        target: &mut [u8],
    ) -> Result<(), CheckpointError> {
        let range = self.place(tensor, start..start.saturating_add(count(target.len())))?;
        self.fill(range.start, target)
    }

    /// Where part of a tensor's data is in the file.
    fn place(&self, tensor: &str, part: Range<u64>) -> Result<Range<u64>, CheckpointError> {
        let entry = self
            .entry(tensor)
            .ok_or_else(|| CheckpointError::NoTensor {
                place: self.name.clone(),
                tensor: shown(tensor),
            })?;
        if part.start > part.end || part.end > entry.bytes {
            let why = format!("no bytes {part:?} in {}", entry.bytes);
            return Err(tensor_error(&self.name, tensor, why));
        }
        Ok(entry.start + part.start..entry.start + part.end)
    }

    /// A range of the file, known to be inside it.
    fn range(&self, range: Range<u64>) -> Result<Vec<u8>, CheckpointError> {
        let too_large = || file_error(&self.name, format!("no bytes {range:?} in memory"));
        let len = usize::try_from(range.end - range.start).map_err(|_| too_large())?;
        let mut bytes = vec![0; len];
        self.fill(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `target` from a place that is known to hold so much.
    fn fill(&self, start: u64, target: &mut [u8]) -> Result<(), CheckpointError> {
        match &self.source {
            Source::Bytes(bytes) => {
                let part = usize::try_from(start).ok().and_then(|start| {
                    let end = start.checked_add(target.len())?;
                    bytes.get(start..end)
                });
                let missing = || file_error(&self.name, format!("no bytes from {start} on"));
                target.copy_from_slice(part.ok_or_else(missing)?);
                Ok(())
            }
            Source::File(file) => {
                let io = |source| CheckpointError::Io {
                    file: self.name.clone(),
                    source,
                };
                let mut file: &File = file;
                file.seek(SeekFrom::Start(start)).map_err(io)?;
                file.read_exact(target).map_err(io)
            }
        }
    }
}

/// Checks that the entries tile `start..end`, and takes them.
fn entries(
    file: &str,
    tensors: BTreeMap<String, TensorInfo>,
    start: u64,
    end: u64,
) -> Result<BTreeMap<String, Entry>, CheckpointError> {
    let mut order: Vec<(&String, &TensorInfo)> = tensors.iter().collect();
    order.sort_by_key(|(_, info)| info.data_offsets);
    let mut at = 0;
    for (name, info) in order {
        let (from, to) = (count(info.data_offsets.0), count(info.data_offsets.1));
        if from != at {
            let what = if from > at { "a gap" } else { "an overlap" };
            let why = format!("data begins at {from}, after {at} bytes of data: {what}");
            return Err(tensor_error(file, name, why));
        }
        let size = size(info).filter(|&size| from.checked_add(size) == Some(to));
        if size.is_none() {
            let why = format!(
                "{} {:?} does not fill data offsets {from}..{to}",
                info.dtype, info.shape
            );
            return Err(tensor_error(file, name, shown(&why)));
        }
        if to > end - start {
            let why = format!("data ends at {to}, the file's data at {}", end - start);
            return Err(tensor_error(file, name, why));
        }
        at = to;
    }
    if at != end - start {
        let rest = end - start - at;
        let why = format!("{rest} bytes at its end belong to no tensor");
        return Err(file_error(file, why));
    }
    let entry = |info: TensorInfo| Entry {
        dtype: info.dtype,
        start: start + count(info.data_offsets.0),
        bytes: count(info.data_offsets.1 - info.data_offsets.0),
        shape: info.shape,
    };
    Ok(tensors
        .into_iter()
        .map(|(name, info)| (name, entry(info)))
        .collect())
}

/// Bytes of shape times type, where they are whole and fit.
fn size(info: &TensorInfo) -> Option<u64> {
    let bits = info
        .shape
        .iter()
        .try_fold(count(info.dtype.bitsize()), |bits, &n| {
            bits.checked_mul(count(n))
        })?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
