//! The header of a safetensors file that is to be written.
//!
//! It must not write data. Layer 4.

use super::error::{CheckpointError, file_error};
use super::file::count;
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Multiple of bytes that a header takes, so that data are aligned.
const ALIGN: usize = 8;

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output<'a> {
    /// Its name.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Shape in elements.
    pub shape: &'a [usize],
    /// Bytes of its data.
    pub bytes: u64,
}

/// A file's bytes before its data, for tensors in the order of their data; `file` is for messages.
///
/// # Errors
/// When the file would be larger than 64 bits can say.
pub fn header(
    file: &str,
    metadata: &BTreeMap<String, String>,
    tensors: &[Output<'_>],
) -> Result<Vec<u8>, CheckpointError> {
    let mut map = Map::new();
    if !metadata.is_empty() {
        map.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut at = 0_u64;
    for tensor in tensors {
        let end = at
            .checked_add(tensor.bytes)
            .ok_or_else(|| file_error(file, "its data would be larger than 64 bits can say"))?;
        let entry =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]});
        map.insert(tensor.name.to_owned(), entry);
        at = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(ALIGN), b' ');
    let mut bytes = count(text.len()).to_le_bytes().to_vec();
    bytes.extend(text);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TensorFile;

    #[test]
    fn a_header_is_what_the_reader_takes() {
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        let tensor = |name, dtype, shape, bytes| Output {
            name,
            dtype,
            shape,
            bytes,
        };
        let tensors = [
            tensor("z", Dtype::BF16, &[2, 3], 12),
            tensor("a\"b", Dtype::F8_E8M0, &[], 1),
            tensor("f", Dtype::F4, &[3, 2], 3),
        ];
        let mut bytes = header("x", &metadata, &tensors).expect("it fits");
        assert!(bytes.len().is_multiple_of(8));
        bytes.extend(0..16);
        let file = TensorFile::from_bytes("x", bytes).expect("it holds");
        assert_eq!(file.in_order(), ["z", "a\"b", "f"]);
        assert_eq!(file.metadata(), &metadata);
        assert_eq!(file.data("f", 0..3).expect("data"), [13, 14, 15]);
    }
}
