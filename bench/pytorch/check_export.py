#!/usr/bin/env python3
"""Whether a trained ResNet-18's exported file is the same network in PyTorch: strict loading, and the same logits.

    bench/pytorch/check_export.py RUN --data-dir DIR [--binary build/cpu/ringtape] [--images 1000]

RUN: a run of --model resnet18 --data cifar10. Prints the largest difference between the logits of test images; fails
above 1e-4 relative to the largest logit.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
from torchvision.models import resnet18

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cifar10 import normalised, read


def load(path):
    """safetensors.torch.load_file, which may not be installed."""
    import json
    import struct

    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]),
                                         dtype=kinds[t["dtype"]]).reshape(t["shape"])
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--images", type=int, default=1000)
    args = parser.parse_args()

    model = resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = torch.nn.Identity()
    print(model.load_state_dict(load(os.path.join(args.run, "exported/model.safetensors")), strict=True))
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "logits.safetensors")
        subprocess.run([args.binary, "evaluate", args.run, "--data-dir", args.data_dir, "--logits", file,
                        "--limit-eval-batches", str(-(-args.images // 500))], check=True)
        ours = load(file)["logits"][:args.images]
    images, labels = read(os.path.join(args.data_dir, "cifar-10-batches-bin"), ["test_batch"])
    with torch.no_grad():
        theirs = torch.cat([model(normalised(part)) for part in images[:args.images].split(100)])
    difference, largest = (ours - theirs).abs().max().item(), theirs.abs().max().item()
    print(f"{args.images} images: largest difference {difference:.2e} of logits up to {largest:.2f}; "
          f"top-1 {100 * (theirs.argmax(1) == labels[:args.images]).float().mean():.2f} % in PyTorch")
    sys.exit(difference > 1e-4 * largest)


if __name__ == "__main__":
    main()
