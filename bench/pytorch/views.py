#!/usr/bin/env python3
"""Random views per second on one thread, ringtape's loader beside torchvision's transforms on PIL images, alternating
in one run.

    bench/pytorch/views.py --data-dir DIR [--binary build/cpu/bench/loader_bench] [--batch-size 128] [--views 2]
        [--blur 0] [--rounds 5]

CIFAR-10 from DIR/cifar-10-batches-bin, shuffled, so many views an image as lightly's SimCLR makes them (crop of 0.08
to 1, flip, jitter 0.4 0.4 0.4 0.1 with probability 0.8, grayscale 0.2), as normalised batches in memory; with --blur
P solo-learn's blur, too (PIL's, radius 0.1 to 2). Medians over the rounds, by the clock and by processor time, which
is what counts on a machine with other work.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import time

import numpy
import torch
from PIL import Image, ImageFilter
from torchvision import transforms


class PilBlur:
    def __call__(self, image):
        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(0.1, 2)))


class Views(torch.utils.data.Dataset):
    def __init__(self, folder, views, blur):
        files = [numpy.fromfile(os.path.join(folder, f"data_batch_{i}.bin"), numpy.uint8).reshape(-1, 3073)
                 for i in range(1, 6)]
        records = numpy.concatenate(files)
        self.labels = records[:, 0].astype(numpy.int64)
        self.images = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.views = views
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(32, scale=(0.08, 1)), transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2), *([transforms.RandomApply([PilBlur()], p=blur)] if blur else []),
            transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = Image.fromarray(self.images[i])
        return [self.transform(image) for _ in range(self.views)], self.labels[i]


def torch_rate(data, batch_size, seconds):
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True, num_workers=0)
    batches, views = iter(loader), 0
    next(batches)
    begin, cpu = time.perf_counter(), time.process_time()
    for x, _ in batches:
        views += len(x) * len(x[0])
        if time.perf_counter() - begin > seconds:
            break
    return views / (time.perf_counter() - begin), views / (time.process_time() - cpu)


def ringtape_rate(args):
    command = [args.binary, args.data_dir, str(args.batch_size), "0", str(args.seconds), str(args.views),
               str(args.blur)]
    out = subprocess.run(command, check=True, capture_output=True, text=True,
                         env=os.environ | {"RINGTAPE_THREADS": "1"}).stdout
    rates = json.loads(out)
    return rates["images_per_s"], rates["images_per_cpu_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__),
                                                         "../../build/cpu/bench/loader_bench"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--blur", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()

    torch.set_num_threads(1)
    data = Views(os.path.join(args.data_dir, "cifar-10-batches-bin"), args.views, args.blur)
    print(f"CIFAR-10, {args.views} views an image, blur {args.blur}, batch {args.batch_size}, one thread, torch "
          f"{torch.__version__}; "
          f"views/s, median of {args.rounds} rounds")
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(ringtape_rate(args))
        theirs.append(torch_rate(data, args.batch_size, args.seconds))
    for name, side in ("clock", 0), ("processor", 1):
        a, b = ([rates[side] for rates in who] for who in (ours, theirs))
        middle_a, middle_b = statistics.median(a), statistics.median(b)
        print(f"{name:10} ringtape {middle_a:8,.0f} ({min(a):,.0f} to {max(a):,.0f})  "
              f"torchvision {middle_b:6,.0f} ({min(b):,.0f} to {max(b):,.0f})  {middle_a / middle_b:.1f}x")


if __name__ == "__main__":
    main()
