#!/usr/bin/env bash
# PyTorch 2.15.0 (torchvision 0.29.2, Pillow 13.0.0): antialias=True of torch.nn.functional.interpolate and of
# torchvision's resize when an image is enlarged.
# Guess: antialiasing widens the filter where an image shrinks; where it grows, both forms give the same numbers.
# Seen: bilinear they do. Bicubic they are two filters: antialias=True takes the cubic of a = -0.5, as Pillow, and
# antialias=False that of a = -0.75, as OpenCV, so that pixels of 0 to 255 differ by up to 12 when 8x8 become 16x16. It
# reaches training where positions or small images are enlarged, such as those of a vision transformer for larger images.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 torchvision==0.29.2 numpy==2.4.6 pillow==13.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2.functional import resize

torch.manual_seed(0)
x = torch.rand(1, 1, 8, 8)
for mode, filter, same in (("bilinear", Image.Resampling.BILINEAR, True), ("bicubic", Image.Resampling.BICUBIC, False)):
    plain, smooth = (torch.nn.functional.interpolate(x, size=(16, 16), mode=mode, antialias=a) for a in (False, True))
    pillow = torch.from_numpy(np.array(Image.fromarray(x[0, 0].numpy()).resize((16, 16), filter)))
    bytes_of = (255 * x).to(torch.uint8)
    of_bytes = [resize(bytes_of, [16, 16], InterpolationMode(mode), antialias=a).int() for a in (False, True)]
    far, of_pillow, levels = ((a - b).abs().max().item() for a, b in
                              ((plain, smooth), (smooth[0, 0], pillow), of_bytes))
    print(f"{mode}: with and without antialias {far:.2g} apart, bytes {levels}; with it {of_pillow:.2g} from Pillow's")
    assert of_pillow < 1e-6
    assert (far < 1e-6 and levels == 0) if same else (far > 0.04 and levels == 12)


def weight(distance, a):  # of the cubic, for distances of 0 to 1
    return (a + 2) * distance**3 - (a + 3) * distance**2 + 1


step = (torch.arange(8) >= 4).float().expand(1, 1, 8, 8)  # the row of an edge tells the filter
for antialias, a in ((False, -0.75), (True, -0.5)):
    row = torch.nn.functional.interpolate(step, size=(16, 16), mode="bicubic", antialias=antialias)[0, 0, 0]
    # The last pixel before the edge lies 0.25 behind the fourth: of the weights of the fifth and sixth.
    before = a * (1.75**3 - 5 * 1.75**2 + 8 * 1.75 - 4) + weight(0.75, a)
    print(f"antialias={antialias}: {row[7]:.6f}, of a = {a} {before:.6f}")
    assert abs(row[7].item() - before) < 1e-6
PYTHON
