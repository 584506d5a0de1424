#!/usr/bin/env python3
"""Tests `ringtape view` with trainings in progress, in a headless Chromium.

  live_test.py BINARY
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from browser import Browser, find_browser

PATIENCE = 60  # seconds: for hangs only
TRAINING = ["train", "--data", "shapes", "--train-size", "128", "--val-size", "32", "--test-size", "32",
            "--batch-size", "16", "--model", "mlp", "--hidden", "8", "--log-every", "2"]


@contextlib.contextmanager
def started(binary, folder, *words, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGTAPE_")}
    process = subprocess.Popen([binary, *words], cwd=folder, text=True, env=environment, stdin=subprocess.DEVNULL,
                               start_new_session=True, stderr=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def state_of(name):
    return f"store.runs.find(run => run.name === '{name}')?.state"


def count_of(name, split="train_step"):
    return f"points(store.runs.find(run => run.name === '{name}').id, '{split}').length"


def watch(browser, binary, folder, url):
    with started(binary, folder, *TRAINING, "--epochs", "1000000", "--devices", "4", "--run", "four",
                 stdout=subprocess.DEVNULL) as training:
        while not (folder / "runs/four/metrics.jsonl").exists():
            assert training.poll() is None, "the training has ended"
            time.sleep(0.02)
        browser.open(url)
        browser.wait_for(f"{state_of('four')} === 'running' && {count_of('four')} > 10", PATIENCE)
        before = browser.evaluate(count_of("four"))
        browser.wait_for(f"{count_of('four')} > {before}", PATIENCE)
        browser.wait_for("[...document.querySelectorAll('.panel')].filter(p => p.checkVisibility()).length >= 9",
                         PATIENCE)
        browser.wait_for("document.querySelectorAll('.panel canvas').length > 5", PATIENCE)
        assert browser.evaluate("store.runs[0].ranks") == 4
        browser.wait_for("record(store.runs[0].id).detail.trace.ranks === 4", PATIENCE)
        killed = time.monotonic()
        ranks = subprocess.run(["pgrep", "-P", str(training.pid)], capture_output=True, text=True).stdout.split()
        os.kill(int(ranks[-1]), signal.SIGKILL)  # a rank; its launcher ends the others
        browser.wait_for(f"{state_of('four')} === 'failed'", PATIENCE)
        print(f"ok      the death of a rank is seen after {time.monotonic() - killed:.2f} s")
    names = sorted(path.name for path in (folder / "runs/four/snapshots").iterdir())
    assert names[0] == "epoch-0001.safetensors" and not any("tmp" in name for name in names), names


def finish(browser, binary, folder):
    with started(binary, folder, *TRAINING, "--epochs", "40", "--run", "short", stdout=subprocess.DEVNULL) as training:
        assert training.wait(PATIENCE) == 0
        ended = time.monotonic()
    browser.wait_for(f"{state_of('short')} === 'finished'", PATIENCE)
    print(f"ok      the end of a run is seen after {time.monotonic() - ended:.2f} s")
    browser.open((folder / "runs/short/report.html").as_uri())
    browser.wait_for(f"{count_of('short')} === 120 && {count_of('short', 'val')} === 40", PATIENCE)
    browser.wait_for("document.querySelectorAll('.panel canvas').length > 5", PATIENCE)
    print("ok      its report shows it without a server")


def main():
    if not find_browser():
        print("skipped: there is no chromium (apt-get install chromium)")
        return 77
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with started(binary, folder, "view", "--port", "0", stdout=subprocess.PIPE) as view, Browser() as browser:
            url = re.search(r"http://\S+", view.stdout.readline()).group()
            assert urllib.request.urlopen(url).status == 200
            watch(browser, binary, folder, url)
            finish(browser, binary, folder)
            assert browser.errors == [], browser.errors
            assert view.poll() is None
    return 0


if __name__ == "__main__":
    sys.exit(main())
