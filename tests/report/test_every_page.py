"""Every page at the size of a desk and of a phone, light and dark: nothing cut off, too wide, overlapping or faint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.report.page.compare import compare_page
from npu_memplan.report.page.html import html_report
from npu_memplan.report.page.tables import Page, front_page
from npu_memplan.report.text.diff import compare_plans
from npu_memplan.tuning.pareto import ParetoFront, ParetoPoint
from tests.support.looks import DESK, PHONE, faults, open_page

pytestmark = pytest.mark.browser


def point(size: int, cycles: int, backend: str = "native lowering") -> ParetoPoint:
    return ParetoPoint(size, size, cycles, cycles / 5e5, cycles / 4e5, backend, cycles // 2, f"--pool sram={size}")


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
    assert faults(browser) == []
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
        '<div style="width:2000px">wide</div>'
        '<div style="overflow:hidden;width:20px;white-space:nowrap">cut off here</div>'
        '<svg class="chart" viewBox="0 0 200 90" style="overflow:visible;width:200px">'
        '<text x="190" y="40">outside it</text>'
        '<text x="10" y="20">first</text><text x="12" y="22">second</text></svg>'
    )
    open_page(browser, tmp_path / "page.html", Page("t", "t", "t", body, "").html_text(), DESK, False)
    found = faults(browser)
    for start in ("the page is", "cut off: cut off here", "outside: outside it", "over each other: first and second"):
        assert any(fault.startswith(start) for fault in found), (start, found)
