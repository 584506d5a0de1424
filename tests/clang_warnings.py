#!/usr/bin/env python3
"""Has clang++ look at every source file, with its warnings as errors.

CPU kernels are also compiled, without optimisation, for each instruction set, since a function that cannot be inlined
for one is found only then.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

root = Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", nargs="?", type=Path, default=root / "build/clang",
                    help="where the preset `clang` was configured; nothing in it is built [build/clang]")
parser.add_argument("--since", metavar="COMMIT",
                    help="only at the files that the changes since then reach")
parser.add_argument("--without", metavar="FOLDER", type=Path,
                    help="not at what was compiled there by clang++, with warnings as errors")
arguments = parser.parse_args()


def commands(folder):
    """Of all objects of a build folder: command, the folder it is run in, source file, instruction set if a kernel."""
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        isa = next((word for word in words if word.startswith("-DRT_ISA=")), "")
        yield words, Path(entry["directory"]), entry["file"], isa


def compiled(folder):
    """Source files and instruction sets of the objects that are there, those of unity builds, too."""
    for words, directory, file, isa in commands(folder):
        if "-Werror" in words and (directory / words[words.index("-o") + 1]).exists():
            unity = Path(file).read_text() if "/Unity/" in file else f'#include "{file}"'
            yield from ((part, isa) for part in re.findall(r'^#include "(.*)"', unity, re.MULTILINE))


def chosen():
    """Says of a path whether to look at it."""
    if not arguments.since:
        return lambda path: True
    lines = subprocess.run([root / ".ci/reached.py", arguments.since], check=True, stdout=subprocess.PIPE, text=True)
    reached = set(lines.stdout.split("\n"))
    return lambda path: os.path.relpath(path, root) in reached


def looks():
    """The commands, one a file; of CPU kernels one an instruction set."""
    seen = set(compiled(arguments.without) if arguments.without else ())
    wanted = chosen()
    for words, directory, file, isa in commands(arguments.folder):
        words = words[next(i for i, word in enumerate(words) if word.endswith("clang++")):]  # without a compiler cache
        if (file, isa) in seen or not wanted(file):
            continue
        seen.add((file, isa))
        words[words.index("-o") + 1] = os.devnull
        depends = words.index("-MD") if "-MD" in words else None
        if depends is not None:
            del words[depends:depends + 5]  # -MD -MT target -MF file
        yield words + ["-Werror", *(["-O0"] if isa else ["-fsyntax-only"])], directory


def look(command_and_folder):
    command, cwd = command_and_folder
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


all_looks = list(looks())
with ThreadPoolExecutor(int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", len(os.sched_getaffinity(0))))) as pool:
    failed = [run for run in pool.map(look, all_looks) if run.returncode]
for run in failed:
    print(run.stderr, file=sys.stderr)
print(f"clang++: {len(failed)} of {len(all_looks)} compilations have warnings or errors")
sys.exit(bool(failed))
