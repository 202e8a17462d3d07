"""Every page at the size of a desk and of a phone, light and dark: nothing cut off, too wide, overlapping or faint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.report.page.build import Page
from npu_memplan.report.page.compare import compare_page
from npu_memplan.report.page.front import front_page
from npu_memplan.report.page.html import html_report, report_data
from npu_memplan.report.text.diff import diff
from tests.report.test_front import FAR, NEAR
from tests.support.looks import DESK, PHONE, faults, open_page

pytestmark = pytest.mark.browser
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
    for memory in browser.run("[...document.querySelectorAll('#memories button')].map((b) => b.textContent)"):
        browser.run(
            f"[...document.querySelectorAll('#memories button')].find((b) => b.textContent === '{memory}').click()"
        )
        browser.frame()
        assert faults(browser) == [], memory


@pytest.mark.parametrize("width", [390, 1280])
def test_cycles_of_seven_digits_fit_their_card(browser: Any, compiled: Any, tmp_path: Path, width: int) -> None:
    artifact, folder = compiled("pretrainedResnet_quant", accelerator="ethos-u55-256")
    calls = [dataclasses.replace(c, estimated_cycles=7_206_421) for c in artifact.calls]
    timing = dataclasses.replace(artifact.timing, vela_stream_bounds={"reading flash": 7_178_636})
    large = dataclasses.replace(artifact, calls=tuple(calls), timing=timing)
    open_page(browser, tmp_path / "report.html", html_report(large, folder), (width, 900), False)
    assert "7,206,421 / 7,178,636" in browser.run("document.getElementById('vela').innerText")
    assert faults(browser) == []


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_a_long_name_and_many_layers(browser: Any, small: Artifact, tmp_path: Path, size: tuple[int, int]) -> None:
    """Names stand where there is room for them; the marks are all there."""
    named = dataclasses.replace(small, name="tf2_mobilenet_v2_1_0_224_ptq_and_more_of_it")
    open_page(browser, tmp_path / "report.html", html_report(named), size, False)
    browser.run(
        "document.getElementById('peaks').append(scatterPlot({ x: 'a', y: 'b', omitNames: true, marks: Array.from("
        "{ length: 90 }, (_, i) => ({ x: 100 + i % 9, y: 50 + i % 7, class: 'point', name: `${i}`, title: 't' })) }))"
    )
    assert browser.run("document.querySelectorAll('#peaks circle').length") == 90
    assert 0 < browser.run("document.querySelectorAll('#peaks .name').length") < 90
    assert faults(browser) == []


@VIEWS
def test_the_comparison(browser: Any, small: Artifact, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    larger = dataclasses.replace(small, constants_bytes=5000, stream_bytes=100, name="larger")
    open_page(browser, tmp_path / "compare.html", compare_page(small, larger, diff(small, larger)), size, dark)
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert faults(browser) == []


@VIEWS
@pytest.mark.parametrize("front", [NEAR, FAR], ids=["near", "far"])
def test_the_front(browser: Any, tmp_path: Path, front: Any, size: tuple[int, int], dark: bool) -> None:
    open_page(browser, tmp_path / "front.html", front_page(front), size, dark)
    assert faults(browser) == []


def test_faults_are_found(browser: Any, tmp_path: Path) -> None:
    body = (
        '<div style="width:2000px">wide</div>'
        '<div style="overflow:hidden;width:20px;white-space:nowrap">cut off here</div>'
        '<svg class="chart" viewBox="0 0 200 90" style="overflow:visible;width:200px">'
        '<text x="190" y="40">outside it</text>'
        '<text x="10" y="20">first</text><text x="12" y="22">second</text></svg>'
    )
    open_page(browser, tmp_path / "page.html", Page("t", "t", "t", body, "").html(), DESK, False)
    found = faults(browser)
    for start in ("the page is", "cut off: cut off here", "outside: outside it", "over each other: first and second"):
        assert any(fault.startswith(start) for fault in found), (start, found)


def test_a_layer_and_a_tensor_of_the_graph_pick_their_buffer(browser: Any, compiled: Any, tmp_path: Path) -> None:
    artifact, folder = compiled("pretrainedResnet_quant", accelerator="ethos-u55-256")
    open_page(browser, tmp_path / "report.html", html_report(artifact, folder), DESK, False)
    operator_of = report_data(artifact, folder)["operator_of"]
    shown = browser.run("[...document.querySelectorAll('.graph .layer .kind')].map((t) => t.textContent)")
    kinds = [artifact.operators[o].kind for o in sorted(set(operator_of) - {-1})]
    assert sorted(kinds) == sorted(text for text in shown if not text.startswith("graph "))
    points = {p: i for i, p in enumerate(artifact.problem.points)}
    made = {b.name: points.get(b.producer, -1) for b in artifact.problem.buffers}
    add = "[...document.querySelectorAll('.graph .layer')].find((l) => l.querySelector('.kind').textContent === 'ADD')"
    browser.run(f"{add}.dispatchEvent(new Event('click'))")
    name = browser.run("npuMemplan.state.picked.name")
    layer = artifact.operators[operator_of[made[name]]]
    assert layer.kind == "ADD"
    cycles = next(row.cycles for row in artifact.layers if row.name == layer.name)
    for where in ("graph-detail", "detail"):
        told = browser.run(f"document.getElementById('{where}').innerText")
        assert f"~{cycles:,} of the layer" in told
        assert name[:10] in told
    browser.run("document.querySelector('.graph .tensor').focus()")
    browser.key("Enter")
    assert browser.run("npuMemplan.state.picked.name") == artifact.inputs[0].name
    assert browser.run("document.querySelectorAll('.graph .edge.on').length") == 1


def test_no_layer_is_above_its_roof(browser: Any, compiled: Any, tmp_path: Path) -> None:
    artifact, folder = compiled("pretrainedResnet_quant", accelerator="ethos-u55-256")
    open_page(browser, tmp_path / "report.html", html_report(artifact, folder), DESK, False)
    roofs = report_data(artifact, folder)["roofs"]
    assert roofs["peak"] == 256
    layers = browser.run("LAYERS.map((l) => [l.macs, l.busy_cycles, l.bytes])")
    assert sum(macs for macs, _, _ in layers) == artifact.npu_macs
    for macs, cycles, moved in layers:
        assert macs / cycles <= roofs["peak"]
        assert all(size / cycles <= 1.01 * roofs["rates"][memory] for memory, size in moved.items())
