#!/usr/bin/env bash
# timm 1.0.31 (PyTorch 2.15.0), vision transformers with learned positions.
# Guess: a checkpoint of images of 32x128 gives a network of 64x256 its positions, resampled from 2x8 to 4x16 patches,
# as set_input_size() of the network itself does.
# Seen: reading a checkpoint takes any positions as a square grid. Here 16 of them become 4x4 before they are resampled,
# so that a column that was the fifth begins the second row; nothing is said. Where a network has as many patches in
# another grid, they are kept as they are: 4x4 positions of a square image row by row in 2x8. Only a number that is no
# square is an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
"$folder/venv/bin/python" - "$folder/weights.pth" <<'PYTHON'
import sys

import timm
import torch


def network(height, width, path=""):
    return timm.create_model("vit_tiny_patch16_224", img_size=(height, width), num_classes=0, pretrained=bool(path),
                             pretrained_cfg_overlay={"file": path} if path else None)


def columns(model):
    """What the positions of the first row hold: in a new network the number of its column."""
    return [round(x, 1) for x in model.pos_embed[0, 1:1 + model.patch_embed.grid_size[1], 0].tolist()]


def saved(height, width):
    model = network(height, width)
    rows, count = model.patch_embed.grid_size
    model.pos_embed.data[0, 1:] = torch.arange(float(count)).repeat(rows)[:, None]
    torch.save(model.state_dict(), sys.argv[1])
    return model


wide = saved(32, 128)
loaded = columns(network(64, 256, sys.argv[1]))
wide.set_input_size((64, 256))
print("2x8 to 4x16 by a checkpoint:     ", loaded)
print("2x8 to 4x16 by set_input_size(): ", columns(wide))
saved(64, 64)
kept = columns(network(32, 128, sys.argv[1]))
print("4x4 to 2x8 by a checkpoint:      ", kept)
assert max(loaded) < 3.5 and max(columns(wide)) > 7 and kept == [0, 1, 2, 3, 0, 1, 2, 3]
PYTHON
