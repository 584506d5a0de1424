#!/usr/bin/env python3
"""What nvcc makes of the convolutions that use tensor cores: registers, spills, and the loop around their products.

  tests/cuda/sass.py [--arch 90a] [--check] [FILE.cu ...]

Beside each product (HMMA) of a warp its loop executes others, which the schedulers issue: a loop with more than a few
is bound by them. --check fails if a kernel spills, if such a loop reads or writes local memory, or if it has more
others a product than LIMITS. Needs nvcc, and cuobjdump and nvdisasm of CUDA's toolkit or of `pip install
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
FILES = ["kernels/cuda/conv/conv_norm.cu", "kernels/cuda/conv/conv2d.cu"]

# Others a product, by the beginning of the left operand and the tile, of 16-bit operands; the first that fits.
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
]


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
            body.append((int(at[1], 16), re.sub(r"^@!?U?P\w+\s+", "", at[2].strip())))
    return out


def loop_of_products(body):
    """The instructions of the shortest loop that has products; none if there is none."""
    place = {address: i for i, (address, _) in enumerate(body)}
    loops = []
    for i, (address, text) in enumerate(body):
        to = re.match(r"BRA\S* .*?0x([0-9a-f]+)", text)
        if to and int(to[1], 16) < address and int(to[1], 16) in place:
            loops.append([t for _, t in body[place[int(to[1], 16)]:i + 1]])
    return min((l for l in loops if any(t.startswith("HMMA") for t in l)), key=len, default=[])


def short(name):
    """gemm_mma_kernel<bf16, 128x64, ...>, without namespaces."""
    text = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|ringtape::|cuda::|\(int\)|\(bool\)|void ", "", name)
    text = re.sub(r"MmaTile<(\d+), (\d+)>", r"\1x\2", text)
    return re.sub(r"\(.*$", "", text).removeprefix("gemm_mma_kernel")


def rows_of(file, arch):
    """(name, registers, spilled bytes, instructions of the loop, products, accesses of local memory) of each kernel."""
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
        loop = loop_of_products(sass.get(name, []))
        if loop:
            yield (short(text), registers, spills, len(loop), sum(t.startswith("HMMA") for t in loop),
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
        for name, registers, spills, size, products, local in sorted(rows_of(file, args.arch)):
            others = (size - products) / products
            print(f"{registers:9} {spills:7} {size:5} {products:8} {others:6.1f}  {name[:150]}")
            limit = next((most for pattern, most in LIMITS if re.match(pattern, name)), None)
            if spills or local:
                wrong.append(f"{name}: spills {spills} bytes, {local} accesses of local memory in its loop")
            if limit is not None and others > limit:
                wrong.append(f"{name}: {others:.1f} others a product, at most {limit}")
    if args.check and wrong:
        sys.exit("sass.py: " + "\n".join(wrong))


if __name__ == "__main__":
    main()
