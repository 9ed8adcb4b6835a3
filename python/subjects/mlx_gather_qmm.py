"""mlx's gathered quantised matmul on the CPU: MXFP4, NVFP4 and MXFP8 weights, float32 activations.

    pip install numpy mlx mlx-cpu
    padproof run --subject 'python3 python/subjects/mlx_gather_qmm.py'

Contract, found by trying (facts/peers.md 2.1): weights packed in uint32, low nibble first, scales uint8, both as a checkpoint stores
them; the last axis a multiple of 32. NVFP4 has no second-level scale there: it is applied to the product.
"""

import os
import sys

import mlx.core as mx
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402

mx.set_default_device(mx.cpu)
MODES = {"mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}


def multiply(layer, name, x, experts):
    """Row n of x times the matrix of experts[n]."""
    mode = layer.plan["weights"]
    group, bits = MODES[mode]
    packed = np.ascontiguousarray(layer.raw(name)).view(np.uint32)
    y = mx.gather_qmm(
        mx.array(x[:, None, :]),
        mx.array(packed),
        mx.array(layer.raw(f"{name}_scale")),
        rhs_indices=mx.array(experts.astype(np.uint32)),
        transpose=True,
        group_size=group,
        bits=bits,
        mode=mode,
    )
    y = np.array(y)[:, 0, :]
    second = layer.raw(f"{name}_scale_2")
    if second is not None:
        second = second.reshape(second.shape[0], -1)[experts]
        if name == "w13" and layer.gated:
            gate, _ = layer.gate_rows()
            second = np.where(gate, second[:, :1], second[:, 1:])
        y = y * second
    return y


def activate(layer, gate, up):
    word = layer.plan["activation"]
    if word == "relu2":
        return np.maximum(gate, 0) ** 2
    if word == "relu":
        return np.maximum(gate, 0)
    g = mx.array(gate)
    silu = np.array(g * mx.sigmoid(g))
    return silu * up if word == "swiglu" else silu


def forward(layer):
    tokens, slots = np.nonzero(layer.local_ids() >= 0)
    y = np.zeros_like(layer.x)
    if len(tokens) == 0:
        return y
    experts = layer.local_ids()[tokens, slots]
    rows = multiply(layer, "w13", layer.x[tokens], experts)
    bias = layer.w13_bias()
    if bias is not None:
        rows = rows + bias[experts]
    # `halves` takes [experts, rows of w13, …]: here one of each routed row.
    middle = activate(layer, *layer.halves(rows)).astype(np.float32)
    out = multiply(layer, "w2", middle, experts)
    bias = layer.w2_bias()
    if bias is not None:
        out = out + bias[experts]
    np.add.at(y, tokens, layer.topk_weights[tokens, slots][:, None] * out)
    return y


if __name__ == "__main__":
    serve(
        forward,
        name=f"mlx {mx.__version__} gather_qmm" if hasattr(mx, "__version__") else "mlx gather_qmm",
        supports={
            "weights": list(MODES),
            "activations": ["swiglu", "silu", "relu2", "relu"],
            "orders": "*",
            "biases": ["none", "both"],
            "granule": {"intermediate": 32, "hidden": 32},
        },
    )
