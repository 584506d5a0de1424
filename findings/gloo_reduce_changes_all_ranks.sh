#!/usr/bin/env bash
# PyTorch 2.15.0, torch.distributed with gloo: reduce to rank 0 of three ranks.
# Guess: rank 0 gets the sum, the other ranks keep what they have; only all_reduce would change it.
# Seen: ranks 1 and 2 are left with sums of some ranks in some elements, so that a metric reduced for rank 0's log is
# wrong afterwards where it came from. For one element rank 1 is left with the sum of two ranks, rank 2 as it was. The
# documentation says only that the others do not get the result.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat >"$folder/ranks.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist

RANKS = 3


def run(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    for n in (1, 6):
        own = 10.0 ** rank * torch.ones(n)
        result = own.clone()
        dist.reduce(result, 0)
        print(f"rank {rank} had {own[0]:.0f} and after reduce of {n} has", result.tolist())
        if rank == 0:
            assert result.tolist() == [111.0] * n
        else:
            assert torch.equal(result, own) == (n == 1 and rank == 2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1],), RANKS)
PYTHON
"$folder/venv/bin/python" "$folder/ranks.py" "$folder"
