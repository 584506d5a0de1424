#!/usr/bin/env python3
"""Training steps of SimCLR, views included: ringtape beside lightly and PyTorch eager, alternating in one run.

    bench/pytorch/simclr_step.py [--binary build/cpu/ringtape] [--batch-size 128] [--threads 2] [--rounds 4]
        [--steps 3] [--workers 0 1 2] [--json]

A step takes a shuffled batch of 32x32 images, makes two views of each as lightly's SimCLR transform for CIFAR-10 does
(crop, flip, colour jitter at half strength, gray; no blur), sends both through ResNet-18 (3x3 stem) and its
projection, and makes NT-Xent, backward and SGD with momentum 0.9 and weight decay 5e-4, f32. Images are random and in
memory on both sides.

PyTorch first tries each layout with each number of DataLoader workers, and goes on with the fastest. Its workers are
ahead by full queues when a round begins, and again when it ends: what is made in a round is what it takes. The ratio
is the median of the rounds', by time and by processor time of all threads and workers, which depends less on what
else the machine does; on one that is not quiet use --threads 1 --workers 0, since PyTorch's threads spin while they
wait for each other.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import lightly
import numpy
import torch
from lightly.loss import NTXentLoss
from lightly.models import ResNetGenerator
from lightly.models.modules.heads import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from PIL import Image

LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
SGD = ("0.06", "0.9", "5e-4")  # learning rate, momentum, weight decay


class Images(torch.utils.data.Dataset):
    """What torchvision.datasets.CIFAR10 does for an item, of random images."""

    def __init__(self, count):
        self.images = numpy.random.default_rng(1).integers(0, 256, (count, 32, 32, 3), numpy.uint8)
        self.transform = SimCLRTransform(input_size=32, cj_strength=0.5, gaussian_blur=0.0)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.images[i]))


class Batches:
    """Batches of views without end."""

    def __init__(self, batch_size, workers):
        self.loader = torch.utils.data.DataLoader(Images(64 * batch_size), batch_size, shuffle=True, drop_last=True,
                                                  num_workers=workers, persistent_workers=workers > 0)
        self.iterator = iter(self.loader)

    def next(self):
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            return next(self.iterator)

    def processor_seconds(self):
        ticks = 0
        for worker in getattr(self.iterator, "_workers", []):
            with open(f"/proc/{worker.pid}/stat") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


class SimCLR:
    """lightly's benchmark network: its ResNet has no ReLU behind the first convolution when taken apart like this."""

    def __init__(self, layout):
        torch.manual_seed(1)
        self.layout = LAYOUTS[layout]
        backbone = list(ResNetGenerator("resnet-18").children())[:-1]
        self.model = torch.nn.Sequential(*backbone, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                                         SimCLRProjectionHead(512, 512, 128))
        self.model.to(memory_format=self.layout)
        self.loss = NTXentLoss(temperature=0.5)
        lr, momentum, decay = map(float, SGD)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum, weight_decay=decay)

    def step(self, views):
        self.optimizer.zero_grad()
        z0, z1 = (self.model(view.to(memory_format=self.layout)) for view in views)
        self.loss(z0, z1).backward()
        self.optimizer.step()


def measure_torch(simclr, batches, steps):
    """Seconds and processor seconds of a step."""
    begin, processor = time.perf_counter(), time.process_time() + batches.processor_seconds()
    for _ in range(steps):
        simclr.step(batches.next())
    processor = time.process_time() + batches.processor_seconds() - processor
    return (time.perf_counter() - begin) / steps, processor / steps


def measure_ringtape(args):
    lr, momentum, decay = SGD
    command = [args.binary, "bench", "step", "--method", "simclr", "--model", "resnet18", "--no-stem-relu",
               "--projection-norm", "all",
               "--batch-size", str(args.batch_size), "--threads", str(args.threads), "--optimizer", "sgd", "--momentum",
               momentum, "--weight-decay", decay, "--json"]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return 1 / out["steps_per_s"], out["cpu_s"]


def fastest(args):
    """A step and batches as PyTorch is fastest, and what it is called."""
    networks = {layout: SimCLR(layout) for layout in args.layouts}
    batches = {workers: Batches(args.batch_size, workers) for workers in args.workers}
    seconds = {}
    for layout, network in networks.items():
        for workers in args.workers:
            measure_torch(network, batches[workers], 1)
            seconds[layout, workers] = measure_torch(network, batches[workers], 1)[0]
    layout, workers = min(seconds, key=seconds.get)
    tried = ", ".join(f"{l} {w} {args.batch_size / s:.1f}" for (l, w), s in seconds.items())
    return networks[layout], batches[workers], f"{layout}, {workers} workers", tried


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="of the DataLoader, to be tried")
    parser.add_argument("--layouts", choices=LAYOUTS, nargs="+", default=list(LAYOUTS), help="of PyTorch, to be tried")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="of PyTorch in a round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    load = os.getloadavg()[0]
    network, batches, chosen, tried = fastest(args)
    rounds = []
    for _ in range(args.rounds):
        rounds.append((measure_ringtape(args), measure_torch(network, batches, args.steps)))
    ours, theirs = ([args.batch_size / pair[side][0] for pair in rounds] for side in (0, 1))
    ratios = [theirs[0] / ours[0] for ours, theirs in rounds]
    processor = [theirs[1] / ours[1] for ours, theirs in rounds]
    result = {"ringtape_images_per_s": statistics.median(ours), "torch_images_per_s": statistics.median(theirs),
              "torch": chosen,
              "ratio": statistics.median(ratios), "ratios": ratios, "processor_ratio": statistics.median(processor),
              "load": [load, os.getloadavg()[0]]}
    if args.json:
        return print(json.dumps(result))
    print(f"SimCLR, ResNet-18, 32x32, batch {args.batch_size}, f32, {args.threads} threads, views included; images/s, "
          f"median of {args.rounds} "
          f"alternating rounds; torch {torch.__version__}, lightly {lightly.__version__}")
    print(f"tried      {tried}")
    print(f"ringtape {result['ringtape_images_per_s']:.1f}, PyTorch ({chosen}) {result['torch_images_per_s']:.1f}: "
          f"{result['ratio']:.2f}x "
          f"({min(ratios):.2f} to {max(ratios):.2f}), by processor time {result['processor_ratio']:.2f}x; load "
          f"{load:.1f} to {result['load'][1]:.1f}")


if __name__ == "__main__":
    main()
