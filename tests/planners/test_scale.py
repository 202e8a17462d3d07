"""Many buffers: valid, near the bound, and without lists of all conflicting pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.artifact.files import read_problem
from npu_memplan.planners import PlanningError, plan
from npu_memplan.planners.model import Model
from npu_memplan.problem import Lifetime, PlanStatus, Pool, Problem
from tests.support.planner_generate import inference_like, training_like


@pytest.mark.parametrize("make", [inference_like, training_like])
@pytest.mark.parametrize("count", [600, 3000])
def test_thousands_within_one_per_cent_of_the_bound(make: Callable[[int], Problem], count: int) -> None:
    answer = plan(make(count), node_budget=50_000)
    usage = answer.usage[0]
    assert usage.used_bytes <= 1.01 * usage.lower_bound_bytes
    assert answer == plan(make(count), node_budget=50_000)


def test_no_pairs_are_listed_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Model) -> list[list[int]]:
        raise AssertionError("the quadratic list of neighbours was requested")

    monkeypatch.setattr(Model, "neighbours", property(refuse))
    monkeypatch.setattr("npu_memplan.planners.scale.MOST_PAIRS", 1000)
    monkeypatch.setattr("npu_memplan.planners.scale.MOST_SCANNED", 1000)
    usage = plan(training_like(4000)).usage[0]
    assert usage.used_bytes <= 1.02 * usage.lower_bound_bytes


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
