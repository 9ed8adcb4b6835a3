"""Holds padded checkpoints against their inputs, as Python's safetensors reads both.

Arguments: BEFORE AFTER and so on, pairs of folders. Every tensor of BEFORE must be in AFTER with its type; where a
shape grew, along one axis, with BEFORE's elements first (of each half, where a tensor holds gate and up one after
the other) and one code in the rest, which for weights and biases is zero. Nothing here knows padproof.
"""

import json
import pathlib
import sys

from safetensors import deserialize


def read(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        for name, tensor in deserialize(path.read_bytes()):
            tensors[name] = (tensor["dtype"], list(tensor["shape"]), bytes(tensor["data"]))
    return tensors


def product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


def halves(name, config):
    """Blocks that grow each for itself along the axis of gate and up."""
    fused = "gate_up_proj" in name and ".experts." in name
    return 2 if fused and config["model_type"] != "gpt_oss" else 1


def check(name, before, after, config):
    (dtype, old, data), (now, new, padded) = before, after
    assert dtype == now, f"{name}: {dtype} became {now}"
    if name.endswith("weight_shape"):
        return 1
    if old == new:
        assert data == padded, f"{name}: bytes changed"
        return 0
    axes = [axis for axis, (a, b) in enumerate(zip(old, new)) if a != b]
    assert len(old) == len(new) and len(axes) == 1, f"{name}: {old} became {new}"
    axis = axes[0]
    # Two F4 elements make a byte, and shapes count elements.
    twice = 2 if dtype == "F4" else 1
    inner = product(old[axis + 1 :])
    unit = len(data) * twice // product(old)
    if axis == len(old) - 1:
        a, b, step = old[axis] // twice, new[axis] // twice, unit
    else:
        a, b, step = old[axis], new[axis], inner * unit // twice
    blocks = halves(name, config)
    assert a % blocks == 0 and b % blocks == 0, name
    pads = set()
    for lead in range(product(old[:axis])):
        for half in range(blocks):
            source = (lead * a + half * (a // blocks)) * step
            target = (lead * b + half * (b // blocks)) * step
            length = a // blocks * step
            assert padded[target : target + length] == data[source : source + length], f"{name}: elements moved"
            rest = padded[target + length : target + b // blocks * step]
            pads |= {rest[n : n + unit] for n in range(0, len(rest), unit)}
    assert len(pads) == 1, f"{name}: {len(pads)} codes in its padding"
    if "scale" not in name:
        int4 = "packed" in name and dtype in ("I32", "U8") or config.get("int4")
        zero = {bytes(unit), bytes([0x88]) * unit} if int4 else {bytes(unit)}
        assert pads <= zero, f"{name}: padding {pads}"
    return 1


arguments = sys.argv[1:]
for before, after in zip(arguments[::2], arguments[1::2]):
    config = json.loads((pathlib.Path(before) / "config.json").read_text())
    config["int4"] = "pack-quantized" in json.dumps(config.get("quantization_config", {}))
    old, new = read(before), read(after)
    assert old.keys() == new.keys(), f"{after}: other tensors"
    grown = sum(check(name, old[name], new[name], config) for name in old)
    print(f"{len(old)} tensors, {grown} grown")
