"""Writes decode.txt and encode.txt beside this file: what ml_dtypes answers for the narrow formats, and numpy for
the whole numbers. The code of int4 with offset 8 is that of ml_dtypes.uint4, less 8.

Usage: pip install ml_dtypes==0.6.0 numpy; python make.py

decode.txt: type, code, the f32 bits of its value (all in hexadecimal).
encode.txt: type, the f64 bits of a value, the code that the value is cast to. The values are exact
in f32: ml_dtypes rounds an f64 to f32 first, so that just below a tie it would round twice.
"""

import math
import pathlib
import warnings

import ml_dtypes
import numpy as np

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
HERE = pathlib.Path(__file__).parent


def codes(name):
    return range(16 if name == "e2m1" else 256)


def decode(kind, code):
    return np.array([code], dtype=np.uint8).view(kind).astype(np.float32)


def step(value, towards):
    return float(np.nextafter(np.float32(value), np.float32(towards)))


def inputs(name, kind):
    """Every value, every tie, the neighbours of each tie, and the extremes, once each."""
    values = {float(decode(kind, code)[0]) for code in codes(name)}
    positive = sorted(v for v in values if v > 0 and math.isfinite(v))
    ties = [(a + b) / 2 for a, b in zip([0.0] + positive, positive)]
    if name == "e8m0":
        ties = ties[1:]  # There is no zero below its smallest value.
    top = positive[-1]
    ties.append(top + (top - positive[-2]) / 2)  # The end of what rounds to the largest.
    points = positive[:]
    for tie in ties:
        points += [tie, step(tie, 0), step(tie, math.inf)]
    points += [top * f for f in (1.01, 1.1, 1.3, 1.6, 2, 100)]
    points += [positive[0] * f for f in (2**-60, 0.1, 0.3, 0.49)]
    if name == "e8m0":
        points += [2.0**-149, 2.0**-148]  # The smallest of all, far below 2^-127.
    points += [1.0 / 3.0, math.pi, math.e, 1e9, 1e30, 1e300, math.inf, math.nan, 0.0]
    points = [float(np.float32(v)) for v in points]
    points = sorted(set(points), key=lambda v: (math.isnan(v), v))
    # Every seventh also negative, and the special ones.
    negative = points[::7] + [top, top * 2, positive[0] / 3, math.inf, 0.0, 1.0]
    negative = sorted(set(negative), key=lambda v: (math.isnan(v), v))
    return points + [-v for v in negative] + [math.copysign(math.nan, -1)]


def whole(name, value):
    """The code of the whole number nearest to a value, ties to even, within the type's range."""
    if name == "int4":
        kept = np.clip(np.rint(np.array([value])), -8, 7).astype(ml_dtypes.int4)
        return int(kept.astype(np.int8)[0]) + 8
    return int(np.clip(np.rint(np.array([value])), -128, 127).astype(np.int8).view(np.uint8)[0])


def whole_inputs(low, high):
    """Every number, every tie and its neighbours, beyond both ends, and infinities; no NaN."""
    points = {float(n) for n in range(low - 3, high + 4)}
    ties = [n + 0.5 for n in range(low - 3, high + 3)]
    for tie in ties:
        points |= {tie, step(tie, -math.inf), step(tie, math.inf)}
    points |= {0.0, 1e-30, -1e-30, 1e9, -1e9, 1e30, -1e30, math.inf, -math.inf}
    return sorted(points)


def main():
    warnings.simplefilter("ignore")  # numpy warns of overflow, which is wanted here.
    made = f"# made by make.py with ml_dtypes {ml_dtypes.__version__}, numpy {np.__version__}\n"
    with open(HERE / "decode.txt", "w") as out:
        out.write(made)
        for name, kind in TYPES.items():
            for code in codes(name):
                bits = int(decode(kind, code).view(np.uint32)[0])
                out.write(f"{name} {code:02x} {bits:08x}\n")
        for code in range(16):
            value = np.array([code], dtype=np.uint8).astype(ml_dtypes.uint4).astype(np.float32) - np.float32(8)
            out.write(f"int4 {code:02x} {int(value.view(np.uint32)[0]):08x}\n")
        for code in range(256):
            value = np.array([code], dtype=np.uint8).view(np.int8).astype(np.float32)
            out.write(f"int8 {code:02x} {int(value.view(np.uint32)[0]):08x}\n")
    with open(HERE / "encode.txt", "w") as out:
        out.write(made)
        for name, kind in TYPES.items():
            for value in inputs(name, kind):
                wide = np.array([value], dtype=np.float64)
                code = int(wide.astype(kind).view(np.uint8)[0])
                out.write(f"{name} {int(wide.view(np.uint64)[0]):016x} {code:02x}\n")
        for name, low, high in [("int4", -8, 7), ("int8", -128, 127)]:
            for value in whole_inputs(low, high):
                bits = int(np.array([value]).view(np.uint64)[0])
                out.write(f"{name} {bits:016x} {whole(name, value):02x}\n")


if __name__ == "__main__":
    main()
