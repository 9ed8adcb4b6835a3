//! The record of a padding: what was asked, what became of each tensor, and what was checked.
//!
//! It must not be trusted: `verify` holds the files against it, and it against the files. Layer 8.

use super::error::PadError;
use super::recipe::{Recipe, Request};
use safetensors::Dtype;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Its name beside the tensors.
pub const CERTIFICATE: &str = "padproof-certificate.json";
/// Version of its form: readers refuse others.
const SCHEMA: u64 = 1;
/// Largest that is read: a tensor takes about 300 bytes, and DeepSeek-V3 has 90 000.
const BYTES_MAX: u64 = 256 << 20;

/// The tool's name and version.
pub(super) fn tool() -> String {
    format!("padproof {}", env!("CARGO_PKG_VERSION"))
}

/// What lies beside a padded checkpoint's tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Version of this form.
    pub schema: u64,
    /// The tool and its version.
    pub tool: String,
    /// What was asked for.
    pub request: Request,
    /// The rule's version and source, where a rule padded.
    #[serde(deserialize_with = "Option::deserialize")]
    pub rule: Option<RuleNote>,
    /// What it means for this model.
    pub plan: Recipe,
    /// Every tensor, in the order of files and data.
    pub tensors: Vec<TensorNote>,
    /// What the headers of files with tensors say beside them, by file.
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// Every other file.
    pub files: Vec<FileNote>,
    /// The padded tensors, cut over the ranks as a plain loader does, held against the input.
    #[serde(deserialize_with = "Option::deserialize")]
    pub audit: Option<AuditNote>,
    /// The layer computed from padded bytes, held against the reference from unpadded ones.
    pub differential: Vec<DifferentialNote>,
    /// BLAKE3 of this record as JSON without spaces, with this entry empty: what was not written so
    /// by accident. Who changes it on purpose can change this too.
    #[serde(default)]
    pub seal: String,
}

/// Where a rule is known from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleNote {
    /// Its id.
    pub id: String,
    /// Version of the stack that was read.
    pub version: String,
    /// Where it was read.
    pub source: String,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorNote {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape in the input.
    pub shape: Vec<usize>,
    /// BLAKE3 of its bytes in the input.
    pub input: String,
    /// Shape and BLAKE3 in the output, where it changed.
    #[serde(deserialize_with = "Option::deserialize")]
    pub output: Option<OutputNote>,
}

/// What a tensor became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputNote {
    /// Its shape.
    pub shape: Vec<usize>,
    /// BLAKE3 of its bytes.
    pub blake3: String,
}

/// One file that holds no tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileNote {
    /// Its path in the checkpoint.
    pub name: String,
    /// BLAKE3 in the input.
    pub input: String,
    /// BLAKE3 in the output, where it changed.
    #[serde(deserialize_with = "Option::deserialize")]
    pub output: Option<String>,
}

/// What an audit of the result found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditNote {
    /// Layers that were looked at, a draft's too.
    pub layers: u64,
    /// Layers whose shared experts were looked at. Left out where there are none.
    #[serde(default, skip_serializing_if = "none")]
    pub shared: u64,
    /// Experts in each of them that were looked at, of all.
    pub experts: (u64, u64),
    /// Bytes held against the plan.
    pub checked_bytes: u64,
    /// Elements found in their place.
    pub elements: u64,
    /// Pads found inert.
    pub pads: u64,
    /// Places that differ; nothing is written where there is one.
    pub differing: u64,
    /// Which part of large experts was looked at. Left out where all of each was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
}

/// What a comparison of outputs found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifferentialNote {
    /// What the layer's tensors are named with.
    pub prefix: String,
    /// The experts that took part.
    pub experts: Vec<u64>,
    /// Tokens.
    pub tokens: u64,
    /// Output elements compared with the reference.
    pub elements: u64,
    /// Those of them that prove nothing: NaN or beyond f32, padded and unpadded. Left out where there
    /// are none.
    #[serde(default, skip_serializing_if = "none")]
    pub vacuous: u64,
    /// The verdict in words.
    pub verdict: String,
}

impl DifferentialNote {
    /// Whether outputs were computed, and none of them proves anything.
    pub(super) fn proves_nothing(&self) -> bool {
        self.vacuous > 0 && self.vacuous == self.elements
    }
}

fn none(n: &u64) -> bool {
    *n == 0
}

impl Certificate {
    fn digest(&self) -> String {
        let open = Certificate {
            seal: String::new(),
            ..self.clone()
        };
        let text = serde_json::to_vec(&open).expect("names and numbers are JSON");
        blake3::hash(&text).to_hex().to_string()
    }

    /// Whether it is as it was written, but for a change that made the seal anew.
    pub fn is_sealed(&self) -> bool {
        self.seal == self.digest()
    }

    /// The same with its seal.
    pub fn sealed(self) -> Certificate {
        Certificate {
            seal: self.digest(),
            ..self
        }
    }

    /// What no padding writes, though it can be read: a request that the plan is not of, differences.
    pub(super) fn odd(&self) -> Option<String> {
        let (asked, planned) = (self.request.tp, self.plan.tp);
        if asked != planned {
            return Some(format!("request.tp={asked}, but plan.tp={planned}"));
        }
        match &self.audit {
            Some(audit) if audit.differing > 0 => Some(format!(
                "audit.differing={}, where a certificate is of none",
                audit.differing
            )),
            _ => None,
        }
    }

    /// Reads the certificate of a padded checkpoint.
    ///
    /// # Errors
    /// When it is not there, too large, or not of this form.
    pub fn read(folder: &Path) -> Result<Certificate, PadError> {
        let path = folder.join(CERTIFICATE);
        let text = super::before::bytes(&path, BYTES_MAX)?;
        Certificate::parse(&text, &path.display().to_string())
    }

    /// Reads a certificate's text; `file` is for messages.
    ///
    /// # Errors
    /// When it cannot be read: it is too large, no JSON, or of another version of this form; and when no padding
    /// wrote it so: its keys or their values are not those of the form, or its plan's sizes disagree. What it says
    /// of the request and of an audit is not judged here.
    pub fn parse(text: &[u8], file: &str) -> Result<Certificate, PadError> {
        let shown = |why: String| {
            let cut: String = why.chars().take(300).collect();
            cut.escape_debug().to_string()
        };
        let unread = |why: String| PadError::File {
            file: file.to_owned(),
            why: shown(why),
        };
        let odd = |why: String| PadError::NotWritten {
            file: file.to_owned(),
            why: shown(why),
        };
        if text.len() as u64 > BYTES_MAX {
            return Err(unread(format!("larger than {BYTES_MAX} bytes")));
        }
        let read = serde_json::from_slice::<Certificate>(text);
        if read.is_err() {
            serde_json::from_slice::<IgnoredAny>(text).map_err(|e| unread(e.to_string()))?;
        }
        // Another version may have other keys.
        let version = match &read {
            Ok(certificate) => Some(certificate.schema),
            Err(_) => serde_json::from_slice(text)
                .ok()
                .map(|Version { schema }| schema),
        };
        if let Some(schema) = version.filter(|&schema| schema != SCHEMA) {
            return Err(unread(format!(
                "schema={schema}, and this program reads {SCHEMA}"
            )));
        }
        let certificate = read.map_err(|e| odd(e.to_string()))?;
        if !certificate.plan.holds() {
            let width = &certificate.plan.routed.width;
            return Err(odd(format!(
                "the sizes of its plan do not agree with each other: tp={}, routed from {} to {} in {} slots of {}, or its pads or shared experts",
                certificate.plan.tp,
                width.from,
                width.to,
                width.pieces.len(),
                width.slot
            )));
        }
        Ok(certificate)
    }

    pub(super) const fn schema() -> u64 {
        SCHEMA
    }
}

/// What says whether the rest can be read.
#[derive(Deserialize)]
struct Version {
    schema: u64,
}
