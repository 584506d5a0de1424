#!/usr/bin/env bash
# PyTorch 2.15.0, torch.distributed with gloo: all_reduce, broadcast and reduce of a tensor that is not contiguous.
# Guess: the elements of the view are combined, as all_gather does, or there is an error, as of send and of NCCL.
# Seen: from the view's first element on, as many elements as it has are taken in the order of memory. Of every other
# column of a matrix of 4x4 the first two rows are summed with the columns between them, which belong to somebody else,
# and the last two rows stay as they were. Two ranks whose matrices have the same shape and different strides, as of
# channels_last, sum elements that do not belong together. There is no error and no warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat >"$folder/ranks.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist


def matrix(rank):
    return torch.arange(16.0).view(4, 4) + 100 * rank


def run(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    both = matrix(0) + matrix(1)

    whole = matrix(rank)
    dist.all_reduce(whole[:, ::2])
    print(f"rank {rank}: all_reduce of columns 0 and 2:", whole.tolist())
    assert torch.equal(whole[:2], both[:2]) and torch.equal(whole[2:], matrix(rank)[2:])

    whole = matrix(rank)
    dist.broadcast(whole[:, ::2], 0)
    assert torch.equal(whole[:2], matrix(0)[:2]) and torch.equal(whole[2:], matrix(rank)[2:])

    parts = [torch.zeros(4, 2) for _ in range(2)]
    dist.all_gather(parts, matrix(rank)[:, ::2])
    assert all(torch.equal(part, matrix(r)[:, ::2]) for r, part in enumerate(parts))

    square = matrix(rank) if rank == 0 else matrix(rank).t().contiguous().t()  # the same values, by columns
    dist.all_reduce(square)
    print(f"rank {rank}: all_reduce of matrices by rows and by columns:", square.tolist())
    assert torch.equal(square, matrix(0) + matrix(1).t()) and not torch.equal(square, both)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1],), 2)
PYTHON
"$folder/venv/bin/python" "$folder/ranks.py" "$folder"
