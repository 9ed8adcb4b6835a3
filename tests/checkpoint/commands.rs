//! `padproof pad` and `padproof verify` as a user meets them.

use crate::invent::{Family, MIXTRAL, QWEN};
use crate::scene::{Asked, Made, Scene};
use crate::{refused, snapshot};
use padproof::checkpoint::Checkpoint;
use std::path::Path;
use std::process::{Command, Output};

fn padproof(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_padproof"))
        .arg(args[0])
        .args(paths)
        .args(&args[1..])
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn text(out: &Output, scene: &Scene, folder: &Path) -> String {
    let text = String::from_utf8(out.stdout.clone()).unwrap();
    let text = text.replace(scene.path().to_str().unwrap(), "CHECKPOINT");
    text.replace(folder.to_str().unwrap(), "FOLDER")
}

#[test]
fn a_checkpoint_is_padded_verified_and_found_dirty() {
    let made = Made {
        shared: 1,
        ..Made::new("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN)
    };
    let scene = Scene::new(made);
    let (folder, out) = scene.out();
    let asked = ["pad", "--tp", "2", "--align", "16"];
    let run = padproof(&asked, &[scene.path(), &out]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    snapshot("pad@padded", &text(&run, &scene, folder.path()));
    let run = padproof(&asked, &[scene.path(), &out]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    snapshot("pad@again", &text(&run, &scene, folder.path()));
    let run = padproof(&["verify"], &[&out]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    snapshot("verify@pass", &text(&run, &scene, folder.path()));
    let shard = out.join("model-00001-of-00003.safetensors");
    let mut bytes = std::fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let run = padproof(&["verify"], &[&out]);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    snapshot("verify@fail", &text(&run, &scene, folder.path()));
}

#[test]
fn what_cannot_be_padded_is_one_sentence() {
    let scene = Scene::new(Made::new("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (folder, out) = scene.out();
    let pad = |more: &[&str]| {
        padproof(
            &[&["pad", "--tp", "2"], more].concat(),
            &[scene.path(), &out],
        )
    };
    refused(&pad(&[]), "--rule");
    refused(&pad(&["--align", "0"]), "0");
    refused(
        &pad(&["--align", "16", "--rule", "sglang.triton.bf16"]),
        "--rule",
    );
    refused(
        &pad(&["--rule", "sglang.triton.bf61"]),
        "sglang.triton.bf16",
    );
    refused(&pad(&["--align", "1099511627776"]), "more than 16777216");
    refused(&pad(&["--align", "18446744073709551615"]), "64 bits");
    refused(
        &pad(&["--align", "16", "--hidden-align", "512"]),
        "hidden=32 would become 512",
    );
    refused(&pad(&["--align", "16", "--in-place", "yes"]), "never");
    refused(
        &padproof(
            &["pad", "--tp", "2", "--align", "16"],
            &[Path::new("gone"), &out],
        ),
        "gone",
    );
    refused(
        &padproof(&["verify"], &[folder.path()]),
        "padproof-certificate.json",
    );
    refused(
        &padproof(&["verify"], &[scene.path()]),
        "padproof-certificate.json",
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Every tensor as Python's safetensors reads it: a line of name, type, shape and bytes.
const READ: &str = r#"
import pathlib, safetensors, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    for name, tensor in sorted(safetensors.deserialize(path.read_bytes())):
        print(name, tensor["dtype"], list(tensor["shape"]), bytes(tensor["data"]).hex(), sep="|")
"#;

#[test]
#[expect(clippy::print_stdout, reason = "a skip says why")]
fn pythons_safetensors_reads_the_same_bytes() {
    let python =
        |args: &[&std::ffi::OsStr]| std::process::Command::new("python3").args(args).output();
    let here = python(&[
        "-c".as_ref(),
        "from safetensors import deserialize".as_ref(),
    ]);
    if !here.is_ok_and(|out| out.status.success()) {
        println!("skipped: no python3 with safetensors");
        return;
    }
    for made in [
        Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN),
        Made::new("e=2,h=256,i=320,tp=2,w=fp8-block,fill=wild", MIXTRAL),
        Made::new("e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild", QWEN),
        Made::new(
            "e=3,h=64,i=96,tp=2,act=swigluoai,w=mxfp4,bias=both,fill=wild",
            Family::GptOss,
        ),
        Made {
            native: true,
            ..Made::new("e=2,h=64,i=96,tp=2,w=mxfp4,fill=wild", QWEN)
        },
        Made {
            ints: true,
            ..Made::new("e=2,h=64,i=96,tp=2,w=int4-g32,fill=wild", QWEN)
        },
    ] {
        let scene = Scene::new(made);
        let (_keep, out) = scene.out();
        scene.padded(&out, &Asked::Align { tp: 2, align: 64 });
        let read = python(&["-c".as_ref(), READ.as_ref(), out.as_os_str()]).unwrap();
        assert!(
            read.status.success(),
            "{}",
            String::from_utf8_lossy(&read.stderr)
        );
        let read = String::from_utf8(read.stdout).unwrap();
        let checkpoint = Checkpoint::open(&out).unwrap();
        let lines: std::collections::BTreeMap<&str, &str> = read
            .lines()
            .map(|line| line.split_once('|').unwrap())
            .collect();
        assert_eq!(lines.len(), checkpoint.names().count(), "{}", made.line);
        for name in checkpoint.names() {
            let (file, entry) = checkpoint.entry(name).unwrap();
            let bytes = file.data(name, 0..entry.bytes).unwrap();
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            let (head, data) = lines[name].rsplit_once('|').unwrap();
            assert_eq!(data, hex, "{}: {name}", made.line);
            assert!(
                head.ends_with(&format!("{:?}", entry.shape)),
                "{name}: {head}"
            );
        }
    }
}
