#!/usr/bin/env bash
# PyTorch 2.15.0 (onnxscript 0.7.2, ONNX Runtime 1.32.0): torch.onnx.export of ops with an argument that ONNX's operator
# of that name does not have.
# Guess: what ONNX cannot say becomes several operators, or an error, as for other ops; a file that is written is right.
# Seen: the argument is left out. avg_pool2d with divisor_override=1, which sums, gives means. batch_norm with
# training=True, which normalises by the batch, takes the running statistics, although the network is in eval mode as
# it should be. cross_entropy loses label_smoothing. scatter_reduce with "mean" writes the last value, not the mean of
# all. Nothing is said, and the shapes are right; only the numbers show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON' 2>"$folder/warnings" || { cat "$folder/warnings" && exit 1; }
import numpy as np
import onnxruntime
import torch
from torch.nn import functional as F


class Network(torch.nn.Module):
    def __init__(self, function, argument):
        super().__init__()
        self.function, self.argument = function, argument

    def forward(self, x):
        return self.function(x, self.argument)


def compare(name, function, x, argument, without):
    network = Network(function, argument).eval()
    torch.onnx.export(network, (x,), "a.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession("a.onnx")
    got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    expected, other = network(x).numpy(), without(x).numpy()
    print(f"{name}: {expected.ravel()[:3]} in PyTorch, exported {got.ravel()[:3]}, without it {other.ravel()[:3]}")
    assert not np.allclose(got, expected, rtol=1e-3) and np.allclose(got, other, rtol=1e-4, atol=1e-5)


print("torch", torch.__version__, "onnxruntime", onnxruntime.__version__)
torch.manual_seed(0)
images, zeros, ones = 3 * torch.randn(2, 4, 6, 6) + 1, torch.zeros(4), torch.ones(4)
scores, labels, places = 3 * torch.randn(4, 3), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 1, 1])
compare("divisor_override", lambda x, d: F.avg_pool2d(x, 2, divisor_override=d), images, 1,
        lambda x: F.avg_pool2d(x, 2))
compare("training=True", lambda x, t: F.batch_norm(x, zeros.clone(), ones.clone(), training=t), images, True,
        lambda x: F.batch_norm(x, zeros, ones))
compare("label_smoothing", lambda x, s: F.cross_entropy(x, labels, label_smoothing=s), scores, 0.5,
        lambda x: F.cross_entropy(x, labels))
compare("mean", lambda x, m: torch.zeros(2).scatter_reduce(0, places, x, m, include_self=False),
        torch.tensor([1.0, 2.0, 3.0, 5.0]), "mean", lambda x: torch.zeros(2).scatter(0, places, x))
PYTHON
