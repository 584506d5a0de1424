"""Strangers at the ports of a job that runs: wrong tokens, garbage, floods, connections that say nothing. It is not
disturbed."""
import os
import random
import re
import socket
import struct
import threading
import time

from job import Failure, await_that
from training import DATA, MODELS, RUN, Training, expect_same

PROOF, PROTOCOL = 1, 1  # comm/store/frame.h
PATIENCE, LIMIT = 0.2, 120  # seconds
TRAINING = Training(tuple(f"{MODELS['mlp']} {DATA} --epochs 40 --transport tcp".split()), 2, True)


def ports_of(pids):
    """Where they listen, by /proc."""
    sockets, ports = set(), set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if match := re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")):
                    sockets.add(match[1])
        except OSError:
            pass
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                ports.add(int(words[1].split(":")[1], 16))
    return sorted(ports)


def frame(kind, number, fields, rng):
    body = struct.pack("<BIqH", kind, rng.randrange(1 << 32), number, len(fields))
    body += b"".join(struct.pack("<I", len(f)) + f for f in fields)
    return struct.pack("<I", len(body)) + body


def wrong_token(s, rng):
    s.recv(4096)
    s.sendall(frame(PROOF, PROTOCOL, [rng.randbytes(32), rng.randbytes(32)], rng))
    s.recv(4096)


def garbage(s, rng):
    s.sendall(rng.randbytes(rng.randrange(1, 5000)))
    s.recv(4096)


def frames(s, rng):
    s.sendall(frame(rng.randrange(20), rng.randrange(-9, 9),
                    [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(4))], rng))
    s.recv(4096)


def huge(s, rng):
    s.sendall(struct.pack("<I", rng.choice([0, 1, 257, 1 << 20, 1 << 31, 0xffffffff])) + rng.randbytes(64))
    s.recv(4096)


def flood(s, rng):
    pass


def slow(s, rng):
    for _ in range(5):
        s.sendall(b"\x01")
        time.sleep(PATIENCE / 5)


def silent(s, rng):
    time.sleep(rng.random() * 2)


KINDS = (wrong_token, garbage, frames, huge, flood, slow, silent)


class Strangers:
    """Threads of them, at the ports that they are told."""

    def __init__(self, seed, count=6):
        self.ports, self.done, self.connections = [], threading.Event(), 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.bother, args=(random.Random(f"{seed}/{i}"),))
                        for i in range(count)]
        for thread in self.threads:
            thread.start()

    def bother(self, rng):
        while not self.done.is_set():
            if not self.ports:
                time.sleep(0.01)
                continue
            kind = rng.choice(KINDS)
            for _ in range(20 if kind is flood else 1):
                try:
                    with socket.create_connection(("127.0.0.1", rng.choice(self.ports)), PATIENCE) as s:
                        kind(s, rng)
                except OSError:
                    pass
                with self.lock:
                    self.connections += 1
            time.sleep(0.002)

    def leave(self):
        self.done.set()
        for thread in self.threads:
            thread.join()


def trial(setting, scene, rng, number):
    whole, seconds = setting.references.of(TRAINING)
    strangers = Strangers(rng.random())
    try:
        job, end = scene.start(TRAINING.command()), time.monotonic() + LIMIT
        while not await_that(lambda: job.poll() is not None, 0.1):
            strangers.ports = ports_of(scene.processes())
            if time.monotonic() > end:
                raise Failure("hung", f"not ended within {LIMIT} s; left alone it takes {seconds:.1f}")
    finally:
        strangers.leave()
        scene.events = strangers.connections
    if job.returncode != 0:
        raise Failure("unusable", f"ended with {job.returncode} after {strangers.connections} connections of strangers")
    scene.expect_nothing_left()
    expect_same(scene.folder / "runs" / RUN, whole)
