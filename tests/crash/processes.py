"""Processes are killed, stopped or short of something: the job ends in bounded time, not with 0, says why, and leaves
nothing behind. A rank that is stopped for a moment only, or killed where restarts are allowed, changes nothing."""
import os
import random
import re
import signal
import time

from job import Failure, await_that, kill
from training import DATA, MODELS, RUN, Training, expect_same

BOUND = 40  # seconds from the fault to the end of all
ENDLESS = f"{MODELS['mlp']} {DATA} --epochs 1000000 --checkpoint-every 0 --log-every 1"
ENOUGH = re.compile("memory|bad_alloc|descriptor|Too many open files|ulimit|thread|fork|Resource temporarily "
                    "unavailable", re.IGNORECASE)


def start(scene, rng, training=ENDLESS, before=(), **how):
    ranks = rng.choice([2, 2, 3])
    words = ["launch", "-n", ranks, "--no-pin", "--grace", "2", "--timeout", "25", "--", *training.split(),
             "--transport", rng.choice(["shm", "tcp"]), "--run", RUN]
    return scene.start(words, before=before, env={"RINGTAPE_HEARTBEAT": "2"}, **how), ranks


def some_moment(scene, rng, launcher, ranks):
    """Half of them before the ranks have met."""
    if not await_that(lambda: len(scene.ranks()) == ranks or launcher.poll() is not None, 20):
        raise Failure("hung", "the ranks do not start")
    time.sleep(rng.random() * rng.choice([0.35, 2]))


def expect_end(scene, launcher, codes, *words):
    code = scene.wait(launcher, BOUND)
    scene.expect_nothing_left()
    if code not in codes:
        raise Failure("unnamed", f"exit code {code}, expected one of {codes}")
    for word in words:
        if not re.search(word, scene.said()):
            raise Failure("unnamed", f"exit code {code}, and no word of '{word}'")


def rank_gets(number):
    def trial(setting, scene, rng):
        launcher, ranks = start(scene, rng)
        some_moment(scene, rng, launcher, ranks)
        victim = rng.randrange(ranks)
        kill(scene.ranks()[victim], number)
        if number == signal.SIGTERM:
            expect_end(scene, launcher, (75, 128 + number), "stopped|SIGTERM")
        elif number == signal.SIGSTOP:
            expect_end(scene, launcher, (1, 124, 137), f"rank {victim}|did not end within")
        else:
            expect_end(scene, launcher, (128 + number,),
                       f"rank {victim} of {ranks} was the first to fail: killed by signal {number}")
    return trial


def launcher_gets(number, guard_first=False):
    def trial(setting, scene, rng):
        launcher, ranks = start(scene, rng)
        some_moment(scene, rng, launcher, ranks)
        if guard_first:
            kill(scene.guard(launcher.pid) or launcher.pid, signal.SIGKILL)
        kill(launcher.pid, number)
        expect_end(scene, launcher, (-number, 75, 128 + number))
    return trial


def limit(option, low, high):
    """A short training under prlimit: it has enough, or says of what it has not."""
    def trial(setting, scene, rng):
        training = f"{MODELS['mlp']} {DATA}"
        own = f"--nproc={rng.randint(low, high)}" if option == "nproc" else f"--{option}={rng.randint(low, high)}"
        how = {}
        # Root has no such limit; of a user without other processes it is exact.
        if option == "nproc" and os.geteuid() == 0:
            user = 100_000 + random.randrange(1 << 20)
            for folder in (scene.folder, scene.folder / "private"):
                os.chown(folder, user, user)
            how = {"user": user, "group": user, "extra_groups": []}
        launcher, _ = start(scene, rng, training, ("prlimit", own), **how)
        code = scene.wait(launcher, BOUND)
        scene.expect_nothing_left()
        if code != 0 and not ENOUGH.search(scene.said()):
            raise Failure("unnamed", f"{own}: exit code {code}, and no word of what there is not enough of")
        if code < 0:
            raise Failure("unnamed", f"{own}: ended by {signal.Signals(-code).name}")
    return trial


def nobody_reads(setting, scene, rng):
    """Of the launcher's output: its ranks write on, and what is to end it does."""
    out, end = os.pipe()
    try:
        limited = rng.random() < 0.3
        if limited:
            words = ["launch", "-n", "2", "--grace", "1", "--timeout", "3", "--exec", "--", "yes"]
            launcher = scene.start(words, stdout=end)
        else:
            launcher, ranks = start(scene, rng, ENDLESS + " --json", stdout=end)
            some_moment(scene, rng, launcher, ranks)
            time.sleep(2)  # until the pipe is full
            rank_dies = rng.random() < 0.5
            kill(scene.ranks()[1] if rank_dies else launcher.pid, signal.SIGKILL if rank_dies else signal.SIGTERM)
        expect_end(scene, launcher, (124,) if limited else (75, 137, 143))
    finally:
        os.close(out)
        os.close(end)


def goes_on(setting, scene, rng):
    """A rank is stopped for a moment, or killed where restarts are allowed: the job ends as if nothing had been."""
    words = f"{MODELS['mlp']} {DATA} --epochs 20 --checkpoint-steps 7 --transport {rng.choice(['shm', 'tcp'])}".split()
    training = Training(tuple(words), 2, True, ("--max-restarts", "3"))
    whole, seconds = setting.references.of(training)
    launcher = scene.start(training.command())
    if not await_that(lambda: len(scene.ranks()) == 2 or launcher.poll() is not None, 20):
        raise Failure("hung", "the ranks do not start")
    time.sleep(rng.random() * seconds)
    victim = scene.ranks().get(rng.randrange(2), 0)
    if victim and rng.random() < 0.5:
        kill(victim, signal.SIGKILL)
    elif victim:
        kill(victim, signal.SIGSTOP)
        time.sleep(rng.random())
        kill(victim, signal.SIGCONT)
    expect_end(scene, launcher, (0,))
    expect_same(scene.folder / "runs" / RUN, whole)


KINDS = [rank_gets(signal.SIGKILL), rank_gets(signal.SIGSEGV), rank_gets(signal.SIGSTOP), rank_gets(signal.SIGTERM),
         launcher_gets(signal.SIGKILL), launcher_gets(signal.SIGKILL, True), launcher_gets(signal.SIGTERM),
         limit("nofile", 8, 40), limit("nproc", 3, 16), limit("as", 100 << 20, 2000 << 20), nobody_reads, goes_on]


def trial(setting, scene, rng, number):
    KINDS[number % len(KINDS)](setting, scene, rng)
