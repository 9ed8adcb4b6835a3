"""Writes decode.txt and encode.txt beside this file: what ml_dtypes answers for the narrow formats.

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
    return points + [-v for v in sorted(set(negative))] + [math.copysign(math.nan, -1)]


def main():
    warnings.simplefilter("ignore")  # numpy warns of overflow, which is wanted here.
    made = f"# made by make.py with ml_dtypes {ml_dtypes.__version__}, numpy {np.__version__}\n"
    with open(HERE / "decode.txt", "w") as out:
        out.write(made)
        for name, kind in TYPES.items():
            for code in codes(name):
                bits = int(decode(kind, code).view(np.uint32)[0])
                out.write(f"{name} {code:02x} {bits:08x}\n")
    with open(HERE / "encode.txt", "w") as out:
        out.write(made)
        for name, kind in TYPES.items():
            for value in inputs(name, kind):
                wide = np.array([value], dtype=np.float64)
                code = int(wide.astype(kind).view(np.uint8)[0])
                out.write(f"{name} {int(wide.view(np.uint64)[0]):016x} {code:02x}\n")


if __name__ == "__main__":
    main()
