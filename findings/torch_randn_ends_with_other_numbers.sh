#!/usr/bin/env bash
# PyTorch 2.15.0, normal random numbers on CPUs: torch.randn, normal_ and what draws weights with them.
# Guess: as of torch.rand, n numbers of a seed are the first n of those of a larger tensor, and where they are stored does
# not matter: a network with more classes or a larger batch begins with the same numbers.
# Seen: fewer than 16 numbers are others from the first on. From 16 on they are made in groups of 16, and if n is no
# multiple of 16 the last 16 of the tensor are drawn anew: of 31 numbers 15 are those of a larger tensor, of 17 only one.
# A tensor with gaps, such as a column of a matrix, gets other numbers than a dense one of the same size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch


def drawn(n, draw):
    torch.manual_seed(0)
    return draw(n)


def strided(n):
    return torch.empty(n, 2)[:, 0].normal_()


for draw, same in ((torch.rand, {n: n for n in (1, 15, 16, 17, 31, 32, 40, 48)}),
                   (torch.randn, {1: 0, 15: 0, 16: 16, 17: 1, 31: 15, 32: 32, 40: 24, 48: 48})):
    many = drawn(64, draw)
    seen = {n: int((drawn(n, draw) == many[:n]).sum()) for n in same}
    print(f"{draw.__name__}: as many as these of n numbers are those of 64:", seen)
    assert seen == same

of_column = int((drawn(64, strided) == drawn(64, torch.randn)).sum())
print("normal_ of a column:", of_column, "of 64")
assert of_column == 0
PYTHON
