#!/usr/bin/env python3
"""How far pixels of JPEGs are from torchvision's Resize(N), CenterCrop(N) of the whole image.

    bench/pytorch/jpeg_pixels.py RINGTAPE

Writes JPEGs of usual sizes with 1/f noise, as photographs have it, lets `--image-store disk` decode them, and reads
the pixels from its file. Ends with 1 beyond LARGEST or MEAN. Needs numpy, Pillow and torchvision.
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Resize

LARGEST, MEAN = 10, 1.5  # levels
SIZES = [(500, 375), (375, 500), (500, 333), (333, 500), (640, 480), (480, 640), (640, 427), (640, 360), (800, 600),
         (1000, 800), (1024, 683), (1024, 768), (1080, 1080), (1080, 1350), (1200, 630), (1280, 720), (1280, 853),
         (1600, 1067), (1600, 1200), (1920, 1080), (1920, 1280), (2048, 1365), (2592, 1944), (3264, 2448),
         (4000, 3000), (4032, 3024)]
SIDES = 32, 48, 64, 224


def photograph(width, height, draw):
    pixels = np.zeros((height, width, 3), np.float32)
    for octave in range(int(np.log2(max(width, height))) + 1):  # each with the same power
        shape = (max(1, height >> octave), max(1, width >> octave), 3)
        noise = np.moveaxis(draw.standard_normal(shape, np.float32), 2, 0)
        for c, plane in enumerate(noise):
            pixels[..., c] += np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BICUBIC))
    return Image.fromarray((128 + 40 * pixels / pixels.std()).clip(0, 255).astype(np.uint8))


def decoded(program, folder, side):
    cache = os.path.join(folder, f"cache{side}")
    subprocess.run([program, "data", "info", "imagefolder", "--data-dir", folder, "--image-size", str(side),
                    "--image-store", "disk", "--image-cache", cache], check=True, capture_output=True)
    file = max(glob.glob(f"{cache}/*.bin"), key=os.path.getsize)  # of the test images; one image trains
    with open(file, "rb") as f:
        f.seek(-len(SIZES) * side * side * 3, os.SEEK_END)
        return np.frombuffer(f.read(), np.uint8).reshape(-1, side, side, 3)


def main():
    draw = np.random.default_rng(0)
    print(f"Pillow {PIL.__version__}, torchvision {torchvision.__version__}, {len(SIZES)} sizes")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/test/photo"), os.makedirs(f"{folder}/train/photo")
        want = {side: [] for side in SIDES}
        photograph(500, 375, draw).save(f"{folder}/train/photo/0.jpg")
        for i, (width, height) in enumerate(SIZES):
            path = f"{folder}/test/photo/{i:02}.jpg"
            photograph(width, height, draw).save(path, quality=90)
            with Image.open(path) as file:
                image = file.convert("RGB")
            for side in SIDES:
                want[side].append(np.asarray(Compose([Resize(side), CenterCrop(side)])(image)))
        for side in SIDES:
            apart = np.abs(decoded(sys.argv[1], folder, side).astype(int) - np.stack(want[side]))
            means = apart.mean((1, 2, 3))
            good = good and apart.max() <= LARGEST and means.max() <= MEAN
            worst = "%d x %d" % SIZES[int(means.argmax())]
            print(f"{side:4}: at most {apart.max()} levels, mean {apart.mean():.2f}, "
                  f"of one image at most {means.max():.2f} ({worst})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
