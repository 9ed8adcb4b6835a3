"""A stack's size function as the subject, written from what facts/peers.md 3 (F1 to F4) says of one that was published; its argument says
which fault it has. Granule 128 stored units."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "python"))
import padproof_subject as subject  # noqa: E402

FAULT = sys.argv[1]


def round_up(n):
    return -(-n // 128) * 128


def sizes(asked):
    width, gated, packed = asked["width"], asked["halves"] == 2, asked["packed"]
    each = 2 if packed else 1
    columns = round_up(-(-width // each))
    rows = asked["halves"] * columns * each
    if FAULT == "not-gated-keeps-its-rows" and not gated and not packed:  # F1
        rows = width
    if FAULT == "not-gated-packed-doubles" and not gated and packed:  # F2
        rows = 2 * width
    if FAULT == "recovery-factor-skipped" and gated and packed:  # F3
        rows = 2 * columns
    if FAULT == "odd-element-dropped" and packed:  # F4
        columns = round_up(width // 2)
        rows = asked["halves"] * columns * each
    return rows, columns


supports = {"weights": "*", "activations": ["swiglu", "relu2"]}
subject.serve(sizes=sizes, supports=supports, name=FAULT)
