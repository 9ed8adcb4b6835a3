"""A plain layer in numpy: the example of a subject, and a second opinion on every format.

    padproof run --subject 'python3 python/subjects/numpy_moe.py'

With `--stages` it shows its way too, so that a failure names the first stage that differs. With `--bf16` it rounds on its way as kernels
do that hold activations in bfloat16, and says where (`rounds`).
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
    return round_bf16(middle) if layer.plan["mid"] == "bf16" else stored(middle)


STAGES = "--stages" in sys.argv[1:]
BF16 = "--bf16" in sys.argv[1:]


def stored(values):
    """What is left of values once they are written to memory and read again."""
    return round_bf16(values) if BF16 else values


def forward(layer):
    w13, w13_bias = layer.w13(), layer.w13_bias()
    w2, w2_bias = layer.w2(), layer.w2_bias()
    weighs_input = layer.plan["route"] == "llama4"
    y = np.zeros_like(layer.x)
    y[: layer.tokens] = layer.identity()
    chosen = layer.topk_ids.shape
    stages = {
        "stage.fc1": np.zeros((*chosen, w13.shape[1]), np.float32),
        "stage.act": np.zeros((*chosen, layer.width), np.float32),
        "stage.fc2": np.zeros((*chosen, layer.hidden), np.float32),
    }
    for expert in range(layer.experts):
        tokens, weights = layer.routed(expert)
        if len(tokens) == 0:
            continue
        x = layer.x[tokens]
        if weighs_input:
            x = x * weights[:, None]
        rows = stored(x) @ w13[expert].T
        if w13_bias is not None:
            rows = rows + w13_bias[expert]
        rows = stored(rows)
        middle = activate(layer, *layer.halves(rows))
        out = middle @ w2[expert].T
        if w2_bias is not None:
            out = out + w2_bias[expert]
        out = stored(out)
        y[tokens] = stored(y[tokens] + (out if weighs_input else stored(weights[:, None] * out)))
        place = np.nonzero(layer.topk_ids == layer.expert_start + expert)
        for name, values in zip(stages, (rows, middle, out)):
            stages[name][place] = values
    return {"y": y, "stage.route_ids": layer.topk_ids, **stages} if STAGES else y


if __name__ == "__main__":
    every = "*"
    serve(
        forward,
        name=f"numpy {np.__version__}",
        supports={
            "weights": every,
            "activations": [*GATED, *PLAIN],
            "orders": every,
            "routes": every,
            "biases": every,
            "mids": every,
            "nibbles": every,
            "max": {"zero_experts": 1 << 20},
            "rounds": ["x", "fc1", "act", "fc2", "weighted", "sum"] if BF16 else [],
        },
    )
