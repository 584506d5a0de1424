#!/usr/bin/env python3
"""Signals to trainings under every launcher that this machine has: what is left, and what was said. No part of CTest.

signals.py RINGTAPE [WAY...]: one line for each way of starting it, moment and signal: exit code, seconds, checkpoint.
Ends with 1 if a training (code 75) left no checkpoint and said that it did, or did not say so. MPIEXEC and TORCHRUN
name launchers beside those of PATH; srun needs Slurm's daemons, as tests/slurm.sh starts them for a command."""
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MLP = "train --data shapes --test-size 20 --threads 1 --device cpu"
STEP = f"{MLP} --train-size 4000 --val-size 100 --hidden 16 --batch-size 20 --epochs 100000 --checkpoint-every 0"
RESNET = "--data shapes --model resnet18 --width 4 --threads 1 --device cpu"


def rows(split):
    return lambda run: (run / "metrics.jsonl").exists() and f'"{split}"' in (run / "metrics.jsonl").read_text()


def saves(run):
    folder = run / "checkpoints"
    return folder.exists() and any(not re.fullmatch(r"step-\d+|last|best", name) for name in os.listdir(folder))


# The training, what is awaited, and how many seconds later the signal comes.
MOMENTS = {
    "in a step": (STEP, rows("val"), 0.03),
    "in a validation": (f"{MLP} --train-size 12000 --val-size 11500 --hidden 1024 --batch-size 100 --epochs 3",
                        rows("train"), 0.02),
    "in kNN": (f"pretrain --method simclr {RESNET} --train-size 2000 --test-size 2000 --batch-size 500 --epochs 3",
               rows("train"), 0.02),
    "while saving": (f"{MLP} --train-size 600 --val-size 20 --hidden 4096 --batch-size 20 --epochs 50 "
                     "--checkpoint-steps 5", saves, 0),
    "while starting": (STEP, lambda run: True, 0.15),
}


def ways(ringtape):
    out = {"train": [ringtape, "{}"], "--devices 2": [ringtape, "{}", "--devices", "2"],
           "launch": [ringtape, "launch", "-n", "2", "--", ringtape, "{}"],
           "launch --elastic": [ringtape, "launch", "-n", "2", "--elastic", "--", ringtape, "{}"]}
    for name in {"mpirun", "mpiexec", *os.environ.get("MPIEXEC", "").split()}:
        if path := shutil.which(name):
            version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            open_mpi = ["--allow-run-as-root", "--oversubscribe"] if re.search("Open MPI|OpenRTE", version) else []
            title = ("Open MPI " if open_mpi else "MPICH ") + re.search(r"\d+\.\d+\.\d+", version)[0]
            out[title] = [path, *open_mpi, "-n", "2", ringtape, "{}"]
    if path := shutil.which(os.environ.get("TORCHRUN", "torchrun")):
        out["torchrun"] = [path, "--nproc-per-node", "2", "--no-python", "--", ringtape, "{}"]
    if shutil.which("srun") and subprocess.run(["sinfo"], capture_output=True).returncode == 0:
        out["srun"] = ["srun", "--kill-on-bad-exit", "--job-name", "{run}", "-n", "2", ringtape, "{}"]
    return out


def trial(folder, command, moment, number):
    words, awaited, delay = MOMENTS[moment]
    name = "r" + os.path.basename(tempfile.mktemp())
    whole = [w for word in command
             for w in (words.split() + ["--run", name] if word == "{}" else [word.replace("{run}", name)])]
    run, log = folder / "runs" / name, folder / f"{name}.log"
    with open(log, "wb") as out:
        job = subprocess.Popen(whole, cwd=folder, stdout=out, stderr=out, start_new_session=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
    end = time.monotonic() + 60
    while not awaited(run) and job.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(delay)
    began = time.monotonic()
    if command[0] == "srun":  # which by itself kills its tasks at TERM, and waits for a second INT
        subprocess.run(["scancel", f"--signal={number.name[3:]}", f"--name={name}"], check=True)
    else:
        job.send_signal(number)
    try:
        code = job.wait(60)
    except subprocess.TimeoutExpired:
        code = "hangs"
    seconds = time.monotonic() - began
    time.sleep(0.3)
    said, saved = log.read_text(errors="replace"), (run / "checkpoints/last/state.json").exists()
    early = "before a step was done" in said or "no checkpoint was written" in said
    left = subprocess.run(["pkill", "-9", "-f", "--", f"--run {name}"]).returncode == 0
    false = not saved and ("resume it with" in said or (code == 75 and not early))
    shutil.rmtree(run, ignore_errors=True)
    what = "a checkpoint" if saved else "before the first step" if early else "nothing"
    notes = (", ranks go on" if left else "") + (", SAID FALSELY" if false else "")
    return false, f"{code!s:6} {seconds:6.2f} s  {what}{notes}"


def main():
    found, false = ways(os.path.abspath(sys.argv[1])), 0
    with tempfile.TemporaryDirectory() as folder:
        for way, moment, name in itertools.product(sys.argv[2:] or found, MOMENTS, ("TERM", "USR1", "INT")):
            wrong, line = trial(Path(folder), found[way], moment, getattr(signal, f"SIG{name}"))
            false += wrong
            print(f"{way:17} {moment:16} {name:5} {line}", flush=True)
    sys.exit(min(false, 1))


main()
