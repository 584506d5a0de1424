#!/usr/bin/env python3
"""Trainings are killed, starved, unplugged and bothered, again and again; each must go on to the same end, and
nothing may be left over.

    tests/crash/run.py [--minutes M] [--seed S] [--jobs N] [--only kills,power,...] [--binary PATH]

docs/reliability.md says what is tried and what is promised. A trial is drawn from the seed, its part and its number
alone: what fails is named with the command that does it again, and its folder is kept. Exit codes: 0 nothing failed,
1 something did, 77 a part was left out for want of a program, and nothing failed.
"""
import argparse
import collections
import concurrent.futures
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import faults
import kills
import power
import processes
import reads
import recording
import strangers
import surroundings
import syscalls
from job import Failure, Scene
from training import References, make_images

# For each part: its share of the time, and how many trials the short form has.
Part = collections.namedtuple("Part", "trial share short needs")
PARTS = {
    "kills": Part(kills.trial, 25, 6, ""),
    "syscalls": Part(syscalls.trial, 15, 12, "strace"),
    "faults": Part(faults.trial, 15, 16, "compiler"),
    "reads": Part(reads.trial, 15, 10, "strace"),
    "surroundings": Part(surroundings.trial, 10, len(surroundings.KINDS), ""),
    "power": Part(power.trial, 12, 16, "compiler"),
    "processes": Part(processes.trial, 18, len(processes.KINDS), "prlimit"),
    "strangers": Part(strangers.trial, 5, 1, ""),
}
KINDS = ("unusable", "different", "hung", "left over", "unnamed", "error")
ENOUGH = 20  # failures, after which a part is broken off


class Setting:
    """What all trials share."""

    def __init__(self, binary, seed, folder):
        self.binary, self.seed, self.folder = binary, seed, folder
        self.references = References(folder, binary)
        self.shim, self.lists, self.lock = None, {}, threading.Lock()

    def rng(self, part, what):
        return random.Random(f"{self.seed}/{part}/{what}")

    def items(self, part, prepare):
        """All that this part tries one after the other, in an order of the seed's."""
        with self.lock:
            if part not in self.lists:
                try:
                    self.lists[part] = prepare(self)
                    self.rng(part, "order").shuffle(self.lists[part])
                except Failure as e:
                    self.lists[part] = e
            if isinstance(self.lists[part], Failure):
                raise self.lists[part]
            return self.lists[part]


def missing(need):
    """Why a part cannot be run; empty: it can."""
    if need == "compiler":
        return "" if recording.compiler() else "there is no C++ compiler (apt-get install g++)"
    if not need:
        return ""
    if not shutil.which(need):
        return f"there is no {need} (apt-get install {'strace' if need == 'strace' else 'util-linux'})"
    if need == "strace" and subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
        return "strace may not trace here (ptrace is forbidden)"
    return ""


class Campaign:
    """The trials of one part."""

    def __init__(self, setting, name):
        self.setting, self.name, self.part = setting, name, PARTS[name]
        self.tried, self.events, self.found = 0, 0, collections.Counter()
        self.lock = threading.Lock()

    def one(self, number):
        scene = Scene(self.setting.folder / f"{self.name}-{number}", self.setting.binary)
        failure = None
        try:
            self.part.trial(self.setting, scene, self.setting.rng(self.name, number), number)
        except Failure as e:
            failure = e
        except Exception:  # of this program's; the other trials go on
            failure = Failure("error", traceback.format_exc())
        finally:
            scene.end_all()
        with self.lock:
            self.tried += 1
            self.events += scene.events
        if failure is None:
            shutil.rmtree(scene.folder)
            return
        (scene.folder / "failure").write_text(f"{failure.kind}: {failure}\n")
        with self.lock:
            self.found[failure.kind] += 1
            again = (f"{sys.argv[0]} --binary {self.setting.binary} --seed {self.setting.seed} --only {self.name} "
                     f"--trial {number}")
            print(f"FAILED {failure.kind}: {str(failure)[:700]}\n  again: {again}\n  kept:  {scene.folder}", flush=True)

    def run(self, numbers, jobs, seconds):
        end = time.monotonic() + seconds
        numbers = iter(numbers)

        def work():
            while time.monotonic() < end and sum(self.found.values()) < ENOUGH:
                with self.lock:
                    number = next(numbers, None)
                if number is None:
                    return
                self.one(number)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(work) for _ in range(jobs)]:
                future.result()

    def line(self):
        of = self.setting.lists.get(self.name)
        more = f"of {len(of)} calls" if isinstance(of, list) and self.name == "syscalls" else ""
        more = more or {"kills": f"{self.events} kills", "strangers": f"{self.events} connections"}.get(self.name, "")
        return [self.name, str(self.tried), *(str(self.found[kind]) for kind in KINDS), more]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="for all parts together (default 5)")
    parser.add_argument("--short", action="store_true", help="a fixed number of trials a part in place of --minutes")
    parser.add_argument("--seed", default="1", help="what all is drawn from; `time`: another one each time")
    parser.add_argument("--jobs", type=int, default=2, help="trials at once (default 2)")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--trial", type=int, help="this one only")
    parser.add_argument("--binary", type=Path, default=Path(__file__).parents[2] / "build/cpu/ringtape")
    parser.add_argument("--folder", type=Path,
                        help="where trials are made (default: a new one in the temporary folder)")
    out = parser.parse_args()
    out.only = out.only.split(",")
    if unknown := [name for name in out.only if name not in PARTS]:
        parser.error(f"--only {','.join(unknown)}: expected some of {','.join(PARTS)}")
    if not out.binary.is_file():
        parser.error(f"--binary {out.binary}: there is no such file; build it, or name another")
    return out


def main():
    args = parse()
    seed = str(time.time_ns()) if args.seed == "time" else args.seed
    folder = Path(args.folder or tempfile.mkdtemp(prefix="ringtape-crash-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a trial may be another user's
    setting = Setting(args.binary.resolve(), seed, folder)
    make_images(folder / "images")
    left_out = {name: why for name in args.only if (why := missing(PARTS[name].needs))}
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    parts = [name for name in args.only if name not in left_out]
    if any(PARTS[name].needs == "compiler" for name in parts):
        setting.shim = recording.build(folder)
    campaigns = []
    for name in parts:
        begin, campaign = time.monotonic(), Campaign(setting, name)
        campaigns.append(campaign)
        seconds = float("inf") if args.short or args.trial is not None else 60 * args.minutes * PARTS[name].share / sum(
            PARTS[each].share for each in parts)
        numbers = range(PARTS[name].short) if args.short else itertools.count()
        if args.trial is not None:
            numbers = [args.trial]
        campaign.run(numbers, args.jobs, seconds)
        print(f"{name}: {campaign.tried} tried, {sum(campaign.found.values())} failed, "
              f"{time.monotonic() - begin:.0f} s", flush=True)
    rows = [["part", "tried", *KINDS, ""], *(campaign.line() for campaign in campaigns)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print(f"seed {seed}")
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1])]
        print("  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip())
    failed = sum(sum(campaign.found.values()) for campaign in campaigns)
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 77 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
