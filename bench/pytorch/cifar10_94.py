#!/usr/bin/env python3
"""configs/cifar10_94.toml in PyTorch: the same network, augmentation, learning rates and test on CIFAR-10.

    bench/pytorch/cifar10_94.py --data-dir DIR [--epochs 10] [--precision bf16] [--threads 2] [--seed 1]

DIR/cifar-10-batches-bin holds the binary version. Prints the loss and the accuracy on the test images after each epoch,
and at the end also that of the mean of six shifted and flipped copies of each.
"""
import argparse
import contextlib
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tests/fixtures")]
from cifar10 import normalised, read
from make_cifar_net import CifarNet, whitening

BATCH, BIAS_EPOCHS, SMOOTHING, MOMENTUM = 1024, 3, 0.2, 0.85
LR, BIAS_FACTOR, DECAY = 1.5, 64, 1.33e-3
WARMUP, WARMUP_LR, FINAL_LR = 2.3, 0.2 * LR, 0.07 * LR


def shifted(padded, pad, rows, columns):
    """Crops of padded images, from their own rows and columns on."""
    out = torch.empty_like(padded[:, :, 2 * pad:, 2 * pad:])
    for y in range(2 * pad + 1):
        for x in range(2 * pad + 1):
            here = (rows == y) & (columns == x)
            out[here] = padded[here][:, :, y:y + out.shape[2], x:x + out.shape[3]]
    return out


def epoch_images(images, flips, epoch):
    """All training images of an epoch: each is flipped every other epoch and shifted by up to two pixels."""
    flipped = torch.where((flips ^ (epoch % 2 == 1))[:, None, None, None], images.flip(3), images)
    padded = F.pad(flipped.float(), (2, 2, 2, 2), mode="reflect").to(torch.uint8)
    return shifted(padded, 2, torch.randint(5, (len(images),)), torch.randint(5, (len(images),)))


def rate(step, steps_per_epoch, epochs):
    """Of the peak."""
    warm, total = WARMUP * steps_per_epoch, epochs * steps_per_epoch
    if step < warm:
        return (WARMUP_LR + (LR - WARMUP_LR) * min(1, (step + 1) / warm)) / LR
    return (FINAL_LR + (LR - FINAL_LR) * (1 - (step - warm) / (total - warm))) / LR


def augmented_logits(model, x):
    def both(x):
        return (model(x) + model(x.flip(3))) / 2

    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return both(x) / 2 + (both(padded[:, :, :-2, :-2]) + both(padded[:, :, 2:, 2:])) / 4


@torch.no_grad()
def accuracy(logits, model, images, labels, cast):
    model.eval()
    with cast():
        right = sum((logits(model, normalised(images[i:i + 500])).argmax(1) == labels[i:i + 500]).sum().item()
                    for i in range(0, len(images), 500))
    model.train()
    return 100 * right / len(images)


def optimizer_of(model):
    biases = [p for n, p in model.named_parameters() if p.requires_grad and p.dim() == 1]
    rest = [p for n, p in model.named_parameters() if p.requires_grad and p.dim() > 1]
    groups = [dict(params=biases, factor=BIAS_FACTOR, weight_decay=DECAY / BIAS_FACTOR),
              dict(params=rest, factor=1, weight_decay=DECAY)]
    return torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM, nesterov=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--stop-after", type=int, default=0, help="epochs; 0: all")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    def cast():
        return torch.autocast("cpu", torch.bfloat16) if args.precision == "bf16" else contextlib.nullcontext()

    folder = os.path.join(args.data_dir, "cifar-10-batches-bin")
    images, labels = read(folder, [f"data_batch_{i}" for i in range(1, 6)])
    test = read(folder, ["test_batch"])
    begin = time.time()
    model = CifarNet().to(memory_format=torch.channels_last)
    with torch.no_grad():
        model.whiten.weight.copy_(whitening(normalised(images[torch.randperm(len(images))[:5000]])))
    optimizer = optimizer_of(model)
    flips = torch.rand(len(images)) < 0.5
    steps, step = math.ceil(len(images) / BATCH), 0
    for epoch in range(args.stop_after or args.epochs):
        model.whiten.bias.requires_grad = epoch < BIAS_EPOCHS
        now, total, order = epoch_images(images, flips, epoch), 0.0, torch.randperm(len(images))
        for i in range(steps):
            batch = order[i * BATCH:(i + 1) * BATCH]
            for group in optimizer.param_groups:
                group["lr"] = LR * group["factor"] * rate(step, steps, args.epochs)
            optimizer.zero_grad()
            with cast():
                logits = model(normalised(now[batch]))
            loss = F.cross_entropy(logits.float(), labels[batch], label_smoothing=SMOOTHING)
            loss.backward()
            optimizer.step()
            total, step = total + loss.item() * len(batch), step + 1
            if i % 10 == 0:
                print(f"  step {step} loss {loss.item():.3f} {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
        print(f"epoch {epoch + 1}: train loss {total / len(images):.4f}, test top-1 "
              f"{accuracy(lambda m, x: m(x), model, *test, cast):.2f} %, {(time.time() - begin) / 60:.2f} min",
              flush=True)
    print(f"test top-1 {accuracy(augmented_logits, model, *test, cast):.2f} % with six copies of each image, "
          f"{(time.time() - begin) / 60:.2f} min")


if __name__ == "__main__":
    main()
