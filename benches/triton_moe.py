#!/usr/bin/env python3
"""Times fused MoE layers of torch and of vLLM's Triton kernel at the sizes of benches/device.rs.

Usage: python benches/triton_moe.py [TOKENS ...], on a machine with a GPU, beside `cargo bench --bench device`. Prints
rows of the same table: problem, tokens, microseconds; the padded width, and where it differs the bare one, which is
what a stack without padding would run. bfloat16 weights only. What cannot be imported or called is said and left out.
Triton's kernel is timed twice: as called, with the host's time where a device waits for its launches, and replayed from a
CUDA graph, as servers decode; the latter is what benches/device.rs is held against. torch's loop also waits for the device once,
to learn which experts were chosen, and so is in no graph. Nothing here has run on a device yet (kernels/MEASURED.md).
"""
import statistics
import sys

# (problem, experts, top-k, hidden, a rank's intermediate bare and padded, gated), as in benches/device.rs.
PROBLEMS = [
    ("NemotronH-default TP8 bf16", 8, 2, 4096, 961, 976, False),
    ("Nemotron-3-Nano TP8 bf16", 128, 6, 2688, 232, 240, False),
    ("Nemotron-3-Nano TP4 bf16", 128, 6, 2688, 464, 480, False),
    ("Qwen3-235B TP8 bf16", 128, 8, 4096, 192, 256, True),
    ("gpt-oss-120b TP8 bf16", 128, 4, 2880, 360, 384, True),
]
TOKENS = [1, 2, 4, 8, 16, 32, 64, 2048, 4096, 8192]
# What vLLM has called the squared ReLU without a gate, the newest first.
RELU2 = ["relu2_no_mul", "relu2"]
REPEATS = 30

try:
    import torch
except ImportError as missing:
    sys.exit(f"skipped: {missing}")
if not torch.cuda.is_available():
    sys.exit("skipped: torch sees no device")
try:
    from vllm.model_executor.layers.fused_moe import fused_experts
except ImportError as missing:
    fused_experts = None
    print(f"without Triton's fused MoE: {missing}")

sweep = torch.zeros(512 << 20, dtype=torch.uint8, device="cuda")


def median(run):
    """Microseconds, with cold caches, after two runs that compile."""
    for _ in range(2):
        run()
    taken = []
    for _ in range(REPEATS):
        sweep.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) * 1e3)
    return statistics.median(taken)


def by_torch(x, w13, w2, weights, ids, gated):
    """Expert by expert, as torch users write it: `tolist` waits for the device, within the time that is taken."""
    out = torch.zeros_like(x)
    for expert in ids.unique().tolist():
        token, choice = (ids == expert).nonzero(as_tuple=True)
        h = x[token] @ w13[expert].T
        if gated:
            gate, up = h.chunk(2, dim=-1)
            h = torch.nn.functional.silu(gate) * up
        else:
            h = torch.relu(h).square()
        y = (h @ w2[expert].T) * weights[token, choice, None].to(x.dtype)
        out.index_add_(0, token, y)
    return out


def captured(run):
    """A replay of what `run` launches: the device's time alone."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def twice(run):
    """Microseconds as called and, where it can be captured, from a graph."""
    called = f"{median(run):.1f}"
    try:
        return called, f"{median(captured(run)):.1f}"
    except RuntimeError as refused:
        torch.cuda.synchronize()
        return called, f"not captured: {str(refused).splitlines()[0]}"


def by_triton(x, w13, w2, weights, ids, gated):
    """Microseconds of vLLM's kernel, called and from a graph, or why there are none."""
    if not fused_experts:
        return "not there", "not there"
    ids = ids.to(torch.int32)
    if gated:
        return twice(lambda: fused_experts(x, w13, w2, weights, ids))
    for name in RELU2:
        try:
            return twice(lambda: fused_experts(x, w13, w2, weights, ids, activation=name))
        except (AssertionError, KeyError, TypeError, ValueError, NotImplementedError) as refused:
            why = f"refused: {type(refused).__name__}"
    return why, why


def main():
    tokens = [int(word) for word in sys.argv[1:]] or TOKENS
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    heads = ["problem", "tokens", "torch, with host and a wait us", "Triton (vLLM), with host us", "Triton (vLLM), graph us"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    cases = [(f"{name} at {width}", *sizes, width, gated)
             for name, *sizes, bare, padded, gated in PROBLEMS for width in dict.fromkeys([padded, bare])]
    for problem, experts, top_k, hidden, width, gated in cases:
        def random(*shape):
            return torch.randn(shape, dtype=torch.bfloat16, device="cuda") / 32
        w13, w2 = random(experts, width * (1 + gated), hidden), random(experts, hidden, width)
        for t in tokens:
            x = random(t, hidden)
            weights, ids = torch.rand(t, experts, device="cuda").topk(top_k)
            eager = median(lambda: by_torch(x, w13, w2, weights, ids, gated))
            called, replayed = by_triton(x, w13, w2, weights, ids, gated)
            print(f"| {problem} | {t} | {eager:.1f} | {called} | {replayed} |")


main()
