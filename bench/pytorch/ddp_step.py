#!/usr/bin/env python3
"""Data-parallel training steps of ResNet-18 on 32x32 images, two ranks of one thread on two cores: ringtape beside
PyTorch's DistributedDataParallel over gloo, and both beside one process with two threads, alternating in one run.

    bench/pytorch/ddp_step.py [--binary build/cpu/ringtape] [--batch-size 128] [--ranks 2] [--rounds 3]

Forward, backward and SGD with momentum 0.9 and weight decay 5e-4, f32, on a batch that stays in memory, of which each
rank has its part; images/s of all ranks, by the slowest. PyTorch in channels_last, its faster layout here. Medians
over the rounds.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SECONDS = 6


def torch_rank(rank, ranks, port, batch_size, threads, queue, optimizer):
    import torch
    import torch.distributed as dist

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/fixtures"))
    from make_resnet import ResNet18

    cores = sorted(os.sched_getaffinity(0))
    if ranks > 1:
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(threads)
    layout = torch.contiguous_format if optimizer == "fsdp" else torch.channels_last  # FSDP2 refuses other weights
    model = ResNet18().to(memory_format=layout)
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    if optimizer == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (ranks,))
        for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
            for block in layer:
                fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    own = batch_size // ranks
    x = torch.randn(own, 3, 32, 32).to(memory_format=layout)
    y = torch.arange(own) * 7 % 10
    if optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    elif optimizer in ("adam", "fsdp"):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    else:
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.001)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step(), step()
    begin, times = time.perf_counter(), []
    steps = 0
    while True:
        go_on = torch.tensor([float(time.perf_counter() - begin < SECONDS or steps < 3)])
        if ranks > 1:
            dist.broadcast(go_on, 0)
        if not go_on.item():
            break
        at = time.perf_counter()
        step()
        times.append(time.perf_counter() - at)
        steps += 1
    if rank == 0:
        queue.put(batch_size / statistics.median(times))
    if ranks > 1:
        dist.destroy_process_group()


def torch_rate(ranks, batch_size, threads, optimizer="sgd"):
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    queue = context.Queue()
    processes = [context.Process(target=torch_rank, args=(r, ranks, port, batch_size, threads, queue, optimizer))
                 for r in range(ranks)]
    for p in processes:
        p.start()
    rate = queue.get(timeout=300)
    for p in processes:
        p.join()
    return rate


SGD = ("--optimizer", "sgd", "--momentum", "0.9", "--weight-decay", "5e-4")


def own_run(binary, ranks, batch_size, threads, optimizer=SGD, strategy="auto", width=64):
    command = [binary, "bench", "step", "--model", "resnet18", "--width", str(width), "--batch-size", str(batch_size),
               "--threads", str(threads), *optimizer, "--strategy", strategy, "--json"]
    command += ["--devices", str(ranks)] if ranks > 1 else []
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def flags(about):
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../../build/cpu/ringtape"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def main():
    args = flags(__doc__).parse_args()
    runs = {"ddp": [], "one": [], "torch ddp": [], "torch one": []}
    last = None
    for _ in range(args.rounds):
        last = own_run(args.binary, args.ranks, args.batch_size, 1)
        runs["ddp"].append(last["images_per_s"])
        runs["one"].append(own_run(args.binary, 1, args.batch_size, args.ranks)["images_per_s"])
        runs["torch ddp"].append(torch_rate(args.ranks, args.batch_size, 1))
        runs["torch one"].append(torch_rate(1, args.batch_size, args.ranks))
    rate = {name: statistics.median(each) for name, each in runs.items()}
    print(f"ResNet-18, 32x32, f32, SGD, batch {args.batch_size}; images/s, median of {args.rounds} alternating rounds "
          f"(each round)")
    for name, label in (("ddp", f"ringtape, {args.ranks} ranks x 1 thread"),
                        ("one", f"ringtape, 1 process x {args.ranks} threads"),
                        ("torch ddp", f"PyTorch DDP (gloo), {args.ranks} ranks x 1 thread"),
                        ("torch one", f"PyTorch, 1 process x {args.ranks} threads")):
        print(f"{label:42} {rate[name]:8.1f}   ({', '.join(f'{r:.1f}' for r in runs[name])})")
    print(f"ddp beside one process: {rate['ddp'] / rate['one']:.2f}x; beside PyTorch's DDP: "
          f"{rate['ddp'] / rate['torch ddp']:.2f}x")
    print(f"communication: {last['comm_bytes'] / 1e6:.1f} MB a step, {1e3 * last['comm_s']:.1f} ms on its way, "
          f"{1e3 * last['exposed_s']:.1f} ms waited for")


if __name__ == "__main__":
    main()
