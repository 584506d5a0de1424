#!/usr/bin/env python3
"""Data-parallel training steps of ResNet-18 on 32x32 images in shards, ranks of one thread: ringtape's ddp, zero1,
zero2 and fsdp, also with one copy of the weights or with weights that are kept, and PyTorch's DistributedDataParallel
alone and with ZeroRedundancyOptimizer, and its FSDP2 with a unit for each block, over gloo, alternating in one run.
gloo's reduce-scatter is an all-reduce, which slows FSDP2.

    bench/pytorch/sharded_step.py [--binary build/cpu/ringtape] [--batch-size 128] [--ranks 2] [--rounds 3] [--width 64]

Forward, backward and Adam, f32, on a batch that stays in memory, of which each rank has its part; images/s of all
ranks, by the slowest. PyTorch in channels_last, its faster layout here. Medians over the rounds.
"""
import statistics

from ddp_step import flags, own_run, torch_rate


def main():
    parser = flags(__doc__)
    parser.add_argument("--width", type=int, default=64, help="of ringtape's network; PyTorch's runs need 64")
    args = parser.parse_args()
    adam = ["--optimizer", "adam"]
    names = ["ddp", "zero1", "zero1 --share-weights", "zero2", "zero2 --share-weights", "fsdp", "fsdp --keep-weights"]
    runs, last = {}, {}
    for _ in range(args.rounds):
        for strategy in names:
            name, *more = strategy.split()
            last[strategy] = own_run(args.binary, args.ranks, args.batch_size, 1, adam + more, name, args.width)
            runs.setdefault(strategy, []).append(last[strategy]["images_per_s"])
        if args.width != 64:
            continue
        for optimizer in ("adam", "zero", "fsdp"):
            runs.setdefault(f"torch {optimizer}", []).append(torch_rate(args.ranks, args.batch_size, 1, optimizer))
    rate = {name: statistics.median(each) for name, each in runs.items()}
    print(f"ResNet-18 of width {args.width}, 32x32, f32, Adam, batch {args.batch_size}, {args.ranks} ranks x 1 thread; "
          f"images/s, median of {args.rounds} alternating rounds (each round)")
    labels = {"torch adam": "PyTorch DDP (gloo)", "torch zero": "the same with ZeroRedundancyOptimizer",
              "torch fsdp": "PyTorch FSDP2 (gloo)"}
    for name, each in runs.items():
        print(f"{labels.get(name, 'ringtape ' + name):42} {rate[name]:8.1f}   ({', '.join(f'{r:.1f}' for r in each)})")
    for name in names:
        peer = "torch fsdp" if name.startswith("fsdp") else "torch zero"
        beside = f", {rate[name] / rate[peer]:.2f}x {labels[peer].split('with ')[-1]}" if peer in rate else ""
        print(f"{name}: {rate[name] / rate['ddp']:.3f}x ddp{beside}; {last[name]['state_bytes'] / 1e6:.1f} MB of model "
              f"state, {last[name]['comm_bytes'] / 1e6:.1f} MB a step")


if __name__ == "__main__":
    main()
