#!/usr/bin/env python3
"""`ringtape pretrain --preset corrected` on CIFAR-10 in lightly and PyTorch: the same recipe, from
configs/ssl/corrected.toml.

    bench/pytorch/ssl_accuracy.py --data-dir DIR --method simclr [byol moco simsiam barlow_twins swav dino mae]
        [--width 16] [--model vit_tiny] [--epochs 5] [--batch-size 128] [--warmup-epochs 1] [--lr X]
        [--optimizer adamw] [--weight-decay X]
        [--projection-hidden N] [--projection-dim N] [--prediction-hidden N] [--loss-scale X]
        [--limit-train-batches N] [--knn-every 1] [--seed 1 2 3]

beside ringtape pretrain with the same flags, a method and a seed each. DIR/cifar-10-batches-bin holds the binary
version. Losses and networks are lightly's where they do what the recipe says; what it changes is built of their
parts. Views are torchvision's, of PIL images. Prints a JSON line an epoch: the mean loss of its steps and, where it
is due, top-1 of kNN with all training images as the bank.
"""
import argparse
import copy
import json
import math
import os
import sys
import time
import tomllib

import numpy
import torch
from lightly.transforms.multi_view_transform import MultiViewTransform
from PIL import Image
from torch.nn import functional as F
from torchvision import transforms as T

from ssl_methods import METHODS

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
WIDTHS = ("projection-hidden", "projection-dim", "prediction-hidden")  # of heads
# Settings of the recipe that flags override.
KEPT = ("epochs", "batch-size", "lr", "warmup-epochs", "loss-scale", "model", "optimizer", "weight-decay") + WIDTHS
RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/ssl/corrected.toml")


def recipe_of(method, args):
    with open(RECIPE, "rb") as file:
        table = tomllib.load(file)
    recipe = {key: value for key, value in table.items() if not isinstance(value, dict)} | table[method]
    recipe |= {key: value for key in KEPT if (value := getattr(args, key.replace("-", "_"))) is not None}
    if args.lr is None:
        recipe["lr"] = recipe["base-lr"] * recipe["batch-size"] / 256
    if recipe["warmup-epochs"] > recipe["epochs"]:
        sys.exit(f"--warmup-epochs {recipe['warmup-epochs']}: longer than the "
                 f"{recipe['epochs']} epochs of the training")
    return recipe | {"width": args.width}


def read(folder, names):
    records = numpy.concatenate([numpy.fromfile(os.path.join(folder, n + ".bin"), numpy.uint8).reshape(-1, 3073)
                                 for n in names])
    images = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, torch.from_numpy(records[:, 0].astype(numpy.int64))


def view(recipe, solarize=0.0):
    jitter = T.ColorJitter(0.4, 0.4, recipe.get("saturation", 0.4), 0.1)
    return T.Compose([T.RandomResizedCrop(32, scale=(recipe.get("crop-low", 0.08), 1.0)), T.RandomHorizontalFlip(),
                      T.RandomApply([jitter], recipe.get("jitter", 0.8)),
                      T.RandomGrayscale(recipe.get("gray", 0.2)), T.RandomSolarize(128, solarize), T.ToTensor(),
                      T.Normalize(MEAN, DEVIATION)])


class Views(torch.utils.data.Dataset):
    def __init__(self, images, recipe):
        self.images = images
        both = [view(recipe), view(recipe, recipe.get("solarize-second", 0.0))]
        self.transform = MultiViewTransform(both[:recipe.get("views", 2)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.images[i]))


def rate(recipe, step, steps_per_epoch):
    warm, total = recipe["warmup-epochs"] * steps_per_epoch, recipe["epochs"] * steps_per_epoch
    if step < warm:
        return recipe["lr"] * min(1, (step + 1) / warm)
    return recipe["lr"] * (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2


@torch.no_grad()
def features(backbone, images):
    out = []
    for part in numpy.array_split(images, math.ceil(len(images) / 500)):
        x = torch.from_numpy(part).permute(0, 3, 1, 2) / 255
        standard = (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]
        out.append(F.normalize(backbone(standard)))
    return torch.cat(out)


def knn(backbone, train, test):
    from lightly.utils.benchmarking import knn_predict

    evaluated = copy.deepcopy(backbone).eval()
    bank, queries = features(evaluated, train[0]).T.contiguous(), features(evaluated, test[0])
    right = sum((knn_predict(q, bank, train[1], 10, 200, 0.1)[:, 0] == y).sum().item()
                for q, y in zip(queries.split(500), test[1].split(500)))
    return right / len(queries)


def optimizer_of(recipe, parameters):
    if recipe["optimizer"] == "adam":
        return torch.optim.Adam(parameters, lr=recipe["lr"], weight_decay=recipe["weight-decay"])
    if recipe["optimizer"] == "adamw":
        return torch.optim.AdamW(parameters, lr=recipe["lr"], betas=(0.9, recipe.get("beta2", 0.999)),
                                 weight_decay=recipe["weight-decay"])
    return torch.optim.SGD(parameters, lr=recipe["lr"], momentum=recipe["momentum"],
                           weight_decay=recipe["weight-decay"])


def loader_of(images, recipe, args):
    data, batch_size = Views(images, recipe), recipe["batch-size"]
    batches = len(data) // batch_size
    if args.limit_train_batches > 0:
        batches = min(batches, args.limit_train_batches)
    # Without replacement: others each epoch.
    sampler = torch.utils.data.RandomSampler(data, num_samples=batches * batch_size)
    return torch.utils.data.DataLoader(data, batch_size, sampler=sampler, num_workers=args.workers)


def pretrain(name, seed, args, train, test):
    torch.manual_seed(seed)
    recipe = recipe_of(name, args)
    method, loader = METHODS[name](recipe), loader_of(train[0], recipe, args)
    optimizer = optimizer_of(recipe, [p for p in method.parameters() if p.requires_grad])
    steps_per_epoch, epochs = len(loader), recipe["epochs"]
    step, begin = 0, time.time()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for views in loader:
            optimizer.param_groups[0]["lr"] = lr = rate(recipe, step, steps_per_epoch)
            method.begin_step(step, epochs * steps_per_epoch)
            optimizer.zero_grad()
            loss = method.loss(views)
            loss.backward()
            method.after_backward()
            optimizer.step()
            total, step = total + loss.item(), step + 1
        line = {"method": name, "seed": seed, "epoch": epoch, "step": step, "lr": lr, "loss": total / steps_per_epoch}
        if epoch == epochs or (args.knn_every > 0 and epoch % args.knn_every == 0):
            line["knn"] = knn(method.backbone, train, test)
        print(json.dumps(line | {"seconds": time.time() - begin}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--method", choices=METHODS, nargs="+", default=["simclr"])
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    for width in WIDTHS:
        parser.add_argument("--" + width, type=int)
    parser.add_argument("--model", choices=["resnet18", "vit_tiny"])
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"])
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--warmup-epochs", type=float)
    parser.add_argument("--loss-scale", type=float, help="barlow_twins")
    parser.add_argument("--limit-train-batches", type=int, default=0)
    parser.add_argument("--limit-eval-batches", type=int, default=0, help="of 500 test images; 0: all")
    parser.add_argument("--knn-every", type=int, default=1, help="epochs; 0: at the end alone")
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = os.path.join(args.data_dir, "cifar-10-batches-bin")
    train, test = read(folder, [f"data_batch_{i}" for i in range(1, 6)]), read(folder, ["test_batch"])
    if args.limit_eval_batches > 0:
        test = tuple(part[:500 * args.limit_eval_batches] for part in test)
    for seed in args.seed:
        for name in args.method:
            pretrain(name, seed, args, train, test)


if __name__ == "__main__":
    main()
