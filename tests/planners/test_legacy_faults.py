"""The five faults of the legacy planners, each as a regression test; many buffers, as those had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.artifact.files import read_problem
from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import Buffer, Lifetime, PlanStatus, Pool, Problem
from npu_memplan.verify import verify
from tests.support.planner_generate import inference_like, training_like
from tests.support.random_problems import BUILT_IN


def test_legacy_fault_1_a_bounded_pool_never_holds_two_live_buffers_on_top_of_each_other() -> None:
    """A pool that one conflict had ruled out came back with a later conflict."""
    lives = (Lifetime(0, 1),)
    pools = (Pool("fast", 100), Pool("slow"))
    problem = Problem(tuple(Buffer(f"b{k}", 60 - k, lives, 1) for k in range(4)), pools)
    for planner in BUILT_IN:
        answer = plan(problem, planner)
        assert verify(problem, answer) == ()
        assert [p.pool for p in answer.placements].count("fast") == 1


def test_legacy_fault_2_offsets_have_the_alignment_of_the_buffer_being_placed() -> None:
    lives = (Lifetime(0, 1),)
    problem = Problem((Buffer("loose", 101, lives, 1), Buffer("strict", 64, lives, 64)), (Pool("memory"),))
    for planner in BUILT_IN:
        assert plan(problem, planner).placement("strict").offset_bytes % 64 == 0
    assert plan(problem).usage[0].used_bytes == 165


def test_legacy_fault_3_a_low_hole_is_used_although_a_conflict_ends_near_the_top() -> None:
    """`big` ends at the top of the pool; `small` fits below it, no spill is needed."""
    problem = Problem(
        (
            Buffer("big", 90, (Lifetime(1, 2),), 1, fixed=("fast", 10)),
            Buffer("small", 10, (Lifetime(0, 2),), 1),
            Buffer("middle", 80, (Lifetime(2, 3),), 1),
        ),
        (Pool("fast", 100), Pool("slow")),
    )
    for planner in ("auto", "first-fit", "hill-climb", "greedy-by-size"):
        assert {p.pool for p in plan(problem, planner).placements} == {"fast"}


def test_legacy_fault_5_fanout_needs_210_with_symmetric_conflicts(
    small_instances: list[tuple[str, Problem, dict[str, int]]],
) -> None:
    problem = next(p for name, p, _ in small_instances if name == "fanout")
    answer = plan(problem)
    assert (answer.usage[0].used_bytes, answer.status) == (210, PlanStatus.OPTIMAL)
    with pytest.raises(PlanningError) as caught:
        plan(replace(problem, pools=(Pool("memory", 209),)))
    assert caught.value.proven


@pytest.mark.parametrize("make", [inference_like, training_like])
@pytest.mark.parametrize("count", [600, 3000])
def test_thousands_within_one_per_cent_of_the_bound(make: Callable[[int], Problem], count: int) -> None:
    answer = plan(make(count), node_budget=50_000)
    usage = answer.usage[0]
    assert usage.used_bytes <= 1.01 * usage.lower_bound_bytes
    assert answer == plan(make(count), node_budget=50_000)


def test_many_with_gaps_pools_and_alignments() -> None:
    base = inference_like(800)
    buffers = tuple(
        replace(
            b,
            alignment=(16, 64, 1)[k % 3],
            pools=("fast",) if k % 2 else ("slow",),
            lifetimes=(*b.lifetimes, Lifetime(b.lifetimes[0].last + 3, b.lifetimes[0].last + 4)),
        )
        for k, b in enumerate(base.buffers)
    )
    answer = plan(Problem(buffers, (Pool("fast"), Pool("slow"))), node_budget=20_000)
    assert all(u.used_bytes <= 1.5 * u.lower_bound_bytes for u in answer.usage)


def test_many_in_a_hard_pool() -> None:
    free = plan(inference_like(700), node_budget=50_000).usage[0]
    bounded = replace(inference_like(700), pools=(Pool("memory", free.used_bytes),))
    assert plan(bounded, node_budget=50_000).usage[0].used_bytes <= free.used_bytes
    tight = replace(bounded, pools=(Pool("memory", free.lower_bound_bytes - 1),))
    with pytest.raises(PlanningError) as caught:
        plan(tight, node_budget=20_000)
    assert caught.value.proven


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ratio"), [("G_1", 1.0), ("resnet50", 1.004), ("pangu_2.6B", 1.003)])
def test_traces_of_training_are_near_or_at_their_bound(
    name: str, ratio: float, shared_instances: Callable[[str], Path]
) -> None:
    answer = plan(read_problem(shared_instances(f"traces/{name}.csv")), node_budget=20_000)
    usage = answer.usage[0]
    assert usage.used_bytes <= ratio * usage.lower_bound_bytes
    assert (answer.status is PlanStatus.OPTIMAL) == (usage.used_bytes == usage.lower_bound_bytes)
