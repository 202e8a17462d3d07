"""The data itself: queries, and every contradiction that `validate` names."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_memplan.problem import (
    Agent,
    AliasGroup,
    AllowedOverlap,
    Buffer,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    Problem,
    ProblemError,
    validate,
)
from npu_memplan.problem.spans import Spans, count_covered, merge_spans, subtract_spans, unite_spans

A = Buffer("a", 10, (Lifetime(0, 2),))
B = Buffer("b", 20, (Lifetime(1, 3), Lifetime(5, 6)))
SRAM = Pool("sram", 100)
GOOD = Problem((A, B), (SRAM, Pool("dram", agents=frozenset((Agent.NPU,)))), name="good")
ENDING = replace(
    GOOD,
    buffers=(replace(A, kind=BufferKind.OUTPUT, lifetimes=(Lifetime(0, 4),)), replace(B, lifetimes=(Lifetime(3, 4),))),
    overlaps=(AllowedOverlap("a", "b", None, 0),),
)


def test_lifetimes_are_half_open() -> None:
    assert Lifetime(0, 2).meets(Lifetime(1, 3))
    assert not Lifetime(0, 2).meets(Lifetime(2, 3))
    assert A.meets(B)
    assert not Buffer("c", 1, (Lifetime(3, 5),)).meets(B)


def test_another_size_changes_nothing_else() -> None:
    full = Buffer(
        "a", 1, B.lifetimes, 2, ("sram",), frozenset((Agent.NPU,)), BufferKind.STATE, ("sram", 4), 5, 6, "p", ("c",)
    )
    assert all(getattr(full, field.name) != field.default for field in fields(Buffer))
    assert full.with_size(9) == replace(full, size_bytes=9)


def test_lookup_names_what_there_is() -> None:
    assert GOOD.buffer("b") is B
    assert GOOD.pool("sram") is SRAM
    with pytest.raises(ProblemError, match="no buffer is called 'x' in problem 'good'"):
        GOOD.buffer("x")
    with pytest.raises(ProblemError, match="no pool is called 'x'; the problem has: sram, dram"):
        GOOD.pool("x")
    plan = Plan((Placement("a", "sram", 0),), (), PlanStatus.FEASIBLE, "test")
    assert plan.placement("a").offset_bytes == 0
    with pytest.raises(ProblemError, match="no placement for buffer 'b'"):
        plan.placement("b")


def test_candidates_are_reachable_and_writable_in_order() -> None:
    flash = Pool("flash", read_only=True)
    problem = Problem((A,), (SRAM, flash, Pool("dtcm", agents=frozenset((Agent.HOST,)))))
    both = frozenset((Agent.HOST, Agent.NPU))
    assert [p.name for p in problem.candidates(A)] == ["sram", "dtcm"]
    assert [p.name for p in problem.candidates(replace(A, agents=both))] == ["sram"]
    assert [p.name for p in problem.candidates(replace(A, pools=("dtcm", "sram")))] == ["dtcm", "sram"]
    weights = replace(A, pools=("flash",), kind=BufferKind.CONSTANT)
    assert [p.name for p in problem.candidates(weights)] == ["flash"]


def test_only_constants_may_name_a_read_only_pool() -> None:
    flash = Pool("flash", read_only=True)
    validate(Problem((replace(A, pools=("flash",), kind=BufferKind.CONSTANT),), (flash,)))
    message = "'a' of kind tensor names pool 'flash', which is read-only: only constants can lie there"
    with pytest.raises(ProblemError, match=message):
        validate(Problem((replace(A, pools=("flash",)),), (flash,)))


@pytest.mark.parametrize(
    ("lowest", "highest", "distance", "allowed"),
    [(0, 0, 0, True), (0, 0, 1, False), (None, -5, -5, True), (None, -5, -4, False), (3, None, 2, False)],
)
def test_overlap_permits(lowest: int | None, highest: int | None, distance: int, allowed: bool) -> None:
    assert AllowedOverlap("a", "b", lowest, highest).permits(distance) is allowed


def with_buffer(**changes: object) -> Problem:
    return replace(GOOD, buffers=(replace(A, **changes), B))  # type: ignore[arg-type]


def with_pool(**changes: object) -> Problem:
    return replace(GOOD, pools=(replace(SRAM, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (replace(GOOD, buffers=(A, A)), "two buffers are called 'a'"),
        (replace(GOOD, pools=(SRAM, SRAM)), "two pools are called 'sram'"),
        (with_buffer(name="a\x1b[31m"), r"buffer 'a\\x1b\[31m' has a name with characters that a terminal obeys"),
        (with_pool(name="sram\n"), r"pool 'sram\\n' has a name with characters that a terminal obeys"),
        (with_pool(size_bytes=-1), "pool 'sram' has size -1"),
        (with_pool(size_bytes=float("inf")), "pool 'sram' has size inf"),
        (with_pool(alignment=0), "pool 'sram' has alignment 0"),
        (with_pool(read_bandwidth_bytes_per_cycle=0.0), "read bandwidth 0.0"),
        (with_pool(write_bandwidth_bytes_per_cycle=float("nan")), "write bandwidth nan"),
        (with_pool(read_latency_cycles=-1), "read latency -1"),
        (with_pool(write_latency_cycles=1.5), "write latency 1.5"),
        (with_buffer(size_bytes=-1), "buffer 'a' has size -1"),
        (with_buffer(size_bytes=float("nan")), "buffer 'a' has size nan"),
        (with_buffer(size_bytes=True), "buffer 'a' has size True"),
        (with_buffer(size_bytes=1 << 60), "buffer 'a' has size"),
        (with_buffer(read_bytes=-2), "bytes read -2"),
        (with_buffer(write_bytes=-2), "bytes written -2"),
        (with_buffer(alignment=0), "alignment 0"),
        (with_buffer(lifetimes=(Lifetime(2, 2),)), r"lives in \[2, 2\), which is empty"),
        (with_buffer(lifetimes=(Lifetime(0, float("inf")),)), "points are whole numbers"),
        (with_buffer(lifetimes=(Lifetime(3, 4), Lifetime(0, 1))), "before its earlier lifetime ends at 4"),
        (with_buffer(lifetimes=(Lifetime(0, 4), Lifetime(3, 5))), "must be disjoint and ascending"),
        (with_buffer(pools=("tcm",)), "names pool 'tcm'; the problem has: sram, dram"),
        (with_buffer(pools=("dram",)), "no pool to live in: none of dram is writable and reached by host"),
        (replace(GOOD, pools=()), "none of no pools at all is writable"),
        (with_buffer(agents=frozenset(), pools=("flash",)), "names pool 'flash'"),
        (with_buffer(fixed=("tcm", 0)), "fixed in pool 'tcm'; the problem has: sram, dram"),
        (with_buffer(fixed=("sram", 8)), "fixed at offset 8; give whole bytes that are a multiple of its alignment 16"),
        (with_buffer(fixed=("sram", -16)), "fixed at offset -16"),
        (with_buffer(fixed=("sram", 96)), r"bytes \[96, 106\) of pool 'sram', which has 100; enlarge the pool by 6"),
        (with_buffer(fixed=("dram", 0)), "not all of its agents can reach"),
        (replace(GOOD, conflicts=(("a", "x"),)), "a conflict names buffer 'x'"),
        (replace(GOOD, conflicts=(("a", "a"),)), "conflict with itself"),
        (replace(GOOD, aliases=(AliasGroup("g", (("x", 0),)),)), "alias group 'g' names buffer 'x'"),
        (replace(GOOD, aliases=(AliasGroup("g", (("a", 0), ("a", 0))),)), "in alias groups 'g' and 'g'"),
        (replace(GOOD, aliases=(AliasGroup("g", (("a", 0.5),)),)), "inner offset 0.5"),
        (replace(GOOD, overlaps=(AllowedOverlap("x", "b", 0, 0),)), "names buffer 'x'"),
        (replace(GOOD, overlaps=(AllowedOverlap("a", "a", 0, 0),)), "relates buffer 'a' to itself"),
        (replace(GOOD, overlaps=(AllowedOverlap("a", "b", 0.5, None),)), "has limit 0.5"),
        (replace(GOOD, overlaps=(AllowedOverlap("a", "b", 2, 1, "rows"),)), r"\(rows\).* 2..1, which is none"),
        (ENDING, "lets 'b' take bytes of the output 'a' at the last point, but an output outlasts it"),
    ],
)
def test_contradictions_are_named(problem: Problem, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        validate(problem)


def test_a_pool_that_nobody_reaches_names_nobody() -> None:
    lonely = replace(A, agents=frozenset())
    with pytest.raises(ProblemError, match="reached by none"):
        validate(Problem((lonely,), (Pool("flash", read_only=True),)))


def test_bytes_of_an_output_may_be_taken_before_the_last_point() -> None:
    later = replace(B, lifetimes=(Lifetime(3, 5),))
    validate(replace(ENDING, buffers=(ENDING.buffers[0], later)))


def test_a_size_that_is_a_text_is_refused_at_once() -> None:
    with pytest.raises(ProblemError, match=re.escape("pool 'sram' has size '1MiB'; give whole bytes")):
        Pool("sram", "1MiB")  # type: ignore[arg-type]


# -- Sets of integers as spans, against Python's sets


PIECES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def integers(spans: Spans) -> set[int]:
    """The set; spans that touch, are empty or not in order are none."""
    assert all(start < stop for start, stop in spans)
    assert all(a[1] < b[0] for a, b in pairwise(spans))
    return {i for start, stop in spans for i in range(start, stop)}


@given(PIECES, PIECES)
def test_spans_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = merge_spans(one), merge_spans(other)
    assert integers(a) == {i for start, stop in one for i in range(start, stop)}
    assert integers(unite_spans(a, b)) == integers(a) | integers(b)
    assert integers(subtract_spans(a, b)) == integers(a) - integers(b)
    assert count_covered(a) == len(integers(a))
