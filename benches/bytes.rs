//! How fast `audit`, `pad` and `verify` move bytes, beside `cmp` and `cp` of the same bytes in the same
//! run: packed FP4 with scales in 128x4 tiles, one thread, files in the page cache.

#![expect(clippy::print_stdout, reason = "a bench reports its figures")]

#[path = "../examples/invent/make.rs"]
mod make;

use make::{EXPERTS, Format, HIDDEN, WIDTH, invent};
use padproof::audit::{audit_files, layer_shape};
use padproof::case::Case;
use padproof::checkpoint::{Checkpoint, Dump, Layer, Output, header};
use padproof::layout::pack_layer;
use padproof::pad::{Outcome, Request, pad, verify};
use padproof::plan::{Role, plan};
use padproof::tensor::Tensor;
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

// As the command does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Times that each thing is done; the best is told.
const TIMES: usize = 5;

fn best(mut work: impl FnMut()) -> Duration {
    let once = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..TIMES).map(once).min().unwrap_or_default()
}

fn told(what: &str, bytes: u64, time: Duration, beside: Option<(&str, Duration)>) {
    let rate = bytes as f64 / f64::from(1 << 30) / time.as_secs_f64();
    let ratio = beside.map_or(String::new(), |(name, other)| {
        format!(
            ", {:.2} of {name}",
            other.as_secs_f64() / time.as_secs_f64()
        )
    });
    println!(
        "{what:28} {rate:6.2} GiB/s ({:.0} ms){ratio}",
        time.as_secs_f64() * 1e3
    );
}

fn run(program: &str, args: &[&Path]) {
    let ran = Command::new(program)
        .args(args)
        .status()
        .expect("it is installed");
    assert!(ran.success(), "{program} {args:?}");
}

/// One layer as an engine holds it: the dump's bytes.
fn dump(before: &Checkpoint, line: &str, path: &Path) -> u64 {
    let case: Case = line.parse().expect("a case");
    let plan = plan(&case).expect("a plan");
    let layer =
        Layer::find(before, layer_shape(&plan, false).expect("sizes"), None).expect("a layer");
    let mut logical = layer.read(0..EXPERTS).expect("tensors");
    logical.x = Tensor::zeroed("x", &[case.t as usize, HIDDEN], 32);
    let packed = pack_layer(&plan, &logical).expect("packed");
    let mut data = Vec::new();
    let mut names = Vec::new();
    for (rank, inputs) in packed.ranks.iter().enumerate() {
        for (role, tensor) in inputs.iter() {
            let (dtype, wide) = match role {
                Role::W13Global | Role::W2Global => (Dtype::F32, 4),
                _ => (Dtype::U8, 1),
            };
            let len = tensor.bytes().len();
            names.push((
                format!("rank{rank}.{}", role.name()),
                dtype,
                [len / wide],
                len as u64,
            ));
            data.extend_from_slice(tensor.bytes());
        }
    }
    let outputs: Vec<Output<'_>> = names
        .iter()
        .map(|(name, dtype, shape, bytes)| Output {
            name,
            dtype: *dtype,
            shape,
            bytes: *bytes,
        })
        .collect();
    let mut file = header("dump", &BTreeMap::new(), &outputs).expect("a header");
    file.extend(data);
    std::fs::write(path, &file).expect("written");
    file.len() as u64
}

fn audits(folder: &Path, before: &Checkpoint) {
    for (name, scheme) in [
        ("linear", "pad=i128"),
        ("128x4", "pad=i128,order=up-gate,store=128x4"),
    ] {
        let line = format!("t=1,e={EXPERTS},h={HIDDEN},i={WIDTH},w=nvfp4,{scheme}");
        let path = folder.join(format!("{name}.safetensors"));
        let bytes = dump(before, &line, &path);
        let copy = folder.join("copy.safetensors");
        std::fs::copy(&path, &copy).expect("copied");
        let cmp = best(|| run("cmp", &[&path, &copy]));
        told("cmp of the same bytes", bytes, cmp, None);
        let plan = plan(&line.parse::<Case>().expect("a case")).expect("a plan");
        let after = Checkpoint::open(&path).expect("a dump");
        let audit = best(|| {
            let shape = layer_shape(&plan, false).expect("sizes");
            let layer = Layer::find(before, shape, None).expect("a layer");
            let dump = Dump::find(&after, None, None, 1).expect("tensors");
            let found = audit_files(&plan, &layer, &dump).expect("files hold");
            assert!(found.clean(), "{:?}", found.first);
        });
        told(
            &format!("audit nvfp4 {name}"),
            bytes,
            audit,
            Some(("cmp", cmp)),
        );
    }
}

fn pads(folder: &Path, before: &Path, bytes: u64) {
    let (copy, out) = (folder.join("copied"), folder.join("padded"));
    let cp = best(|| {
        let _ = std::fs::remove_dir_all(&copy);
        run("cp", &[Path::new("-r"), before, &copy]);
        run(
            "sync",
            &[
                Path::new("-d"),
                &copy.join("model-00001-of-00001.safetensors"),
            ],
        );
    });
    told("cp and sync", bytes, cp, None);
    let request = Request::new(2, None, Some(128), None, &[]);
    let time = best(|| {
        let _ = std::fs::remove_dir_all(&out);
        let ended = pad(before, &out, &request, None, &[], &mut |_| {}).expect("it is padded");
        assert!(matches!(ended, Outcome::Padded(_)));
    });
    told("pad nvfp4 (synced)", bytes, time, Some(("cp", cp)));
    let time = best(|| {
        let found = verify(&out, &mut |_| {}).expect("it can be read");
        assert_eq!(found.faults, 0);
    });
    told("verify", bytes, time, None);
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = folder.path().join("before");
    let format: Format = "nvfp4".parse().expect("a format");
    invent(&before, 1 << 20, format).expect("written");
    let shard = before.join("model-00001-of-00001.safetensors");
    let bytes = shard.metadata().expect("it is there").len();
    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("a thread");
    one.install(|| {
        let checkpoint = Checkpoint::open(&before).expect("it holds");
        audits(folder.path(), &checkpoint);
        pads(folder.path(), &before, bytes);
    });
}
