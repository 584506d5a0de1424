#!/usr/bin/env python3
"""Trainings whose ranks are killed, asked to leave and joined by others, compared with undisturbed ones.

  tests/elastic.py histories N   with --shares: weights, optimizer and metrics must be the same bytes
  tests/elastic.py samples N     without --shares: each sample of each epoch is used exactly once
  tests/elastic.py kills N       how long the others take to go on, over shm and tcp
  tests/elastic.py soak SECONDS  kills all the time: memory, descriptors and shared memory must not grow

--ringtape PATH, --seed N, --model NAME; the exit code is 1 if something differs."""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOKEN = "0123456789abcdef0123456789abcdef"
KEPT = ("split", "epoch", "step", "loss", "top1", "top5", "lr", "grad_norm")  # of a line of metrics: no times
MODELS = {
    "mlp": ["--model", "mlp", "--dropout", "0.3", "--epochs", "3", "--train-size", "4000"],
    "resnet18": ["--model", "resnet18", "--width", "4", "--epochs", "2", "--train-size", "1200"],
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


class Job:
    """A training by `ringtape launch --elastic`, in a folder of its own."""

    def __init__(self, a, folder, flags, ranks=4, elastic=True):
        self.a, self.folder, self.run = a, folder, os.path.join(folder, "run")
        self.env = {**os.environ, "RINGTAPE_TOKEN": TOKEN, "RINGTAPE_THREADS": "1"}
        self.port = free_port()
        self.log = open(os.path.join(folder, "log"), "ab")
        train = ["train", "--data", "shapes", "--test-size", "200", "--batch-size", "64", "--log-every", "1",
                 "--run", self.run, *flags]
        how = ["--elastic", "--max-restarts", "100000", "--master-port", str(self.port)] if elastic else []
        self.launchers = [self.start(["-n", str(ranks), *how, "--", *train])]

    def start(self, arguments):
        return subprocess.Popen([self.a.ringtape, "launch", *arguments], env=self.env, stdout=self.log,
                                stderr=subprocess.STDOUT, cwd=self.folder)

    def join(self, ranks):
        self.launchers.append(self.start(["--join", f"127.0.0.1:{self.port}", "-n", str(ranks)]))

    def ranks(self):
        """Processes of ranks that train already or are about to."""
        out = []
        for launcher in self.launchers:
            for pid in children(launcher.pid):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        if f.read().split(b"\0")[1] == b"train":  # not the launcher's own helper
                            out.append(pid)
                except (OSError, IndexError):
                    pass
        return out

    def metrics(self):
        try:
            with open(os.path.join(self.run, "metrics.jsonl")) as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except OSError:
            return []

    def step(self):
        """The newest step in the metrics; 0: none."""
        try:
            with open(os.path.join(self.run, "metrics.jsonl"), "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - 2000))
                found = re.findall(rb'"step":(\d+)', f.read())
                return int(found[-1]) if found else 0
        except OSError:
            return 0

    def runs(self):
        return self.launchers[0].poll() is None

    def wait_for_step(self, step, seconds=120):
        end = time.monotonic() + seconds
        while self.step() < step and self.runs() and time.monotonic() < end:
            time.sleep(0.002)
        return self.step() >= step

    def end(self, seconds=300):
        """The exit code of the first launcher; -1: it does not end."""
        try:
            code = self.launchers[0].wait(seconds)
        except subprocess.TimeoutExpired:
            code = -1
        for launcher in self.launchers:
            launcher.terminate() if code == -1 else None
            try:
                launcher.wait(20)
            except subprocess.TimeoutExpired:
                launcher.kill()
        self.log.close()
        return code

    def result(self):
        """Name and checksum of all that must be equal."""
        out = {}
        last = os.path.join(self.run, "checkpoints", "last")
        for folder in (os.path.join(self.run, "exported"), last):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".safetensors"):
                    with open(os.path.join(folder, name), "rb") as f:
                        out[os.path.basename(folder) + "/" + name] = hashlib.md5(f.read()).hexdigest()
        lines = [[m.get(k) for k in KEPT] for m in self.metrics() if m["split"] not in ("membership", "summary")]
        out["metrics"] = hashlib.md5(json.dumps(lines).encode()).hexdigest()
        out["lines"] = len(lines)
        return out


def kill(pid, how=signal.SIGKILL):
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass


EVENTS = {"kill": 6, "double": 2, "again": 2, "leave": 1, "join": 1, "early": 1}


def disturb(job, draw, steps):
    """One to ten events at random moments of a training of `steps` steps; returns their names."""
    done = []
    at = sorted(draw.randrange(steps - 5) for _ in range(draw.randint(1, 10)))
    for step in at:
        event = draw.choices(list(EVENTS), EVENTS.values())[0]
        if not (job.wait_for_step(step) if event != "early" else job.runs()):
            break
        time.sleep(draw.random() * 0.02)
        ranks = job.ranks()
        if not ranks:
            continue
        if event == "join" and len(job.launchers) < 4:
            job.join(1)
        elif event == "leave":
            if len(ranks) < 2 or job.step() == 0:
                continue
            kill(draw.choice(ranks), signal.SIGTERM)
        else:
            for pid in draw.sample(ranks, min(len(ranks), 2 if event == "double" else 1)):
                kill(pid)
            if event == "again":  # while the others meet
                time.sleep(draw.random() * 0.05)
                left = job.ranks()
                if left:
                    kill(draw.choice(left))
        done.append(f"{event}@{job.step()}")
    return done


def flags_of(a):
    return [*MODELS[a.model], "--shares", "4", "--deterministic", "--optimizer", "adam", "--ema", "0.99",
            "--clip-grad-norm", "1", "--checkpoint-steps", "17", "--transport", (a.transport or ["auto"])[0]]


def histories(a):
    draw = random.Random(a.seed)
    with tempfile.TemporaryDirectory(prefix="ringtape-elastic-") as folder:
        results = {}
        for ranks in (1, 2, 3, 4):
            path = os.path.join(folder, f"undisturbed-{ranks}")
            os.mkdir(path)
            job = Job(a, path, flags_of(a), ranks, elastic=False)
            if job.end() != 0:
                sys.exit(open(os.path.join(path, "log")).read())
            results[ranks] = job.result()
            steps = job.step()
        print(f"undisturbed: {steps} steps, {results[1]['lines']} lines of metrics")
        different = sum(results[r] != results[1] for r in (2, 3, 4))
        for number in range(a.count):
            path = os.path.join(folder, f"history-{number}")
            os.mkdir(path)
            begin = time.monotonic()
            job = Job(a, path, flags_of(a))
            events = disturb(job, draw, steps)
            code = job.end()
            try:
                result = job.result()
            except OSError as e:
                result = {"error": str(e)}
            ended = [m for m in job.metrics() if m["split"] == "membership"]
            same = code in (0, 75) and result == results[1]
            what = "same bytes" if same else f"DIFFERENT: exit code {code}, {result}"
            print(f"history {number}: {what}; {len(ended)} changes of ranks, {time.monotonic() - begin:.1f} s: "
                  f"{' '.join(events)}", flush=True)
            different += not same
            if not same and a.keep:
                shutil.copytree(path, os.path.join(a.keep, f"history-{number}"))
            shutil.rmtree(path)
        print(f"{a.count} histories of {a.model}, {different} different")
        return different == 0


def epochs_of(job):
    return [(m["epoch"], m["top1"], m["top5"], m["loss"]) for m in job.metrics() if m["split"] == "train"]


def samples(a):
    """With a rate that changes no weight, loss and accuracies of an epoch tell which samples it had."""
    draw = random.Random(a.seed)
    flags = [*MODELS["mlp"], "--dropout", "0", "--optimizer", "sgd", "--lr", "1e-30"]
    with tempfile.TemporaryDirectory(prefix="ringtape-elastic-") as folder:
        undisturbed, wrong = None, 0
        for number in range(-1, a.count):
            path = os.path.join(folder, str(number))
            os.mkdir(path)
            job = Job(a, path, flags, elastic=number >= 0)
            events = disturb(job, draw, undisturbed[1]) if undisturbed else []
            code, found = job.end(), epochs_of(job)
            if not undisturbed:
                undisturbed = found, job.step()
                continue
            same = code == 0 and len(found) == len(undisturbed[0]) and all(
                x[:3] == y[:3] and abs(x[3] - y[3]) <= 1e-6 * y[3] for x, y in zip(found, undisturbed[0]))
            wrong += not same
            print(f"history {number}: {'every sample once' if same else f'WRONG: {code}, {found}'}: {' '.join(events)}",
                  flush=True)
        print(f"{a.count} histories, {wrong} wrong; undisturbed: {undisturbed[0]}")
        return wrong == 0


def kills(a):
    """Times from a kill to the next step in the metrics, and whether the others' processes stay."""
    fine = True
    for transport in a.transport or ("shm", "tcp"):
        times, moved = [], 0
        draw = random.Random(a.seed)
        with tempfile.TemporaryDirectory(prefix="ringtape-elastic-") as folder:
            job = Job(a, folder, ["--model", "mlp", "--epochs", "100000", "--train-size", "4000", "--transport",
                                  transport, "--checkpoint-every", "0"])
            job.wait_for_step(20)
            for _ in range(a.count):
                end = time.monotonic() + 60
                while len(job.ranks()) < 4 and time.monotonic() < end:
                    time.sleep(0.02)
                time.sleep(0.5 + draw.random() * 0.5)
                before = job.ranks()
                if not job.runs() or not before:
                    print(f"{transport}: the job has ended: {open(os.path.join(folder, 'log')).read()[-4000:]}")
                    return False
                victim = draw.choice(before)
                step, begin = job.step(), time.monotonic()
                kill(victim)
                while job.step() <= step + 1 and job.runs() and time.monotonic() - begin < 30:
                    time.sleep(0.001)
                times.append(time.monotonic() - begin)
                if times[-1] > 1:
                    changes = [m for m in job.metrics() if m["split"] == "membership" and m["step"] >= step]
                    print(f"{times[-1]:.2f} s after step {step}: {changes}", flush=True)
                moved += not set(before) - {victim} <= set(job.ranks())
            for launcher in job.launchers:
                launcher.terminate()
            job.end(60)
        median, worst = statistics.median(times), max(times)
        fine = fine and moved == 0 and worst < 30
        print(f"{transport}: {a.count} kills, next step after {median:.3f} s (median), {worst:.3f} s (worst); "
              f"other processes ended: {moved}", flush=True)
    return fine


def use_of(pid):
    with open(f"/proc/{pid}/status") as f:
        memory = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) // 1024
    return memory, len(os.listdir(f"/proc/{pid}/fd"))


def soak(a):
    draw = random.Random(a.seed)
    with tempfile.TemporaryDirectory(prefix="ringtape-elastic-") as folder:
        job = Job(a, folder, ["--model", "mlp", "--epochs", "100000", "--train-size", "4000",
                              "--checkpoint-every", "50"])
        job.wait_for_step(20)
        spared = job.ranks()[0]  # what one process needs after many generations
        end, reported, count = time.monotonic() + a.count, 0, 0
        while time.monotonic() < end and job.runs():
            time.sleep(draw.uniform(*a.pause))
            others = [pid for pid in job.ranks() if pid != spared]
            if others:
                kill(draw.choice(others))
                count += 1
            if time.monotonic() - reported > 60:
                reported = time.monotonic()
                shared = len([n for n in os.listdir("/dev/shm") if "ringtape" in n])
                print(f"kills {count}, step {job.step()}: rank {use_of(spared)} (MiB, descriptors), launcher "
                      f"{use_of(job.launchers[0].pid)}, /dev/shm {shared}", flush=True)
        for launcher in job.launchers:
            launcher.terminate()
        return job.end(60) == 75


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("histories", "samples", "kills", "soak"))
    parser.add_argument("count", type=int)
    parser.add_argument("--ringtape", default="build/cpu/ringtape")
    parser.add_argument("--model", choices=list(MODELS), default="mlp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transport", nargs="+", help="kills: one after the other; histories: the first")
    parser.add_argument("--keep", help="folder for what differs")
    parser.add_argument("--pause", type=float, nargs=2, default=(5, 15), help="soak: seconds between two kills")
    a = parser.parse_args()
    a.ringtape = os.path.abspath(a.ringtape)
    sys.exit(0 if {"histories": histories, "samples": samples, "kills": kills, "soak": soak}[a.what](a) else 1)


if __name__ == "__main__":
    main()
