#!/usr/bin/env python3
"""Tests the lists and tables of the page of `ringtape view` as page_test.py does: the order of runs, settings beside
results, the table of a comparison.

  tables_test.py [--page FILE] [NAME...]
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fake
from harness import equal, main, test


@test
def the_list_is_sorted(page, server):
    page.open(server)

    def order(sort):
        page.evaluate(f"(e => {{ e.value = '{sort}'; e.onchange(); }})(document.querySelector('#sort'))")
        return page.evaluate("listedRuns()[2].map(run => run.id)")  # the finished ones

    newest = order("newest")
    tops = page.evaluate("Object.fromEntries(store.runs.map(run => [run.id, run.best?.top1 ?? -1]))")
    equal(order("accuracy"), sorted(newest, key=lambda run: -tops[run]))
    equal(order("name"), sorted(newest))
    times = page.evaluate("Object.fromEntries(store.runs.map(run => [run.id, run.seconds]))")
    equal(order("time"), sorted(newest, key=lambda run: times[run]))
    losses = page.evaluate("Object.fromEntries(store.runs.map(run => [run.id, lossOf(run) ?? 99]))")
    equal(order("loss"), sorted(newest, key=lambda run: losses[run]))
    assert "sort=loss" in page.evaluate("location.hash")
    page.open(server, "#A=grows&sort=accuracy")
    equal(page.evaluate("[choice.sort, document.querySelector('#sort').value]"), ["accuracy", "accuracy"])


@test
def settings_stand_below_results(page, server):
    page.runs["grows"].env = {"host": "a", "variables": {"RINGTAPE_THREADS": "2"}}
    page.runs["many"].env = {"host": "a", "variables": {"RINGTAPE_THREADS": "1"}}
    page.open(server, "#A=grows&B=hundred-classes")
    page.wait_for("document.querySelector('.diff .result')")
    heads = page.evaluate("[...document.querySelectorAll('.diff tbody th')].map(e => e.innerText)")
    equal(heads[:3], ["test accuracy", "validation accuracy", "test loss"])
    assert "RINGTAPE_THREADS" in heads and "variables" not in heads, heads
    # The best of a row is marked; one that stands alone is not.
    marked = "[...document.querySelectorAll('.diff .result')].map(r => r.querySelectorAll('.top').length)"
    equal(page.evaluate(marked)[:2], [0, 1])
    # What does not fit beside another panel gets a row of its own.
    page.open(server, "#A=grows&B=hundred-classes&C=simclr", width=1100)
    fits = "(e => e.scrollWidth <= e.clientWidth || e.closest('.panel').dataset.span === '12')"
    page.wait_for(fits + "(document.querySelector('.diff').parentElement)")


@test
def the_table_of_a_comparison(page, server):
    page.runs["long"].lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.html"
        path.write_text(fake.report(page.html, server.everything()))
        page.browser.open(f"file://{path}#A=grows&B=simclr")
        page.wait_for("panels.some(p => p.filled)")
        assert not any(title.startswith("Comparison") for title in page.titles()), page.titles()
        table = {"title": fake.HOSTILE, "notes": "Mean of two.", "heads": ["lr", "top-1, %"],
                 "rows": [["0.1", "9.5 ± 0.2"], ["0.01", "70.25"], ["0.2", "-"]]}
        path.write_text(fake.report(page.html, dict(server.everything(), comparison=table)))
        page.browser.open(f"file://{path}")
        page.wait_for("document.querySelector('.compared')")
        equal(page.titles()[0], "Comparison: " + fake.HOSTILE)
        column = "[...document.querySelectorAll('.compared tbody tr')].map(row => row.firstChild.innerText)"
        equal(page.evaluate(column), ["0.1", "0.01", "0.2"])
        page.browser.click(".compared th:nth-child(2) button")
        equal(page.evaluate(column), ["0.1", "0.01", "0.2"])
        page.browser.click(".compared th:nth-child(2) button")
        equal(page.evaluate(column), ["0.2", "0.01", "0.1"])
        page.browser.click(".compared th:nth-child(1) button")
        equal(page.evaluate(column), ["0.01", "0.1", "0.2"])


if __name__ == "__main__":
    sys.exit(main(__doc__))
