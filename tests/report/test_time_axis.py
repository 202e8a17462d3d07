"""The report's time axis and timeline: cycles of the command streams, the same as in the trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.report.files import trace_json
from npu_memplan.report.page.html import html_report, report_data
from tests.support.saving import save

pytestmark = pytest.mark.browser


def opened(browser: Any, artifact: Artifact, streams: Path, folder: Path) -> Any:
    page = save(folder / "report.html", html_report(artifact, streams))
    browser.open(page)
    assert browser.errors() == []
    return browser


def test_the_slices_are_those_of_the_trace(compiled: Any) -> None:
    artifact, folder = compiled("kws_ref_model")
    time = report_data(artifact, folder)["time"]
    columns = time["slices"]
    events = json.loads(trace_json(artifact, folder))["traceEvents"]
    process = next(e["pid"] for e in events if e["ph"] == "M" and str(e["args"]["name"]).startswith("NPU, estimated"))
    threads = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["pid"] == process}
    expected = [
        (threads[e["tid"]], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == process
    ]  # fmt: skip
    lanes = [time["lanes"][lane] for lane in columns["lane"]]
    assert list(zip(lanes, columns["start"], columns["cycles"], strict=True)) == expected
    assert time["ends"][-1] == artifact.estimated_cycles
    assert {"kernels", "DMA"} <= set(lanes)


def test_without_streams_there_is_no_timeline(small: Artifact, browser: Any, tmp_path: Path) -> None:
    page = save(tmp_path / "report.html", html_report(small))
    browser.open(page)
    assert browser.run("npuMemplan.timeline") is None
    assert browser.run("document.getElementById('axis').hidden") is True
    assert browser.run("npuMemplan.state.view") == [0, 7]


def test_x_is_cycles_or_order(compiled: Any, browser: Any, tmp_path: Path) -> None:
    artifact, folder = compiled("kws_ref_model")
    page = opened(browser, artifact, folder, tmp_path)
    assert page.run("npuMemplan.state.view") == [0, artifact.estimated_cycles]
    ends = [0, *report_data(artifact, folder)["time"]["ends"]]
    axis = page.run("npuMemplan.axes()")[0]
    for r in page.run("npuMemplan.rectangles()"):
        left = axis["left"] + axis["width"] * ends[r["first"]] / ends[-1]
        width = axis["width"] * (ends[r["last"]] - ends[r["first"]]) / ends[-1]
        assert (r["x"], r["width"]) == (pytest.approx(left), pytest.approx(width))
    for t in (0, 1.5, 7, len(ends) - 1.25):
        whole = int(t)
        position = ends[whole] + (t - whole) * (ends[whole + 1] - ends[whole])
        if ends[whole + 1] > ends[whole]:
            assert page.run(f"npuMemplan.pointAt({position})") == pytest.approx(t)
    page.run("document.querySelector('[data-axis=points]').click()")
    page.frame()
    assert page.run("npuMemplan.state.view") == [0, len(artifact.problem.points)]
    assert page.run("npuMemplan.timeline.node.hidden") is True


def test_a_click_on_a_kernel_picks_what_it_makes(compiled: Any, browser: Any, tmp_path: Path) -> None:
    artifact, folder = compiled("kws_ref_model")
    page = opened(browser, artifact, folder, tmp_path)
    produced = sorted({artifact.problem.points.index(b.producer) for b in artifact.problem.buffers if b.producer})
    start, cycles, point = page.run(
        f"npuMemplan.timeline.slices.filter((s) => s.lane === 1 && {produced}.includes(s.point))"
        ".map((s) => [s.start, s.stop - s.start, s.point]).sort((a, b) => b[1] - a[1])[0]"
    )
    x, y = page.run(
        f"(b => [b.x + npuMemplan.timeline.px({start + cycles / 2}), b.y + 8])"
        "(npuMemplan.timeline.canvas.getBoundingClientRect())"
    )
    page.mouse("mouseMoved", x, y)
    page.frame()
    assert f"{cycles:,} cycles from {start:,}; bound by" in page.run("document.getElementById('tip').innerText")
    page.click(x, y)
    made = {b.name: b.producer for b in artifact.problem.buffers}
    assert made[page.run("npuMemplan.state.picked.name")] == artifact.problem.points[point]


def test_ours_stands_beside_velas(compiled: Any, browser: Any, tmp_path: Path) -> None:
    artifact, folder = compiled("pretrainedResnet_quant", accelerator="ethos-u55-256")
    assert artifact.vela_arena_bytes
    card = opened(browser, artifact, folder, tmp_path).run("document.getElementById('vela').innerText")
    theirs = sum(artifact.timing.vela_stream_bounds.values())
    assert f"{artifact.estimated_cycles:,} / {theirs:,}" in card
    assert f" / {artifact.vela_arena_bytes['sram'] / 1024:,.2f}" in card
