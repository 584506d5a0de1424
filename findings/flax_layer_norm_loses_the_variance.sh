#!/usr/bin/env bash
# flax 0.12.8 (JAX 0.10.2), LayerNorm, GroupNorm and BatchNorm of float32.
# Guess: the outputs have a standard deviation of 1 wherever the inputs lie, to about the precision of the inputs, as
# with PyTorch: numbers of 1000 +- 1, such as a depth in millimetres, are exact to 0.0001.
# Seen: by default the variance is the mean of the squares minus the square of the mean. At 1000 +- 1 outputs are off by
# tenths; at 10000 +- 1 nothing of the variance is left, what falls below 0 is taken as 0, and outputs are a thousand
# times too large, by 1 / sqrt(epsilon). None is NaN. use_fast_variance=False is right to 0.002.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import flax
import numpy as np
from flax import linen, nnx

noise = np.random.default_rng(0).normal(size=(64, 192))


def furthest(output, x, axis):
    """The largest error, beside float64 of the same numbers."""
    x = x.astype(np.float64)
    exact = (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-6)
    return np.abs(np.asarray(output) - exact).max()


def layers(x, **options):
    options["epsilon"] = 1e-6
    layer, group = linen.LayerNorm(**options), linen.GroupNorm(num_groups=1, **options)
    batch = linen.BatchNorm(use_running_average=False, **options)
    seen = [furthest(norm.apply(norm.init(nnx.Rngs(0)(), x), x), x, 1) for norm in (layer, group)]
    seen.append(furthest(batch.apply(batch.init(nnx.Rngs(0)(), x), x, mutable=["batch_stats"])[0], x, 0))
    seen.append(furthest(nnx.LayerNorm(192, rngs=nnx.Rngs(0), **options)(x), x, 1))
    return np.array(seen)


print("flax", flax.__version__)
for mean in (0, 100, 1000, 10000):
    x = (noise + mean).astype(np.float32)
    fast, slow = layers(x), layers(x, use_fast_variance=False)
    print(f"{mean} +- 1: errors of LayerNorm, GroupNorm, BatchNorm, nnx.LayerNorm: {fast.round(4)};",
          f"use_fast_variance=False: {slow.round(4)}")
    assert slow.max() < 0.005
    assert fast.max() < 1e-5 if mean == 0 else fast.min() > {100: 1e-4, 1000: 0.05, 10000: 100}[mean]
PYTHON
