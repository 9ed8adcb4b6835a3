//! Defines a file entry: an invented checkpoint, padded for ranks, with a fault or without, and what
//! an audit of the files must say.
//!
//! It must not write files or audit. Layer 8.

use super::error::Fault;
use super::raw::{OneOrMany, RawFile};
use crate::case::Case;
use std::collections::BTreeMap;

/// One audit of files that is held to what the entry expects.
#[derive(Debug, Clone, PartialEq)]
pub struct FileEntry {
    /// Full name, for example `reports/b41-order`.
    pub name: String,
    /// The layer, and how it is padded.
    pub case: Case,
    /// What is wrong with the padded files.
    pub plant: Plant,
    /// What the audit must say.
    pub expect: FileExpect,
    /// Why the entry is there.
    pub why: Option<String>,
    /// Where its story is told.
    pub link: Option<String>,
    /// Line of the entry in the file, from 1.
    pub line: usize,
}

/// What is done to padded files before they are audited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plant {
    /// Nothing.
    Nothing,
    /// What a mutant makes, in these tensors alone; in all if none is named.
    Fault {
        /// The mutant's name.
        name: String,
        /// Names of tensors.
        tensors: Vec<String>,
    },
    /// A code in every pad of a tensor, storage's own aside.
    Pads {
        /// The tensor's name.
        tensor: String,
        /// The code.
        code: u32,
    },
    /// Rows of a tensor in another order, in groups as long as the list.
    Rows {
        /// The tensor's name.
        tensor: String,
        /// Which row of the group stands at each place.
        order: Vec<usize>,
    },
}

/// What an audit must say; what is left out is not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileExpect {
    /// Names of the faults, in order; none where the files are clean.
    pub names: Vec<String>,
    /// Whether something differs that no name explains.
    pub unnamed: bool,
    /// Tensors that alone show the fault.
    pub tensors: Option<Vec<String>>,
    /// Ranks whose files differ.
    pub ranks: Option<Vec<usize>>,
    /// Elements compared.
    pub elements: Option<u64>,
    /// Pads judged, storage's own included.
    pub pads: Option<u64>,
    /// Places that differ, by tensor.
    pub differing: BTreeMap<String, u64>,
    /// Bytes of a rank's tensors, by name.
    pub bytes: BTreeMap<String, u64>,
}

/// An entry as its table says it.
pub(super) fn file(
    name: String,
    case: Case,
    raw: RawFile,
    line: usize,
) -> Result<FileEntry, Fault> {
    let wrong = |key: &str, value: String, wanted| Fault::Value {
        name: name.clone(),
        key: key.to_owned(),
        value,
        wanted,
    };
    let plant = match (raw.fault, raw.pads, raw.rows) {
        (None, None, None) => Plant::Nothing,
        (Some(name), None, None) => Plant::Fault {
            name,
            tensors: raw.tensors,
        },
        (None, Some(pads), None) => Plant::Pads {
            tensor: pads.tensor,
            code: pads.code,
        },
        (None, None, Some(rows)) => {
            let mut sorted = rows.order.clone();
            sorted.sort_unstable();
            if rows.order.is_empty() || !sorted.into_iter().eq(0..rows.order.len()) {
                let value = format!("{:?}", rows.order);
                return Err(wrong("rows.order", value, "an order of rows, each once"));
            }
            Plant::Rows {
                tensor: rows.tensor,
                order: rows.order,
            }
        }
        _ => {
            let value = "several".to_owned();
            return Err(wrong("fault, pads, rows", value, "one of them"));
        }
    };
    let mut names = match raw.expect.name {
        None => Vec::new(),
        Some(OneOrMany::One(name)) => vec![name],
        Some(OneOrMany::Many(names)) => names,
    };
    let unnamed = names == ["unnamed"];
    if unnamed {
        names.clear();
    }
    Ok(FileEntry {
        case,
        plant,
        expect: FileExpect {
            names,
            unnamed,
            tensors: raw.expect.tensors,
            ranks: raw.expect.ranks,
            elements: raw.expect.elements,
            pads: raw.expect.pads,
            differing: raw.expect.differing,
            bytes: raw.expect.bytes,
        },
        why: raw.why,
        link: raw.link,
        line,
        name,
    })
}
