"""A server that answers as `ringtape view` does, with made-up runs: one that grows, one that has
failed, one that knows nothing about itself, a pretraining, one of a hundred classes, a long one.
Names are hostile on purpose. Also assembles the page as the build does."""
import base64
import functools
import http.server
import json
import math
import pathlib
import random
import re
import threading
import time
import urllib.parse

PAGE = pathlib.Path(__file__).resolve().parents[2] / "train" / "view" / "page"
DYGRAPHS = pathlib.Path("/usr/share/javascript/dygraphs/dygraph.min.js")
POLICY = ("default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
          "img-src data:; connect-src 'self'")
HOSTILE = "<img src=x onerror=alert(1)>"
STARTED = time.time()
MOST_LINES = 20000  # of an answer; then comes `more`


def assemble():
    """The page with its style sheet and scripts put in."""
    def script(match):
        path = PAGE / match[1]
        if match[1] == DYGRAPHS.name:
            path = DYGRAPHS
        text = re.sub(r"\n?//# sourceMappingURL=.*", "", path.read_text())
        if "</script" in text:
            raise ValueError(f"{path} contains </script")
        return f"<script>\n{text}\n</script>"
    page = (PAGE / "index.html").read_text()
    style = (PAGE / "style.css").read_text()
    page = page.replace('<link rel="stylesheet" href="style.css">', f"<style>\n{style}</style>")
    return re.sub(r'<script src="([^"]+)"></script>', script, page)


def report(page, data):
    """The page with the data in itself."""
    text = json.dumps(data).replace("</", "<\\/")
    script = f'<script type="application/json" id="ringtape-data">{text}</script>'
    return page.replace('content="api"', 'content="embedded"').replace("<!-- data -->", script)


class Run:
    def __init__(self, name, state="finished", method="", epochs=6, per_epoch=200, seed=0,
                 classes=10, **info):
        self.name, self.state, self.method, self.classes = name, state, method, classes
        self.per_epoch, self.seed = per_epoch, seed
        self.lines, self.snapshots, self.log = [], {}, []
        self.trace, self.env = None, {"cores": 2}
        self.config = {"model": "cnn", "epochs": epochs, "lr": 0.001 * (1 + seed), "seed": seed}
        self.started = 1000000 + seed
        self.info = dict(method=method, model="fashion_cnn", data="mnist", strategy="single",
                         ranks=1, epochs=epochs, steps_per_epoch=per_epoch, batch=64)
        self.info.update(info)

    def epoch(self, epoch, every=10):
        """Adds the lines of an epoch."""
        chance = random.Random(self.seed * 1000 + epoch)
        for step in range((epoch - 1) * self.per_epoch + every, epoch * self.per_epoch + 1, every):
            self.step(step, chance)
        step, level = epoch * self.per_epoch, 1 / (epoch + 0.5 + self.seed / 3)
        train = {"split": "train", "epoch": epoch, "step": step, "loss": level, "lr": 0.001,
                 "images_per_s": 2600, "seconds": 4.8, "data_s": 0.1, "forward_s": 1.7,
                 "backward_s": 2.5, "optimizer_s": 0.3, "peak_bytes": 120e6}
        if self.info["ranks"] > 1:
            train.update(exposed_s=0.8, ranks=2)
        if self.method:
            train["spread"] = 0.05 + 0.01 * epoch
            self.lines += [train, {"split": "knn", "epoch": epoch, "step": step,
                                   "top1": 0.5 - level / 3, "seconds": 1}]
            return
        train["top1"] = 1 - level / 8
        self.lines += [train, {"split": "val", "epoch": epoch, "step": step, "loss": level * 1.1,
                               "top1": 1 - level / 7, "seconds": 0.5}]

    def step(self, step, chance=random):
        noise = math.exp(chance.gauss(0, 0.3))
        self.lines.append({"split": "train_step", "epoch": 1 + (step - 1) // self.per_epoch,
                           "step": step, "loss": noise * 3 / (1 + step / 90),
                           "lr": 0.001 * (1 - step / 1e6), "images_per_s": 2600 * noise})

    def listed(self):
        if not any(self.info.values()):  # it knows nothing
            return dict(self.info, id=self.name, name=self.name, state=self.state, best=None)
        last = next((line for line in reversed(self.lines) if line.get("step")), {})
        tops = [line["top1"] for line in self.lines if line["split"] in ("val", "knn")]
        best = {"split": "knn" if self.method else "val", "top1": max(tops)} if tops else None
        results = {line["split"]: {key: line[key] for key in ("loss", "top1") if key in line}
                   for line in self.lines if line["split"] != "train_step"}
        return dict(self.info, id=self.name, name=self.name, state=self.state, best=best,
                    results=results, seconds=100 - self.seed, started=self.started, updated=int(STARTED) - 200,
                    epoch=last.get("epoch"), step=last.get("step"),
                    seconds_left=12.5 if self.state == "running" else None)


def image(chance, size=28, channels=1):
    cx, cy, r = (chance.uniform(0.3, 0.7) * size for _ in range(3))
    data = bytearray()
    for y in range(size):
        for x in range(size):
            light = max(0, 255 - int(abs(math.hypot(x - cx, y - cy) - r / 2) * 60))
            data += bytes(min(255, light * (c + 1) // channels) for c in range(channels))
    pixels = base64.b64encode(data).decode()
    return {"width": size, "height": size, "channels": channels, "pixels": pixels}


def snapshot(run, epoch):
    return make_snapshot(epoch, run.seed, run.classes, run.method != "")


@functools.lru_cache(None)
def make_snapshot(epoch, seed, n, rgb):
    """What the network makes of a few images: everything, or what a pretraining (rgb) has."""
    chance = random.Random(seed * 100 + epoch)
    names = [HOSTILE, "automobile"] + [f"class {i}" for i in range(2, n)]
    images = [image(chance, 32 if rgb else 28, 3 if rgb else 1) for _ in range(40)]
    images += [image(chance, 7, 3 if rgb else 1) for _ in range(32)]
    out = {"name": f"epoch-{epoch}", "epoch": epoch, "step": epoch * 200,
           "split": "train_views" if rgb else "val", "classes": names, "images": images,
           "filters": list(range(40, 72))}
    labels = [i % n for i in range(400)]
    out["map"] = {"x": [math.cos(6.28 * v / n) * epoch + chance.gauss(0, 0.5) for v in labels],
                  "y": [math.sin(6.28 * v / n) * epoch + chance.gauss(0, 0.5) for v in labels],
                  "label": labels, "explained": [0.31, 0.12]}
    out["neighbours"] = [{"image": i, "label": i % n, "nearest": [
        {"image": 10 + k, "label": (i + (chance.random() < 0.3)) % n, "similarity": 0.99 - k / 20}
        for k in range(8)]} for i in range(6)]
    if rgb:
        out["views"] = [{"image": i, "views": [2 * i + 8, 2 * i + 9]} for i in range(6)]
        return out
    if n <= 40:
        out["confusion"] = [[90 - epoch * (i % 3) if i == j else chance.choice([0, 0, 0, 1, 2, 7])
                             for j in range(n)] for i in range(n)]
    out["mistakes"] = [[i % n, (i * 7 + 1) % n, 50 - i] for i in range(50)]
    out["samples"] = [{"label": i % n, "predicted": (i + (i < 6)) % n, "confidence": 0.99 - i / 200,
                       "image": i} for i in range(20)]
    return out


@functools.lru_cache(None)
def many_lines(count):
    run, chance = Run("long", seed=5, per_epoch=count, epochs=1), random.Random(5)
    for step in range(1, count + 1):
        run.step(step, chance)
    return run.lines


def made_up_runs(long_run=60000):
    """All kinds of runs, by what they are here for."""
    grows = Run("grows", "running", seed=1, ranks=2, strategy="ddp")
    failed = Run("lost/" + HOSTILE, "failed", seed=2)
    nothing = Run("knows-nothing", "failed")
    pretraining = Run("simclr", method="simclr", seed=3, model="resnet18", data="cifar10")
    many = Run("hundred-classes", seed=4, classes=100, data="cifar100")
    twenty = Run("twenty-classes", seed=6, classes=20)
    long_one = Run("long", seed=5, per_epoch=long_run, epochs=1)
    for run in (grows, failed, pretraining, many, twenty):
        for epoch in range(1, 4):
            run.epoch(epoch)
        for epoch in (1, 2, 3):
            run.snapshots[f"epoch-{epoch}"] = snapshot(run, epoch)
    long_one.lines = many_lines(long_run)
    failed.log = ["2026-11-24 23:17:30 epoch 2/6    step 300     loss 0.1393",
                  f"2026-11-24 23:17:30 error: rank 1 died {HOSTILE}"]
    many.lines.append({"split": "test", "epoch": 3, "step": 600, "loss": 0.5, "top1": 0.8})
    grows.trace = {"step": 3, "ranks": 2, "events": [
        {"rank": rank, "lane": lane, "name": name, "start": start + 900 * rank, "length": length}
        for rank in (0, 1) for lane, name, start, length in (
            ("compute", "forward", 0, 10400), ("compute", "backward", 10500, 14000 + 9000 * rank),
            ("compute", "wait", 24600 + 9000 * rank, 21000 - 9900 * rank),
            ("compute", "optimizer", 46000, 1300), ("send", HOSTILE, 13000, 20000))]}
    nothing.info = dict.fromkeys(nothing.info)
    nothing.config = None
    nothing.started = None
    nothing.lines = [None, 7, "x", {}, {"split": None}, {"split": "train"},
                     {"split": "train_step", "step": None},
                     {"split": "val", "loss": None, "top1": "high", "step": 5},
                     {"split": "train", "loss": 0.5, "step": 3, "seconds": None, "epoch": None}]
    nothing.snapshots = {"epoch-1": {
        "name": "epoch-1", "classes": None, "samples": [None, {}, {"image": 99}], "images": [None],
        "confusion": [[1]], "mistakes": [None, [1]], "map": {}, "filters": [7], "views": [None],
        "neighbours": [None, {"nearest": [None]}]}}
    return {"grows": grows, "failed": failed, "nothing": nothing, "pretraining": pretraining,
            "many": many, "twenty": twenty, "long": long_one}


class Server:
    """with Server(page, runs, first) as server: ... server.url; runs may be changed meanwhile."""

    def __init__(self, page, runs, first=None):
        self.page, self.runs, self.first = page, runs, first
        self.asked = []       # paths, oldest first
        self.unknown = set()  # runs that are listed, but cannot be asked for
        self.broken = set()   # snapshots that cannot be had
        self.port = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.answer(self)

            def log_message(self, *_):
                pass
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request):
        path, _, query = request.path.partition("?")
        self.asked.append(request.path)
        status, kind, body = 200, "application/json", None
        try:
            query = urllib.parse.parse_qs(query)
            if path == "/":
                kind, body = "text/html; charset=utf-8", self.page
            else:
                body = json.dumps(self.data(path, query))
        except KeyError as missing:
            status, kind, body = 404, "text/plain", f"there is no {missing}\n"
        body = body.encode()
        request.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", len(body)),
                            ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"),
                            ("Content-Security-Policy", POLICY)):
            request.send_header(name, str(value))
        request.end_headers()
        request.wfile.write(body)

    def data(self, path, query):
        named = {run.name: run for run in self.runs.values() if run.name not in self.unknown}
        if path == "/api/runs":
            return {"now": int(time.time()), "root": "runs", "first": self.first,
                    "runs": [run.listed() for run in self.runs.values()]}
        if path == "/api/run":
            run = named[query["id"][0]]
            out = {"id": run.name, "config": run.config, "env": run.env, "log": run.log}
            return dict(out, trace=run.trace) if run.trace else out
        if path == "/api/metrics":
            wanted = [text.split(":", 1) for text in query["run"]]
            return {"metrics": {id: self.metrics(named[id], int(at)) for at, id in wanted}}
        if path == "/api/snapshot":
            if query["name"][0] in self.broken:
                raise KeyError(query["name"][0])
            return named[query["id"][0]].snapshots[query["name"][0]]
        raise KeyError(path)

    def metrics(self, run, at):
        at = at if at <= len(run.lines) else 0
        end = min(len(run.lines), at + MOST_LINES)
        out = {"from": at, "next": end, "lines": run.lines[at:end],
               "snapshots": list(run.snapshots)}
        return dict(out, more=True) if end < len(run.lines) else out

    def everything(self):
        """The data of a report."""
        ids = [run.name for run in self.runs.values()]
        one = {"runs": self.data("/api/runs", {}), "metrics": {}, "snapshots": {}}
        one["run"] = {id: self.data("/api/run", {"id": [id]}) for id in ids}
        for run in self.runs.values():
            one["metrics"][run.name] = {"from": 0, "next": len(run.lines), "lines": run.lines,
                                        "snapshots": list(run.snapshots)}
            one["snapshots"][run.name] = run.snapshots
        return one
