"""The functions with which SGLang and vLLM size their experts, as a subject that tells sizes and runs nothing.

    pip install --no-deps sglang      # or vllm; only its files are read
    padproof run -n 1000 --subject 'python3 python/subjects/engine_sizes.py sglang'

The function is taken by name out of the installed files, since importing the packages asks for much else. `sglang` is
`get_moe_weight_sizes` of sglang/srt/layers/moe/utils.py on AITER, gated as the FP8 method passes it; `sglang-no-fp4` the same where torch
has no FP4 type. What they are found to do is in docs/python-subject.md.
"""

import ast
import importlib.metadata
import importlib.util
import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402


def taken(package, path, names, given):
    """The named functions and constants of a file of a package that need not be importable."""
    folder = importlib.util.find_spec(package).submodule_search_locations[0]
    with open(os.path.join(folder, path)) as file:
        tree = ast.parse(file.read())
    called = lambda node: getattr(node, "name", None) or getattr(node.targets[0], "id", None)  # noqa: E731
    kinds = (ast.FunctionDef, ast.Assign)
    body = [node for node in tree.body if isinstance(node, kinds) and called(node) in names]
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


WAYS = {
    "sglang": ("sglang", lambda: sglang(True)),
    "sglang-no-fp4": ("sglang", lambda: sglang(False)),
}
WAY = sys.argv[1] if len(sys.argv) > 1 else "sglang"
if WAY not in WAYS:
    sys.exit(f"no way `{WAY}`; one of: {', '.join(WAYS)}")

if __name__ == "__main__":
    package, sizes = WAYS[WAY]
    serve(
        sizes=sizes(),
        name=f"{package} {importlib.metadata.version(package)} {WAY}",
        supports={"weights": ["fp8", "mxfp4"], "activations": ["swiglu", "relu2"]},
    )
