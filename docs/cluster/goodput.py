#!/usr/bin/env python3
"""Which part of a job's time is progress when its nodes fail at random: simulated, and by formula.

restart: a failure ends all ranks, which begin again at the newest checkpoint. live (ringtape launch --elastic): the
others go on without the failed node's ranks, and new ones join. Every node lives for a time of its own, exponentially
distributed. Times are in seconds."""
import argparse
import heapq
import math
import random

LOST_STEPS = 1.5  # of a live job at a failure: its own step and half of the next one


def best_interval(job):
    """Of work between two checkpoints: where the derivative of formula() is zero."""
    rate = job.failures * job.nodes
    low, high = 0, 1  # of rate * interval
    for _ in range(100 if rate else 0):
        x = (low + high) / 2
        low, high = (x, high) if x + math.expm1(-x - rate * job.checkpoint) < 0 else (low, x)
    return high / rate if rate else math.inf


def formula(job, policy):
    """Expected progress. Restart: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart
    dumps, 2006. Live: the nodes that are there, between the stops that their failures cause."""
    rate = job.failures * job.nodes
    if policy == "live":
        there = 1 / (1 + job.failures * job.replace)
        return there * math.exp(-there * rate * (job.detect + job.regroup + LOST_STEPS * job.step + job.join))
    if not rate:
        return 1 if math.isinf(job.interval) else job.interval / (job.interval + job.checkpoint)
    return rate * job.interval / (math.exp(rate * job.restart) * math.expm1(rate * (job.interval + job.checkpoint)))


def restarting(job, draw, spent):
    """Spends the time; returns the number of failures."""
    now = runs = failures = 0  # runs: when the job runs again
    while now < job.seconds:
        end = min(now + draw.expovariate(job.failures * job.nodes) if job.failures else math.inf, job.seconds)
        waits = min(max(runs - now, 0), end - now)
        saved, rest = divmod(end - now - waits, job.interval + job.checkpoint) if job.interval < math.inf else (0, end)
        unsaved = min(rest, job.interval)
        spent["restarting"] += waits
        spent["progress"] += saved * job.interval if saved else 0
        spent["saving"] += saved * job.checkpoint + rest - unsaved
        spent["redone" if end < job.seconds else "progress"] += unsaved
        failures += end < job.seconds
        now, runs = end, end + job.restart
    return failures


def live(job, draw, spent):
    """Spends the time; returns the number of failures. No checkpoints: when no node is left, all progress is lost."""
    events = []  # time, whether a node fails then or comes back
    if job.failures:
        events = [(draw.expovariate(job.failures), True) for _ in range(job.nodes)]
        heapq.heapify(events)
    now = failures = grouped = redone = joined = 0
    there = job.nodes
    while True:
        at, fails = heapq.heappop(events) if events else (math.inf, False)
        for until, what in (grouped, "regrouping"), (redone, "redone"), (joined, "joining"), (math.inf, None):
            took = max(min(until, at, job.seconds) - now, 0)
            now += took
            if what:
                spent[what] += took
            else:
                spent["progress"] += took * there / job.nodes
                spent["missing"] += took * (1 - there / job.nodes)
        if at >= job.seconds:
            return failures
        if fails:
            failures, there = failures + 1, there - 1
            heapq.heappush(events, (at + job.replace, False))
            grouped = at + job.detect + job.regroup
            redone = grouped + LOST_STEPS * job.step
        else:
            there, joined = there + 1, at + job.join
            heapq.heappush(events, (at + draw.expovariate(job.failures), True))
        if there == 0:
            spent["redone"], spent["progress"] = spent["redone"] + spent["progress"], 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default, text in (
            ("ranks", 4096, "number of ranks"), ("island", 8, "ranks of a node, which fail together"),
            ("failures-per-node-day", 6.5e-3, "failures of a node in a day"), ("hours", 1000, "simulated time"),
            ("seed", 1, "of the failures"), ("step", 2, "a training step"),
            ("interval", 0, "restart: work between two checkpoints; 0: the best"),
            ("checkpoint", 30, "restart: saving a checkpoint"), ("restart", 600, "restart: until the job runs again"),
            ("detect", 10, "live: until the others know"), ("regroup", 5, "live: pause until the others go on"),
            ("join", 5, "live: pause when a new node joins"), ("replace", 1800, "live: until a new node joins")):
        parser.add_argument(f"--{name}", type=int if name in ("ranks", "island", "seed") else float, default=default,
                            help=text)
    job = parser.parse_args()
    if job.ranks % job.island or not job.ranks:
        parser.error(f"--ranks {job.ranks}: expected a multiple of --island {job.island}, the ranks of a node")
    job.nodes, job.failures = job.ranks // job.island, job.failures_per_node_day / 86400
    job.seconds, job.interval = 3600 * job.hours, job.interval or best_interval(job)
    kinds = "saving redone restarting regrouping joining missing".split()
    print(f"{job.ranks:,} ranks on {job.nodes:,} nodes, {job.hours:g} h simulated, seed {job.seed}, a checkpoint every "
          f"{job.interval:.0f} s of work; lost hours:\npolicy   goodput %  formula %   failures  "
          + "  ".join(f"{kind:>10}" for kind in kinds))
    for policy, simulate in ("restart", restarting), ("live", live):
        spent = dict.fromkeys(["progress", *kinds], 0)
        failures = simulate(job, random.Random(job.seed), spent)
        print(f"{policy:7}  {100 * spent['progress'] / job.seconds:9.2f}  {100 * formula(job, policy):9.2f}  "
              f"{failures:9,}  " + "  ".join(f"{spent[kind] / 3600:10.2f}" for kind in kinds))


main()
