"""Small trainings with all that has state, what they leave, and how two runs are compared."""
import csv
import hashlib
import io
import json
import os
import re
import shutil
import struct
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from job import Failure, Scene

RUN = "run"  # the name of every run
# What a clock or the memory decides.
TIMED = {"seconds", "images_per_s", "data_s", "forward_s", "backward_s", "optimizer_s", "peak_bytes", "process_bytes",
         "comm_s", "exposed_s", "train_s", "metrics_crc32"}

DATA = "--data shapes --device cpu --threads 1 --test-size 20"
RESNET = "--model resnet18 --width 2 --batch-size 12 --epochs 2"
METHOD = f"{RESNET} --train-size 48 --knn-k 5 --projection-hidden 8 --projection-dim 4 --warmup-epochs 0"
FOLDER = "--data imagefolder --data-dir ../images"  # beside the folders of the trials
MODELS = {
    "mlp": "train --model mlp --hidden 4 --train-size 120 --val-size 20 --batch-size 20 --epochs 3 --dropout 0.2",
    "resnet18": f"train {RESNET} --train-size 48 --val-size 12",
    "moco": f"pretrain --method moco {METHOD} --momentum-encoder 0.9 --queue 24 --bn-splits 2",
    "byol": f"pretrain --method byol {METHOD} --momentum-encoder 0.9 --prediction-hidden 8",
    "swav": f"pretrain --method swav {METHOD} --queue 24 --prototypes 6 --small-views 1 --small-view-size 8",
    "nnclr": f"pretrain --method nnclr {METHOD} --queue 24",
    **{method: f"pretrain --method {method} {METHOD}" for method in
       ("simclr", "dcl", "simsiam", "barlow_twins", "vicreg")},
    "images": f"train {RESNET} {FOLDER} --val-size 8",
    "images, simclr": f"pretrain --method simclr {METHOD.replace('--train-size 48 ', '')} {FOLDER}",
}


def make_images(folder):
    """train/ and test/ of two classes, as PNG files of 8 x 8 pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for number in range(72):
        path = folder / ("train" if number < 48 else "test") / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = b"".join(b"\0" + bytes((number * 37 + 11 * x * (number % 2) + 13 * y + c) % 256
                                      for x in range(8) for c in (0, 50, 100)) for y in range(8))
        head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) +
                         chunk(b"IEND", b""))


@dataclass(frozen=True)
class Training:
    words: tuple
    ranks: int = 1
    launched: bool = False  # by `ringtape launch`, not by --devices
    launch: tuple = ()  # flags of it

    def command(self, *extra):
        words = [*self.words, "--run", RUN, "--resume", *extra]
        if self.ranks == 1:
            return words
        if self.launched:
            return ["launch", "-n", self.ranks, "--no-pin", "--grace", "5", *self.launch, "--", *words]
        return [*words, "--devices", self.ranks]


def draw(rng, models=tuple(MODELS), ranks=(1, 2)):
    model = rng.choice(models)
    many = rng.choice(ranks)
    words = MODELS[model].split()
    if FOLDER in MODELS[model]:
        words += ["--device", "cpu", "--threads", "1", "--image-cache", "cache"]
        words += rng.choice([[], ["--image-store", "files"], ["--image-store", "disk"]])
    else:
        words += DATA.split()
    supervised = words[0] == "train"
    words += rng.choice([["--optimizer", name, "--lr", "0.002"] for name in ("adam", "adamw", "muon", "lars")] +
                        [["--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.5"]])
    words += ["--precision", rng.choice(["f32", "bf16"]), "--keep", str(rng.randint(1, 3))]
    words += ["--checkpoint-steps", str(rng.choice([0, 1, 2, 3])), "--workers", str(rng.choice([0, 1]))]
    words += rng.choice([[], ["--ema", "0.9"]]) + rng.choice([[], ["--schedule", "cosine"]])
    words += rng.choice([[], ["--log-every", "2"]])
    words += rng.choice([[], ["--export", "best"]]) if supervised else []
    if many > 1:
        words += ["--transport", rng.choice(["shm", "tcp"])]
        strategy = rng.choice(["ddp", "zero1", "zero2", "fsdp"] + ["ddp2"] * supervised)
        words += ["--strategy", strategy]
        words += ["--sync-bn"] if model != "mlp" and strategy != "ddp2" and rng.random() < 0.5 else []
    elif supervised and rng.random() < 0.2:
        words += ["--strategy", "dp", "--devices", "2"]
    return Training(tuple(words), many, rng.random() < 0.5)


def timeless(value):
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items()
                if k not in TIMED and k not in ("exposed", "trained_s", "lengths", "crc32", "run")}
    return value


def content(path):
    text = path.read_bytes()
    try:
        if path.name == "state.json":
            return timeless({k: v for k, v in json.loads(text).items() if k != "files"})
        if path.name == "metrics.jsonl":
            return [timeless(json.loads(line)) for line in text.splitlines()]
    except ValueError:
        return f"no JSON: {text[-200:]}"
    if path.name == "metrics.csv":
        return [{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(io.StringIO(text.decode()))]
    if path.name in ("train.log", "env.json", "report.html", "trace.json",
                     "data-contents.safetensors") or path.name.startswith("events."):
        return "a file"
    return f"{len(text)} bytes, {hashlib.sha256(text).hexdigest()[:16]}"


def state_of(run, without=()):
    """All that a run's folder has, by name: links by what they say, files without what a clock decides."""
    out = {}
    for folder, folders, files in os.walk(run):
        for name in folders + files:
            path = os.path.join(folder, name)
            key = re.sub(r"events\.out\.tfevents\..*", "events", os.path.relpath(path, run))
            if key in without or any(key.startswith(w + "/") for w in without):
                continue
            if os.path.islink(path):
                out[key] = f"-> {os.readlink(path)}"
            else:
                out[key] = "a folder" if os.path.isdir(path) else content(Path(path))
    return out


def expect_same(run, whole, without=()):
    now = state_of(run, without)
    new, gone = sorted(now.keys() - whole.keys()), sorted(whole.keys() - now.keys())
    temporary = [name for name in new if "tmp" in name or re.search(r"\.[A-Za-z0-9]{6}$", name)]
    if temporary:
        raise Failure("left over", f"files: {temporary}")
    if new or gone:
        raise Failure("different", f"there are {new} and there are not {gone}, beside the run that nothing disturbed")
    for name, value in whole.items():
        if now[name] != value:
            raise Failure("different", f"{name}: {now[name]}, of the run that nothing disturbed {value}")


class References:
    """Runs that nothing disturbs, made once each."""

    def __init__(self, folder, binary):
        self.folder, self.binary = folder, binary
        self.lock, self.locks, self.known = threading.Lock(), {}, {}

    def of(self, training):
        """The whole state at its end, and how many seconds it took."""
        with self.lock:
            own = self.locks.setdefault(training, threading.Lock())
        with own:
            if training not in self.known:
                self.known[training] = self.run(training)
            if isinstance(self.known[training], Failure):
                raise self.known[training]
            return self.known[training]

    def run(self, training):
        name = hashlib.sha256(repr(training).encode()).hexdigest()[:10]
        scene = Scene(self.folder / f"whole-{name}", self.binary)
        begin = time.monotonic()
        code = scene.run(training.command())
        if code != 0:
            return Failure("unusable", f"the undisturbed run ended with {code}: {scene.said()[-500:]}")
        out = state_of(scene.folder / "runs" / RUN), time.monotonic() - begin
        shutil.rmtree(scene.folder)
        return out
