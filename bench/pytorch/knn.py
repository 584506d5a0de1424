#!/usr/bin/env python3
"""Nearest neighbours, ringtape's streaming selection beside torch's matmul and topk, alternating, each in a process
of its own.

    bench/pytorch/knn.py [--binary build/cpu/bench/knn_bench] [--sizes 10000 50000 512 200] [--threads 2] [--rounds 3]
        [--chunk 1000]

Seconds and largest memory of the process, medians of the rounds: all products at once, and --chunk queries at a time.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time


def torch_run(queries, bank, depth, k, threads, chunk):
    import torch
    torch.set_num_threads(threads)
    q, b = torch.randn(queries, depth), torch.randn(bank, depth)
    begin = time.perf_counter()
    for part in q.split(chunk):
        (part @ b.T).topk(k)
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/cpu/bench/knn_bench")
    parser.add_argument("--sizes", type=int, nargs=4, default=[10000, 50000, 512, 200],
                        metavar=("QUERIES", "BANK", "DEPTH", "K"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=1000)
    parser.add_argument("--torch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch is not None:
        return torch_run(*args.sizes, args.threads, args.torch)
    sizes = [str(n) for n in args.sizes]
    own = [sys.executable, __file__, "--threads", str(args.threads), "--sizes", *sizes, "--torch"]
    commands = {"ringtape": [args.binary, *sizes], "torch": own + [sizes[0]], f"torch, {args.chunk} at a time": own
                + [str(args.chunk)]}
    found = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            out = subprocess.run(command, check=True, capture_output=True, text=True,
                                 env=dict(os.environ, RINGTAPE_THREADS=str(args.threads)))
            found[name].append(json.loads(out.stdout))
    best = {name: statistics.median(run["seconds"] for run in runs) for name, runs in found.items()}
    for name, runs in found.items():
        peak = statistics.median(run["peak_bytes"] for run in runs)
        print(f"{name:24} {best[name]:8.2f} s  {best[name] / best['ringtape']:5.2f}x  {peak / 1e6:8.0f} MB")


if __name__ == "__main__":
    main()
