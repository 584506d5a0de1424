#!/usr/bin/env python3
"""Takes pictures of the page of `ringtape view`, light and dark: of the whole page, 1400 and 400
pixels wide, and of each panel that is shown.

  screenshots.py URL FOLDER [--report FILE]

URL: of a running `ringtape view`; behind # it can say which runs are shown, as the page does.
FILE: also of this report.html, with names that begin with `report-`.
"""
import argparse
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from browser import Browser, Failed, find_browser

SHOWN = """[...document.querySelectorAll('.panel')].flatMap((panel, i) => panel.hidden ? [] :
           [[i, panel.getAttribute('aria-label')]])"""


def open_page(browser, url, **options):
    browser.open(url, **options)
    browser.wait_for("panels.some(panel => panel.filled)")
    time.sleep(1.5)  # snapshots come a little later
    browser.wait_for("underWay.size === 0")


def take(browser, url, folder, prefix):
    for dark in (False, True):
        scheme = "dark" if dark else "light"
        open_page(browser, url, width=1400, height=900, dark=dark)
        browser.screenshot(folder / f"{prefix}page-{scheme}.png", full=True)
        for i, title in browser.evaluate(SHOWN):
            name = re.sub(r"\W+", "-", title.lower()).strip("-")
            element = f".panel:nth-child({i + 1})"
            browser.screenshot(folder / f"{prefix}{name}-{scheme}.png", element=element, margin=2)
        open_page(browser, url, width=400, height=800, dark=dark)
        browser.screenshot(folder / f"{prefix}narrow-{scheme}.png", full=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--report", type=pathlib.Path)
    options = arguments.parse_args()
    if not find_browser():
        print("skipped: there is no chromium (apt-get install chromium)")
        return 77
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        with Browser() as browser:
            take(browser, options.url, options.folder, "")
            if options.report:
                address = options.report.resolve().as_uri()
                take(browser, address, options.folder, "report-")
            for error in browser.errors:
                print("error of the page:", error, file=sys.stderr)
            return 1 if browser.errors else 0
    except Failed as failure:
        print("screenshots.py:", failure, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
