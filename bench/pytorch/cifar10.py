#!/usr/bin/env python3
"""configs/cifar10_resnet18_short.toml in PyTorch: ResNet-18 on CIFAR-10, the same network, augmentation and learning
rates.

    bench/pytorch/cifar10.py --data-dir DIR [--epochs 2] [--threads 2] [--seed 1]

DIR/cifar-10-batches-bin holds the binary version. Prints the loss and the accuracy on the test images after each epoch.
"""
import argparse
import math
import os
import sys
import time

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/fixtures"))
from make_resnet import ResNet18

BATCH, PEAK, WARMUP = 128, 0.1, 0.5


def read(folder, names):
    records = numpy.concatenate([numpy.fromfile(os.path.join(folder, n + ".bin"), numpy.uint8).reshape(-1, 3073)
                                 for n in names])
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(numpy.int64))


def normalised(images):
    mean, deviation = torch.tensor((0.4914, 0.4822, 0.4465)), torch.tensor((0.2470, 0.2435, 0.2616))
    x = (images.float() / 255 - mean[:, None, None]) / deviation[:, None, None]
    return x.to(memory_format=torch.channels_last)


def augmented(images):
    padded = F.pad(images, (4, 4, 4, 4))
    out = torch.empty_like(images)
    for i in range(len(images)):
        y, x, flip = torch.randint(9, ()), torch.randint(9, ()), torch.rand(()) < 0.5
        crop = padded[i, :, y:y + 32, x:x + 32]
        out[i] = crop.flip(2) if flip else crop
    return out


def rate(step, steps_per_epoch, epochs):
    warm, total = WARMUP * steps_per_epoch, epochs * steps_per_epoch
    if step < warm:
        return PEAK * min(1, (step + 1) / warm)
    return PEAK * (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = sum((model(normalised(images[i:i + 500])).argmax(1) == labels[i:i + 500]).sum().item()
                for i in range(0, len(images), 500))
    model.train()
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    folder = os.path.join(args.data_dir, "cifar-10-batches-bin")
    images, labels = read(folder, [f"data_batch_{i}" for i in range(1, 6)])
    test = read(folder, ["test_batch"])
    model = ResNet18().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=PEAK, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps, step, begin = math.ceil(len(images) / BATCH), 0, time.time()
    for epoch in range(args.epochs):
        total, order = 0.0, torch.randperm(len(images))
        for i in range(steps):
            batch = order[i * BATCH:(i + 1) * BATCH]
            optimizer.param_groups[0]["lr"] = rate(step, steps, args.epochs)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(normalised(augmented(images[batch]))), labels[batch])
            loss.backward()
            optimizer.step()
            total, step = total + loss.item() * len(batch), step + 1
            if i % 50 == 0:
                print(f"  step {step} loss {loss.item():.3f} {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
        print(f"epoch {epoch + 1}: train loss {total / len(images):.4f}, test top-1 "
              f"{100 * accuracy(model, *test):.2f} %, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
