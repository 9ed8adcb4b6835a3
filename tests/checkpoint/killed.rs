//! Goal: a run that is killed leaves nothing that looks finished, and the next one ends right.
//! Method: the program on a checkpoint of many files, killed at fifty moments spread over its time.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::scene::{Asked, Made, Scene, pad_told, verified};
use padproof::pad::{CERTIFICATE, Step, partial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Times that a run is killed.
const KILLS: u32 = 50;

fn start(from: &Path, out: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_padproof"))
        .arg("pad")
        .args([from, out])
        .args(["--tp", "2", "--align", "32"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) {
    let out = child.wait_with_output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Every file below a folder, the certificate aside, whose counts of resumed files may differ.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_owned();
                    all.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
    }
    all
}

#[test]
fn a_killed_run_leaves_nothing_that_looks_finished_and_the_next_ends_right() {
    let scene = Scene::new(Made::new("e=8,h=128,i=200,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, whole) = scene.out();
    let timed = |out: &Path| {
        let began = Instant::now();
        finish(start(scene.path(), out));
        began.elapsed()
    };
    let mut took = timed(&whole);
    let wanted = files(&whole);
    let (mut unfinished, mut partly) = (0, 0);
    // A moment may come too late on a busy machine: it is drawn again, a few times.
    for n in 0..KILLS * 3 {
        let (_folder, out) = scene.out();
        let mut child = start(scene.path(), &out);
        let moment = took * (n % KILLS) / KILLS;
        let began = Instant::now();
        while began.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::park_timeout(Duration::from_micros(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if out.exists() {
            assert_eq!(files(&out), wanted, "after {moment:?}");
        } else {
            unfinished += 1;
            partly += u32::from(partial(&out).exists());
            took = took.min(timed(&out));
            assert_eq!(files(&out), wanted, "again after {moment:?}");
            assert!(!partial(&out).exists());
        }
        if unfinished == KILLS {
            break;
        }
    }
    assert!(
        unfinished == KILLS && partly > 0,
        "{unfinished} unfinished, {partly} begun"
    );
    assert_eq!(verified(&whole).faults, 0);
}

/// A run that stops, as if killed, when it begins with a file.
fn stopped_at(scene: &Scene, out: &Path, asked: &Asked, file: &str) {
    let mut stop = |step: Step<'_>| {
        if matches!(step, Step::Doing(name) if name == file) {
            std::panic::resume_unwind(Box::new("stopped"));
        }
    };
    let run = || pad_told(scene.path(), out, asked, &mut stop);
    let run = std::panic::AssertUnwindSafe(run);
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(!out.exists() && partial(out).exists());
}

fn resumed(scene: &Scene, out: &Path, asked: &Asked) -> usize {
    let padded = scene.padded(out, asked);
    assert_eq!(verified(out).faults, 0);
    assert!(!partial(out).exists());
    std::fs::remove_dir_all(out).unwrap();
    padded.resumed
}

/// They were deleted when a run began anew, and carried into the output when it went on.
#[test]
fn what_others_put_into_an_unfinished_output_is_left_there_and_named() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 32 };
    stopped_at(&scene, &out, &asked, "model-00002-of-00003.safetensors");
    let folder = partial(&out).join("checkpoint");
    for name in [
        "mine.txt",
        "mine/deep.txt",
        "config.json.padproof-writing.txt",
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine").unwrap();
        for align in [32, 64] {
            let error = scene.pad(&out, &Asked::Align { tp: 2, align }).unwrap_err();
            let error = error.to_string();
            let named = name.split('/').next().unwrap();
            assert!(error.contains(&format!("holds `{named}`")), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        }
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_dir(folder.join("mine"));
    }
    #[cfg(unix)]
    {
        // A finished file that now is a link to elsewhere.
        let (config, moved) = (folder.join("config.json"), out.with_file_name("moved.json"));
        std::fs::rename(&config, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &config).unwrap();
        let error = scene.pad(&out, &asked).unwrap_err().to_string();
        assert!(error.contains("holds `config.json`"), "{error}");
        std::fs::remove_file(&config).unwrap();
    }
    // All but the config, which was taken away.
    assert_eq!(resumed(&scene, &out, &asked), 2);
}

#[test]
fn a_run_goes_on_with_what_is_whole_and_starts_anew_when_the_input_or_the_request_changed() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 32 };
    let second = "model-00002-of-00003.safetensors";
    let stop = || stopped_at(&scene, &out, &asked, second);
    stop();
    // A file that another kill cut short, and that this time is linked.
    let cut = partial(&out).join("checkpoint/tokenizer.json.padproof-writing");
    std::fs::write(&cut, "{").unwrap();
    // The config, a note, and the first shard.
    assert_eq!(resumed(&scene, &out, &asked), 3);

    stop();
    assert_eq!(resumed(&scene, &out, &Asked::Align { tp: 2, align: 64 }), 0);

    stop();
    let path = scene.path().join("model-00001-of-00003.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(resumed(&scene, &out, &asked), 0);

    // As long as it says, but not what was written: a tensor's byte, a header's, a text's.
    let flip = |name: &str, byte: &dyn Fn(&[u8]) -> usize| {
        stop();
        let path = partial(&out).join("checkpoint").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = byte(&bytes);
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(resumed(&scene, &out, &asked), 2, "{name}");
    };
    let first = "model-00001-of-00003.safetensors";
    flip(first, &|bytes| bytes.len() - 1);
    flip(first, &|bytes| {
        bytes.windows(2).position(|w| w == b"pt").unwrap()
    });
    flip("config.json", &|bytes| bytes.len() / 2);

    // A journal whose last line was cut short, and a file that is not as long as it says.
    stop();
    let journal = partial(&out).join("journal");
    let mut lines = std::fs::read(&journal).unwrap();
    lines.truncate(lines.len() - 9);
    std::fs::write(&journal, lines).unwrap();
    std::fs::write(partial(&out).join("checkpoint/config.json"), "{").unwrap();
    assert_eq!(resumed(&scene, &out, &asked), 1);
}

#[test]
fn an_input_that_changes_during_the_run_stops_it() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 32 };
    let tokens = scene.path().join("tokenizer.json");
    let shard = scene.path().join("model-00001-of-00003.safetensors");
    let whole = std::fs::read(&shard).unwrap();
    let at = |file: &'static str, change: &dyn Fn()| {
        let mut told = |step: Step<'_>| {
            if matches!(step, Step::Doing(name) if name == file) {
                change();
            }
        };
        let ended = pad_told(scene.path(), &out, &asked, &mut told);
        assert!(!out.exists());
        ended.unwrap_err().to_string()
    };
    let why = at("tokenizer.json", &|| {
        std::fs::write(&tokens, "{\"b\": 22}").unwrap()
    });
    assert!(
        why.contains("tokenizer.json changed while it was read"),
        "{why}"
    );
    let why = at("model-00001-of-00003.safetensors", &|| {
        std::fs::write(&shard, &whole[..whole.len() / 2]).unwrap();
    });
    assert!(
        why.contains("model-00001-of-00003.safetensors changed"),
        "{why}"
    );
    std::fs::write(&shard, &whole).unwrap();
    assert_eq!(resumed(&scene, &out, &asked), 0);
}

/// Its size and time were kept: the result was said not to hold, as if the padding were at fault.
#[test]
fn an_input_that_changes_and_keeps_its_time_is_told_as_that() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let shard = scene.path().join("model-00001-of-00003.safetensors");
    let mut changed = false;
    let mut told = |step: Step<'_>| {
        // When every file is written, and the checks begin.
        if matches!(step, Step::Doing("checking")) && !std::mem::replace(&mut changed, true) {
            let time = shard.metadata().unwrap().modified().unwrap();
            let mut bytes = std::fs::read(&shard).unwrap();
            let last = bytes.len() - 200;
            bytes[last..].iter_mut().for_each(|b| *b ^= 1);
            let names = bytes.len() / 2;
            bytes[names] ^= 1;
            std::fs::write(&shard, bytes).unwrap();
            let file = std::fs::File::options().write(true).open(&shard).unwrap();
            file.set_modified(time).unwrap();
        }
    };
    let asked = Asked::Align { tp: 2, align: 16 };
    let error = pad_told(scene.path(), &out, &asked, &mut told).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("00001-of-00003.safetensors changed while it was read"),
        "{error}"
    );
    assert!(!out.exists());
    assert!(!partial(&out).exists());
}

#[test]
fn two_runs_do_not_write_one_output() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let asked = Asked::Align { tp: 2, align: 32 };
    let mut second = String::new();
    let mut told = |step: Step<'_>| {
        if matches!(step, Step::Doing("config.json")) {
            second = scene.pad(&out, &asked).unwrap_err().to_string();
        }
    };
    pad_told(scene.path(), &out, &asked, &mut told).unwrap();
    assert!(
        second.contains("is being written by another run"),
        "{second}"
    );
}

#[test]
fn what_cannot_be_written_is_one_sentence() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let asked = Asked::Align { tp: 2, align: 32 };
    let why = |out: &Path| scene.pad(out, &asked).unwrap_err().to_string();
    let inside = why(&scene.path().join("out"));
    assert!(inside.contains("inside the checkpoint"), "{inside}");
    let nowhere = why(Path::new("/proc/padded"));
    assert!(nowhere.contains("/proc/padded"), "{nowhere}");
    let missing = why(&scene.path().join("no/such/out"));
    assert!(missing.contains("no/such"), "{missing}");
    let file = scene.path().join("tokenizer.json/out");
    assert!(why(&file).contains("tokenizer.json"), "{}", why(&file));
}

/// The system ended the process without a word.
#[test]
#[cfg(target_os = "linux")]
fn a_limit_of_files_is_one_sentence_and_the_next_run_ends_right() {
    let scene = Scene::new(Made::new("e=16,h=8,i=12,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    let limited = |blocks: u64| {
        let words = format!("ulimit -f {blocks}; exec \"$0\" pad \"$1\" \"$2\" --tp 2 --align 16");
        Command::new("sh")
            .args(["-c", &words, env!("CARGO_BIN_EXE_padproof")])
            .args([scene.path(), &out])
            .output()
            .unwrap()
    };
    let (_keep_too, whole) = scene.out();
    scene.padded(&whole, &Asked::Align { tp: 2, align: 16 });
    let bytes = |name: &str| std::fs::metadata(whole.join(name)).unwrap().len();
    let (shard, last) = (
        bytes("model-00001-of-00003.safetensors"),
        bytes(CERTIFICATE),
    );
    assert!(shard + 1024 < last, "{shard} {last}");
    // Before anything is written; the size of a certificate, and of a journal, is known when they are.
    let told = format!("a file of {} would take ", out.display());
    crate::checkpoint::refused(&limited(1), &told);
    assert!(!out.exists() && !partial(&out).exists());
    crate::checkpoint::refused(&limited(last / 512), "raise that and run the command again");
    assert!(!out.exists() && partial(&out).exists());
    assert!(resumed(&scene, &out, &Asked::Align { tp: 2, align: 16 }) > 0);
}

/// It ended without a word.
#[test]
#[cfg(unix)]
fn an_interrupt_is_one_sentence_and_the_next_run_ends_right() {
    let scene = Scene::new(Made::new("e=8,h=128,i=200,tp=2,w=bf16,fill=wild", QWEN));
    if crate::cli::interrupts_are_ignored() {
        return;
    }
    let mut told = 0;
    for _ in 0..60 {
        let (_folder, out) = scene.out();
        let mut child = start(scene.path(), &out);
        // It listens before it writes.
        while !partial(&out).exists() && child.try_wait().unwrap().is_none() {
            std::thread::park_timeout(Duration::from_micros(200));
        }
        crate::cli::signal(child.id(), "-INT");
        let run = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        match run.status.code() {
            Some(0) => assert!(out.exists() && !partial(&out).exists(), "{text}"),
            Some(130) => {
                assert!(
                    text.starts_with("interrupted: ") && text.lines().count() == 1,
                    "{text}"
                );
                let left = partial(&out).exists();
                assert_eq!(
                    text.contains("the same command goes on from"),
                    left,
                    "{text}"
                );
                assert!(!out.exists(), "{text}");
                finish(start(scene.path(), &out));
                assert_eq!(verified(&out).faults, 0);
                told += u32::from(left);
            }
            other => panic!("{other:?}: {text}"),
        }
        if told == 4 {
            break;
        }
    }
    assert!(told > 0, "none came before the output was in its place");
}
