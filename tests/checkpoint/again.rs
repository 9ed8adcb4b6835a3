//! Goal: what stands beside a padding, an output of that name, another file, an odd config, is seen.
//! Method: pad invented checkpoints in folders that are not as a first run meets them.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::padded::everything;
use crate::checkpoint::scene::{Asked, Made, Scene, pad_with, verified};
use crate::checkpoint::verified::{json, resealed};
use padproof::pad::{CERTIFICATE, Outcome};
use std::path::{Path, PathBuf};

const ASKED: Asked = Asked::Align { tp: 2, align: 16 };
/// What would pad further.
const MORE: Asked = Asked::Align { tp: 2, align: 64 };

/// A small checkpoint that nothing is odd about.
fn plain() -> Scene {
    Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN))
}

/// The same with what was padded of it, in a folder that is kept as long.
fn padded() -> (Scene, tempfile::TempDir, PathBuf) {
    let scene = plain();
    let (keep, out) = scene.out();
    scene.padded(&out, &ASKED);
    (scene, keep, out)
}

/// The partial folder would lie inside an output that is named with a slash.
#[test]
fn an_output_may_be_named_as_folders_are() {
    let scene = plain();
    for end in ["", "/", "//.", "/./"] {
        let (_keep, out) = scene.out();
        let named = PathBuf::from(format!("{}{end}", out.display()));
        scene.padded(&named, &ASKED);
        assert_eq!(verified(&out).faults, 0, "{end}");
        assert!(!out.join(".padproof-partial").exists());
    }
}

/// A folder of that name was emptied, and a link followed, whatever it held.
#[test]
fn a_partial_folder_that_no_padding_left_is_not_touched() {
    let scene = plain();
    let (_keep, out) = scene.out();
    let partial = padproof::pad::partial(&out);
    let theirs = out.with_file_name("theirs");
    let refused = |files: &[&str], why: &str| {
        let error = scene.pad(&out, &ASKED).unwrap_err().to_string();
        assert!(error.contains(why) && !out.exists(), "{error}");
        for file in files {
            assert_eq!(std::fs::read_to_string(partial.join(file)).unwrap(), "mine");
        }
    };
    let write = |folder: &Path, name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "mine").unwrap();
    };
    write(&partial, "mine.txt");
    refused(&["mine.txt"], "holds `mine.txt`");
    std::fs::remove_dir_all(&partial).unwrap();
    write(&theirs, "journal");
    write(&theirs, "checkpoint/big.bin");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&theirs, &partial).unwrap();
        refused(&["journal", "checkpoint/big.bin"], "a file or a link");
        std::fs::remove_file(&partial).unwrap();
    }
    std::fs::rename(&theirs, &partial).unwrap();
    refused(&["journal", "checkpoint/big.bin"], "has another journal");
    std::fs::remove_file(partial.join("journal")).unwrap();
    refused(&["checkpoint/big.bin"], "has another journal");
    std::fs::remove_dir_all(&partial).unwrap();
    // What a run left that was killed in its first line.
    write(&partial, "journal");
    std::fs::write(partial.join("journal"), "{\"tool\":\"padpr").unwrap();
    scene.padded(&out, &ASKED);
    assert_eq!(verified(&out).faults, 0);
    assert!(!partial.exists());
}

/// Opening a pipe waits for who writes into it: verify and pad never ended.
#[cfg(unix)]
#[test]
fn pipes_in_place_of_files_are_no_regular_files() {
    use std::process::Command;
    let scene = plain();
    for name in [
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00003.safetensors",
        CERTIFICATE,
    ] {
        let (_keep, out) = scene.out();
        scene.padded(&out, &ASKED);
        std::fs::remove_file(out.join(name)).unwrap();
        let made = Command::new("mkfifo").arg(out.join(name)).status().unwrap();
        assert!(made.success());
        // One that waits must not hold up the test.
        let run = Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_padproof"), "verify"])
            .arg(&out)
            .output()
            .unwrap();
        let wanted = if name == CERTIFICATE { 2 } else { 1 };
        assert_eq!(run.status.code(), Some(wanted), "{name}: {run:?}");
        let all = [run.stdout, run.stderr].concat();
        let told = String::from_utf8_lossy(&all).into_owned();
        assert!(told.contains("not a regular file"), "{name}: {told}");
    }
}

/// A config that is a pipe held up plan and pad, and one of 8 GiB was hashed for half a minute.
#[cfg(unix)]
#[test]
fn configs_and_indexes_that_are_none_are_told_at_once() {
    use std::process::Command;
    let (scene, _keep, out) = padded();
    let within = |verb: &str, more: &[&str], paths: &[&Path]| {
        Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_padproof"), verb])
            .args(paths)
            .args(more)
            .output()
            .unwrap()
    };
    for (name, limit) in [
        ("config.json", "16777216"),
        ("model.safetensors.index.json", "268435456"),
    ] {
        let path = out.join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let run = within("verify", &[], &[&out]);
        let told = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(run.status.code(), Some(1), "{name}: {run:?}");
        let why = format!("larger than {limit} bytes");
        assert!(told.contains(&why), "{name}: {told}");
        std::fs::write(&path, whole).unwrap();
        let path = scene.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let twice = out.with_file_name("twice");
        let error = scene.pad(&twice, &ASKED).unwrap_err().to_string();
        assert!(error.contains(&why), "{name}: {error}");
        if name == "config.json" {
            crate::checkpoint::refused(&within("plan", &[], &[scene.path()]), &why);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let pads = ["--tp", "2", "--align", "16"];
        let run = within("pad", &pads, &[scene.path(), &twice]);
        assert_eq!(run.status.code(), Some(2), "{name}: {run:?}");
        if name == "config.json" {
            for path in [scene.path(), &path] {
                crate::checkpoint::refused(&within("plan", &[], &[path]), "not a regular file");
            }
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, whole).unwrap();
    }
}

/// Either alone was believed: pad padded a padded checkpoint again, from 64 to 128.
#[test]
fn a_key_without_a_certificate_and_a_certificate_without_a_key_are_refused() {
    let (scene, _keep, out) = padded();
    let twice = out.with_file_name("twice");
    let refused = |folder: &Path, words: &[&str]| {
        for asked in [&ASKED, &MORE] {
            let error = pad_with(folder, &twice, asked).unwrap_err().to_string();
            for word in words {
                assert!(error.contains(word), "{error}");
            }
            assert!(error.lines().count() == 1 && !twice.exists(), "{error}");
            assert!(!padproof::pad::partial(&twice).exists());
        }
    };
    let (config, certificate) = (out.join("config.json"), out.join(CERTIFICATE));
    let whole = std::fs::read(&config).unwrap();
    json(&config, |value| {
        value.as_object_mut().unwrap().remove("padproof").unwrap();
    });
    let [config_place, place] = [&config, &certificate].map(|p| p.display().to_string());
    refused(&out, &[&place, &config_place, "has no key `padproof`"]);
    // Beside a checkpoint that was never padded.
    let theirs = scene.path().join(CERTIFICATE);
    std::fs::copy(&certificate, &theirs).unwrap();
    refused(
        scene.path(),
        &[
            &theirs.display().to_string(),
            "has no key `padproof`",
            "move the certificate away",
        ],
    );
    std::fs::remove_file(&theirs).unwrap();
    // A link that leads nowhere is a certificate that was taken away.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", &theirs).unwrap();
        refused(scene.path(), &["has no key `padproof`"]);
        std::fs::remove_file(&theirs).unwrap();
    }
    std::fs::write(&config, whole).unwrap();
    let whole = std::fs::read(&certificate).unwrap();
    std::fs::write(&certificate, "{").unwrap();
    refused(
        &out,
        &[
            &config_place,
            "its certificate cannot be read",
            &place,
            "EOF",
        ],
    );
    std::fs::remove_file(&certificate).unwrap();
    refused(
        &out,
        &[
            &config_place,
            "has the key `padproof`",
            &place,
            "is not there",
        ],
    );
    std::fs::write(&certificate, whole).unwrap();
    let again = pad_with(&out, &twice, &ASKED);
    assert!(matches!(again, Ok(Outcome::Nothing(_))), "{again:?}");
}

/// NemotronH's configs hold `"time_step_limit": [0.0, Infinity]`.
#[test]
fn a_config_that_only_python_reads_is_known_as_padded() {
    let scene = plain();
    let path = scene.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replacen('{', "{\n  \"time_step_limit\": [0.0, Infinity],", 1);
    std::fs::write(&path, text).unwrap();
    let (_keep, out) = scene.out();
    scene.padded(&out, &ASKED);
    assert_eq!(verified(&out).faults, 0);
    let again = pad_with(&out, &out.with_file_name("b"), &MORE);
    assert!(again.unwrap_err().to_string().contains("was padded before"));
}

#[test]
fn more_experts_than_there_are_tensors_are_missing_at_once() {
    let scene = plain();
    let path = scene.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["num_experts"] = (1u64 << 40).into();
    std::fs::write(&path, config.to_string()).unwrap();
    let (_keep, out) = scene.out();
    let error = scene.pad(&out, &ASKED).unwrap_err().to_string();
    assert!(error.contains("no tensor `"), "{error}");
}

#[test]
fn another_checkpoint_with_the_same_config_is_not_said_to_be_padded() {
    let (_scene, _keep, out) = padded();
    let other = plain();
    let same = other.pad(&out, &ASKED);
    assert!(
        matches!(same, Ok(Outcome::Nothing(_))),
        "equal bytes: {same:?}"
    );
    let shard = other.path().join("model-00001-of-00003.safetensors");
    let mut bytes = std::fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let error = other.pad(&out, &ASKED).unwrap_err().to_string();
    assert!(error.contains("is there already"), "{error}");
}

/// Without an index engines load every file, and the format's own readers `model.safetensors`.
#[test]
fn nothing_of_a_folder_is_left_behind_in_silence() {
    let scene = plain();
    let (_keep, out) = scene.out();
    let refused = |why: &str| {
        let error = scene.pad(&out, &ASKED).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!out.exists() && !padproof::pad::partial(&out).exists());
    };
    let link = scene.path().join("linked");
    std::os::unix::fs::symlink(scene.path().join("extra"), &link).unwrap();
    refused("a link to a folder");
    std::fs::remove_file(&link).unwrap();
    let deep = scene.path().join("1/2/3/4/5/6/7/8/9");
    std::fs::create_dir_all(&deep).unwrap();
    refused("more than 8 deep");
    std::fs::remove_dir_all(scene.path().join("1")).unwrap();
    let path = |name: &str| scene.path().join(name);
    std::fs::remove_file(path("model.safetensors.index.json")).unwrap();
    std::fs::rename(
        path("model-00001-of-00003.safetensors"),
        path("model.safetensors"),
    )
    .unwrap();
    refused("model-00002-of-00003.safetensors holds experts");
}

#[test]
fn an_output_that_was_damaged_is_not_said_to_be_done() {
    let (scene, _keep, out) = padded();
    let shard = out.join("model-00001-of-00003.safetensors");
    let whole = std::fs::read(&shard).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for bytes in [Some(&flipped[..]), Some(&whole[..99]), Some(&[]), None] {
        std::fs::remove_file(&shard).unwrap();
        if let Some(bytes) = bytes {
            std::fs::write(&shard, bytes).unwrap();
        }
        let error = scene.pad(&out, &ASKED).unwrap_err().to_string();
        assert!(error.contains("not as it was written"), "{error}");
        std::fs::write(&shard, &whole).unwrap();
    }
    assert!(matches!(scene.pad(&out, &ASKED), Ok(Outcome::Nothing(_))));
}

#[test]
fn padding_again_writes_nothing_and_says_why() {
    let (scene, _keep, out) = padded();
    let nothing = |folder: &Path, out: &Path, asked: &Asked| match pad_with(folder, out, asked) {
        Ok(Outcome::Nothing(sentence)) => sentence,
        other => panic!("{other:?}"),
    };
    let again = nothing(scene.path(), &out, &ASKED);
    assert!(again.contains("padded so already"), "{again}");
    let twice = out.with_file_name("twice");
    let of_result = nothing(&out, &twice, &ASKED);
    assert!(of_result.contains("padded so already"), "{of_result}");
    let whole = nothing(scene.path(), &twice, &Asked::Align { tp: 2, align: 22 });
    assert!(whole.contains("nothing to pad"), "{whole}");
    assert!(!twice.exists());
    let refused = |folder: &Path, out: &Path, asked: &Asked| {
        pad_with(folder, out, asked).unwrap_err().to_string()
    };
    let there = refused(scene.path(), &out, &MORE);
    assert!(there.contains("is there already"), "{there}");
    let padded = refused(&out, &twice, &MORE);
    let sizes = "was padded before, from 44 to 64";
    assert!(padded.contains(sizes), "{padded}");
}

/// Its certificate was believed unread: a stale or forged one made a damaged folder "padded so already".
#[test]
fn a_padded_input_is_held_against_its_certificate_before_that_is_believed() {
    let (_scene, _keep, out) = padded();
    let twice = out.with_file_name("twice");
    let told = |asked: &Asked, why: &str| {
        let error = pad_with(&out, &twice, asked).unwrap_err().to_string();
        assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        assert!(!twice.exists() && !padproof::pad::partial(&twice).exists());
    };
    let file = |name: &str| {
        let path = out.join(name);
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    };
    let (path, whole) = file("model-00001-of-00003.safetensors");
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (bytes, why) in [(&flipped[..], "is not the pad"), (&whole[..99], "(bytes)")] {
        std::fs::write(&path, bytes).unwrap();
        told(&ASKED, why);
    }
    std::fs::write(&path, &whole).unwrap();
    let (path, whole) = file("model.safetensors.index.json");
    std::fs::write(&path, "{}").unwrap();
    told(&ASKED, "index");
    std::fs::write(&path, &whole).unwrap();
    // Certificates of other requests: one that agrees with itself, and one of another folder.
    let (path, whole) = file(CERTIFICATE);
    json(&path, |value| value["request"]["align"] = 64.into());
    resealed(&out);
    told(&MORE, "its width of 64 would still become 128");
    let other = Scene::new(Made::new("e=2,h=32,i=60,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, others) = other.out();
    other.padded(&others, &ASKED);
    std::fs::copy(others.join(CERTIFICATE), &path).unwrap();
    told(&ASKED, "says its padproof-certificate.json, but");
    std::fs::write(&path, &whole).unwrap();
    assert!(matches!(
        pad_with(&out, &twice, &ASKED),
        Ok(Outcome::Nothing(_))
    ));
}

#[test]
fn what_pad_wrote_is_padded_already_in_every_family_and_quantisation() {
    for (made, align) in everything() {
        let scene = Scene::new(made);
        let (_keep, out) = scene.out();
        let asked = Asked::Align { tp: 2, align };
        scene.padded(&out, &asked);
        let again = pad_with(&out, &out.with_file_name("twice"), &asked);
        assert!(
            matches!(again, Ok(Outcome::Nothing(_))),
            "{}: {again:?}",
            made.line
        );
    }
}
