#!/usr/bin/env bash
# PyTorch 2.15.0, torch.distributed with gloo: all_reduce with MAX and MIN where one rank has a NaN, such as the largest
# loss of all ranks to see whether the training has diverged.
# Guess: NaN, as torch.maximum and torch.max give, whichever rank it comes from.
# Seen: a NaN of rank 0 stays; that of rank 1 is lost, and both ranks get the other one's number. A sum keeps either.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat >"$folder/ranks.py" <<'PYTHON'
import math
import sys

import torch
import torch.distributed as dist


def run(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    losses = torch.tensor([[math.nan, 1.0], [1.0, math.nan]])  # a row for each rank
    for op in ("SUM", "MAX", "MIN"):
        result = losses[rank].clone()
        dist.all_reduce(result, getattr(dist.ReduceOp, op))
        print(f"rank {rank}: {op} of", losses.tolist(), "is", result.tolist())
        assert result.isnan().tolist() == [True, op == "SUM"]
    assert torch.maximum(losses[0], losses[1]).isnan().all()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1],), 2)
PYTHON
"$folder/venv/bin/python" "$folder/ranks.py" "$folder"
