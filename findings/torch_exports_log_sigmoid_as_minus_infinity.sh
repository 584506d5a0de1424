#!/usr/bin/env bash
# PyTorch 2.15.0 (onnxscript 0.7.2, ONNX Runtime 1.32.0): torch.onnx.export of logsigmoid, of
# binary_cross_entropy_with_logits and of logaddexp.
# Guess: these exist to be safe for large numbers, and stay so in the file, as log_softmax and softplus do.
# Seen: the file has what they exist to avoid, Log of a Sigmoid and Log of a sum of two Exp. ONNX Runtime's sigmoid is 0
# from -18 on, so that the logarithm of -18 becomes minus infinity, and that of -17 becomes -16.2: usual scores of a
# network that is sure. The loss of such a score is infinite, and so is logaddexp of two 90. Nothing is said.
# -softplus(-x) in place of logsigmoid(x), and logsumexp, are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON' 2>"$folder/warnings" || { cat "$folder/warnings" && exit 1; }
import numpy as np
import onnx
import onnxruntime
import torch
from torch.nn import functional as F


class Network(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


print("torch", torch.__version__, "onnxruntime", onnxruntime.__version__)
x = torch.tensor([-2.0, -17.0, -18.0, -25.0, 90.0])
seen = {}
for name, function in {
    "logsigmoid": F.logsigmoid,
    "-softplus(-x)": lambda x: -F.softplus(-x),
    "loss of label 1": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(5), reduction="none"),
    "logaddexp(x, x)": lambda x: torch.logaddexp(x, x),
    "logsumexp": lambda x: torch.stack((x, x)).logsumexp(0),
}.items():
    torch.onnx.export(Network(function).eval(), (x,), "a.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession("a.onnx")
    seen[name] = result = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    ops = [node.op_type for node in onnx.load("a.onnx").graph.node]
    print(f"{name}: {function(x).numpy()} in PyTorch, exported {result}", *ops)
    if name in ("-softplus(-x)", "logsumexp"):
        assert np.allclose(result, function(x).numpy(), rtol=1e-4)
infinite = {name: np.isinf(result).tolist() for name, result in seen.items()}
assert infinite["logsigmoid"] == infinite["loss of label 1"] == [False, False, True, True, False]
assert infinite["logaddexp(x, x)"] == [False, False, False, False, True]
assert abs(seen["logsigmoid"][1] + 17) > 0.5
PYTHON
