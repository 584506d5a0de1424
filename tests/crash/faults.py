"""The disk is full or broken: one call fails, once or from then on; then --resume, and the whole state compared."""
import errno
import os
import re
import signal
from collections import defaultdict

from job import Failure
from recording import preloaded, read, undisturbed
from training import RUN, expect_same

CALLS = ("write", "fsync", "fdatasync", "syncdir", "rename", "close", "open", "mkdir", "symlink", "unlink", "ftruncate")
ERRORS = (errno.ENOSPC, errno.EIO)
# A training does without these: it has said all that matters by an fsync, removes what is no longer needed (which it
# renames first), links for people to read.
MAY_PASS, MAY_FAIL = ("close", "unlink", "symlink"), r"/(last|best)$|/events\.out\.|^rename .*\.tmp$"


def paths_of(calls):
    """For each kind of call that can fail: what it was about, call by call."""
    out = defaultdict(list)
    for call in calls:
        out[{"create": "open", "truncate": "ftruncate", "rmdir": "unlink"}.get(call.name, call.name)].append(call.path)
    return out


def prepare(setting):
    return [(training, paths_of(calls)) for training, calls in undisturbed(setting, "faults")]


def trial(setting, scene, rng, number):
    training, calls = rng.choice(setting.items("faults", prepare))
    names = [name for name in CALLS if calls[name]]
    call = names[number % len(names)]
    n = rng.randrange(len(calls[call]))
    fault, path = f"{call} {rng.choice(ERRORS)} {n + 1}{rng.choice(['', '+'])}", calls[call][n]
    call, error = fault.split()[0], int(fault.split()[1])
    whole, _ = setting.references.of(training)
    run = scene.folder / "runs" / RUN
    record = scene.folder / "record"
    code = scene.run(training.command(), env=preloaded(setting, scene, record=record, fault=fault))
    made = [each.path for each in read(record) if each.name == "fault"]
    scene.expect_nothing_left()
    fault += f", which is of {', '.join(dict.fromkeys(made)) or f'{path}, and was not reached'}"
    if code < 0:
        raise Failure("unnamed", f"{fault}: ended by {signal.Signals(-code).name}")
    said = [f"rename {each}" if call == "rename" else each for each in made]
    if code == 0 and call not in MAY_PASS and not all(re.search(MAY_FAIL, each) for each in said):
        raise Failure("unnamed", f"{fault}: exit code 0, as if nothing had been")
    if code != 0 and os.strerror(error) not in scene.said():
        raise Failure("unnamed", f"{fault}: exit code {code}, and no word of '{os.strerror(error)}'")
    if (code := scene.run(training.command())) != 0:
        raise Failure("unusable", f"{fault}: ended with {code} when it was to go on")
    expect_same(run, whole)
