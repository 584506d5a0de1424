"""What `ringtape` has trained, in Python.

    model = ringtape.load("pets")                    # a torch.nn.Module, with its weights
    model(model.transform("dog.jpg")[None])          # logits of the classes model.classes
    features, files = ringtape.embed("pets", data_dir="photos")
    pandas.DataFrame(ringtape.runs())

Each function calls the program, of this environment or of the PATH, or the one that the variable RINGTAPE names.
load() needs PyTorch and Pillow, of networks of torchvision also that; embed() needs NumPy.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["Error", "embed", "load", "predict", "run", "runs"]


class Error(RuntimeError):
    """What the program says is wrong."""


def run(*arguments, **flags):
    """Runs the program and returns its output as text: run("train", data="mnist", no_graph=True) is
    `ringtape train --data mnist --no-graph`. Its messages go to standard error. Raises Error."""
    beside = Path(sys.executable).with_name("ringtape")
    program = os.environ.get("RINGTAPE") or (str(beside) if beside.is_file() else shutil.which("ringtape"))
    if not program or not shutil.which(program):
        raise Error(f"there is no program {program or 'ringtape on the PATH'}; install the wheel, or set RINGTAPE")
    command = [program, *map(str, arguments)]
    for name, value in flags.items():
        if value is not None and value is not False:
            command += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode:
        raise Error(done.stderr.strip().removeprefix("ringtape: error: ") or f"exit code {done.returncode}")
    sys.stderr.write(done.stderr)
    return done.stdout


class Transform:
    """From an image (a path, an open file or a PIL.Image) to what the network expects: f32 (C, H, W), of the pixels
    that the program itself makes of a file."""

    def __init__(self, data):
        if not all(key in data for key in ("image", "mean", "deviation")):
            raise Error("the weights do not say of which size their images were and how they were normalised")
        self.height, self.width, self.channels = data["image"]
        self.mean, self.deviation = data["mean"], data["deviation"]
        self.upright, self.shorter = data.get("upright", False), data.get("scaled", 0)
        self.bicubic = data.get("filter") == "bicubic"

    def __repr__(self):
        resize = f"Resize({self.shorter or self.width}), CenterCrop({self.width})"
        if self.width != self.height:
            resize = f"Resize(({self.height}, {self.width}))"
        return f"Transform: {resize}, x / 255, mean {self.mean}, deviation {self.deviation}; ({self.channels}, H, W)"

    def __call__(self, image):
        from PIL import Image

        if isinstance(image, Image.Image):
            return self._normalised(self._sized(image))
        with Image.open(image) as opened:
            return self._normalised(self._sized(opened))

    def _sized(self, image):
        from PIL import Image, ImageOps

        if self.upright and image.getexif().get(0x112) in range(2, 9):
            image = ImageOps.exif_transpose(image)
        width, height = image.size
        to = self.width, self.height
        if self.width == self.height:
            shorter = self.shorter or self.width
            to = shorter * width // min(width, height), shorter * height // min(width, height)
        reduced = image.draft(None, (3 * to[0], 3 * to[1]))  # a large JPEG, decoded at a fraction of its size
        how = Image.Resampling.BICUBIC if self.bicubic else Image.Resampling.BILINEAR
        right, low = reduced[1][2:] if reduced else image.size
        # Horizontally first, which Pillow 13 chooses by the sizes.
        image = _bytes(image).resize((to[0], image.height), how, box=(0, 0, right, image.height))
        image = image.resize(to, how, box=(0, 0, to[0], low))
        left, top = round((to[0] - self.width) / 2), round((to[1] - self.height) / 2)
        return image.crop((left, top, left + self.width, top + self.height))

    def _normalised(self, image):
        import torch

        if self.channels == 1:
            image = image.convert("L")
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        x = pixels.view(self.height, self.width, self.channels).permute(2, 0, 1).float() / 255
        mean, deviation = (torch.tensor(values)[:, None, None] for values in (self.mean, self.deviation))
        return (x - mean) / deviation


def _bytes(image):
    """RGB, of grey with 16 bits the upper byte, where Pillow cuts off at 255; PGM is scaled."""
    if image.mode.startswith("I"):
        scaled = image.convert("I")
        image = scaled.point(lambda x: x * (1 / 257) + 0.5 if image.format == "PPM" else x * (1 / 256)).convert("L")
    return image.convert("RGB")


def load(target, backbone=False, **flags):
    """The network of a run, a checkpoint or a file of weights as a torch.nn.Module in evaluation mode. It takes images
    (N, C, H, W); `transform` makes them of files, and `classes` names its outputs. With `backbone` it has no last
    layer and gives features. Flags are those of `ringtape export`."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.pth")
        made = json.loads(run("export", target, out=file, backbone=backbone, json=True, **flags))
        if not made["python"]:
            raise Error(f"{target}: there is no Python for this network; `ringtape export --out FILE.onnx` writes ONNX")
        scope = {}
        try:
            exec(made["python"], scope)
        except ImportError as error:
            line = next(line for line in made["python"].splitlines() if error.name in line)
            raise Error(f"{target}: its network needs a module that is not installed, `{line}`; "
                        "`ringtape export --out FILE.onnx` writes ONNX") from None
        model = scope["model"]
        model.load_state_dict(torch.load(file, weights_only=True), strict=True)
    data = made["data"]
    model.classes = [] if made["backbone"] else data.get("classes", [])
    model.transform = Transform(data) if data else None
    return model.eval()


def predict(target, *images, top=5, **flags):
    """For each image file, or each in a folder: {"image": its path, "top": [{"class": ..., "probability": ...}]}."""
    return [json.loads(line) for line in run("predict", target, *images, top=top, json=True, **flags).splitlines()]


def embed(target, **flags):
    """Features of images, an ndarray of f32 (images, features), and for each of them a dict: `file` and `class`, where
    they are known. Flags are those of `ringtape embed`: data_dir="photos", split="train"."""
    import csv
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "features.csv")
        run("embed", target, out=file, **flags)
        with open(file, newline="", encoding="utf-8") as text:
            rows = csv.reader(text)
            head = next(rows)
            first = head.index("f0")
            known, features = [], []
            for row in rows:
                known.append(dict(zip(head[:first], row)))
                features.append(numpy.array(row[first:], dtype=numpy.float32))
    return numpy.stack(features), known


def runs(folder="runs", **flags):
    """The trainings in a folder, a dict each: name, state, results, time in seconds, and the settings that differ
    between them; None where a run has none. Flags are those of `ringtape runs`: sort="top-1"."""
    import csv

    def value(text):
        for kind in int, float:
            try:
                return kind(text)
            except ValueError:
                pass
        return text or None

    rows = csv.DictReader(run("runs", folder, csv=True, **flags).splitlines(keepends=True))
    return [{name: value(text) for name, text in row.items()} for row in rows]
