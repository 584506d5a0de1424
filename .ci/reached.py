#!/usr/bin/env python3
"""Prints the files that the changes since a commit reach: .ci/reached.py COMMIT

These are the files that differ from it, in this work tree, and those that include one of them, at any distance.
"""
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

root = Path(__file__).resolve().parent.parent
include = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def git(*arguments):
    run = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return run.stdout.split("\n")


def reached(commit):
    """The paths, relative to the root, sorted."""
    changed = {*git("diff", "--name-only", commit, "--"), *git("ls-files", "--others", "--exclude-standard")} - {""}
    includers = defaultdict(set)
    for path in {*git("ls-files"), *changed}:
        if path.endswith((".h", ".cuh", ".cpp", ".cu")) and (root / path).exists():
            for name in include.findall((root / path).read_text(errors="replace")):
                includers[name].add(path)
    found, left = set(), list(changed)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            # The emulation's stand-ins for CUDA's headers are included by their names alone.
            left += includers[path] | includers[Path(path).name]
    return sorted(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    try:
        print(*reached(sys.argv[1]), sep="\n")
    except subprocess.CalledProcessError:
        sys.exit(f"reached.py: expected a commit, got '{sys.argv[1]}'")
