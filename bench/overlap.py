#!/usr/bin/env python3
"""What it gains to send gradients while backward goes on: two ranks on hosts of their own, which are network
namespaces with a cable of a given rate between them. As root:

    bench/overlap.py [--binary build/cpu/ringtape] [--model resnet18] [--batch-size 64] [--gbit 1] [--rounds 3]

Training steps with buckets alternate with steps that send one sum behind backward. What a simulated network of that
rate predicts: buckets go one after the other, each as soon as it is complete, and take what `bench collectives
--transport simulated` says; the step waits for the last.
"""
import argparse
import json
import os
import secrets
import statistics
import subprocess
import tempfile

PORT = 29411


def sh(command):
    subprocess.run(command, shell=True, check=True)


class Hosts:
    def __init__(self, gbit):
        self.names = [f"overlap-{os.getpid()}-{i}" for i in (0, 1)]
        for name in self.names:
            sh(f"ip netns add {name}")
        sh(f"ip link add cable0 netns {self.names[0]} type veth peer name cable1 netns {self.names[1]}")
        for i, name in enumerate(self.names):
            sh(f"ip -n {name} address add 10.88.0.{i + 1}/24 dev cable{i}")
            sh(f"ip -n {name} link set lo up && ip -n {name} link set cable{i} up")
            sh(f"ip netns exec {name} tc qdisc add dev cable{i} root tbf rate {gbit}gbit burst 256kb latency 100ms")

    def close(self):
        for name in self.names:
            sh(f"ip netns del {name}")

    def run(self, binary, arguments):
        """Both ranks, a core each; what rank 0 prints last."""
        environment = dict(os.environ, RINGTAPE_TOKEN=secrets.token_hex(16))
        ranks = []
        for i, name in enumerate(self.names):
            command = ["taskset", "-c", str(i % os.cpu_count()), "ip", "netns", "exec", name, binary, "launch", "-n",
                       "1", "--nnodes", "2", "--node-rank",
                       str(i), "--master-addr", "10.88.0.1", "--master-port", str(PORT), "--no-pin", "--", *arguments]
            out = tempfile.TemporaryFile("w+")
            ranks.append((subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT), out))
        for process, _ in ranks:
            process.wait(timeout=300)
        ranks[0][1].seek(0)
        text = ranks[0][1].read()
        if any(process.returncode for process, _ in ranks):
            raise SystemExit(text)
        line = text.splitlines()[-1]
        return json.loads(line[line.index("{"):])


def simulated_seconds(binary, size, gbit):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        size = size // 8 * 8
        subprocess.run([binary, "bench", "collectives", "--transport", "simulated", "--ranks", "2", "--algorithm",
                        "halving_doubling", "-b", str(size), "-e",
                        str(size), "--latency", "50", "--bandwidth", str(gbit / 8), "--json", out.name], check=True,
                       capture_output=True)
        return json.load(open(out.name))["rows"][0]["in_place"]["us"] * 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../build/cpu/ringtape"))
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--gbit", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    step = ["bench", "step", "--model", args.model, "--batch-size", str(args.batch_size), "--threads", "1",
            "--strategy", "ddp", "--transport", "tcp", "--json"]
    runs = {"overlap": [], "behind": []}
    hosts = Hosts(args.gbit)
    try:
        for _ in range(args.rounds):
            runs["overlap"].append(hosts.run(args.binary, step))
            runs["behind"].append(hosts.run(args.binary, [*step, "--no-overlap"]))
    finally:
        hosts.close()
    seconds = {name: statistics.median(1 / r["steps_per_s"] for r in each) for name, each in runs.items()}
    exposed = {name: statistics.median(r["exposed_s"] for r in each) for name, each in runs.items()}

    predictions = []
    for run in runs["overlap"]:
        end = float("-inf")
        for bucket in run["buckets"]:
            end = max(bucket["ready_s"], end) + simulated_seconds(args.binary, bucket["bytes"], args.gbit)
        predictions.append(simulated_seconds(args.binary, run["comm_bytes"], args.gbit) - max(0, end))
    predicted = statistics.median(predictions)
    measured = seconds["behind"] - seconds["overlap"]
    print(f"{args.model}, batch {args.batch_size}, 2 ranks, {args.gbit:g} Gbit/s, "
          f"{runs['overlap'][0]['comm_bytes'] / 1e6:.1f} MB a step; medians of "
          f"{args.rounds} alternating rounds")
    for name, label in (("overlap", "buckets beside backward"), ("behind", "one sum behind it")):
        each = ", ".join(f"{1e3 / r['steps_per_s']:.0f}" for r in runs[name])
        print(f"  {label:24} {1e3 * seconds[name]:8.1f} ms a step ({each}), waited {1e3 * exposed[name]:.1f} ms")
    print(f"  gained: {1e3 * measured:.1f} ms; predicted: {1e3 * predicted:.1f} ms "
          f"({100 * measured / predicted - 100:+.0f} %)")
    print(f"  by the time waited alone: {1e3 * (exposed['behind'] - exposed['overlap']):.1f} ms")


if __name__ == "__main__":
    main()
