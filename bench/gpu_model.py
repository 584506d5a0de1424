#!/usr/bin/env python3
"""Predicts a training step of ResNet-18 on 32x32 images in 16 bits on one H200 with ringtape's own convolutions, one by
one with BatchNorm or fused with it (kernels/cuda/conv/conv_norm.cu), launched kernel by kernel or as a CUDA graph.

  gpu_model.py [--batch N ...]

Nothing here is measured on ringtape: kernels are counted by the emulation, the rates are those below. A kernel takes
the longest of what it asks of the tensor cores, of the path from the second-level cache and of memory, in whole rounds
of blocks, and a gap to the next one. Expect a quarter more or less, and the order of variants to be right."""
import argparse
import math

SMS, CLOCK = 132, 1.755e9             # an H200
PEAK = 989e12 / SMS / CLOCK           # dense bf16 FLOP per multiprocessor and cycle
TENSOR = 0.63 * PEAK                  # by mma.sync, of Hopper's peak: Luo et al., arXiv 2402.13499
L2 = 28                               # bytes per cycle into a multiprocessor: an estimate, 24 to 32
MEMORY = 4.3e12                       # bytes per second of a copy on an H200
GAP, LAUNCH = 2e-6, 4.5e-6            # between kernels of a graph; host time of a kernel with its memory's two calls
DEPTH, FEW = 32, 64                   # kernels/cuda/gemm/gemm_mma.cuh: depth of a step, rows of a small tile
PARAMETERS = 11.17e6

# name, channels in and out, kernel, stride, size of the input
LAYERS = [('stem', 3, 64, 3, 1, 32)] + [(f'1.{i}', 64, 64, 3, 1, 32) for i in range(4)]
for stage, (c, k, size) in enumerate([(64, 128, 32), (128, 256, 16), (256, 512, 8)], 2):
    LAYERS += [(f'{stage}.0', c, k, 3, 2, size), (f'{stage}.shortcut', c, k, 1, 2, size)]
    LAYERS += [(f'{stage}.{i}', k, k, 3, 1, size // 2) for i in range(1, 4)]


def product(m, n, depth, kernel_bytes, chunks=1, small=False, batch=1):
    """Seconds of one product of m x n results."""
    rows, columns = (FEW, 128) if small and m <= FEW else (128, 64 if n <= 64 else 128)
    tiles = math.ceil(m / rows) * math.ceil(n / columns) * chunks * batch
    step = max(2 * rows * columns * DEPTH / TENSOR, 2 * DEPTH * (rows + columns) / L2)
    epilogue = rows * columns * 2 / L2 * 2
    steps = math.ceil(math.ceil(depth / DEPTH) / chunks)
    busy = math.ceil(tiles / SMS) * (steps * step + epilogue) / CLOCK
    return max(busy, kernel_bytes / MEMORY)


def kernels(batch, fused):
    """(name, seconds) of the large kernels of a step."""
    out = []
    memory = lambda name, size: out.append((name, size / MEMORY))
    for name, c, k, r, stride, size in LAYERS:
        places, inputs = batch * (size // stride) ** 2, batch * size ** 2
        x, y, w = 2 * inputs * c, 2 * places * k, 2 * k * c * r * r
        read = x / stride ** 2 if r == 1 else x
        stem, shortcut = c == 3, r == 1
        first = name.endswith('.0') or name in ('1.0', '1.2', '2.2', '3.2', '4.2')
        second = not (stem or shortcut or first)
        block = fused and not stem
        out.append(('forward', product(places, k, c * r * r, read + y + w)))
        if not block:
            memory('statistics', y)
        if not block or not first:  # a block's first result is normalised by the one that reads it
            memory('normalise', 2 * y + (y if second else 0) + (y / 16 if not shortcut else 0))
        # Backward, from the gradient after this layer's normalisation and ReLU.
        if not block or not first:
            memory('sums', 2 * y + (0 if shortcut else y / 16))
        memory('gradient', 3 * y + (y if second else 0))
        if not stem:
            taps = (r * r) / stride ** 2 if r == 3 else 1 / stride ** 2
            gate = x if block and second else 0
            out.append(('data', product(inputs / stride ** 2, c, k * taps, y + x + w + gate, batch=stride ** 2)))
            if first and not block:
                memory('add', 3 * x)
        chunk = max(1024 // (math.ceil(k / 64) * math.ceil(c * r * r / 64)), 1)
        depth = max(math.ceil(places / chunk), 256)
        out.append(('weights', product(k, c * r * r, places, y + read + 2 * w, math.ceil(places / depth), True)))
        memory('add parts', 4 * k * c * r * r * (math.ceil(places / depth) + 1))
    memory('pool and loss', 3 * 2 * batch * 16 * 512)
    memory('optimizer', PARAMETERS * 22)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--batch', type=int, nargs='+', default=[128, 512])
    parser.add_argument('--kernels', type=int, nargs=2, default=[222, 179], metavar=('APART', 'FUSED'),
                        help='kernels of a step, as the emulation counts them [%(default)s]')
    args = parser.parse_args()
    print(f'{"batch":>6} {"":10} {"kernels":>8} {"work ms":>8} {"graph ms":>9} {"images/s":>9} {"eager ms":>9} '
          f'{"images/s":>9}')
    for batch in args.batch:
        for fused, count in zip((False, True), args.kernels):
            work = sum(seconds for _, seconds in kernels(batch, fused))
            graph = work + count * GAP
            eager = max(graph, count * LAUNCH)
            print(f'{batch:6} {"fused" if fused else "one by one":10} {count:8} {1e3 * work:8.2f} {1e3 * graph:9.2f} '
                  f'{batch / graph:9,.0f} {1e3 * eager:9.2f} {batch / eager:9,.0f}')


if __name__ == '__main__':
    main()
