"""onnxruntime's MoE operator on the CPU: any width, float32, gate and up rows interleaved.

    pip install numpy onnxruntime onnx
    padproof run --subject 'python3 python/subjects/onnxruntime_moe.py'

The operator routes by itself: softmax over the logits, top-k, renormalised. Its contract was found by trying (facts/peers.md 2.1):
w1 is [experts, 2 * width, hidden] with fusion mode 1 (one gate row, one up row), silu(gate) * up; other gated layouts are refused on the
CPU. So it is asked of f32 weights of order int1, without expert parallelism. A session is built for each shape, with the weights as inputs.

Where it differs, found by padproof (docs/python-subject.md has the cases): of equal logits it chooses the higher id, padproof the
lower; and its `gelu` is the tanh form. Without `--as-it-is` the logits of experts that lost a tie are lowered, and it is asked for `gelu-tanh`, not `gelu`.
"""

import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from padproof_subject import serve  # noqa: E402

SESSIONS = {}
"""One for each set of shapes."""
SESSIONS_MAX = 64


def session(kind, experts, rows, hidden, width, top_k, biased):
    """A graph of the one operator."""
    key = (kind, experts, rows, hidden, width, top_k, biased)
    if key in SESSIONS:
        return SESSIONS[key]
    f32 = TensorProto.FLOAT
    value = helper.make_tensor_value_info
    inputs = [
        value("x", f32, ["t", hidden]),
        value("logits", f32, ["t", experts]),
        value("w1", f32, [experts, rows, hidden]),
        value("w2", f32, [experts, hidden, width]),
    ]
    names = ["x", "logits", "w1", "b1" if biased else "", "w2", "b2" if biased else ""]
    if biased:
        inputs.append(value("b1", f32, [experts, rows]))
        inputs.append(value("b2", f32, [experts, hidden]))
    words = {"k": top_k, "normalize_routing_weights": 1, "activation_type": kind}
    if kind == "swiglu":
        words.update(swiglu_fusion=1, activation_alpha=1.0, activation_beta=0.0)
    node = helper.make_node("MoE", names, ["y"], domain="com.microsoft", **words)
    graph = helper.make_graph([node], "moe", inputs, [value("y", f32, ["t", hidden])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, check_custom_domain=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    if len(SESSIONS) >= SESSIONS_MAX:
        SESSIONS.pop(next(iter(SESSIONS)))
    SESSIONS[key] = made
    return made


AS_IT_IS = "--as-it-is" in sys.argv[1:]
KINDS = {word: word for word in ("swiglu", "relu", "silu", "identity")}
KINDS["gelu" if AS_IT_IS else "gelu-tanh"] = "gelu"



def untied(layer):
    """Logits under which the operator chooses the experts that it is told."""
    logits = layer.router_logits.copy()
    chosen = np.zeros(logits.shape, bool)
    np.put_along_axis(chosen, layer.topk_ids, True, axis=1)
    least = np.where(chosen, logits, np.inf).min(1, keepdims=True)
    lost = ~chosen & (logits == least)
    # Softmax comes before its top-k: less than this could be a tie of probabilities again.
    logits[lost] -= np.maximum(1, abs(logits[lost]) / 256)
    return logits


def forward(layer):
    kind = KINDS[layer.plan["activation"]]
    w1, w2, tokens = layer.w13(), layer.w2(), layer.tokens
    feed = {"x": layer.x[:tokens], "logits": layer.router_logits if AS_IT_IS else untied(layer), "w1": w1, "w2": w2}
    biased = layer.plan["bias"] == "both"
    if biased:
        feed["b1"], feed["b2"] = layer.w13_bias(), layer.w2_bias()
    top_k = layer.plan["top_k"]
    made = session(kind, layer.experts, w1.shape[1], layer.hidden, layer.width, top_k, biased)
    (y,) = made.run(None, feed)
    return y[:, : layer.plan["hidden"]] * np.float32(layer.plan["factor"])


if __name__ == "__main__":
    serve(
        forward,
        name=f"onnxruntime {onnxruntime.__version__} MoE",
        supports={
            "weights": ["f32"],
            "activations": list(KINDS),
            "orders": ["int1"],
            "routes": ["softmax-renorm", "topk-softmax"],
            "biases": ["none", "both"],
            "min": {"tokens": 1},
            "max": {"ep": 1},
        },
    )
