//! What there is to say of a padding beside its sizes.
//!
//! It must not read files. Layer 8.

use super::certificate::Certificate;
use super::folder::Seen;
use super::outputs::BEYOND;

/// What names of files end with that hold weights of other kinds.
const OTHER_WEIGHTS: [&str; 8] = [
    ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx",
];

/// One sentence each; `held` says which files hold the tensors that were padded.
pub(super) fn notes(
    files: &[Seen],
    held: &dyn Fn(&str) -> bool,
    certificate: &Certificate,
) -> Vec<String> {
    let mut notes = Vec::new();
    for name in files.iter().map(|f| &f.name).filter(|name| !held(name)) {
        if name.ends_with(".safetensors") {
            notes.push(format!(
                "{name} is in no index: copied as it is, with experts at their old width if it holds any"
            ));
        } else if OTHER_WEIGHTS.iter().any(|end| name.ends_with(end)) {
            notes.push(format!(
                "{name} is no safetensors file: copied as it is, not padded, whatever weights it holds"
            ));
        }
    }
    for note in &certificate.differential {
        let prefix = &note.prefix;
        if note.proves_nothing() {
            notes.push(format!(
                "{prefix}: outputs prove nothing, every output is {BEYOND}, of every expert that was looked at; bytes were held against the input's"
            ));
        } else if note.vacuous > 0 {
            let (n, all) = (note.vacuous, note.elements);
            notes.push(format!(
                "{prefix}: some outputs prove nothing: {n} of {all} elements, {BEYOND}"
            ));
        }
    }
    notes
}
