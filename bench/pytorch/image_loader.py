#!/usr/bin/env python3
"""Images per second from a folder of JPEG files, ringtape's loader beside torch's DataLoader with torchvision's
transforms, alternating in one run.

    bench/pytorch/image_loader.py [--binary build/cpu/bench/loader_bench] [--images 1000] [--side 256]
        [--batch-size 64] [--workers 0 1 2] [--rounds 5] [--seconds 3]

Makes a folder of smooth noise (quality 90, 4:2:0), two classes, and reads it shuffled: decoding,
RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize, as float batches in memory. DataLoader keeps its
workers (persistent_workers), memory is not pinned. Each worker is one thread, on both sides. Medians over the rounds,
by the clock and by processor time, which is what counts on a machine with other work.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time

import numpy
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import transforms


def make_image(draw, side):
    image = numpy.zeros((side, side, 3))
    for cells, strength in (4, 60), (16, 40), (64, 25), (side, 6):
        noise = draw.uniform(-strength, strength, (cells, cells, 3)).astype(numpy.float32)
        for c in range(3):
            image[..., c] += numpy.asarray(Image.fromarray(noise[..., c]).resize((side, side), Image.BICUBIC))
    return Image.fromarray((128 + image).clip(0, 255).astype(numpy.uint8))


def make_folder(root, images, side):
    draw = numpy.random.default_rng(0)
    for split, count in ("train", images), ("test", 2):
        for i in range(count):
            folder = os.path.join(root, split, "ab"[i % 2])
            os.makedirs(folder, exist_ok=True)
            make_image(draw, side).save(os.path.join(folder, f"{i:06}.jpg"), quality=90)


def processor_seconds():  # of this process and of those that have ended
    return sum(u.ru_utime + u.ru_stime
               for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def torch_rates(data, batch_size, workers, seconds):
    cpu = processor_seconds()
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    images, timed, elapsed = 0, 0, 0
    while elapsed < seconds:
        batches = iter(loader)
        images += len(next(batches)[0])  # the workers have started
        begin = time.perf_counter()
        for x, _ in batches:
            images, timed = images + len(x), timed + len(x)
        elapsed += time.perf_counter() - begin
    del batches, loader  # ends the workers, whose time is known then
    return timed / elapsed, images / (processor_seconds() - cpu)


def ringtape_rates(args, folder, workers):
    command = [args.binary, folder, str(args.batch_size), str(workers), str(args.seconds)]
    out = subprocess.run(command, check=True, capture_output=True, text=True,
                         env=os.environ | {"RINGTAPE_THREADS": "1"}).stdout
    rates = json.loads(out)
    return rates["images_per_s"], rates["images_per_cpu_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__),
                                                         "../../build/cpu/bench/loader_bench"))
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()

    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    print(f"{args.images} JPEG files of {args.side} x {args.side}, batch {args.batch_size}, {cores} cores, torch "
          f"{torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}; images/s, median of "
          f"{args.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder, args.images, args.side)
        data = torchvision.datasets.ImageFolder(os.path.join(folder, "train"), transforms.Compose([
            transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))
        ours, theirs = {w: [] for w in args.workers}, {w: [] for w in args.workers}
        for _ in range(args.rounds):
            for workers in args.workers:
                ours[workers].append(ringtape_rates(args, folder, workers))
                theirs[workers].append(torch_rates(data, args.batch_size, workers, args.seconds))
    for workers in args.workers:
        for name, side in ("clock", 0), ("processor", 1):
            a, b = (statistics.median(rates[side] for rates in who[workers]) for who in (ours, theirs))
            print(f"{workers} workers, {name:9}  ringtape {a:7,.0f}  DataLoader {b:7,.0f}  {a / b:5.2f}x")


if __name__ == "__main__":
    main()
