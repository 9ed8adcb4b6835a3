//! `padproof pad` and `padproof verify` as a user meets them.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::scene::{Made, Scene};
use crate::checkpoint::{padproof, refused, snapshot};
use padproof::checkpoint::{self, TensorFile};
use std::path::Path;
use std::process::Output;

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
    refused(&pad(&[]), "--rule <ID>|--align <N>");
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

/// More than the file system has: a hole at the end of a shard that is to be written anew.
#[test]
#[cfg(unix)]
#[expect(clippy::print_stdout, reason = "a skip says why")]
fn what_does_not_fit_is_said_before_anything_is_written() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let path = scene.path().join("model-00001-of-00003.safetensors");
    let file = TensorFile::open(&path).unwrap();
    let room = rustix::fs::statvfs(scene.path()).unwrap();
    let hole = room.f_bavail * room.f_frsize + (1 << 30);
    let shape = [usize::try_from(hole).unwrap()];
    let mut outputs: Vec<checkpoint::Output<'_>> = file
        .in_order()
        .into_iter()
        .map(|name| {
            let entry = file.entry(name).unwrap();
            let (dtype, shape, bytes) = (entry.dtype, &*entry.shape, entry.bytes);
            checkpoint::Output {
                name,
                dtype,
                shape,
                bytes,
            }
        })
        .collect();
    let mut data = Vec::new();
    for one in &outputs {
        data.extend(file.data(one.name, 0..one.bytes).unwrap());
    }
    outputs.push(checkpoint::Output {
        name: "model.hole",
        dtype: safetensors::Dtype::U8,
        shape: &shape,
        bytes: hole,
    });
    let head = checkpoint::header("shard", file.metadata(), &outputs).unwrap();
    std::fs::write(&path, [&*head, &*data].concat()).unwrap();
    let whole = (head.len() + data.len()) as u64 + hole;
    let index = scene.path().join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&index).unwrap();
    let listed = "\"weight_map\": {\"model.hole\": \"model-00001-of-00003.safetensors\",";
    std::fs::write(&index, text.replace("\"weight_map\": {", listed)).unwrap();
    let opened = std::fs::File::options().write(true).open(&path).unwrap();
    if let Err(why) = opened.set_len(whole) {
        println!("skipped: no file with a hole of {hole} bytes here: {why}");
        return;
    }
    let (folder, out) = scene.out();
    let run = padproof(
        &["pad", "--tp", "2", "--align", "16"],
        &[scene.path(), &out],
    );
    refused(&run, "are free there; nothing was written");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
