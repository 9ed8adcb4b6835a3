//! A checkpoint: one file, or a directory of shards with its index.

use super::error::{CheckpointError, file_error, shown};
use super::file::{Entry, TensorFile};
use super::unique::Unique;
use serde::Deserialize;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Name of the index beside shards.
pub const INDEX: &str = "model.safetensors.index.json";
/// Name of a file that is all of a checkpoint.
pub const SINGLE: &str = "model.safetensors";
/// Largest index that is read; that of DeepSeek-V3 takes about 9 MB.
const INDEX_MAX: u64 = 256 << 20;

/// Tensors by name, in one or several files; shards are opened when something in them is asked for.
pub struct Checkpoint {
    place: String,
    shards: Vec<Shard>,
    of: BTreeMap<String, usize>,
}

struct Shard {
    path: PathBuf,
    opened: OnceCell<TensorFile>,
}

impl Shard {
    fn new(path: PathBuf) -> Shard {
        Shard {
            path,
            opened: OnceCell::new(),
        }
    }

    fn file(&self) -> Result<&TensorFile, CheckpointError> {
        if self.opened.get().is_none() {
            let file = TensorFile::open(&self.path)?;
            return Ok(self.opened.get_or_init(|| file));
        }
        Ok(self.opened.get().expect("it was just there"))
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: Unique<String>,
}

impl Checkpoint {
    /// Opens a safetensors file, or a directory with an index and shards, or with files alone.
    ///
    /// # Errors
    /// When there is none, or an index or header does not hold.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let place = path.display().to_string();
        if !path.is_dir() {
            return Checkpoint::of_files(place, vec![path.to_owned()]);
        }
        if path.join(INDEX).exists() {
            return Checkpoint::of_index(place, path);
        }
        if path.join(SINGLE).exists() {
            return Checkpoint::of_files(place, vec![path.join(SINGLE)]);
        }
        let io = |source| CheckpointError::Io {
            file: place.clone(),
            source,
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io)? {
            let file = entry.map_err(io)?.path();
            if file.extension().is_some_and(|e| e == "safetensors") {
                files.push(file);
            }
        }
        files.sort();
        if files.is_empty() {
            let why = format!("neither {INDEX} nor a safetensors file is in it");
            return Err(file_error(&place, why));
        }
        Checkpoint::of_files(place, files)
    }

    /// One file that is already open.
    pub fn of_file(file: TensorFile) -> Checkpoint {
        let of = file.names().map(|name| (name.to_owned(), 0)).collect();
        let shard = Shard::new(PathBuf::from(file.name()));
        let place = file.name().to_owned();
        let _ = shard.opened.set(file);
        Checkpoint {
            place,
            shards: vec![shard],
            of,
        }
    }

    fn of_files(place: String, paths: Vec<PathBuf>) -> Result<Checkpoint, CheckpointError> {
        let shards: Vec<Shard> = paths.into_iter().map(Shard::new).collect();
        let mut of = BTreeMap::new();
        for (n, shard) in shards.iter().enumerate() {
            for name in shard.file()?.names() {
                if let Some(other) = of.insert(name.to_owned(), n) {
                    let other = shards[other].path.display();
                    let why = format!("tensor `{}` is in {other} as well", shown(name));
                    return Err(file_error(shard.file()?.name(), why));
                }
            }
        }
        Ok(Checkpoint { place, shards, of })
    }

    fn of_index(place: String, folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let path = folder.join(INDEX);
        let file = path.display().to_string();
        let io = |source| CheckpointError::Io {
            file: file.clone(),
            source,
        };
        let mut text = Vec::new();
        if !std::fs::metadata(&path).map_err(io)?.is_file() {
            return Err(file_error(&file, "not a regular file"));
        }
        let opened = std::fs::File::open(&path).map_err(io)?;
        opened
            .take(INDEX_MAX + 1)
            .read_to_end(&mut text)
            .map_err(io)?;
        if text.len() as u64 > INDEX_MAX {
            return Err(file_error(&file, format!("larger than {INDEX_MAX} bytes")));
        }
        let index: Index =
            serde_json::from_slice(&text).map_err(|e| file_error(&file, shown(&e.to_string())))?;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut shards = Vec::new();
        let mut of = BTreeMap::new();
        for (tensor, shard) in &index.weight_map.0 {
            // A shard lies beside its index: a name that leads elsewhere is not followed.
            let plain = Path::new(shard).file_name().is_some_and(|n| n == &**shard);
            if !plain {
                let why = format!(
                    "tensor `{}` is said to be in `{}`, which is no plain file name",
                    shown(tensor),
                    shown(shard)
                );
                return Err(file_error(&file, why));
            }
            let number = *numbers.entry(shard).or_insert_with(|| {
                shards.push(Shard::new(folder.join(shard)));
                shards.len() - 1
            });
            of.insert(tensor.clone(), number);
        }
        Ok(Checkpoint { place, shards, of })
    }

    /// The files that tensors are listed in, each opened.
    ///
    /// # Errors
    /// When one cannot be read, or its header does not hold.
    pub fn files(&self) -> Result<Vec<(&Path, &TensorFile)>, CheckpointError> {
        let files = self.shards.iter();
        files
            .map(|shard| Ok((&*shard.path, shard.file()?)))
            .collect()
    }

    /// The path, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.of.keys().map(String::as_str)
    }

    /// Whether a tensor of that name is listed.
    pub fn has(&self, tensor: &str) -> bool {
        self.of.contains_key(tensor)
    }

    /// The file that holds a tensor, and what its header says.
    ///
    /// # Errors
    /// When it is not there, or its file does not hold.
    pub fn entry(&self, tensor: &str) -> Result<(&TensorFile, &Entry), CheckpointError> {
        let missing = |place: &str| CheckpointError::NoTensor {
            place: place.to_owned(),
            tensor: shown(tensor),
        };
        let shard = *self.of.get(tensor).ok_or_else(|| missing(&self.place))?;
        let file = self.shards[shard].file()?;
        let entry = file.entry(tensor).ok_or_else(|| missing(file.name()))?;
        Ok((file, entry))
    }

    /// Part of a tensor's data.
    ///
    /// # Errors
    /// As [`Checkpoint::entry`], and when it cannot be read.
    pub fn data(&self, tensor: &str, part: Range<u64>) -> Result<Vec<u8>, CheckpointError> {
        self.entry(tensor)?.0.data(tensor, part)
    }

    /// Fills `target` with part of a tensor's data, from byte `start` on.
    ///
    /// # Errors
    /// As [`Checkpoint::data`].
    pub fn data_into(
        &self,
        tensor: &str,
        start: u64,
        target: &mut [u8],
    ) -> Result<(), CheckpointError> {
        self.entry(tensor)?.0.data_into(tensor, start, target)
    }

    /// A value of the string map of the first file that has one under that key.
    ///
    /// # Errors
    /// When a file does not hold.
    pub fn metadata(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        for shard in &self.shards {
            if let Some(value) = shard.file()?.metadata().get(key) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
