#!/usr/bin/env python3
"""Training steps of ResNet-18 on 32x32 images on a GPU: ringtape beside PyTorch, eager and compiled, alternating in
one run.

    bench/pytorch/gpu_step.py [--binary build/cuda/ringtape] [--batch-size 128 512 2048] [--precision bf16]
        [--rounds 5] [--out FILE]

Forward, backward and SGD with momentum 0.9 and weight decay 5e-4 on one batch that stays on the device. PyTorch is in
channels_last, with autocast where --precision is bf16: eager, torch.compile, and torch.compile with CUDA graphs (mode
reduce-overhead), each in a process of its own. Medians over the rounds, in which all alternate. Peak: of tensors, as
each allocator counts them. --device cpu tries the script.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

VARIANTS = {"eager": None, "compile": {}, "graphs": {"mode": "reduce-overhead"}}
SECONDS, BLOCK = 3, 10  # of a measurement; steps between looks at the clock


def run_torch(variant, batch_size, precision, device):
    import torch

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/fixtures"))
    from make_resnet import ResNet18

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.backends.cudnn.benchmark = True  # the fastest convolutions that it finds
    # PyTorch's default is TF32 for convolutions of f32 but not for products; f32 here is f32 in both.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    model = ResNet18().to(device, memory_format=torch.channels_last)
    x = torch.randn(batch_size, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    y = torch.arange(batch_size, device=device) * 7 % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=device == "cuda")

    def forward(x, y):
        with torch.autocast(device, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            return torch.nn.functional.cross_entropy(model(x), y)

    if VARIANTS[variant] is not None:
        forward = torch.compile(forward, **VARIANTS[variant])

    def steps():
        wait()
        begin = time.perf_counter()
        for _ in range(BLOCK):
            optimizer.zero_grad()
            forward(x, y).backward()
            optimizer.step()
        wait()
        return (time.perf_counter() - begin) / BLOCK

    steps()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin, times = time.perf_counter(), []
    while time.perf_counter() - begin < SECONDS or len(times) < 3:
        times.append(steps())
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    print(json.dumps({"images_per_s": batch_size / statistics.median(times), "peak_bytes": peak,
                      "torch": torch.__version__}))


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(args, name, batch_size):
    if name != "ringtape":
        return output_of([sys.executable, os.path.abspath(__file__), "--torch", name, str(batch_size), args.precision,
                          args.device])
    return output_of([args.binary, "bench", "step", "--model", "resnet18", "--device", args.device, "--batch-size",
                      str(batch_size),
                      "--precision", args.precision, "--optimizer", "sgd", "--momentum", "0.9", "--weight-decay",
                      "5e-4", "--json"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cuda/ringtape"))
    parser.add_argument("--batch-size", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--precision", choices=["bf16", "f32", "tf32"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--variants", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="file of all measurements, as JSON")
    parser.add_argument("--torch", nargs=4, metavar=("VARIANT", "BATCH", "PRECISION", "DEVICE"),
                        help="one measurement of PyTorch alone")
    args = parser.parse_args()
    if args.torch:
        return run_torch(args.torch[0], int(args.torch[1]), *args.torch[2:])

    names = ["ringtape"] + args.variants
    print(f"ResNet-18, 32x32, {args.precision}, SGD, {args.device}; images/s, medians of {args.rounds} alternating "
          f"rounds; peak in MB")
    print(f"{'batch':>5} {'ringtape':>10} {'peak':>7}" + "".join(f" {n:>10} {'ratio':>6} {'peak':>7}"
                                                                 for n in args.variants))
    everything = []
    for batch_size in args.batch_size:
        runs = {name: [] for name in names}
        for _ in range(args.rounds):
            for name in names:
                runs[name].append(measure(args, name, batch_size))
        everything.append({"batch_size": batch_size, "precision": args.precision, "device": args.device, "runs": runs})
        rate = {name: statistics.median(r["images_per_s"] for r in each) for name, each in runs.items()}
        peak = {name: f"{max(r['peak_bytes'] or 0 for r in each) / 1e6:7.0f}" for name, each in runs.items()}
        print(f"{batch_size:5} {rate['ringtape']:10.0f} {peak['ringtape']}" +
              "".join(f" {rate[n]:10.0f} {rate['ringtape'] / rate[n]:5.2f}x {peak[n]}" for n in args.variants),
              flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
