#!/usr/bin/env bash
# PyTorch 2.15.0, fully_shard (FSDP2) with gloo on CPUs, two ranks: where the first weights come from.
# Guess: all ranks begin with one network. DDP sends that of rank 0; weights drawn after sharding, as for networks that
# begin on the device "meta", are those of one process with the same seed.
# Seen: nothing is sent. Each rank keeps its own part of its own network: with a seed for each rank the upper half of a
# matrix is rank 0's, the lower half rank 1's. Drawn after sharding with one seed, each rank draws the same numbers for
# its part, so that one half of the neurons, and of the outputs, are copies of the other. A warning says that random
# operators "may not have complete support", no more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat >"$folder/ranks.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def run(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))

    torch.manual_seed(rank)
    layer = torch.nn.Linear(3, 4)
    own = layer.weight.detach().clone()
    fully_shard(layer, mesh=mesh)
    rows = (layer.weight.full_tensor() == own).all(1).tolist()
    print(f"rank {rank}, a seed for each: rows of the weights that are its own:", rows, flush=True)
    assert rows == ([True, True, False, False] if rank == 0 else [False, False, True, True])
    torch.manual_seed(rank)
    of_ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 4)).module.weight
    assert torch.equal(of_ddp, own) == (rank == 0)

    torch.manual_seed(0)
    with torch.device("meta"):
        network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    fully_shard(network, mesh=mesh).to_empty(device="cpu")
    for i in (0, 2):
        network[i].reset_parameters()
    first, second = (network[i].weight.full_tensor().detach() for i in (0, 2))
    outputs = network(torch.ones(1, 3)).tolist()[0]
    if rank == 0:
        print("one seed, drawn after sharding:", *(row.numpy() for row in first), "outputs:", outputs)
    assert torch.equal(first[:2], first[2:]) and torch.equal(second[:2], second[2:]) and outputs[:2] == outputs[2:]
    torch.manual_seed(0)
    of_one = torch.nn.Linear(3, 4).weight
    assert torch.equal(of_one[:2], first[:2]) and not torch.equal(of_one[2:], first[2:])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__)
    torch.multiprocessing.spawn(run, (sys.argv[1],), 2)
PYTHON
"$folder/venv/bin/python" "$folder/ranks.py" "$folder"
