#!/usr/bin/env bash
# lightly 1.6.0 (timm 1.0.31, PyTorch 2.15.0), MaskedVisionTransformerTIMM, which MAE, I-JEPA and others are built on.
# Guess: given a trained timm network it goes on from these weights; its arguments for initialisation are about the mask
# token and what else it adds.
# Seen: it writes into the network it is given. All but the bias of the patches is drawn anew, and the positions become
# sines that are not trained any more; nothing is said, and the caller's own network is another one from then on.
# weight_initialization="skip" keeps the former, but positions only stay with pos_embed_initialization="skip", too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lightly==1.6.0 timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
LIGHTLY_DID_VERSION_CHECK=True "$folder/venv/bin/python" - <<'PYTHON'
import timm
import torch
from lightly.models.modules import MaskedVisionTransformerTIMM


def changed(**arguments):
    """The parameters of a trained network that differ once it has been wrapped, and those that are frozen."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=10)
    for value in model.parameters():  # as training leaves them: no zeros, no ones
        torch.nn.init.normal_(value, std=0.1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    MaskedVisionTransformerTIMM(model, **arguments)
    after = dict(model.named_parameters())
    names = {name for name, value in before.items() if not torch.equal(value, after[name])}
    return names, {name for name, value in after.items() if not value.requires_grad}


everything, frozen = changed()
print("by default:         ", len(everything), "parameters changed, frozen:", *frozen)
some, frozen_then = changed(weight_initialization="skip")
print("weights skipped:    ", *some, "changed, frozen:", *frozen_then)
none, frozen_never = changed(weight_initialization="skip", pos_embed_initialization="skip")
print("positions, too:     ", len(none), "parameters changed")
assert len(everything) > 140 and frozen == frozen_then == some == {"pos_embed"} and not none | frozen_never
PYTHON
