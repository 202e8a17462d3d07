"""Two programs side by side: by text, and on the page that a browser shows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.report.facts.npu_work import multiplier_use, npu_work
from npu_memplan.report.page.compare import compare_page
from npu_memplan.report.text.diff import compare_plans
from tests.support.entry import invoke

Compiled = Callable[..., tuple[Artifact, Path]]
MODEL = "kws_ref_model"


@pytest.fixture
def both(compiled: Compiled) -> tuple[tuple[Artifact, Path], tuple[Artifact, Path]]:
    """One model by both producers of NPU operations."""
    return compiled(MODEL, npu_compiler="vela"), compiled(MODEL, npu_compiler="tvm")


def test_work_adds_up_to_the_artifact(both: Any) -> None:
    for artifact, directory in both:
        work = npu_work(artifact, directory)
        assert sum(w.count for w in work) == artifact.npu_operations
        assert sum(w.macs for w in work) == artifact.npu_macs
        assert sum(w.cycles for w in work) >= artifact.estimated_cycles, "kernels and transfers overlap"
        assert 0 < (multiplier_use(artifact) or 0) < 1
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


def test_the_text_has_both_figures(both: Any, golden: Callable[[str, str], None]) -> None:
    (vela, first), (tvm, second) = both
    changes = compare_plans(vela, tvm, (first, second))
    text = changes.to_text().replace(str(first), "build/vela").replace(str(second), "build/tvm")
    golden("report/diff_producers.txt", text)
    assert compare_plans(vela, vela, (first, first)).is_same


def test_a_kept_plan_without_its_streams_is_still_the_same(both: Any, tmp_path: Path) -> None:
    vela, first = both[0]
    vela.save(tmp_path)
    assert compare_plans(Artifact.load(tmp_path), vela, (tmp_path, first)).is_same


def test_a_program_without_npu_has_no_estimate(small: Artifact) -> None:
    host = dataclasses.replace(small.target, accelerator="none")
    small = dataclasses.replace(small, calls=small.calls[1:], target=host)
    assert small.estimated_cycles is None
    assert multiplier_use(small) is None
    page = compare_page(small, small, compare_plans(small, small))
    assert "cycles are estimates" in page
    assert 'id="work"' not in page
    assert "small (1)" in page
    assert "small (2)" in page


def test_names_cannot_leave_their_element(small: Artifact) -> None:
    evil = dataclasses.replace(small, name="<script>alert(1)</script>&")
    assert "<script>alert" not in compare_page(evil, small, compare_plans(evil, small))


def test_page_of_both_producers(both: Any, tmp_path: Path) -> None:
    (vela, first), (tvm, second) = both
    ran = invoke("report", second, "--against", first, "-o", tmp_path, "--json")
    document = json.loads(ran.stdout)
    assert document["against"]["sizes"][0] == {
        "what": "pool sram", "before": vela.pool_bytes("sram"), "after": tvm.pool_bytes("sram"), "unit": "bytes"
    }  # fmt: skip
    page = Path(document["files"]["compare"]).read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    numbers = {row[0]: row[2:4] for row in data["tables"][0]["rows"]}
    assert numbers["estimated NPU cycles"] == [vela.estimated_cycles, tvm.estimated_cycles]
    assert numbers["command streams"] == [vela.stream_bytes, tvm.stream_bytes]
    work = next(table for table in data["tables"] if "operation" in table["columns"] and not table["rows"][0][1])
    assert [sum(row[side] or 0 for row in work["rows"]) for side in (3, 5)] == numbers["estimated NPU cycles"]


def test_what_is_not_there_is_reported_before_anything_is_written(both: Any, tmp_path: Path) -> None:
    (_, first), _ = both
    out = tmp_path / "out"
    ran = invoke("report", first, "--against", tmp_path / "none", "-o", out, code=1)
    assert "none is no compiled model" in str(ran.exception)
    assert not out.exists()
