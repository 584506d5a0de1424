"""Power loss: a training is recorded call by call; from states that a disk may have after the first k of them
--resume, and the whole state compared. A checkpoint that the training took for written must still be there."""
import re

from disk import KINDS, tree_of, write_state
from job import Failure
from recording import undisturbed
from training import RUN, expect_same


def prepare(setting):
    out = []
    for training, calls in undisturbed(setting, "power"):
        ours = [call for call in calls if call.path == "." or call.path.startswith("runs")]
        out += [(training, ours, kind) for kind in KINDS]
    return out


def committed(calls):
    """The newest step whose checkpoint was renamed and its folder then put on the disk; -1: none."""
    renamed, out = -1, -1
    for call in calls:
        if call.name == "rename" and (match := re.search(r"checkpoints/step-(\d+)$", call.path)):
            renamed = int(match[1])
        elif call.name == "syncdir" and call.path.endswith("/checkpoints"):
            out = max(out, renamed)
    return out


def trial(setting, scene, rng, number):
    every = setting.items("power", prepare)
    training, calls, kind = every[number % len(every)]
    whole, _ = setting.references.of(training)
    done = calls[:rng.randrange(len(calls) + 1)]
    write_state(tree_of(done), kind, rng, scene.folder)
    where = f"{kind} disk after {len(done)} of {len(calls)} calls"
    if (code := scene.run(training.command())) != 0:
        raise Failure("unusable", f"{where}: ended with {code} when it was to go on")
    match = re.search(r"^resume \S+: step (\d+)", scene.said(), re.MULTILINE)
    step, wanted = int(match[1]) if match else -1, committed(done)
    if step < wanted:
        raise Failure("different", f"{where}: went on from step {step}; step {wanted} was on the disk")
    expect_same(scene.folder / "runs" / RUN, whole)
