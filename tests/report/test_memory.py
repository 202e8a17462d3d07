"""Rectangles, live bytes and peaks: what every report takes its numbers from."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.artifact import Artifact
from npu_memplan.planners import plan
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from npu_memplan.report.facts.memory import kinds_of_bytes, memory_view, placed_at
from npu_memplan.report.text.compile_result import possible_gain


def live_by_painting(artifact_problem: Problem, placed: dict[str, tuple[str, int]], pool: str, point: int) -> int:
    """Oracle: paint every live byte and count."""
    painted: set[int] = set()
    for b in artifact_problem.buffers:
        where, low = placed[b.name]
        if where == pool and any(t.first <= point < t.last for t in b.lifetimes):
            painted |= set(range(low, low + b.size_bytes))
    return len(painted)


def test_live_bytes_count_each_address_once(small: Artifact) -> None:
    view = memory_view(small.problem, small.plan)
    placed = {p.buffer: (p.pool, p.offset_bytes) for p in small.plan.placements}
    for pool in ("sram", "dram"):
        for point in range(view.end):
            assert view.pool(pool).curve.bytes_at(point) == live_by_painting(small.problem, placed, pool, point)
    assert [view.pool("sram").curve.bytes_at(t) for t in range(7)] == [5120, 13312, 8192, 9216, 10240, 2560, 2570]


def test_peak_and_rectangles_of_the_small_plan(small: Artifact) -> None:
    view = memory_view(small.problem, small.plan)
    assert view.end == 7
    assert view.pool("sram").curve.peak == (1, 13312)
    rows = [(r.buffer, r.first, r.last, r.low, r.high) for r in view.pool("sram").rectangles]
    assert rows[:4] == [
        ("image", 0, 2, 0, 4096),
        ("weights", 0, 2, 4096, 5120),
        ("weights", 3, 4, 4096, 5120),
        ("conv", 1, 4, 5120, 13312),
    ]
    assert view.pool("sram").free_bytes == 3072
    assert view.pool("dram").free_bytes is None
    assert [b.name for b in placed_at(small.problem, small.plan, "sram", 3)] == ["conv", "relu", "weights"]


def test_kinds_of_bytes_are_kept_apart(small: Artifact) -> None:
    rows = {(k.label.strip(), k.memory): k.size_bytes for k in kinds_of_bytes(small)}
    assert rows["planned pool", "sram"] == 13312
    assert rows["graph inputs and outputs", "sram"] == 4096
    assert rows["weights copied to RAM", "sram"] == 1024
    assert rows["host operator scratch", "sram"] == 512
    assert rows["tensors", "sram"] == 10240  # relu and pool at point 4
    assert rows["weights and tables", "read-only"] == 3000
    assert rows["command streams", "read-only"] == 640
    assert rows["stack and NPU driver", "firmware"] is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 90)), min_size=1, max_size=10))
def test_curve_equals_painting_for_any_plan(rows: list[tuple[int, int, int]]) -> None:
    buffers = tuple(Buffer(f"b{i}", size, (Lifetime(t, t + n),)) for i, (t, n, size) in enumerate(rows))
    problem = Problem(buffers, (Pool("sram"),))
    answer = plan(problem, "first-fit")
    placed = {p.buffer: (p.pool, p.offset_bytes) for p in answer.placements}
    view = memory_view(problem, answer)
    for point in range(view.end + 1):
        assert view.pools[0].curve.bytes_at(point) == live_by_painting(problem, placed, "sram", point)


@pytest.mark.parametrize("name, bound", [("vww_96_int8", 55296), ("kws_ref_model", 16000)])
def test_peak_of_real_lifetimes_is_the_published_bound(
    shared_instances: Callable[[str], Path], name: str, bound: int
) -> None:
    with (shared_instances("tflite") / f"{name}.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    buffers = tuple(
        Buffer(row["id"], int(row["size"]), (Lifetime(int(row["lower"]), int(row["upper"])),)) for row in rows
    )
    problem = Problem(buffers, (Pool("sram"),))
    assert memory_view(problem, plan(problem)).pools[0].curve.peak[1] == bound


def test_no_buffer_at_all_gives_an_empty_curve() -> None:
    problem = Problem((), (Pool("sram"),))
    view = memory_view(problem, plan(problem))
    assert view.pools[0].curve.peak == (0, 0)
    assert view.pools[0].curve.bytes_at(3) == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 90)), min_size=1, max_size=9),
    st.dictionaries(st.integers(0, 8), st.integers(0, 90), max_size=5),
)
def test_gain_is_what_the_rest_of_the_program_leaves(rows: list[tuple[int, int, int]], cut: dict[int, int]) -> None:
    buffers = tuple(Buffer(f"b{i}", size, (Lifetime(t, t + n),)) for i, (t, n, size) in enumerate(rows))
    problem = Problem(buffers, (Pool("sram"),))
    view = memory_view(problem, plan(problem, "first-fit")).pools[0]
    smaller = {f"b{i}": min(by, rows[i][2]) for i, by in cut.items() if i < len(rows)}
    left = max(
        sum(n - smaller.get(f"b{i}", 0) for i, (t, d, n) in enumerate(rows) if t <= point < t + d)
        for point in range(15)
    )
    assert possible_gain(view, smaller) == (max(0, view.used_bytes - left) if smaller else 0)
