//! No file is trusted: each of these is one sentence that names the file, the tensor and the value.

use crate::checkpoint::invent::{Family, Invented, after, before, made};
use padproof::audit::{audit_files, diagnose, layer_shape};
use padproof::checkpoint::{Checkpoint, Dump, Layer, TensorFile};
use padproof::layout::pack_layer;
use std::path::Path;

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[track_caller]
fn refused(bytes: Vec<u8>, words: &[&str]) {
    let Err(error) = TensorFile::from_bytes("bad.safetensors", bytes) else {
        panic!("it was taken");
    };
    let text = error.to_string();
    assert!(text.starts_with("bad.safetensors: "), "{text}");
    assert!(
        !text.chars().any(char::is_control) && text.len() < 600,
        "{text}"
    );
    for word in words {
        assert!(text.contains(word), "`{text}` lacks `{word}`");
    }
}

#[test]
fn headers_that_do_not_hold_are_refused() {
    refused(vec![], &["0 bytes"]);
    refused(vec![1, 2, 3], &["3 bytes"]);
    refused(u64::MAX.to_le_bytes().to_vec(), &["18446744073709551615"]);
    refused(
        9_u64.to_le_bytes().to_vec(),
        &["header of 9 bytes", "0 follow"],
    );
    refused(file("{", 0), &["header", "EOF"]);
    refused(file("[]", 0), &["header"]);
    refused(file(&"[".repeat(100_000), 0), &["header"]);
    refused(file("{\"\u{1b}[2J\":1}", 0), &["header"]);
    refused(file(r#"{"__metadata__":{"a":1}}"#, 0), &["header"]);
    // Readers differ in which of the two they take.
    let one = r#""w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    refused(
        file(&format!("{{{one},{one}}}"), 8),
        &["header", "`w` stands twice"],
    );
    let twice = r#"{"__metadata__":{"a":"1","a":"2"}}"#;
    refused(file(twice, 0), &["header", "`a` stands twice"]);
}

#[test]
fn entries_must_tile_the_data() {
    let one = |dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
    };
    refused(
        file(&one("F32", "[2]", 0, 8), 4),
        &["tensor `w`", "ends at 8", "at 4"],
    );
    refused(file(&one("F32", "[2]", 0, 8), 12), &["4 bytes at its end"]);
    refused(
        file(&one("F32", "[2]", 4, 12), 12),
        &["tensor `w`", "begins at 4", "gap"],
    );
    refused(
        file(&one("F32", "[3]", 0, 8), 8),
        &["tensor `w`", "F32 [3]", "0..8"],
    );
    refused(file(&one("F32", "[2]", 8, 0), 8), &["tensor `w`"]);
    refused(
        file(&one("F4", "[3,5]", 0, 8), 8),
        &["tensor `w`", "F4 [3, 5]"],
    );
    refused(file(&one("F99", "[2]", 0, 8), 8), &["F99"]);
    refused(file(&one("F32", "[-1]", 0, 8), 8), &["-1"]);
    let huge = "[4294967296,4294967296,4294967296]";
    refused(
        file(&one("F32", huge, 0, 8), 8),
        &["tensor `w`", "4294967296"],
    );
    refused(file(&one("F32", "[0]", 0, u64::MAX), 8), &["tensor `w`"]);
    let overlap = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#;
    refused(file(overlap, 6), &["tensor `b`", "begins at 2", "overlap"]);
    let long = format!(
        r#"{{"{}":{{"dtype":"U8","shape":[4],"data_offsets":[1,5]}}}}"#,
        "x".repeat(100_000)
    );
    refused(file(&long, 5), &["xxx…"]);
    assert!(TensorFile::from_bytes("empty", file("{}", 0)).is_ok());
}

#[test]
fn folders_and_indices_are_not_trusted_either() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path| match Checkpoint::open(path).and_then(|c| c.entry("w").map(|_| ())) {
        Ok(()) => panic!("it was taken"),
        Err(error) => error.to_string(),
    };
    assert!(told(&folder.path().join("none")).contains("none"));
    assert!(told(folder.path()).contains("neither"));
    let index = folder.path().join("model.safetensors.index.json");
    for (text, word) in [
        ("", "EOF"),
        ("{}", "weight_map"),
        (
            r#"{"weight_map":{"w":"../up.safetensors"}}"#,
            "no plain file name",
        ),
        (
            r#"{"weight_map":{"w":"/etc/passwd"}}"#,
            "no plain file name",
        ),
        (r#"{"weight_map":{"w":".."}}"#, "no plain file name"),
        (
            r#"{"weight_map":{"w":"gone.safetensors"}}"#,
            "gone.safetensors",
        ),
        (
            r#"{"weight_map":{"v":"gone.safetensors"}}"#,
            "no tensor `w`",
        ),
        (
            r#"{"weight_map":{"w":"there.safetensors"}}"#,
            "no tensor `w`",
        ),
    ] {
        std::fs::write(folder.path().join("there.safetensors"), file("{}", 0)).unwrap();
        std::fs::write(&index, text).unwrap();
        let error = told(folder.path());
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let header = r#"{"w":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}"#;
    std::fs::write(&path, file(header, 64)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.data("w", 0..64).unwrap().len(), 64);
    assert!(checkpoint.data("w", 1..65).is_err());
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(70)
        .unwrap();
    let error = checkpoint.data("w", 0..64).unwrap_err().to_string();
    assert!(error.contains("w.safetensors"), "{error}");
}

/// Both sides of a layer in one file, as the fuzz target `audit_file` takes them.
fn both(line: &str) -> Invented {
    let (case, plan, logical) = made(line);
    let packed = pack_layer(&plan, &logical).unwrap();
    let ranks: Vec<usize> = (0..plan.ranks.len()).collect();
    let mut file = after(&packed, &ranks);
    for (name, dtype, shape, bytes) in before(&case, &logical, Family::Bare, "").tensors {
        file.add(format!("before.{name}"), dtype, &shape, bytes);
    }
    file.metadata.insert("case".to_owned(), line.to_owned());
    file
}

const TINY: &str = "t=0,e=2,k=1,h=4,i=3,tp=2,w=fp8,pad=i4,bias=both,fill=wild";

#[test]
fn no_changed_byte_of_a_file_makes_it_panic() {
    let (_, plan, _) = made(TINY);
    let whole = both(TINY).bytes();
    let mut heard = std::collections::BTreeSet::new();
    let mut audit = |bytes: Vec<u8>| {
        let told = (|| {
            let file = Checkpoint::of_file(TensorFile::from_bytes("bad", bytes)?);
            let layer = Layer::find(&file, layer_shape(&plan, false).unwrap(), None)?;
            let dump = Dump::find(&file, None, None, 2)?;
            let audit = audit_files(&plan, &layer, &dump).map_err(|e| e.to_string());
            let named = audit
                .as_ref()
                .is_ok_and(|audit| diagnose(&plan, &layer, &dump, audit).is_ok());
            Ok::<_, padproof::checkpoint::CheckpointError>(match audit {
                Ok(audit) => format!("clean: {} {named}", audit.clean()),
                Err(error) => error,
            })
        })();
        let text = told.unwrap_or_else(|error| error.to_string());
        assert!(
            !text.chars().any(char::is_control) && text.len() < 600,
            "{text}"
        );
        heard.insert(text);
    };
    for at in 0..whole.len() {
        for change in [b'9', 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = change;
            audit(bytes);
        }
        if at % 16 == 0 {
            audit(whole[..at].to_vec());
        }
    }
    assert!(
        heard.contains("clean: true true") && heard.len() > 100,
        "{}",
        heard.len()
    );
}
