#!/usr/bin/env python3
"""Training steps per second of the MLP 784-128-10, ringtape beside PyTorch eager, alternating in one run.

    bench/pytorch/mlp_step.py [--binary build/cpu/ringtape] [--batch-size 16] [--threads 1 2] [--optimizer sgd adam]
        [--rounds 7]

Both train on one batch that stays in memory: forward, backward and optimizer step. Medians over the rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch


def torch_stepper(batch_size, optimizer):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    kinds = {"sgd": lambda p: torch.optim.SGD(p, lr=1e-2), "adam": lambda p: torch.optim.Adam(p, lr=1e-3)}
    update = kinds[optimizer](model.parameters())
    loss_of = torch.nn.CrossEntropyLoss()
    x, y = torch.randn(batch_size, 784), torch.arange(batch_size) * 7 % 10

    def step():
        update.zero_grad()
        loss_of(model(x), y).backward()
        update.step()

    return step


def torch_rate(step, seconds=0.7):
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(50):
            step()
        steps += 50
    return steps / (time.perf_counter() - begin)


def ringtape_rate(binary, batch_size, threads, optimizer):
    command = [binary, "bench", "step", "--model", "mlp", "--batch-size", str(batch_size), "--threads", str(threads),
               "--optimizer", optimizer, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["steps_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--optimizer", nargs="+", default=["sgd", "adam"])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()

    print(f"MLP 784-128-10, batch {args.batch_size}, f32, torch {torch.__version__}; steps/s, median of {args.rounds} "
          f"alternating rounds")
    print(f"{'optimizer':10} {'threads':>7} {'ringtape':>10} {'PyTorch':>10} {'ratio':>7}   (rounds: lowest to "
          f"highest ratio)")
    for optimizer in args.optimizer:
        for threads in args.threads:
            torch.set_num_threads(threads)
            step = torch_stepper(args.batch_size, optimizer)
            torch_rate(step, 0.3)
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(ringtape_rate(args.binary, args.batch_size, threads, optimizer))
                theirs.append(torch_rate(step))
            ratios = sorted(a / b for a, b in zip(ours, theirs))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"{optimizer:10} {threads:7} {a:10,.0f} {b:10,.0f} {a / b:6.2f}x   ({ratios[0]:.2f} to "
                  f"{ratios[-1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
