"""Every page at the size of a desk and of a phone, light and dark: nothing cut off, too wide, overlapping or faint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.report.colours import contrast_ratio
from npu_memplan.report.page.compare import compare_page
from npu_memplan.report.page.html import html_report
from npu_memplan.report.page.tables import Page, front_page
from npu_memplan.report.text.diff import compare_plans
from npu_memplan.tuning.pareto import ParetoFront, ParetoPoint
from tests.support.contrast import AA, faint_texts

PHONE, DESK = (390, 844), (1280, 900)

_SCRIPT = """(() => {
  const found = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide} wide, the screen ${innerWidth}`);
  const box = (e) => e.getBoundingClientRect(), style = (e) => getComputedStyle(e);
  const visible = (e) => box(e).width && style(e).visibility !== 'hidden' && style(e).display !== 'none';
  for (const e of document.querySelectorAll('body *')) {
    if (e instanceof SVGElement || e.closest('.sr, .skip, [hidden]') || !visible(e)) continue;
    const cut = style(e).overflowX === 'hidden' && e.scrollWidth > e.clientWidth + 1;
    if (cut && e.innerText && !e.closest('[title]')) found.push('cut off: ' + e.innerText.slice(0, 50));
  }
  const apart = (t, u) => {
    const a = box(t), b = box(u), x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    if (x > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
      found.push('over each other: ' + t.textContent + ' and ' + u.textContent);
  };
  for (const svg of document.querySelectorAll('svg')) {
    const o = box(svg), texts = [...svg.querySelectorAll('text')].filter(visible);
    for (const t of texts) {
      const b = box(t), high = b.top < o.top - 1 || b.bottom > o.bottom + 1;
      if (b.left < o.left - 1 || b.right > o.right + 1 || high) found.push('outside: ' + t.textContent);
    }
    if (svg.matches('.chart, .graph')) texts.forEach((t, i) => texts.slice(i + 1).forEach((u) => apart(t, u)));
    if (svg.matches('.chart')) for (const t of texts) if (box(t).height < 9) found.push('small: ' + t.textContent);
  }
  return found;
})()"""


def open_page(browser: Any, page: Path, text: str, size: tuple[int, int], dark: bool) -> None:
    """Write and open a page for a reader whose system prefers dark, or light."""
    page.write_text(text, encoding="utf-8")
    browser.size(*size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.call("Emulation.setEmulatedMedia", features=[scheme])
    browser.open(page)
    browser.run("localStorage.clear()")  # what an earlier test chose
    browser.open(page)
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.errors() == []
    assert browser.requests() == [page.resolve().as_uri()], "the page requested something"


def faults(browser: Any) -> list[str]:
    """What is wrong with the open page; empty when nothing is."""
    return [*browser.run(_SCRIPT), *faint_texts(browser)]


pytestmark = pytest.mark.browser


def point(size: int, cycles: int, backend: str = "native lowering") -> ParetoPoint:
    return ParetoPoint(
        size, size, cycles, cycles / 5e5, cycles / 5e5, cycles / 4e5, backend, cycles // 2, f"--pool sram={size}"
    )


NEAR = ParetoFront(
    "near",
    "sram",
    (point(14000, 60000), point(18000, 50000), point(24000, 44000)),
    (point(22192, 63000, "Vela, Performance"), point(16000, 92000, "Vela, Size")),
    point(22096, 47000),
)
FAR = ParetoFront("far", "sram", (point(1000, 900_000), point(40_000, 50_000)), ())
VIEWS = pytest.mark.parametrize("size, dark", [(DESK, False), (DESK, True), (PHONE, False), (PHONE, True)])


@pytest.fixture(autouse=True)
def desk(browser: Any) -> Iterator[None]:
    """The browser as other tests expect it."""
    yield
    browser.size(*DESK)
    browser.call("Emulation.setEmulatedMedia", features=[])


@VIEWS
def test_the_report(browser: Any, compiled: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    artifact, folder = compiled("pretrainedResnet_quant", accelerator="ethos-u55-256")
    open_page(browser, tmp_path / "report.html", html_report(artifact, folder), size, dark)
    for colour in ("kind", "agent", "layer"):
        browser.run(f"document.querySelector('[data-colour={colour}]').click()")
        browser.frame()
        assert faults(browser) == []
        assert min(contrast_ratio(ink, ground) for _, ink, ground in browser.run("npuMemplan.written()")) >= AA
    browser.run("npuMemplan.pick(npuMemplan.data.buffers.name[3])")
    assert faults(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_cycles_of_seven_digits_fit_their_card(browser: Any, compiled: Any, tmp_path: Path, width: int) -> None:
    artifact, folder = compiled("pretrainedResnet_quant", accelerator="ethos-u55-256")
    calls = [dataclasses.replace(c, estimated_cycles=7_206_421) for c in artifact.calls]
    timing = dataclasses.replace(artifact.timing, vela_stream_bounds={"reading flash": 7_178_636})
    large = dataclasses.replace(artifact, calls=tuple(calls), timing=timing)
    open_page(browser, tmp_path / "report.html", html_report(large, folder), (width, 900), False)
    assert "7,206,421 / 7,178,636" in browser.run("document.getElementById('vela').innerText")
    assert faults(browser) == []


@VIEWS
def test_the_comparison(browser: Any, small: Artifact, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    larger = dataclasses.replace(small, constants_bytes=5000, stream_bytes=100, name="larger")
    open_page(browser, tmp_path / "compare.html", compare_page(small, larger, compare_plans(small, larger)), size, dark)
    assert faults(browser) == []


@VIEWS
@pytest.mark.parametrize("front", [NEAR, FAR], ids=["near", "far"])
def test_the_front(browser: Any, tmp_path: Path, front: Any, size: tuple[int, int], dark: bool) -> None:
    open_page(browser, tmp_path / "front.html", front_page(front), size, dark)
    assert faults(browser) == []
    kinds = browser.run("[...document.querySelectorAll('circle')].map(c => c.getAttribute('class').split(' ')[1])")
    every = [*front.points, *([front.default] if front.default else []), *front.vela]
    assert kinds == ["point"] * len(front.points) + ["default"] * (front.default is not None) + ["vela"] * len(
        front.vela
    )
    texts = browser.run("[...document.querySelectorAll('#table0 tbody td:nth-child(2)')].map(t => t.textContent)")
    assert texts == [f"{p.bytes:,}" for p in every]
    titles = browser.run("[...document.querySelectorAll('.chart .title')].map(t => t.textContent)")
    assert titles[0] == "bytes of sram" + (", logarithmic" if front is FAR else "")


def test_faults_are_found(browser: Any, tmp_path: Path) -> None:
    body = (
        '<div style="width:2000px">wide</div><p style="background:#fff;color:#888">grey</p>'
        '<div style="overflow:hidden;width:20px;white-space:nowrap">cut off here</div>'
        '<svg class="chart" viewBox="0 0 200 90" style="overflow:visible;width:200px">'
        '<text x="190" y="40">outside it</text>'
        '<text x="10" y="20">first</text><text x="12" y="22">second</text></svg>'
    )
    open_page(browser, tmp_path / "page.html", Page("t", "t", "t", body, "").html_text(), DESK, False)
    found = faults(browser)
    for start in (
        "the page is",
        "cut off: cut off here",
        "outside: outside it",
        "over each other: first and second",
        "3.54 to 1: 'grey'",
    ):
        assert any(fault.startswith(start) for fault in found), (start, found)
