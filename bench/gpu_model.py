#!/usr/bin/env python3
"""Predicts a training step of ResNet-18 on 32x32 images in 16 bits on one H200: with ringtape's own convolutions, one
by one with BatchNorm or fused with it (kernels/cuda/conv/conv_norm.cu), with cuDNN's, or with cuDNN's but those by
wgmma (wgmma_*.cu), fused, in blocks that have them for all convolutions and are faster so, as `ringtape bench tune`
chooses; launched kernel by kernel or as a CUDA graph.

  gpu_model.py [--batch N ...]

Nothing here is measured on ringtape but cuDNN's rate. Kernels are counted by the emulation, the instructions of their
loops in what nvcc 13.0.88 makes for sm_90a (tests/cuda/sass.py, 2026-11-30). A kernel takes the longest of what it asks
of the schedulers, of shared memory, of the tensor cores, of the path from the second-level cache and of memory, in
whole rounds of blocks with their first and last instructions, and a gap to the next one. Expect 30 % more or less, and
the order of variants to be right: a loop that normalises what it loads executes three times as many instructions for 64
channels. Of kernels by wgmma it is assumed that the tensor cores multiply at the rate of cuBLAS's products where
nothing else takes longer, and that the latencies of copies and barriers are hidden; no GPU has run them."""
import argparse
import math

SMS, CLOCK = 132, 1.755e9             # an H200
HMMA = 4 / 0.63                       # cycles of a scheduler's tensor core, by mma.sync: Luo et al., arXiv 2402.13499
ISSUED = 0.8                          # instructions a cycle and scheduler, with two warps and a barrier a step
EXECUTED = 0.93                       # of a loop's instructions; of those before and after it ALSO
ALSO, FILL = 0.7, 1200                # FILL: cycles until a tile's first copies are there
L2 = 28                               # bytes per cycle into a multiprocessor: an estimate, 24 to 32
MEMORY = 4.2e12                       # bytes per second of a copy on an H200, measured
WGMMA_RATE = 778e12 / (4096 * SMS * CLOCK)  # of the tensor cores' peak: a product of bf16 measured on an H200
PASSES = 0.8                          # of that, by passes over memory
CUDNN = 530e12                        # FLOP/s, so that a step of 2048 takes the 21.36 ms measured on 2026-11-26
GAP, LAUNCH = 1.4e-6, 4.5e-6          # between kernels of a graph; host time of a kernel with its memory's two calls
DEPTH, FEW = 32, 64                   # kernels/cuda/gemm/gemm_mma.cuh: depth of a step, rows of a small tile
PARAMETERS = 11.17e6

# Of a warp's step of the depth, by tile: all instructions, products, loads of matrices, copies to shared memory, other
# accesses of it of 16 bytes; and the instructions before and after the steps.
LOOPS = {
    'forward': {(128, 64): (112, 16, 8, 3, 0, 2786), (128, 128): (149, 32, 12, 4, 0, 4474)},
    'forward, normalised': {(128, 64): (321, 16, 8, 3, 16, 3141), (128, 128): (362, 32, 12, 4, 16, 4814)},
    'data': {(128, 64): (193, 16, 8, 3, 0, 3197), (128, 128): (233, 32, 12, 4, 0, 3699)},
    'data, gated': {(128, 64): (193, 16, 8, 3, 0, 3777), (128, 128): (233, 32, 12, 4, 0, 4322)},
    'weights': {(64, 128): (230, 16, 8, 3, 0, 1805), (128, 128): (271, 32, 12, 4, 0, 2637)},
    'weights, normalised': {(64, 128): (405, 16, 8, 3, 16, 2203), (128, 128): (433, 32, 12, 4, 16, 3069)},
}

# By wgmma, of a tile by channels, where ResNet-18 has these: slots of a scheduler, and KB that come to or from where
# results are staged.
WGMMA = {
    'forward': {64: (1179, 64), 128: (5892, 128), 256: (11024, 128), 512: (19956, 128)},
    'forward, normalised': {64: (2218, 64), 128: (7354, 128), 256: (14722, 128), 512: (27366, 128)},
    'data': {64: (1156, 128), 128: (6124, 256), 256: (11568, 256), 512: (21256, 256)},
    'data, gated': {64: (1723, 128), 128: (7168, 256), 256: (12390, 256), 512: (21694, 256)},
    'weights': {64: (530, 0), 128: (481, 0), 256: (486, 0), 512: (480, 0)},
    'weights, normalised': {64: (1149, 0), 128: (1011, 0), 256: (946, 0), 512: (912, 0)},
}
# Of those slots, those after the products of both warps of a scheduler, beside which nothing runs, at most.
AFTER = {'forward': 2094, 'data': 1788, 'data, gated': 3062}

# name, channels in and out, kernel, stride, size of the input
LAYERS = [('stem', 3, 64, 3, 1, 32)] + [(f'1.{i}', 64, 64, 3, 1, 32) for i in range(4)]
for stage, (c, k, size) in enumerate([(64, 128, 32), (128, 256, 16), (256, 512, 8)], 2):
    LAYERS += [(f'{stage}.0', c, k, 3, 2, size), (f'{stage}.shortcut', c, k, 1, 2, size)]
    LAYERS += [(f'{stage}.{i}', k, k, 3, 1, size // 2) for i in range(1, 4)]
# The convolutions of blocks without stride: all by wgmma, if any.
BLOCKS = [('1.0', '1.1'), ('1.2', '1.3'), ('2.2', '2.3'), ('3.2', '3.3'), ('4.2', '4.3')]


def product(kind, m, n, depth, kernel_bytes, chunks=1, batch=1):
    """Seconds of one product of m x n results."""
    rows, columns = (FEW, 128) if kind.startswith('weights') and m <= FEW else (128, 64 if n <= 64 else 128)
    if (rows, columns) not in LOOPS[kind]:
        columns = 128
    issued, products, matrices, copies, others, outside = LOOPS[kind][rows, columns]
    step = max(2 * issued * EXECUTED / ISSUED, 32 * (matrices + copies + others), 2 * products * HMMA,
               2 * DEPTH * (rows + columns) / L2)
    tiles = math.ceil(m / rows) * math.ceil(n / columns) * chunks * batch
    steps = math.ceil(math.ceil(depth / DEPTH) / chunks)
    busy = math.ceil(tiles / SMS) * (steps * step + 2 * outside * ALSO / ISSUED + FILL) / CLOCK
    return max(busy, kernel_bytes / MEMORY)


def wgmma(kind, c, size, batch, kernel_bytes):
    """Seconds of a convolution of c to c channels by wgmma."""
    of_weights = kind.startswith('weights')
    places, blocks = 128 if of_weights else 256, c // 64
    slots, staging = WGMMA[kind][c]
    rows = min(places // size, size)
    wide = places // rows                      # columns, of all images of a tile
    halo = rows if rows == size else rows + 2  # rows that are stored again for each tile
    copies = 3 * 128 * halo * wide             # bytes of three copies of 64 channels
    if of_weights:
        parts = blocks ** 2
        tensor, shared = 8 * 3 * 96, 3 * 8 * 8 * 1024 + copies + places * 128
    else:
        parts = max(blocks // 2, 1)
        filters = blocks // parts  # blocks of a tile's results
        tensor = 36 * 128 * blocks * filters
        shared = 36 * 10 * 1024 * blocks * filters + blocks * copies + 1024 * staging
        shared += blocks * 9 * 16384 if blocks > 1 else 0
    after = AFTER[kind.removesuffix(', normalised')] / ISSUED if blocks > 1 and not of_weights else 0
    tile = max(tensor / WGMMA_RATE + after, slots / ISSUED, shared / 128)
    tiles = math.ceil(batch * size ** 2 / places)
    busy = (math.ceil(tiles / (SMS // parts)) * tile + FILL) / CLOCK
    return max(busy, kernel_bytes / MEMORY)


def faster_blocks(batch):
    """Those that are faster by wgmma."""
    total = lambda blocks: sum(seconds for _, seconds in kernels(batch, 'wgmma', blocks))
    return [block for block in BLOCKS if total([block]) < total([])]


def kernels(batch, way, blocks=()):
    """(name, seconds) of the large kernels of a step; in the way 'wgmma' those of `blocks` by wgmma."""
    by_wgmma = sum(blocks, ())
    out = []

    def convolution(kind, flop, *sizes, **more):
        if name in by_wgmma:
            seconds = wgmma(kind, c, size, batch, sizes[3])
        elif way in ('cuDNN', 'wgmma'):
            seconds = max(flop / CUDNN, sizes[3] / MEMORY)
        else:
            seconds = product(kind, *sizes, **more)
        out.append((kind, seconds))

    memory = lambda name, size: out.append((name, size / MEMORY / PASSES))
    for name, c, k, r, stride, size in LAYERS:
        places, inputs = batch * (size // stride) ** 2, batch * size ** 2
        x, y, w = 2 * inputs * c, 2 * places * k, 2 * k * c * r * r
        read = x / stride ** 2 if r == 1 else x
        stem, shortcut = c == 3, r == 1
        first = name.endswith('.0') or name in ('1.0', '1.2', '2.2', '3.2', '4.2')
        second = not (stem or shortcut or first)
        block = name in by_wgmma or way == 'fused' and not stem
        flop = 2 * places * k * c * r * r
        normalised = ', normalised' if block and second else ''
        convolution('forward' + normalised, flop, places, k, c * r * r, read + y + w)
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
            added = x if first and not block and way in ('cuDNN', 'wgmma') else 0  # to the shortcut's gradient
            convolution('data, gated' if gate else 'data', flop, inputs / stride ** 2, c, k * taps,
                        y + x + w + gate + added, batch=stride ** 2)
            if first and not block and not added:
                memory('add', 3 * x)
        chunk = max(1024 // (math.ceil(k / 64) * math.ceil(c * r * r / 64)), 1)
        depth = max(math.ceil(places / chunk), 256)
        parts = math.ceil(places / depth)
        convolution('weights' + normalised, flop, k, c * r * r, places, y + read + 2 * w, chunks=parts)
        if name in by_wgmma:
            parts = SMS // (c // 64) ** 2
        if name in by_wgmma or way in ('one by one', 'fused'):
            memory('add parts', 4 * k * c * r * r * (parts + 1))
    memory('pool and loss', 3 * 2 * batch * 16 * 512)
    memory('optimizer', PARAMETERS * 22)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--batch', type=int, nargs='+', default=[128, 512])
    parser.add_argument('--kernels', type=int, nargs=3, default=[222, 179, 214],
                        metavar=('APART', 'FUSED', 'CUDNN'),
                        help='kernels of a step, as the emulation counts them; by wgmma between those, as many of the '
                             '8 blocks are fused [%(default)s]')
    args = parser.parse_args()
    print(f'{"batch":>6} {"":10} {"kernels":>8} {"work ms":>8} {"graph ms":>9} {"images/s":>9} {"eager ms":>9} '
          f'{"images/s":>9}')
    for batch in args.batch:
        blocks = faster_blocks(batch)
        _, fused, cudnn = args.kernels
        by_wgmma = round(cudnn - (cudnn - fused) * len(blocks) / 8)
        for way, count in zip(('one by one', 'fused', 'cuDNN', 'wgmma'), [*args.kernels, by_wgmma]):
            work = sum(seconds for _, seconds in kernels(batch, way, blocks if way == 'wgmma' else ()))
            graph = work + count * GAP
            eager = max(graph, count * LAUNCH)
            print(f'{batch:6} {way:10} {count:8} {1e3 * work:8.2f} {1e3 * graph:9.2f} '
                  f'{batch / graph:9,.0f} {1e3 * eager:9.2f} {batch / eager:9,.0f}')


if __name__ == '__main__':
    main()
