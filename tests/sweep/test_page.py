"""sweep.html in a real browser: what it shows is the table, its filters work, and 10,000 results stay quick."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.sweep import Outcome, Result
from npu_memplan.sweep.table.against import compare
from npu_memplan.sweep.table.page import html_page
from npu_memplan.sweep.table.rows import Table, TableRow, cheapest
from tests.support.looks import DESK, PHONE, faults, open_page

from .conftest import result

pytestmark = pytest.mark.browser

ACCELERATORS = [f"ethos-{name}" for name in ("u55-32", "u55-64", "u55-128", "u55-256", "u65-256", "u65-512")]


def synthetic(make: Callable[..., Table], networks: int, options: int) -> Table:
    """Networks on six accelerators with some options each; one in nine does not fit, one in fifty fails."""
    chance, results = random.Random(3), {}
    targets = [f"{name} --seed {o}" if o else name for name in ACCELERATORS for o in range(options)]
    for n in range(networks):
        for target in targets:
            kind = chance.random()
            if kind < 0.02:
                found = Result("", Outcome.CRASHED, f"its process ended by SIG{chance.randint(1, 9)} <b>&")
            elif kind < 0.13:
                found = Result("", Outcome.NO_ROOM, "needs more")
            else:
                found = result(
                    chance.randint(1, 4000) * 16, chance.randint(10**4, 10**7), runs=2 - (chance.random() < 0.01)
                )
            results[f"network_{n:04}", target] = found
    return make(results)


def opened(browser: Any, folder: Path, *shown: Any) -> Any:
    page = folder / "sweep.html"
    page.write_text(html_page(*shown), encoding="utf-8")
    browser.open(page)
    assert browser.errors() == []
    assert browser.requests() == [page.resolve().as_uri()], "the page requested something"
    return browser


def typed(browser: Any, field: str, text: str) -> None:
    browser.run(f"$('{field}').value = {text!r}; $('{field}').dispatchEvent(new Event('input'))")
    browser.frame()


def pressed(browser: Any, group: str, start: str) -> None:
    browser.run(f"[...$('{group}').children].find(b => b.textContent.startsWith({start!r})).click()")
    browser.frame()


def scrolled_through(browser: Any) -> dict[str, str]:
    """All cells of the matrix: what is pointed at -> its text."""
    found = {}
    for left in (0, 500, 1000, 1500):
        browser.run(f"$('grid').scrollTo({left}, 0)")
        browser.frame()
        cells = "[...document.querySelectorAll('#grid-layer .cell')].map(c => [c.title.split(': ')[0], c.textContent])"
        found |= dict(browser.run(cells))
    return found


def shown(row: TableRow, metric: str) -> str:
    if not row.fits:
        return row.result.outcome.value
    return {"SRAM": f"{row.sram_bytes:,}", "flash": f"{row.flash_bytes:,}", "exact": row.exactness}[metric]


CELLS = "[...document.querySelectorAll('#grid-layer .cell')].map(c => c.textContent)"


def test_twelve_models_six_accelerators_three_options(browser: Any, made_table: Any, tmp_path: Path) -> None:
    table = synthetic(made_table, 12, 3)
    opened(browser, tmp_path, table)
    for metric in ("SRAM", "flash", "exact"):
        pressed(browser, "metrics", metric)
        names = {f"{row.label.network} on {row.label.target}": shown(row, metric) for row in table.rows}
        assert scrolled_through(browser) == names
    fronts = browser.run("npuSweep.results.filter(r => r.front).map(r => [r.name, r.on.name])")
    assert sorted(map(tuple, fronts)) == sorted((n, t) for n, front in table.fronts.items() for t in front)


def test_filters_leave_what_they_say(browser: Any, made_table: Any, tmp_path: Path) -> None:
    table = synthetic(made_table, 12, 3)
    opened(browser, tmp_path, table)
    typed(browser, "find-networks", "network_0003")
    typed(browser, "find-targets", "u65 seed")
    assert browser.run("npuSweep.view.matching") == len(browser.run(CELLS)) == 4
    heads = browser.run("[...document.querySelectorAll('#grid-layer .head')].map(c => c.title)")
    assert heads == [t for t in table.targets if "u65" in t and "seed" in t]
    typed(browser, "find-networks", "")
    typed(browser, "find-targets", "")
    pressed(browser, "accelerators", "u55-32")
    assert browser.run("npuSweep.view.matching") == 12 * 15
    fits = sum(row.fits and row.label.accelerator != "ethos-u55-32" for row in table.rows)
    pressed(browser, "outcomes", "fits")
    assert browser.run("npuSweep.view.matching") == 12 * 15 - fits
    assert browser.run("document.getElementById('count-cells').textContent").endswith("of 216 results")


def test_the_cheapest_is_pythons_answer(browser: Any, made_table: Any, tmp_path: Path) -> None:
    table = synthetic(made_table, 1, 4)
    times = sorted(row.milliseconds for row in table.rows if row.milliseconds is not None)
    opened(browser, tmp_path, table, None, times[len(times) // 2])
    names = "npuSweep.view.cheapest.map(c => c.target.name)"
    for deadline in (times[len(times) // 2], times[0], times[0] / 2, None):
        typed(browser, "deadline", "" if deadline is None else repr(deadline))
        assert browser.run(names) == [target.target for target in cheapest(table, deadline)]
    assert len(browser.run(names)) > 3


def test_a_picked_result_has_every_figure_and_its_front(browser: Any, made_table: Any, tmp_path: Path) -> None:
    table = synthetic(made_table, 3, 2)
    opened(browser, tmp_path, table)
    row = next(row for row in table.rows if row.result.outcome is Outcome.CRASHED)
    place = table.rows.index(row)
    browser.run(f"pick(npuSweep.results[{place}])")
    told = browser.run("document.getElementById('detail').textContent")
    assert row.label.target in told
    assert row.result.reason in told, "as text, not as HTML"
    on_front = browser.run("document.querySelectorAll('#front button').length")
    assert on_front == len(table.fronts[row.label.network])
    dots = browser.run("document.querySelectorAll('#detail svg circle.front').length")
    assert dots == on_front


def test_regressions_stand_first(browser: Any, made_table: Any, tmp_path: Path) -> None:
    old = synthetic(made_table, 4, 2)
    rows = list(old.rows)
    changed = [i for i, row in enumerate(rows) if row.fits][:3]
    for i, by in zip(changed, (-16, 32, -48), strict=True):
        pools = {"sram": (rows[i].sram_bytes or 0) + by}
        rows[i] = replace(rows[i], result=replace(rows[i].result, pools=pools))
    new = Table(tuple(rows), old.versions)
    opened(browser, tmp_path, new, compare(old, new))
    text = browser.run("[...document.querySelectorAll('#table-changes tbody tr:not(.gap)')].map(r => r.textContent)")
    assert [line[:5] for line in text] == ["worse", "bette", "bette"]
    assert rows[changed[1]].label.network in text[0]
    assert "1 figures worse, 2 better" in browser.run("document.getElementById('changes-note').textContent")
    assert browser.run("npuSweep.changesOf.size") == 3
    pressed(browser, "outcomes", "changed")
    assert browser.run("npuSweep.view.matching") == 3


def test_ten_thousand_results_stay_quick(browser: Any, made_table: Any, tmp_path: Path) -> None:
    """First paint under a second and a scroll within a few frames; only what is in sight exists."""
    table = synthetic(made_table, 100, 17)
    assert len(table.rows) > 10_000
    opened(browser, tmp_path, table)
    paints = [browser.run("npuSweep.painted")]
    for _ in range(2):  # the best of three: other programs may run here
        browser.open(tmp_path / "sweep.html")
        paints.append(browser.run("npuSweep.painted"))
    assert min(paints) < 1000
    assert browser.run("document.querySelectorAll('*').length") < 3000
    browser.run("document.getElementById('grid').scrollTo(5000, 1500)")
    browser.frame()
    browser.frame()
    last = browser.run(CELLS)
    assert last
    assert "network_0060" in browser.run("[...document.querySelectorAll('#grid-layer .side')].map(n => n.textContent)")
    again = "filter(); drawGrid(); showCheapest();"
    script = f"(() => {{ const t = performance.now(); {again} return performance.now() - t; }})()"
    assert min(browser.run(script) for _ in range(3)) < 200


def test_the_least_of_a_network_has_a_colour(browser: Any, made_table: Any, tmp_path: Path) -> None:
    table = synthetic(made_table, 6, 1)
    opened(browser, tmp_path, table)
    for metric, figure in (("SRAM", lambda row: row.values()["sram_bytes"]), ("ms", lambda row: row.milliseconds)):
        pressed(browser, "metrics", metric)
        shown = browser.run("[...document.querySelectorAll('#grid-layer .cell.best')].map(c => c.title.split(': ')[0])")
        expected = []
        for network in table.networks:
            rows = [row for row in table.rows if row.label.network == network and row.fits]
            least = min(figure(row) for row in rows)
            expected += [f"{network} on {row.label.target}" for row in rows if figure(row) == least]
        assert sorted(shown) == sorted(expected)
    pressed(browser, "metrics", "exact")
    assert browser.run("document.querySelectorAll('#grid-layer .cell.best').length") == 0


def test_the_matrix_by_keyboard(browser: Any, made_table: Any, tmp_path: Path) -> None:
    table = synthetic(made_table, 40, 3)
    opened(browser, tmp_path, table)
    browser.run("document.getElementById('grid').focus()")
    where = "[npuSweep.view.picked.name, npuSweep.view.picked.on.name]"
    names, targets = list(table.networks), list(table.targets)
    for key, times, expected in (("ArrowDown", 2, (2, 0)), ("ArrowRight", 17, (2, 17)), ("ArrowUp", 9, (0, 17))):
        for _ in range(times):
            browser.key(key)
        assert browser.run(where) == [names[expected[0]], targets[expected[1]]]
    browser.frame()
    cell, grid = browser.run(
        "[document.querySelector('.cell.on'), document.getElementById('grid')].map(e => e.getBoundingClientRect())"
        ".map(b => [b.left, b.right])"
    )
    assert grid[0] <= cell[0] < cell[1] <= grid[1] + 1, "the picked cell is in sight"


@pytest.mark.parametrize("size, dark", [(DESK, False), (DESK, True), (PHONE, False), (PHONE, True)])
def test_nothing_is_cut_off_or_faint(browser: Any, made_table: Any, tmp_path: Path, size: Any, dark: bool) -> None:
    try:
        text = html_page(synthetic(made_table, 3, 2))
        open_page(browser, tmp_path / "sweep.html", text, size, dark)
        browser.frame()
        assert faults(browser) == []
        assert browser.run("document.querySelectorAll('#detail .chart .title').length") == 2, "axes with units"
    finally:
        browser.size(*DESK)
        browser.call("Emulation.setEmulatedMedia", features=[])
