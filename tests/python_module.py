#!/usr/bin/env python3
"""package/ringtape.py with the program: python_module.py RINGTAPE. What needs NumPy, PyTorch, torchvision or Pillow is
left out where they are missing."""
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "package"))
import ringtape

os.environ["RINGTAPE"] = os.path.abspath(sys.argv[1])
os.environ.pop("RINGTAPE_DATA_DIR", None)


def has(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def error_of(call, *arguments, **flags):
    try:
        call(*arguments, **flags)
    except ringtape.Error as error:
        return str(error)
    raise AssertionError("no error")


def image(path, level, width, height):
    """A binary PPM with a slope in each channel."""
    pixels = bytes((level + x * (c + 1) + 3 * y) % 256 for y in range(height) for x in range(width) for c in range(3))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + pixels)


def odd_images(folder):
    """Of 16 bits, and large, turned and not."""
    from PIL import Image

    Path(folder).mkdir()
    grey = Image.frombytes("I;16", (40, 33), bytes(i * 7 % 256 for i in range(2 * 40 * 33)))
    for end in "png", "tif", "pgm":
        grey.save(f"{folder}/grey.{end}")
    large = Image.merge("RGB", [Image.linear_gradient("L").rotate(a).resize((400, 300)) for a in (0, 90, 180)])
    exif = Image.Exif()
    for orientation in 1, 6:
        exif[0x112] = orientation
        large.save(f"{folder}/large{orientation}.jpg", exif=exif)
    large.resize((50, 9)).save(f"{folder}/wide.png")
    return sorted(map(str, Path(folder).iterdir()))


def main():
    for split, count in ("train", 6), ("test", 3):
        for level, name in (40, "cat"), (120, "dog, wild"):
            for i in range(count):
                image(Path("pets", split, name, f"{i}.ppm"), level + 9 * i, 40 + i, 33)
    few = dict(data="imagefolder", data_dir="pets", image_size=16, val_size=0, threads=1, epochs=1, batch_size=4)
    assert error_of(ringtape.run, "train", epoch=1).startswith("unknown flag --epoch; "), "the program's own words"
    assert "no run" in error_of(ringtape.predict, "nobody", "a.ppm")
    ringtape.run("train", run="net", model="resnet18", width=2, **few)
    ringtape.run("train", run="mlp", model="mlp", hidden=8, overwrite=True, resume=False, exif_orientation=True, **few)

    files = sorted(map(str, Path("pets/test").glob("*/*.ppm")))
    if has("PIL"):
        files += odd_images("odd")
    for target in "net", "mlp":
        predicted = ringtape.predict(target, *files, top=2)
        assert [one["image"] for one in predicted] == files
        made = json.loads(ringtape.run("export", target, out="x.pth", json=True))
        assert made["data"]["image"] == [16, 16, 3] and made["data"]["classes"] == ["cat", "dog, wild"], made
        if has("torch", "torchvision", "PIL"):
            import torch
            model = ringtape.load(target)
            logits = model(torch.stack([model.transform(file) for file in files]))
            for row, one in zip(logits.softmax(1).tolist(), predicted):
                for top in one["top"]:
                    assert abs(row[model.classes.index(top["class"])] - top["probability"]) < 1e-6, (target, one)
    if has("torch") and not has("wideresnet"):
        ringtape.run("train", run="wide", model="wide_resnet", depth=10, widen=1, max_steps=1, **few)
        assert "github.com/xternalz/WideResNet-pytorch`; `ringtape export" in error_of(ringtape.load, "wide")
    found = {one["name"]: one for one in ringtape.runs()}
    assert found["net"]["model"] == "resnet18" and found["mlp"]["model"] == "mlp", found
    assert 0 <= found["net"]["top-1"] <= 1 and found["mlp"]["time"] > 0, found
    assert ringtape.runs("pets") == []

    if has("numpy"):
        features, known = ringtape.embed("net")
        assert features.shape == (6, 16) and features.dtype == "float32"
        assert known[5] == {"file": "dog, wild/2.ppm", "class": "dog, wild"}, known[5]


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
