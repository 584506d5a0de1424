#!/usr/bin/env python3
"""Training steps per second of the MLP 784-128-10: ringtape, PyTorch eager and JAX, alternating in one run.

    bench/pytorch/mlp_step.py [--binary build/cpu/ringtape] [--batch-size 16] [--threads 1 2] [--optimizer sgd adam]
        [--peers torch jax] [--rounds 7]

All train on one batch that stays in memory, in f32: forward, backward and optimizer step. JAX repeats 2,000 steps in
one compiled lax.scan, so that no Python runs between them; its threads are limited by the processors that it may use.
Medians over the rounds, each in a process of its own.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SECONDS = 1


def rate(run, steps):
    """Of a call that makes so many steps."""
    run()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        run()
        done += steps
    return done / (time.perf_counter() - begin)


def torch_rate(batch_size, threads, optimizer):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    kinds = {"sgd": lambda p: torch.optim.SGD(p, lr=1e-2), "adam": lambda p: torch.optim.Adam(p, lr=1e-3)}
    update = kinds[optimizer](model.parameters())
    loss_of = torch.nn.CrossEntropyLoss()
    x, y = torch.randn(batch_size, 784), torch.arange(batch_size) * 7 % 10

    def run():
        for _ in range(50):
            update.zero_grad()
            loss_of(model(x), y).backward()
            update.step()

    return rate(run, 50)


def jax_rate(batch_size, threads, optimizer):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax
    from jax import lax, numpy

    def loss_of(w):
        hidden = jax.nn.relu(x @ w[0] + w[1])
        return -jax.nn.log_softmax(hidden @ w[2] + w[3])[numpy.arange(batch_size), y].mean()

    def sgd(state, _):
        w, = state
        return (tuple(p - 1e-2 * g for p, g in zip(w, jax.grad(loss_of)(w))),), None

    def adam(state, _):
        w, mean, square, step = state
        gradients, step = jax.grad(loss_of)(w), step + 1
        mean = tuple(0.9 * m + 0.1 * g for m, g in zip(mean, gradients))
        square = tuple(0.999 * s + 0.001 * g * g for s, g in zip(square, gradients))
        rate, root = 1e-3 / (1 - 0.9**step), numpy.sqrt(1 - 0.999**step)
        return (tuple(p - rate * m / (numpy.sqrt(s) / root + 1e-8) for p, m, s in zip(w, mean, square)), mean, square,
                step), None

    keys = jax.random.split(jax.random.key(1), 5)
    x, y = jax.random.normal(keys[0], (batch_size, 784)), numpy.arange(batch_size) * 7 % 10
    shapes = [((784, 128), 784), (128, 784), ((128, 10), 128), (10, 128)]
    weights = tuple(jax.random.uniform(k, s, minval=-n**-0.5, maxval=n**-0.5) for k, (s, n) in zip(keys[1:], shapes))
    zero = tuple(map(numpy.zeros_like, weights))
    state = (weights, zero, zero, numpy.zeros(())) if optimizer == "adam" else (weights,)
    steps = jax.jit(lambda state: lax.scan({"sgd": sgd, "adam": adam}[optimizer], state, length=2000)[0])
    return rate(lambda: jax.block_until_ready(steps(state)), 2000)


PEERS = {"torch": torch_rate, "jax": jax_rate}


def output_of(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--optimizer", nargs="+", default=["sgd", "adam"])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer", nargs=4, metavar=("NAME", "BATCH", "THREADS", "OPTIMIZER"), help="one of them alone")
    args = parser.parse_args()
    if args.peer:
        name, batch_size, threads, optimizer = args.peer
        return print(json.dumps({"steps_per_s": PEERS[name](int(batch_size), int(threads), optimizer)}))

    print(f"MLP 784-128-10, batch {args.batch_size}, f32; steps/s, median of {args.rounds} alternating rounds (ratio: "
          f"lowest to highest)")
    print(f"{'optimizer':10} {'threads':>7} {'ringtape':>10}" + "".join(f" {name:>10} {'ratio':>7}" + 16 * " "
                                                                        for name in args.peers))
    for optimizer in args.optimizer:
        for threads in args.threads:
            common = [str(args.batch_size), str(threads), optimizer]
            commands = {name: [sys.executable, os.path.abspath(__file__), "--peer", name, *common]
                        for name in args.peers}
            commands["ringtape"] = [args.binary, "bench", "step", "--model", "mlp", "--batch-size", common[0],
                                    "--threads", common[1], "--optimizer", optimizer, "--json"]
            rates = {name: [] for name in commands}
            for _ in range(args.rounds):
                for name, command in commands.items():
                    rates[name].append(output_of(command)["steps_per_s"])
            ours = rates.pop("ringtape")
            line = f"{optimizer:10} {threads:7} {statistics.median(ours):10,.0f}"
            for each in rates.values():
                ratios = sorted(a / b for a, b in zip(ours, each))
                line += (f" {statistics.median(each):10,.0f} {statistics.median(ours) / statistics.median(each):6.2f}x "
                         f"({ratios[0]:5.2f} to {ratios[-1]:5.2f})")
            print(line, flush=True)


if __name__ == "__main__":
    main()
