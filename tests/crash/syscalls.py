"""SIGKILL at every system call that changes the disk, one after the other; each time --resume, and the whole state
compared. Of the many writes to a file of weights it is the first, the second and the last."""
import re
import signal
from collections import Counter, defaultdict

from job import Failure, Scene
from training import DATA, MODELS, RUN, Training, expect_same

CALLS = ("write writev pwrite64 fsync fdatasync rename renameat renameat2 openat mkdir mkdirat unlink unlinkat rmdir "
         "symlink "
         "symlinkat link linkat fchmod chmod ftruncate truncate flock fallocate").split()
TRAININGS = [
    Training(tuple(f"{MODELS['mlp']} {DATA} --workers 0 --ema 0.9 --keep 2 --checkpoint-steps 4 "
                   "--log-every 5".split())),
    Training(tuple(f"{MODELS['moco']} {DATA} --workers 0 --keep 1 --checkpoint-steps 3".split())),
]


def traced(calls, out, inject=()):
    return ["strace", "-f", "-qq", "-y", "-e", f"trace={calls}", *inject, "-o", out]


def points(setting, training):
    """(call, number of it in its thread) for each call that concerns the run's folder, in their order."""
    scene = Scene(setting.folder / "traced", setting.binary)
    out = scene.folder / "calls"
    code = scene.run(training.command(), before=traced(",".join("?" + call for call in CALLS), out))
    if code != 0:
        raise Failure("unusable", f"under strace the undisturbed run ended with {code}: {scene.said()[-500:]}")
    counts, found, writes = Counter(), [], defaultdict(list)
    for line in out.read_text(errors="replace").splitlines():
        match = re.match(r"(\d+) +(\w+)\((.*)", line)
        if not match:
            continue
        thread, call, rest = match.groups()
        counts[thread, call] += 1
        if "runs" not in rest or (call == "openat" and "O_RDONLY" in rest):
            continue
        if call == "write":
            writes[rest.split(">")[0]].append((call, counts[thread, call]))
        else:
            found.append((call, counts[thread, call]))
    return sorted(set(found).union(*([*each[:2], each[-1]] for each in writes.values())))


def prepare(setting):
    return [(training, *point) for training in TRAININGS for point in points(setting, training)]


def trial(setting, scene, rng, number):
    every = setting.items("syscalls", prepare)
    training, call, count = every[number % len(every)]
    whole, _ = setting.references.of(training)
    run = scene.folder / "runs" / RUN
    kill_there = ["-e", f"inject={call}:signal=KILL:when={count}"]
    codes = [scene.run(training.command(), before=traced(call, "/dev/null", kill_there))]
    if rng.random() < 0.25:  # the continuation is killed, too
        _, call, count = rng.choice([each for each in every if each[0] == training])
        kill_there = ["-e", f"inject={call}:signal=KILL:when={count}"]
        codes.append(scene.run(training.command(), before=traced(call, "/dev/null", kill_there)))
    scene.expect_nothing_left()
    codes.append(scene.run(training.command()))
    if codes[-1] != 0 or any(code not in (0, -signal.SIGKILL, 128 + signal.SIGKILL) for code in codes):
        raise Failure("unusable", f"ended with {codes}, killed at {call} {count}")
    scene.expect_nothing_left()
    expect_same(run, whole)
