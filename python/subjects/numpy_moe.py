"""A plain layer in numpy: the example of a subject, and a second opinion on every format.

    padproof run --subject 'python3 python/subjects/numpy_moe.py'
"""

import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import round_bf16, serve  # noqa: E402


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def erf(x):
    return np.array([math.erf(v) for v in x.ravel().tolist()]).reshape(x.shape)


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    # In double precision: 1 + erf cancels for negative x.
    wide = x.astype(np.float64)
    return wide * 0.5 * np.array([math.erfc(-v / math.sqrt(2)) for v in wide.ravel()]).reshape(x.shape)


def gelu_tanh(x):
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    # 1 + tanh(u) is 2 sigmoid(2 u), which does not cancel.
    return wide * sigmoid(2 * inner)


def powlu(g):
    positive = np.maximum(g, 1e-38)
    with np.errstate(over="ignore"):
        power = positive ** (2.5 / (np.sqrt(positive) + 1))
    return np.where(g > 0, power, g) * sigmoid(g)


GATED = {
    "swiglu": lambda g, u: silu(g) * u,
    "swiglu-rounded": lambda g, u: round_bf16(silu(g)) * u,
    "geglu": lambda g, u: gelu(g) * u,
    "geglu-tanh": lambda g, u: gelu_tanh(g) * u,
    "swigluoai": lambda g, u: (
        np.minimum(g, 7) * sigmoid(1.702 * np.minimum(g, 7)) * (np.clip(u, -7, 7) + 1)
    ),
    "swiglu-clamp": lambda g, u: silu(np.minimum(g, 10)) * np.clip(u, -10, 10),
    "swiglustep": lambda g, u: np.minimum(silu(g), 7) * np.clip(u, -7, 7),
    "situ": lambda g, u: 4 * np.tanh(g / 4) * sigmoid(g) * 25 * np.tanh(u / 25),
    "powlu": lambda g, u: powlu(g) * u,
}
PLAIN = {
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "relu2-clamped": lambda x: (7 * np.tanh(np.maximum(x, 0) / 7)) ** 2,
    "silu": silu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "identity": lambda x: x,
}


def activate(layer, gate, up):
    word = layer.plan["activation"]
    middle = GATED[word](gate, up) if layer.gated else PLAIN[word](gate)
    middle = middle.astype(np.float32)
    return round_bf16(middle) if layer.plan["mid"] == "bf16" else middle


def forward(layer):
    gate, up = layer.halves(layer.w13())
    gate_bias, up_bias = layer.halves(layer.w13_bias())
    down, down_bias = layer.w2(), layer.w2_bias()
    weighs_input = layer.plan["route"] == "llama4"
    y = np.zeros_like(layer.x)
    for expert in range(layer.experts):
        tokens, weights = layer.routed(expert)
        if len(tokens) == 0:
            continue
        x = layer.x[tokens]
        if weighs_input:
            x = x * weights[:, None]
        g = x @ gate[expert].T
        u = None if up is None else x @ up[expert].T
        if gate_bias is not None:
            g = g + gate_bias[expert]
            u = None if u is None else u + up_bias[expert]
        out = activate(layer, g, u) @ down[expert].T
        if down_bias is not None:
            out = out + down_bias[expert]
        y[tokens] += out if weighs_input else weights[:, None] * out
    return y


if __name__ == "__main__":
    every = "*"
    serve(
        forward,
        name=f"numpy {np.__version__}",
        supports={
            "weights": every,
            "activations": every,
            "orders": every,
            "routes": every,
            "biases": every,
            "mids": every,
            "nibbles": every,
        },
    )
