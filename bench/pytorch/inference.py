#!/usr/bin/env python3
"""Forward passes of trained networks, ringtape beside ONNX Runtime and PyTorch, alternating in one run.

    bench/pytorch/inference.py [--binary build/cpu/ringtape] [--networks resnet18-16@32 resnet18-64@32 resnet18@224
                               resnet50@224] [--batch-size 1 8 64] [--threads 1 2] [--precision f32|bf16] [--rounds 3]
                               [--peers onnx torch compiled]

NAME-WIDTH@PIXELS. Each has random weights, as a file that `ringtape export` writes from PyTorch's; ONNX Runtime runs
our own export with all its optimisations, PyTorch is eager in channels_last and compiled, in inference mode; in bf16
PyTorch's weights and images are bf16, and ONNX Runtime has nothing. Medians over the rounds of the time that half of
the calls take at most, each measured in a process of its own for 3 seconds, and of the 99th of 100; ratios are to
ONNX Runtime and to the faster one of PyTorch. Last: the time from the start of a process to its first answer about a
file, and the most memory that it held.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 3


def network(name, width, pixels):
    import torchvision

    if pixels >= 112:
        return getattr(torchvision.models, name)(num_classes=10)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/fixtures"))
    from make_resnet import ResNet18

    return ResNet18(width=width)


def measured(call):
    for _ in range(3):
        call()
    times = []
    while sum(times) < SECONDS or len(times) < 10:
        at = time.perf_counter()
        call()
        times.append(time.perf_counter() - at)
    times.sort()
    print(json.dumps({"p50_s": times[(len(times) - 1) // 2], "p99_s": times[int(0.99 * (len(times) - 1))]}))


def run_onnx(folder, pixels, batch, threads):
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    images = {session.get_inputs()[0].name: numpy.random.randn(batch, 3, pixels, pixels).astype("f4")}
    measured(lambda: session.run(None, images))


def run_torch(folder, name, width, pixels, batch, threads, precision, compiled):
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = network(name, width, pixels).eval()
    model.load_state_dict(torch.load(f"{folder}/model.pth"))
    model = model.to(memory_format=torch.channels_last, dtype=dtype)
    if compiled:
        model = torch.compile(model)
    images = torch.randn(batch, 3, pixels, pixels, dtype=dtype).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        measured(lambda: model(images))


# From nothing to the answer about a file.
FIRST = {
    "onnx": "import sys, numpy, onnxruntime; from PIL import Image\n"
            "s = onnxruntime.InferenceSession(sys.argv[1] + '/model.onnx')\n"
            "x = numpy.asarray(Image.open(sys.argv[1] + '/image.png'), 'f4').transpose(2, 0, 1)[None] / 255\n"
            "print(s.run(None, {s.get_inputs()[0].name: x})[0].argmax())",
    "torch": "import sys, torch, numpy; from PIL import Image; sys.path.insert(0, sys.argv[2]); import inference\n"
             "m = inference.network(sys.argv[3], int(sys.argv[4]), int(sys.argv[5])).eval()\n"
             "m.load_state_dict(torch.load(sys.argv[1] + '/model.pth'))\n"
             "x = torch.from_numpy(numpy.asarray(Image.open(sys.argv[1] + '/image.png'), 'f4') / 255)\n"
             "print(m(x.permute(2, 0, 1)[None]).argmax().item())",
}


def first_answer(command):
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return {"s": time.perf_counter() - began, "peak_bytes": used.ru_maxrss * 1024}


def make(folder, binary, name, width, pixels):
    import numpy
    import torch
    from PIL import Image

    torch.manual_seed(0)
    model = network(name, width, pixels)
    for module in model.modules():  # as after a training
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1), module.running_var.uniform_(0.5, 2)
    torch.save(model.state_dict(), f"{folder}/model.pth")
    image = numpy.random.default_rng(0).integers(0, 255, (pixels, pixels, 3), dtype=numpy.uint8)
    Image.fromarray(image).save(f"{folder}/image.png")
    for kind in range(10):
        os.makedirs(f"{folder}/images/{kind}")
        os.link(f"{folder}/image.png", f"{folder}/images/{kind}/image.png")
    shape = ["--model", name] + (["--width", str(width)] if pixels < 112 else [])
    for out in ["model.safetensors", "model.onnx"]:
        subprocess.run([binary, "export", f"{folder}/model.pth", *shape, "--data", "imagefolder", "--data-dir",
                        f"{folder}/images", "--image-size", str(pixels), "--normalize", "imagenet", "--out",
                        f"{folder}/{out}"], check=True, stdout=subprocess.DEVNULL)


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def compare(args, name, width, pixels):
    with tempfile.TemporaryDirectory() as folder:
        us = [sys.executable, os.path.abspath(__file__)]
        # Not here: a child's most memory would begin with this process's.
        subprocess.run([*us, "--binary", args.binary, "--make", folder, name, str(width), str(pixels)], check=True)
        for batch in args.batch_size:
            for threads in args.threads:
                common = [folder, name, str(width), str(pixels), str(batch), str(threads), args.precision]
                ways = {way: [*us, "--peer", way, *common] for way in args.peers}
                if args.precision == "bf16":
                    ways.pop("onnx", None)
                ways["ringtape"] = [args.binary, "bench", "inference", f"{folder}/model.safetensors", "--batch-size",
                                    str(batch), "--threads", str(threads), "--precision", args.precision, "--json"]
                runs = {way: [] for way in ways}
                for _ in range(args.rounds):
                    for way, command in ways.items():
                        runs[way].append(output_of(command))
                half, most = ({way: 1e3 * statistics.median(r[key] for r in each) for way, each in runs.items()}
                              for key in ["p50_s", "p99_s"])
                torch = min((half[way] for way in ["torch", "compiled"] if way in half), default=None)
                print(f"{name + (f'-{width}' if pixels < 112 else ''):>12} {pixels:6} {batch:5} {threads:7} "
                      + " ".join(f"{half[way]:8.2f} {most[way]:8.2f}" if way in half else f"{'-':>8} {'-':>8}"
                                 for way in ["ringtape", "onnx", "torch", "compiled"])
                      + f" {1e3 * batch / half['ringtape']:9.1f}"
                      + (f" {half['onnx'] / half['ringtape']:6.2f}x" if "onnx" in half else f" {'-':>7}")
                      + (f" {torch / half['ringtape']:6.2f}x" if torch else f" {'-':>7}"), flush=True)
        here = os.path.dirname(os.path.abspath(__file__))
        first = {"ringtape": [args.binary, "predict", f"{folder}/model.safetensors", f"{folder}/image.png"],
                 "onnx": [sys.executable, "-c", FIRST["onnx"], folder],
                 "torch": [sys.executable, "-c", FIRST["torch"], folder, here, name, str(width), str(pixels)]}
        times = {way: [first_answer(command) for _ in range(max(args.rounds, 3))] for way, command in first.items()
                 if way in ["ringtape", *args.peers]}
        print("  first answer: " + ", ".join(
            f"{way} {statistics.median(t['s'] for t in each):.3f} s, {max(t['peak_bytes'] for t in each) / 1e6:.0f} MB"
            for way, each in times.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--networks", nargs="+",
                        default=["resnet18-16@32", "resnet18-64@32", "resnet18@224", "resnet50@224"])
    parser.add_argument("--batch-size", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="+", choices=["onnx", "torch", "compiled"],
                        default=["onnx", "torch", "compiled"])
    parser.add_argument("--peer", nargs=8,
                        metavar=("WAY", "FOLDER", "NAME", "WIDTH", "PIXELS", "BATCH", "THREADS", "PRECISION"),
                        help="one measurement of another program alone")
    parser.add_argument("--make", nargs=4, metavar=("FOLDER", "NAME", "WIDTH", "PIXELS"), help="the files alone")
    args = parser.parse_args()
    if args.make:
        folder, name, width, pixels = args.make
        return make(folder, args.binary, name, int(width), int(pixels))
    if args.peer:
        way, folder, name, width, pixels, batch, threads, precision = args.peer
        if way == "onnx":
            return run_onnx(folder, int(pixels), int(batch), int(threads))
        return run_torch(folder, name, int(width), int(pixels), int(batch), int(threads), precision,
                         way == "compiled")

    print(f"{args.precision}; milliseconds: half of the calls, and 99 of 100, take at most so long; medians of "
          f"{args.rounds} alternating rounds")
    print(f"{'network':>12} {'pixels':>6} {'batch':>5} {'threads':>7} "
          + " ".join(f"{way:>17}" for way in ["ringtape", "ONNX Runtime", "PyTorch", "compiled"])
          + f" {'images/s':>9} {'ONNX':>7} {'PyTorch':>7}")
    for each in args.networks:
        shape, pixels = each.split("@")
        name, _, width = shape.partition("-")
        compare(args, name, int(width or 64), int(pixels))


if __name__ == "__main__":
    main()
