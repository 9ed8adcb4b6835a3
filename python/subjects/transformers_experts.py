"""transformers' Qwen3-MoE experts on the CPU, float32: eager, batched_mm or grouped_mm, as the argument says (eager if left out).

    pip install numpy torch transformers
    padproof run --subject 'python3 python/subjects/transformers_experts.py grouped_mm'

Contract (transformers 5.24.0, facts/peers.md 2.1): gate_up_proj is [experts, 2 * width, hidden], gate first; ids and weights come routed;
any width but with grouped_mm, whose last axes must be multiples of 16 bytes: 4 elements of float32 (`--any-width` asks for others too: it raises).
"""

import os
import sys

import numpy as np
import torch
import transformers
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402

torch.set_num_threads(1)
HOW = sys.argv[1] if len(sys.argv) > 1 else "eager"
ANY_WIDTH = "--any-width" in sys.argv[2:]
if HOW not in ("eager", "batched_mm", "grouped_mm"):
    sys.exit(f"no way `{HOW}`; one of: eager, batched_mm, grouped_mm")
WORDS = {"swiglu": "silu", "geglu": "gelu", "geglu-tanh": "gelu_pytorch_tanh"}


def module(layer):
    config = Qwen3MoeConfig(
        num_experts=layer.experts,
        hidden_size=layer.hidden,
        moe_intermediate_size=layer.width,
        hidden_act=WORDS[layer.plan["activation"]],
    )
    config._experts_implementation = HOW
    with torch.device("meta"):
        experts = Qwen3MoeExperts(config)
    return experts


@torch.no_grad()
def forward(layer):
    experts = module(layer)
    own = {"gate_up_proj": torch.from_numpy(layer.w13().copy()), "down_proj": torch.from_numpy(layer.w2().copy())}
    for name, weight in own.items():
        setattr(experts, name, torch.nn.Parameter(weight, requires_grad=False))
    ids = layer.local_ids()
    held = ids >= 0
    # Experts of other ranks: any of this one's, with weight 0.
    ids = torch.from_numpy(np.where(held, ids, 0).astype(np.int64))
    weights = torch.from_numpy(np.where(held, layer.topk_weights, np.float32(0)))
    x = torch.from_numpy(layer.x[: layer.tokens].copy())
    return experts(x, ids, weights).numpy()[:, : layer.plan["hidden"]]


if __name__ == "__main__":
    granule = 4 if HOW == "grouped_mm" and not ANY_WIDTH else 1
    serve(
        forward,
        name=f"transformers {transformers.__version__} {HOW}",
        supports={
            "weights": ["f32"],
            "activations": list(WORDS),
            "granule": {"intermediate": granule, "hidden": granule},
            "min": {"tokens": 1, "experts": 1},
        },
    )
