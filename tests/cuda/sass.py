#!/usr/bin/env python3
"""What nvcc makes of kernels that use tensor cores: registers, spills, and the loop around their products.

  tests/cuda/sass.py [--arch 90a] [--check] [FILE.cu ...]

Beside each product (HMMA) of a warp its loop executes others, which the schedulers issue: a loop with more than a few
is bound by them. Products by wgmma (HGMMA) are asynchronous: there the slots count that a scheduler issues for a tile,
of the warps that multiply and of the one that loads, next to the cycles of the tensor cores for it. --check fails if a
kernel spills, if such a loop reads or writes local memory, or if it has more others a product, or slots a tile, than
LIMITS. Needs nvcc, and cuobjdump and nvdisasm of CUDA's toolkit or of `pip install
nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = [f"kernels/cuda/conv/{name}.cu" for name in
         ("conv_norm", "conv2d", "wgmma_forward", "wgmma_data", "wgmma_weights")]
FILES.append("kernels/cuda/attention/attention.cu")
PLANTED = "tests/cuda/planted_spill.cu"  # --check of all files fails if it finds nothing there

# Others a product, by the beginning of the left operand and the tile, of 16-bit operands, and slots a tile, by the
# channels and what becomes of the results; the first that fits.
LIMITS = [
    (r"<b?f16, 128x64, OneTap<Patches", 6.3),
    (r"<b?f16, 128x128, OneTap<Patches", 4.0),
    (r"<b?f16, 128x64, NormalizedImages<OneTap<Patches", 20.5),
    (r"<b?f16, 128x128, NormalizedImages<OneTap<Patches", 11.5),
    (r"<b?f16, 128x64, OneTap<BackwardPatches", 11.7),
    (r"<b?f16, 128x128, OneTap<BackwardPatches", 6.7),
    (r"<b?f16, 128x64, OutputGradient<.*?>, NormalizedImages", 16.0),
    (r"<b?f16, 128x128, OutputGradient<.*?>, NormalizedImages", 13.5),
    (r"<b?f16, 64x128, OutputGradient<.*?>, NormalizedImages", 26.0),
    (r"<b?f16, 128x64, OutputGradient", 10.2),
    (r"<b?f16, 128x128, OutputGradient", 8.0),
    (r"<b?f16, 64x128, OutputGradient", 14.2),
    # Of 64 features the loop of tiles, with the weights of a softmax and the mask; of 128 that of a tile's products.
    (r"attention_mma_forward<b?f16, 64", 23.0),
    (r"attention_mma_forward<b?f16, 128", 2.1),
    (r"attention_mma_backward<b?f16, 64, false", 16.6),
    (r"attention_mma_backward<b?f16, 64, true", 13.6),
    (r"attention_mma_backward<b?f16, 128", 3.6),
    (r"wgmma_image.*, 64, WithMoments<\w+>, false", 1230),
    (r"wgmma_image.*, 64, WithMoments<\w+>, true", 2280),
    (r"wgmma_image.*, 64, Skipped", 1210),
    (r"wgmma_image.*, 64, Gated", 1800),
    (r"wgmma_image.*<b?f16, \d\d, 128, WithMoments<\w+>, false", 6550),
    (r"wgmma_image.*<b?f16, \d\d, 128, WithMoments<\w+>, true", 8700),
    (r"wgmma_image.*<b?f16, \d\d, 128, Skipped", 6800),
    (r"wgmma_image.*<b?f16, \d\d, 128, Gated", 7850),
    (r"wgmma_image.*<b?f16, 8, 128, WithMoments<\w+>, false", 11400),
    (r"wgmma_image.*<b?f16, 8, 128, WithMoments<\w+>, true", 15200),
    (r"wgmma_image.*<b?f16, 8, 128, Skipped", 11900),
    (r"wgmma_image.*<b?f16, 8, 128, Gated", 12800),
    (r"wgmma_image.*<b?f16, 4, 128, WithMoments<\w+>, false", 20500),
    (r"wgmma_image.*<b?f16, 4, 128, WithMoments<\w+>, true", 28200),
    (r"wgmma_image.*<b?f16, 4, 128, Skipped", 21900),
    (r"wgmma_image.*<b?f16, 4, 128, Gated", 22400),
    (r"wgmma_weights.*false", 560),
    (r"wgmma_weights.*true", 1200),
]
CHANNELS = {32: 128, 16: 128, 8: 256, 4: 512}  # of a tile by wgmma, where a block has 128 of them


def tool(name):
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if not found:
        for folder in map(pathlib.Path, sys.path):
            found = next(map(str, folder.glob(f"nvidia/*/bin/{name}")), None)
            if found:
                break
    if not found:
        print(f"sass.py: skipped: there is no {name}")
        sys.exit(77)
    return found


def output_of(*command):
    path = f"{pathlib.Path(tool('nvdisasm')).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path})
    if done.returncode != 0:
        sys.exit(f"sass.py: {pathlib.Path(command[0]).name} failed: {done.stderr[-2000:]}")
    return done


def functions(sass):
    """{mangled name: [(address, instruction)]}"""
    out, body = {}, None
    for line in sass.splitlines():
        name = re.match(r"\s*Function : (\S+)", line)
        if name:
            body = out.setdefault(name[1], [])
        at = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
        if at and body is not None:
            body.append((int(at[1], 16), at[2].strip()))
    return out


def plain(text):
    return re.sub(r"^@!?U?P\w+\s+", "", text)  # without its predicate


def loop_of_products(body):
    """The instructions of the shortest loop that has products; none if there is none."""
    place = {address: i for i, (address, _) in enumerate(body)}
    loops = []
    for i, (address, text) in enumerate(body):
        to = re.match(r"BRA\S* .*?0x([0-9a-f]+)", plain(text))
        if to and int(to[1], 16) < address and int(to[1], 16) in place:
            loops.append([plain(t) for _, t in body[place[int(to[1], 16)]:i + 1]])
    return min((l for l in loops if any(t.startswith("HMMA") for t in l)), key=len, default=[])


def successors(body):
    """By number of an instruction, those that may follow."""
    place = {address: i for i, (address, _) in enumerate(body)}
    out = []
    for i, (_, text) in enumerate(body):
        to = re.match(r"(?:BRA|JMP)\S* (.*?)0x([0-9a-f]+)", plain(text))
        ends = re.match(r"EXIT|RET|BRX", text) or to and plain(text) == text and not to[1] and ".DIV" not in text
        out.append(([] if ends or i + 1 == len(body) else [i + 1]) + ([place[int(to[2], 16)]] if to else []))
    return out


def cycle(following, at, without=()):
    """The instructions that come after `at` and before it again: its outermost loop."""
    before = [[] for _ in following]
    for i, targets in enumerate(following):
        for j in targets:
            before[j].append(i)

    def reached(edges):
        seen, waiting = set(), [at]
        while waiting:
            for j in edges[waiting.pop()]:
                if j not in seen and j not in without:
                    seen.add(j)
                    waiting.append(j)
        return seen

    return reached(following) & reached(before)


def straight(following, loop):
    """Of a loop, what lies between its beginning and its end: not the waits for what is not there yet."""
    begin = next((j for i, targets in enumerate(following) if i not in loop for j in targets if j in loop), min(loop))
    end = max(i for i in loop if begin in following[i])
    return {i for i in loop if begin <= i <= end}, begin


def wgmma_tile(name, body):
    """Of a tile, by wgmma: (slots of a scheduler; products of a warp; accesses of local memory in loops; cycles of the
    tensor cores; of the slots those beside which nothing multiplies); None for other kernels."""
    find = lambda pattern: [i for i, (_, t) in enumerate(body) if re.match(pattern, plain(t))]
    of, products = re.match(r"wgmma_(image|weights)_kernel<\w+<b?f16, (\d+)(?:, (\d+))?", name), find("HGMMA")
    if not of or not products:
        return None
    # Blocks of channels, each of which repeats the loads and products; warps of a scheduler that multiply, and products
    # of one.
    blocks, warps, products_of_tile = 1, 3, 8
    if of[1] == "image":
        warps = int(of[3]) // 64
        blocks = 1 if warps == 1 else CHANNELS[int(of[2])] // 64
        products_of_tile = 36 * blocks
    following = successors(body)
    loop, begin = straight(following, cycle(following, products[0]))
    inner = cycle(following, products[0], {begin})
    executed = lambda chosen: sum(blocks if i in inner else 1 for i in chosen)
    loads = max((cycle(following, i) for i in find("LDG") if i not in loop), key=len)
    number = executed(loop & set(products))
    slots = warps * (executed(loop) - number) * products_of_tile // number  # a loop may have several tiles
    columns = int(re.search(r"HGMMA\.64x(\d+)x16", body[products[0]][1])[1])
    return (slots + blocks * len(straight(following, loads)[0]), products_of_tile,
            sum(bool(re.match("LDL|STL", plain(body[i][1]))) for i in loop | loads),
            warps * products_of_tile * columns // 2, warps * len(loop - inner) if blocks > 1 else 0)


def short(name):
    """gemm_mma_kernel<bf16, 128x64, ...>, without namespaces."""
    text = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|ringtape::|cuda::|\(int\)|\(bool\)|void ", "", name)
    text = re.sub(r"MmaTile<(\d+), (\d+)>", r"\1x\2", text)
    return re.sub(r"\(.*$", "", text).removeprefix("gemm_mma_kernel")


def rows_of(file, arch):
    """(name, registers, spilled bytes, instructions of the loop or, by wgmma, slots of a tile; products; others a
    product or slots a tile; accesses of local memory) of each kernel."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/kernels.cubin"
        built = output_of(tool("nvcc"), "-O3", "-std=c++20", "--expt-relaxed-constexpr", f"-I{ROOT}",
                          f"-arch=sm_{arch}", "-DRINGTAPE_CUDNN=0", "-Xptxas=-v", "-cubin", "-o", cubin,
                          str(ROOT / file))
        sass = functions(output_of(tool("cuobjdump"), "-sass", cubin).stdout)
    used = {}
    for name, spills, registers in re.findall(
            r"Compiling entry function '(\S+)'.*?\n.*?\n\s+.*?(\d+) bytes spill stores.*?\n.*?Used (\d+) registers",
            built.stderr):
        used[name] = int(registers), int(spills)
    readable = output_of("c++filt", *used).stdout.splitlines()
    for (name, (registers, spills)), text in zip(used.items(), readable):
        body = sass.get(name, [])
        loop = loop_of_products(body)
        tile = wgmma_tile(short(text), body)
        if tile:
            slots, products, local, cycles, after = tile
            what = f": a tile, of {cycles} cycles" + (f"; {after} after its products" if after else "")
            yield short(text) + what, registers, spills, slots, products, slots, local
        elif loop:
            products = sum(t.startswith("HMMA") for t in loop)
            yield (short(text), registers, spills, len(loop), products, (len(loop) - products) / products,
                   sum(t.startswith(("LDL", "STL")) for t in loop))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="90a")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="*", default=FILES)
    args = parser.parse_args()
    for name in ("nvcc", "cuobjdump", "nvdisasm"):
        tool(name)
    wrong = []
    print(f"sm_{args.arch}\n{'registers':>9} {'spilled':>7} {'loop':>5} {'products':>8} {'others':>6}  kernel")
    for file in args.files:
        for name, registers, spills, size, products, others, local in sorted(rows_of(file, args.arch)):
            print(f"{registers:9} {spills:7} {size:5} {products:8} {others:6.1f}  {name[:150]}")
            limit = next((most for pattern, most in LIMITS if re.match(pattern, name)), None)
            if spills or local:
                wrong.append(f"{name}: spills {spills} bytes, {local} accesses of local memory in its loop")
            if limit is not None and others > limit:
                wrong.append(f"{name}: {others:.1f} others a product or slots a tile, at most {limit}")
    if args.check and args.files == FILES and not any(spills and local for _, _, spills, _, _, _, local in
                                                      rows_of(PLANTED, args.arch)):
        wrong.append(f"{PLANTED}: its spill was not found")
    if args.check and wrong:
        sys.exit("sass.py: " + "\n".join(wrong))


if __name__ == "__main__":
    main()
