#!/usr/bin/env python3
"""Tests the page of `ringtape view` in a headless Chromium, with a server that makes its data up.

  page_test.py [--page FILE] [NAME...]

FILE: the page as the build has assembled it; NAMEs: only these tests.
"""
import json
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fake
from harness import equal, main, test

# Functions that know nothing of the page.

@test
def functions(page, server):
    page.open(server)
    cases = {
        "smooth([1, 1, 1], 0.9).map(v => +v.toFixed(6))": [1, 1, 1],
        "smooth([4, 0], 0.5).map(v => +v.toFixed(6))": [4, 1.333333],
        "quantile([3, 1, 2], 0.5)": 2,
        "nearest([[0, 5], [10, 6]], 6, 10)": [10, 6],
        "nearest([[0, 5], [10, 6]], 11, 10)": None,
        "nearest([], 1, 1)": None,
        "linearTicks(0, 100, 5)": [0, 20, 40, 60, 80, 100],
        "logTicks(0.1, 10, 3)": [0.1, 1, 10],
        "timeTicks(0, 600, 5)": [0, 120, 240, 360, 480, 600],
        "[num(null), num(0), num(1234), num(0.00001), num('7'), num(-0.5)]":
            ["–", "0", "1,234", "1.0e−5", "–", "−0.5"],
        "[clock(59), clock(61), clock(3600)]": ["59 s", "1:01 min", "1:00 h"],
        "[secs(0.0000021), secs(2), secs(7200)]": ["2 µs", "2 s", "2.0 h"],
        "spreadLetters([{x: 0, y: 5}, {x: 0, y: 6}, {x: 99, y: 6}], 100).map(m => m.y)": [5, 16, 6],
        "spreadLetters([0, 38, 80].map(x => ({x, y: 5, half: 20})), 100).map(m => m.y)": [5, 16, 5],
        "commonest(['a', 'b', 'b'])": "b",
        "commonest(['a', 'b'])": None,
    }
    for js, expected in cases.items():
        try:
            equal(page.evaluate(js), expected)
        except AssertionError as error:
            raise AssertionError(f"{js}: {error}") from None


@test
def thinning_keeps_extremes(page, server):
    page.open(server)
    page.evaluate("""window.many = Array.from({ length: 200000 }, (_, i) => [i, Math.sin(i / 999)]),
                     many[77777][1] = 9, many[123456][1] = -9, 0""")
    kept = page.evaluate("thin(many, 500)")
    assert len(kept) <= 1002, len(kept)
    equal([max(y for _, y in kept), min(y for _, y in kept)], [9, -9])
    equal([kept[0][0], kept[-1][0]], [0, 199999])
    assert all(a[0] < b[0] for a, b in zip(kept, kept[1:])), "not sorted"
    part = page.evaluate("thin(many, 500, [1000.5, 1100.5])")
    equal([part[0][0], part[-1][0], len(part)], [1000, 1101, 102])


@test
def times_of_lines(page, server):
    page.open(server)
    lines = [{"split": "train_step", "step": 10, "images_per_s": 10},
             {"split": "train_step", "step": 20},
             {"split": "train", "epoch": 1, "step": 20, "seconds": 8},
             {"split": "val", "step": 20, "seconds": 2},
             {"split": "train_step", "step": 30, "images_per_s": 20}]
    page.evaluate("window.rec = record('made up'), rec.info = { batch: 2 }, 0")
    page.evaluate("addLines(rec, { from: 0, next: 5, lines: %s })" % json.dumps(lines))
    equal(page.evaluate("points('made up', 'train_step').map(l => l.clock)"), [4, 8, 11])
    equal(page.evaluate("curve('made up', 'train_step', 'step', 'epoch').map(p => p[0])"),
          [0.5, 1, 1.5])
    # Not from where it had stopped; then it has started anew.
    equal(page.evaluate("addLines(rec, { from: 3, next: 9, lines: [{}] })"), False)
    page.evaluate("addLines(rec, { from: 0, next: 0, lines: [] })")
    equal(page.evaluate("[rec.next, rec.splits.size, rec.clock]"), [0, 0, 0])


# What is seen.

@test
def panels_fit_the_runs(page, server):
    curves = ["Loss", "Error rate", "Learning rate", "Images per second", "Peak memory"]
    time_and_settings = ["Where the time of an epoch goes", "Settings"]
    features = ["First-layer filters", "Map of features", "Nearest neighbours"]
    page.open(server, "#A=simclr")
    page.wait_for("document.querySelector('.map canvas')")
    equal(page.titles(), ["Loss", "kNN error rate"] + curves[2:] + ["Spread of features"]
          + time_and_settings + ["Random views"] + features)
    page.open(server, "#A=grows&log=0")
    page.wait_for("document.querySelector('.map canvas')")
    equal(page.titles(), ["Loss", "Accuracy"] + curves[2:] + [
        time_and_settings[0], "What each rank waits for", "Settings",
        "Confusion on the validation set", "Sample predictions on the validation set"] + features)
    page.open(server, "#A=hundred-classes&B=grows")
    page.wait_for("document.querySelector('.mistakes')")
    assert "Settings that differ" in page.titles(), page.titles()
    equal(page.evaluate("document.querySelectorAll('.mistakes tbody tr').length"), 12)
    page.browser.click(".snapshot .more")
    equal(page.evaluate("document.querySelectorAll('.mistakes tbody tr').length"), 50)
    page.evaluate("look('grows')")
    equal(page.evaluate("document.querySelectorAll('.conf .c').length"), 100)


@test
def a_run_that_knows_nothing(page, server):
    page.open(server, "#A=knows-nothing")
    equal(page.titles()[0], "Loss")
    for key in "1234lc[]":
        page.browser.press(key)
    page.browser.move(".plot")
    page.wait_for("document.querySelector('.notice')")
    assert "knows-nothing failed." in page.text(".notice"), page.text(".notice")


@test
def nothing_is_chosen(page, server):
    page.open(server)
    for _ in page.first:
        page.browser.click(".chip button")
    page.wait_for("document.querySelector('#chips').innerText === 'Choose runs from the list.'")
    equal(page.titles(), ["Loss", "Error rate"])


@test
def hostile_names_stay_text(page, server):
    page.open(server)
    page.wait_for("document.querySelector('.map canvas')")
    page.browser.move(".conf .c")
    parts = [".notice b", ".notice pre", "#chips", "#run-list", ".diff", ".gantt", ".conf",
             ".snapshot .say", ".samples", ".phases button"]
    for part in parts:
        assert_hostile(page, part)
    page.evaluate("look('hundred-classes')")
    page.wait_for("document.querySelector('.mistakes')")
    assert_hostile(page, ".mistakes")
    equal(page.evaluate("[document.images.length, document.querySelectorAll('[onerror]').length]"),
          [0, 0])


def assert_hostile(page, part):
    text = page.evaluate(f"document.querySelector('{part}').textContent")
    assert fake.HOSTILE[:16] in text, f"{part}: {text}"


@test
def light_and_dark(page, server):
    background = "getComputedStyle(document.body).backgroundColor"
    page.open(server, dark=False)
    light = page.evaluate(background)
    page.open(server, dark=True)
    dark = page.evaluate(background)
    assert light != dark, light
    page.browser.press("t")
    equal(page.evaluate(background), light)
    page.evaluate("localStorage.clear()")


@test
def narrow_screens(page, server):
    for address in ("", "#A=simclr&B=twenty-classes&look=twenty-classes&x=time",
                    "#A=hundred-classes&B=knows-nothing"):
        page.open(server, address, width=400, height=800, dark=True)
        page.wait_for("document.querySelector('.map canvas')")
        equal(page.evaluate("document.documentElement.scrollWidth"), 400)
    page.browser.click("#runs-button")
    equal(page.evaluate("document.querySelector('#side').checkVisibility()"), True)
    page.browser.press("Escape")
    equal(page.evaluate("document.querySelector('#side').checkVisibility()"), False)


@test
def screen_readers_get_values(page, server):
    page.open(server)
    said = page.wait_for("document.querySelector('.plot').ariaLabel")
    assert said.startswith("Loss. Newest values: grows: val "), said
    nameless = """[...document.querySelectorAll('section, button, canvas:not(.g canvas), input')]
        .filter(e => e.checkVisibility())
        .filter(e => !(e.ariaLabel || e.innerText || e.closest('label') || e.title))"""
    equal(page.evaluate(nameless + ".map(e => e.outerHTML)"), [])


# What the reader does.

@test
def choices_are_in_the_address(page, server):
    page.open(server)
    page.browser.press("2")
    page.browser.press("l")
    page.browser.press("]")
    page.browser.drag(".plot", 0.4, 0.7)
    window = page.wait_for("choice.window")
    address = page.evaluate("location.hash")
    page.open(server, address)
    equal(page.evaluate("[choice.x, choice.log, choice.smooth]"), ["epoch", False, 0.7])
    equal(page.evaluate("choice.chosen"), page.first)
    assert abs(page.evaluate("choice.window[0]") - window[0]) < 1e-4
    page.browser.press("r")
    equal(page.evaluate("choice.window"), None)
    equal(page.evaluate("document.querySelector('#reset').hidden"), True)
    page.browser.evaluate("document.querySelector('.skip').click()")
    equal(page.evaluate("[document.activeElement.id, choice.chosen.length]"), ["main", 3])
    page.evaluate("location.hash = '#A=simclr&x=time'")
    page.wait_for("choice.chosen.join() === 'simclr' && choice.x === 'time'")


@test
def the_keyboard(page, server):
    page.open(server)
    for key in "jjjx":
        page.browser.press(key)
    page.wait_for("choice.chosen.length === 4")
    page.browser.press("?")
    equal(page.evaluate("document.querySelector('#help').open"), True)
    page.browser.press("?")
    page.evaluate("document.querySelector('.plot').focus()")
    for _ in range(3):
        page.browser.press("ArrowLeft")
    assert page.text("#at").startswith("At step"), page.text("#at")
    page.browser.press("/")
    page.evaluate("(e => { e.value = 'simclr'; e.oninput(); })(document.querySelector('#filter'))")
    equal(page.evaluate("document.querySelectorAll('.run').length"), 1)
    page.evaluate("(e => { e.value = 'nowhere'; e.oninput(); })(document.querySelector('#filter'))")
    equal(page.text("#list-note"), "No run matches.")


@test
def the_pointer_shows_values(page, server):
    page.open(server)
    newest = page.text(".read")
    page.browser.move(".plot", 0.5)
    page.wait_for("document.querySelectorAll('.dot').length > 3")
    assert page.text(".read") != newest
    assert page.text("#at").startswith("At step"), page.text("#at")
    page.browser.move("h1")
    equal([page.text("#at"), page.text(".read")], ["", newest])


@test
def eight_runs_at_most(page, server):
    for i in range(9):
        page.runs[f"extra {i}"] = fake.Run(f"extra-{i}", seed=i)
    address = "&".join(f"{letter}=extra-{i}" for i, letter in enumerate("ABCDEFGH"))
    page.browser.open(server.url + "#" + address)
    page.wait_for("choice.chosen.length === 8")
    page.evaluate("toggle('extra-8')")
    page.evaluate("poll(true)")  # drawn anew, it is still said
    assert "8 runs are chosen" in page.text("#list-note")
    del page.runs["extra 2"]
    page.wait_for("choice.chosen.length === 7")
    page.evaluate("toggle('extra-8')")
    page.wait_for("letter('extra-8') === 'C'")


# What happens while runs train.

@test
def lines_are_added(page, server):
    page.open(server)
    picture = "[...document.querySelectorAll('.g canvas')].map(c => c.toDataURL()).join()"
    before, values = page.evaluate(picture), page.text(".read")
    asked = len(server.asked)
    page.runs["grows"].epoch(4)
    page.wait_for("points('grows', 'val').length === 4")
    page.wait_for(f"document.querySelector('.read').innerText !== {json.dumps(values)}")
    assert page.evaluate(picture) != before, "the curves are the same"
    later = [path for path in server.asked[asked:] if path.startswith("/api/metrics")]
    assert later and all(path.count("run=") == 1 for path in later), later  # the one that trains
    assert all("run=0" not in path for path in later), later


@test
def a_run_ends(page, server):
    page.open(server)
    page.wait_for("document.querySelector('#live').innerText === 'Live · 1 running'")
    page.runs["grows"].log = ["all was well", "error: out of memory"]
    page.runs["grows"].state = "failed"
    page.wait_for("document.querySelector('.notice').innerText.includes('error: out of memory')")
    equal(page.text("#live"), "Nothing is running")
    page.runs["grows"].state = "running"
    page.wait_for("!document.querySelector('#notices').innerText.includes('out of memory')")
    page.runs["grows"].epoch(4)
    page.runs["grows"].state = "finished"
    page.wait_for("points('grows', 'val').length === 4")


@test
def a_run_starts_anew(page, server):
    page.open(server)
    page.wait_for("points('grows', 'val').length === 3")
    grows = page.runs["grows"]
    grows.lines, grows.snapshots = [], {}
    page.wait_for("points('grows', 'val').length === 0")
    grows.epoch(1)
    page.wait_for("points('grows', 'val').length === 1")


@test
def a_run_vanishes(page, server):
    page.open(server)
    grows = page.runs.pop("grows")
    page.wait_for("choice.chosen.length === 2")
    page.runs["grows"] = grows
    page.wait_for("choice.chosen[0] === 'grows'")
    server.unknown.add("grows")  # in the list, but gone when asked for
    grows.started += 1
    page.runs["hundred"] = fake.Run("new-run", "running")
    page.wait_for("document.querySelector('#run-list').innerText.includes('new-run')")
    page.evaluate("toggle('new-run')")
    page.runs["hundred"].epoch(1)
    page.wait_for("points('new-run', 'val').length === 1")


@test
def snapshots_are_followed(page, server):
    page.open(server, "#A=grows")
    shown = "document.querySelector('.moment output').textContent"
    page.wait_for(f"{shown} === 'epoch 3' && document.querySelector('.conf')")
    grows = page.runs["grows"]
    grows.snapshots["epoch-4"] = fake.snapshot(grows, 4)
    page.wait_for(f"{shown} === 'epoch 4'")
    page.browser.press(",")
    page.browser.press(",")
    page.wait_for(f"{shown} === 'epoch 2'")
    page.wait_for("document.querySelectorAll('.stale').length === 0")
    assert "at=epoch-2" in page.evaluate("location.hash")
    grows.snapshots["epoch-5"] = fake.snapshot(grows, 5)
    page.wait_for("record('grows').snapshots.length === 5")
    equal(page.evaluate(shown), "epoch 2")
    asked = sum("snapshot" in path for path in server.asked)
    page.browser.press(".")
    page.wait_for("document.querySelectorAll('.stale').length === 0")
    equal(sum("snapshot" in path for path in server.asked), asked)  # it had been kept
    grows.snapshots["epoch-6"] = None  # cannot be had
    server.broken.add("epoch-6")
    page.wait_for("record('grows').snapshots.length === 6")
    page.evaluate("setMoment('grows', 5)")
    page.wait_for("document.querySelectorAll('.stale').length > 0")


@test
def the_server_goes_away(page, server):
    page.open(server)
    server.stop()
    page.wait_for("document.querySelector('#live').innerText === 'No answer from ringtape'")
    page.evaluate("toggle('simclr')")
    server.start()
    page.wait_for("document.querySelector('#live').innerText === 'Live · 1 running'")
    page.wait_for("points('simclr', 'knn').length === 3")


@test
def long_runs_are_thinned(page, server):
    page.open(server, "#A=long")
    page.wait_for("points('long', 'train_step').length === 60000")
    page.evaluate("set({ smooth: 0.9 })")
    most = page.evaluate("Math.max(...panels[0].curves.map(c => c.shown.length))")
    assert most < 2100, most


@test
def a_report(page, server):
    page.runs["long"].lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.html"
        path.write_text(fake.report(page.html, server.everything()))
        page.browser.open(f"file://{path}#A=grows&B=simclr")
        page.wait_for("document.querySelector('.map canvas') && document.querySelector('.conf')")
        equal(page.text("#live"), "Report")
        page.browser.press("2")
        assert "x=epoch" in page.evaluate("location.hash")
        path.write_text(fake.report(page.html, {}).replace('"ringtape-data">{', '"ringtape-data">'))
        page.browser.open(f"file://{path}")
        equal(page.text("#live"), "The data of this report cannot be read.")


if __name__ == "__main__":
    sys.exit(main(__doc__))
