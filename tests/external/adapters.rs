//! Real implementations that no one here wrote, as subjects: they hold, and where they differ a case
//! shows it.

use crate::external::{ends, python, script, text};
use std::path::Path;
use std::process::Command;

/// Random cases for each; the pages say how many more were run once.
const CASES: &str = "200";

#[track_caller]
fn holds(modules: &str, path: &str, argument: &str) {
    let Some(python) = python(modules) else {
        return;
    };
    let command = script(&python, path, argument);
    let run = ["run", "-n", CASES, "--profile", "small", "--max-fail", "3"];
    let properties = "pad-identity,poison-isolated,tp-sum,hidden-pad,token-pad";
    let how = ["-p", properties, "--format", "json", "--subject", &command];
    // torch takes its time to import.
    let how = [&how[..], &["--start-timeout", "10m"]].concat();
    let out = crate::external::padproof(&[&run[..], &how].concat());
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["counts"]["failed"], 0, "{report:#}");
    assert_eq!(report["counts"]["broken"], 0, "{report:#}");
    let passed = report["counts"]["passed"].as_u64().unwrap();
    assert!(passed > 300, "{passed} checks passed, too few to say so");
}

#[test]
fn onnxruntime_holds() {
    holds(
        "onnxruntime, onnx",
        "python/subjects/onnxruntime_moe.py",
        "",
    );
}

#[test]
fn mlx_holds() {
    holds("mlx.core", "python/subjects/mlx_gather_qmm.py", "");
}

#[test]
fn transformers_holds_eager_and_grouped() {
    for how in ["eager", "grouped_mm"] {
        let path = "python/subjects/transformers_experts.py";
        holds("torch, transformers", path, how);
    }
}

/// What the reference and the CPU subject are held to (tests/reference/routing.rs) is what PhiMoE's own code gives.
#[test]
fn transformers_sparse_mixer_gives_the_values_kept() {
    const ASK: &str = "
import json, sys, torch
from transformers.models.phimoe.modeling_phimoe import sparsemixer
rows = json.load(open(sys.argv[1]))
for logits, ids, weights in rows:
    for dtype, near in (torch.float32, 1e-6), (torch.float64, 1e-14):
        w, i = sparsemixer(torch.tensor([logits], dtype=dtype), 0.01, False)
        assert i[0].tolist() == ids, (logits, i, ids)
        assert all(abs(a - b) <= near for a, b in zip(w[0].tolist(), weights)), (logits, w, weights)
print(len(rows), 'rows')
";
    let Some(python) = python("torch, transformers") else {
        return;
    };
    let values = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mixer.json");
    let asked = Command::new(python).arg("-c").arg(ASK).arg(values).output();
    let out = asked.unwrap();
    let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
    assert!(out.status.success() && said.contains("rows"), "{said}");
}

#[test]
fn transformers_grouped_mm_wants_rows_of_16_bytes() {
    let Some(python) = python("torch, transformers") else {
        return;
    };
    let path = "python/subjects/transformers_experts.py";
    for (how, code, wanted) in [
        ("eager", 0, "PASS"),
        ("grouped_mm", 4, "multiples of 4"),
        // Asked all the same, it says so itself.
        ("grouped_mm --any-width", 1, "multiple of 16 bytes"),
    ] {
        let command = script(&python, path, how);
        let asked = [
            "check",
            "pad-identity",
            "i=30,pad=i33",
            "--subject",
            &command,
        ];
        let said = ends(&[&asked[..], &["--start-timeout", "10m"]].concat(), code);
        assert!(said.contains(wanted), "{how}: {said}");
    }
}

#[test]
fn vllms_cpu_kernels_hold() {
    for way in ["vec-f32", "vec-bf16", "experts-bf16", "experts-mxfp4"] {
        holds("torch, vllm._C", "python/subjects/vllm_cpu_moe.py", way);
    }
}

#[test]
fn vllms_fp8_kernel_adds_what_is_padded_with_zeros() {
    let Some(python) = python("torch, vllm._C") else {
        return;
    };
    let case = "t=1,e=1,k=1,h=32,i=1,w=fp8-block";
    assert!(include_str!("../../docs/python-subject.md").contains(case));
    let command = script(&python, "python/subjects/vllm_cpu_moe.py", "experts-fp8");
    let asked = ["check", "pad-identity", case, "--subject", &command];
    let said = ends(&[&asked[..], &["--start-timeout", "10m"]].concat(), 1);
    // Zeros too: every output is off by the same.
    assert!(said.contains("32 of 32 differ"), "{said}");
}

#[test]
fn a_loop_in_torch_holds() {
    for how in ["loop", "loop --bf16"] {
        holds("torch", "python/subjects/torch_moe.py", how);
    }
}

#[test]
fn engines_on_a_gpu_say_what_they_lack() {
    let Some(python) = python("torch, sys; sys.exit(torch.cuda.is_available())") else {
        return;
    };
    for way in ["vllm", "sglang", "flashinfer", "loop --cuda"] {
        let command = script(&python, "python/subjects/torch_moe.py", way);
        let asked = ["check", "pad-identity", "i=33", "--subject", &command];
        let out = crate::external::padproof(&[&asked[..], &["--start-timeout", "10m"]].concat());
        let said = crate::external::text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("sees no CUDA device"), "{said}");
    }
}

#[test]
fn where_onnxruntime_differs_a_case_shows_it() {
    let Some(python) = python("onnxruntime, onnx") else {
        return;
    };
    let path = "python/subjects/onnxruntime_moe.py";
    let (as_it_is, bent) = (
        script(&python, path, "--as-it-is"),
        script(&python, path, ""),
    );
    let page = include_str!("../../docs/python-subject.md");
    // Of equal logits it takes the higher id; its gelu is the tanh form.
    let ties = "t=3,h=18,i=17,tp=2,act=relu,route=topk-softmax,seed=4c65c1f1";
    let gelu = "t=2,e=3,k=1,h=32,i=25,act=gelu,factor=16,pad=h32.i32,seed=b4685f36";
    for case in [ties, gelu] {
        assert!(page.contains(case), "{case}");
        ends(&["check", "pad-identity", case, "--subject", &as_it_is], 1);
    }
    ends(&["check", "pad-identity", ties, "--subject", &bent], 0);
    let tanh = gelu.replace("gelu", "gelu-tanh");
    ends(&["check", "pad-identity", &tanh, "--subject", &bent], 0);
}
