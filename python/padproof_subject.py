"""Makes one function a subject of padproof.

    import numpy as np
    from padproof_subject import serve

    def forward(layer):                      # one rank's share of one layer
        y = np.zeros_like(layer.x)
        ...                                  # from layer.x, layer.topk_ids, layer.w13(), layer.w2()
        return y                             # this rank's partial sum; padproof adds the ranks

    serve(forward, supports={"weights": ["f32"], "activations": ["swiglu"]})

Then: padproof run --subject 'python3 my_kernel.py'

The protocol is docs/subject-protocol.md of padproof; what can be listed in `supports` stands there too.
Needs Python 3.9 and numpy. Licence: MIT or Apache-2.0, as padproof.
"""

import json
import os
import struct
import sys
import traceback

import numpy as np

PROTOCOL = 1
__version__ = "0.1.0"

# --- element types -------------------------------------------------------------------------------

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([_E2M1, -_E2M1])
"""Values of the 16 codes of E2M1."""


def _e4m3_table():
    codes = np.arange(256)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    values = np.where(
        exponent == 0, mantissa / 8.0 * 2.0**-6, (1 + mantissa / 8.0) * 2.0 ** (exponent - 7.0)
    )
    values = np.where((codes & 0x7F) == 0x7F, np.nan, sign * values)
    return values.astype(np.float32)


E4M3 = _e4m3_table()
"""Values of the 256 codes of E4M3FN."""

E8M0 = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.nan).astype(np.float32)
"""Values of the 256 codes of E8M0: powers of two; 255 is NaN."""


def nibbles(packed, high_first=False):
    """Codes of two elements a byte, last axis twice as long; the even element is the low half."""
    pair = [packed >> 4, packed & 15] if high_first else [packed & 15, packed >> 4]
    return np.stack(pair, -1).reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def bf16_to_f32(bits):
    """Values of bfloat16 given as uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_bf16(values):
    """Values rounded to bfloat16, to nearest even; still float32."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, rounded.astype(np.uint32).view(np.float32))


def decode(stored, element, high_first=False):
    """Float32 values of what a request holds: `element` is the plan's word (f32, bf16, e4m3 …)."""
    if element == "f32":
        return np.asarray(stored, np.float32)
    if element == "f16":
        return stored.astype(np.float32)
    if element == "bf16":
        return bf16_to_f32(stored)
    if element == "e4m3":
        return E4M3[stored]
    if element == "e8m0":
        return E8M0[stored]
    if element == "e2m1":
        return E2M1[nibbles(stored, high_first)]
    if element == "int4":
        return nibbles(stored, high_first).astype(np.float32) - 8
    if element == "int8":
        return stored.astype(np.float32)
    raise ValueError(f"element type {element} cannot be decoded here")


# --- one rank of one case ------------------------------------------------------------------------


class Layer:
    """What one rank of the layer computes from: padded, packed, as a loader left it."""

    def __init__(self, plan, tensors, rank, case=""):
        self.plan = plan
        """Every number and word of the plan (docs/subject-protocol.md)."""
        self.case = case
        """The case line that is asked about."""
        self.rank = rank
        """Which rank this is, from 0."""
        self._tensors = tensors
        self.x = tensors["x"]
        """Input, float32 [tokens_padded, hidden_padded]."""
        self.topk_ids = tensors["topk_ids"]
        """Experts of each token, int32 [tokens, top_k], counted over the whole layer; ids behind its experts are
        those of identity experts, for a subject that takes `zero_experts`."""
        self.topk_weights = tensors["topk_weights"]
        """Their weights, float32 [tokens, top_k], scaling factor included."""
        self.router_logits = tensors.get("router_logits")
        """Float32 [tokens, experts + zero_experts] for a subject that routes by itself, or None."""
        self.router_bias = tensors.get("router_bias")
        """Float32 [experts + zero_experts], or None."""
        share = plan["ranks"][rank]
        self.expert_start = share["expert_start"]
        """First expert that this rank holds."""
        self.experts = share["expert_len"]
        """Experts that it holds."""
        self.tokens = plan["tokens"]
        self.width = plan["width_padded"]
        """Channels of one half of w13, padding included."""
        self.hidden = plan["hidden_padded"]
        """Columns of x, padding included."""
        self.gated = plan["halves"] == 2

    def raw(self, name):
        """A tensor as it is stored (`w13`, `w2_scale` …), or None; bf16 comes as uint16."""
        return self._tensors.get(f"rank{self.rank}.{name}")

    def local_ids(self):
        """The experts of each token as indices of this rank's tensors; -1 where another has them."""
        ids = self.topk_ids - self.expert_start
        return np.where((ids >= 0) & (ids < self.experts), ids, -1)

    def routed(self, expert):
        """Tokens that an expert of this rank serves, and their weights."""
        tokens, slots = np.nonzero(self.topk_ids == self.expert_start + expert)
        return tokens, self.topk_weights[tokens, slots]

    def identity(self):
        """What identity experts give, float32 [tokens, hidden]: weights times `x`, on the first rank; zeros on
        the others, whose shares padproof adds to it."""
        x = self.x[: self.tokens]
        if self.rank > 0 or self.plan["zero_experts"] == 0:
            return np.zeros_like(x)
        weights = np.where(self.topk_ids >= self.plan["experts"], self.topk_weights, 0).sum(1, keepdims=True)
        return weights * x

    def gate_rows(self):
        """For each row of a gated w13 whether it is a gate's, and its channel."""
        rows = np.arange(2 * self.width)
        run = self.plan["interleave"] or self.width or 1
        turn = rows // run
        second = turn % 2 == 1
        return second if self.plan["up_first"] else ~second, turn // 2 * run + rows % run

    def w13(self):
        """First projection, float32 [experts, rows, hidden], rows in their stored order."""
        return self._weight("w13", self.hidden)

    def w2(self):
        """Second projection, float32 [experts, hidden, width]."""
        return self._weight("w2", self.width)

    def halves(self, rows):
        """Gate's and up's part of something whose second axis are the rows of w13 (the weight, its
        bias, a product with it), each by channel. Up is None where there is no gate."""
        if rows is None or not self.gated:
            return rows, None
        gate, channel = self.gate_rows()
        shape = (rows.shape[0], self.width) + rows.shape[2:]
        first, second = np.empty(shape, rows.dtype), np.empty(shape, rows.dtype)
        first[:, channel[gate]], second[:, channel[~gate]] = rows[:, gate], rows[:, ~gate]
        return first, second

    def w13_bias(self):
        """Bias of the first projection, float32 [experts, rows], or None."""
        return self._vector("w13_bias")

    def w2_bias(self):
        """Bias of the second projection, float32 [experts, hidden], or None; it belongs to one rank
        of those that share experts, and is zero on the others."""
        return self._vector("w2_bias")

    def _vector(self, name):
        stored = self.raw(name)
        return None if stored is None else stored.reshape(stored.shape[0], -1)

    def _weight(self, name, cols):
        plan = self.plan
        if plan["store_weights"] != "linear" or plan["store_scales"] != "linear":
            raise ValueError("only linear storage is decoded here")
        stored = self.raw(name)
        values = decode(stored, plan["element"], plan["nibble"] == "high")[..., :cols]
        scale = self.scales(name, cols)
        return values if scale is None else values * scale

    def scales(self, name, cols):
        """Scales of a weight, spread out to one an element (of a row where a row has one), second
        level included; None where there are none."""
        grid = self.plan[f"{name}_scale"]
        if grid is None:
            return None
        rows = self.raw(name).shape[1]
        scale = decode(self.raw(f"{name}_scale"), grid["dtype"])
        scale = scale[:, self._scale_rows(name, rows, grid["row_block"])]
        if grid["col_block"]:
            scale = np.repeat(scale, grid["col_block"], axis=2)[..., :cols]
        else:
            scale = scale[..., :1]
        second = self.raw(f"{name}_scale_2")
        if second is not None:
            second = second.reshape(second.shape[0], -1)
            which = np.zeros(rows, int)
            if name == "w13" and self.gated:
                which = np.where(self.gate_rows()[0], 0, 1)
            scale = scale * second[:, which, None]
        return scale

    def _scale_rows(self, name, rows, block):
        """The row of the scale grid for each row of the weight."""
        index = np.arange(rows)
        if block == 1:
            return index
        if name != "w13" or not self.gated:
            return index // block if block else index * 0
        gate, channel = self.gate_rows()
        if block == 0:  # one for each projection, gate's first whatever the order of the rows
            return np.where(gate, 0, 1)
        return index // self.width * -(-self.width // block) + channel // block


# --- safetensors and frames ----------------------------------------------------------------------

_READ = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
_WRITE = {np.dtype("<f4"): "F32", np.dtype("<i4"): "I32"}


def _load(blob):
    """Metadata and arrays of a safetensors blob."""
    (size,) = struct.unpack_from("<Q", blob)
    header = json.loads(bytes(blob[8 : 8 + size]))
    metadata = header.pop("__metadata__", {})
    body = memoryview(blob)[8 + size :]
    arrays = {}
    for name, tensor in header.items():
        start, end = tensor["data_offsets"]
        array = np.frombuffer(body[start:end], _READ[tensor["dtype"]])
        arrays[name] = array.reshape(tensor["shape"])
    return metadata, arrays


def _save(metadata, arrays):
    """A safetensors blob."""
    header, parts, at = {"__metadata__": metadata}, [], 0
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        data = array.tobytes()
        header[name] = {
            "dtype": _WRITE[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def _read_frame(stream):
    """One frame, or None where the stream ends."""
    length = stream.read(8)
    if len(length) < 8:
        return None
    (size,) = struct.unpack("<Q", length)
    blob = stream.read(size)
    return blob if len(blob) == size else None


def _write_frame(stream, blob):
    stream.write(struct.pack("<Q", len(blob)))
    stream.write(blob)
    stream.flush()


# --- serving -------------------------------------------------------------------------------------


def answer(forward, metadata, tensors):
    """The arrays of one reply: `forward` asked once for each rank."""
    plan = json.loads(metadata["plan"])
    results = []
    for rank in range(len(plan["ranks"])):
        result = forward(Layer(plan, tensors, rank, metadata.get("case", "")))
        if result is None:
            raise TypeError("forward returned None; it returns this rank's partial sum, [tokens, hidden]")
        results.append(result if isinstance(result, dict) else {"y": result})
    once = ("topk_ids", "topk_weights", "stage.route_ids")
    types = {"topk_ids": np.int32, "stage.route_ids": np.int32}
    arrays = {}
    for name in results[0]:
        values = [np.asarray(r[name], types.get(name, np.float32)) for r in results]
        arrays[name] = values[0] if name in once else np.stack(values)
    return arrays


def _script():
    """What a subject is called that has no name: its file."""
    return os.path.splitext(os.path.basename(sys.argv[0]))[0] or "subject"


def serve(forward=None, supports=None, name=None, sizes=None):
    """Answers padproof until it closes the pipe.

    `forward(layer)` computes one rank's partial sum, float32 [tokens, hidden] or with the padding
    [tokens_padded, hidden_padded]; or a dict with it as `y` and, if it likes, `topk_ids` and
    `topk_weights` (where it routes by itself) and stages (`stage.fc1` …). `supports` says what it can
    be asked; whatever it leaves out is the plain word only, but for routers: all of them but llama4,
    since `topk_ids` and `topk_weights` come routed. What it prints goes to standard error.

    `sizes(asked)` tells what a stack allocates: from a dict with `width` (channels of one half on a
    rank), `halves`, `weights`, `packed` … (docs/subject-protocol.md) it makes the rows of w13 and the
    columns of w2 in stored units: bytes where two elements are packed in one. It may stand alone.
    """
    supports = {
        "routes": ["-llama4"],
        "runs": forward is not None,
        "sizes": sizes is not None,
        **(supports or {}),
    }
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anyone prints from here on is no reply
    while True:
        blob = _read_frame(requests)
        if blob is None:
            return
        metadata, tensors = _load(blob)
        if metadata.get("kind") == "hello":
            said = {
                "kind": "hello",
                "protocol": str(PROTOCOL),
                "name": name or _script(),
                "supports": json.dumps(supports),
            }
            _write_frame(replies, _save(said, {}))
            continue
        try:
            if metadata["kind"] == "sizes":
                rows, columns = sizes(json.loads(metadata["asked"]))
                said = {"kind": "sizes", "w13_rows": str(int(rows)), "w2_columns": str(int(columns))}
                arrays = {}
            else:
                said = {"kind": "reply"}
                arrays = answer(forward, metadata, tensors)
            reply = _save({**said, "id": metadata["id"]}, arrays)
        except Exception as error:  # noqa: BLE001: a fault of the subject is the finding
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
            reply = _save({"kind": "error", "id": metadata["id"], "message": message}, {})
        _write_frame(replies, reply)
