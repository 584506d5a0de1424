"""The terminal goes, a batch system warns, nobody can store more, two begin at once: a training ends with a reason or a
checkpoint, or refuses, and goes on to the same end."""
import os
import re
import signal
import time

from job import Failure, await_that, kill
from training import DATA, MODELS, RUN, draw, expect_same


def resume(setting, scene, training, what, without=()):
    whole, _ = setting.references.of(training)
    if (code := scene.run(training.command())) != 0:
        raise Failure("unusable", f"{what}: ended with {code} when it was to go on")
    scene.expect_nothing_left()
    whole = {name: value for name, value in whole.items() if name.split("/")[0] not in without}
    expect_same(scene.folder / "runs" / RUN, whole, without)


def told_by(number):
    """A signal that asks for an end, at a random moment; to the launcher if there is one."""
    def trial(setting, scene, rng):
        training = draw(rng)
        _, seconds = setting.references.of(training)
        job = scene.start(training.command())
        time.sleep(rng.random() * seconds)
        kill(job.pid, number)
        code = scene.wait(job)
        scene.expect_nothing_left()
        early = (-number, 128 + number)  # before main() has begun
        if code not in (0, 75, *early):
            raise Failure("unnamed", f"{signal.Signals(number).name}: exit code {code}")
        # Its additional checkpoint changes which ones are kept.
        resume(setting, scene, training, signal.Signals(number).name, ("checkpoints",))
    return trial


def file_size(setting, scene, rng):
    """RLIMIT_FSIZE: no file may become longer than that, its log excepted, which is shorter."""
    training = draw(rng)
    bound = rng.choice([8000, 20000, 60000, 200000])
    code = scene.run(training.command(), before=("prlimit", f"--fsize={bound}"))
    scene.expect_nothing_left()
    if code < 0 or (code != 0 and "File too large" not in scene.said()):
        raise Failure("unnamed", f"files of at most {bound} bytes: exit code {code}, and no word of it")
    resume(setting, scene, training, f"files of at most {bound} bytes")


def full_output(setting, scene, rng):
    """The training is done all the same, and its exit code says that its output is lost."""
    training = draw(rng)
    with open("/dev/full", "w") as full:
        code = scene.wait(scene.start(training.command(), stdout=full))
    scene.expect_nothing_left()
    if code != 1 or not re.search("standard output: cannot write", scene.said()):
        raise Failure("unnamed", f"a full standard output: exit code {code}")
    whole, _ = setting.references.of(training)
    expect_same(scene.folder / "runs" / RUN, whole)


def two_at_once(setting, scene, rng):
    """In one folder: one of them trains, the other is refused, even if the lock is removed once the first trains."""
    training = draw(rng, ranks=(1,))
    run = scene.folder / "runs" / RUN
    first = scene.start(training.command())
    time.sleep(rng.random() * 0.1)
    if rng.random() < 0.5 and await_that((run / "metrics.csv").exists, 20):
        (run / ".lock").unlink()
    second = scene.start(training.command())
    codes = scene.wait(first), scene.wait(second)
    scene.expect_nothing_left()
    refused = "another process" in scene.said()
    if sorted(codes) != ([0, 2] if refused else [0, 0]):
        raise Failure("different", f"two at once ended with {codes}")
    resume(setting, scene, training, "two at once")


def default_names(setting, scene, rng):
    """Runs without a name that begin at once get a folder each."""
    words = [*MODELS["mlp"].split(), *DATA.split()]
    jobs = [scene.start(words) for _ in range(4)]
    codes = [scene.wait(job) for job in jobs]
    scene.expect_nothing_left()
    runs = os.listdir(scene.folder / "runs")
    if codes != [0] * 4 or len(runs) != 4:
        raise Failure("different", f"4 runs without a name ended with {codes}, in {runs}")


KINDS = [told_by(signal.SIGHUP), told_by(signal.SIGUSR1), file_size, full_output, two_at_once, default_names]


def trial(setting, scene, rng, number):
    KINDS[number % len(KINDS)](setting, scene, rng)
