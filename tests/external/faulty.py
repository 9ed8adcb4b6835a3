"""The plain layer of python/subjects/numpy_moe.py, stages shown, with one fault planted: its argument says which. Rows are those of
facts/upstream-padding.md 3.2 unless another file is named."""

import mmap
import os
import re
import sys

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "python", "subjects"))
import numpy_moe  # noqa: E402
import padproof_subject as subject  # noqa: E402

FAULT = sys.argv[1]
KEPT = []
CACHE = {}
REPLIES = [0]
ORDER = np.random.default_rng(1)


class Faulty(subject.Layer):
    def logical(self, key, default):
        found = re.search(rf"(?:^|,){key}=(\d+)", self.case)
        return int(found.group(1)) if found else default

    def gate_rows(self):
        gate, channel = super().gate_rows()
        if FAULT == "halves-swapped":  # M4
            return ~gate, channel
        if FAULT == "interleave-16-for-8" and self.plan["order"] == "int8":  # M5
            rows = np.arange(2 * self.width)
            return rows // 16 % 2 == 0, rows // 32 * 16 + rows % 16
        if FAULT == "split-at-real-width":  # M1: the kernel halves at the unpadded width
            real = self.logical("i", 64)
            rows = np.arange(2 * self.width)
            return rows < real, np.where(rows < real, rows, rows - real)
        return gate, channel

    def halves(self, rows):
        if FAULT == "split-at-real-width" and rows is not None and self.gated:
            real, width = self.logical("i", 64), self.width
            first, second = np.zeros_like(rows[:, :width]), np.zeros_like(rows[:, :width])
            first[:, :real], second[:, :real] = rows[:, :real], rows[:, real : 2 * real]
            return first, second
        return super().halves(rows)

    def scales(self, name, cols):
        grid = self.plan[f"{name}_scale"]
        if grid is None:
            return None
        if FAULT == "scale-block-from-floor" and grid["col_block"]:  # M39
            blocks = max(1, cols // grid["col_block"])
            stored = subject.decode(self.raw(f"{name}_scale"), grid["dtype"])
            each = -(-cols // blocks)
            rows = stored[:, self._scale_rows(name, self.raw(name).shape[1], grid["row_block"])]
            return np.repeat(rows[..., :blocks], each, axis=2)[..., :cols]
        scale = super().scales(name, cols)
        if FAULT == "scale-rows-shifted" and name == "w2" and len(scale) > 1:  # M10
            flat = scale.reshape(-1, scale.shape[-1])
            return np.concatenate([scale[:1].reshape(-1, scale.shape[-1]), np.roll(flat, 1, 0)[scale.shape[1] :]]).reshape(scale.shape)
        if FAULT == "first-experts-global":  # V-10
            second = self.raw(f"{name}_scale_2")
            if second is not None:
                second = second.reshape(len(second), -1)[:, 0]
                return scale / second[:, None, None] * second[0]
        return scale

    def w2(self):
        w2 = super().w2()
        if FAULT == "last-column-lost":  # facts/peers.md F4
            real = min(self.logical("i", 64), self.width)
            w2 = w2.copy()
            w2[..., real - 1] = 0
        return w2

    def w2_bias(self):
        if FAULT == "w2-bias-on-every-rank":  # M20
            stored = self._tensors.get("rank0.w2_bias")
            if stored is not None and self.plan["ep"] == 1:
                return stored.reshape(len(stored), -1)
        return super().w2_bias()


def activate(layer, gate, up):
    if FAULT == "up-plus-one-forgotten" and layer.plan["activation"] == "swigluoai":  # facts 2.1
        up = np.clip(up, -7, 7) - 1
    middle = ACTIVATE(layer, gate, up)
    if FAULT == "stale-workspace":  # M22: invisible to outputs while w2's tail is clean
        middle = middle.copy()
        middle[:, layer.logical("i", 64) :] = 3
    if FAULT == "intermediate-in-bf16":
        middle = subject.round_bf16(middle)
    return middle


ACTIVATE = numpy_moe.activate
numpy_moe.activate = activate
numpy_moe.STAGES = True


def forward(layer):
    layer.__class__ = Faulty
    REPLIES[0] += 1
    if FAULT == "ends-now-and-then" and REPLIES[0] % 5 == 0:
        sys.exit("out of luck")
    if FAULT == "leak":
        KEPT.append(np.ones(1 << 17, np.uint8))
    if FAULT == "leak-shared":
        KEPT.append(mmap.mmap(-1, 1 << 17))
        KEPT[-1][:] = bytes(1 << 17)
    if FAULT == "cache":  # no fault: what is kept for a case is there when it comes again
        CACHE.setdefault(layer.case, np.ones(1 << 17, np.uint8))
    if FAULT == "any-order":  # no fault: experts are added as they end, as atomic additions do
        ids, parts = layer.topk_ids, []
        for expert in range(layer.experts):
            layer.topk_ids = np.where(ids == layer.expert_start + expert, ids, -1)
            parts.append(numpy_moe.forward(layer)["y"])
        layer.topk_ids = ids
        return {"y": sum((parts[n] for n in ORDER.permutation(len(parts))), np.zeros_like(layer.x))}
    if FAULT == "e8m0-bias-125":  # M31
        subject.E8M0 = np.append(np.ldexp(np.float32(1), np.arange(255) - 125), np.nan).astype("f4")
    if FAULT == "fnuz-for-fn":  # facts 0.3
        subject.E4M3 = np.where(np.arange(256) == 0x80, np.nan, E4M3 / 2).astype("f4")
    if FAULT == "nibbles-swapped":  # M35
        subject.nibbles = lambda packed, high=False: NIBBLES(packed, not high)
    if FAULT == "int4-offset-forgotten" and layer.plan["element"] == "int4":  # M17
        subject.decode = lambda s, e, h=False: DECODE(s, e, h) + (8 if e == "int4" else 0)
    reply = numpy_moe.forward(layer)
    y = reply["y"]
    if FAULT == "wrong-from-the-first" or FAULT == "wrong-from-the-fourth" and REPLIES[0] > 3:
        return {"y": y * np.float32(1.25) + 1}
    tokens, hidden = layer.plan["tokens"], layer.plan["hidden"]
    if FAULT == "sliced-at-padded-stride":  # M23
        return {"y": y.reshape(-1)[: tokens * hidden].reshape(tokens, hidden)}
    if FAULT == "pad-rows-reduced" and tokens:  # M37
        y[0] += 0 * layer.x[tokens:].sum()
    if FAULT == "experts-miscounted" and layer.rank == len(layer.plan["ranks"]) - 1:  # B93
        return {**reply, "y": np.zeros_like(y)}
    if FAULT == "not-a-number" and y.size:
        y[0, 0] = np.nan
    return reply


NIBBLES, DECODE, E4M3 = subject.nibbles, subject.decode, subject.E4M3
everything = {key: "*" for key in ("weights", "orders", "routes", "biases", "mids", "nibbles")}
everything["activations"] = [*numpy_moe.GATED, *numpy_moe.PLAIN]
subject.serve(forward, supports=everything, name=FAULT)
