#!/usr/bin/env bash
# PyTorch 2.15.0 (onnxscript 0.7.2, ONNX Runtime 1.32.0): torch.onnx.export of scaled_dot_product_attention with a mask
# of truth values, one query of which may see no key, as one of padding.
# Guess: the exported network gives what PyTorch gives, which is 0 for that query; the file has a Softmax, an IsNaN and a
# Where for it.
# Seen: with the default opset (20) the query gets the mean of all values that the mask hides from it. The mask becomes 0
# and the lowest finite float32 instead of minus infinity: a whole row of that is constant, its softmax uniform, never
# NaN, and the IsNaN finds nothing. With a float mask of 0 and minus infinity it would find something, but there it is
# left out, and NaN comes. With opset 23, whose file has the operator Attention, it is 0. Nothing is said.
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


class Attention(torch.nn.Module):
    def forward(self, q, k, v, mask):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)


torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, n, 8) for n in (3, 5, 5))
hides = torch.zeros(3, 5, dtype=torch.bool)
hides[2] = True  # the last query sees no key
expected = Attention()(q, k, v, ~hides).numpy()
mean = v[0, 0].mean(0).numpy()
assert not expected[0, 0, 2].any() and np.abs(mean).max() > 0.1


def exported(mask, **options):
    torch.onnx.export(Attention(), (q, k, v, mask), "a.onnx", dynamo=True, verbose=False, **options)
    session = onnxruntime.InferenceSession("a.onnx")
    values = {i.name: x.numpy() for i, x in zip(session.get_inputs(), (q, k, v, mask))}
    return session.run(None, values)[0]


of_float = torch.zeros(3, 5).masked_fill(hides, float("-inf"))
results = {"truth values": exported(~hides), "truth values, opset 23": exported(~hides, opset_version=23),
           "floats": exported(of_float)}
print("PyTorch:", expected[0, 0, 2, :3], " mean of all values:", mean[:3])
for name, result in results.items():
    print(f"{name}:", result[0, 0, 2, :3])
    assert np.allclose(result[0, 0, :2], expected[0, 0, :2], atol=1e-5)
    expected_now = {"truth values": mean, "truth values, opset 23": 0 * mean, "floats": np.nan * mean}[name]
    assert np.allclose(result[0, 0, 2], expected_now, atol=1e-5, equal_nan=True), name
PYTHON
