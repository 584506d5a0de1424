#!/usr/bin/env python3
"""Training steps of a network, ringtape beside PyTorch, alternating in one run.

    bench/pytorch/resnet_step.py [--binary build/cpu/ringtape] [--model resnet18] [--pixels 32] [--batch-size 32 128]
                                 [--threads 1 2] [--precision f32|bf16] [--rounds 3] [--compile]

Forward, backward and SGD with momentum 0.9 and weight decay 5e-4 on one batch that stays in memory. PyTorch runs in
both of its layouts, with --compile also compiled, each in a process of its own; the ratio is to the fastest. In bf16
ringtape has --precision bf16 and PyTorch torch.autocast; the weights of both stay f32. vit_tiny, vit_small and
vit_base are timm's, with patches of 4 below 112 pixels; others but resnet18 are torchvision's, and wide_resnet is
WideResNet-28-10. Medians over the rounds. Memory: ringtape's is what its tensors held at most, PyTorch's the growth of
the process since before the model was made.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SECONDS = 6


def resident_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def network(name, pixels):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/fixtures"))
    from make_resnet import ResNet18, WideResNet

    if name == "wide_resnet":
        return WideResNet(4, 10)
    if name == "resnet18" and pixels < 112:
        return ResNet18()
    if name.startswith("vit_"):
        import timm

        small = {"img_size": pixels, "patch_size": 4} if pixels < 112 else {}
        return timm.create_model(name + "_patch16_224", num_classes=10, **small)
    import torch
    import torchvision

    model = getattr(torchvision.models, name)(num_classes=10)
    if pixels < 112:
        model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()
    return model


def run_torch(name, pixels, batch_size, threads, precision, way):
    import torch

    torch.set_num_threads(threads)
    before = resident_bytes()
    model = network(name, pixels)
    x, y = torch.randn(batch_size, 3, pixels, pixels), torch.arange(batch_size) * 7 % 10
    if "nhwc" in way:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if "compiled" in way:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    step(), step()
    begin, times = time.perf_counter(), []
    while time.perf_counter() - begin < SECONDS or len(times) < 3:
        at = time.perf_counter()
        step()
        times.append(time.perf_counter() - at)
    print(json.dumps({"images_per_s": batch_size / statistics.median(times), "peak_bytes": resident_bytes() - before,
                      "torch": torch.__version__}))


def output_of(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="also with torch.compile")
    parser.add_argument("--torch", nargs=3, metavar=("BATCH", "THREADS", "WAY"),
                        help="one measurement of PyTorch alone")
    args = parser.parse_args()
    if args.torch:
        return run_torch(args.model, args.pixels, int(args.torch[0]), int(args.torch[1]), args.precision,
                         args.torch[2])

    ways = ["nchw", "nhwc"] + (["compiled-nchw", "compiled-nhwc"] if args.compile else [])
    print(f"{args.model}, {args.pixels}x{args.pixels}, {args.precision}, SGD; images/s, median of {args.rounds} "
          "alternating rounds")
    print(f"{'batch':>5} {'threads':>7} {'ringtape':>9} " + " ".join(f"{w:>13}" for w in ways)
          + f" {'ratio':>7}   {'peak MB':>8} {'torch':>6}")
    for batch in args.batch_size:
        for threads in args.threads:
            runs = {name: [] for name in ["ringtape", *ways]}
            for _ in range(args.rounds):
                runs["ringtape"].append(output_of([args.binary, "bench", "step", "--model", args.model, "--pixels",
                                                   str(args.pixels), "--batch-size", str(batch),
                                                   "--threads", str(threads), "--precision", args.precision,
                                                   "--optimizer", "sgd", "--momentum", "0.9", "--weight-decay", "5e-4",
                                                   "--json"]))
                for way in ways:
                    runs[way].append(output_of([sys.executable, os.path.abspath(__file__), "--model", args.model,
                                                "--pixels", str(args.pixels), "--precision", args.precision,
                                                "--torch", str(batch), str(threads), way]))
            rate = {name: statistics.median(r["images_per_s"] for r in each) for name, each in runs.items()}
            best = max(ways, key=rate.get)
            ours, theirs = runs["ringtape"][0]["peak_bytes"] / 1e6, min(r["peak_bytes"] for r in runs[best]) / 1e6
            print(f"{batch:5} {threads:7} {rate['ringtape']:9.1f} "
                  + " ".join(f"{rate[w]:13.1f}" for w in ways) + f" {rate['ringtape'] / rate[best]:6.2f}x   "
                  f"{ours:8.0f} {theirs:6.0f}", flush=True)


if __name__ == "__main__":
    main()
