#!/usr/bin/env python3
"""All-reduce of f32 sums between processes of this machine: ringtape beside PyTorch's gloo, alternating in one run.

    bench/pytorch/gloo_allreduce.py [--binary build/cpu/ringtape] [--ranks 2 4] [--transports shm tcp] [--rounds 5]
                                   [--sizes 16384 67108864]

In place; the time of an all-reduce is the mean of many, of the slowest rank; best of the rounds. Both have the same
cores: ranks share them evenly.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

SIZES = [16 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20]


def iterations(size):
    return max(3, min(200, (64 << 20) // size))


def gloo_rank(rank, ranks, port, path, sizes):
    """One process of gloo's: writes microseconds by size, on rank 0."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    out = {}
    for size in sizes:
        x = torch.zeros(size // 4)
        for _ in range(3):
            dist.all_reduce(x)
        dist.barrier()
        begin, n = time.perf_counter(), iterations(size)
        for _ in range(n):
            dist.all_reduce(x)
        slowest = torch.tensor([(time.perf_counter() - begin) / n * 1e6], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        out[size] = slowest.item()
    if rank == 0:
        with open(path, "w") as file:
            json.dump(out, file)
    dist.destroy_process_group()


def gloo_round(ranks, sizes, path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, os.path.abspath(__file__), "--gloo", str(ranks), str(port), path, *map(str, sizes)]
    processes = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}) for rank in range(ranks)]
    if any([p.wait() for p in processes]):
        raise SystemExit("gloo failed")
    with open(path) as file:
        return {int(size): us for size, us in json.load(file).items()}


def ringtape_round(binary, transport, ranks, sizes, path):
    out = {}
    for size in sizes:
        command = [binary, "bench", "collectives", "--transport", transport, "--ranks", str(ranks), "-b", str(size),
                   "-e", str(size), "--warmup", "3", "--iterations", str(iterations(size)), "--json", path]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(path) as file:
            out[size] = json.load(file)["rows"][0]["in_place"]["us"]
    return out


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--gloo":
        ranks, port, path, *sizes = sys.argv[2:]
        return gloo_rank(int(os.environ["RANK"]), int(ranks), port, path, [int(size) for size in sizes])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--transports", nargs="+", default=["shm", "tcp"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    args = parser.parse_args()

    import torch

    print(f"all-reduce, f32 sum, in place, {os.cpu_count()} cores, torch {torch.__version__}'s gloo; us, best of "
          f"{args.rounds} alternating rounds")
    print(f"{'ranks':>5} {'transport':>10} {'bytes':>10} {'ringtape':>12} {'gloo':>12} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        for ranks in args.ranks:
            gloo, ours = {}, {transport: {} for transport in args.transports}
            for _ in range(args.rounds):
                rounds = [(gloo, gloo_round(ranks, args.sizes, path))]
                rounds += [(ours[t], ringtape_round(args.binary, t, ranks, args.sizes, path)) for t in args.transports]
                for best, new in rounds:
                    for size, us in new.items():
                        best[size] = min(us, best.get(size, us))
            for transport in args.transports:
                for size in args.sizes:
                    us = ours[transport][size]
                    print(f"{ranks:5} {transport:>10} {size:10} {us:12.1f} {gloo[size]:12.1f} {gloo[size] / us:7.1f}")


if __name__ == "__main__":
    main()
