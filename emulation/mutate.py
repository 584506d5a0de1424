#!/usr/bin/env python3
"""Plants bugs in the CUDA kernels, one at a time, and counts how many the emulated tests notice.

Needs Ninja and a finished build with RINGTAPE_CUDA=EMULATED and RINGTAPE_ALL_CHECKS=ON (./test.sh --full). Nothing in
the tree or in the build is changed: a mutant is compiled from a copy, into a folder of its own, and linked with the
build's other objects.

  emulation/mutate.py --build build/cpu                 all mutants (an hour on two cores)
  emulation/mutate.py --build build/cpu --sample 60     so many of them, drawn at random
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "kernels/cuda"
# Where a mutant is looked for, quickest first: (executable, schedule).
RUNS = [("cuda_ops_test", "forward"), ("cuda_kernels_test", "forward"), ("cuda_matmul_test", "forward"),
        ("cuda_ops_test", "random"), ("cuda_ops_test_checked", "random"), ("cuda_kernels_test_checked", "random"),
        ("cuda_matmul_test_checked", "random"), ("cuda_reduce_test", "forward"),
        ("cuda_reduce_test_checked", "random"), ("cuda_augment_test", "forward"), ("cuda_policy_test", "forward"),
        ("cuda_knn_test", "forward")]
# What is replaced in device code, and by what.
OPERATORS = [
    ("barrier removed", r"__syncthreads\(\);", ";"),
    ("warp barrier removed", r"__syncwarp\(\w*\);", ";"),
    ("< to <=", r"(?<=[\w)\]]) < (?=[\w(])", " <= "),
    ("<= to <", r" <= ", " < "),
    (">= to >", r" >= ", " > "),
    ("guard dropped", r"\bif \((?!constexpr)([^()]|\([^()]*\))*\) (?!continue|return)", "if (true) "),
    ("skip dropped", r"\bif \(([^()]|\([^()]*\))*\) (?=continue;|return;)", "if (false) "),
    ("condition of ?: true", r"(?<== )([\w.]+ [<>&|=!]+ [^?;]+|inside) \? ", "true ? "),
    ("index shifted", r"(?<=\w)\[(?=[a-z]\w* ?[+*\]])(?![\]])", "[1 + "),
    ("+ 1 dropped", r" \+ 1(?=[\])])", ""),
    ("wrong lane", r"lane == 0", "lane == 1"),
    ("half the lanes", r"width / 2", "width / 4"),
    ("atomic made plain", r"atomicAdd\(&?([^,]+), ([^)]+)\)", r"(\1 += \2)"),
    ("wrong thread", r"threadIdx\.x", "threadIdx.y"),
    ("stride", r"\+= threads_in_grid\(\)", "+= 2 * threads_in_grid()"),
]


def device_lines(text):
    """Numbers of the lines inside __global__ and __device__ functions."""
    inside, depth, pending = set(), 0, False
    for number, line in enumerate(text.split("\n")):
        if not inside or depth == 0:
            if re.search(r"__(global|device)__", line) and not line.strip().startswith("//"):
                pending = True
        if pending or depth:
            inside.add(number)
            depth += line.count("{") - line.count("}")
            if "{" in line or (pending and line.rstrip().endswith(";")):
                pending = False
    return inside


def mutants_of(path):
    text = path.read_text()
    lines, device = text.split("\n"), device_lines(text)
    for number in sorted(device):
        code = lines[number].split("//")[0]
        if re.search(r"template|static_assert|__launch_bounds__|constexpr", code):
            continue
        for name, pattern, new in OPERATORS:
            for match in re.finditer(pattern, code):
                changed = code[: match.start()] + match.expand(new) + code[match.end():]
                yield {"file": str(path.relative_to(ROOT)), "line": number + 1, "operator": name,
                       "was": lines[number].strip(),
                       "text": "\n".join(lines[:number] + [changed] + lines[number + 1:]), "now": changed.strip()}


def includers():
    """For each file of kernels/cuda the .cu files that contain it."""
    direct = {f.relative_to(KERNELS).as_posix(): set(re.findall(r'#include "kernels/cuda/([\w/.]+)"', f.read_text()))
              for f in KERNELS.rglob("*") if f.is_file()}
    units = {name: set() for name in direct}
    for unit in (n for n in direct if n.endswith(".cu")):
        seen, todo = set(), [unit]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += direct.get(name, ())
        for name in seen & units.keys():
            units[name].add(unit)
    return units


class Build:
    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.commands = {}
        for executable, _ in RUNS:
            out = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", executable], capture_output=True,
                                 text=True, check=True).stdout
            for command in out.splitlines():
                target = re.search(r" -o (\S+)", command)
                if target:
                    self.commands[target.group(1)] = command

    def shell(self, command, limit, **environment):
        try:
            return subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True, timeout=limit,
                                  env=os.environ | environment)
        except subprocess.TimeoutExpired:
            return None

    def objects(self, unit, checked):
        library = "ringtape_checked_kernels" if checked else "ringtape_cuda_kernels"
        return f"CMakeFiles/{library}.dir/kernels/cuda/{unit}.o"

    def compile(self, unit, checked, overlay):
        """The object of a .cu file, with what `overlay` has in place of the tree's; None if it does not compile."""
        name = self.objects(unit, checked)
        command = self.commands[name]
        out = overlay / f"{Path(unit).name}.{'checked' if checked else 'plain'}.o"
        command = command.replace(f" -o {name}", f" -I{overlay} -o {out}", 1)
        command = command.replace(f"-I{ROOT} ", f"-I{overlay} -I{ROOT} ", 1)
        if (overlay / "kernels/cuda" / unit).exists():
            command = command.replace(str(KERNELS / unit), str(overlay / "kernels/cuda" / unit))
        done = self.shell(re.sub(r" -M[DTF]\S*( \S+\.o(\.d)?)?", "", command), 600)
        return out if done and done.returncode == 0 else None

    def link(self, executable, replaced, overlay):
        command = self.commands[f"tests/{executable}"]
        out = overlay / executable
        command = command.replace(f" -o tests/{executable}", f" -o {out}", 1)
        for name, path in replaced.items():
            command = command.replace(f" {name} ", f" {path} ")
        done = self.shell(command, 300)
        return out if done and done.returncode == 0 else None


def judge(build, mutant, units):
    """How the mutant was noticed, or None."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder)
        place = overlay / mutant["file"]
        place.parent.mkdir(parents=True)
        place.write_text(mutant["text"])
        objects = {}
        for executable, schedule in RUNS:
            checked = executable.endswith("_checked")
            if checked not in objects:
                made = {build.objects(u, checked): build.compile(u, checked, overlay) for u in units}
                if None in made.values():
                    return "does not compile"
                objects[checked] = made
            program = build.link(executable, objects[checked], overlay)
            if not program:
                return "does not link"
            done = build.shell(f"{program} --gtest_brief=1 --gtest_fail_fast", 120, RINGTAPE_EMULATED_GPU="devices=2",
                               RINGTAPE_EMULATION_SCHEDULE=schedule)
            if done is None:
                return f"{executable} {schedule}: hangs"
            if done.returncode != 0:
                report = re.search(r"^([a-z-]+): kernel ", done.stdout + done.stderr, re.M)
                return f"{executable} {schedule}: {report.group(1) if report else 'values'}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="folder of a build with RINGTAPE_CUDA=EMULATED")
    parser.add_argument("--sample", type=int, help="how many mutants, at random; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", help="regular expression of file names; default: all of kernels/cuda")
    parser.add_argument("--units", type=int, default=1,
                        help="a header's mutant is compiled into so many .cu files first, into all if they do not "
                             "notice; default: 1")
    parser.add_argument("--list", action="store_true", help="list the mutants, run none")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()

    files = sorted(f for f in KERNELS.rglob("*.cu*") if re.search(args.files or ".", f.name))
    mutants = [m for f in files for m in mutants_of(f)]
    if args.sample and args.sample < len(mutants):
        mutants = random.Random(args.seed).sample(mutants, args.sample)
    if args.list:
        for m in mutants:
            print(f"{m['file']}:{m['line']}  {m['operator']}:  {m['now']}")
        return print(len(mutants), "mutants")

    build, by_file, begin = Build(args.build), includers(), time.time()
    slow = {"unary.cu": 1e6, "binary.cu": 2e6, "reduce.cu": 1e5}  # time to compile
    size = {f.relative_to(KERNELS).as_posix(): f.stat().st_size for f in KERNELS.rglob("*.cu")}
    for number, m in enumerate(mutants, 1):
        name = Path(m["file"]).relative_to("kernels/cuda").as_posix()
        units = [name] if name.endswith(".cu") else sorted(by_file[name], key=lambda u: slow.get(u, size[u]))
        m["noticed"] = judge(build, m, units[: args.units])
        if not m["noticed"] and len(units) > args.units:  # other units may use more of the header
            m["noticed"] = judge(build, m, units)
        del m["text"]
        print(f"{number}/{len(mutants)} {m['file']}:{m['line']} {m['operator']}: "
              f"{m['noticed'] or 'SURVIVED  ' + m['now']}", flush=True)
    counted = [m for m in mutants if m["noticed"] not in ("does not compile", "does not link")]
    survivors = [m for m in counted if not m["noticed"]]
    share = 100 * (len(counted) - len(survivors)) / max(1, len(counted))
    print(f"{len(counted) - len(survivors)} of {len(counted)} mutants noticed, {share:.0f} %, in "
          f"{time.time() - begin:.0f} s")
    if args.json:
        Path(args.json).write_text(json.dumps(mutants, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
