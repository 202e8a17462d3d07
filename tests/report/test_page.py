"""report.html in a real browser: what it draws is plan.json, and everything on it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.report.page.html import html_report

pytestmark = pytest.mark.browser


def opened(browser: Any, artifact: Artifact, folder: Path) -> Any:
    page = folder / "report.html"
    page.write_text(html_report(artifact), encoding="utf-8")
    browser.open(page)
    assert browser.errors() == []
    assert browser.requests() == [page.resolve().as_uri()], "the page requested something"
    return browser


def plan_rectangles(artifact: Artifact) -> list[list[object]]:
    """[buffer, pool, first, last, low, high] straight from the plan."""
    placed = {p.buffer: p for p in artifact.plan.placements}
    return sorted(
        [b.name, placed[b.name].pool, t.first, t.last, placed[b.name].offset_bytes,
         placed[b.name].offset_bytes + b.size_bytes]
        for b in artifact.problem.buffers for t in b.lifetimes
    )  # fmt: skip


def canvas_corner(browser: Any, pool: str) -> tuple[float, float]:
    canvas = f"document.querySelector('.plot[data-pool={pool}] canvas')"
    script = f"(() => {{ const b = {canvas}.getBoundingClientRect(); return [b.x, b.y]; }})()"
    x, y = browser.run(script)
    return x, y


def middle(browser: Any, buffer: str) -> tuple[float, float]:
    """Viewport position of the middle of a drawn buffer."""
    r = next(r for r in browser.run("npuMemplan.rectangles()") if r["buffer"] == buffer)
    x, y = canvas_corner(browser, r["pool"])
    return x + r["x"] + r["width"] / 2, y + r["y"] + r["height"] / 2


def pixel(browser: Any, pool: str, x: float, y: float) -> list[int]:
    """RGB drawn at a CSS position of a pool's canvas."""
    return list(
        browser.run(
            f"Array.from(document.querySelector('.plot[data-pool={pool}] canvas').getContext('2d')"
            f".getImageData({x}, {y}, 1, 1).data.slice(0, 3))"
        )
    )


def test_rectangles_are_the_plan(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    assert browser.rectangles() == plan_rectangles(small)


def test_the_colour_at_a_buffer_is_its_kinds(browser: Any, small: Artifact, tmp_path: Path) -> None:
    """The rectangles of the test above are really painted, and the free room is not."""
    opened(browser, small, tmp_path)
    r = next(r for r in browser.run("npuMemplan.rectangles()") if r["buffer"] == "image")
    assert pixel(browser, "sram", r["x"] + 4, r["y"] + 4) == [0x2F, 0x9E, 0x6E]
    a = browser.run("npuMemplan.axes()")[0]
    free = pixel(browser, "sram", a["left"] + a["width"] * 2.6 / 7, a["top"] + a["height"] * 0.97)
    assert free != [0x2F, 0x9E, 0x6E]
    browser.run("document.querySelector('[data-colour=agent]').click()")
    browser.frame()
    assert pixel(browser, "sram", r["x"] + 4, r["y"] + 4) == [0x2F, 0x9E, 0x6E]  # host and NPU
    c = next(r for r in browser.run("npuMemplan.rectangles()") if r["buffer"] == "conv")
    assert pixel(browser, "sram", c["x"] + 4, c["y"] + 4) == [0xE8, 0xA3, 0x3D]  # NPU


def test_hover_shows_name_size_lifetime_and_both_ends(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    browser.mouse("mouseMoved", *middle(browser, "image"))
    browser.frame()
    tip = browser.run("document.getElementById('tip').innerText")
    for part in (
        "image",
        "4,096 bytes (4.00 KiB)",
        "points 0–1",
        "made by the caller",
        "read by 0:net.1",
        "sram 0–4,096",
    ):
        assert part in tip
    assert browser.run("document.getElementById('tip').hidden") is False


def test_click_follows_a_buffer_and_escape_lets_go(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    browser.click(*middle(browser, "pool"))
    assert browser.run("npuMemplan.state.picked.name") in ("pool", "view")  # one memory
    browser.run("npuMemplan.pick('conv')")
    detail = browser.run("document.getElementById('detail').innerText")
    assert "8,192 bytes (8.00 KiB)" in detail
    assert "61.5 % of it" in detail
    related = browser.run("[...npuMemplan.state.related].map((b) => b.name).sort()")
    assert related == ["image", "relu", "weights"]
    browser.key("Escape")
    assert browser.run("npuMemplan.state.picked") is None


def test_zoom_and_pan(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    browser.run("document.getElementById('zoom-in').click()")
    t0, t1 = browser.run("npuMemplan.state.view")
    assert 0 < t0 < t1 < 7
    assert browser.rectangles() == plan_rectangles(small)  # still the plan, at another scale
    x, y = canvas_corner(browser, "sram")
    browser.mouse("mouseWheel", x + 300, y + 100, deltaX=0, deltaY=-300, modifiers=2)
    browser.frame()
    u0, u1 = browser.run("npuMemplan.state.view")
    assert u1 - u0 < t1 - t0
    browser.mouse("mousePressed", x + 400, y + 100, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + 300, y + 100, button="left", buttons=1)
    browser.mouse("mouseReleased", x + 300, y + 100, button="left", clickCount=1)
    browser.frame()
    v0, _ = browser.run("npuMemplan.state.view")
    assert v0 > u0
    assert browser.run("npuMemplan.state.picked") is None  # a drag is no click
    browser.run("document.getElementById('zoom-fit').click()")
    assert browser.run("npuMemplan.state.view") == [0, 7]


def test_keyboard_alone_is_enough(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    browser.run("document.querySelector('.plot canvas').focus()")
    browser.key("n")
    first = browser.run("npuMemplan.state.picked.name")
    browser.key("n")
    assert browser.run("npuMemplan.state.picked.name") != first
    browser.key("p")
    assert browser.run("npuMemplan.state.picked.name") == first
    browser.key("+")
    assert browser.run("npuMemplan.state.view[1] - npuMemplan.state.view[0]") < 7
    browser.key("0")
    assert browser.run("npuMemplan.state.view") == [0, 7]
    browser.key("/")
    assert browser.run("document.activeElement.id") == "find"


def test_tables_by_keyboard(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    browser.run("document.getElementById('table-buffers').focus()")
    for _ in range(3):
        browser.key("ArrowDown")
    browser.key("ArrowUp")
    assert browser.run("document.querySelector('#table-buffers tr.at td').innerText") == small.problem.buffers[1].name
    browser.key("Enter")
    assert browser.run("npuMemplan.state.picked.name") == small.problem.buffers[1].name


def test_search_marks_and_picks(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    browser.run("document.getElementById('find').focus()")
    browser.call("Input.insertText", text="relu")
    browser.frame()
    assert browser.run("npuMemplan.state.query") == "relu"
    r = next(r for r in browser.run("npuMemplan.rectangles()") if r["buffer"] == "image")
    assert pixel(browser, "sram", r["x"] + 4, r["y"] + 4) != [0x2F, 0x9E, 0x6E]  # not found: faded
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")
    browser.frame()
    assert browser.run("npuMemplan.state.picked.name") == "relu"


def test_the_legend_filters_by_kind(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    button = "[...document.querySelectorAll('#legend button')].find((b) => b.innerText === 'graph input').click()"
    browser.run(button)
    browser.frame()
    at = {r["buffer"]: (r["x"] + 4, r["y"] + 4) for r in browser.run("npuMemplan.rectangles()")}
    assert pixel(browser, "sram", *at["image"]) == [0x2F, 0x9E, 0x6E]
    assert pixel(browser, "sram", *at["conv"]) != [0xE8, 0xA3, 0x3D]
    browser.run(button)
    browser.frame()
    assert pixel(browser, "sram", *at["conv"]) == [0xE8, 0xA3, 0x3D]


def test_a_pool_can_be_hidden(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    shown = "getComputedStyle(document.querySelector('.plot[data-pool=dram]')).display !== 'none'"
    assert browser.run(shown) is True
    browser.run("document.querySelector('#pools [data-pool=dram]').click()")
    assert browser.run(shown) is False
    browser.run("document.querySelector('#pools [data-pool=dram]').click()")
    assert browser.run(shown) is True


def test_tables_search_and_sort(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    names = "[...document.querySelectorAll('#table-buffers tbody tr:not(.gap) td:first-child')].map((c) => c.innerText)"
    assert browser.run(names) == [b.name for b in small.problem.buffers]
    browser.run("document.querySelectorAll('#table-buffers th')[4].click()")
    assert browser.run(names)[:3] == ["archive", "conv", "relu"]
    browser.run("(() => { const i = document.getElementById('find-buffers'); i.value = 'softmax scratch'; "
                "i.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert browser.run(names) == ["scratch"]
    operators = browser.run("document.getElementById('table-operators').innerText")
    assert "HOST" in operators
    assert "the NPU has no such operation" in operators


def test_theme_and_print(browser: Any, small: Artifact, tmp_path: Path) -> None:
    opened(browser, small, tmp_path)
    before = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") != before
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.run("getComputedStyle(document.querySelector('.find')).display") == "none"
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000
    browser.run("document.getElementById('theme').click()")


def test_ten_thousand_buffers_stay_usable(browser: Any, synthetic: Any, tmp_path: Path) -> None:
    artifact = synthetic(10_000)
    opened(browser, artifact, tmp_path)
    assert browser.run("npuMemplan.rectangles().length") == 10_000
    # the table holds only what is in sight
    assert browser.run("document.querySelectorAll('#table-buffers tbody tr').length") < 100
    browser.run("npuMemplan.pick('tensor_9000')")
    browser.frame()
    assert "tensor_9000" in browser.run("document.getElementById('table-buffers').innerText")
    assert browser.errors() == []


def test_operators_show_their_time(browser: Any, compiled: Any, tmp_path: Path) -> None:
    artifact, _ = compiled("kws_ref_model")
    page = opened(browser, artifact, tmp_path)
    text = page.run("document.getElementById('table-operators').innerText")
    assert artifact.timing is not None
    for layer in artifact.layers:
        assert f"~{layer.cycles:,}" in text
        assert layer.bound in text
    assert f"the NPU at {artifact.timing.clock_hz / 1e6:,.0f} MHz" in page.run("document.body.innerText")
