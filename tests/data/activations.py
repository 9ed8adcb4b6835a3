"""Makes activations.json: the activations computed with Python's math alone.

    python3 activations.py > activations.json

Formulas: facts/upstream-padding.md 2.1, 2.2, written down again here, on scalars, from the
survey's table and not from the Rust code.
"""
import json
import math

# Constants that Rust holds as f32 are rounded alike.
import struct


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def logistic(x):
    return math.exp(x) / (1 + math.exp(x)) if x < 0 else 1 / (1 + math.exp(-x))


def silu(x):
    return x * logistic(x)


def bf16(x):
    """To bfloat16, ties to even; none of these is subnormal."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 256), exponent - 8)


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))) / 2


def clamp(x, low, high):
    return min(max(x, low), high)


def powlu(g):
    if g > 0:
        return math.exp(2.5 * math.log(g) / (math.sqrt(g) + 1)) * logistic(g)
    return g * logistic(g)


GATED = {
    "swiglu": lambda g, u: silu(g) * u,
    "swiglu-rounded": lambda g, u: bf16(silu(g)) * u,
    "geglu": lambda g, u: gelu(g) * u,
    "geglu-tanh": lambda g, u: gelu_tanh(g) * u,
    "swigluoai": lambda g, u: min(g, 7) * logistic(f32(1.702) * min(g, 7)) * (clamp(u, -7, 7) + 1),
    "swiglu-clamp": lambda g, u: silu(min(g, 10)) * clamp(u, -10, 10),
    "swiglustep": lambda g, u: min(silu(g), 7) * clamp(u, -7, 7),
    "situ": lambda g, u: 4 * math.tanh(g / 4) * logistic(g) * 25 * math.tanh(u / 25),
    "powlu": lambda g, u: powlu(g) * u,
}
SINGLE = {
    "relu2": lambda x: max(x, 0) ** 2,
    "relu2-clamped": lambda x: (7 * math.tanh(max(x, 0) / 7)) ** 2,
    "silu": silu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "relu": lambda x: max(x, 0.0),
    "identity": lambda x: x,
}
GATES = [-40, -9, -3, -1, -0.125, 0, 0.125, 0.5, 1, 2.5, 6.5, 7, 7.5, 11, 40]
UPS = [-30, -8, -1, 0, 0.75, 6, 12]

out = {name: [[g, u, f(g, u)] for g in GATES for u in UPS] for name, f in GATED.items()}
out |= {name: [[x, 0, f(x)] for x in GATES] for name, f in SINGLE.items()}
print("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in out.items()) + "\n}")
