"""A loop over experts in torch, on the CPU or a GPU, and the fused experts of three engines on a GPU.

    pip install numpy torch
    padproof run --subject 'python3 python/subjects/torch_moe.py loop'             # --cuda: on the GPU; --bf16: as engines hold it
    padproof run --start-timeout 5m --timeout 5m --subject 'python3 python/subjects/torch_moe.py vllm'    # or sglang, flashinfer

The engines' ways take bfloat16 and need CUDA and the engine; kernels are compiled at the first case of a shape. vLLM's and SGLang's
`fused_experts` take gate's rows first, FlashInfer's `cutlass_fused_moe` up's (facts/upstream-padding.md 1.1, peers.md 2.2). Experts of other
ranks reach none: they are asked as expert 0 with weight 0.

No engine has run on a device here. In Triton 3.8.0's interpreter, with torch 2.14.0, vLLM 0.33.0's and SGLang 0.5.23's functions and Triton kernels
ran as called below; FlashInfer 0.7.4's Python did down to its binding. By torch were stood in what is CUDA's alone (tokens sorted by expert, SiLU times
up, vLLM's sum over experts and SGLang's for more than 32 tokens), bfloat16 in the interpreter, which has none, and FlashInfer's kernel.

Where they round was read in these versions' sources, vLLM's `silu_and_mul` and `moe_sum` in a later one: the Triton kernels weight what they
accumulated in float32; SGLang's and FlashInfer's activation keeps the gate in float32, vLLM's rounds it. FlashInfer's first configuration rounds
fc1 on sm_90 and sm_100; where it falls back to Ampere's (sm_89), rows of a multiple of 64 are not, and bounds do not hold.
"""

import functools
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402

PLACES = ["x", "fc1", "gate", "act", "fc2", "weighted", "sum", "y"]
# Of a reference that rounds more than they do they would be outside the bound.
UNROUNDED = {"vllm": ["fc2"], "sglang": ["gate", "fc2"], "flashinfer": ["gate"]}
NAMES = ("loop", "vllm", "sglang", "flashinfer")
WAY = sys.argv[1] if len(sys.argv) > 1 else "loop"
if WAY not in NAMES:
    sys.exit(f"no way `{WAY}`; one of: {', '.join(NAMES)}")
FUSED = WAY != "loop"
CUDA = FUSED or "--cuda" in sys.argv[2:]
BF16 = FUSED or "--bf16" in sys.argv[2:]
if CUDA and not torch.cuda.is_available():
    sys.exit(f"`{WAY}` on a GPU: torch {torch.__version__} sees no CUDA device")
if FUSED:
    try:
        engine = __import__(WAY)
    except ImportError as error:
        sys.exit(f"`{WAY}`: {error}")
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16 if BF16 else torch.float32
torch.set_num_threads(1)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

GATES = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def tensor(values):
    return torch.from_numpy(np.ascontiguousarray(values)).to(DEVICE, DTYPE)


def loop(layer, x, weights, ids):
    gates, ups = layer.halves(layer.w13())
    down = tensor(layer.w2())
    gate, up = tensor(gates), None if ups is None else tensor(ups)
    act = GATES[layer.plan["activation"]]
    y = torch.zeros_like(x)
    for expert in range(layer.experts):
        tokens, places = torch.nonzero(ids == expert, as_tuple=True)
        middle = act(x[tokens] @ gate[expert].T)
        if up is not None:
            middle = middle * (x[tokens] @ up[expert].T)
        y.index_add_(0, tokens, (middle @ down[expert].T) * weights[tokens, places, None].to(DTYPE))
    return y


def rows(layer):
    gate, up = layer.halves(layer.w13())
    return tensor(np.concatenate([up, gate] if WAY == "flashinfer" else [gate, up], 1))


def vllm(layer, x, weights, ids):
    from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

    return fused_experts(x, rows(layer), tensor(layer.w2()), weights, ids)


@functools.cache
def publish_sglang():
    """Its kernels read the server's settings and the group of ranks: the defaults, no model, one rank."""
    from sglang.srt.runtime_context import get_parallel, publish
    from sglang.srt.server_args import ServerArgs

    publish(ServerArgs(model_path="dummy"), role="test")
    get_parallel().override_permanently(tp_group=None)


def sglang(layer, x, weights, ids):
    from sglang.srt.layers.moe.moe_runner.base import MoeRunnerConfig
    from sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe import fused_experts
    from sglang.srt.layers.moe.topk import StandardTopKOutput

    publish_sglang()
    config = MoeRunnerConfig(inplace=False)
    return fused_experts(x, rows(layer), tensor(layer.w2()), StandardTopKOutput(weights, ids, weights), config)


def flashinfer(layer, x, weights, ids):
    from flashinfer.fused_moe import cutlass_fused_moe

    out = cutlass_fused_moe(x, ids, weights, rows(layer), tensor(layer.w2()), x.dtype, quant_scales=None)
    return out[0] if isinstance(out, (list, tuple)) else out


WAYS = dict(zip(NAMES, (loop, vllm, sglang, flashinfer)))


@torch.no_grad()
def forward(layer):
    ids = layer.local_ids()
    held = ids >= 0
    if FUSED:  # experts of other ranks: any of this one's, with weight 0
        ids = np.where(held, ids, 0)
    weights = torch.from_numpy(np.where(held, layer.topk_weights, np.float32(0))).to(DEVICE)
    ids = torch.from_numpy(ids.astype(np.int32)).to(DEVICE)
    y = WAYS[WAY](layer, tensor(layer.x[: layer.tokens]), weights, ids)
    return y.float().cpu().numpy()[:, : layer.plan["hidden"]]


if __name__ == "__main__":
    serve(
        forward,
        name=f"torch {torch.__version__} {DEVICE} loop" if not FUSED else f"{WAY} {engine.__version__}",
        supports={
            "weights": ["bf16"] if BF16 else "*",
            "activations": ["swiglu"] if FUSED else list(GATES),
            "orders": "*",
            # bfloat16 kernels want rows of 16 bytes, SGLang's activation of 32 on Blackwell.
            "granule": {"intermediate": 16 if WAY == "sglang" else 8, "hidden": 8} if FUSED else {},
            "min": {"tokens": 1, "experts": 1} if FUSED else {},
            "rounds": [place for place in PLACES if BF16 and place not in UNROUNDED.get(WAY, [])],
        },
    )
