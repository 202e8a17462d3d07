"""Two programs side by side: by text, and on the page that a browser shows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from npu_memplan.artifact import Artifact
from npu_memplan.cli import cli
from npu_memplan.report.facts.work import NpuWork, busy, by_kind, npu_work, work_changes
from npu_memplan.report.page.compare import compare_page
from npu_memplan.report.page.svg import svg_map
from npu_memplan.report.text.diff import diff

Compiled = Callable[..., tuple[Artifact, Path]]
MODEL = "kws_ref_model"


@pytest.fixture
def both(compiled: Compiled) -> tuple[tuple[Artifact, Path], tuple[Artifact, Path]]:
    """One model by both producers of NPU operations."""
    return compiled(MODEL), compiled(MODEL, npu_compiler="tvm")


def test_work_adds_up_to_the_artifact(both: Any) -> None:
    for artifact, directory in both:
        work = npu_work(artifact, directory)
        assert sum(w.count for w in work) == artifact.npu_operations
        assert sum(w.macs for w in work) == artifact.npu_macs
        assert sum(w.cycles for w in work) >= artifact.estimated_cycles, "kernels and transfers overlap"
        assert 0 < (busy(artifact) or 0) < 1
    assert npu_work(both[0][0], None) == ()


def test_both_producers_do_the_same_layers(both: Any) -> None:
    """A layer that one of them splits by depth, or reads two columns as one in, is still the same layer."""
    counts = []
    for (artifact, directory), taps in zip(both, (10 * 4, 10 * 3 * 2), strict=True):
        found = {(w.kind, w.output): w for w in npu_work(artifact, directory)}
        counts.append(found["convolution", "25x5x64"].count)
        assert found["depthwise convolution", "25x5x64"].count == 4
        assert found["convolution", "25x5x64"].macs == 125 * 64 * (taps + 4 * 64)
    assert counts == [6, 5], "Vela makes the first of five in two parts"


def test_changes_stand_side_by_side() -> None:
    before = (NpuWork("convolution", "4x4x8", 2, 200, 9), NpuWork("DMA", "", 1, 50))
    after = (NpuWork("convolution", "4x4x8", 1, 120, 9), NpuWork("convolution", "2x2x8", 1, 30, 3))
    changes = work_changes(before, after)
    assert [(c.kind, c.output, c.by) for c in changes] == [
        ("convolution", "4x4x8", -80),
        ("DMA", "", -50),
        ("convolution", "2x2x8", 30),
    ]
    kinds = by_kind(changes)
    assert [(c.kind, c.before.cycles, c.after.cycles, c.after.count) for c in kinds] == [
        ("convolution", 200, 150, 2),
        ("DMA", 50, 0, 0),
    ]


def test_the_text_has_both_figures(both: Any, golden: Callable[[str, str], None]) -> None:
    (vela, first), (tvm, second) = both
    changes = diff(vela, tvm, (first, second))
    text = changes.to_text().replace(str(first), "build/vela").replace(str(second), "build/tvm")
    golden("report/diff_producers.txt", text)
    assert diff(vela, vela, (first, first)).same


def test_a_kept_plan_without_its_streams_is_still_the_same(both: Any, tmp_path: Path) -> None:
    vela, first = both[0]
    vela.save(tmp_path)
    assert diff(Artifact.load(tmp_path), vela, (tmp_path, first)).same


def test_models_with_different_names_are_named(small: Artifact, tmp_path: Path) -> None:
    other = dataclasses.replace(small, name="larger")
    assert diff(small, other, (Path("a"), Path("b"))).names == ("a (small)", "b (larger)")
    assert diff(small, small, (Path("a"), Path("b"))).names == ("a", "b")


def test_a_program_without_npu_has_no_estimate(small: Artifact) -> None:
    host = dataclasses.replace(small.target, accelerator="none")
    small = dataclasses.replace(small, calls=small.calls[1:], target=host)
    assert small.estimated_cycles is None
    assert busy(small) is None
    page = compare_page(small, small, diff(small, small))
    assert "cycles are estimates" in page
    assert 'id="work"' not in page
    assert "small (1)" in page
    assert "small (2)" in page


def test_names_cannot_leave_their_element(small: Artifact) -> None:
    evil = dataclasses.replace(small, name="<script>alert(1)</script>&")
    assert "<script>alert" not in compare_page(evil, small, diff(evil, small))


def test_page_of_both_producers(both: Any, browser: Any, tmp_path: Path) -> None:
    (vela, first), (tvm, second) = both
    ran = CliRunner().invoke(cli, ["report", str(second), "--against", str(first), "-o", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["against"]["sizes"][0] == {
        "what": "pool sram", "before": vela.pool_bytes("sram"), "after": tvm.pool_bytes("sram"), "unit": "bytes"
    }  # fmt: skip
    browser.open(Path(document["files"]["compare"]))
    assert browser.errors() == []
    assert browser.requests() == [(tmp_path / "compare.html").resolve().as_uri()]
    shown = browser.run("""[...document.querySelectorAll('svg.plan')].map(svg => {
      const pool = svg.querySelector('g[data-pool]'), d = pool.dataset, points = +svg.dataset.points;
      return [...pool.querySelectorAll('rect.b')].map(r => {
        const n = k => +r.getAttribute(k), name = r.querySelector('title').textContent.split(':')[0];
        const low = (d.floor - n('y') - n('height')) * d.bytes / 320, first = (n('x') - 84) * points / 960;
        return [name, Math.round(first), Math.round(first + n('width') * points / 960), Math.round(low)];
      }).sort();
    })""")
    for artifact, rectangles in zip((vela, tvm), shown, strict=True):
        offsets = {p.buffer: p.offset_bytes for p in artifact.plan.placements}
        expected = [[b.name, t.first, t.last, offsets[b.name]] for b in artifact.problem.buffers for t in b.lifetimes]
        assert sorted(rectangles) == sorted(expected)
    scales = browser.run("[...document.querySelectorAll('svg.plan g[data-pool]')].map(g => +g.dataset.bytes)")
    assert scales == [20752, 20752], "one scale for both"
    text = browser.run("document.body.innerText")
    for artifact in (vela, tvm):
        for figure in (
            artifact.estimated_cycles,
            artifact.npu_macs,
            artifact.pool_bytes("sram"),
            artifact.stream_bytes,
        ):
            assert f"{figure:,}" in text
    assert "at its bound" in text
    widths = browser.run(
        "[...document.querySelector('#work tbody tr').querySelectorAll('.meter i')].map(i => parseFloat(i.style.width))"
    )
    assert max(widths) == 100
    assert all(0 < width <= 100 for width in widths)
    for width in (1280, 420):
        browser.size(width, 900)
        browser.frame()
        assert browser.run("document.documentElement.scrollWidth") <= width
    browser.size(1280, 900)
    before = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") != before


def test_what_is_not_there_is_reported_before_anything_is_written(both: Any, tmp_path: Path) -> None:
    (_, first), _ = both
    out = tmp_path / "out"
    ran = CliRunner().invoke(cli, ["report", str(first), "--against", str(tmp_path / "none"), "-o", str(out)])
    assert ran.exit_code == 1
    assert "none is no compiled model" in str(ran.exception)
    assert not out.exists()


def test_cycles_of_other_memories_are_not_called_better(compiled: Compiled) -> None:
    """Their milliseconds are there to compare."""
    (plain, _), (board, _) = compiled(MODEL), compiled(MODEL, accelerator="ethos-u55-256", board="alif-e7-hp")
    page = compare_page(plain, board, diff(plain, board))
    (card,) = (part for part in page.split('<div class="card">') if part.startswith('<div class="label">estimated NPU'))
    assert 'class="badge "' in card
    for artifact in (plain, board):
        assert artifact.timing is not None
        assert artifact.estimated_cycles is not None
        milliseconds = artifact.timing.milliseconds(artifact.estimated_cycles)
        assert f"{milliseconds:.3f} ms at {artifact.timing.clock_hz / 1e6:g} MHz, " in card
    again = dataclasses.replace(plain, calls=tuple(dataclasses.replace(c, estimated_cycles=9) for c in plain.calls))
    assert 'class="badge good"' in compare_page(plain, again, diff(plain, again))


def test_a_capacity_far_above_the_bytes_leaves_the_curve_high(small: Artifact) -> None:
    """A board's memory of megabytes made the curve of live bytes a flat line."""

    def curve(size: int) -> str:
        pool, *others = small.problem.pools
        problem = dataclasses.replace(small.problem, pools=(dataclasses.replace(pool, size_bytes=size), *others))
        page = svg_map(problem, small.plan)
        return page[page.index('<polygon class="c"') :].split("/>")[0]

    tops = [
        min(float(p.split(",")[1]) for p in curve(n).split('points="')[1].rstrip('"').split()) for n in (16384, 4 << 20)
    ]
    floor = max(float(p.split(",")[1]) for p in curve(16384).split('points="')[1].rstrip('"').split())
    assert floor - tops[1] > 0.5 * (floor - tops[0]) > 20
