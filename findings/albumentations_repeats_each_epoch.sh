#!/usr/bin/env bash
# albumentations 2.0.8, the newest of that name (PyTorch 2.15.0), in the workers of a DataLoader.
# Guess: every image of every epoch is changed at random: PyTorch gives the generators of PyTorch, Python and NumPy
# another seed in each worker and epoch.
# Seen: a Compose has a generator of its own, of which each worker gets a copy at the beginning of each epoch. All
# workers draw the same numbers, and each epoch draws those of the first again: of an epoch's six images only three are
# changed in ways of their own, and the next epoch brings nothing new. It is the same with a seed and without; without
# workers all is as guessed. persistent_workers helps against equal epochs, not against equal workers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet albumentations==2.0.8 opencv-python-headless==5.0.0.93 torch==2.15.0 numpy==2.4.6
cat >"$folder/seen.py" <<'PYTHON'
import albumentations
import numpy as np
import torch


class Images(torch.utils.data.Dataset):
    def __init__(self, seed):
        self.change = albumentations.Compose([albumentations.RandomBrightnessContrast(p=1)], seed=seed)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        grey = np.full((4, 4, 3), 0.5, np.float32)
        return self.change(image=grey)["image"][0, 0, 0].item()


def epochs(seed, **options):
    loader = torch.utils.data.DataLoader(Images(seed), batch_size=1, **options)
    return [[image.item() for image in loader] for _ in range(2)]


if __name__ == "__main__":
    print("albumentations", albumentations.__version__)
    for seed in (None, 0):
        for options in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
            first, second = epochs(seed, **options)
            print(f"seed {seed}, {options or 'no workers'}: {np.round(first, 3)}, then {np.round(second, 3)}")
            assert (first == second) == (options == {"num_workers": 2})
            for epoch in (first, second):
                equal = epoch[::2] == epoch[1::2]  # the batches come from the workers in turn
                assert equal == bool(options) and len(set(epoch)) == (3 if options else 6)
PYTHON
NO_ALBUMENTATIONS_UPDATE=1 "$folder/venv/bin/python" "$folder/seen.py"
