//! The kernels on a device: padded on the fast path against unpadded, on the path that the kernels choose and on
//! the general one, the same problem, at sizes of real models, with the share of what a copy or the tensor core can do.
//!
//! `cargo bench --bench device [-- --once TOKENS … NAMES …]` prints a table for kernels/MEASURED.md. Weights are those of
//! one rank. Each time is the median over launches that find the caches cold, and the
//! output that is compared is that of the last of them. Bytes are the least that the
//! problem moves: every expert that is chosen once, the input and the output; operations those of the
//! logical layer. So padding and re-reading count against a kernel, as they should.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use padproof::case::Case;
use padproof::compare::same_bits;
use padproof::fill::fill;
use padproof::layout::{PackedInputs, RankInputs, pack_layer};
use padproof::num::Dtype;
use padproof::plan::{Plan, Role, plan, unpadded};
use padproof::rng;
use padproof::subject::{Cuda, KernelOptions, Paths};
use padproof::tensor::{RouterInput, Tensor};
use std::collections::BTreeSet;
use std::path::Path;

/// Launches that are timed, unless `--once` is given.
const REPEATS: usize = 30;
/// Tokens of decoding and of prefill (issue 6).
const TOKENS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 2048, 4096, 8192];

/// One rank's share of a model's layer (facts/upstream-padding.md 4.1), and what it is padded to.
const PROBLEMS: [(&str, &str); 10] = [
    (
        "NemotronH-default TP8 bf16",
        "e=8,k=2,h=4096,i=961,act=relu2,w=bf16,pad=i16",
    ),
    (
        "NemotronH-default TP8 fp8",
        "e=8,k=2,h=4096,i=961,act=relu2,w=fp8,pad=i16",
    ),
    (
        "Nemotron-3-Nano TP8 fp8",
        "e=128,k=6,h=2688,i=232,act=relu2,w=fp8,pad=i16",
    ),
    (
        "Nemotron-3-Nano TP8 bf16",
        "e=128,k=6,h=2688,i=232,act=relu2,w=bf16,pad=i16",
    ),
    (
        "Nemotron-3-Nano TP4 fp8",
        "e=128,k=6,h=2688,i=464,act=relu2,w=fp8,pad=i32",
    ),
    (
        "Nemotron-3-Nano TP4 bf16",
        "e=128,k=6,h=2688,i=464,act=relu2,w=bf16,pad=i32",
    ),
    (
        "Qwen3-235B TP8 fp8-block",
        "e=128,k=8,h=4096,i=192,act=swiglu,w=fp8-block,pad=i128",
    ),
    (
        "Qwen3-235B TP8 bf16",
        "e=128,k=8,h=4096,i=192,act=swiglu,w=bf16,pad=i128",
    ),
    (
        "gpt-oss-120b TP8 mxfp4",
        "e=128,k=4,h=2880,i=360,act=swigluoai,bias=both,w=mxfp4,pad=i128",
    ),
    (
        "gpt-oss-120b TP8 bf16",
        "e=128,k=4,h=2880,i=360,act=swigluoai,bias=both,w=bf16,pad=i128",
    ),
];

fn main() {
    if let Some(folder) = std::env::var_os("PADPROOF_NVRTC") {
        padproof::subject::seek_nvrtc(Path::new(&folder));
    }
    let (facts, compiler) = match (Cuda::facts(), Cuda::compiler()) {
        (Ok(facts), Ok(compiler)) => (facts, compiler),
        (Err(why), _) | (_, Err(why)) => {
            println!("skipped: {why}");
            return;
        }
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let named = |word: &&String| !word.starts_with('-') && word.parse::<u64>().is_err();
    let once = words.iter().any(|word| word == "--once");
    let repeats = if once { 1 } else { REPEATS };
    let names: Vec<&String> = words.iter().filter(named).collect();
    let tokens = if asked.is_empty() {
        &TOKENS[..]
    } else {
        &asked
    };
    let mut cuda = Cuda::new();
    let copy = cuda.copy_rate().expect("a copy runs");
    let rate = cuda.mma_rate().expect("the tensor core runs");
    println!(
        "{} ({}), driver for CUDA {}.{}, NVRTC {}.{}, kernels {}: copy {:.0} GB/s, mma.sync {:.0} TFLOP/s\n",
        facts.name,
        facts.arch,
        facts.driver.0,
        facts.driver.1,
        compiler.version.0,
        compiler.version.1,
        Cuda::kernel_hash(),
        copy / 1e9,
        rate / 1e12
    );
    println!(
        "| problem | tokens | padded fast us | unpadded us | faster | unpadded general us | faster | of copy | of mma.sync |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(*part));
    for (name, line) in PROBLEMS.into_iter().filter(|(name, _)| wanted(name)) {
        for &t in tokens {
            let row = measure(line, t, repeats);
            println!(
                "| {name} | {t} | {:.1} | {:.1} | {:+.1} % | {:.1} | {:+.1} % | {:.1} % | {:.1} % |",
                row.fast * 1e6,
                row.bare * 1e6,
                (row.bare / row.fast - 1.0) * 100.0,
                row.general * 1e6,
                (row.general / row.fast - 1.0) * 100.0,
                row.bytes / row.fast / copy * 100.0,
                row.operations / row.fast / rate * 100.0
            );
        }
    }
}

/// The inputs of a layer whose experts are the same few over and over: bytes in other places, so that a
/// device reads as many, and filled in a moment. Each token chooses its experts from a place of its own.
fn inputs(case: &Case, of: impl Fn(&Plan) -> Plan) -> PackedInputs {
    const FEW: u64 = 8;
    let few = Case {
        e: FEW.min(case.e),
        ..case.clone()
    };
    let small = of(&plan(&few).expect("it is planned"));
    let logical = fill(&few).expect("it is filled");
    let mut packed = pack_layer(&small, &logical).expect("it is laid out");
    let times = usize::try_from(case.e / few.e).expect("a small number");
    let mut rank = RankInputs::default();
    for (role, tensor) in packed.ranks[0].iter() {
        let mut shape = tensor.shape().to_vec();
        shape[0] *= times;
        let mut all = Tensor::zeroed(tensor.name(), &shape, tensor.bits());
        for part in all
            .bytes_mut()
            .chunks_exact_mut(tensor.bytes().len().max(1))
        {
            part.copy_from_slice(tensor.bytes());
        }
        rank.set(role, all);
    }
    packed.ranks = vec![rank];
    // Odd, so that a token meets no expert twice.
    const STRIDE: u64 = 37;
    let experts = (0..case.t).flat_map(|token| {
        let first = rng::value(1, 0, token) % case.e;
        (0..case.k).map(move |j| first + j * STRIDE)
    });
    packed.router = RouterInput::Given {
        ids: experts
            .map(|id| u32::try_from(id % case.e).expect("a small number"))
            .collect(),
        weights: (0..case.t * case.k).map(|_| 0.25).collect(),
    };
    packed
}

struct Row {
    fast: f64,
    /// Unpadded, on the path that the kernels choose: the fast one where rows allow it.
    bare: f64,
    general: f64,
    bytes: f64,
    operations: f64,
}

fn measure(line: &str, t: u64, repeats: usize) -> Row {
    let line = format!("t={t},mid=bf16,fill=exact,route=given,{line}");
    let case: Case = line.parse().expect("a case line");
    let padded = plan(&case).expect("it is planned");
    let bare = unpadded(&padded).expect("it is planned");
    let timed = |plan: &Plan, packed: &PackedInputs, paths| {
        let options = KernelOptions {
            paths,
            ..KernelOptions::default()
        };
        let mut cuda = Cuda::with(options);
        let ran = cuda.time(plan, packed, repeats);
        let (output, mut seconds) = ran.unwrap_or_else(|error| panic!("{line}: {error}"));
        let mut products = cuda.launched().iter().filter(|l| l.kernel != "pp_align");
        assert!(products.clone().all(|l| l.inputs == Dtype::Bf16), "{line}");
        if paths == Paths::General || plan.width_padded == padded.width_padded {
            let fast = paths == Paths::Auto;
            assert!(products.all(|l| l.fast == fast), "{line}: fast={fast}");
        }
        seconds.sort_by(f64::total_cmp);
        (output, seconds[seconds.len() / 2])
    };
    let packed = inputs(&case, |plan| plan.clone());
    let (output, fast) = timed(&padded, &packed, Paths::Auto);
    drop(packed);
    let packed = inputs(&case, |plan| unpadded(plan).expect("it is planned"));
    let (chosen_path, chosen_time) = timed(&bare, &packed, Paths::Auto);
    let (other, general) = timed(&bare, &packed, Paths::General);
    for other in [&chosen_path, &other] {
        assert!(same_bits(&output, other).agree, "{line}: other bits");
    }
    let chosen: BTreeSet<u32> = output.ids.iter().copied().collect();
    let rank = &packed.ranks[0];
    let stored = |role| rank.get(role).map_or(0, |tensor| tensor.bytes().len());
    let weights: usize = [
        Role::W13,
        Role::W2,
        Role::W13Scale,
        Role::W2Scale,
        Role::W13Bias,
        Role::W2Bias,
    ]
    .into_iter()
    .map(stored)
    .sum();
    let dims = &padded.dims;
    let number = |n: u64| n as f64;
    let tokens = number(dims.t) * number(dims.h);
    Row {
        fast,
        bare: chosen_time,
        general,
        // bfloat16 in, f32 out.
        bytes: weights as f64 / number(dims.e) * chosen.len() as f64 + tokens * 6.0,
        operations: 2.0 * tokens * number(dims.k) * number(dims.i) * number(dims.halves + 1),
    }
}
