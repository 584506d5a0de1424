#!/usr/bin/env python3
"""Augmented images per second, ringtape's loader beside torch's DataLoader with torchvision's transforms, alternating
in one run.

    bench/pytorch/loader.py --data-dir DIR [--binary build/cpu/bench/loader_bench] [--batch-size 128]
        [--workers 0 1 2] [--rounds 5]

CIFAR-10 from DIR/cifar-10-batches-bin, shuffled: RandomCrop(32, padding=4), RandomHorizontalFlip, ToTensor,
Normalize, as batches in memory. Medians over the rounds; the last line compares the best of each.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import numpy
import torch
from PIL import Image
from torchvision import transforms


class Cifar10(torch.utils.data.Dataset):
    """What torchvision.datasets.CIFAR10 keeps in memory and does for an item, read from the binary version."""

    def __init__(self, folder):
        files = [numpy.fromfile(os.path.join(folder, f"data_batch_{i}.bin"), numpy.uint8).reshape(-1, 3073)
                 for i in range(1, 6)]
        records = numpy.concatenate(files)
        self.labels = records[:, 0].astype(numpy.int64)
        self.images = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.transform = transforms.Compose([
            transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.images[i])), self.labels[i]


def torch_rate(data, batch_size, workers, seconds):
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True, num_workers=workers)
    batches, begin, images = iter(loader), None, 0
    for x, _ in batches:
        if begin is None:  # workers have started
            begin = time.perf_counter()
            continue
        images += len(x)
        if time.perf_counter() - begin > seconds:
            break
    return images / (time.perf_counter() - begin)


def ringtape_rate(args, workers):
    command = [args.binary, args.data_dir, str(args.batch_size), str(workers), str(args.seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["images_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__),
                                                         "../../build/cpu/bench/loader_bench"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()

    data = Cifar10(os.path.join(args.data_dir, "cifar-10-batches-bin"))
    cores = len(os.sched_getaffinity(0))
    print(f"CIFAR-10, crop + flip + normalise, batch {args.batch_size}, {cores} cores, torch {torch.__version__}; "
          f"images/s, median of {args.rounds} rounds")
    ours, theirs = {w: [] for w in args.workers}, {w: [] for w in args.workers}
    for _ in range(args.rounds):
        for workers in args.workers:
            ours[workers].append(ringtape_rate(args, workers))
            theirs[workers].append(torch_rate(data, args.batch_size, workers, args.seconds))
    for workers in args.workers:
        a, b = statistics.median(ours[workers]), statistics.median(theirs[workers])
        print(f"{workers} workers  ringtape {a:12,.0f}  DataLoader {b:10,.0f}  {a / b:7.1f}x")
    a, b = (max(statistics.median(rates) for rates in side.values()) for side in (ours, theirs))
    print(f"best       ringtape {a:12,.0f}  DataLoader {b:10,.0f}  {a / b:7.1f}x")


if __name__ == "__main__":
    main()
