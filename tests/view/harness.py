"""What tests of the page share: the page with a server of made-up data, and a runner of tests."""
import argparse
import json
import pathlib
import signal
import sys
import time
import traceback

import fake
from browser import Browser, find_browser

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(given, expected):
    if given != expected:
        raise AssertionError(f"{given!r}; expected {expected!r}")


class Page:
    """The page with its server: what all tests need."""

    def __init__(self, browser, html):
        self.browser, self.html = browser, html
        self.runs = fake.made_up_runs(long_run=60000)
        self.first = ["grows", self.runs["failed"].name, "hundred-classes"]

    def open(self, server, address="", **options):
        self.browser.open(server.url + address, **options)
        self.browser.wait_for("panels.length && panels.some(p => p.filled)")

    def titles(self):
        """Titles of the panels that can be seen."""
        return self.browser.evaluate(
            "[...document.querySelectorAll('.panel')].filter(p => p.checkVisibility())"
            ".map(p => p.querySelector('h2').textContent)")

    def text(self, element):
        return self.browser.evaluate(f"document.querySelector({json.dumps(element)}).innerText")

    def wait_for(self, js, seconds=60.0):
        return self.browser.wait_for(js, seconds)

    def evaluate(self, js):
        return self.browser.evaluate(js)


def main(about):
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("--page", type=pathlib.Path)
    arguments.add_argument("names", nargs="*")
    options = arguments.parse_args()
    if not find_browser():
        print("skipped: there is no chromium (apt-get install chromium)")
        return 77
    if not options.page and not fake.DYGRAPHS.exists():
        print("skipped: there is no dygraphs (apt-get install libjs-dygraphs)")
        return 77
    html = options.page.read_text() if options.page else fake.assemble()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the browser is ended too
    bad = 0
    with Browser() as browser:
        for function in TESTS:
            if options.names and function.__name__ not in options.names:
                continue
            begun = time.monotonic()
            page = Page(browser, html)
            browser.errors.clear()
            try:
                with fake.Server(html, page.runs, page.first) as server:
                    function(page, server)
                    browser.evaluate("new Promise(done => setTimeout(done, 50))")
                equal(browser.errors, [])
                print(f"ok      {function.__name__}  {time.monotonic() - begun:.1f} s", flush=True)
            except Exception:
                bad += 1
                print(f"FAILED  {function.__name__}\n{traceback.format_exc()}", flush=True)
                print(f"errors of the page: {browser.errors}", flush=True)
    return 1 if bad else 0
