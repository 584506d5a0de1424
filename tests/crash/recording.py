"""What shim.cpp records of a training: its calls that change files, in their order."""
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from job import Failure, Scene
from training import draw

TRAININGS = 3
SHIM = Path(__file__).parent / "shim.cpp"


@dataclass(frozen=True)
class Call:
    name: str
    words: tuple  # paths relative to the training's folder, and numbers
    data: bytes = b""

    @property
    def path(self):
        return self.words[-1] if self.name in ("symlink", "rename", "fault") else self.words[0]


def compiler():
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True).returncode == 0:
            return name
    return ""


def build(folder):
    out = folder / "shim.so"
    subprocess.run([compiler(), "-std=c++20", "-O1", "-shared", "-fPIC", SHIM, "-o", out, "-ldl"], check=True)
    return out


def preloaded(setting, scene, **what):
    """The environment that has the shim do `what`: record=FILE or fault="CALL ERRNO N"."""
    own = {"LD_PRELOAD": str(setting.shim), "CRASH_ROOT": str(scene.folder)}
    return own | {f"CRASH_{k.upper()}": str(v) for k, v in what.items()}


def read(record):
    data = record.with_name(record.name + ".data").read_bytes()
    at, calls = 0, []
    for line in record.read_text().splitlines():
        name, *words = line.split("\t")
        size = int(words[2]) if name == "write" else 0
        calls.append(Call(name, tuple(words), data[at:at + size]))
        at += size
    return calls


def undisturbed(setting, part):
    """Trainings in one process as the seed draws them for `part`, each with the calls of a run that nothing
    disturbed."""
    for number in range(TRAININGS):
        training = draw(setting.rng(part, f"training {number}"), ranks=(1,))
        scene = Scene(setting.folder / f"{part}-recorded", setting.binary)
        record = scene.folder / "private" / "record"
        if (code := scene.run(training.command(), env=preloaded(setting, scene, record=record))) != 0:
            raise Failure("unusable", f"with the shim the undisturbed run ended with {code}: {scene.said()[-500:]}")
        yield training, read(record)
