#!/usr/bin/env bash
# Pillow 13.0.0 beside 12.3.0, both of 2026: Image.resize of 8-bit images, whose two passes round to bytes in between.
# Guess: horizontally first, as in every version before, so that resized images have the bytes that they always had.
# Seen: 13 begins with the axis that leaves less work. An image that becomes wider and shorter, or shorter by much more
# than narrower, is scaled vertically first: a quarter of the bytes differ, by up to 4 levels with BICUBIC. If both sides
# are scaled alike, as by torchvision's Resize(N), the bytes stay; of random crops, and of squares made of tall or wide
# images, some change. So what decides is the shape, and a test with one shape may see nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/seen.py" <<'PYTHON'
import sys
import numpy
import PIL
from PIL import Image

pixels = numpy.random.default_rng(0).integers(0, 256, (301, 407, 3), dtype=numpy.uint8)
image, kind = Image.fromarray(pixels), Image.Resampling.BICUBIC
print(PIL.__version__)
for width, height in [(600, 37), (305, 75), (203, 75), (37, 600), (305, 225), (600, 444)]:
    both = numpy.asarray(image.resize((width, height), kind))
    passes = {"horizontal first": [(width, 301), (width, height)], "vertical first": [(407, height), (width, height)]}
    by = {name: numpy.asarray(image.resize(one, kind).resize(two, kind)) for name, (one, two) in passes.items()}
    found = [name for name, other in by.items() if (other == both).all()]
    first, second = (other.astype(int) for other in by.values())
    print(f"{width}x{height}", *found, f"the other differs by up to {abs(first - second).max()}")
PYTHON
seen=$(for version in 12.3.0 13.0.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/python" -m pip --quiet --disable-pip-version-check install numpy==2.4.6 "pillow==$version"
  "$folder/$version/bin/python" "$folder/seen.py"
done)
echo "$seen"
[[ $seen == "12.3.0
600x37 horizontal first the other differs by up to 4
305x75 horizontal first the other differs by up to 4
203x75 horizontal first the other differs by up to 2
37x600 horizontal first the other differs by up to 4
305x225 horizontal first the other differs by up to 13
600x444 horizontal first the other differs by up to 23
13.0.0
600x37 vertical first the other differs by up to 4
305x75 vertical first the other differs by up to 4
203x75 horizontal first the other differs by up to 2
37x600 horizontal first the other differs by up to 4
305x225 horizontal first the other differs by up to 13
600x444 horizontal first the other differs by up to 23" ]]
