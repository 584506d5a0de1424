#!/usr/bin/env python3
"""The workloads of ops_bench in PyTorch, printed beside ringtape's figures of the same run.

    bench/pytorch/ops.py [--binary build/cpu/bench/ops_bench] [--filter REGEX] [--threads 1]

Forward passes in f32. An op whose workload has no counterpart here is listed as such.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

N = 4096


def workloads():
    """name of the benchmark -> a call without arguments"""
    x, z, row = torch.rand(N, N) + 0.1, torch.rand(N, N) + 0.5, torch.rand(N)
    mask = torch.rand(N, N) < 0.5
    wide, labels = torch.randn(8192, 1000), torch.randint(0, 1000, (8192,))
    table, index = torch.randn(65536, 256), torch.randint(0, 65536, (8192,))
    calls = {}
    unary = dict(neg=torch.neg, abs=torch.abs, exp=torch.exp, log=torch.log, sqrt=torch.sqrt, rsqrt=torch.rsqrt,
                 square=torch.square, relu=torch.relu, sigmoid=torch.sigmoid, tanh=torch.tanh, gelu=F.gelu,
                 silu=F.silu, softplus=F.softplus, mish=F.mish, hardswish=F.hardswish, hardsigmoid=F.hardsigmoid,
                 selu=F.selu, log_sigmoid=F.logsigmoid, leaky_relu=lambda x: F.leaky_relu(x, 0.3),
                 elu=lambda x: F.elu(x, 0.3), sin=torch.sin, cos=torch.cos, erf=torch.erf, expm1=torch.expm1,
                 log1p=torch.log1p, log2=torch.log2, reciprocal=torch.reciprocal, floor=torch.floor, ceil=torch.ceil,
                 round=torch.round, trunc=torch.trunc, sign=torch.sign)
    for name, f in unary.items():
        calls[f"{name}/4096x4096"] = lambda f=f: f(x)
    binary = dict(add=torch.add, sub=torch.sub, mul=torch.mul, div=torch.div, maximum=torch.maximum,
                  minimum=torch.minimum, pow=torch.pow, remainder=torch.remainder, atan2=torch.atan2)
    for name, f in binary.items():
        calls[f"{name}/4096x4096"] = lambda f=f: f(x, z)
        calls[f"{name}/4096x4096+4096"] = lambda f=f: f(x, row)
    compare = dict(equal=torch.eq, not_equal=torch.ne, less=torch.lt, less_equal=torch.le, greater=torch.gt,
                   greater_equal=torch.ge)
    for name, f in compare.items():
        calls[f"{name}/4096x4096"] = lambda f=f: f(x, z)
    reduce = dict(sum=torch.sum, mean=torch.mean, max=torch.amax, min=torch.amin, var=torch.var,
                  standard_deviation=torch.std, norm=lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
                  logsumexp=torch.logsumexp)
    for name, f in reduce.items():
        calls[f"{name}/all_4096x4096"] = lambda f=f: f(x, dim=(0, 1))
        calls[f"{name}/rows_4096x4096"] = lambda f=f: f(x, dim=1)
        calls[f"{name}/columns_4096x4096"] = lambda f=f: f(x, dim=0)
    for n in (512, 1024, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        calls[f"matmul/{n}"] = lambda a=a, b=b: a @ b
    batch_a, batch_b = torch.randn(32, 256, 256), torch.randn(32, 256, 256)
    calls["matmul/32x256x256"] = lambda: batch_a @ batch_b
    for m, k, n in ((16, 784, 128), (1024, 1024, 1024)):
        a, w, b = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
        calls[f"linear/{m}x{k}x{n}"] = lambda a=a, w=w, b=b: F.linear(a, w, b)
    for size, channels in ((32, 64), (16, 128), (8, 256), (4, 512)):
        image, residual = (torch.rand(128, channels, size, size).to(memory_format=torch.channels_last)
                           for _ in range(2))
        scale, shift = torch.rand(channels), torch.rand(channels)
        norm = lambda i=image, w=scale, b=shift: F.batch_norm(i, None, None, w, b, training=True)
        calls[f"batch_norm/relu_128x{size}x{size}x{channels}"] = lambda f=norm: F.relu(f())
        calls[f"batch_norm/add_relu_128x{size}x{size}x{channels}"] = lambda f=norm, r=residual: F.relu(f() + r)
    image = torch.rand(128, 64, 32, 32).to(memory_format=torch.channels_last)
    large = torch.rand(64, 64, 56, 56).to(memory_format=torch.channels_last)
    for name, f in dict(max_pool2d=F.max_pool2d, avg_pool2d=F.avg_pool2d).items():
        calls[f"{name}/2x2_128x32x32x64"] = lambda f=f: f(image, 2)
        calls[f"{name}/3x3_s2_64x56x56x64"] = lambda f=f: f(large, 3, 2, 1)
    features, of_token = torch.randn(8192, 768), [torch.rand(768) for _ in range(2)]
    calls["layer_norm/8192x768"] = lambda: F.layer_norm(features, (768,), *of_token)
    calls["rms_norm/8192x768"] = lambda: F.rms_norm(features, (768,), of_token[0], 1e-6)
    grouped = torch.rand(32, 128, 32, 32).to(memory_format=torch.channels_last)
    single = torch.rand(32, 64, 64, 64).to(memory_format=torch.channels_last)
    of_channel = [torch.rand(128) for _ in range(2)]
    calls["group_norm/32x32x32x128"] = lambda: F.group_norm(grouped, 32, *of_channel)
    calls["instance_norm/32x64x64x64"] = lambda: F.instance_norm(single, None, None, *(c[:64] for c in of_channel))
    for shape in ((64, 3, 65, 64), (16, 3, 197, 64), (8, 2048, 64)):
        heads = torch.randn(3, *shape)
        name = "scaled_dot_product_attention/" + "x".join(map(str, shape))
        calls[name] = lambda h=heads: F.scaled_dot_product_attention(*h)
    scores, targets = torch.randn(8192, 1000), torch.rand(8192, 1000)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div"):
        calls[f"{name}/8192x1000"] = lambda f=getattr(F, name): f(scores, targets)
    calls["nll_loss/8192x1000"] = lambda: F.nll_loss(scores, labels)
    places = torch.randint(N, (N, N))
    tokens, weight = torch.randint(50000, (32, 512)), torch.rand(50000, 512)
    half_a, half_b, rows = torch.rand(2048, N), torch.rand(2048, N), torch.randn(8192, 512)
    calls |= {
        "to_nhwc/128x3x32x32": lambda x=torch.rand(128, 3, 32, 32): x.contiguous(memory_format=torch.channels_last),
        "to_nhwc/128x64x32x32": lambda x=torch.rand(128, 64, 32, 32): x.contiguous(memory_format=torch.channels_last),
        "where/4096x4096": lambda: torch.where(mask, x, z),
        "clamp/4096x4096": lambda: torch.clamp(x, -0.5, 0.75),
        "softmax/8192x1000": lambda: F.softmax(wide, 1),
        "log_softmax/8192x1000": lambda: F.log_softmax(wide, 1),
        "cross_entropy/8192x1000": lambda: F.cross_entropy(wide, labels),
        "l2_normalize/8192x512": lambda: F.normalize(rows),
        "dropout/4096x4096": lambda: F.dropout(x, 0.3),
        "permute/copy_4096x4096": lambda: x.t().contiguous(),
        "slice/copy_half_4096x4096": lambda: x[:, :2048].contiguous(),
        "expand/copy_4096x4096": lambda: row.expand(N, N).contiguous(),
        "concat/2x2048x4096": lambda: torch.cat([half_a, half_b]),
        "index_select/8192_of_65536x256": lambda: torch.index_select(table, 0, index),
        "argmax/8192x1000": lambda: wide.argmax(1),
        "argmax/columns_4096x4096": lambda: x.argmax(0),
        "argmax/all_4096x4096": lambda: x.argmax(),
        "sort/4096x4096": lambda: x.sort(),
        "sort/1000000": lambda line=torch.rand(1000000): line.sort(),
        "sort/65536x100": lambda lines=torch.rand(65536, 100): lines.sort(),
        "topk/5_of_8192x1000": lambda: wide.topk(5),
        "topk/200_of_1024x50000": lambda lines=torch.rand(1024, 50000): lines.topk(200),
        "cumsum/rows_4096x4096": lambda: x.cumsum(1),
        "cumsum/columns_4096x4096": lambda: x.cumsum(0),
        "cumsum/16777216": lambda: x.view(-1).cumsum(0),
        "gather/4096x4096": lambda: x.gather(1, places),
        "gather/rows_4096x4096": lambda: x.gather(0, places),
        "scatter_add/4096x4096": lambda: x.scatter_add(1, places, z),
        "scatter_add/rows_4096x4096": lambda: x.scatter_add(0, places, z),
        "embedding/32x512_of_50000x512": lambda: F.embedding(tokens, weight),
        "one_hot/8192x1000": lambda: F.one_hot(labels, 1000),
        "masked_fill/4096x4096": lambda: x.masked_fill(mask, 0.5),
        "tril/4096x4096": lambda: x.tril(),
        "roll/1_of_4096x4096": lambda: x.roll(1, 1),
        "repeat/2x2_of_2048x2048": lambda x=torch.rand(2048, 2048): x.repeat(2, 2),
        "stack/2x2048x4096": lambda: torch.stack([half_a, half_b]),
        "cast/f32_to_bf16_4096x4096": lambda: x.to(torch.bfloat16),
    }
    return calls


def torch_us(call, seconds=0.4):
    call()
    times = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 5:
        t = time.perf_counter()
        call()
        times.append(time.perf_counter() - t)
    return 1e6 * statistics.median(times)


def ringtape_us(binary, name, threads):
    environment = dict(os.environ, RINGTAPE_THREADS=str(threads))
    command = [binary, f"--benchmark_filter=^{re.escape(name)}/forward/real_time$", "--benchmark_format=json",
               "--benchmark_repetitions=5", "--benchmark_min_time=0.1", "--benchmark_report_aggregates_only=true"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
    rows = [b for b in result["benchmarks"] if b.get("aggregate_name") == "median"]
    return rows[0]["real_time"], rows[0].get("%peak", float("nan"))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(here, "../../build/cpu/bench/ops_bench"))
    parser.add_argument("--filter", default=".")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    print(f"forward, f32, {args.threads} threads, torch {torch.__version__}; microseconds, medians")
    print(f"{'workload':36} {'ringtape':>11} {'%peak':>6} {'PyTorch':>11} {'ratio':>7}")
    listed = subprocess.run([args.binary, "--benchmark_list_tests"], check=True, capture_output=True, text=True)
    known = listed.stdout.split()
    for name, call in workloads().items():
        if not re.search(args.filter, name):
            continue
        theirs = torch_us(call)
        if f"{name}/forward/real_time" not in known:
            print(f"{name:36} {'-':>11} {'':6} {theirs:11,.0f}   not in ops_bench")
        else:
            ours, peak = ringtape_us(args.binary, name, args.threads)
            print(f"{name:36} {ours:11,.0f} {peak:6.0f} {theirs:11,.0f} {theirs / ours:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
