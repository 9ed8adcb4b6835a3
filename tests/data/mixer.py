"""Makes mixer.json: the sparse mixer's choices and weights, its masks in fractions.

    python3 mixer.py > mixer.json

Definition: facts/upstream-padding.md 2.3, written down again here from what PhiMoE computes at inference, and not
from the Rust code. Each row: logits, ids of the two chosen, their weights.
"""
import json
import math
import random
import struct
from fractions import Fraction


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


# Twice router_jitter_noise, as an f32.
BAND = Fraction(f32(0.02))


def masked(threshold, x):
    """Whether a logit is masked under the largest one."""
    threshold, x = Fraction(threshold), Fraction(x)
    factor = max(abs(x), threshold)
    if factor == 0:
        return False  # 0 / 0 is not larger than anything
    ratio = (threshold - x) / factor
    assert ratio == 0 or abs(ratio - BAND) > Fraction(1, 10**5), "too near the band for f32"
    return ratio > BAND


def mixer(logits):
    left, ids, weights = dict(enumerate(logits)), [], []
    for _ in range(2):
        threshold = max(left.values())
        chosen = min(n for n, x in left.items() if x == threshold)
        kept = [x for x in left.values() if not masked(threshold, x)]
        powers = [math.exp(x - threshold) for x in kept]
        ids.append(chosen)
        weights.append(math.exp(left[chosen] - threshold) / math.fsum(powers))
        del left[chosen]
    return ids, weights


ROWS = [
    [1.0, 1.0, 1.0, 1.0],  # ties: the lower id, and three survivors for the second
    [0.0, 0.0, -1.0, -0.5],  # a maximum of 0: its equals survive, all else is masked
    [0.0, -0.0, 0.0, -3.0],
    [-1.0, -1.0078125, -1.015625, -8.0],  # a negative maximum: the share is of the other one's size
    [-1.0, -1.03125, -1.0390625, -1.046875],
    [4.0, 3.96875, 3.9375, 3.90625, 3.875],  # the second maximum's band reaches further down
    [4.0, -4.0, 0.0, 1.0],
    [0.25, -30.0, 0.2490234375, -0.25],
    [2.0, 1.0],
    [-5.0, 7.0],
    [1.0, 1.0],
    [30.0, 29.5, 29.75, 29.0, 28.875],  # a large maximum: logits half apart survive
    [3e38, -3e38, 2.99e38],
]
ROWS = [[f32(x) for x in row] for row in ROWS]
draw = random.Random(20)
for n in range(120):
    e, centre, spread = draw.randint(2, 12), draw.uniform(-6, 6), draw.choice([0.05, 0.1, 2.0])
    row = [f32(centre * (1 + spread * draw.uniform(-1, 1))) for _ in range(e)]
    if n % 8 == 0:
        row[draw.randrange(e)] = max(row)
    try:
        mixer(row)
    except AssertionError:
        continue
    ROWS.append(row)
print("[\n" + ",\n".join(json.dumps([row, *mixer(row)]) for row in ROWS) + "\n]")
