#!/usr/bin/env python3
"""Prints what the changes since a commit reach: .ci/reached.py [--tests] COMMIT

Files: those that differ from it, in this work tree, and those that include one of them, at any distance.
--tests: the test programs of these files, where a source that differs stands for its header, too, since the header's
users do what the source says; operations are tested by all of tests/autograd, tests/kernels and tests/nn. Without
those of tests/cuda and emulation/, and of tests/tree, which read the tree and are not built with sanitizers.
"""
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

root = Path(__file__).resolve().parent.parent
include = re.compile(r'^\s*#\s*include\s*["<](?:ringtape/)?([^">]+)[">]', re.MULTILINE)


def git(*arguments):
    run = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return run.stdout.split("\n")


def reached(commit, by_header=False):
    """The paths, relative to the root, sorted."""
    left = {*git("diff", "--name-only", commit, "--"), *git("ls-files", "--others", "--exclude-standard")} - {""}
    paths = {*git("ls-files"), *left}
    if by_header:
        left |= {path[:-3] + "h" for path in left if path.endswith(".cpp")} & paths
    includers = defaultdict(set)
    for path in paths:
        if path.endswith((".h", ".cuh", ".cpp", ".cu")) and (root / path).exists():
            for name in include.findall((root / path).read_text(errors="replace")):
                includers[name].add(path)
    found = set()
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            # The emulation's stand-ins for CUDA's headers are included by their names alone.
            left |= includers[path] | includers[Path(path).name]
    return sorted(found)


def tests(commit):
    """The names of test programs, sorted."""
    paths = reached(commit, by_header=True)
    if any(path.startswith(("kernels/", "autograd/")) for path in paths):
        paths += git("ls-files", "tests/autograd", "tests/kernels", "tests/nn")
    return sorted({Path(path).stem for path in paths if re.match(r"tests/(?!cuda/|tree/).*_test\.cpp$", path)})


if __name__ == "__main__":
    *option, commit = sys.argv[1:] or [""]
    if not commit or option not in ([], ["--tests"]):
        sys.exit(__doc__.strip())
    try:
        for line in (tests if option else reached)(commit):
            print(line)
    except subprocess.CalledProcessError:
        sys.exit(f"reached.py: expected a commit, got '{commit}'")
