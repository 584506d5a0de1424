#!/usr/bin/env python3
"""scaled_dot_product_attention, forward and backward: ringtape and PyTorch, alternating in one run.

    bench/pytorch/attention.py [--binary build/cpu/bench/ops_bench] [--precision f32 bf16] [--threads 1 2] [--rounds 5]

The workloads of ops_bench. Medians over the rounds; each program in a process of its own.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

SHAPES = {"64x3x65x64": ((64, 3, 65, 64), False), "16x3x197x64": ((16, 3, 197, 64), False),
          "8x2048x64": ((1, 8, 2048, 64), False), "8x2048x64_causal": ((1, 8, 2048, 64), True)}
OP = "scaled_dot_product_attention"


def measure_torch(precision, threads):
    """Prints the microseconds of each workload's forward pass, and of both passes."""
    import torch
    import torch.nn.functional as F
    from ops import torch_us
    torch.set_num_threads(threads)
    out = {}
    for name, (shape, causal) in SHAPES.items():
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        heads = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
        gradient = torch.randn(shape, dtype=dtype)
        attend = lambda: F.scaled_dot_product_attention(*heads, is_causal=causal)
        with torch.no_grad():
            forward = torch_us(attend, 0.5)
        out[name] = forward, torch_us(lambda: torch.autograd.grad(attend(), heads, gradient), 0.5)
    print(json.dumps({"version": torch.__version__, "us": out}))


def measure_ringtape(binary, precision, threads):
    command = [binary, "--dtype", precision, f"--benchmark_filter={OP}", "--benchmark_min_time=0.3",
               "--benchmark_format=json"]
    environment = dict(os.environ, RINGTAPE_THREADS=str(threads))
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
    times = {b["name"]: b["real_time"] for b in found["benchmarks"]}
    of = lambda name, part: times[f"{OP}/{name}/{part}/real_time"]
    return {name: (of(name, "forward"), of(name, "forward") + of(name, "backward")) for name in SHAPES}


def main():
    if sys.argv[1:2] == ["--torch"]:
        return measure_torch(sys.argv[2], int(sys.argv[3]))
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(here, "../../build/cpu/bench/ops_bench"))
    parser.add_argument("--precision", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("precision threads workload            ringtape: forward, both    PyTorch: forward, both   ratios")
    for precision in args.precision:
        for threads in args.threads:
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(measure_ringtape(args.binary, precision, threads))
                run = subprocess.run([sys.executable, __file__, "--torch", precision, str(threads)], check=True,
                                     capture_output=True, text=True)
                theirs.append(json.loads(run.stdout)["us"])
            for name in SHAPES:
                mine, other = ([statistics.median(r[name][i] for r in rounds) for i in range(2)]
                               for rounds in (ours, theirs))
                print(f"{precision:9} {threads:7} {name:17} {mine[0]:15,.0f} {mine[1]:11,.0f} {other[0]:14,.0f} "
                      f"{other[1]:11,.0f}   {other[0] / mine[0]:.2f}x {other[1] / mine[1]:.2f}x", flush=True)


if __name__ == "__main__":
    main()
