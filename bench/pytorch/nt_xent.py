#!/usr/bin/env python3
"""Forward and backward of NT-Xent: ringtape in tiles and composed of matmul and cross_entropy, and PyTorch,
alternating in one run.

    bench/pytorch/nt_xent.py [--binary build/cpu/bench/nt_xent_bench] [--rows 1024 4096 16384] [--threads 2]
        [--rounds 5] [--clock wall]

Each time in a process of its own. Medians over the rounds of the medians of some seconds, and the largest growth of
resident memory. PyTorch computes lightly's four-block form (lightly.loss.NTXentLoss without a bank), and the single
product with a masked diagonal.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

TEMPERATURE = 0.5


def lightly(z0, z1):
    import torch
    import torch.nn.functional as F
    n = len(z0)
    u0, u1 = F.normalize(z0, dim=1), F.normalize(z1, dim=1)
    others = ~torch.eye(n, dtype=torch.bool)
    s00 = (torch.einsum("nc,mc->nm", u0, u0) / TEMPERATURE)[others].view(n, -1)
    s01 = torch.einsum("nc,mc->nm", u0, u1) / TEMPERATURE
    s10 = torch.einsum("nc,mc->nm", u1, u0) / TEMPERATURE
    s11 = (torch.einsum("nc,mc->nm", u1, u1) / TEMPERATURE)[others].view(n, -1)
    scores = torch.cat([torch.cat([s01, s00], 1), torch.cat([s10, s11], 1)])
    return F.cross_entropy(scores, torch.arange(n).repeat(2))


def masked(z0, z1):
    import torch
    import torch.nn.functional as F
    n = len(z0)
    u = F.normalize(torch.cat([z0, z1]), dim=1)
    scores = (u @ u.T / TEMPERATURE).fill_diagonal_(float("-inf"))
    return F.cross_entropy(scores, torch.arange(2 * n).roll(n))


def status(key):
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def measure(form, rows, dims, threads, seconds):
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    z = [torch.randn(rows // 2, dims, requires_grad=True) for _ in range(2)]
    before, wall, cpu = status("VmRSS:"), [], []
    while sum(wall) < seconds or len(wall) < 3:
        for x in z:
            x.grad = None
        begin, cpu_begin = time.perf_counter(), time.process_time()
        form(*z).backward()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
    print(json.dumps({"wall": 1e3 * statistics.median(wall[1:]), "cpu": 1e3 * statistics.median(cpu[1:]),
                      "peak_mb": (status("VmHWM:") - before) / 1e6}))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(here, "../../build/cpu/bench/nt_xent_bench"))
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--dims", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: processor time")
    parser.add_argument("--form", choices=["lightly", "masked"], help=argparse.SUPPRESS)  # measure this one here
    args = parser.parse_args()
    if args.form:
        return measure(globals()[args.form], args.rows[0], args.dims, args.threads, args.seconds)

    def run(command):
        environment = dict(os.environ, RINGTAPE_THREADS=str(args.threads))
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)

    def ours(form):
        return lambda rows: run([args.binary, form, str(rows), str(args.dims), str(args.seconds)])

    def theirs(form):
        return lambda rows: run([sys.executable, __file__, "--form", form, "--rows", str(rows), "--dims",
                                 str(args.dims), "--threads", str(args.threads), "--seconds", str(args.seconds)])

    contenders = {"tiled": ours("tiled"), "plain": ours("plain"), "torch, lightly's": theirs("lightly"),
                  "torch, masked": theirs("masked")}
    print(f"NT-Xent, D {args.dims}, f32, {args.threads} threads, forward and backward; "
          f"medians of {args.rounds} alternating rounds: ms ({args.clock}), MB")
    print(f"{'rows':>6} " + " ".join(f"{name:>22}" for name in contenders)
          + "   tiled beside each: median (lowest to highest)")
    for rows in args.rows:
        got = {name: [] for name in contenders}
        for _ in range(args.rounds):
            for name, contender in contenders.items():
                got[name].append(contender(rows))
        cells, ratios = [], []
        for name, results in got.items():
            cells.append(f"{statistics.median(r[args.clock] for r in results):12.2f} "
                         f"{max(r['peak_mb'] for r in results):9.1f}")
            if name != "tiled":
                each = sorted(r[args.clock] / t[args.clock] for r, t in zip(results, got["tiled"]))
                ratios.append(f"{statistics.median(each):.2f}x ({each[0]:.2f} to {each[-1]:.2f})")
        print(f"{rows:6} " + " ".join(cells) + "   " + ", ".join(ratios), flush=True)


if __name__ == "__main__":
    main()
